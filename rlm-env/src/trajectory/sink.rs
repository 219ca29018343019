//! Receivers of a trajectory's entries.

use std::fmt;

use super::entry::Entry;
use crate::session::OutputStream;

/// Receives the entries of a trajectory as they happen.
pub trait Sink: fmt::Debug + Send + Sync {
    /// Receives one entry. Called in the order of the entries, from the rollout's tasks; must not block for long.
    fn entry(&self, entry: &Entry);

    /// True to receive the output of calls as it comes, too; not where calls of root tools are intercepted.
    fn wants_output(&self) -> bool {
        false
    }

    /// Receives a piece of the running call's output, between its two entries. The second entry has all of it.
    fn output(&self, _piece: &OutputPiece<'_>) {}
}

/// A piece of a call's output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OutputPiece<'a> {
    /// The rollout's id.
    pub rollout: &'a str,
    /// The call's id.
    pub call_id: &'a str,
    /// The stream.
    pub stream: OutputStream,
    /// The text.
    pub text: &'a str,
}
