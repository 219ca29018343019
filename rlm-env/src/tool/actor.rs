//! The task that owns a tool's session and serves its calls, one after another.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rlm_core::control::ControlDir;
use rlm_core::error::with_causes;
use rlm_core::protocol::{Outcome, Response, State};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::config::SessionToolConfig;
use super::output::{Outputs, strip_escapes};
use super::result::{CallValue, Cuts, ResetValue, ToolFailure, ToolReply, ToolResult};
use crate::files::HostDir;
use crate::prompts::{StateLost, ToolFault};
use crate::render::render;
use crate::session::{Call, Session, SessionConfig, SessionError};

/// Name of the control directory within the tool's private directory.
pub(super) const CONTROL: &str = "control";

/// Name of the directory of whole outputs within the tool's private directory.
const OUTPUTS: &str = "outputs";

/// Attempts to start a worker before the call fails.
const START_ATTEMPTS: u32 = 2;

/// Outcomes of a reset after which the session is fresh; at `timed_out` the worker was replaced.
const RESET: [Outcome; 2] = [Outcome::Ok, Outcome::TimedOut];

/// The tool's private directory, while there is one: from the worker's first start to the tool's end.
pub(super) type PrivateDir = Arc<Mutex<Option<HostDir>>>;

/// A request to the task. `cancelled` completes when its caller has gone.
#[derive(Debug)]
pub(super) enum Request {
    Execute { code: String, limit: Duration, reply: oneshot::Sender<ToolReply>, cancelled: CancellationToken },
    Reset { reply: oneshot::Sender<Result<ResetValue, ToolFault>>, cancelled: CancellationToken },
}

impl Request {
    fn is_cancelled(&self) -> bool {
        match self {
            Self::Execute { cancelled, .. } | Self::Reset { cancelled, .. } => cancelled.is_cancelled(),
        }
    }
}

/// One caller's entry in the count of those that wait or are served; subtracted on drop.
#[derive(Debug)]
pub(super) struct QueueSlot(Arc<AtomicUsize>);

impl QueueSlot {
    pub(super) fn take(in_flight: &Arc<AtomicUsize>) -> Self {
        in_flight.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(in_flight))
    }

    /// The number of other callers.
    pub(super) fn others(&self) -> usize {
        self.0.load(Ordering::Relaxed).saturating_sub(1)
    }
}

impl Drop for QueueSlot {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[derive(Debug)]
pub(super) struct Actor {
    // Field order matters: the worker must end before its directory is removed.
    session: Option<Session>,
    outputs: Option<Outputs>,
    config: Arc<SessionToolConfig>,
    dir: PrivateDir,
    /// A loss of state that no reply has mentioned yet, with its reason.
    unreported: Option<(State, String)>,
}

impl Actor {
    pub(super) fn new(config: Arc<SessionToolConfig>, dir: PrivateDir) -> Self {
        Self { session: None, outputs: None, config, dir, unreported: None }
    }

    /// Serves requests until the tool is closed, then ends the worker.
    pub(super) async fn serve(
        mut self,
        mut jobs: mpsc::UnboundedReceiver<Request>,
        closing: CancellationToken,
    ) {
        let is_idle = self.serve_until(&mut jobs, &closing).await;
        match self.session.take() {
            Some(session) if is_idle => close(session).await,
            session => end_busy(session).await,
        }
        let dir = self.dir.lock().unwrap_or_else(PoisonError::into_inner).take();
        // If the runtime is shutting down, the directory is removed right here instead.
        let _removed = tokio::task::spawn_blocking(move || drop(dir)).await;
    }

    /// Serves requests until the tool is closed. Returns true if none was abandoned.
    async fn serve_until(
        &mut self,
        jobs: &mut mpsc::UnboundedReceiver<Request>,
        closing: &CancellationToken,
    ) -> bool {
        let mut waiting = VecDeque::new();
        loop {
            let next = waiting.pop_front();
            let job = tokio::select! {
                biased;
                () = closing.cancelled() => return true,
                next = std::future::ready(next), if next.is_some() => next,
                job = jobs.recv() => job,
            };
            let Some(job) = job else { return true };
            let mut working = pin!(self.work(job));
            loop {
                tokio::select! {
                    biased;
                    () = closing.cancelled() => return false,
                    () = &mut working => break,
                    Some(job) = jobs.recv() => {
                        // Drop requests without a caller, so that they hold no memory while this one runs.
                        waiting.retain(|earlier: &Request| !earlier.is_cancelled());
                        waiting.push_back(job);
                    }
                }
            }
        }
    }

    async fn work(&mut self, work: Request) {
        match work {
            // Sending fails if the caller has gone; the reply is dropped.
            Request::Execute { code, limit, reply, cancelled } => {
                let replied = self.execute(code, limit, &cancelled).await;
                let replied = replied.unwrap_or_else(|fault| self.failed_reply(&fault));
                let _nobody_waits = reply.send(replied);
            }
            Request::Reset { reply, cancelled } => {
                if !cancelled.is_cancelled() {
                    let _nobody_waits = reply.send(self.reset().await);
                }
            }
        }
    }

    async fn execute(
        &mut self,
        code: String,
        limit: Duration,
        cancelled: &CancellationToken,
    ) -> Result<ToolReply, ToolFault> {
        let call = Call { code, timeout: Some(limit), ..Call::default() };
        let mut was_replaced = false;
        loop {
            tokio::select! {
                biased;
                () = cancelled.cancelled() => return Err(ToolFault::Closed),
                ready = self.make_ready() => ready?,
            }
            let Some(session) = &mut self.session else { return Err(ToolFault::Closed) };
            match session.execute_until(call.clone(), cancelled.cancelled()).await {
                Ok(response) if cancelled.is_cancelled() => {
                    self.note_state_loss(response.state, response.hint.unwrap_or_default());
                    return Err(ToolFault::Closed);
                }
                Ok(response) if is_refused(&response) => {
                    return Err(ToolFault::BadArguments(response.hint.unwrap_or_default()));
                }
                Ok(response) => return Ok(self.reply(response).await),
                // The worker was killed before this call but had not yet died.
                Err(SessionError::Died { .. }) if !session.was_read() && !was_replaced => was_replaced = true,
                Err(error) => return Err(self.failed(error).await),
            }
        }
    }

    /// Ensures a live worker: starts the first one, or replaces a dead one.
    async fn make_ready(&mut self) -> Result<(), ToolFault> {
        if let Some(session) = &mut self.session
            && let Some(death) = session.death().await
        {
            tracing::warn!(error = %with_causes(&death), "the worker died between calls, starting another one");
            self.session = None;
            self.note_state_loss(State::Reset, with_causes(&death));
        }
        if self.session.is_none() {
            self.session = Some(self.start().await?);
        }
        Ok(())
    }

    async fn start(&mut self) -> Result<Session, ToolFault> {
        let mut tried = 1;
        loop {
            let started = match self.session_config() {
                Ok(config) => Session::start(config).await.map_err(|error| with_causes(&error)),
                Err(error) => Err(with_causes(&error)),
            };
            match started {
                Ok(session) => return Ok(session),
                Err(reason) if tried == START_ATTEMPTS => return Err(ToolFault::NotStarted(reason)),
                Err(reason) => tracing::warn!(reason, "cannot start the worker, trying again"),
            }
            tried += 1;
        }
    }

    /// The session's configuration. Creates the tool's private directory if it is missing.
    fn session_config(&mut self) -> std::io::Result<SessionConfig> {
        let (control, outputs): (PathBuf, PathBuf) = {
            let mut dir = self.dir.lock().unwrap_or_else(PoisonError::into_inner);
            let dir = match &mut *dir {
                Some(dir) if dir.is_in_place() => dir,
                none => {
                    // The kept outputs were in the previous directory.
                    self.outputs = None;
                    none.insert(HostDir::create(&self.config.dir).map_err(|error| {
                        let place = self.config.dir.display();
                        std::io::Error::new(
                            error.kind(),
                            format!("cannot make a directory in {place}: {error}"),
                        )
                    })?)
                }
            };
            (dir.path().join(CONTROL), dir.path().join(OUTPUTS))
        };
        // Repairs any damage done by the session of an earlier worker.
        ControlDir::new(&control).repair().map_err(std::io::Error::other)?;
        self.outputs.get_or_insert_with(|| Outputs::new(outputs, self.config.max_kept_bytes));
        Ok(SessionConfig { control_dir: Some(control), ..self.config.session.clone() })
    }

    /// The reply to a response.
    async fn reply(&mut self, mut response: Response) -> ToolReply {
        if let Some((state, reason)) = self.unreported.take() {
            response.state = response.state.max(state);
            let lost = StateLost { language: self.config.language, state, reason: &reason };
            let lost = lost.render(&self.config.prompts).unwrap_or_else(|error| with_causes(&error));
            response.hint = Some(match response.hint {
                Some(hint) => format!("{lost} {hint}"),
                None => lost,
            });
        }
        let Some(mut outputs) = self.outputs.take() else { return self.shaped(response, None) };
        let config = Arc::clone(&self.config);
        // Reads the whole output and may write it to a file, so it may block.
        let shaping = tokio::task::spawn_blocking(move || {
            strip_escapes(&mut response);
            let cuts = outputs.shorten(&mut response, &config);
            (response, cuts, outputs)
        });
        match shaping.await {
            Ok((response, cuts, outputs)) => {
                self.outputs = Some(outputs);
                self.shaped(response, cuts)
            }
            // The runtime is shutting down.
            Err(_cancelled) => self.failed_reply(&ToolFault::Closed),
        }
    }

    fn shaped(&self, response: Response, cuts: Option<Cuts>) -> ToolReply {
        let text = render(&response, self.config.language, usize::MAX, &self.config.prompts);
        ToolReply {
            text: text.unwrap_or_else(|error| with_causes(&error)),
            result: ToolResult::Ok(CallValue::new(response, cuts)),
        }
    }

    fn failed_reply(&self, fault: &ToolFault) -> ToolReply {
        ToolReply::failed(ToolFailure::of(fault, &self.config.prompts, self.config.language))
    }

    /// The reply to an error; also drops the session if it is unusable.
    async fn failed(&mut self, error: SessionError) -> ToolFault {
        let reason = with_causes(&error);
        tracing::warn!(error = reason, "a call failed");
        let session = self.session.take();
        self.note_state_loss(State::Reset, reason.clone());
        if matches!(error, SessionError::Died { .. }) {
            return ToolFault::Died(reason);
        }
        end_busy(session).await;
        ToolFault::Broken(reason)
    }

    /// Remembers a loss of state for the next reply.
    fn note_state_loss(&mut self, state: State, reason: String) {
        if self.unreported.as_ref().map_or(State::Kept, |(known, _)| *known) < state {
            self.unreported = Some((state, reason));
        }
    }

    async fn reset(&mut self) -> Result<ResetValue, ToolFault> {
        self.begin_anew().await?;
        // A caller of reset expects an empty session, so there is nothing to report.
        self.unreported = None;
        Ok(ResetValue { state: State::Reset })
    }

    /// Gives the session a fresh interpreter. A session that has not started is fresh.
    async fn begin_anew(&mut self) -> Result<(), ToolFault> {
        let Some(session) = &mut self.session else { return Ok(()) };
        if session.reset().await.is_ok_and(|response| RESET.contains(&response.outcome)) {
            return Ok(());
        }
        // The worker cannot reset its session: a new one takes its place.
        end_busy(self.session.take()).await;
        self.session = Some(self.start().await?);
        Ok(())
    }
}

/// True if the worker refused the call, so no code ran. Code that raises has an exception.
fn is_refused(response: &Response) -> bool {
    response.outcome == Outcome::Error && response.exception.is_none()
}

async fn close(session: Session) {
    if let Err(error) = session.close().await {
        tracing::warn!(error = %with_causes(&error), "the worker did not end as it should");
    }
}

/// Ends a session whose worker does not react because it is busy or broken.
async fn end_busy(session: Option<Session>) {
    // Dropping it waits for the worker's end. If the runtime is shutting down, it is dropped right here.
    let _ended = tokio::task::spawn_blocking(move || drop(session)).await;
}
