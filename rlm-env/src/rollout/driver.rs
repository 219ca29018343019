//! The root loop: model, calls, model, until there is an answer or a reason to stop.
//!
//! The order within a turn: run the calls of the last reply, read the answer, check the limits, and only then ask the
//! model again. Before a limit is reached the model gets one last turn, announced by a notice; tokens and time for it
//! were reserved.

use std::collections::VecDeque;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rlm_core::error::with_causes;
use rlm_core::protocol::{Answer, Response};
use rlm_core::text::grouped;
use rlm_rootd::{
    ChatReply, ChatRequest, ChatTools, Estimate, Exhausted, LEAST_COMPLETION, ModelError, ModelErrorKind,
    RetryObserver, RootModel, Usage, message_text,
};
use serde_json::{Value as Json, json};
use tokio::time::timeout_at;

use super::calls::{Call, CallTarget, CallableTools, ParsedReply};
use super::clock::Clock;
use super::config::{Compaction, Control, RolloutConfig};
use super::conversation::{Conversation, SHORT_OUTPUT};
use super::log::Log;
use super::recursion::Recursion;
use super::registration::RegisteredRollout;
use super::under_way::UnderWay;
use crate::callbacks::{Interceptor, InterceptorError};
use crate::prompts::{
    AnswerEmpty, AnswerUnfit, CallFault, ContextLow, LastTurn, MalformedCall, NoToolCall, PromptError,
    Prompts, SessionReset, Summary, SummaryRequest,
};
use crate::render;
use crate::session::{self, Session, SessionError};
use crate::terms::{CallForm, ReplLanguage, StopReason};
use crate::trajectory::{CallEnded, CallStarted, Event, MessageKind, ModelCall, ModelRetry};
use crate::workspace::Workspace;

/// Consecutive replies without a call after which the rollout ends.
const MAX_IDLE_TURNS: u32 = 3;

/// Percentages of the context window: from the first on, the model is warned; from the second on, it gets its last
/// turn.
const WARN_PERCENT: u128 = 75;
const FULL_PERCENT: u128 = 92;

/// Turns that stay when the conversation must be cut down for the last turn.
const TURNS_AT_THE_END: usize = 2;

/// Characters of each output that stay where a last turn would otherwise not fit into the budget.
const SHORTEST_OUTPUT: usize = 100;

/// Most tokens that a completion is expected to have.
const MOST_EXPECTED: u64 = 2048;

/// Tokens of a short output and a notice, by which a conversation grows until its last turn.
const LAST_TURN_GROWTH: u64 = 256;

/// Turns that a budget should have room for: what a too small one is compared with.
const FEW_TURNS: u64 = 4;

/// Tokens below the context window at which the conversation is replaced by a summary, if nothing else is configured.
const COMPACTION_RESERVE: u64 = 16_384;

/// Longest summary in words.
const SUMMARY_WORDS: u32 = 500;

/// The output of a call that did not run.
const NOT_RUN: &str = "the call was not run: the work on the question had ended";

/// The output of a call that the gate refused.
const REFUSED: &str = "the call was not run: the user did not allow it";

/// Time limit of the check of an answer against its schema.
const CHECK_LIMIT: Duration = Duration::from_secs(5);

/// Time limit of the code that changes the answer.
const SET_ANSWER_LIMIT: Duration = Duration::from_secs(5);

/// Times that it is run: the interpreter may have died just before.
const SET_ANSWER_TRIES: u32 = 2;

/// Time that a cancelled call gets to end by itself.
const CANCEL_LIMIT: Duration = Duration::from_secs(5);

/// The end of a question, or of a rollout.
#[derive(Clone, Debug)]
pub(super) struct End {
    pub(super) reason: StopReason,
    pub(super) answer: Option<String>,
    pub(super) is_ready: bool,
    pub(super) error: Option<String>,
    /// The rollout's directory, if it was kept.
    pub(super) dir: Option<PathBuf>,
}

impl From<StopReason> for End {
    fn from(reason: StopReason) -> Self {
        Self { reason, answer: None, is_ready: false, error: None, dir: None }
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
}

impl From<PromptError> for Stop {
    fn from(error: PromptError) -> Self {
        Self { reason: StopReason::SetupFailed, error: Some(error.to_string()) }
    }
}

impl From<StopReason> for Stop {
    fn from(reason: StopReason) -> Self {
        Self { reason, error: None }
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
        Self { reason, error: Some(error.message) }
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
    pub(super) model: &'a dyn RootModel,
    pub(super) session: Session,
    /// None: code in the session calls root tools itself.
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
    /// How the model calls the REPL.
    pub(super) call_form: CallForm,
    /// The system prompt for a model whose server refuses tools, until that is known.
    pub(super) fenced_prompt: Option<String>,
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
    /// The next request is that of the last turn, for which a part of the budget is reserved.
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

/// What happens to the answer in the session.
#[derive(Clone, Copy, Debug)]
enum AnswerChange {
    /// It is not final.
    TakenBack,
    /// There is none.
    Cleared,
}

impl RolloutDriver<'_> {
    /// Runs turns until the question is answered, or a limit or the control ends it.
    pub(super) async fn answer(&mut self, control: &Control) -> End {
        self.control = control.clone();
        self.under_way.works_until(control, self.clock.end());
        let Err(Stop { reason, error }) = self.turns().await;
        self.registered.ledger.release_later();
        let Answer { ready, content } = std::mem::take(&mut self.progress.answer);
        let answer =
            if content.is_empty() && !ready { self.progress.last_words.take() } else { Some(content) };
        let dir = self.workspace.is_kept().then(|| self.workspace.path().to_owned());
        End { reason, answer, is_ready: ready, error, dir }
    }

    /// Puts a further question: its turns, its time and its answer are new, everything else goes on.
    pub(super) async fn ask_further(&mut self, question: &str, control: &Control) -> End {
        self.control = control.clone();
        self.clock = Clock::start(self.config.limits.timeout);
        self.turns_before = self.conversation.turn();
        self.progress.begin_question();
        let cleared = self.clear_answer().await;
        self.conversation.question(question);
        match cleared {
            Ok(()) => self.answer(control).await,
            Err(Stop { reason, error }) => End { error, ..End::from(reason) },
        }
    }

    /// Ends what the question before has left: calls without an output, and its answer. A session that has ended meanwhile is
    /// replaced, and the model is told.
    async fn clear_answer(&mut self) -> Step {
        self.fill_in_skipped()?;
        let cleared = self.set_answer(AnswerChange::Cleared).await?;
        if !cleared.text.is_empty() {
            self.notice(cleared.text.trim());
        }
        cleared.stop.map_or(Ok(()), Err)
    }

    /// Gives each call of the last reply that did not run an output: servers refuse a conversation without.
    fn fill_in_skipped(&mut self) -> Step {
        for call in std::mem::take(&mut self.progress.skipped) {
            let text = self.failed_call(self.callable.repl, &CallFault::Other(NOT_RUN.to_owned()))?;
            self.conversation.output(&call.id, call.is_tool_call, &text);
        }
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
        // It holds a file open in the directory.
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
            // A model that has seen nothing could not answer. What is left afterwards may do for a last turn.
            return None;
        }
        let error = format!("{error} besides a last turn");
        Some(Stop { reason: StopReason::BudgetExhausted, error: Some(error) })
    }

    /// Runs one more turn, which a notice announces to the model as its last.
    async fn last_turn(&mut self, limit: Stop) -> Stop {
        let Stop { reason, error } = limit;
        let stopped = async {
            if self.max_turns == 0 {
                return Err(reason.into());
            }
            self.clock.begin_last_turn();
            // The start of a child may have taken all of it.
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
                    return Err(Stop { reason, error: Some(exhausted.to_string()) });
                }
                // One that has not begun waits for room, or is to be begun another time.
                self.check_budget().await?;
            }
            self.notice(&notice);
            match self.ask().await? {
                Ok(reply) => self.run_calls(reply).await?,
                Err(limit) => return Err(limit),
            }
            Err(Stop::from(reason))
        };
        let Err(stop): Step<std::convert::Infallible> = stopped.await;
        match stop.reason {
            // The reason for the last turn stays the stop reason; an error during it is reported as well.
            StopReason::Answered | StopReason::Stopped | StopReason::Cancelled | StopReason::WorkerFailed => {
                stop
            }
            _ => Stop { reason, error: stop.error.or(error) },
        }
    }

    /// Shortens the conversation as far as the last turn, with this notice, needs that.
    ///
    /// # Errors
    /// The budget has no room for it even then.
    async fn fit_last_turn(&mut self, notice: &str, reason: StopReason) -> Result<(), Exhausted> {
        let expected = self.expected_tokens();
        let is_short = |turn: Estimate| self.registered.ledger.check(&turn).is_err();
        if reason == StopReason::ContextFull
            || self.last_turn_estimate(notice, expected).is_some_and(is_short)
        {
            self.conversation.shorten(TURNS_AT_THE_END);
        }
        if self.last_turn_fits(notice).await.is_ok() {
            return Ok(());
        }
        self.conversation.cut_outputs(SHORTEST_OUTPUT);
        self.last_turn_fits(notice).await
    }

    async fn last_turn_fits(&self, notice: &str) -> Result<(), Exhausted> {
        match self.last_turn_estimate(notice, LEAST_COMPLETION.min(self.expected_tokens())) {
            Some(turn) => self.check_when_free(&turn).await,
            None => Ok(()),
        }
    }

    /// Asks the model. The inner error: a limit was reached, and a last turn may follow.
    async fn ask(&mut self) -> Step<Result<ParsedReply, Stop>> {
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
        match replied {
            Ok(reply) => {
                let longest = &mut self.progress.longest_completion;
                *longest = reply.usage.completion_tokens.max(*longest);
                let tokens = reply.usage.prompt_tokens.saturating_add(reply.usage.completion_tokens);
                let reply = self.callable.read(reply.message, self.conversation.turn() + 1);
                self.conversation.reply(reply.message.clone());
                self.conversation.counted(tokens);
                Ok(Ok(reply))
            }
            Err(error) => {
                let stop = Stop::from(error);
                if stop.reason == StopReason::ModelFailed { Err(stop) } else { Ok(Err(stop)) }
            }
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
        self.log.add(Event::ModelCall(ModelCall {
            turn: self.conversation.turn() + 1,
            is_summary,
            cost_usd: self.log.cost(&model, usage.prompt_tokens, usage.completion_tokens),
            model,
            prompt_tokens: usage.prompt_tokens,
            completion_tokens: usage.completion_tokens,
            usage_estimated: usage.is_estimated,
            attempts,
            seconds: started.elapsed().as_secs_f64(),
            error: match &replied {
                None => Some("cancelled".to_owned()),
                Some(replied) => replied.as_ref().err().map(ToString::to_string),
            },
            extra: replied.as_ref().and_then(|replied| replied.as_ref().ok()?.extra.clone()),
            request_id: replied.as_ref().and_then(|replied| replied.as_ref().ok()?.request_id.clone()),
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
        request.is_reserved = self.progress.is_last_turn;
        request
    }

    /// Reserves the cost of the last turn, with which the conversation has grown by a turn.
    ///
    /// # Errors
    /// The budget has no room for a turn before it, not even with what running requests give back.
    async fn reserve_last_turn(&self) -> Result<(), Exhausted> {
        let tokens = self.expected_tokens();
        let Some(turn) = self.estimate(tokens) else { return Ok(()) };
        let last = Estimate { prompt_tokens: turn.prompt_tokens + tokens + LAST_TURN_GROWTH, ..turn.clone() };
        let ledger = &self.registered.ledger;
        let waiting = ledger.reserve_later_when_free(&last, &turn);
        self.in_time(waiting, || ledger.reserve_later(&last, Some(&turn))).await
    }

    /// Raises what is reserved for the last turn to what that may cost after this reply. The reply's code has not run yet, and cannot
    /// spend it. Where there is no room for more, the earlier amount stays.
    fn raise_reserve(&self) {
        let expected = self.expected_tokens();
        for (tokens, growth) in
            [(expected, 2 * LAST_TURN_GROWTH), (LEAST_COMPLETION.min(expected), LAST_TURN_GROWTH)]
        {
            let Some(last) = self.estimate(tokens) else { return };
            let last = Estimate { prompt_tokens: last.prompt_tokens + growth, ..last };
            if self.registered.ledger.reserve_later(&last, None).is_ok() {
                return;
            }
        }
    }

    /// Checks that the budget has room for a turn, also with what running requests give back.
    async fn check_when_free(&self, turn: &Estimate) -> Result<(), Exhausted> {
        let ledger = &self.registered.ledger;
        self.in_time(ledger.check_when_free(turn), || ledger.check(turn)).await
    }

    /// Waits until the deadline of the next reply at most. If it passes, the result is that of `late`.
    async fn in_time(
        &self,
        waiting: impl Future<Output = Result<(), Exhausted>>,
        late: impl FnOnce() -> Result<(), Exhausted>,
    ) -> Result<(), Exhausted> {
        tokio::select! {
            biased;
            // The request is not sent then.
            () = self.control.stopped() => Ok(()),
            checked = timeout_at(self.clock.model_deadline().into(), waiting) => checked.unwrap_or_else(|_late| late()),
        }
    }

    /// The most that a last turn may cost, with this notice and a completion of this many tokens.
    fn last_turn_estimate(&self, notice: &str, completion_tokens: u64) -> Option<Estimate> {
        let turn = self.estimate(completion_tokens)?;
        let message = [json!({"role": "user", "content": notice})];
        let mut request = self.request(None);
        (request.messages, request.tools) = (&message, &[]);
        let notice = self.model.estimate(request)?;
        Some(Estimate { prompt_tokens: turn.prompt_tokens + notice.prompt_tokens, ..turn })
    }

    /// The most that a turn with such a completion may cost. None without a budget: it would take a look at the whole
    /// conversation for nothing.
    fn estimate(&self, completion_tokens: u64) -> Option<Estimate> {
        self.registered
            .ledger
            .has_limits()
            .then(|| self.model.estimate(self.request(Some(completion_tokens))))
            .flatten()
    }

    /// Tokens that the next completion is expected to have: no more than twice as many as the longest one so far.
    fn expected_tokens(&self) -> u64 {
        let twice = self.progress.longest_completion.saturating_mul(2);
        let expected = twice.clamp(LEAST_COMPLETION, MOST_EXPECTED);
        self.config.limits.max_completion_tokens.map_or(expected, |limit| limit.min(expected))
    }

    /// Fails if the budget has no room for a single turn. If other rollouts spend from it, too, waits for what they give back.
    async fn check_budget(&self) -> Step {
        let Some(turn) = self.estimate(LEAST_COMPLETION.min(self.expected_tokens())) else { return Ok(()) };
        let checked = tokio::select! {
            biased;
            () = self.control.stopped() => return self.check_control(),
            checked = self.registered.ledger.wait_for_room(&turn) => checked,
        };
        let Err(exhausted) = checked else { return Ok(()) };
        if exhausted.is_shared() {
            let is_child = self.config.recursion.as_ref().is_some_and(Recursion::is_of_child);
            let reason = if is_child { StopReason::BudgetExhausted } else { StopReason::Stopped };
            return Err(Stop { reason, error: Some(exhausted.to_string()) });
        }
        let mut error = format!("the budget is too small to begin with: {exhausted}");
        if let Some(turn) = self.estimate(self.expected_tokens()) {
            let turn = self.registered.ledger.amounts(&turn);
            let tokens = format!("{} tokens", grouped(turn.tokens.saturating_mul(FEW_TURNS)));
            let cost = turn.cost_usd.map(|cost| format!(", or {:.2} USD", cost * FEW_TURNS as f64));
            error += &format!("; a few turns may need {tokens}{}", cost.unwrap_or_default());
        }
        Err(Stop { reason: StopReason::BudgetExhausted, error: Some(error) })
    }

    /// Runs the calls in a reply.
    async fn run_calls(&mut self, reply: ParsedReply) -> Step {
        if reply.calls.is_empty() {
            return self.remind(&reply.message);
        }
        self.progress.idle_turns = 0;
        let mut fault = None;
        self.progress.skipped = reply.calls.into();
        while let Some(call) = self.progress.skipped.front().cloned() {
            self.check_control()?;
            let mut ran = self.call(&call).await?;
            if ran.stop.is_none() && self.progress.answer.ready {
                fault = self.answer_fault().await?;
                if fault.is_some() {
                    let taken_back = self.set_answer(AnswerChange::TakenBack).await?;
                    ran.text.push_str(&taken_back.text);
                    ran.stop = taken_back.stop;
                }
            }
            self.conversation.output(&call.id, call.is_tool_call, &ran.text);
            self.progress.skipped.pop_front();
            if let Some(stop) = ran.stop {
                return Err(stop);
            }
            if self.control.is_cancelled() {
                return Err(StopReason::Cancelled.into());
            }
            if self.progress.answer.ready {
                return Err(StopReason::Answered.into());
            }
        }
        // After all outputs: servers refuse another message among those of one reply.
        if let Some(fault) = fault {
            self.notice(&fault);
        }
        Ok(())
    }

    /// The notice on a final answer that is not accepted. An empty one is accepted the second time.
    async fn answer_fault(&mut self) -> Step<Option<String>> {
        let (language, answer) = (self.config.language, &self.progress.answer.content);
        if let Some(schema) = &self.config.answer_schema {
            // A schema of a few lines can take longer than anyone waits.
            let (schema, answer) = (schema.clone(), answer.clone());
            let checking = tokio::task::spawn_blocking(move || schema.faults(&answer));
            let faults = tokio::select! {
                biased;
                () = self.control.cancelled() => return Err(StopReason::Cancelled.into()),
                checked = tokio::time::timeout(CHECK_LIMIT, checking) => match checked {
                    Ok(checked) => checked.unwrap_or_else(|error| vec![error.to_string()]),
                    Err(_) => vec![format!("it could not be checked within {} s", CHECK_LIMIT.as_secs())],
                },
            };
            if faults.is_empty() {
                return Ok(None);
            }
            return Ok(Some(AnswerUnfit { language, faults: &faults }.render(self.prompts)?));
        }
        if !answer.trim().is_empty() || std::mem::replace(&mut self.progress.was_empty, true) {
            return Ok(None);
        }
        Ok(Some(AnswerEmpty { language }.render(self.prompts)?))
    }

    /// Changes the answer, in the session too: an interpreter that takes over from a dead one gets the answer that the
    /// worker keeps. Returns what was printed by then.
    async fn set_answer(&mut self, change: AnswerChange) -> Step<CallResult> {
        self.progress.answer.ready = false;
        let code = match (self.config.language, change) {
            (ReplLanguage::Bash, AnswerChange::TakenBack) => "RLM_READY=",
            (ReplLanguage::Bash, AnswerChange::Cleared) => "RLM_READY= RLM_CONTENT=",
            (ReplLanguage::Python, AnswerChange::TakenBack) => "answer[\"ready\"] = False",
            (ReplLanguage::Python, AnswerChange::Cleared) => "answer.update(ready=False, content=\"\")",
        };
        let mut printed = String::new();
        for _ in 0..SET_ANSWER_TRIES {
            let limit = self.clock.limit(SET_ANSWER_LIMIT).max(Duration::from_millis(1));
            let call = session::Call { timeout: Some(limit), ..session::Call::from(code) };
            let replacements = self.session.replacements();
            let taken = self.session.execute_until(call, self.control.cancelled()).await;
            self.progress.restarts =
                self.progress.restarts.saturating_add(self.session.replacements() - replacements);
            let response = match taken {
                Ok(response) => response,
                Err(error) => return self.restart(&error).await,
            };
            if response.output_bytes() > 0 || response.hint.is_some() {
                let limit = self.config.limits.max_output_length;
                printed += "\n";
                printed += &render::render(&response, self.config.language, limit, self.prompts)?;
            }
            // An interpreter that was dead already had not taken it.
            if !response.answer.ready {
                break;
            }
        }
        Ok(printed.into())
    }

    /// The model called no tool: sends a reminder.
    fn remind(&mut self, message: &Json) -> Step {
        let words = message_text(message).unwrap_or_default();
        if !words.trim().is_empty() {
            self.progress.last_words = Some(words);
        }
        if self.config.plain_answers && self.progress.last_words.is_some() {
            return Err(StopReason::Answered.into());
        }
        self.progress.idle_turns += 1;
        if self.progress.idle_turns >= MAX_IDLE_TURNS {
            return Err(StopReason::NoToolCall.into());
        }
        let reminder = NoToolCall {
            language: self.config.language,
            call_form: self.call_form,
            is_last_warning: self.progress.idle_turns + 1 >= MAX_IDLE_TURNS,
        };
        self.notice(&reminder.render(self.prompts)?);
        Ok(())
    }

    /// Runs one call and returns the text for the model.
    async fn call(&mut self, call: &Call) -> Step<CallResult> {
        let started = Instant::now();
        match &call.target {
            CallTarget::Malformed { tool, fault } => {
                let text = self.failed_call(tool, fault)?;
                self.ended(call, started, None, Some(text.clone()));
                Ok(text.into())
            }
            CallTarget::Tool { name, call: as_written } => {
                let arguments = as_written.pointer("/function/arguments").and_then(Json::as_str);
                let arguments = arguments.and_then(|text| serde_json::from_str(text).ok());
                self.started(call, name, None, arguments);
                self.use_tool(call, name, as_written, started).await
            }
            CallTarget::Code(code) => {
                self.started(call, self.callable.repl, Some(code.clone()), None);
                self.execute(call, code, started).await
            }
        }
    }

    async fn use_tool(
        &mut self,
        call: &Call,
        name: &str,
        as_written: &Json,
        started: Instant,
    ) -> Step<CallResult> {
        let limit = self.clock.limit(self.config.limits.call_timeout);
        let running = self.tools.call(as_written, started + limit);
        let ran = tokio::select! {
            biased;
            () = self.control.cancelled() => return Ok(self.cancelled(call, started)),
            ran = running => ran,
        };
        self.ended(call, started, None, ran.as_ref().err().cloned());
        Ok(match ran {
            Ok(text) => {
                render::render_tool_output(&text, self.config.limits.max_output_length, self.prompts)?.into()
            }
            Err(error) => self.failed_call(name, &CallFault::Other(error))?.into(),
        })
    }

    async fn execute(&mut self, call: &Call, code: &str, started: Instant) -> Step<CallResult> {
        if let Some(gate) = &self.config.gate {
            let allowed = tokio::select! {
                biased;
                () = self.control.stopped() => return Ok(self.cancelled(call, started)),
                allowed = gate.allows(&call.id, code) => allowed,
            };
            if !allowed {
                let text = self.failed_call(self.callable.repl, &CallFault::Other(REFUSED.to_owned()))?;
                self.ended(call, started, None, Some(text.clone()));
                return Ok(text.into());
            }
        }
        let limit = self.clock.limit(self.config.limits.call_timeout).max(Duration::from_millis(1));
        let request =
            session::Call { code: code.to_owned(), timeout: Some(limit), ..session::Call::default() };
        let control = self.control.clone();
        let given_up = async {
            control.cancelled().await;
            tokio::time::sleep(CANCEL_LIMIT).await;
        };
        let replacements = self.session.replacements();
        let overdue = self.clock.overdue();
        let executed = tokio::select! {
            executed = run(&mut self.session, self.interceptor.as_mut(), request, control.cancelled()) => executed,
            () = given_up => return Ok(self.cancelled(call, started)),
            () = overdue => {
                let words = "the worker did not answer before the rollout's time was up".to_owned();
                self.ended(call, started, None, Some(words.clone()));
                let stop = Stop { reason: StopReason::TimedOut, error: Some(words.clone()) };
                return Ok(CallResult { text: words, stop: Some(stop) });
            }
        };
        self.progress.restarts =
            self.progress.restarts.saturating_add(self.session.replacements() - replacements);
        match executed {
            Ok(response) => {
                let limit = self.config.limits.max_output_length;
                let text = render::render(&response, self.config.language, limit, self.prompts)?;
                if response.answer.ready || !response.answer.content.is_empty() {
                    self.progress.answer = response.answer.clone();
                }
                self.ended(call, started, Some(response), None);
                let too_often = self.progress.restarts > self.config.limits.max_restarts;
                let words = || format!("the worker was replaced {} times", self.progress.restarts);
                let stop = too_often.then(|| Stop { reason: StopReason::WorkerFailed, error: Some(words()) });
                Ok(CallResult { text, stop })
            }
            Err(InterceptorError::Session(error)) => self.recover(call, started, &error).await,
            Err(InterceptorError::Prompt(error)) => {
                self.ended(call, started, None, Some(error.to_string()));
                Err(error.into())
            }
        }
    }

    /// Replaces a worker that died.
    async fn recover(&mut self, call: &Call, started: Instant, error: &SessionError) -> Step<CallResult> {
        self.ended(call, started, None, Some(with_causes(error)));
        self.restart(error).await
    }

    /// Starts a new worker in place of one that died of this.
    async fn restart(&mut self, error: &SessionError) -> Step<CallResult> {
        let mut words = with_causes(error);
        let has_answer = !self.progress.answer.content.is_empty();
        let reset = SessionReset { language: self.config.language, reason: &words, has_answer };
        let text = reset.render(self.prompts)?;
        if self.progress.restarts >= self.config.limits.max_restarts {
            words.push_str(&format!("; it was replaced {} times before", self.progress.restarts));
        } else {
            self.progress.restarts += 1;
            let overdue = self.clock.overdue();
            tokio::select! {
                restarted = self.session.restart() => match restarted {
                    Ok(()) => return Ok(text.into()),
                    Err(error) => words.push_str(&format!("; a new one could not be started: {}", with_causes(&error))),
                },
                () = self.control.cancelled() => {
                    return Ok(CallResult { text, stop: Some(StopReason::Cancelled.into()) });
                }
                () = overdue => {
                    words.push_str("; a new one was not ready before the rollout's time was up");
                    let stop = Stop { reason: StopReason::TimedOut, error: Some(words) };
                    return Ok(CallResult { text, stop: Some(stop) });
                }
            }
        }
        let stop = Stop { reason: StopReason::WorkerFailed, error: Some(words) };
        Ok(CallResult { text, stop: Some(stop) })
    }

    fn cancelled(&self, call: &Call, started: Instant) -> CallResult {
        let text = "cancelled".to_owned();
        self.ended(call, started, None, Some(text.clone()));
        CallResult { text, stop: Some(StopReason::Cancelled.into()) }
    }

    fn failed_call(&self, tool: &str, fault: &CallFault) -> Step<String> {
        let tools = self.callable.names();
        let language = self.config.language;
        Ok(MalformedCall { language, tool, tools: &tools, fault }.render(self.prompts)?)
    }

    fn started(&self, call: &Call, tool: &str, code: Option<String>, arguments: Option<Json>) {
        self.log.add(Event::CallStarted(CallStarted {
            turn: self.conversation.turn(),
            call_id: call.id.clone(),
            tool: tool.to_owned(),
            code,
            arguments,
        }));
    }

    fn ended(&self, call: &Call, started: Instant, output: Option<Response>, error: Option<String>) {
        self.log.add(Event::CallEnded(CallEnded {
            turn: self.conversation.turn(),
            call_id: call.id.clone(),
            seconds: started.elapsed().as_secs_f64(),
            output,
            error,
        }));
    }

    /// Warns the model, once, that few tokens are left.
    fn warn(&mut self) -> Step {
        let Some(total_tokens) = self.config.limits.context_tokens else { return Ok(()) };
        let is_low = self.is_part_of_context(WARN_PERCENT) && self.compaction().is_none();
        if self.progress.is_warned || !is_low {
            return Ok(());
        }
        self.progress.is_warned = true;
        let left_tokens = total_tokens.saturating_sub(self.conversation.tokens());
        let low = ContextLow { language: self.config.language, left_tokens, total_tokens };
        self.notice(&low.render(self.prompts)?);
        Ok(())
    }

    /// Replaces older turns by a summary if that is configured and there are twice as many turns as should stay.
    async fn summarise(&mut self) -> Step {
        let Some(newest) = self.config.summarize_turns.map(|turns| turns.max(1) as usize) else {
            return Ok(());
        };
        if self.conversation.whole_turns() < 2 * newest + self.progress.deferred_turns {
            return Ok(());
        }
        let Some(older) = self.conversation.older_than(newest) else { return Ok(()) };
        match self.ask_for_summary(&older).await? {
            Ok(Some(summary)) => self.replace_by(&summary, older, newest)?,
            // Keep the turns, and try again after as many more.
            _ => self.progress.deferred_turns += newest,
        }
        Ok(())
    }

    /// Replaces all turns by a summary. A model that refuses even that request as too long gets it without the newest turns, which
    /// stay with cut outputs. Returns the limit that is reached if there is no summary.
    async fn compact(&mut self) -> Step<Option<Stop>> {
        let attempts = self.compaction().map_or(0, |compaction| compaction.max_attempts.max(1));
        let mut newest = 0;
        let mut error = "the model gave no summary of the conversation".to_owned();
        for _ in 0..attempts {
            let Some(older) = self.conversation.older_than(newest) else { break };
            match self.ask_for_summary(&older).await? {
                Ok(Some(summary)) => {
                    self.progress.compactions += 1;
                    self.replace_by(&summary, older, newest)?;
                    if newest > 0 {
                        self.conversation.cut_outputs(SHORT_OUTPUT);
                    }
                    return Ok(None);
                }
                Ok(None) => {}
                Err(failed) => match Stop::from(failed) {
                    Stop { reason: StopReason::ContextFull, error: said } => {
                        newest += 1;
                        error = said.unwrap_or(error);
                    }
                    failed if failed.reason == StopReason::ModelFailed => return Err(failed),
                    limit => return Ok(Some(limit)),
                },
            }
        }
        Ok(Some(Stop { reason: StopReason::ContextFull, error: Some(error) }))
    }

    /// How the conversation is to be replaced by a summary, if it is and has a turn.
    fn compaction(&self) -> Option<&Compaction> {
        let has_room = |times| self.progress.compactions < times;
        let compaction = self.config.compaction.as_ref()?;
        (self.conversation.whole_turns() > 0 && compaction.max_times.is_none_or(has_room))
            .then_some(compaction)
    }

    /// True if the conversation is to be replaced by a summary now.
    fn is_long(&self) -> bool {
        let Some(compaction) = self.compaction() else { return false };
        let window = self.config.limits.context_tokens;
        let default = || window.map(|most| most.saturating_sub(COMPACTION_RESERVE).max(most / 2));
        compaction.at_tokens.or_else(default).is_some_and(|at| self.conversation.tokens() >= at)
            || self.is_part_of_context(FULL_PERCENT)
    }

    /// True if the conversation takes at least this percentage of the context window.
    fn is_part_of_context(&self, percent: u128) -> bool {
        self.config
            .limits
            .context_tokens
            .is_some_and(|most| is_part(self.conversation.tokens(), most, percent))
    }

    /// Asks the model for a summary of older messages. None: its reply has no text.
    async fn ask_for_summary(&self, older: &Range<usize>) -> Step<Result<Option<String>, ModelError>> {
        let mut messages = self.conversation.messages().to_vec();
        let is_all = older.end == messages.len();
        messages.truncate(older.end);
        let asking = SummaryRequest {
            language: self.config.language,
            max_words: SUMMARY_WORDS,
            is_all,
            has_summary: self.conversation.summarised_turns() > 0,
        };
        messages.push(json!({"role": "user", "content": asking.render(self.prompts)?}));
        let mut request = self.request(self.config.limits.max_completion_tokens);
        request.messages = &messages;
        let replied = self.complete(request, true).await?;
        let text = |reply: ChatReply| message_text(&reply.message).filter(|text| !text.trim().is_empty());
        Ok(replied.map(text))
    }

    /// Replaces older messages by a summary, after which so many of the newest turns are left.
    fn replace_by(&mut self, summary: &str, older: Range<usize>, newest: usize) -> Step {
        let turns = self.conversation.turn() - u32::try_from(newest).unwrap_or(0);
        let text = Summary { turns, summary }.render(self.prompts)?;
        self.conversation.summarise(older, &text);
        Ok(())
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

/// Runs code. If calls are intercepted, makes the calls of root tools first.
async fn run(
    session: &mut Session,
    interceptor: Option<&mut Interceptor>,
    call: session::Call,
    stop: impl Future<Output = ()>,
) -> Result<Response, InterceptorError> {
    match interceptor {
        Some(interceptor) => interceptor.execute_until(session, call, stop).await,
        None => Ok(session.execute_until(call, stop).await?),
    }
}

/// True if the tokens are at least this percentage of the whole.
fn is_part(tokens: u64, whole: u64, percent: u128) -> bool {
    u128::from(tokens) * 100 >= u128::from(whole) * percent
}
