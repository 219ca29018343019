//! Checks of a context before it is copied.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use nix::fcntl::OFlag;
use rlm_core::dirfd::{Directory, Kind};

use super::names::{labels, names_of};
use crate::workspace::context::{Context, ContextError, PathWithin};

impl Context {
    /// Checks what can be known without reading the files: each path is a file or a directory and can be opened, and their
    /// names differ. Blocks.
    ///
    /// # Errors
    /// The first path that cannot be copied.
    pub fn check(&self) -> Result<(), ContextError> {
        match single_directory(self)? {
            Some(given) => check_given(&given),
            None => {
                names_of(&labels(self))?;
                self.check_paths()
            }
        }
    }

    fn check_paths(&self) -> Result<(), ContextError> {
        match self {
            Self::Paths(_) | Self::Within(_) => given(self).iter().try_for_each(check_given),
            Self::Together(parts) => parts.iter().try_for_each(Self::check_paths),
            Self::Nothing | Self::Text(_) | Self::Json(_) | Self::Files(_) => Ok(()),
        }
    }
}

/// The file or directory that a context gives by a path.
pub(super) enum Given<'a> {
    At(&'a Path),
    Within(&'a PathWithin),
}

/// The files that a part of a context gives by paths.
pub(super) fn given(context: &Context) -> Vec<Given<'_>> {
    match context {
        Context::Paths(paths) => paths.iter().map(|path| Given::At(path)).collect(),
        Context::Within(paths) => paths.iter().map(Given::Within).collect(),
        _ => Vec::new(),
    }
}

impl<'a> Given<'a> {
    pub(super) fn path(&self) -> &'a Path {
        match self {
            Self::At(path) => path,
            Self::Within(within) => within.path(),
        }
    }

    /// The metadata of the file; a symbolic link is followed.
    pub(super) fn metadata(&self) -> Result<Metadata, ContextError> {
        self.with_place(|place| fs::metadata(place))
    }

    pub(super) fn directory(&self) -> Result<Directory, ContextError> {
        self.with_place(Directory::at_path)
    }

    pub(super) fn file(&self) -> Result<File, ContextError> {
        refuse_special(self.metadata()?.file_type().into(), self.path())?;
        let flags = (OFlag::O_NONBLOCK | OFlag::O_NOCTTY).bits();
        self.with_place(|place| OpenOptions::new().read(true).custom_flags(flags).open(place))
    }

    fn with_place<T>(&self, act: impl FnOnce(&Path) -> io::Result<T>) -> Result<T, ContextError> {
        let acted = match self {
            Self::At(path) => act(path),
            Self::Within(within) => within.with_place(act),
        };
        acted.map_err(cannot_read(self.path()))
    }
}

fn check_given(given: &Given<'_>) -> Result<(), ContextError> {
    match given.metadata()?.is_dir() {
        true => given.directory()?.entries().map(drop).map_err(cannot_read(given.path())),
        false => given.file().map(drop),
    }
}

/// The directory, if a context is a single one.
pub(super) fn single_directory(context: &Context) -> Result<Option<Given<'_>>, ContextError> {
    let mut all = given(context);
    let (Some(one), true) = (all.pop(), all.is_empty()) else { return Ok(None) };
    Ok(one.metadata()?.is_dir().then_some(one))
}

/// Refuses anything but a file.
pub(super) fn refuse_special(kind: Kind, path: &Path) -> Result<(), ContextError> {
    let kind = match kind {
        Kind::File => return Ok(()),
        Kind::Directory => "directory in a file's place",
        Kind::Link => "symbolic link",
        Kind::Other(kind) => kind,
    };
    Err(ContextError::Special { path: path.to_owned(), kind })
}

pub(super) fn cannot_read(path: &Path) -> impl FnOnce(std::io::Error) -> ContextError {
    |source| ContextError::Read { path: path.to_owned(), source }
}
