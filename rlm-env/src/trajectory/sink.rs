//! What receives the entries of a trajectory as they happen.

use std::fmt;

use super::entry::Entry;

/// Takes the entries of a trajectory.
pub trait Sink: fmt::Debug + Send + Sync {
    /// Something happened. Called in the order of the entries, from tasks of the rollout: must not block for long.
    fn entry(&self, entry: &Entry);
}
