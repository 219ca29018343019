//! One request to a model, with its retries, within a ledger and a deadline.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Map, Value as Json};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout_at};

use super::bounds::lower_bounds;
use super::error::SubCallError;
use super::failure::{Cost, Failure, Retry};
use super::message::ChatMessage;
use super::models::Models;
use super::record::{Recorder, SubCallRecord};
use super::reply::{Came, Reply};
use super::request_ids::RequestIds;
use super::root_model::RetryObserver;
use crate::ledger::{Estimate, Ledger, Reservation, Usage};

/// The models, the ledger and the limits of one rollout.
#[derive(Debug)]
pub(super) struct Sender {
    pub(super) models: Arc<Models>,
    pub(super) ledger: Arc<Ledger>,
    /// One permit per request of the rollout.
    pub(super) slots: Semaphore,
    pub(super) recorder: Option<Arc<dyn Recorder>>,
}

/// A request and the ids that name it in records.
#[derive(Debug)]
pub(super) struct Request<'a> {
    pub(super) batch_id: &'a str,
    pub(super) index: usize,
    pub(super) turn: u32,
    pub(super) id: String,
    pub(super) estimate: Estimate,
    pub(super) messages: &'a [ChatMessage],
    /// The fields besides the messages.
    pub(super) fields: Map<String, Json>,
    /// Fewest tokens to which the bound of the completion may be lowered where the budget has no room for more. None: the caller
    /// has set the bound, which stays.
    pub(super) least_completion: Option<u64>,
    /// True if the bound of the completion is one of ours.
    pub(super) has_own_bound: bool,
    /// The most tokens of the completion for which the context window has room, where that is known.
    pub(super) room: Option<u64>,
    /// Hears of attempts that failed.
    pub(super) observer: Option<&'a dyn RetryObserver>,
}

impl Request<'_> {
    /// The fields besides the messages, with a completion of at most so many tokens.
    fn fields(&self, completion_tokens: u64) -> Cow<'_, Map<String, Json>> {
        let mut fields = Cow::Borrowed(&self.fields);
        if completion_tokens < self.estimate.completion_tokens {
            lower_bounds(fields.to_mut(), completion_tokens);
        }
        fields
    }
}

/// The attempts of a request so far.
#[derive(Debug, Default)]
struct Progress {
    attempts: u32,
    /// The charge for attempts that have ended.
    charged: Usage,
    last_error: Option<SubCallError>,
}

impl Sender {
    /// Sends a request until a reply passes `check`.
    ///
    /// Returns the result of `check`, and the ledger's charge in all.
    pub(super) async fn exchange<T>(
        &self,
        request: &Request<'_>,
        deadline: Instant,
        check: impl Fn(&Reply) -> Result<T, SubCallError>,
    ) -> (Result<T, SubCallError>, Usage, u32) {
        let started = Instant::now();
        let mut entry =
            PendingRecord { sender: self, request, started, progress: Progress::default(), is_over: false };
        let result = if started < deadline {
            // In a box: the future is large, and would be moved several times.
            let attempts = Box::pin(self.attempts(request, deadline, &mut entry.progress, check));
            timeout_at(deadline.into(), attempts).await
        } else {
            Ok(Err(SubCallError::NotSent))
        };
        let progress = &mut entry.progress;
        let result = result.unwrap_or_else(|_| {
            let last = progress.last_error.take().map(Box::new);
            Err(match (progress.attempts, last) {
                (0, None) => SubCallError::NotSent,
                (_, last) => SubCallError::TimedOut { after: deadline - started, last },
            })
        });
        let (reply, result) = match result {
            Ok((reply, value)) => (Some(reply), Ok(value)),
            Err(error) => (None, Err(error)),
        };
        entry.close(reply.as_ref(), result.as_ref().err());
        (result, entry.progress.charged, entry.progress.attempts)
    }

    async fn attempts<T>(
        &self,
        request: &Request<'_>,
        deadline: Instant,
        progress: &mut Progress,
        check: impl Fn(&Reply) -> Result<T, SubCallError>,
    ) -> Result<(Reply, T), SubCallError> {
        let _slot = self.slots.acquire().await.expect("the semaphore is never closed");
        let mut is_second_try = false;
        let mut ids = RequestIds::new(&request.id, request.batch_id);
        loop {
            let failure = match self.attempt(request, &mut ids, progress, &check).await {
                Ok(Ok(done)) => return Ok(done),
                Ok(Err(failure)) => failure,
                // Without room for another attempt, the error of the last one is what matters.
                Err(error) => return Err(progress.last_error.take().unwrap_or(error)),
            };
            if failure.wants_another_sample() {
                ids.renew_key();
            }
            let asked = match failure.retry {
                Retry::Never => return Err(failure.error),
                Retry::Once if is_second_try => return Err(failure.error),
                Retry::Once => {
                    is_second_try = true;
                    None
                }
                Retry::After(asked) => asked,
            };
            let retries = self.models.retries();
            if progress.attempts > retries.max {
                return Err(failure.error);
            }
            let pause = retries.pause(progress.attempts, asked);
            let left = deadline.saturating_duration_since(Instant::now());
            if pause >= left {
                return Err(no_time(failure.error, asked, left));
            }
            tracing::debug!(request_id = request.id, ?pause, "request is sent again");
            if let Some(observer) = request.observer {
                observer.retry(&failure.error.to_string(), pause);
            }
            progress.last_error = Some(failure.error);
            sleep(pause).await;
        }
    }

    /// Sends a request once. The outer result has only errors that a retry cannot help.
    async fn attempt<T>(
        &self,
        request: &Request<'_>,
        ids: &mut RequestIds<'_>,
        progress: &mut Progress,
        check: impl Fn(&Reply) -> Result<T, SubCallError>,
    ) -> Result<Result<(Reply, T), Failure>, SubCallError> {
        let mut reservation =
            self.ledger.reserve_when_free(&request.estimate, request.least_completion).await?;
        let completion_tokens = reservation.completion_tokens();
        let estimate = Estimate { completion_tokens, ..request.estimate.clone() };
        let permit = self.models.permit().await;
        reservation.sent();
        progress.attempts += 1;
        let came = Came::default();
        let sent = SentRequest {
            estimate,
            reservation: Some(reservation),
            charged: &mut progress.charged,
            came: &came,
        };
        let fields = request.fields(completion_tokens);
        let result = self.models.post(ids, request.messages, &fields, request.room, &came).await;
        drop(permit);
        let reply = match result {
            Ok(reply) => reply,
            Err(failure) => {
                match &failure.cost {
                    Cost::Unknown => drop(sent),
                    Cost::Nothing => sent.release(),
                    Cost::Part(reply) => sent.settle(reply),
                }
                return Ok(Err(failure));
            }
        };
        sent.settle(&reply);
        Ok(match check(&reply) {
            Ok(value) => Ok((reply, value)),
            Err(error) => {
                let error = match error {
                    SubCallError::NoTextWithinTokens if request.has_own_bound => {
                        SubCallError::NoTextWithinBound { tokens: completion_tokens }
                    }
                    error => error,
                };
                let retry = match error {
                    SubCallError::Malformed(_) | SubCallError::NoText => Retry::Once,
                    _ => Retry::Never,
                };
                // The reply is charged already.
                Err(Failure::new(error, Cost::Nothing, retry))
            }
        })
    }
}

/// The error of a request that is out of time for another attempt.
fn no_time(error: SubCallError, asked: Option<Duration>, left: Duration) -> SubCallError {
    match (error, asked) {
        (SubCallError::Status { status, message }, Some(wait)) => {
            SubCallError::MustWait { status, message, wait, left }
        }
        (error, _) => error,
    }
}

/// A request that was sent. One that is dropped, since its reply did not end, costs what came of the reply or, if nothing did, all that
/// it may cost.
struct SentRequest<'a> {
    estimate: Estimate,
    reservation: Option<Reservation>,
    charged: &'a mut Usage,
    came: &'a Came,
}

impl SentRequest<'_> {
    fn settle(mut self, reply: &Reply) {
        self.charge(reply.usage(&self.estimate));
    }

    fn release(mut self) {
        if let Some(reservation) = self.reservation.take() {
            reservation.release();
        }
    }

    fn charge(&mut self, usage: Usage) {
        if let Some(reservation) = self.reservation.take() {
            *self.charged = *self.charged + usage;
            reservation.settle(&usage);
        }
    }
}

impl Drop for SentRequest<'_> {
    fn drop(&mut self) {
        let Estimate { prompt_tokens, cached_tokens, completion_tokens, .. } = self.estimate;
        let all =
            || Usage { cached_tokens, is_estimated: true, ..Usage::new(prompt_tokens, completion_tokens) };
        let usage = self.came.take().map_or_else(all, |reply| reply.usage(&self.estimate));
        self.charge(usage);
    }
}

/// The record of a request. It is handed over even if the request's future is dropped.
struct PendingRecord<'a> {
    sender: &'a Sender,
    request: &'a Request<'a>,
    started: Instant,
    progress: Progress,
    is_over: bool,
}

impl PendingRecord<'_> {
    fn close(&mut self, reply: Option<&Reply>, error: Option<&SubCallError>) {
        self.is_over = true;
        let Request { batch_id, index, turn, id, estimate, messages, .. } = self.request;
        let seconds = self.started.elapsed().as_secs_f64();
        let attempts = self.progress.attempts;
        tracing::debug!(request_id = id, attempts, seconds, failed = error.is_some(), "request has ended");
        let Some(recorder) = &self.sender.recorder else { return };
        recorder.sub_call(&SubCallRecord {
            batch_id,
            index: *index,
            turn: *turn,
            request_id: id,
            model: &estimate.model,
            messages,
            reply: reply.and_then(|reply| reply.message().ok()),
            finish_reason: reply.and_then(Reply::finish_reason),
            extra: reply.and_then(Reply::extra).as_ref(),
            error,
            usage: self.progress.charged,
            attempts,
            seconds,
        });
    }
}

impl Drop for PendingRecord<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            if let Some(observer) = self.request.observer {
                observer.dropped(self.progress.charged, self.progress.attempts);
            }
            self.close(None, Some(&SubCallError::Cancelled));
        }
    }
}
