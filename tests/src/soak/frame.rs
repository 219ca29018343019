//! The settings of a session: its language, its seed, and the way it ends.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The settings of a session, which are the first line of its replay file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Frame {
    /// The language of the session.
    pub language: Language,
    /// The way the host ends the worker.
    pub end: End,
    /// The seed from which the session was made.
    pub seed: u64,
}

/// The way a host ends its worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum End {
    /// SIGTERM.
    Term,
    /// The request `shutdown`.
    Shutdown,
    /// SIGKILL to the process that was started.
    KillGuard,
    /// SIGKILL to the process that serves.
    KillServer,
}

/// The language of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Language {
    /// Bash.
    Bash,
    /// Python.
    Python,
}

impl fmt::Display for Language {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Bash => "bash",
            Self::Python => "python",
        })
    }
}
