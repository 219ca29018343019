//! The context directory, and opening paths in it.
//!
//! The directory is held open from the start, and every name below it is opened in its own parent directory. Symbolic
//! links are never followed, so nothing outside is read, whatever a session does to its directories in the meantime.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use nix::errno::Errno;
use rlm_core::dirfd::{Directory, Kind};

use super::fault::{Fault, quoted};

/// The context directory.
#[derive(Debug)]
pub(super) struct Context {
    pub(super) root: Arc<Directory>,
    /// The absolute path by which the directory was opened, and that path without symbolic links.
    paths: [PathBuf; 2],
}

/// The file or directory at a path.
#[derive(Debug)]
pub(super) enum Place {
    Directory(Arc<Directory>),
    File(OpenFile),
}

/// A regular file.
#[derive(Debug)]
pub(super) struct OpenFile {
    pub(super) file: File,
    /// Size in bytes when it was opened.
    pub(super) size: u64,
}

/// Why nothing can be read at a path.
enum Missing {
    /// The name does not exist, or the path leads through a file.
    Nothing,
    /// A symbolic link at this path, to this target.
    Link(PathBuf, PathBuf),
    /// A FIFO, a socket, a device.
    Other,
    Io(io::Error),
}

impl Context {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let root = Arc::new(Directory::at_path(path)?);
        let absolute = std::path::absolute(path)?;
        let canonical = path.canonicalize()?;
        Ok(Self { root, paths: [absolute, canonical] })
    }

    /// Checks that the directory still exists.
    pub(super) fn check(&self) -> Result<(), Fault> {
        match self.root.is_removed() {
            Ok(false) => Ok(()),
            Ok(true) => {
                Err(Fault::Failed(format!("the context directory {} was removed", self.paths[0].display())))
            }
            Err(error) => Err(Fault::reading(&self.paths[0].display().to_string(), &error)),
        }
    }

    /// The path below the directory that a text names: relative, or absolute within the directory. `..` is resolved by
    /// name, which is correct because links are not followed.
    pub(super) fn relative(&self, text: &str) -> Result<PathBuf, Fault> {
        let outside = || {
            let root = self.paths[0].display();
            Fault::refused(format!("{} is outside the context directory {root}", quoted(text)))
        };
        let path = Path::new(text);
        let below = if path.is_absolute() {
            let mut belows = self.paths.iter().filter_map(|root| path.strip_prefix(root).ok());
            belows.next().ok_or_else(outside)?
        } else {
            path
        };
        let mut relative = PathBuf::new();
        for component in below.components() {
            match component {
                Component::Normal(name) => relative.push(name),
                Component::CurDir => {}
                Component::ParentDir if relative.pop() => {}
                _ => return Err(outside()),
            }
        }
        Ok(relative)
    }

    /// Opens the file or directory at a relative path; None if nothing exists there.
    pub(super) fn place(&self, path: &Path) -> Result<Option<Place>, Fault> {
        match self.find(path) {
            Ok(place) => Ok(Some(place)),
            Err(Missing::Nothing) => Ok(None),
            Err(missing) => Err(fault(path, missing)),
        }
    }

    fn find(&self, path: &Path) -> Result<Place, Missing> {
        let names: Vec<&OsStr> = path.iter().collect();
        let Some((last, above)) = names.split_last() else { return Ok(Place::Directory(self.root.clone())) };
        let mut at = self.root.clone();
        let mut gone = PathBuf::new();
        for name in above {
            gone.push(name);
            at = match at.directory(name) {
                Ok(next) => Arc::new(next),
                Err(error) => return Err(on_the_way(&at, name, &gone, error)),
            };
        }
        match at.kind(last).map_err(missing)? {
            Kind::Directory => match at.directory(last) {
                Ok(directory) => Ok(Place::Directory(Arc::new(directory))),
                Err(error) => Err(on_the_way(&at, last, path, error)),
            },
            Kind::File => match open_file(&at, last) {
                Ok(Some(file)) => Ok(Place::File(file)),
                Ok(None) => Err(Missing::Other),
                Err(error) => Err(missing(error)),
            },
            Kind::Link => Err(link(&at, last, path)),
            Kind::Other(_) => Err(Missing::Other),
        }
    }
}

/// The error for a path at which nothing can be read.
fn fault(path: &Path, missing: Missing) -> Fault {
    let named = quoted(&shown(path));
    match missing {
        Missing::Nothing => Fault::refused(format!("there is no {named} in the context")),
        Missing::Link(link, target) => {
            let (link, target) = (quoted(&shown(&link)), quoted(&target.to_string_lossy()));
            Fault::refused(format!("{link} is a symbolic link to {target}: links are not followed"))
        }
        Missing::Other => Fault::refused(format!("{named} is neither a regular file nor a directory")),
        Missing::Io(error) => Fault::reading(&named, &error),
    }
}

/// Opens a regular file without blocking; None if it is not a regular file.
pub(super) fn open_file(directory: &Directory, name: &OsStr) -> io::Result<Option<OpenFile>> {
    let file = match directory.file(name) {
        Ok(file) => file,
        Err(error) if error.raw_os_error() == Some(Errno::ENXIO as i32) => return Ok(None),
        Err(error) => return Err(error),
    };
    let metadata = file.metadata()?;
    Ok(metadata.is_file().then(|| OpenFile { file, size: metadata.len() }))
}

/// True if an entry of a listing has been removed or replaced since.
pub(super) fn is_gone(error: &io::Error) -> bool {
    let errno = error.raw_os_error().map(Errno::from_raw);
    matches!(errno, Some(Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP))
}

/// A relative path for display; bytes that are not UTF-8 are replaced.
pub(super) fn shown(path: &Path) -> String {
    String::from_utf8_lossy(path.as_os_str().as_bytes()).into_owned()
}

fn missing(error: io::Error) -> Missing {
    match error.raw_os_error().map(Errno::from_raw) {
        Some(Errno::ENOENT | Errno::ENAMETOOLONG | Errno::EINVAL) => Missing::Nothing,
        _ if error.kind() == io::ErrorKind::InvalidInput => Missing::Nothing,
        _ => Missing::Io(error),
    }
}

/// The error for a directory of the path that cannot be opened.
fn on_the_way(at: &Directory, name: &OsStr, path: &Path, error: io::Error) -> Missing {
    match error.raw_os_error().map(Errno::from_raw) {
        Some(Errno::ENOTDIR | Errno::ELOOP) => match at.kind(name) {
            Ok(Kind::Link) => link(at, name, path),
            _ => Missing::Nothing,
        },
        _ => missing(error),
    }
}

fn link(at: &Directory, name: &OsStr, path: &Path) -> Missing {
    match at.link_target(name) {
        Ok(target) => Missing::Link(path.to_owned(), target),
        Err(error) => Missing::Io(error),
    }
}
