//! Receivers of a trajectory's entries.

use std::fmt;

use super::entry::Entry;

/// Receives the entries of a trajectory as they happen.
pub trait Sink: fmt::Debug + Send + Sync {
    /// Receives one entry. Called in the order of the entries, from the rollout's tasks; must not block for long.
    fn entry(&self, entry: &Entry);
}
