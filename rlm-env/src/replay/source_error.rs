//! The options and errors of sources.

use std::io;
use std::path::{Path, PathBuf};

use rlm_core::text::listed;

use crate::terms::ReplLanguage;
use crate::trajectory::ReadError;

/// Most rollouts that an error names.
const MAX_LISTED: usize = 20;

/// What is taken from a source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceOptions {
    /// Which rollout of a trajectory; may be left out where there is one.
    pub rollout: Option<String>,
    /// The language, for a history that does not tell it.
    pub language: Option<ReplLanguage>,
}

/// A source that cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// A file or directory cannot be read.
    #[error("cannot read {}", path.display())]
    Io {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It is something else than a file.
    #[error("{} is not a regular file", .0.display())]
    NotAFile(PathBuf),
    /// It is too large.
    #[error("{} has {bytes} bytes, more than the limit of {limit}", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// Its size.
        bytes: u64,
        /// The limit.
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
        /// What is wrong with its first line.
        reason: String,
    },
    /// A line of a history that is none.
    #[error("{}: line {line} is not an entry of a history: {reason}", path.display())]
    BadLine {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: u64,
        /// What is wrong with it.
        reason: String,
    },
    /// A trajectory that cannot be read.
    #[error("cannot read the trajectory {}", path.display())]
    Trajectory {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: ReadError,
    },
    /// A trajectory without the rollout that was asked for.
    #[error("{} has no rollout `{asked}`: it has {}", path.display(), listed(there, MAX_LISTED))]
    NoRollout {
        /// The file.
        path: PathBuf,
        /// The rollout.
        asked: String,
        /// What it has.
        there: Vec<String>,
    },
    /// A trajectory of several rollouts, and none was named.
    #[error("{} has several rollouts: name one with --rollout, of {}", path.display(), listed(there, MAX_LISTED))]
    SeveralRollouts {
        /// The file.
        path: PathBuf,
        /// What it has.
        there: Vec<String>,
    },
    /// A rollout was named, and there are none.
    #[error("{} is a history, which has no rollouts: leave --rollout out", .0.display())]
    RolloutOfHistory(PathBuf),
    /// Nothing was done.
    #[error("{} holds no calls", .0.display())]
    Empty(PathBuf),
    /// The language is not to be found.
    #[error("{} does not tell the language of its session: name it with --repl-language", .0.display())]
    NoLanguage(PathBuf),
    /// Another language was named.
    #[error("{} is of a {found} session, not of {asked}", path.display())]
    OtherLanguage {
        /// The file.
        path: PathBuf,
        /// The language.
        found: String,
        /// What was named.
        asked: ReplLanguage,
    },
}

impl SourceError {
    /// Whether what was asked for does not fit what is there.
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

pub(super) fn at(path: &Path) -> impl Fn(io::Error) -> SourceError {
    move |source| SourceError::Io { path: path.to_owned(), source }
}
