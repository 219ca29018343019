//! Errors of navigation calls.

use std::io;

use rlm_core::text::cut;

use super::stop::{Stopped, is_stopped};
use crate::ToolError;

/// Longest quotation of a caller's text in an error, in characters.
const QUOTED_CHARS: usize = 200;

/// Why a call failed. The text includes a hint if the caller can do something about it.
#[derive(Debug, thiserror::Error)]
pub(super) enum Fault {
    /// The request names something that does not exist or is not allowed.
    #[error("{0}")]
    Refused(String),
    /// The context cannot be read.
    #[error("{0}")]
    Failed(String),
    /// The call was cancelled, or its time limit was reached.
    #[error("the time limit of the call was reached: ask for less, for example for one directory")]
    Stopped,
}

impl Fault {
    pub(super) fn refused(text: impl Into<String>) -> Self {
        Self::Refused(text.into())
    }

    /// The error for a failed read.
    pub(super) fn reading(path: &str, error: &io::Error) -> Self {
        if is_stopped(error) {
            return Self::Stopped;
        }
        Self::Failed(format!("{path} cannot be read: {error}"))
    }

    /// The error with the tool's name.
    pub(super) fn of_tool(self, tool: &str) -> ToolError {
        let text = format!("{tool}: {self}");
        match self {
            Self::Refused(_) => ToolError::Arguments(text),
            Self::Failed(_) | Self::Stopped => ToolError::Failed(text),
        }
    }
}

impl From<Stopped> for Fault {
    fn from(_: Stopped) -> Self {
        Self::Stopped
    }
}

/// A caller's text in quotes, shortened if it is long.
pub(super) fn quoted(text: &str) -> String {
    format!("{:?}", cut(text, QUOTED_CHARS))
}

/// `; did you mean "a" or "b"?`, or an empty text.
pub(super) fn did_you_mean(names: &[String]) -> String {
    let names: Vec<_> = names.iter().map(|name| quoted(name)).collect();
    match names.split_last() {
        None => String::new(),
        Some((last, [])) => format!("; did you mean {last}?"),
        Some((last, others)) => format!("; did you mean {} or {last}?", others.join(", ")),
    }
}
