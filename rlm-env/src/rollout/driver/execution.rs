//! The calls of a reply: each is run and gets an output.

use std::time::{Duration, Instant};

use rlm_core::error::with_causes;
use rlm_core::protocol::Response;
use serde_json::{Map, Value as Json};

use super::answer::AnswerChange;
use super::requests::ReadReply;
use super::{CallResult, RolloutDriver, Step, Stop};
use crate::callbacks::{Interceptor, InterceptorError};
use crate::prompts::{CallFault, Images, MalformedCall, NoCallReason, NoToolCall, SessionReset, reply_cut};
use crate::render;
use crate::rollout::calls::{Call, CallTarget, ReplyRequest};
use crate::rollout::images::names;
use crate::session::{self, Session, SessionError};
use crate::terms::StopReason;
use crate::trajectory::{CallEnded, CallStarted, Event};

/// Consecutive replies without a call after which the rollout ends.
const MAX_IDLE_TURNS: u32 = 3;

/// The output of a call that did not run.
const NOT_RUN: &str = "the call was not run: the work on the question had ended";

/// The output of a call that the gate refused.
const REFUSED: &str = "the call was not run: the user did not allow it";

/// Time that a cancelled call gets to end by itself.
const CANCEL_LIMIT: Duration = Duration::from_secs(5);

impl RolloutDriver<'_> {
    /// Gives each call of the last reply that did not run an output: servers refuse a conversation in which one is missing.
    pub(super) fn fill_in_skipped(&mut self) -> Step {
        for call in std::mem::take(&mut self.progress.skipped) {
            let text = self.failed_call(self.callable.repl, &CallFault::Other(NOT_RUN.to_owned()))?;
            self.conversation.output(&call.form, &text);
        }
        Ok(())
    }

    /// Runs the calls in a reply.
    pub(super) async fn run_calls(&mut self, reply: ReadReply) -> Step {
        let calls = match reply.request {
            ReplyRequest::Calls(calls) => calls,
            ReplyRequest::Nothing(reason) => return self.remind(reason, reply.words, reply.is_paused),
        };
        self.progress.idle_turns = 0;
        let mut fault = None;
        self.progress.skipped = calls.into();
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
            self.conversation.output(&call.form, &ran.text);
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
        // The images follow all outputs: servers refuse another message among those of one reply.
        self.show_images()?;
        if let Some(fault) = fault {
            self.notice(&fault);
        }
        if reply.is_cut {
            self.notice(&reply_cut(self.prompts)?);
        }
        Ok(())
    }

    /// Hands on the images that code has shown.
    pub(super) fn show_images(&mut self) -> Step {
        let images = self.shown.take();
        if !images.is_empty() {
            let text = Images::Shown(&names(&images)).render(self.prompts)?;
            self.conversation.images(&text, &images);
        }
        Ok(())
    }

    /// Reminds a model that called no tool, and says why. A reply that was paused only goes on.
    fn remind(&mut self, reason: NoCallReason, words: String, is_paused: bool) -> Step {
        let is_whole = !is_paused && !matches!(reason, NoCallReason::Refused(_) | NoCallReason::Cut);
        if !words.trim().is_empty() {
            self.progress.last_words = Some(words);
            if self.config.plain_answers && is_whole {
                return Err(StopReason::Answered.into());
            }
        }
        self.progress.idle_turns += 1;
        if self.progress.idle_turns >= MAX_IDLE_TURNS {
            return Err(match reason {
                NoCallReason::Refused(words) => Stop::new(StopReason::ModelRefused, words),
                NoCallReason::Cut => StopReason::ReplyCut.into(),
                _ => StopReason::NoToolCall.into(),
            });
        }
        if is_paused {
            return Ok(());
        }
        let reminder = NoToolCall {
            language: self.config.language,
            call_form: self.call_form,
            reason: &reason,
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
            CallTarget::Tool { name, arguments } => {
                self.started(call, name, None, Some(arguments.clone().into()));
                self.use_tool(call, name, arguments, started).await
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
        arguments: &Map<String, Json>,
        started: Instant,
    ) -> Step<CallResult> {
        let limit = self.clock.limit(self.config.limits.call_timeout);
        let running = self.tools.call(name, arguments, started + limit);
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
                let stop = Stop::new(StopReason::TimedOut, words.clone());
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
                let stop = too_often.then(|| Stop::new(StopReason::WorkerFailed, words()));
                Ok(CallResult { text, stop })
            }
            Err(InterceptorError::Session(error)) => {
                self.ended(call, started, None, Some(with_causes(&error)));
                self.restart(&error).await
            }
            Err(InterceptorError::Prompt(error)) => {
                self.ended(call, started, None, Some(error.to_string()));
                Err(error.into())
            }
        }
    }

    /// Starts a new worker in place of one that died of this error.
    pub(super) async fn restart(&mut self, error: &SessionError) -> Step<CallResult> {
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
                    let stop = Stop::new(StopReason::TimedOut, words);
                    return Ok(CallResult { text, stop: Some(stop) });
                }
            }
        }
        let stop = Stop::new(StopReason::WorkerFailed, words);
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
