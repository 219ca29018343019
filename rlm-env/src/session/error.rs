//! Errors of a session.

use std::path::PathBuf;
use std::time::Duration;

use rlm_core::control::ControlError;

/// Why a session failed. Code that fails is not an error: see [`Response`](rlm_core::protocol::Response).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SessionError {
    /// The worker program cannot be started. Nothing is left behind.
    #[error("cannot start the worker {}", worker.display())]
    Spawn {
        /// The program.
        worker: PathBuf,
        /// The system's error.
        #[source]
        source: std::io::Error,
    },
    /// The worker ended before it was ready. Nothing is left behind.
    #[error("the worker ended before it was ready ({status}): {words}")]
    NotReady {
        /// The exit status of the worker.
        status: String,
        /// The end of the worker's standard error.
        words: String,
    },
    /// The worker was not ready in time and was killed. Nothing is left behind.
    #[error("the worker was not ready within {} s", .0.as_secs_f64())]
    StartTimedOut(Duration),
    /// The worker is dead, with everything it started. [`Session::restart`](super::Session::restart) starts a new one.
    #[error("the worker died ({status}){}", last_words(log_tail))]
    Died {
        /// The exit status of the worker.
        status: String,
        /// The end of the worker's log.
        log_tail: String,
    },
    /// The worker sent something other than a response. It still runs; restart it to be sure of its state.
    #[error("the worker broke the protocol: {0}")]
    Protocol(String),
    /// The state of a session cannot be handed on to a [branch](super::Session::branch). The session is as it was.
    #[error("the session cannot branch: {0}")]
    Branch(String),
    /// The control directory cannot be used.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// A descriptor cannot be used: the system has run out of them, or the control directory was removed.
    #[error("cannot {operation}")]
    Io {
        /// The action that failed, as a verb phrase: "open the worker's FIFOs".
        operation: &'static str,
        /// The system's error.
        #[source]
        source: std::io::Error,
    },
}

fn last_words(log_tail: &str) -> String {
    if log_tail.is_empty() { String::new() } else { format!("; its log ends with: {log_tail}") }
}

pub(super) fn io_error(operation: &'static str) -> impl FnOnce(std::io::Error) -> SessionError {
    move |source| SessionError::Io { operation, source }
}
