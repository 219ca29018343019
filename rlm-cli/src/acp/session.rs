//! A session of a client: a rollout that takes one prompt after the other.

use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use agent_client_protocol::Client;
use agent_client_protocol::v1::ConnectionTo;
use agent_client_protocol::v1::schema::{
    PermissionOption, PermissionOptionKind, RequestPermissionOutcome, RequestPermissionRequest, SessionId,
};
use rlm_core::text::{cut, grouped};
use rlm_env::rollout::{CallGate, Rollout};
use rlm_env::unstable::SubLlmPrompt;
use rlm_env::{Context, Control, Host, ReplLanguage, RolloutConfig, RolloutResult, StopReason};
use rlm_rootd::{HttpModel, McpServers, Models};
use tokio::sync::{mpsc, oneshot};

use super::contract::Contract;
use super::edges::Edges;
use super::updates::Updates;
use crate::config::Settings;
use crate::config::table::{CONTEXT_TOKENS, MODEL, TOKEN_IDS};
use crate::environment::Environment;
use crate::files::write_private;
use crate::rollouts::{Setup, close};

/// Bytes of a prompt that go into the conversation; a longer one is a file.
const PROMPT_BYTES: usize = 64 << 10;

/// Characters of a longer one that do.
const PROMPT_CHARS: usize = 4000;

/// A prompt, and where its result goes.
#[derive(Debug)]
pub(super) struct Prompt {
    pub(super) text: String,
    /// Settings with another model, from this prompt on.
    pub(super) settings: Option<Box<Settings>>,
    pub(super) control: Control,
    pub(super) done: oneshot::Sender<RolloutResult>,
}

/// The parts of a session.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) id: SessionId,
    pub(super) cwd: PathBuf,
    pub(super) settings: Settings,
    pub(super) environment: Environment,
    pub(super) contract: Option<Contract>,
    pub(super) connection: ConnectionTo<Client>,
    pub(super) is_busy: Arc<AtomicBool>,
    /// True: the client is asked before each call.
    pub(super) asks: Arc<AtomicBool>,
    pub(super) edges: Arc<Edges>,
    /// The client's MCP servers.
    pub(super) mcp_servers: McpServers,
}

/// A rollout's parts.
struct Begun {
    host: Host,
    config: RolloutConfig,
    updates: Arc<Updates>,
    models: Arc<Models>,
    /// The MCP servers of the settings.
    mcp_servers: McpServers,
}

impl Plan {
    /// Runs the prompts as they come, until there are no more.
    pub(super) async fn run(mut self, mut prompts: mpsc::UnboundedReceiver<Prompt>) {
        let mut next = prompts.recv().await;
        // A rollout that could not begin is tried again with the next prompt.
        while let Some(mut prompt) = next {
            if let Some(settings) = prompt.settings.take() {
                self.settings = *settings;
            }
            next = match self.begin(&prompt).await {
                Ok(begun) => {
                    let next = self.go_on(&begun, prompt, &mut prompts).await;
                    close(begun.host).await;
                    begun.mcp_servers.stop().await;
                    next
                }
                Err(error) => {
                    _ = prompt.done.send(failed(&prompt.text, &error));
                    prompts.recv().await
                }
            };
        }
        self.mcp_servers.stop().await;
    }

    /// Runs a rollout for this prompt and those after it. Returns the prompt that it could not take.
    async fn go_on(
        &self,
        begun: &Begun,
        first: Prompt,
        prompts: &mut mpsc::UnboundedReceiver<Prompt>,
    ) -> Option<Prompt> {
        let Begun { host, config, updates, models, .. } = begun;
        let mut rollout = match host.begin(config, &first.control).await {
            Ok(rollout) => rollout,
            Err(result) => {
                _ = first.done.send(*result);
                return prompts.recv().await;
            }
        };
        let most = self.contract.as_ref().and_then(|contract| contract.max_total_turns);
        let result = rollout.answer(&first.control).await;
        let mut turns = result.metrics.root_llm_turns;
        updates.answer(&result);
        _ = first.done.send(result);
        let mut number = 1;
        // Settings with another model, until the rollout has it.
        let mut changed = None;
        while let Some(Prompt { text, settings, control, done }) = prompts.recv().await {
            number += 1;
            changed = settings.or(changed);
            if let Some(settings) = &changed {
                if let Err(error) = change_model(&mut rollout, models, settings).await {
                    _ = done.send(failed(&text, &format!("model: {error}")));
                    continue;
                }
                changed = None;
            }
            if let Some(most) = most {
                let used = u32::try_from(turns).unwrap_or(u32::MAX);
                rollout.set_max_turns(most.saturating_sub(used));
            }
            let name = message_file(number);
            let path = rollout.context_dir().join(&name);
            let asked = match shortened(&text, &path) {
                None => text,
                Some(question) => {
                    if let Err(error) = write_private(&path, text.as_bytes()) {
                        _ = done
                            .send(failed(&question, &format!("cannot keep the message in {name}: {error}")));
                        continue;
                    }
                    question
                }
            };
            let result = rollout.ask(&asked, &control).await;
            turns = result.metrics.root_llm_turns;
            updates.answer(&result);
            _ = done.send(result);
        }
        rollout.end().await;
        None
    }

    async fn begin(&self, prompt: &Prompt) -> Result<Begun, String> {
        let words = |error: anyhow::Error| format!("{error:#}");
        let mut setup = Setup::new(&self.settings, &self.environment).map_err(words)?;
        setup.open_files(&self.settings).map_err(|error| error.to_string())?;
        tokio::select! {
            () = setup.learn_limits(None) => {}
            () = prompt.control.cancelled() => {}
        }
        let mcp_servers = setup.start_mcp_servers().await.map_err(words)?;
        let Setup { host, rollout: mut config, root_models: models, .. } = setup;
        config.id = self.id.to_string();
        config.working_dir = Some(self.cwd.clone());
        config.plain_answers = true;
        config.root_tools.extend_from_slice(self.mcp_servers.tools());
        let name = message_file(1);
        (config.question, config.context) = match shortened(&prompt.text, Path::new(&name)) {
            None => (prompt.text.clone(), Context::Nothing),
            Some(question) => (question, Context::Files(vec![(name, prompt.text.clone().into_bytes())])),
        };
        config.sinks.push(self.edges.clone());
        if let Some(contract) = &self.contract {
            self.apply(contract, &mut config, &host).map_err(|error| error.to_string())?;
        }
        let language = if config.language == ReplLanguage::Bash { "bash" } else { "python" };
        let tells_tokens = self.settings.value(&TOKEN_IDS);
        let (connection, id, is_busy) = (self.connection.clone(), self.id.clone(), self.is_busy.clone());
        let updates = Updates::new(connection, id, is_busy, language, tells_tokens);
        config.gate = Some(Arc::new(Gate {
            connection: self.connection.clone(),
            session: self.id.clone(),
            updates: updates.clone(),
            asks: self.asks.clone(),
        }));
        config.sinks.push(updates.clone());
        let host = Host::start(host).await.map_err(|error| format!("{:#}", anyhow::Error::from(error)))?;
        Ok(Begun { host, config, updates, models, mcp_servers })
    }

    /// The fields of a contract that are not settings.
    fn apply(
        &self,
        contract: &Contract,
        config: &mut RolloutConfig,
        host: &rlm_env::HostConfig,
    ) -> Result<(), rlm_env::rollout::PromptError> {
        config.append_to_system_prompt.clone_from(&contract.append_to_system_prompt);
        if let Some(turns) = contract.max_total_turns {
            config.limits.max_turns = turns;
        }
        if let Some(compaction) = &contract.compaction {
            config.compaction.clone_from(compaction);
            config.summarize_turns = None;
        }
        if let Some(appended) = &contract.append_to_sub_prompt {
            let prompt = SubLlmPrompt::default().render(&host.prompts)?;
            config.sub_llm.system_prompt = Some(format!("{}\n\n{appended}", prompt.trim_end()));
        }
        if !contract.kernel_env.is_empty() {
            let mut passed =
                self.environment.text(rlm_core::env::PASS_ENV).ok().flatten().unwrap_or_default().to_owned();
            for (name, value) in &contract.kernel_env {
                config.env.push((name.into(), value.into()));
                passed = format!("{passed} {name}");
            }
            config.env.push((rlm_core::env::PASS_ENV.into(), passed.trim_start().into()));
        }
        Ok(())
    }
}

/// Gives a rollout the model of these settings, on the same server.
async fn change_model(
    rollout: &mut Rollout<'_>,
    models: &Arc<Models>,
    settings: &Settings,
) -> Result<(), String> {
    let name = settings.get(&MODEL).unwrap_or_default();
    let context_tokens = match settings.get(&CONTEXT_TOKENS) {
        None => models.limits_of(&name).await.context_tokens,
        set => set,
    };
    rollout.set_model(Arc::new(HttpModel::named(models.clone(), name)), context_tokens)
}

/// The file with the whole of a message that is too long for the conversation, among those of the context.
fn message_file(number: u32) -> String {
    format!("message-{number}.txt")
}

/// The text that takes the place of a message that is too long for the conversation.
fn shortened(text: &str, path: &Path) -> Option<String> {
    (text.len() > PROMPT_BYTES).then(|| {
        let (begins, bytes) = (cut(text, PROMPT_CHARS), grouped(text.len() as u64));
        format!("{begins}\n\n[The message has {bytes} bytes. All of it is in the file {}.]", path.display())
    })
}

/// The result of a prompt for which there is no rollout.
fn failed(question: &str, error: &str) -> RolloutResult {
    let result = serde_json::json!({
        "id": "", "question": question, "answer": null, "answer_ready": false, "stop_reason": StopReason::SetupFailed,
        "error": error, "metrics": rlm_env::rollout::Metrics::default(),
    });
    serde_json::from_value(result).expect("the fields are those of a result")
}

/// Asks the client before each call.
#[derive(Debug)]
struct Gate {
    connection: ConnectionTo<Client>,
    session: SessionId,
    updates: Arc<Updates>,
    asks: Arc<AtomicBool>,
}

impl Gate {
    async fn ask(&self, call_id: &str) -> bool {
        let options = [
            ("allow", "Run it", PermissionOptionKind::AllowOnce),
            ("allow_always", "Run this and all further calls", PermissionOptionKind::AllowAlways),
            ("reject", "Do not run it", PermissionOptionKind::RejectOnce),
        ];
        let options = options.map(|(id, name, kind)| PermissionOption::new(id, name, kind)).to_vec();
        let request =
            RequestPermissionRequest::new(self.session.clone(), self.updates.pending(call_id), options);
        let Ok(response) = self.connection.send_request(request).block_task().await else { return false };
        let RequestPermissionOutcome::Selected(selected) = response.outcome else { return false };
        match &*selected.option_id.0 {
            "allow" => true,
            "allow_always" => {
                self.asks.store(false, Ordering::Relaxed);
                true
            }
            _ => false,
        }
    }
}

impl CallGate for Gate {
    fn allows<'a>(
        &'a self,
        call_id: &'a str,
        _code: &'a str,
    ) -> Pin<Box<dyn Future<Output = bool> + Send + 'a>> {
        Box::pin(async move { !self.asks.load(Ordering::Relaxed) || self.ask(call_id).await })
    }
}
