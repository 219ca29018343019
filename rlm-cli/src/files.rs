//! Files that a person names.

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use crate::usage::Usage;

/// Reads a text that the user has named; `what` it holds is for the error.
pub(crate) fn read_named(file: &Path, what: &str) -> Result<String, Usage> {
    let read = std::fs::read_to_string(file);
    read.map_err(|error| Usage::new(format!("{what} cannot be read from {}: {error}", file.display())))
}

/// The directory of a file, from which the relative paths in the file begin.
pub(crate) fn directory_of(file: &Path) -> anyhow::Result<PathBuf> {
    Ok(absolute(file)?.parent().unwrap_or(Path::new("/")).to_owned())
}

/// The absolute path of a file.
pub(crate) fn absolute(file: &Path) -> anyhow::Result<PathBuf> {
    std::path::absolute(file).with_context(|| format!("cannot find the absolute path of {}", file.display()))
}

/// Writes a file that, if it is new, is for its owner alone.
pub(crate) fn write_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?.write_all(bytes)
}

/// Reports whether two paths name one file, which may not exist yet. Terminals and pipes may be shared.
pub(crate) fn is_one_file(one: &Path, other: &Path) -> bool {
    let place = |path: &Path| {
        let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
        Some((dir.canonicalize().ok()?, path.file_name()?.to_owned()))
    };
    match (one.metadata(), other.metadata()) {
        (Ok(one), Ok(other)) => one.is_file() && (one.dev(), one.ino()) == (other.dev(), other.ino()),
        (Err(_), Err(_)) => place(one).is_some_and(|one| Some(one) == place(other)),
        _ => false,
    }
}
