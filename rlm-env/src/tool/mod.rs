//! A session as a tool: code in, a value out, whatever happens.
//!
//! A [`SessionTool`] is for agents that give their model one persistent shell or Python. Nothing it does fails with an
//! error or a panic: what the code came to and what went wrong on our side are both a [`ToolResult`], with a hint that a
//! model can act on.
//!
//! The worker starts with the first call. Calls are served one after another, in the order in which they were made; only so
//! many may wait, and one more is refused as busy. When the worker was killed between calls, the next call runs in a new
//! one and says that the state was reset. When it dies in a call, that call fails, for nobody knows how far it came.
//!
//! A call is cancel-safe: when its future is dropped, the code is interrupted and the session goes on.
//!
//! Output above [`SessionToolConfig::max_output_bytes`] loses its middle; the whole text is kept in a file of the tool's
//! private directory, which the code can read.
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

use self::actor::{Actor, Place, PrivateDir, Work};
pub use self::config::SessionToolConfig;
pub use self::result::{CallValue, Cut, Cuts, ResetValue, ScriptValue, ToolFailure, ToolReply, ToolResult};
pub use self::script::session_script;
pub use crate::prompts::ToolFault;

/// One call.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ToolCall {
    /// The code to run.
    pub code: String,
    /// Time limit of this call; the tool's when None.
    pub timeout: Option<Duration>,
    /// What to do while other calls are served.
    pub when_busy: WhenBusy,
}

impl From<&str> for ToolCall {
    fn from(code: &str) -> Self {
        Self { code: code.to_owned(), ..Self::default() }
    }
}

/// What a call does while other calls are served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenBusy {
    /// It waits for its turn.
    #[default]
    Wait,
    /// It is refused.
    Refuse,
}

/// One session, as a tool. Its methods may be called from several tasks at once.
///
/// Dropping it ends the worker soon; [`SessionTool::close`] ends it and waits.
#[derive(Debug)]
pub struct SessionTool {
    config: Arc<SessionToolConfig>,
    dir: PrivateDir,
    jobs: OnceLock<mpsc::UnboundedSender<Work>>,
    /// Calls that wait or run.
    in_flight: Arc<AtomicUsize>,
    closing: CancellationToken,
    served: Mutex<Option<JoinHandle<()>>>,
}

impl SessionTool {
    /// A tool whose worker starts with the first call.
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

    /// Runs code and says what it came to.
    ///
    /// Its turn is where this future is first polled. Dropping the future interrupts the code and keeps the session.
    pub async fn call(&self, call: impl Into<ToolCall>) -> ToolReply {
        let ToolCall { code, timeout, when_busy } = call.into();
        let (bytes, limit) = (code.len(), self.config.max_code_bytes);
        if bytes > limit {
            return self.failed(&ToolFault::CodeTooLarge { bytes, limit });
        }
        // None at all is no time, and not without limit.
        let limit = timeout.unwrap_or(self.config.timeout).clamp(Duration::from_nanos(1), MAX_TIMEOUT);
        let make = |reply, cancelled| Work::Execute { code, limit, reply, cancelled };
        match self.submit(when_busy, make).await {
            Ok(reply) => reply,
            Err(fault) => self.failed(&fault),
        }
    }

    /// Begins anew: a fresh interpreter in the same directory, without an answer. Waits for calls that were made before.
    pub async fn reset(&self) -> ToolResult<ResetValue> {
        let submitted =
            self.submit(WhenBusy::Wait, |reply, cancelled| Work::Reset { reply, cancelled }).await;
        match submitted.flatten() {
            Ok(value) => ToolResult::Ok(value),
            Err(fault) => ToolResult::Failed(self.failure(&fault)),
        }
    }

    /// What was run so far, as a script.
    pub async fn script(&self) -> ToolResult<ScriptValue> {
        let (dir, language) = (Arc::clone(&self.dir), self.config.language);
        let limit = self.config.max_output_bytes;
        let written = tokio::task::spawn_blocking(move || {
            // Held meanwhile, so that it stays.
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

    /// Ends the worker, with all that it started, and removes the private directory. A call that runs is given up.
    pub async fn close(&self) {
        self.closing.cancel();
        let served = self.served.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(served) = served {
            // It ended, or the runtime is going: then the worker ends with it.
            let _gone = served.await;
        }
    }

    /// A fault in the words that a model is given.
    #[must_use]
    pub fn failure(&self, fault: &ToolFault) -> ToolFailure {
        ToolFailure::of(fault, &self.config.prompts, self.config.language)
    }

    fn failed(&self, fault: &ToolFault) -> ToolReply {
        ToolReply::failed(self.failure(fault))
    }

    /// Puts a job in line and waits for its reply. Dropping the future cancels the job, wherever it is.
    async fn submit<T>(
        &self,
        when_busy: WhenBusy,
        make: impl FnOnce(oneshot::Sender<T>, CancellationToken) -> Work,
    ) -> Result<T, ToolFault> {
        let place = Place::take(&self.in_flight);
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

    fn jobs(&self) -> &mpsc::UnboundedSender<Work> {
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
