//! The context: the initial contents of a rollout's working directory.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};

use rlm_core::dirfd::{Directory, Identity};
use rlm_core::text::grouped;
use serde_json::Value as Json;

use crate::files::shown;

/// The initial contents of a rollout's working directory.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Context {
    /// Nothing.
    #[default]
    Nothing,
    /// Copies of these paths. The contents of a single directory are copied into the working directory itself; otherwise each
    /// path is copied under its own name.
    Paths(Vec<PathBuf>),
    /// Copies, in the same way, of paths in a directory that code may write to at the same time.
    Within(Vec<PathWithin>),
    /// A text, as `context.txt`.
    Text(String),
    /// A JSON document, as `context.json`.
    Json(Json),
    /// Files, by name and content.
    Files(Vec<(String, Vec<u8>)>),
    /// Several contexts together. Directories keep their own names.
    Together(Vec<Self>),
}

/// A file or a directory that was found in a directory to which code may write. Opening it gives the file that was found, or
/// nothing, whatever is at its path by then.
#[derive(Clone, Debug, PartialEq)]
pub struct PathWithin {
    path: PathBuf,
    directory: PathBuf,
    /// The path of the file from `directory` on, without links.
    below: PathBuf,
    identity: Identity,
}

impl PathWithin {
    /// Finds what is at a path that begins at the first of these directories. With links followed, it must lie in one of them;
    /// None if it does not.
    ///
    /// # Errors
    /// Nothing is there, or it cannot be reached.
    pub fn find(directories: &[PathBuf], file: &Path) -> io::Result<Option<Self>> {
        let Some(base) = directories.first() else { return Ok(None) };
        let given = base.join(file);
        let whole = given.canonicalize()?;
        let place = |directory: &PathBuf| {
            let directory = directory.canonicalize().ok()?;
            let below = whole.strip_prefix(&directory).ok()?.to_owned();
            Some((directory, below))
        };
        let Some((directory, below)) = directories.iter().find_map(place) else { return Ok(None) };
        let identity = (&handle(&directory, &below)?.metadata()?).into();
        let path = if given.file_name().is_some() { given } else { whole };
        Ok(Some(Self { path, directory, below, identity }))
    }

    /// The path of the file, for its name and for errors.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Runs `act` with a path that leads to the file, and to nothing else, for as long as that takes.
    ///
    /// # Errors
    /// The error of `act`, or that the file is not there any more.
    pub fn with_place<T>(&self, act: impl FnOnce(&Path) -> io::Result<T>) -> io::Result<T> {
        let handle = handle(&self.directory, &self.below)?;
        if Identity::from(&handle.metadata()?) != self.identity {
            return Err(io::Error::other("another file has taken its place"));
        }
        act(Path::new(&format!("/proc/self/fd/{}", handle.as_raw_fd())))
    }
}

/// Opens a file without following links.
fn handle(directory: &Path, below: &Path) -> io::Result<File> {
    Directory::at_path(directory)?.handle_below(below)
}

/// Why a context cannot be put into a working directory.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ContextError {
    /// A path of the context is not a file or a directory.
    #[error("the context contains a {kind}, {}: expected only files and directories", shown(path))]
    Special {
        /// The path.
        path: PathBuf,
        /// The kind of the file: `socket`, `FIFO`, …
        kind: &'static str,
    },
    /// The context is larger than the limit.
    #[error(
        "the context has at least {} bytes, more than the limit of {}: give a part of it, leave files out \
         with `exclude`, or raise `max_context_bytes`",
        grouped(*at_least), grouped(*limit)
    )]
    TooLarge {
        /// The limit in bytes.
        limit: u64,
        /// A lower bound of the size in bytes.
        at_least: u64,
    },
    /// The context has more files and directories than the limit.
    #[error("the context has more than {} files and directories: give a part of it, leave some out with `exclude`, or give an archive", grouped(*.0))]
    TooMany(u64),
    /// Two of the given paths would get the same name.
    #[error("{} and {} would both be `{}`: rename one of them", shown(first), shown(second), shown(name))]
    SameName {
        /// The one given first.
        first: PathBuf,
        /// The other one.
        second: PathBuf,
        /// The name.
        name: PathBuf,
    },
    /// A file would overwrite the transcript.
    #[error("{} has the name of the conversation's transcript: rename it, or remove it", shown(.0))]
    Reserved(PathBuf),
    /// One of several paths has no file name.
    #[error(
        "{} does not end in a name, so it cannot be copied next to other paths: give it alone, or give its contents",
        shown(.0)
    )]
    NoName(PathBuf),
    /// A path contains the working directory that it would be copied to.
    #[error(
        "{} contains the directory that it would be copied to, {}: give a part of it, or keep rollouts elsewhere",
        shown(path),
        shown(target)
    )]
    HoldsTarget {
        /// The path to copy.
        path: PathBuf,
        /// The working directory.
        target: PathBuf,
    },
    /// Reading a path of the context failed: it is missing, or permissions forbid it, or the disk failed.
    #[error("cannot read {}", shown(path))]
    Read {
        /// The path.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// Reading something below a path of the context failed.
    #[error("cannot read {}, which `exclude` can leave out", shown(path))]
    ReadEntry {
        /// The path.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// Copying a file failed, on either side.
    #[error("cannot copy {}", shown(path))]
    Copy {
        /// The path.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// Writing to the working directory failed.
    #[error("cannot write {}", shown(path))]
    Write {
        /// The path.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// The rollout was cancelled while its context was copied.
    #[error("the rollout ended while its context was being copied")]
    Cancelled,
}
