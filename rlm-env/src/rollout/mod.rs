//! One rollout: from a question to an answer.
//!
//! A rollout has a directory with the context, a worker that runs code there, an endpoint for what that code calls on the
//! host, and a root model that leads. Whatever happens to any of them, the rollout ends with a result, and nothing of it is
//! left: each part ends when it is dropped, the worker first and the directory last.

mod calls;
mod clock;
mod config;
mod conversation;
mod http_model;
mod lead;
mod log;

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rlm_core::env;
use rlm_core::error::with_causes;
use rlm_core::protocol::Answer;
use rlm_rootd::nav::Navigation;
use rlm_rootd::{
    ChatTools, Ledger, MAX_TOOL_TIME_LIMIT, Registration, RolloutMetrics, Rootd, SubLlmOptions, Tool,
};
use serde_json::Value as Json;
use tokio_util::sync::CancellationToken;

use self::calls::Callable;
use self::clock::Clock;
pub use self::config::{
    Control, Limits, RolloutConfig, RolloutResult, Sink, StopReason, UnknownVerbosity, Verbosity,
};
use self::conversation::Conversation;
use self::http_model::HttpModel;
use self::lead::{Ended, Lead};
use self::log::Log;
use crate::callbacks::{Callbacks, Interceptor, InterceptorConfig};
use crate::endpoint::{host_variables, tool_variables};
use crate::host::{Host, RootLlm};
use crate::model::RootModel;
use crate::prompts::{CallForm, PromptError, ReplTool, SubLlmPrompt, SystemPrompt, ToolDoc, repl_tool_name};
use crate::session::{Session, SessionConfig};
use crate::trajectory::{self, Event, MessageKind, RolloutEnded, RolloutStarted};
use crate::workspace::{CopyLimits, Summary, Transcript, Workspace};

/// The part of a call's time that calls of root tools get, so that a batch which is too slow returns what it has.
const TOOL_TIME_PART: f64 = 0.95;

/// Runs a rollout to its end.
pub(crate) async fn run(host: &Host, config: &RolloutConfig, control: &Control) -> RolloutResult {
    let log = Arc::new(Log::new(&config.id, config.sinks.clone(), host.config.prices.clone()));
    let ended = match prepare(host, config, control, &log).await {
        Ok(prepared) => lead(host, config, control, &log, prepared).await,
        Err(stop) => {
            log.add(Event::RolloutStarted(started(host, config, None)));
            stop
        }
    };
    let metrics = log.metrics();
    log.add(Event::RolloutEnded(RolloutEnded {
        stop_reason: ended.reason,
        answer: ended.answer.clone(),
        answer_ready: ended.is_ready,
        error: ended.error.clone(),
        metrics: metrics.clone(),
    }));
    RolloutResult {
        id: config.id.clone(),
        question: config.question.clone(),
        answer: ended.answer,
        answer_ready: ended.is_ready,
        stop_reason: ended.reason,
        error: ended.error,
        metrics,
        dir: ended.dir,
    }
}

/// A rollout that is set up. Dropping it ends it, in this order.
struct Prepared {
    session: Session,
    interceptor: Option<Interceptor>,
    registered: Registered,
    directory: Directory,
    model: Arc<dyn RootModel>,
    tools: ChatTools,
    definitions: Vec<Json>,
    system_prompt: String,
}

/// A rollout's directory, with the context in it.
struct Directory {
    workspace: Workspace,
    files: Summary,
    transcript: Transcript,
}

/// Sets a rollout up, unless it is ended from outside.
async fn prepare(
    host: &Host,
    config: &RolloutConfig,
    control: &Control,
    log: &Arc<Log>,
) -> Result<Prepared, Ended> {
    let stopped = || {
        let reason = if control.is_cancelled() { StopReason::Cancelled } else { StopReason::Stopped };
        Ended { reason, answer: None, is_ready: false, error: None, dir: None }
    };
    let tools = standard_tools(config)?;
    // A copy under way is stopped, and waited for: it would outlive us.
    let directory = match Directory::make(host, config, control.stopping()).await {
        Ok(directory) => directory,
        Err(_) if control.is_stopped() => return Err(stopped()),
        Err(error) => return Err(error.into()),
    };
    let kept = directory.kept();
    tokio::select! {
        biased;
        () = control.stopped() => Err(Ended { dir: kept, ..stopped() }),
        prepared = equip(host, config, log, tools, directory) => {
            prepared.map_err(|error| Ended { dir: kept, ..error.into() })
        }
    }
}

/// The tools that the root model calls beside the REPL.
fn standard_tools(config: &RolloutConfig) -> Result<ChatTools, String> {
    let tools = &config.standard_tools;
    let repl = repl_tool_name(config.language);
    let is_taken = |(at, tool): &(usize, &Tool)| {
        tool.name() == repl || tools[..*at].iter().any(|other| other.name() == tool.name())
    };
    if let Some((_, tool)) = tools.iter().enumerate().find(is_taken) {
        return Err(format!("the standard tool {} has a name that another tool has", tool.name()));
    }
    let inner: Vec<_> = tools.iter().map(Tool::inner).collect();
    ChatTools::new(&inner).map_err(|error| error.to_string())
}

impl Directory {
    async fn make(host: &Host, config: &RolloutConfig, stop: CancellationToken) -> Result<Self, String> {
        let workspace = Workspace::create(&host.dir, &config.id, config.keep.as_deref());
        let workspace = workspace.map_err(|error| with_causes(&error))?;
        let limits = CopyLimits::of_bytes(config.limits.max_context_bytes);
        let files = match workspace.fill(config.context.clone(), limits, stop).await {
            Ok(files) => files,
            Err(error) => {
                remove(config, workspace).await;
                return Err(with_causes(&error));
            }
        };
        let transcript =
            workspace.transcript().map_err(|error| format!("cannot begin .messages: {error}"))?;
        Ok(Self { workspace, files, transcript })
    }

    /// Where it stays, if it does.
    fn kept(&self) -> Option<PathBuf> {
        self.workspace.is_kept().then(|| self.workspace.path().to_owned())
    }
}

/// Starts what works in a directory.
async fn equip(
    host: &Host,
    config: &RolloutConfig,
    log: &Arc<Log>,
    tools: ChatTools,
    directory: Directory,
) -> Result<Prepared, String> {
    let Directory { workspace, files, .. } = &directory;
    let root_tools = root_tools(config, workspace)?;
    let registered = Registered::new(host, config, root_tools.clone(), log)?;
    let model: Arc<dyn RootModel> = match &host.config.root_llm {
        RootLlm::Other(model) => model.clone(),
        RootLlm::Http(models) => {
            let model = HttpModel::new(models, &registered.ledger, config.sampling.clone());
            Arc::new(model.map_err(|error| error.to_string())?)
        }
    };
    let definitions = definitions(host, config, &tools).map_err(|error| error.to_string())?;
    let system_prompt = system_prompt(host, config, &root_tools, files).map_err(|error| error.to_string())?;
    let session = SessionConfig {
        control_dir: Some(workspace.control_path().to_owned()),
        fs_metadata: files.to_json(),
        env: worker_env(host, config, &registered),
        exec_timeout: Some(config.limits.call_timeout),
        ..SessionConfig::new(host.worker(config.language), workspace.fs_path())
    };
    let session = Session::start(session).await.map_err(|error| with_causes(&error))?;
    let interceptor = interceptor(host, config, &registered).map_err(|error| with_causes(&error))?;
    Ok(Prepared { session, interceptor, registered, directory, model, tools, definitions, system_prompt })
}

/// Leads a rollout that is set up to its end, and takes it down.
async fn lead(
    host: &Host,
    config: &RolloutConfig,
    control: &Control,
    log: &Arc<Log>,
    prepared: Prepared,
) -> Ended {
    let Prepared { session, interceptor, registered, directory, model, tools, definitions, system_prompt } =
        prepared;
    log.add(Event::RolloutStarted(started(host, config, Some((&registered, &directory.files)))));
    let dir = directory.kept();
    let Directory { workspace, transcript, .. } = directory;
    let mut conversation = Conversation::new(log.clone(), transcript);
    conversation.say(MessageKind::System, "system", &system_prompt);
    conversation.say(MessageKind::Question, "user", &config.question);
    let mut lead = Lead {
        config,
        control,
        log: log.clone(),
        prompts: &host.config.prompts,
        model,
        session,
        interceptor,
        conversation,
        clock: Clock::start(config.limits.timeout),
        definitions,
        callable: Callable::new(config.language, &config.standard_tools),
        tools,
        answer: Answer::default(),
        last_words: None,
        restarts: 0,
        idle_turns: 0,
        is_warned: false,
        put_off: 0,
    };
    let ended = lead.run().await;
    // The rollout has ended, however its worker does.
    if let Err(error) = lead.session.close().await {
        tracing::debug!(rollout = config.id, %error, "the worker did not end well");
    }
    if let Some(seen) = registered.end().await {
        log.add_root_tools(&seen);
    }
    remove(config, workspace).await;
    Ended { dir, ..ended }
}

/// Removes the directory, however large it is.
async fn remove(config: &RolloutConfig, workspace: Workspace) {
    let removing = tokio::task::spawn_blocking(move || workspace.remove()).await;
    if let Ok(Err(error)) = removing {
        tracing::warn!(rollout = config.id, %error, "the directory of a rollout is left behind");
    }
}

/// What code in the session can call beside `llm_batch` and `budget`.
fn root_tools(config: &RolloutConfig, workspace: &Workspace) -> Result<Vec<Tool>, String> {
    let mut tools = config.root_tools.clone();
    if config.navigation.unwrap_or(config.callbacks == Callbacks::Intercept) {
        let navigation = Navigation::new(workspace.fs_path()).map_err(|error| with_causes(&error))?;
        tools.extend(navigation.tools());
    }
    Ok(tools)
}

/// What makes the calls of a session that cannot. None: it can.
fn interceptor(
    host: &Host,
    config: &RolloutConfig,
    registered: &Registered,
) -> std::io::Result<Option<Interceptor>> {
    if config.callbacks == Callbacks::Network {
        return Ok(None);
    }
    Interceptor::new(InterceptorConfig {
        rootd: registered.rootd.clone(),
        rollout: registered.registration.id.clone(),
        tools: registered.registration.tools.clone(),
        language: config.language,
        prompts: host.config.prompts.clone(),
    })
    .map(Some)
}

/// A rollout at the endpoint for root tools; it is removed there on drop.
struct Registered {
    rootd: Rootd,
    registration: Registration,
    ledger: Arc<Ledger>,
    tools_url: String,
    chat_url: String,
}

impl Registered {
    fn new(
        host: &Host,
        config: &RolloutConfig,
        root_tools: Vec<Tool>,
        log: &Arc<Log>,
    ) -> Result<Self, String> {
        let rootd = host.endpoint.rootd.clone();
        let at_endpoint = rlm_rootd::RolloutConfig {
            tools: root_tools,
            tool_time_limit: tool_time_limit(config),
            budget: config.limits.budget,
            sub_llm: SubLlmOptions {
                recorder: Some(log.clone()),
                system_prompt: sub_llm_prompt(host, config).map_err(|error| error.to_string())?,
                ..config.sub_llm.clone()
            },
            ..rlm_rootd::RolloutConfig::default()
        };
        let registration = rootd.register(&config.id, at_endpoint).map_err(|error| with_causes(&error))?;
        let ledger = rootd.ledger(&config.id).ok_or("the rollout was removed from its endpoint")?;
        let base_url = &host.endpoint.base_url;
        let (tools_url, chat_url) = (registration.tools_url(base_url), registration.chat_url(base_url));
        Ok(Self { rootd, registration, ledger, tools_url, chat_url })
    }

    /// Ends what still runs, waits for it, and says what was called in all.
    async fn end(self) -> Option<RolloutMetrics> {
        self.rootd.end(&self.registration.id).await
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        // None: it has ended already.
        let _metrics = self.rootd.unregister(&self.registration.id);
    }
}

/// A rollout that could not be set up.
impl From<String> for Ended {
    fn from(error: String) -> Self {
        Self { reason: StopReason::SetupFailed, answer: None, is_ready: false, error: Some(error), dir: None }
    }
}

fn tool_time_limit(config: &RolloutConfig) -> Duration {
    config.limits.call_timeout.mul_f64(TOOL_TIME_PART).min(MAX_TOOL_TIME_LIMIT)
}

/// What the worker gets to know.
fn worker_env(host: &Host, config: &RolloutConfig, registered: &Registered) -> Vec<(OsString, OsString)> {
    let mut variables = host_variables(&host.config.env);
    if config.callbacks == Callbacks::Network {
        variables.extend(endpoint_variables(host, config, registered));
    }
    variables.retain(|(name, _)| name != env::FINAL_FUNCTIONS);
    if config.final_functions {
        variables.push((env::FINAL_FUNCTIONS.into(), "1".into()));
    }
    for (name, value) in &config.env {
        variables.retain(|(held, _)| held != name);
        variables.push((name.clone(), value.clone()));
    }
    variables
}

/// What the worker gets to know of the endpoint.
fn endpoint_variables(
    host: &Host,
    config: &RolloutConfig,
    registered: &Registered,
) -> Vec<(OsString, OsString)> {
    let mut variables = tool_variables(&registered.registration, &registered.tools_url).to_vec();
    let mut set = |name: &str, value: &str| variables.push((name.into(), value.into()));
    set(env::SUB_LLM_TIMEOUT, &tool_time_limit(config).as_secs_f64().to_string());
    if let Some(model) = sub_model(host, config) {
        set(env::INTERCEPTION_URL, &registered.chat_url);
        set(env::SUB_MODEL, model);
        set(env::MAX_SUB_LLM_PARALLELISM, &config.sub_llm.parallelism.to_string());
    }
    variables
}

/// The model of the rollout's sub-LLM.
fn sub_model<'a>(host: &'a Host, config: &'a RolloutConfig) -> Option<&'a str> {
    let models = host.config.sub_models.as_ref()?;
    Some(config.sub_llm.model.as_deref().unwrap_or(models.model()))
}

fn started(host: &Host, config: &RolloutConfig, prepared: Option<(&Registered, &Summary)>) -> RolloutStarted {
    let callable = Callable::new(config.language, &config.standard_tools);
    RolloutStarted {
        version: trajectory::VERSION,
        question: config.question.clone(),
        language: config.language.to_string(),
        callbacks: config.callbacks,
        final_functions: config.final_functions,
        model: host.config.root_llm.name().to_owned(),
        sub_model: sub_model(host, config).map(str::to_owned),
        root_tools: prepared.map_or_else(Vec::new, |(registered, _)| registered.registration.tools.clone()),
        tools: callable.names().into_iter().map(str::to_owned).collect(),
        context_files: prepared.map_or(0, |(_, files)| files.files()),
        context_bytes: prepared.map_or(0, |(_, files)| files.bytes()),
    }
}

/// What the root model may call, in OpenAI's form.
fn definitions(host: &Host, config: &RolloutConfig, tools: &ChatTools) -> Result<Vec<Json>, PromptError> {
    if !config.tool_calls {
        return Ok(Vec::new());
    }
    let Limits { call_timeout, max_output_length, .. } = config.limits;
    let repl = ReplTool { language: config.language, call_timeout, max_output_length };
    let others = tools.definitions().as_array().cloned().unwrap_or_default();
    Ok(std::iter::once(repl.definition(&host.config.prompts)?).chain(others).collect())
}

/// What sub-LLMs are told: what the rollout says, or what we say where it says nothing.
fn sub_llm_prompt(host: &Host, config: &RolloutConfig) -> Result<Option<String>, PromptError> {
    match &config.sub_llm.system_prompt {
        Some(own) if own.is_empty() => Ok(None),
        Some(own) => Ok(Some(own.clone())),
        None => {
            let SubLlmOptions { boxed, tools, .. } = &config.sub_llm;
            let prompt = SubLlmPrompt { boxed: *boxed, has_tools: !tools.is_empty() };
            prompt.render(&host.config.prompts).map(Some)
        }
    }
}

fn documented(tool: &Tool) -> ToolDoc<'_> {
    ToolDoc { name: tool.name(), description: tool.description(), parameters: tool.parameters() }
}

fn system_prompt(
    host: &Host,
    config: &RolloutConfig,
    root_tools: &[Tool],
    files: &Summary,
) -> Result<String, PromptError> {
    let root_tools: Vec<_> = root_tools.iter().map(documented).collect();
    let has_models = host.config.sub_models.is_some();
    let prompt = SystemPrompt {
        language: config.language,
        verbosity: config.verbosity,
        callbacks: config.callbacks,
        call_form: if config.tool_calls { CallForm::Tool } else { CallForm::Fenced },
        root_tools: &root_tools,
        sub_llm_parallelism: has_models.then_some(config.sub_llm.parallelism),
        has_budget: has_models,
        has_final_functions: config.final_functions,
        limits: &config.limits,
        files: &files.text(),
    };
    prompt.render(&host.config.prompts)
}
