//! The setup of a rollout: everything before its first turn.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use rlm_core::env;
use rlm_core::error::with_causes;
use rlm_rootd::nav::Navigation;
use rlm_rootd::{ChatTools, MAX_TOOL_TIME_LIMIT, Paid, RootModel, SubLlmOptions, Tool};
use serde_json::Value as Json;
use tokio_util::sync::CancellationToken;

use super::answer_schema::AnswerSchema;
use super::calls::CallableTools;
use super::child::{Children, Runner};
use super::clock::{Clock, reach};
use super::config::{Control, RolloutConfig};
use super::conversation::Conversation;
use super::driver::{End, RolloutDriver, remove_directory};
use super::host::Parts;
use super::images::{Shown, show_tool};
use super::log::Log;
use super::query::{Answering, query_tools};
use super::recursion::Recursion;
use super::registration::RegisteredRollout;
use super::under_way::UnderWay;
use crate::callbacks::{Interceptor, InterceptorConfig};
use crate::endpoint::{host_variables, tool_variables};
use crate::prompts::{PromptError, ReplTool, SubLlmPrompt, SystemPrompt, ToolDoc, WorkingDir};
use crate::session::{CallClock, OutputObserver, Session, SessionConfig};
use crate::terms::{CallForm, Callbacks, Limits, StopReason};
use crate::trajectory::{self, Event, MessageKind, RolloutStarted};
use crate::workspace::{Context, CopyLimits, Summary, Transcript, Workspace};

/// The fraction of a call's time that root tools may take, so that a slow batch can still return what it has.
const TOOL_TIME_PART: f64 = 0.95;

/// The inputs of the setup.
pub(super) struct Setup<'a, 's> {
    pub(super) host: &'a Parts,
    /// Runs children.
    pub(super) runner: Arc<dyn Runner>,
    pub(super) config: &'a RolloutConfig,
    pub(super) control: &'s Control,
    pub(super) log: &'s Arc<Log>,
}

/// A rollout's directory, with the context in it.
struct Directory {
    workspace: Workspace,
    files: Arc<Summary>,
    transcript: Transcript,
}

impl Directory {
    /// The directory's path, if it is kept.
    fn kept(&self) -> Option<PathBuf> {
        self.workspace.is_kept().then(|| self.workspace.path().to_owned())
    }
}

impl<'a> Setup<'a, '_> {
    /// Sets the rollout up.
    ///
    /// # Errors
    /// The end of the rollout: it was stopped from outside, or a part could not be made.
    pub(super) async fn prepare(&self) -> Result<RolloutDriver<'a>, End> {
        // A parent waits for its child, so the setup of a child counts.
        let is_child = self.config.recursion.as_ref().is_some_and(Recursion::is_of_child);
        let clock = is_child.then(|| Clock::start(self.config.limits.timeout));
        let tools = self.standard_tools().map_err(End::setup_failed)?;
        let stopping = self.control.stopping().child_token();
        let mut making = pin!(self.make_directory(&stopping));
        let made = tokio::select! {
            made = &mut making => made,
            () = reach(clock.and_then(|clock| clock.end())) => {
                stopping.cancel();
                making.await
            }
        };
        let directory = match made {
            Ok(directory) => directory,
            Err(_) if self.control.is_stopped() => return Err(self.stopped()),
            Err(_) if stopping.is_cancelled() => return Err(StopReason::TimedOut.into()),
            Err(error) => return Err(End::setup_failed(error)),
        };
        let dir = directory.kept();
        let prepared = tokio::select! {
            biased;
            () = self.control.stopped() => Err(self.stopped()),
            equipped = self.equip(clock, tools, directory) => equipped.map_err(End::setup_failed),
        };
        prepared.map_err(|end| End { dir, ..end })
    }

    /// The first entry of the rollout's trajectory.
    pub(super) fn started(&self, root_tools: Vec<String>, files: Option<&Summary>) -> RolloutStarted {
        let config = self.config;
        let callable = CallableTools::new(config.language, &config.standard_tools);
        let (parent, parent_call_id) =
            config.recursion.as_ref().and_then(|recursion| recursion.origin().1).unzip();
        RolloutStarted {
            version: trajectory::VERSION,
            question: config.question.clone(),
            parent: parent.or_else(|| config.prefix.as_ref().map(|prefix| prefix.id().to_owned())),
            parent_call_id: parent_call_id.flatten(),
            branched_at: config.prefix.as_ref().map(|prefix| prefix.turns()),
            query_digest: config.recursion.as_ref().and_then(Recursion::query_digest),
            language: config.language.to_string(),
            callbacks: config.callbacks,
            final_functions: config.final_functions,
            model: self.model().name().to_owned(),
            sub_model: self.sub_model().map(str::to_owned),
            root_tools,
            tools: callable.names().into_iter().map(str::to_owned).collect(),
            context_files: files.map_or(0, Summary::files),
            context_bytes: files.map_or(0, Summary::bytes),
            context_left_out: files.map_or(Vec::new(), |files| files.left_out().to_vec()),
        }
    }

    /// The end of a rollout that was stopped from outside.
    fn stopped(&self) -> End {
        let reason = if self.control.is_cancelled() { StopReason::Cancelled } else { StopReason::Stopped };
        End::from(reason)
    }

    /// The tools that the root model calls beside the REPL.
    fn standard_tools(&self) -> Result<ChatTools, String> {
        let (tools, repl) = (&self.config.standard_tools, self.config.language.tool_name());
        let is_taken = |(at, tool): &(usize, &Tool)| {
            tool.name() == repl || tools[..*at].iter().any(|other| other.name() == tool.name())
        };
        if let Some((_, tool)) = tools.iter().enumerate().find(is_taken) {
            return Err(format!("another tool has the name of the standard tool {}", tool.name()));
        }
        let inner: Vec<_> = tools.iter().map(Tool::inner).collect();
        ChatTools::new(&inner).map_err(|error| error.to_string())
    }

    /// Makes the directory and copies the context into it. If cancelled, stops the copy and waits for it, since it
    /// would outlive the rollout.
    async fn make_directory(&self, stopping: &CancellationToken) -> Result<Directory, String> {
        let config = self.config;
        let workspace = Workspace::create(&self.host.dir, &config.id, config.keep.as_deref());
        let workspace = workspace.map_err(|error| with_causes(&error))?;
        let limits = CopyLimits::of_bytes(config.limits.max_context_bytes);
        // The state of a beginning has its files.
        let has_files = config.prefix.is_some() && config.working_dir.is_none();
        let context = if has_files { Context::Nothing } else { config.context.clone() };
        let filter = config.context_filter.clone();
        let files = match workspace.fill(context, filter, limits, stopping.clone()).await {
            Ok(files) => files,
            Err(error) => {
                remove_directory(&config.id, workspace).await;
                return Err(with_causes(&error));
            }
        };
        let transcript = workspace
            .transcript(config.messages_in_context)
            .map_err(|error| format!("cannot begin the transcript: {error}"))?;
        let files = config.prefix.as_ref().map_or_else(|| Arc::new(files), |prefix| prefix.files.clone());
        Ok(Directory { workspace, files, transcript })
    }

    /// Starts everything that works in the directory.
    async fn equip(
        &self,
        clock: Option<Clock>,
        tools: ChatTools,
        directory: Directory,
    ) -> Result<RolloutDriver<'a>, String> {
        let (host, config) = (self.host, self.config);
        let Directory { workspace, files, transcript } = &directory;
        let (under_way, call_clock) = (Arc::<UnderWay>::default(), CallClock::default());
        let prefix = config.prefix.as_deref();
        let start_clock = || Clock::start(config.timeout());
        under_way.works_until(self.control, clock.unwrap_or_else(start_clock).end());
        let shown = Shown::new(&config.images)?;
        let root_tools = self.root_tools(workspace, &under_way, &call_clock, &shown)?;
        let registered = self.register(root_tools.clone())?;
        under_way.has_ledger(&registered.ledger);
        let model = self.model();
        model.check(&config.sampling, &registered.ledger)?;
        let takes_tools = config.tool_calls && model.takes_tools();
        let call_form = if takes_tools { CallForm::Tool } else { CallForm::Fenced };
        // A server may have refused tools in the beginning.
        let call_form = prefix.map_or(call_form, |prefix| prefix.call_form);
        let definitions = self.definitions(&tools, call_form).map_err(|error| error.to_string())?;
        let system_prompt = |form| {
            self.system_prompt(&root_tools, files, workspace.fs_path(), form)
                .map_err(|error| error.to_string())
        };
        let fenced_prompt = takes_tools.then(|| system_prompt(CallForm::Fenced)).transpose()?;
        let system_prompt = system_prompt(call_form)?;
        let session = SessionConfig {
            control_dir: Some(workspace.control_path().to_owned()),
            fs_metadata: files.to_json(),
            env: self.worker_env(&registered, transcript.path()),
            allowed_paths: vec![workspace.fs_path().to_owned(), transcript.path().to_owned()],
            exec_timeout: Some(config.limits.call_timeout),
            output: self.observer(),
            clock: call_clock,
            ..SessionConfig::new(host.worker(config.language), self.working_dir(workspace))
        };
        let session = match prefix {
            Some(prefix) => prefix.begin(session).await,
            None => Session::start(session).await,
        };
        let session = session.map_err(|error| with_causes(&error))?;
        let interceptor = self.interceptor(&registered).map_err(|error| with_causes(&error))?;
        let started = self.started(registered.registration.tools.clone(), Some(files));
        self.log.add(Event::RolloutStarted(started));
        let Directory { workspace, transcript, files } = directory;
        let conversation = match prefix {
            Some(prefix) => {
                let mut conversation =
                    Conversation::go_on(self.log.clone(), transcript, prefix.messages.clone());
                if let Some(notice) = prefix.notice_of_directory(workspace.fs_path()) {
                    conversation.say(MessageKind::Notice, "user", &notice);
                }
                conversation
            }
            None => {
                let mut conversation = Conversation::new(self.log.clone(), transcript);
                conversation.say(MessageKind::System, "system", &system_prompt);
                conversation.question(&config.question, &config.images);
                conversation
            }
        };
        Ok(RolloutDriver {
            config,
            control: self.control.clone(),
            max_turns: config.limits.max_turns,
            turns_before: 0,
            log: self.log.clone(),
            prompts: &host.config.prompts,
            model: model.clone(),
            context_tokens: config.limits.context_tokens,
            session,
            interceptor,
            registered,
            conversation,
            workspace,
            clock: clock.unwrap_or_else(start_clock),
            under_way,
            callable: CallableTools::new(config.language, &config.standard_tools),
            tools,
            definitions,
            call_form,
            fenced_prompt: prefix.map_or(fenced_prompt, |prefix| prefix.fenced_prompt.clone()),
            shown,
            progress: prefix.map(|prefix| prefix.progress.clone()).unwrap_or_default(),
            files,
            pause_at: None,
            paused: None,
        })
    }

    fn working_dir<'b>(&'b self, workspace: &'b Workspace) -> &'b Path {
        self.config.working_dir.as_deref().unwrap_or(workspace.fs_path())
    }

    /// Watches the output of calls, if a sink wants it as it comes. Not if calls are intercepted: their lines precede the code's
    /// output, and are known only when the call has ended.
    fn observer(&self) -> Option<Arc<dyn OutputObserver>> {
        let is_root = self.config.recursion.as_ref().is_none_or(|recursion| recursion.origin().0 == 0);
        let is_watched = is_root && self.log.wants_output() && self.config.callbacks == Callbacks::Network;
        is_watched.then(|| self.log.clone() as Arc<dyn OutputObserver>)
    }

    /// The model that leads the rollout.
    fn model(&self) -> &'a Arc<dyn RootModel> {
        self.config.model.as_ref().unwrap_or(&self.host.config.root_model)
    }

    /// The root tools of the session besides `llm_batch`, `llm_query` and `budget`.
    fn root_tools(
        &self,
        workspace: &Workspace,
        under_way: &Arc<UnderWay>,
        clock: &CallClock,
        shown: &Shown,
    ) -> Result<Vec<Tool>, String> {
        let mut tools = self.config.root_tools.clone();
        let directories = vec![self.working_dir(workspace).to_owned(), workspace.fs_path().to_owned()];
        if self.config.show_images {
            tools.push(show_tool(directories.clone(), shown.clone()));
        }
        if let Some(recursion) = self.recursion() {
            let children = Children {
                runner: self.runner.clone(),
                parent: RolloutConfig {
                    context: Context::default(),
                    images: Vec::new(),
                    prefix: None,
                    ..self.config.clone()
                },
                model: self.model().clone(),
                node: recursion.node(),
                directories,
                under_way: under_way.clone(),
                clock: clock.clone(),
                log: self.log.clone(),
                count: AtomicU64::new(0),
                paid: Paid::default(),
            };
            let children: Arc<dyn Answering> = Arc::new(children);
            tools.extend(query_tools(&children));
        }
        if self.config.navigation.unwrap_or(self.config.callbacks == Callbacks::Intercept) {
            let navigation =
                Navigation::new(self.working_dir(workspace)).map_err(|error| with_causes(&error))?;
            tools.extend(navigation.tools());
        }
        Ok(tools)
    }

    /// Registers the rollout at the endpoint for root tools.
    fn register(&self, tools: Vec<Tool>) -> Result<RegisteredRollout, String> {
        let sub_llm = SubLlmOptions {
            recorder: Some(self.log.clone()),
            system_prompt: self.sub_llm_prompt().map_err(|error| error.to_string())?,
            ..self.config.sub_llm.clone()
        };
        let config = rlm_rootd::RolloutConfig {
            tools,
            tool_time_limit: self.tool_time_limit(),
            budget: self.config.budget(),
            shared_ledger: self.config.shared_ledger.clone(),
            sub_llm,
            ..rlm_rootd::RolloutConfig::default()
        };
        RegisteredRollout::new(self.host.rootd.clone(), &self.host.base_url, &self.config.id, config)
    }

    /// The recursion of the rollout, if it may have children.
    fn recursion(&self) -> Option<&'a Recursion> {
        self.config.recursion.as_ref().filter(|recursion| recursion.origin().0 < recursion.max_depth)
    }

    fn tool_time_limit(&self) -> Duration {
        self.config.limits.call_timeout.mul_f64(TOOL_TIME_PART).min(MAX_TOOL_TIME_LIMIT)
    }

    /// The interceptor of a session whose calls are intercepted; None if it calls root tools itself.
    fn interceptor(&self, registered: &RegisteredRollout) -> std::io::Result<Option<Interceptor>> {
        if self.config.callbacks == Callbacks::Network {
            return Ok(None);
        }
        Interceptor::new(InterceptorConfig {
            rootd: registered.rootd.clone(),
            rollout: registered.registration.id.clone(),
            tools: registered.registration.tools.clone(),
            language: self.config.language,
            prompts: self.host.config.prompts.clone(),
        })
        .map(Some)
    }

    /// The worker's environment.
    fn worker_env(&self, registered: &RegisteredRollout, transcript: &Path) -> Vec<(OsString, OsString)> {
        let mut variables = host_variables(&self.host.config.env);
        if self.config.callbacks == Callbacks::Network {
            variables.extend(self.endpoint_variables(registered));
        }
        variables.push((env::MESSAGES.into(), transcript.into()));
        variables.retain(|(name, _)| name != env::FINAL_FUNCTIONS);
        if self.config.final_functions {
            variables.push((env::FINAL_FUNCTIONS.into(), "1".into()));
        }
        for (name, value) in &self.config.env {
            env::set(&mut variables, name, value);
        }
        variables
    }

    /// The variables by which the worker finds the endpoint.
    fn endpoint_variables(&self, registered: &RegisteredRollout) -> Vec<(OsString, OsString)> {
        let mut variables = tool_variables(&registered.registration, &registered.tools_url).to_vec();
        let mut set = |name: &str, value: &str| variables.push((name.into(), value.into()));
        // Children have limits of their own.
        let longest = self.recursion().map_or(self.tool_time_limit(), |_| MAX_TOOL_TIME_LIMIT);
        set(env::SUB_LLM_TIMEOUT, &longest.as_secs_f64().to_string());
        if let Some(model) = self.sub_model() {
            set(env::INTERCEPTION_URL, &registered.chat_url);
            set(env::SUB_MODEL, model);
            set(env::MAX_SUB_LLM_PARALLELISM, &self.config.sub_llm.parallelism.to_string());
        }
        variables
    }

    /// The model of the rollout's sub-LLM.
    fn sub_model(&self) -> Option<&str> {
        let models = self.host.config.sub_models.as_ref()?;
        Some(self.config.sub_llm.model.as_deref().unwrap_or(models.model()))
    }

    /// The tools of the root model, in OpenAI's form.
    fn definitions(&self, tools: &ChatTools, call_form: CallForm) -> Result<Vec<Json>, PromptError> {
        if call_form == CallForm::Fenced {
            return Ok(Vec::new());
        }
        let Limits { call_timeout, max_output_length, .. } = self.config.limits;
        let repl = ReplTool { language: self.config.language, call_timeout, max_output_length };
        let others = tools.definitions().as_array().cloned().unwrap_or_default();
        Ok(std::iter::once(repl.definition(&self.host.config.prompts)?).chain(others).collect())
    }

    /// The system prompt of sub-LLMs: the rollout's, or the default one.
    fn sub_llm_prompt(&self) -> Result<Option<String>, PromptError> {
        match &self.config.sub_llm.system_prompt {
            Some(own) if own.is_empty() => Ok(None),
            Some(own) => Ok(Some(own.clone())),
            None => {
                let SubLlmOptions { boxed, tools, .. } = &self.config.sub_llm;
                let prompt = SubLlmPrompt { boxed: *boxed, has_tools: !tools.is_empty() };
                prompt.render(&self.host.config.prompts).map(Some)
            }
        }
    }

    /// The system prompt of the root model.
    fn system_prompt(
        &self,
        root_tools: &[Tool],
        files: &Summary,
        context_dir: &Path,
        call_form: CallForm,
    ) -> Result<String, PromptError> {
        let (config, prompts) = (self.config, &self.host.config.prompts);
        let summary = files.text();
        let text = match &config.working_dir {
            None => summary,
            Some(working_dir) => {
                let files = (files.files() > 0).then_some(summary.as_str());
                WorkingDir { working_dir, context_dir, files }.render(prompts)?
            }
        };
        let root_tools: Vec<_> = root_tools.iter().map(ToolDoc::from).collect();
        let has_models = self.host.config.sub_models.is_some();
        let answer_schema = config.answer_schema.as_ref().map(AnswerSchema::text);
        let prompt = SystemPrompt {
            language: config.language,
            verbosity: config.verbosity,
            callbacks: config.callbacks,
            call_form,
            root_tools: &root_tools,
            sub_llm_parallelism: has_models.then_some(config.sub_llm.parallelism),
            has_budget: has_models,
            has_final_functions: config.final_functions,
            answer_schema: answer_schema.as_deref(),
            is_child: config.recursion.as_ref().is_some_and(|recursion| recursion.origin().0 > 0),
            plain_answers: config.plain_answers,
            limits: &config.limits,
            files: &text,
        };
        let mut text = prompt.render(prompts)?;
        if let Some(appended) = &config.append_to_system_prompt {
            text.push_str("\n\n");
            text.push_str(appended);
        }
        Ok(text)
    }
}
