//! What can go wrong with a tool on our side, and what a model is told of it.

use rlm_core::error::with_causes;

use super::result::ToolFailure;
use crate::prompts::{Prompts, ToolFailureText};
use crate::session::ReplLanguage;

/// What is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
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

impl ToolFault {
    /// The fault in the words that a model is given.
    #[must_use]
    pub fn failure(&self, prompts: &Prompts, language: ReplLanguage) -> ToolFailure {
        let text = ToolFailureText { language, fault: self };
        // Templates are rendered once when they are loaded; should one fail all the same, that is what there is to say.
        let said = |rendered: Result<String, _>| rendered.unwrap_or_else(|error| with_causes(&error));
        ToolFailure { error: said(text.render_error(prompts)), hint: said(text.render_hint(prompts)) }
    }
}
