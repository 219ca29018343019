//! Faults of a session that is a tool, as opposed to errors of its code.

/// A fault. A template words it for the model.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ToolFault {
    /// The code is too large. It did not run.
    CodeTooLarge {
        /// Its size in bytes.
        bytes: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// Other calls are being served, and the queue is full or the caller did not want to wait. The code did not run.
    Busy {
        /// Number of calls being served.
        waiting: usize,
    },
    /// The worker could not be started, twice; the reason.
    NotStarted(String),
    /// The worker died while the code ran; its death. The next call gets a new worker.
    Died(String),
    /// Communication with the worker failed; the error. The next call gets a new worker.
    Broken(String),
    /// The session is closed.
    Closed,
    /// The session's history cannot be read; the reason.
    NoHistory(String),
    /// The script is too large to return.
    ScriptTooLarge {
        /// Its size in bytes.
        bytes: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// No session has this name.
    UnknownSession {
        /// The name in the call.
        name: String,
        /// The names of the existing sessions.
        known: Vec<String>,
    },
    /// The number of sessions is at its limit.
    TooManySessions {
        /// The limit.
        limit: usize,
        /// The names of the existing sessions.
        known: Vec<String>,
    },
    /// The arguments of a call are invalid; the reason.
    BadArguments(String),
}
