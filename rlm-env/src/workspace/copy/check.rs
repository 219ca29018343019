//! Checks of a context before it is copied.

use std::fs::{self, File, Metadata, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use nix::fcntl::OFlag;
use rlm_core::dirfd::{Directory, Kind};

use super::names::{labels, names_of};
use crate::workspace::context::{Context, ContextError};

impl Context {
    /// Checks what can be known without reading the files: each path is a file or a directory and can be opened, and their
    /// names differ. Blocks.
    ///
    /// # Errors
    /// The first path that cannot be copied.
    pub fn check(&self) -> Result<(), ContextError> {
        match single_directory(self)? {
            Some(path) => check_path(path),
            None => {
                names_of(&labels(self))?;
                self.check_paths()
            }
        }
    }

    fn check_paths(&self) -> Result<(), ContextError> {
        match self {
            Self::Paths(paths) => paths.iter().try_for_each(|path| check_path(path)),
            Self::Together(parts) => parts.iter().try_for_each(Self::check_paths),
            Self::Nothing | Self::Text(_) | Self::Json(_) | Self::Files(_) => Ok(()),
        }
    }
}

fn check_path(path: &Path) -> Result<(), ContextError> {
    let opened = match given_metadata(path)?.is_dir() {
        true => Directory::at_path(path).and_then(|directory| directory.entries().map(drop)),
        false => return open_given(path).map(drop),
    };
    opened.map_err(cannot_read(path))
}

/// The path of a context that is one directory.
pub(super) fn single_directory(context: &Context) -> Result<Option<&Path>, ContextError> {
    let Context::Paths(paths) = context else { return Ok(None) };
    let [path] = &paths[..] else { return Ok(None) };
    Ok(given_metadata(path)?.is_dir().then_some(path))
}

/// Metadata of a given path, which may be a symbolic link.
pub(super) fn given_metadata(path: &Path) -> Result<Metadata, ContextError> {
    fs::metadata(path).map_err(cannot_read(path))
}

/// Opens a given file.
pub(super) fn open_given(path: &Path) -> Result<File, ContextError> {
    refuse_special(given_metadata(path)?.file_type().into(), path)?;
    let flags = (OFlag::O_NONBLOCK | OFlag::O_NOCTTY).bits();
    OpenOptions::new().read(true).custom_flags(flags).open(path).map_err(cannot_read(path))
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
