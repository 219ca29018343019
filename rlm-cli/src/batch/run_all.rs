//! Attempts at once: so many run, each result is taken as it comes.

use std::sync::Arc;

use rlm_env::{Control, RolloutResult, StopReason};
use tokio::task::JoinSet;

use super::attempts::Attempt;
use super::runner::RunAttempt;
use crate::evaluation::RunResult;
use crate::rollouts::{BatchProgress, Request};

/// The end of a batch.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct BatchEnd {
    pub(super) started: usize,
    /// The exit status for the signal that ended it.
    pub(super) by_signal: Option<u8>,
}

/// Runs up to `jobs` rollouts at once and passes each result to `take`. If `take` or `next_attempt` fails, all rollouts are
/// cancelled. `next_attempt` must be cancel-safe.
pub(super) async fn run_all(
    runner: &Arc<impl RunAttempt>,
    mut next_attempt: impl AsyncFnMut() -> anyhow::Result<Option<Attempt>>,
    jobs: usize,
    mut next_request: impl AsyncFnMut() -> Request,
    progress: &BatchProgress,
    mut take: impl FnMut(&RunResult) -> anyhow::Result<()>,
) -> anyhow::Result<BatchEnd> {
    let control = Control::new();
    let mut running = JoinSet::new();
    let mut ended = BatchEnd::default();
    let (mut is_stopping, mut failed) = (false, None);
    while !(is_stopping && running.is_empty()) {
        tokio::select! {
            attempt = next_attempt(), if !is_stopping && running.len() < jobs => match attempt {
                Ok(Some(attempt)) => {
                    let (runner, control) = (runner.clone(), control.clone());
                    running.spawn(async move { runner.run_attempt(attempt, &control).await });
                    ended.started += 1;
                }
                Ok(None) => is_stopping = true,
                Err(error) => {
                    failed = Some(error);
                    is_stopping = true;
                    control.cancel();
                }
            },
            Some(joined) = running.join_next() => {
                progress.ended(joined.as_ref().ok().map(|result| result.rollout.stop_reason));
                if let Ok(RolloutResult { stop_reason: StopReason::Stopped, error: Some(error), .. }) =
                    joined.as_ref().map(|result| &result.rollout)
                    && !is_stopping
                {
                    progress.say(format!("starting no more rollouts: {error}"));
                    is_stopping = true;
                }
                let taken = match joined {
                    Err(error) if error.is_cancelled() => continue,
                    joined => joined.map_err(anyhow::Error::from).and_then(|result| take(&result)),
                };
                if let Err(error) = taken && failed.is_none() {
                    failed = Some(error);
                    is_stopping = true;
                    control.cancel();
                }
            }
            request = next_request() => match request {
                Request::Stop => {
                    progress.say("starting no more rollouts, stopping the running ones; Ctrl-C again ends at once");
                    is_stopping = true;
                    control.stop();
                }
                Request::Cancel(status) if ended.by_signal.is_none() => {
                    ended.by_signal = Some(status);
                    is_stopping = true;
                    control.cancel();
                }
                Request::Cancel(_) => running.abort_all(),
            }
        }
    }
    failed.map_or(Ok(ended), Err)
}
