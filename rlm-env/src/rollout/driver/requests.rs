//! Requests to the root model, and what its replies ask for.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use rlm_rootd::{
    ChatReply, ChatRequest, LEAST_COMPLETION, ModelError, ModelErrorKind, ReplyEnd, RetryObserver, Usage,
    reply_text,
};

use super::{RolloutDriver, Step, Stop};
use crate::prompts::Images;
use crate::rollout::calls::ReplyRequest;
use crate::rollout::log::Log;
use crate::rollout::recursion::Recursion;
use crate::terms::{CallForm, StopReason};
use crate::trajectory::{Event, ModelCall, ModelRetry};

/// The part of the context window that is left free where the bound on a completion is lowered to what has room: one in so many
/// tokens.
const FREE_PART: u64 = 32;

/// A reply of the model, as far as the loop needs it.
#[derive(Debug)]
pub(super) struct ReadReply {
    pub(super) request: ReplyRequest,
    /// The text of the reply, without thoughts.
    pub(super) words: String,
    /// True if the server wants the conversation once more, to go on with the same reply.
    pub(super) is_paused: bool,
    /// True if the reply was cut off behind calls that can be run.
    pub(super) is_cut: bool,
}

impl RolloutDriver<'_> {
    /// Asks the model. The inner error says that a limit was reached, and a last turn may follow.
    pub(super) async fn ask(&mut self) -> Step<Result<ReadReply, Stop>> {
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
                let end = ReplyEnd::of(finish_reason.as_deref());
                self.progress.cut_replies += u32::from(end.is_cut());
                Ok(if end == ReplyEnd::WindowFull && matches!(read.request, ReplyRequest::Nothing(_)) {
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
    pub(super) fn leave_images_out(&mut self, error: &ModelError) -> Step<bool> {
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
        let words = reply_text(message, finish_reason).unwrap_or_default();
        let end = ReplyEnd::of(finish_reason);
        let is_cut = end.is_cut() && request.can_be_run();
        ReadReply { request, words, is_paused: end == ReplyEnd::Paused, is_cut }
    }

    /// Sends one request to the model and logs it.
    pub(super) async fn complete(
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
        let observer =
            Attempts { log: &self.log, turn: self.conversation.turn() + 1, dropped: OnceLock::new() };
        request.observer = Some(&observer);
        let asking = self.model.complete(request);
        let replied = tokio::select! {
            biased;
            () = self.control.stopped() => None,
            replied = asking => Some(replied),
        };
        let (usage, attempts) = match &replied {
            None => observer.dropped.get().copied().unwrap_or((Usage::default(), 1)),
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

    pub(super) fn request(&self, max_tokens: Option<u64>) -> ChatRequest<'_> {
        let messages = self.conversation.messages();
        let mut request = ChatRequest::new(messages, self.clock.model_deadline(), &self.registered.ledger);
        request.tools = &self.definitions;
        request.sampling = &self.config.sampling;
        request.max_tokens = max_tokens;
        request.room = self.room();
        request.cached_tokens = self.conversation.cached_tokens();
        request.is_reserved = self.progress.is_last_turn;
        request.may_skip_thinking = self.progress.is_last_turn;
        request.cut_replies = self.progress.cut_replies;
        request
    }

    /// The most tokens of a completion for which the context window has room. The conversation is estimated since the last reply, so
    /// some are left free.
    fn room(&self) -> Option<u64> {
        let window = self.context_tokens?;
        let taken = self.conversation.tokens().saturating_add(window / FREE_PART);
        Some(window.saturating_sub(taken).max(LEAST_COMPLETION))
    }
}

/// Logs the attempts of a request that failed, and keeps what a request has cost that is not waited for any more.
#[derive(Debug)]
struct Attempts<'a> {
    log: &'a Log,
    turn: u32,
    /// The usage and the number of attempts.
    dropped: OnceLock<(Usage, u32)>,
}

impl RetryObserver for Attempts<'_> {
    fn retry(&self, error: &str, pause: Duration) {
        self.log.add(Event::ModelRetry(ModelRetry {
            turn: self.turn,
            error: error.to_owned(),
            wait_seconds: pause.as_secs_f64(),
        }));
    }

    fn dropped(&self, charged: Usage, attempts: u32) {
        self.dropped.get_or_init(|| (charged, attempts));
    }
}
