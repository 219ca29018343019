//! The root loop: model, calls, model, until there is an answer or a reason to stop.
//!
//! The order within a turn: run the calls of the last reply, read the answer, check the limits, and only then ask the
//! model again. Before a limit is reached the model gets one last turn, announced by a notice; tokens and time for it
//! were reserved.

mod answer;
mod budget;
mod compaction;
mod execution;
mod requests;

use std::path::PathBuf;
use std::sync::Arc;

use rlm_core::protocol::Answer;
use rlm_rootd::{ChatTools, ModelError, ModelErrorKind, RootModel};
use serde_json::Value as Json;

use super::calls::CallableTools;
use super::clock::Clock;
use super::config::{Control, RolloutConfig};
use super::conversation::Conversation;
use super::images::Shown;
use super::log::Log;
use super::progress::Progress;
use super::registration::RegisteredRollout;
use super::under_way::UnderWay;
use crate::callbacks::Interceptor;
use crate::prompts::{LastTurn, PromptError, Prompts};
use crate::session::Session;
use crate::terms::{CallForm, StopReason};
use crate::trajectory::{Event, MessageKind, ModelChanged};
use crate::workspace::{Summary, Workspace};

/// Percentage of the context window from which on the model gets its last turn.
const FULL_PERCENT: u128 = 92;

/// The end of a question, or of a rollout.
#[derive(Clone, Debug)]
pub(super) struct End {
    pub(super) reason: StopReason,
    pub(super) answer: Option<String>,
    pub(super) is_ready: bool,
    pub(super) error: Option<String>,
    /// True if the model's server refused the key, or what it stands for.
    pub(super) is_refused: bool,
    /// The rollout's directory, if it was kept.
    pub(super) dir: Option<PathBuf>,
}

impl From<StopReason> for End {
    fn from(reason: StopReason) -> Self {
        Self { reason, answer: None, is_ready: false, error: None, is_refused: false, dir: None }
    }
}

impl End {
    /// The end of a rollout that could not be set up.
    pub(super) fn setup_failed(error: String) -> Self {
        Self { error: Some(error), ..Self::from(StopReason::SetupFailed) }
    }
}

/// The result of a step of the loop.
type Step<T = ()> = Result<T, Stop>;

/// The result of a call.
#[derive(Debug)]
struct CallResult {
    /// The text for the model.
    text: String,
    /// Set if the rollout ends with this call.
    stop: Option<Stop>,
}

impl From<String> for CallResult {
    fn from(text: String) -> Self {
        Self { text, stop: None }
    }
}

/// Why the rollout ends here.
#[derive(Debug)]
struct Stop {
    reason: StopReason,
    error: Option<String>,
    /// True if the model's server refused the key, or what it stands for.
    is_refused: bool,
}

impl Stop {
    fn new(reason: StopReason, error: String) -> Self {
        Self { reason, error: Some(error), is_refused: false }
    }
}

impl From<PromptError> for Stop {
    fn from(error: PromptError) -> Self {
        Self::new(StopReason::SetupFailed, error.to_string())
    }
}

impl From<StopReason> for Stop {
    fn from(reason: StopReason) -> Self {
        Self { reason, error: None, is_refused: false }
    }
}

impl From<ModelError> for Stop {
    fn from(error: ModelError) -> Self {
        let reason = match error.kind {
            ModelErrorKind::TooLong => StopReason::ContextFull,
            ModelErrorKind::Budget => StopReason::BudgetExhausted,
            ModelErrorKind::TimedOut => StopReason::TimedOut,
            _ => StopReason::ModelFailed,
        };
        Self { reason, error: Some(error.message), is_refused: error.kind == ModelErrorKind::Refused }
    }
}

/// A running rollout. Field order is drop order: the worker first, the directory last.
#[derive(Debug)]
pub(super) struct RolloutDriver<'a> {
    pub(super) config: &'a RolloutConfig,
    /// Ends the running question.
    pub(super) control: Control,
    /// Turns that the running question may take, and the number of the last one before it.
    pub(super) max_turns: u32,
    pub(super) turns_before: u32,
    pub(super) log: Arc<Log>,
    pub(super) prompts: &'a Prompts,
    pub(super) model: Arc<dyn RootModel>,
    /// The size of the model's context window in tokens, if it is known.
    pub(super) context_tokens: Option<u64>,
    pub(super) session: Session,
    /// The interceptor. None: code in the session calls root tools itself.
    pub(super) interceptor: Option<Interceptor>,
    pub(super) registered: RegisteredRollout,
    pub(super) conversation: Conversation,
    pub(super) workspace: Workspace,
    pub(super) clock: Clock,
    pub(super) under_way: Arc<UnderWay>,
    pub(super) callable: CallableTools,
    pub(super) tools: ChatTools,
    /// The tools of the model, in OpenAI's form.
    pub(super) definitions: Vec<Json>,
    /// The way in which the model calls the REPL.
    pub(super) call_form: CallForm,
    /// The system prompt for a model whose server refuses tools, until that is known.
    pub(super) fenced_prompt: Option<String>,
    /// Images that code has shown.
    pub(super) shown: Shown,
    pub(super) progress: Progress,
    pub(super) files: Arc<Summary>,
    /// The number of the turn after which the rollout ends, and others go on.
    pub(super) pause_at: Option<u32>,
    /// The progress at that moment.
    pub(super) paused: Option<Progress>,
}

impl RolloutDriver<'_> {
    /// Runs turns until the question is answered, or a limit or the control ends it.
    pub(super) async fn answer(&mut self, control: &Control) -> End {
        self.control = control.clone();
        self.under_way.works_until(control, self.clock.end());
        let Err(Stop { reason, error, is_refused }) = self.turns().await;
        self.registered.ledger.release_later();
        let Answer { ready, content } = std::mem::take(&mut self.progress.answer);
        let answer =
            if content.is_empty() && !ready { self.progress.last_words.take() } else { Some(content) };
        let dir = self.workspace.is_kept().then(|| self.workspace.path().to_owned());
        End { reason, answer, is_ready: ready, error, is_refused, dir }
    }

    /// Puts a further question: its turns, its time and its answer are new, everything else goes on.
    pub(super) async fn ask_further(&mut self, question: &str, control: &Control) -> End {
        self.control = control.clone();
        self.clock = Clock::start(self.config.limits.timeout);
        self.turns_before = self.conversation.turn();
        self.progress.begin_question();
        let cleared = self.clear_answer().await;
        // Images that the call with the answer has shown.
        let cleared = cleared.and_then(|()| self.show_images());
        self.conversation.question(question, &[]);
        match cleared {
            Ok(()) => self.answer(control).await,
            Err(Stop { reason, error, .. }) => End { error, ..End::from(reason) },
        }
    }

    /// Asks another model from the next question on.
    pub(super) fn set_model(
        &mut self,
        model: Arc<dyn RootModel>,
        context_tokens: Option<u64>,
    ) -> Result<(), String> {
        model.check(&self.config.sampling, &self.registered.ledger)?;
        let (turn, name) = (self.conversation.turn(), model.name().to_owned());
        self.log.add(Event::ModelChanged(ModelChanged { turn, model: name }));
        self.model = model;
        self.context_tokens = context_tokens;
        self.progress.is_warned = false;
        Ok(())
    }

    /// Ends the worker, then the calls of root tools with the children that wait for them, then removes the directory.
    pub(super) async fn take_down(self) {
        // The worker's exit does not change the result.
        if let Err(error) = self.session.close().await {
            tracing::debug!(rollout = self.config.id, %error, "the worker did not end well");
        }
        let ledger = self.registered.ledger.clone();
        if let Some(seen) = self.registered.end().await {
            self.log.set_root_tools(&seen);
        }
        self.under_way.children_ended().await;
        // Nothing of the rollout sends a request any more.
        self.log.settle(&ledger.snapshot());
        // The conversation holds a file open in the directory.
        drop(self.conversation);
        remove_directory(&self.config.id, self.workspace).await;
    }

    async fn turns(&mut self) -> Step<std::convert::Infallible> {
        if self.conversation.turn() == 0 {
            self.check_budget().await?;
        }
        loop {
            if self.pause_at == Some(self.conversation.turn()) {
                self.paused = Some(self.progress.clone());
                return Err(StopReason::Branched.into());
            }
            if let Some(limit) = self.limit().await {
                return Err(self.last_turn(limit).await);
            }
            if self.is_long() {
                match self.compact().await? {
                    Some(limit) => return Err(self.last_turn(limit).await),
                    None => continue,
                }
            }
            self.summarise().await?;
            self.warn()?;
            let limit = match self.ask().await? {
                Ok(reply) => {
                    self.raise_reserve();
                    self.run_calls(reply).await?;
                    continue;
                }
                Err(limit) if limit.reason == StopReason::ContextFull && self.compaction().is_some() => {
                    self.compact().await?
                }
                Err(limit) => Some(limit),
            };
            if let Some(limit) = limit {
                return Err(self.last_turn(limit).await);
            }
        }
    }

    /// The limit that makes the next turn the last one, if any.
    async fn limit(&mut self) -> Option<Stop> {
        if self.conversation.turn() - self.turns_before + 1 >= self.max_turns {
            return Some(StopReason::MaxTurns.into());
        }
        if self.clock.is_over() {
            return Some(StopReason::TimedOut.into());
        }
        if self.is_part_of_context(FULL_PERCENT) && self.compaction().is_none() {
            return Some(StopReason::ContextFull.into());
        }
        let error = self.reserve_last_turn().await.err()?;
        if self.conversation.turn() == 0 {
            // A model that has seen nothing could not answer. What is left after this turn may do for a last one.
            return None;
        }
        let error = format!("{error} besides a last turn");
        Some(Stop::new(StopReason::BudgetExhausted, error))
    }

    /// Runs one more turn, which a notice announces to the model as its last.
    async fn last_turn(&mut self, limit: Stop) -> Stop {
        let Stop { reason, error, .. } = limit;
        let stopped = async {
            if self.max_turns == 0 {
                return Err(reason.into());
            }
            self.clock.begin_last_turn();
            // The start of a child may have taken all of the time.
            if self.clock.is_over() {
                return Err(reason.into());
            }
            self.under_way.works_until(&self.control, self.clock.end());
            self.progress.is_last_turn = true;
            let last = LastTurn { language: self.config.language, call_form: self.call_form, reason };
            let notice = last.render(self.prompts)?;
            // A turn that the budget does not allow is not announced.
            if let Err(exhausted) = self.fit_last_turn(&notice, reason).await {
                if self.conversation.turn() > 0 {
                    return Err(Stop::new(reason, exhausted.to_string()));
                }
                // A rollout that has not begun waits for room, or is to be begun another time.
                self.check_budget().await?;
            }
            self.notice(&notice);
            loop {
                match self.ask().await? {
                    Ok(reply) => break self.run_calls(reply).await?,
                    // Other rollouts have taken the room in between.
                    Err(limit)
                        if limit.reason == StopReason::BudgetExhausted && self.conversation.turn() == 0 =>
                    {
                        self.check_budget().await?;
                    }
                    Err(limit) => return Err(limit),
                }
            }
            Err(Stop::from(reason))
        };
        let Err(stop): Step<std::convert::Infallible> = stopped.await;
        match stop.reason {
            // The reason for the last turn stays the stop reason; an error during it is reported as well.
            StopReason::Answered | StopReason::Stopped | StopReason::Cancelled | StopReason::WorkerFailed => {
                stop
            }
            _ => Stop { reason, error: stop.error.or(error), is_refused: false },
        }
    }

    /// Fails if the rollout was stopped or cancelled from outside.
    fn check_control(&self) -> Step {
        match (self.control.is_cancelled(), self.control.is_stopped()) {
            (true, _) => Err(StopReason::Cancelled.into()),
            (false, true) => Err(StopReason::Stopped.into()),
            (false, false) => Ok(()),
        }
    }

    fn notice(&mut self, text: &str) {
        self.conversation.say(MessageKind::Notice, "user", text);
    }
}

/// Removes the directory, however large it is.
pub(super) async fn remove_directory(rollout: &str, workspace: Workspace) {
    let removing = tokio::task::spawn_blocking(move || workspace.remove()).await;
    if let Ok(Err(error)) = removing {
        tracing::warn!(rollout, %error, "the directory of a rollout is left behind");
    }
}
