//! What lies in a rollout's working directory.

use std::io;
use std::path::PathBuf;

use rlm_core::text::grouped;
use serde_json::Value as Json;

use super::names::shown;

/// What lies in a rollout's working directory when it begins.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Context {
    /// Nothing.
    #[default]
    Nothing,
    /// Copies of these. What a single directory holds lies in the working directory itself; else each lies there under its
    /// own name.
    Paths(Vec<PathBuf>),
    /// A text, as `context.txt`.
    Text(String),
    /// A JSON document, as `context.json`.
    Json(Json),
    /// Files, by name and content.
    Files(Vec<(String, Vec<u8>)>),
    /// All of these. Directories lie there under their own names.
    Together(Vec<Self>),
}

/// A context that cannot be put into a working directory.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ContextError {
    /// A symbolic link lies in it. Where it leads to is not the context's to say.
    #[error("the context holds a symbolic link, {}: put what it leads to in its place, or leave it out", shown(.0))]
    Symlink(PathBuf),
    /// Something in it is neither a file nor a directory.
    #[error("the context holds a {kind}, {}: expected files and directories alone", shown(path))]
    Special {
        /// Where.
        path: PathBuf,
        /// What it is: `socket`, `FIFO`, …
        kind: &'static str,
    },
    /// It has more bytes than it may.
    #[error(
        "the context has {} bytes or more, the limit is {}: give a part of it, or raise `max_context_bytes`",
        grouped(*at_least), grouped(*limit)
    )]
    TooLarge {
        /// The limit, in bytes.
        limit: u64,
        /// How many bytes there are at least.
        at_least: u64,
    },
    /// It has more files and directories than it may.
    #[error("the context has more than {} files and directories: give a part of it, or an archive", grouped(*.0))]
    TooMany(u64),
    /// Two of the given paths would have one name.
    #[error("{} and {} would both be `{}`: rename one of them", shown(first), shown(second), shown(name))]
    SameName {
        /// The one given first.
        first: PathBuf,
        /// The other one.
        second: PathBuf,
        /// The name.
        name: PathBuf,
    },
    /// Something would take the place of the transcript.
    #[error("{} has the name of the conversation's transcript: rename it, or leave it out", shown(.0))]
    Reserved(PathBuf),
    /// A path among several has no name that it could have in the working directory.
    #[error("{} has no name to be given in the working directory: give it alone, or what it holds", shown(.0))]
    NoName(PathBuf),
    /// The working directory lies in what would be copied to it.
    #[error(
        "{} holds the directory that it would be copied to, {}: give a part of it, or have rollouts elsewhere",
        shown(path),
        shown(target)
    )]
    HoldsTarget {
        /// What was to be copied.
        path: PathBuf,
        /// The working directory.
        target: PathBuf,
    },
    /// It cannot be read: it is missing, or permissions forbid it, or the disk fails.
    #[error("cannot read {}", shown(path))]
    Read {
        /// What.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A file cannot be copied, by fault of either side.
    #[error("cannot copy {}", shown(path))]
    Copy {
        /// What.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The working directory cannot be written.
    #[error("cannot write {}", shown(path))]
    Write {
        /// What.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The rollout ended meanwhile.
    #[error("the rollout ended while its context was copied")]
    Cancelled,
}
