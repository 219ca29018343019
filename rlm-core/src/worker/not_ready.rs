//! The error of an interpreter that did not become ready.

use std::path::PathBuf;

use crate::limits::START_LIMIT;

/// An interpreter that did not become ready.
#[derive(Debug)]
pub(super) struct NotReady {
    pub(super) program: PathBuf,
    /// Exit status; None if the interpreter took too long.
    pub(super) status: Option<i32>,
    /// The end of what it printed.
    pub(super) output: String,
}

impl NotReady {
    pub(super) fn was_killed(&self) -> bool {
        self.status.is_some_and(|status| status > 128)
    }
}

impl std::error::Error for NotReady {}

impl std::fmt::Display for NotReady {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let program = self.program.display();
        match self.status {
            Some(status) => write!(formatter, "{program} ended with status {status} before it was ready")?,
            None => write!(formatter, "{program} was not ready within {} s", START_LIMIT.as_secs())?,
        }
        if self.output.is_empty() { Ok(()) } else { write!(formatter, "; it printed {:?}", self.output) }
    }
}
