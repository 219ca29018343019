//! The root loop: model, calls, model, until there is an answer or a reason to stop.
//!
//! The order within a turn: run the calls of the last reply, read the answer, check the limits, and only then ask the
//! model again. Before a limit is reached the model gets one last turn, announced by a notice; tokens and time for it
//! were reserved.

mod answer;
mod budget;
mod compaction;
mod execution;

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rlm_core::protocol::Answer;
use rlm_rootd::{
    ChatReply, ChatRequest, ChatTools, LEAST_COMPLETION, ModelError, ModelErrorKind, ReplyEnd, RetryObserver,
    RootModel, Usage, message_text, without_thoughts,
};
use serde_json::Value as Json;

use super::calls::{Call, CallableTools, ReplyRequest};
use super::clock::Clock;
use super::config::{Control, RolloutConfig};
use super::conversation::Conversation;
use super::images::Shown;
use super::log::Log;
use super::recursion::Recursion;
use super::registration::RegisteredRollout;
use super::under_way::UnderWay;
use crate::callbacks::Interceptor;
use crate::prompts::{Images, LastTurn, PromptError, Prompts};
use crate::session::Session;
use crate::terms::{CallForm, StopReason};
use crate::trajectory::{Event, MessageKind, ModelCall, ModelChanged, ModelRetry};
use crate::workspace::Workspace;

/// Percentage of the context window from which on the model gets its last turn.
const FULL_PERCENT: u128 = 92;

/// The part of the context window that is left free where the bound on a completion is lowered to what has room: one in so many
/// tokens.
const FREE_PART: u64 = 32;

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

/// A reply of the model, as far as the loop needs it.
#[derive(Debug)]
struct ReadReply {
    request: ReplyRequest,
    /// The text of the reply, without thoughts.
    words: String,
    /// True if the server wants the conversation once more, to go on with the same reply.
    is_paused: bool,
    /// True if the reply was cut off behind calls that can be run.
    is_cut: bool,
}

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
}

/// The progress of a rollout.
#[derive(Debug, Default)]
pub(super) struct Progress {
    answer: Answer,
    /// The model's latest text without a call.
    last_words: Option<String>,
    /// Calls of the last reply that did not run.
    skipped: VecDeque<Call>,
    /// Tokens of the model's longest completion.
    longest_completion: u64,
    restarts: u32,
    /// Consecutive replies without a call.
    idle_turns: u32,
    is_warned: bool,
    /// True once an empty answer was given back.
    was_empty: bool,
    /// True if the next request is that of the last turn, for which a part of the budget is reserved.
    is_last_turn: bool,
    /// Turns by which the next summary is deferred.
    deferred_turns: usize,
    /// Times that the whole conversation was replaced by a summary.
    compactions: u32,
}

impl Progress {
    /// Forgets what belongs to the question before.
    fn begin_question(&mut self) {
        self.answer = Answer::default();
        self.last_words = None;
        self.idle_turns = 0;
        self.was_empty = false;
        self.is_last_turn = false;
        self.restarts = 0;
    }
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

    /// Asks the model. The inner error says that a limit was reached, and a last turn may follow.
    async fn ask(&mut self) -> Step<Result<ReadReply, Stop>> {
        self.check_control()?;
        let limit = self.config.limits.max_completion_tokens;
        let mut replied = self.complete(self.request(limit), false).await?;
        let fenced_prompt = self.fenced_prompt.take();
        if let (Err(ModelError { kind: ModelErrorKind::NoTools, .. }), Some(prompt)) =
            (&replied, fenced_prompt)
        {
            self.definitions.clear();
            self.call_form = CallForm::Fenced;
            self.conversation.begin_again(&prompt);
            replied = self.complete(self.request(limit), false).await?;
        }
        while let Err(error) = &replied
            && self.leave_images_out(error)?
        {
            replied = self.complete(self.request(limit), false).await?;
        }
        match replied {
            Ok(reply) => {
                let longest = &mut self.progress.longest_completion;
                *longest = reply.usage.completion_tokens.max(*longest);
                let read = self.read(&reply);
                let ChatReply { message, finish_reason, usage, .. } = reply;
                self.conversation.reply(message);
                self.conversation.counted(&usage);
                let is_full = ReplyEnd::of(finish_reason.as_deref()) == ReplyEnd::WindowFull;
                Ok(if is_full && matches!(read.request, ReplyRequest::Nothing(_)) {
                    let error = "the model's context window was full before its reply ended".to_owned();
                    Err(Stop::new(StopReason::ContextFull, error))
                } else {
                    Ok(read)
                })
            }
            Err(error) => {
                let stop = Stop::from(error);
                if stop.reason == StopReason::ModelFailed { Err(stop) } else { Ok(Err(stop)) }
            }
        }
    }

    /// Leaves out images that the model's server may have refused; false if the error is another, or there are no images.
    fn leave_images_out(&mut self, error: &ModelError) -> Step<bool> {
        if error.kind != ModelErrorKind::NoImages {
            return Ok(false);
        }
        let refused = Images::Refused(&error.message).render(self.prompts)?;
        Ok(self.conversation.leave_images_out(&refused))
    }

    /// Reads a reply.
    fn read(&self, reply: &ChatReply) -> ReadReply {
        let ChatReply { message, finish_reason, .. } = reply;
        let finish_reason = finish_reason.as_deref();
        let request = self.callable.read(message, self.conversation.turn() + 1, finish_reason);
        let words = message_text(message).unwrap_or_default();
        let words = without_thoughts(&words).into_owned();
        let end = ReplyEnd::of(finish_reason);
        let is_cut = end.is_cut() && request.can_be_run();
        ReadReply { request, words, is_paused: end == ReplyEnd::Paused, is_cut }
    }

    /// Fails if the rollout was stopped or cancelled from outside.
    fn check_control(&self) -> Step {
        match (self.control.is_cancelled(), self.control.is_stopped()) {
            (true, _) => Err(StopReason::Cancelled.into()),
            (false, true) => Err(StopReason::Stopped.into()),
            (false, false) => Ok(()),
        }
    }

    /// Sends one request to the model and logs it.
    async fn complete(
        &self,
        mut request: ChatRequest<'_>,
        is_summary: bool,
    ) -> Step<Result<ChatReply, ModelError>> {
        let node = self.config.recursion.as_ref().map(Recursion::node);
        if let Some(place) = node.and_then(|node| node.place) {
            tokio::select! {
                biased;
                () = self.control.stopped() => {}
                () = place.take_back() => {}
            }
        }
        let started = Instant::now();
        let observer = Attempts { log: &self.log, turn: self.conversation.turn() + 1 };
        request.observer = Some(&observer);
        let asking = self.model.complete(request);
        let replied = tokio::select! {
            biased;
            () = self.control.stopped() => None,
            replied = asking => Some(replied),
        };
        let (usage, attempts) = match &replied {
            None => (Usage::default(), 1),
            Some(Ok(reply)) => (reply.usage, reply.attempts),
            Some(Err(error)) => (error.usage, error.attempts),
        };
        let model = self.model.name().to_owned();
        let reply = replied.as_ref().and_then(|replied| replied.as_ref().ok());
        self.log.add(Event::ModelCall(ModelCall {
            turn: self.conversation.turn() + 1,
            is_summary,
            cost_usd: self.log.cost(&model, &usage),
            model,
            prompt_tokens: usage.prompt_tokens,
            completion_tokens: usage.completion_tokens,
            cached_tokens: usage.cached_tokens,
            cache_write_tokens: usage.cache_write_tokens,
            reasoning_tokens: usage.reasoning_tokens,
            usage_estimated: usage.is_estimated,
            attempts,
            seconds: started.elapsed().as_secs_f64(),
            error: match &replied {
                None => Some("cancelled".to_owned()),
                Some(replied) => replied.as_ref().err().map(ToString::to_string),
            },
            finish_reason: reply.and_then(|reply| reply.finish_reason.clone()),
            adapted: reply.map(|reply| reply.adapted.clone()).unwrap_or_default(),
            extra: reply.and_then(|reply| reply.extra.clone()),
            request_id: reply.and_then(|reply| reply.request_id.clone()),
            left_out: Vec::new(),
        }));
        self.check_control()?;
        replied.ok_or(StopReason::Stopped.into())
    }

    fn request(&self, max_tokens: Option<u64>) -> ChatRequest<'_> {
        let messages = self.conversation.messages();
        let mut request = ChatRequest::new(messages, self.clock.model_deadline(), &self.registered.ledger);
        request.tools = &self.definitions;
        request.sampling = &self.config.sampling;
        request.max_tokens = max_tokens;
        request.room = self.room();
        request.cached_tokens = self.conversation.cached_tokens();
        request.is_reserved = self.progress.is_last_turn;
        request
    }

    /// The most tokens of a completion for which the context window has room. The conversation is estimated since the last reply, so
    /// some are left free.
    fn room(&self) -> Option<u64> {
        let window = self.context_tokens?;
        let taken = self.conversation.tokens().saturating_add(window / FREE_PART);
        Some(window.saturating_sub(taken).max(LEAST_COMPLETION))
    }

    fn notice(&mut self, text: &str) {
        self.conversation.say(MessageKind::Notice, "user", text);
    }
}

/// Logs the attempts of a request that failed.
#[derive(Debug)]
struct Attempts<'a> {
    log: &'a Log,
    turn: u32,
}

impl RetryObserver for Attempts<'_> {
    fn retry(&self, error: &str, pause: Duration) {
        self.log.add(Event::ModelRetry(ModelRetry {
            turn: self.turn,
            error: error.to_owned(),
            wait_seconds: pause.as_secs_f64(),
        }));
    }
}

/// Removes the directory, however large it is.
pub(super) async fn remove_directory(rollout: &str, workspace: Workspace) {
    let removing = tokio::task::spawn_blocking(move || workspace.remove()).await;
    if let Ok(Err(error)) = removing {
        tracing::warn!(rollout, %error, "the directory of a rollout is left behind");
    }
}
