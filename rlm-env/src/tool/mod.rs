//! A session as a tool: takes code, always returns a value.
//!
//! A [`SessionTool`] is for agents that give their model one persistent shell or Python. No method fails or panics: the
//! code's result and the tool's own failures are both a [`ToolResult`], with a hint that a model can act on.
//!
//! The worker starts with the first call. Calls are served in the order they were made. A bounded number may wait;
//! further ones are refused as busy. If the worker was killed between calls, the next call runs in a new one and says
//! that the state was reset. If it dies during a call, that call fails, because it is unknown how far the code came.
//!
//! Calls are cancel-safe: dropping the future interrupts the code, and the session stays usable.
//!
//! Output above [`SessionToolConfig::max_output_bytes`] loses its middle. The whole text is kept in a file in the
//! tool's private directory, which the code can read.
//!
//! ```no_run
//! # async fn example() {
//! use rlm_env::tool::{SessionTool, SessionToolConfig, ToolResult};
//! use rlm_env::{ReplLanguage, SessionConfig};
//!
//! let session = SessionConfig::new("rlm-worker-bash", "/data");
//! let tool = SessionTool::new(SessionToolConfig::new(ReplLanguage::Bash, session, "/tmp"));
//! match tool.call("wc -l *.txt | tail -n 1").await.result {
//!     ToolResult::Ok(value) => println!("{}", value.stdout),
//!     ToolResult::Failed(failure) => println!("{}: {}", failure.error, failure.hint),
//! }
//! tool.close().await;
//! # }
//! ```

mod actor;
mod config;
mod output;
mod result;
mod script;

use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use rlm_core::control::ControlDir;
use rlm_core::error::with_causes;
use rlm_core::limits::MAX_TIMEOUT;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use self::actor::{Actor, PrivateDir, QueueSlot, Request};
pub use self::config::SessionToolConfig;
pub use self::result::{CallValue, Cut, Cuts, ResetValue, ScriptValue, ToolFailure, ToolReply, ToolResult};
pub use self::script::session_script;
pub use crate::prompts::ToolFault;

/// One call of the tool.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ToolCall {
    /// The code to run.
    pub code: String,
    /// Time limit of this call; the tool's when None.
    pub timeout: Option<Duration>,
    /// The action for a call while other calls are being served.
    pub when_busy: WhenBusy,
}

impl From<&str> for ToolCall {
    fn from(code: &str) -> Self {
        Self { code: code.to_owned(), ..Self::default() }
    }
}

/// The action of a call while other calls are being served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenBusy {
    /// Wait for its turn.
    #[default]
    Wait,
    /// Fail as busy.
    Refuse,
}

/// One session, as a tool. Its methods may be called from several tasks at once.
///
/// Dropping it ends the worker soon; [`SessionTool::close`] ends it and waits.
#[derive(Debug)]
pub struct SessionTool {
    config: Arc<SessionToolConfig>,
    dir: PrivateDir,
    jobs: OnceLock<mpsc::UnboundedSender<Request>>,
    /// Number of calls that wait or run.
    in_flight: Arc<AtomicUsize>,
    closing: CancellationToken,
    served: Mutex<Option<JoinHandle<()>>>,
}

impl SessionTool {
    /// Makes a tool. Its worker starts with the first call.
    #[must_use]
    pub fn new(config: SessionToolConfig) -> Self {
        Self {
            config: Arc::new(config),
            dir: Arc::default(),
            jobs: OnceLock::new(),
            in_flight: Arc::default(),
            closing: CancellationToken::new(),
            served: Mutex::default(),
        }
    }

    /// Runs code and returns its result.
    ///
    /// The call takes its place in the queue when this future is first polled. Dropping the future interrupts the code
    /// and keeps the session.
    pub async fn call(&self, call: impl Into<ToolCall>) -> ToolReply {
        let ToolCall { code, timeout, when_busy } = call.into();
        let (bytes, limit) = (code.len(), self.config.max_code_bytes);
        if bytes > limit {
            return self.failed(&ToolFault::CodeTooLarge { bytes, limit });
        }
        // A timeout of 0 means no time at all, but the worker would read it as no limit.
        let limit = timeout.unwrap_or(self.config.timeout).clamp(Duration::from_nanos(1), MAX_TIMEOUT);
        let make = |reply, cancelled| Request::Execute { code, limit, reply, cancelled };
        match self.submit(when_busy, make).await {
            Ok(reply) => reply,
            Err(fault) => self.failed(&fault),
        }
    }

    /// Gives the session a fresh interpreter in the same directory, with an empty answer. Earlier calls finish first.
    pub async fn reset(&self) -> ToolResult<ResetValue> {
        let submitted =
            self.submit(WhenBusy::Wait, |reply, cancelled| Request::Reset { reply, cancelled }).await;
        match submitted.flatten() {
            Ok(value) => ToolResult::Ok(value),
            Err(fault) => ToolResult::Failed(self.failure(&fault)),
        }
    }

    /// The code that was run so far, as a script.
    pub async fn script(&self) -> ToolResult<ScriptValue> {
        let (dir, language) = (Arc::clone(&self.dir), self.config.language);
        let limit = self.config.max_script_bytes;
        let written = tokio::task::spawn_blocking(move || {
            // Keeps the directory from being removed while it is read.
            let dir = dir.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let Some(dir) = dir else { return Ok(String::new()) };
            session_script(&ControlDir::new(dir.path().join(actor::CONTROL)), language)
        });
        let fault = match written.await {
            Ok(Ok(script)) if script.len() <= limit => return ToolResult::Ok(ScriptValue { script }),
            Ok(Ok(script)) => ToolFault::ScriptTooLarge { bytes: script.len(), limit },
            Ok(Err(error)) => ToolFault::NoHistory(with_causes(&error)),
            Err(_cancelled) => ToolFault::Closed,
        };
        ToolResult::Failed(self.failure(&fault))
    }

    /// Ends the worker and everything it started, and removes the private directory. A running call is abandoned.
    pub async fn close(&self) {
        self.closing.cancel();
        let served = self.served.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(served) = served {
            // The task has ended, or the runtime is shutting down and ends the worker with it.
            let _gone = served.await;
        }
    }

    /// Words a fault for a model.
    #[must_use]
    pub fn failure(&self, fault: &ToolFault) -> ToolFailure {
        ToolFailure::of(fault, &self.config.prompts, self.config.language)
    }

    fn failed(&self, fault: &ToolFault) -> ToolReply {
        ToolReply::failed(self.failure(fault))
    }

    /// Queues a request and waits for its reply. Dropping the future cancels the request, queued or running.
    async fn submit<T>(
        &self,
        when_busy: WhenBusy,
        make: impl FnOnce(oneshot::Sender<T>, CancellationToken) -> Request,
    ) -> Result<T, ToolFault> {
        let place = QueueSlot::take(&self.in_flight);
        let most = match when_busy {
            WhenBusy::Wait => self.config.max_waiting,
            WhenBusy::Refuse => 0,
        };
        let waiting = place.others();
        if waiting > most {
            return Err(ToolFault::Busy { waiting });
        }
        let (sender, reply) = oneshot::channel();
        let cancelled = CancellationToken::new();
        self.jobs().send(make(sender, cancelled.clone())).map_err(|_served| ToolFault::Closed)?;
        let _on_drop = cancelled.drop_guard();
        reply.await.map_err(|_gone| ToolFault::Closed)
    }

    fn jobs(&self) -> &mpsc::UnboundedSender<Request> {
        self.jobs.get_or_init(|| {
            let (sender, jobs) = mpsc::unbounded_channel();
            let actor = Actor::new(Arc::clone(&self.config), Arc::clone(&self.dir));
            let served = tokio::spawn(actor.serve(jobs, self.closing.clone()));
            *self.served.lock().unwrap_or_else(PoisonError::into_inner) = Some(served);
            sender
        })
    }
}

impl Drop for SessionTool {
    fn drop(&mut self) {
        self.closing.cancel();
    }
}
