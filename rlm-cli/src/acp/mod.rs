//! `rlm acp`: an agent of the Agent Client Protocol, wire version 1, on standard input and output.
//!
//! Standard output belongs to the protocol; messages for people go to standard error. Only this module and those below it know the
//! types of the SDK, which change with each of its majors while the wire stays.
//!
//! A session is a rollout in the client's directory that takes one prompt after the other (`session`). Its prompts run in a task of
//! its own: dropping the sender of its prompts ends it. The end of standard input ends all sessions.

mod contract;
mod convert;
mod edges;
mod lines;
mod session;
mod tokens;
mod updates;

use std::collections::HashMap;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use agent_client_protocol::schema::ProtocolVersion;
use agent_client_protocol::v1::schema::{
    AgentCapabilities, CancelNotification, CloseSessionRequest, CloseSessionResponse, Implementation,
    InitializeRequest, InitializeResponse, McpCapabilities, Meta, NewSessionRequest, NewSessionResponse,
    PromptRequest, PromptResponse, SessionCapabilities, SessionCloseCapabilities, SessionConfigOption,
    SessionConfigOptionCategory, SessionConfigOptionValue, SessionConfigSelectOption, SessionId,
    SetSessionConfigOptionRequest, SetSessionConfigOptionResponse, StopReason as WireReason, Usage,
};
use agent_client_protocol::v1::{ConnectionTo, Responder};
use agent_client_protocol::{Agent, Client, Error, Lines, on_receive_notification, on_receive_request};
use anyhow::Context as _;
use rlm_env::{Control, RolloutResult, StopReason};
use rlm_rootd::McpServers;
use tokio::sync::{mpsc, oneshot};
use tokio::task::{AbortHandle, JoinHandle, JoinSet};
use tokio_util::sync::CancellationToken;

use self::contract::{CONTRACT, Contract, KEY_VARIABLE};
use self::convert::{SNAPSHOT, declared, failure, invalid, snapshot, text_of, unknown_session};
use self::edges::Edges;
use self::session::{Plan, Prompt};
use crate::arguments::{AcpOptions, Permissions};
use crate::config::table::{LANGUAGE, MODEL, PYTHON};
use crate::config::{AnySetting as _, Flags, Settings};
use crate::doctor::tell_of_confinement;
use crate::environment::Environment;
use crate::lock::lock;
use crate::rollouts::{Setup, hide_from_others, new_id};
use crate::signals::AnyEndSignal;
use crate::tell;

/// Time for the prompts of sessions to end after the client is gone. Then they are dropped: their workers are told to end, which
/// takes 0.7 s with code that ignores every signal but SIGKILL.
const LAST_CALLS: Duration = Duration::from_secs(1);

/// Time in which the model's server lists its models for a new session.
const LIST_TIME: Duration = Duration::from_secs(3);

/// Most models among which a client chooses.
const MOST_MODELS: usize = 1000;

/// The ids of the options of a session.
const MODEL_OPTION: &str = "model";
const PERMISSIONS_OPTION: &str = "permissions";

/// The values of the second one.
const ASK: &str = "ask";
const ALLOW: &str = "allow";

pub(crate) fn run(options: &AcpOptions, environment: &Environment) -> anyhow::Result<ExitCode> {
    crate::standard_output::require()?;
    // A mistake in the settings ends the agent at its start. The model may come with a session.
    let settings = Settings::load(&options.settings, environment)?;
    hide_from_others()?;
    let (language, python) = (settings.value(&LANGUAGE), settings.get(&PYTHON));
    let forked = crate::fork_server::Sessions::start(&settings, environment, language, python);
    let environment = &forked.environment;
    let log = crate::mcp::log::start("warn,rmcp=off")?;
    let runtime = tokio::runtime::Runtime::new().context("no threads can be started")?;
    let ended = runtime.block_on(async {
        let mut ends = AnyEndSignal::catch()?;
        tell_of_confinement(&settings.for_sessions(environment)).await;
        let sessions = Arc::new(Sessions::new(options, environment));
        let ended = tokio::select! {
            ended = serve(&sessions) => ended.map(|()| ExitCode::SUCCESS),
            status = ends.next() => Ok(ExitCode::from(status)),
        };
        sessions.close_all().await;
        ended
    });
    // A blocked thread reads standard input and cannot be woken.
    runtime.shutdown_background();
    log.finish(crate::mcp::log::LAST_LINES);
    ended
}

/// Serves the client until it closes its end.
async fn serve(sessions: &Arc<Sessions>) -> anyhow::Result<()> {
    let end = CancellationToken::new();
    let transport = Lines::new(lines::outgoing(sessions.is_busy.clone()), lines::incoming(end.clone()));
    let [new, prompt, cancel, close, set] = [(); 5].map(|()| sessions.clone());
    let serving = Agent
        .v1()
        .name("rlm")
        .on_receive_request(
            async move |_request: InitializeRequest, responder, _connection| responder.respond(initialize()),
            on_receive_request!(),
        )
        .on_receive_request(
            async move |request: NewSessionRequest, responder, connection: ConnectionTo<Client>| {
                let (new, client) = (new.clone(), connection.clone());
                connection
                    .spawn(async move { responder.respond_with_result(new.create(request, client).await) })
            },
            on_receive_request!(),
        )
        .on_receive_request(
            async move |request: PromptRequest, responder, connection| {
                prompt.prompt(request, responder, &connection)
            },
            on_receive_request!(),
        )
        .on_receive_request(
            async move |request: SetSessionConfigOptionRequest, responder, _connection| {
                responder.respond_with_result(set.configure(&request))
            },
            on_receive_request!(),
        )
        .on_receive_request(
            async move |request: CloseSessionRequest, responder, connection: ConnectionTo<Client>| {
                let closing = close.clone();
                connection.spawn(async move {
                    responder.respond_with_result(closing.close(&request.session_id).await)
                })
            },
            on_receive_request!(),
        )
        .on_receive_notification(
            async move |request: CancelNotification, _connection| {
                cancel.cancel(&request.session_id);
                Ok(())
            },
            on_receive_notification!(),
        )
        .connect_to(transport);
    tokio::select! {
        ended = serving => ended.map_err(|error| anyhow::anyhow!("the client does not speak the protocol: {error}")),
        () = end.cancelled() => Ok(()),
    }
}

fn initialize() -> InitializeResponse {
    let sessions = SessionCapabilities::new().close(SessionCloseCapabilities::new());
    let name = Implementation::new("rlm", env!("CARGO_PKG_VERSION")).title("RLM".to_owned());
    InitializeResponse::new(ProtocolVersion::V1)
        .agent_capabilities(
            AgentCapabilities::new()
                .session_capabilities(sessions)
                .mcp_capabilities(McpCapabilities::new().http(true)),
        )
        .agent_info(name)
}

/// The sessions of a client.
#[derive(Debug)]
struct Sessions {
    flags: Flags,
    environment: Environment,
    /// The permissions. None: the user is asked, unless a contract configures the session.
    permissions: Option<Permissions>,
    /// True while the client does not take what is sent.
    is_busy: Arc<AtomicBool>,
    open: Mutex<HashMap<SessionId, Session>>,
}

/// A session, as requests see it.
#[derive(Debug)]
struct Session {
    /// The parts of a session before its first prompt.
    plan: Option<Box<Plan>>,
    /// The channel on which the session's task takes prompts, from the first prompt on.
    prompts: Option<mpsc::UnboundedSender<Prompt>>,
    task: Option<JoinHandle<()>>,
    /// The running prompt.
    control: Option<Control>,
    model: String,
    /// The models that the server lists.
    models: Vec<String>,
    flags: Flags,
    environment: Environment,
    /// The settings with another model, for the next prompt.
    changed: Option<Box<Settings>>,
    /// True: the user is asked before each call.
    asks: Arc<AtomicBool>,
    /// The id by which a trainer knows it.
    trace: Option<String>,
    edges: Arc<Edges>,
    /// Tokens of all prompts before: input, output.
    spent: (u64, u64),
}

impl Sessions {
    fn new(options: &AcpOptions, environment: &Environment) -> Self {
        Self {
            flags: options.settings.clone(),
            environment: environment.clone(),
            permissions: options.permissions,
            is_busy: Arc::default(),
            open: Mutex::default(),
        }
    }

    async fn create(
        &self,
        request: NewSessionRequest,
        connection: ConnectionTo<Client>,
    ) -> Result<NewSessionResponse, Error> {
        let NewSessionRequest { cwd, mcp_servers, meta, .. } = request;
        let contract = meta.as_ref().and_then(|meta| meta.get(CONTRACT)).map(Contract::read).transpose();
        let contract = contract.map_err(invalid)?;
        if !cwd.is_absolute() || !cwd.is_dir() {
            return Err(invalid(format!("cwd: {} is not an absolute path of a directory", cwd.display())));
        }
        let mcp_servers = mcp_servers.into_iter().map(|server| declared(server, &cwd));
        let mcp_servers = mcp_servers.collect::<Result<Vec<_>, _>>()?;
        let mut flags = self.flags.clone();
        let mut environment = self.environment.clone();
        if let Some(contract) = &contract {
            flags = contract.flags(&flags);
            if let Some(key) = &contract.api_key {
                environment = environment.with(KEY_VARIABLE, key);
            }
            if !contract.ignored.is_empty() {
                tracing::warn!(
                    fields = contract.ignored.join(", "),
                    "fields of the contract without a meaning here"
                );
            }
        }
        let settings = Settings::load(&flags, &environment).map_err(wrong_settings)?;
        // Without a model, the client sets one before the first prompt.
        let setup = settings.get(&MODEL).map(|_| Setup::new(&settings, &environment)).transpose();
        let models = match setup.map_err(wrong_settings)? {
            // A trainer has chosen already.
            Some(setup) if contract.is_none() => listed(&setup).await,
            _ => Vec::new(),
        };
        let mcp_servers = match mcp_servers.is_empty() {
            true => McpServers::default(),
            false => {
                let started = McpServers::start(mcp_servers, environment.variables()).await;
                started.map_err(|error| invalid(format!("mcpServers: {error}")))?
            }
        };
        let default = if contract.is_some() { Permissions::Allow } else { Permissions::Ask };
        let asks = self.permissions.unwrap_or(default) == Permissions::Ask;
        let asks = Arc::new(AtomicBool::new(asks));
        let (id, edges) = (SessionId::new(new_id()), Arc::<Edges>::default());
        let trace = contract.as_ref().and_then(|contract| contract.session_id.clone());
        let session = Session {
            control: None,
            model: settings.get(&MODEL).unwrap_or_default(),
            models,
            flags,
            environment: environment.clone(),
            changed: None,
            asks: asks.clone(),
            trace,
            edges: edges.clone(),
            spent: (0, 0),
            prompts: None,
            task: None,
            plan: Some(Box::new(Plan {
                id: id.clone(),
                cwd,
                settings,
                environment,
                contract,
                connection,
                is_busy: self.is_busy.clone(),
                asks,
                edges,
                mcp_servers,
            })),
        };
        let options = session.options();
        lock(&self.open).insert(id.clone(), session);
        Ok(NewSessionResponse::new(id).config_options(options))
    }

    fn prompt(
        self: &Arc<Self>,
        request: PromptRequest,
        responder: Responder<PromptResponse>,
        connection: &ConnectionTo<Client>,
    ) -> Result<(), Error> {
        let begun = text_of(&request.prompt).and_then(|text| self.begin_prompt(&request.session_id, text));
        let (control, done) = match begun {
            Ok(begun) => begun,
            Err(error) => return responder.respond_with_error(error),
        };
        let (this, id, cancellation) = (self.clone(), request.session_id, responder.cancellation());
        connection.spawn(async move {
            let mut done = std::pin::pin!(done);
            let result = tokio::select! {
                result = &mut done => result,
                () = cancellation.cancelled() => {
                    control.cancel();
                    done.await
                }
            };
            let response = match result {
                Ok(result) => this.end_prompt(&id, &result),
                Err(_closed) => Ok(PromptResponse::new(WireReason::Cancelled)),
            };
            responder.respond_with_result(response)
        })
    }

    /// Hands a prompt to its session, which starts with the first one.
    fn begin_prompt(
        &self,
        id: &SessionId,
        text: String,
    ) -> Result<(Control, oneshot::Receiver<RolloutResult>), Error> {
        let mut open = lock(&self.open);
        let session = open.get_mut(id).ok_or_else(|| unknown_session(id))?;
        if session.control.is_some() {
            return Err(Error::new(Error::invalid_request().code, "the session works on a prompt already"));
        }
        let control = Control::new();
        let (done, result) = oneshot::channel();
        if let Some(plan) = session.plan.take() {
            let (prompts, receiver) = mpsc::unbounded_channel();
            session.prompts = Some(prompts);
            session.task = Some(tokio::spawn(plan.run(receiver)));
        }
        if let Some(prompts) = &session.prompts {
            // A session that has ended drops `done`.
            let settings = session.changed.take();
            _ = prompts.send(Prompt { text, settings, control: control.clone(), done });
        }
        session.control = Some(control.clone());
        Ok((control, result))
    }

    fn end_prompt(&self, id: &SessionId, result: &RolloutResult) -> Result<PromptResponse, Error> {
        let mut open = lock(&self.open);
        let Some(session) = open.get_mut(id) else { return Ok(PromptResponse::new(WireReason::Cancelled)) };
        session.control = None;
        let reason = match result.stop_reason {
            StopReason::Answered | StopReason::NoToolCall => WireReason::EndTurn,
            StopReason::ModelRefused => WireReason::Refusal,
            StopReason::BudgetExhausted | StopReason::ContextFull | StopReason::ReplyCut => {
                WireReason::MaxTokens
            }
            StopReason::MaxTurns | StopReason::TimedOut => WireReason::MaxTurnRequests,
            StopReason::Stopped | StopReason::Cancelled => WireReason::Cancelled,
            _ => return Err(failure(result)),
        };
        let metrics = &result.metrics;
        let input = metrics.root_llm_prompt_tokens + metrics.sub_llm_prompt_tokens;
        let output = metrics.root_llm_completion_tokens + metrics.sub_llm_completion_tokens;
        let (input_before, output_before) = std::mem::replace(&mut session.spent, (input, output));
        let (input, output) = (input.saturating_sub(input_before), output.saturating_sub(output_before));
        let response =
            PromptResponse::new(reason).usage(Usage::new(input.saturating_add(output), input, output));
        Ok(match &session.trace {
            Some(trace) => response.meta(Meta::from_iter([
                (SNAPSHOT.to_owned(), snapshot(trace, result)),
                (edges::KEY.to_owned(), session.edges.take()),
            ])),
            None => response,
        })
    }

    fn cancel(&self, id: &SessionId) {
        if let Some(control) = lock(&self.open).get(id).and_then(|session| session.control.as_ref()) {
            control.cancel();
        }
    }

    fn configure(
        &self,
        request: &SetSessionConfigOptionRequest,
    ) -> Result<SetSessionConfigOptionResponse, Error> {
        let mut open = lock(&self.open);
        let id = &request.session_id;
        let session = open.get_mut(id).ok_or_else(|| unknown_session(id))?;
        let SessionConfigOptionValue::ValueId { value } = &request.value else {
            return Err(invalid("value: expected the id of a value"));
        };
        session.configure(&request.config_id.0, &value.0)?;
        Ok(SetSessionConfigOptionResponse::new(session.options()))
    }

    async fn close(&self, id: &SessionId) -> Result<CloseSessionResponse, Error> {
        let session = lock(&self.open).remove(id).ok_or_else(|| unknown_session(id))?;
        session.close().await;
        Ok(CloseSessionResponse::new())
    }

    async fn close_all(&self) {
        let sessions: Vec<_> = lock(&self.open).drain().map(|(_, session)| session).collect();
        let tasks: Vec<_> = sessions.iter().filter_map(|session| session.task.as_ref()).collect();
        let tasks: Vec<_> = tasks.into_iter().map(JoinHandle::abort_handle).collect();
        let mut closing: JoinSet<()> = sessions.into_iter().map(Session::close).collect();
        let last_calls = tokio::time::sleep(LAST_CALLS);
        tokio::pin!(last_calls);
        loop {
            tokio::select! {
                closed = closing.join_next() => if closed.is_none() { return },
                () = &mut last_calls, if !last_calls.is_elapsed() => tasks.iter().for_each(AbortHandle::abort),
            }
        }
    }
}

impl Session {
    /// The options that a client shows to its user.
    fn options(&self) -> Vec<SessionConfigOption> {
        let is_unlisted = |model: &&String| !model.is_empty() && !self.models.contains(model);
        let models = Some(&self.model).filter(is_unlisted).into_iter().chain(&self.models);
        let models = models.map(|model| SessionConfigSelectOption::new(model.clone(), model.clone()));
        let permissions = if self.asks.load(Ordering::Relaxed) { ASK } else { ALLOW };
        let modes = [(ASK, "Ask before each call"), (ALLOW, "Run calls without asking")]
            .map(|(id, name)| SessionConfigSelectOption::new(id, name));
        vec![
            SessionConfigOption::select(
                MODEL_OPTION,
                "Model",
                self.model.clone(),
                models.collect::<Vec<_>>(),
            )
            .category(SessionConfigOptionCategory::Model),
            SessionConfigOption::select(PERMISSIONS_OPTION, "Permissions", permissions, modes.to_vec())
                .category(SessionConfigOptionCategory::Mode),
        ]
    }

    fn configure(&mut self, option: &str, value: &str) -> Result<(), Error> {
        match (option, value) {
            (PERMISSIONS_OPTION, ASK | ALLOW) => self.asks.store(value == ASK, Ordering::Relaxed),
            (PERMISSIONS_OPTION, _) => return Err(invalid("permissions: expected ask or allow")),
            (MODEL_OPTION, model) if model == self.model => {}
            (MODEL_OPTION, model) => {
                MODEL.check(model).map_err(|reason| invalid(format!("model: {reason}")))?;
                let mut flags = self.flags.clone();
                flags.values.insert(MODEL.name, (model.to_owned(), "the client".to_owned()));
                let settings = Settings::load(&flags, &self.environment).map_err(wrong_settings)?;
                Setup::new(&settings, &self.environment).map_err(wrong_settings)?;
                match &mut self.plan {
                    Some(plan) => plan.settings = settings,
                    None => self.changed = Some(Box::new(settings)),
                }
                self.flags = flags;
                model.clone_into(&mut self.model);
            }
            _ => {
                return Err(invalid(format!(
                    "configId: `{option}` is not an option: expected model or permissions"
                )));
            }
        }
        Ok(())
    }

    /// Ends its prompt, and waits until it is gone.
    async fn close(self) {
        if let Some(control) = self.control {
            control.cancel();
        }
        drop(self.prompts);
        if let Some(task) = self.task {
            _ = task.await;
        }
        if let Some(plan) = self.plan {
            plan.mcp_servers.stop().await;
        }
    }
}

/// The models that the server lists, as far as it does in time.
async fn listed(setup: &Setup) -> Vec<String> {
    let listed = tokio::time::timeout(LIST_TIME, setup.root_models.list()).await;
    let mut models = listed.ok().and_then(Result::ok).unwrap_or_default();
    models.truncate(MOST_MODELS);
    models
}

fn wrong_settings(error: anyhow::Error) -> Error {
    let details = format!("{error:#}");
    tell(format_args!("rlm: {details}"));
    invalid(details)
}
