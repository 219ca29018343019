//! Options for reading sources, and errors.

use std::io;
use std::path::{Path, PathBuf};

use rlm_core::text::listed;

use crate::terms::ReplLanguage;
use crate::trajectory::ReadError;

/// Number of rollouts that an error lists at most.
const MAX_LISTED: usize = 20;

/// Selects a session within a source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceOptions {
    /// The rollout of a trajectory; optional if there is only one.
    pub rollout: Option<String>,
    /// The language of a history that does not name it.
    pub language: Option<ReplLanguage>,
}

/// Why a source cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// A file or directory cannot be read.
    #[error("cannot read {}", path.display())]
    Io {
        /// The path.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// Not a regular file.
    #[error("{} is not a regular file", .0.display())]
    NotAFile(PathBuf),
    /// The file is too large.
    #[error("{} has {bytes} bytes, more than the limit of {limit}", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// The size in bytes.
        bytes: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// A directory without a history.
    #[error(
        "{} holds neither rlm_history.jsonl nor rlm_control/rlm_history.jsonl: expected a control directory, a kept rollout, a history or a trajectory",
        .0.display()
    )]
    NoHistory(PathBuf),
    /// A file of another kind.
    #[error("{} is neither a history nor a trajectory: line 1: {reason}", path.display())]
    Unknown {
        /// The file.
        path: PathBuf,
        /// Why its first line is neither.
        reason: String,
    },
    /// A line is not an entry of a history.
    #[error("{}: line {line} is not an entry of a history: {reason}", path.display())]
    BadLine {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: u64,
        /// The reason.
        reason: String,
    },
    /// A trajectory that cannot be read.
    #[error("cannot read the trajectory {}", path.display())]
    Trajectory {
        /// The file.
        path: PathBuf,
        /// The reader's error.
        #[source]
        source: ReadError,
    },
    /// The trajectory does not have the rollout that was asked for.
    #[error("{} has no rollout `{asked}`: it has {}", path.display(), listed(there, MAX_LISTED))]
    NoRollout {
        /// The file.
        path: PathBuf,
        /// The rollout.
        asked: String,
        /// The rollouts of the trajectory.
        there: Vec<String>,
    },
    /// The trajectory has several rollouts, and none was named.
    #[error("{} has several rollouts: name one with --rollout, of {}", path.display(), listed(there, MAX_LISTED))]
    SeveralRollouts {
        /// The file.
        path: PathBuf,
        /// The rollouts of the trajectory.
        there: Vec<String>,
    },
    /// A rollout was named, but a history does not have rollouts.
    #[error("{} is a history, which has no rollouts: omit --rollout", .0.display())]
    RolloutOfHistory(PathBuf),
    /// The session has no calls.
    #[error("{} holds no calls", .0.display())]
    Empty(PathBuf),
    /// The language of the session is unknown.
    #[error("{} does not name the language of its session: name it with --language", .0.display())]
    NoLanguage(PathBuf),
    /// The session has another language than the one named.
    #[error("{} is a {found} session, not {asked}", path.display())]
    OtherLanguage {
        /// The file.
        path: PathBuf,
        /// The session's language.
        found: String,
        /// The language that was asked for.
        asked: ReplLanguage,
    },
}

impl SourceError {
    /// True if the options do not fit the source.
    #[must_use]
    pub fn is_usage(&self) -> bool {
        matches!(
            self,
            Self::NoRollout { .. }
                | Self::SeveralRollouts { .. }
                | Self::RolloutOfHistory(_)
                | Self::NoLanguage(_)
                | Self::OtherLanguage { .. }
        )
    }
}

/// The remark on a last line that is not whole.
pub(super) fn cut_off(path: &Path, line: u64, bytes: usize) -> String {
    let path = path.display();
    format!(
        "{path}: line {line} is cut off after {bytes} bytes: it is being written, or its writer was killed"
    )
}

pub(super) fn at(path: &Path) -> impl Fn(io::Error) -> SourceError {
    move |source| SourceError::Io { path: path.to_owned(), source }
}
