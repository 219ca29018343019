//! What can go wrong on our side with a session that is a tool.

/// A fault that a model is told, in the words of a template.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ToolFault {
    /// The code is too large. It did not run.
    CodeTooLarge {
        /// Its size.
        bytes: usize,
        /// The largest there may be.
        limit: usize,
    },
    /// Other calls are served, and no more may wait, or this one would not. It did not run.
    Busy {
        /// How many there are.
        waiting: usize,
    },
    /// No worker can be started: why. It was tried twice.
    NotStarted(String),
    /// The worker died while the code ran: how. The next call has a new one.
    Died(String),
    /// The worker could not be talked to: why. The next call has a new one.
    Broken(String),
    /// The session is at its end.
    Closed,
    /// What was run cannot be read: why.
    NoHistory(String),
    /// The script is too long to be given back.
    ScriptTooLarge {
        /// Its size.
        bytes: usize,
        /// The largest there may be.
        limit: usize,
    },
    /// There is no session of that name.
    UnknownSession {
        /// The name.
        name: String,
        /// The names that there are.
        known: Vec<String>,
    },
    /// There may be no more sessions.
    TooManySessions {
        /// How many there may be.
        limit: usize,
        /// The names that there are.
        known: Vec<String>,
    },
    /// The arguments of a call cannot be used: why.
    BadArguments(String),
}
