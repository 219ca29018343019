//! Puts a context into a working directory.
//!
//! Below the given paths, symbolic links are refused. Anything but a file or directory is refused before it is opened, and
//! files are opened so that this cannot block, in case one was replaced in between. Each directory is listed once, and a file
//! is copied up to the length that it had when it was opened, so the copy of a tree that keeps changing ends too.

mod names;

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::vec;

use nix::fcntl::OFlag;
use rlm_core::dirfd::{Cursor, Directory, Identity, Kind};

use self::names::{JSON, TEXT, labels, names_of};
use super::context::{Context, ContextError};
use super::summary::{Summary, Tally};
use super::transcript::MESSAGES_IN_CONTEXT;
use crate::files;

/// Bytes that are copied between two checks for a stop.
const CHUNK_BYTES: u64 = 4 << 20;

/// The path of an entry, for an error.
type PathFn<'a> = dyn Fn() -> PathBuf + 'a;

/// Bounds of a context.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CopyLimits {
    pub(crate) max_bytes: u64,
    /// Files and directories.
    pub(crate) max_entries: u64,
}

impl CopyLimits {
    /// This many bytes, and a million files and directories.
    pub(crate) fn of_bytes(max_bytes: u64) -> Self {
        Self { max_bytes, max_entries: 1_000_000 }
    }
}

impl Default for CopyLimits {
    fn default() -> Self {
        Self::of_bytes(crate::terms::Limits::default().max_context_bytes)
    }
}

/// Fills an empty working directory and summarises it. On an error it is empty again.
pub(super) fn fill(
    fs: &Directory,
    fs_path: &Path,
    context: &Context,
    limits: CopyLimits,
    is_stopped: &dyn Fn() -> bool,
) -> Result<Summary, ContextError> {
    let write = |source| ContextError::Write { path: fs_path.to_owned(), source };
    let target = Cursor::new(fs.try_clone().map_err(write)?);
    let root = target.identity().map_err(write)?;
    let mut copier = Copier {
        target,
        target_path: fs_path,
        root,
        place: Vec::new(),
        limits,
        bytes: 0,
        entries: 0,
        tally: Tally::default(),
        is_stopped,
    };
    let filled = copier.fill(context).and_then(|()| {
        let tally = std::mem::take(&mut copier.tally);
        tally.summarize(fs, is_stopped).ok_or(ContextError::Cancelled)
    });
    if filled.is_err()
        && let Err(error) = files::clear(fs)
    {
        tracing::warn!(path = %fs_path.display(), %error, "cannot remove the partial copy of a context");
    }
    filled
}

/// A copy of a context in progress.
struct Copier<'a> {
    /// The directory that is written to.
    target: Cursor,
    target_path: &'a Path,
    /// The working directory.
    root: Identity,
    /// Path of the cursor's directory, from the working directory.
    place: Vec<OsString>,
    limits: CopyLimits,
    bytes: u64,
    entries: u64,
    tally: Tally,
    is_stopped: &'a dyn Fn() -> bool,
}

/// A directory whose entries are copied.
struct Level {
    name: OsString,
    metadata: Metadata,
    /// The entries still to be copied.
    entries: vec::IntoIter<OsString>,
}

impl Copier<'_> {
    fn fill(&mut self, context: &Context) -> Result<(), ContextError> {
        if let Context::Paths(paths) = context
            && let [path] = &paths[..]
            && given_metadata(path)?.is_dir()
        {
            return self.copy_dir(path, None);
        }
        names_of(&labels(context))?;
        self.put(context)
    }

    /// Puts a part of the context into the working directory, each thing under its own name.
    fn put(&mut self, context: &Context) -> Result<(), ContextError> {
        match context {
            Context::Nothing => Ok(()),
            Context::Paths(paths) => self.copy_paths(paths),
            Context::Text(text) => self.write_file(TEXT, text.as_bytes()),
            Context::Json(json) => self.write_file(JSON, format!("{json:#}\n").as_bytes()),
            Context::Files(files) => files.iter().try_for_each(|(name, content)| {
                if Path::new(name).file_name() != Some(OsStr::new(name)) {
                    return Err(ContextError::NoName(name.into()));
                }
                self.write_file(name, content)
            }),
            Context::Together(parts) => parts.iter().try_for_each(|part| self.put(part)),
        }
    }

    fn write_file(&mut self, name: &str, text: &[u8]) -> Result<(), ContextError> {
        let bytes = text.len() as u64;
        self.check_room(bytes)?;
        let mut file = self.create_file(OsStr::new(name))?;
        for chunk in text.chunks(CHUNK_BYTES as usize) {
            self.check_stopped()?;
            file.write_all(chunk).map_err(|source| self.cannot_write(OsStr::new(name), source))?;
        }
        self.tally.file(&self.place, OsStr::new(name), bytes);
        Ok(())
    }

    fn copy_paths(&mut self, paths: &[PathBuf]) -> Result<(), ContextError> {
        let names = names_of(paths)?;
        for (path, name) in paths.iter().zip(&names) {
            self.check_stopped()?;
            let metadata = given_metadata(path)?;
            if metadata.is_dir() {
                self.copy_dir(path, Some(name))?;
            } else {
                refuse_special(&|| path.clone(), metadata.file_type().into())?;
                let flags = (OFlag::O_NONBLOCK | OFlag::O_NOCTTY).bits();
                let file = OpenOptions::new().read(true).custom_flags(flags).open(path);
                self.count_entry()?;
                self.copy_file(file.map_err(cannot_read(path))?, &|| path.clone(), name)?;
            }
        }
        Ok(())
    }

    /// Copies a directory's entries into the working directory itself or into a new directory there.
    fn copy_dir(&mut self, path: &Path, as_name: Option<&OsStr>) -> Result<(), ContextError> {
        let mut source = Cursor::new(Directory::at_path(path).map_err(cannot_read(path))?);
        self.refuse_holder_of_target(&source, path)?;
        let name = as_name.unwrap_or_default().to_owned();
        if as_name.is_some() {
            self.count_entry()?;
            self.enter_new_dir(&name)?;
        }
        let mut levels = vec![self.list(&source, &name).map_err(cannot_read(path))?];
        while let Some(level) = levels.last_mut() {
            self.check_stopped()?;
            if let Some(name) = level.entries.next() {
                self.copy_entry(&mut source, path, &mut levels, name)?;
                continue;
            }
            let Some(done) = levels.pop() else { break };
            if !levels.is_empty() {
                source.leave().map_err(|error| unreadable(path_of(path, &levels, &done.name), error))?;
                self.leave_dir(&done)?;
            } else if as_name.is_some() {
                self.leave_dir(&done)?;
            }
        }
        Ok(())
    }

    fn copy_entry(
        &mut self,
        source: &mut Cursor,
        top: &Path,
        levels: &mut Vec<Level>,
        name: OsString,
    ) -> Result<(), ContextError> {
        let path = || path_of(top, levels, &name);
        let kind = match source.kind(&name) {
            Ok(kind) => kind,
            Err(error) => return unless_removed(&path, error),
        };
        self.count_entry()?;
        if self.place.is_empty() && name == MESSAGES_IN_CONTEXT {
            return Err(ContextError::Reserved(path()));
        }
        match kind {
            Kind::Directory => {
                if let Err(error) = source.enter(&name) {
                    return unless_removed(&path, error);
                }
                if source.identity().map_err(|error| unreadable(path(), error))? == self.root {
                    return Err(self.holds_target(top));
                }
                let level = self.list(source, &name).map_err(|error| unreadable(path(), error))?;
                self.enter_new_dir(&name)?;
                levels.push(level);
                Ok(())
            }
            Kind::File => match source.file(&name) {
                Ok(file) => self.copy_file(file, &path, &name),
                Err(error) => unless_removed(&path, error),
            },
            other => refuse_special(&path, other),
        }
    }

    fn copy_file(&mut self, source: File, path: &PathFn<'_>, name: &OsStr) -> Result<(), ContextError> {
        let metadata = source.metadata().map_err(|error| unreadable(path(), error))?;
        refuse_special(path, metadata.file_type().into())?;
        self.check_room(metadata.len())?;
        let mut target = self.create_file(name)?;
        let copied = self.copy_bytes(&source, &mut target, &metadata, path)?;
        let mode = (metadata.permissions().mode() & 0o777) | 0o600;
        target
            .set_permissions(Permissions::from_mode(mode))
            .and_then(|()| target.set_modified(metadata.modified()?))
            .map_err(|source| self.cannot_write(name, source))?;
        self.tally.file(&self.place, name, copied);
        Ok(())
    }

    fn copy_bytes(
        &mut self,
        source: &File,
        target: &mut File,
        metadata: &Metadata,
        path: &PathFn<'_>,
    ) -> Result<u64, ContextError> {
        // Files of /proc and the like report no length.
        let length = if metadata.len() == 0 { u64::MAX } else { metadata.len() };
        let mut copied = 0;
        while copied < length {
            self.check_stopped()?;
            let wanted = CHUNK_BYTES.min(length - copied);
            let count = io::copy(&mut source.take(wanted), target)
                .map_err(|source| ContextError::Copy { path: path(), source })?;
            self.check_room(count)?;
            self.bytes += count;
            copied += count;
            if count < wanted {
                break;
            }
        }
        Ok(copied)
    }

    fn enter_new_dir(&mut self, name: &OsStr) -> Result<(), ContextError> {
        let created = self.target.create_directory(name).and_then(|()| self.target.enter(name));
        created.map_err(|source| self.cannot_write(name, source))?;
        self.tally.dir(&self.place, name);
        self.place.push(name.to_owned());
        Ok(())
    }

    /// Gives the directory the permissions and time of its original, and goes up.
    fn leave_dir(&mut self, done: &Level) -> Result<(), ContextError> {
        self.place.pop();
        let finish = || {
            let directory = self.target.as_file()?;
            directory.set_permissions(Permissions::from_mode((done.metadata.mode() & 0o777) | 0o700))?;
            directory.set_modified(done.metadata.modified()?)
        };
        finish().and_then(|()| self.target.leave()).map_err(|source| self.cannot_write(&done.name, source))
    }

    fn create_file(&self, name: &OsStr) -> Result<File, ContextError> {
        self.target.create_file(name).map_err(|source| self.cannot_write(name, source))
    }

    /// Lists a directory, up to one entry more than may be copied.
    fn list(&self, dir: &Cursor, name: &OsStr) -> io::Result<Level> {
        let room = usize::try_from(self.limits.max_entries - self.entries).unwrap_or(usize::MAX);
        let names = dir.entries()?.map(|entry| Ok(entry?.name)).take(room.saturating_add(1));
        let mut entries = names.collect::<io::Result<Vec<_>>>()?;
        entries.sort_unstable();
        Ok(Level { name: name.to_owned(), metadata: dir.metadata()?, entries: entries.into_iter() })
    }

    fn check_stopped(&self) -> Result<(), ContextError> {
        if (self.is_stopped)() { Err(ContextError::Cancelled) } else { Ok(()) }
    }

    fn check_room(&self, bytes: u64) -> Result<(), ContextError> {
        let at_least = self.bytes.saturating_add(bytes);
        let limit = self.limits.max_bytes;
        if at_least > limit { Err(ContextError::TooLarge { limit, at_least }) } else { Ok(()) }
    }

    fn count_entry(&mut self) -> Result<(), ContextError> {
        self.entries += 1;
        let limit = self.limits.max_entries;
        if self.entries > limit { Err(ContextError::TooMany(limit)) } else { Ok(()) }
    }

    /// Checked before the first byte is copied. A directory that holds the target by way of a mount is refused when it is met.
    fn refuse_holder_of_target(&self, source: &Cursor, path: &Path) -> Result<(), ContextError> {
        let holder = source.identity().map_err(cannot_read(path))?;
        let is_holder = |dir: &Path| {
            let above = Directory::at_path(dir).and_then(|dir| dir.identity());
            above.is_ok_and(|above| above == holder)
        };
        if self.target_path.ancestors().any(is_holder) { Err(self.holds_target(path)) } else { Ok(()) }
    }

    fn holds_target(&self, path: &Path) -> ContextError {
        ContextError::HoldsTarget { path: path.to_owned(), target: self.target_path.to_owned() }
    }

    fn cannot_write(&self, name: &OsStr, source: io::Error) -> ContextError {
        let mut path = self.target_path.to_owned();
        path.extend(&self.place);
        ContextError::Write { path: path.join(name), source }
    }
}

/// Metadata of a given path, which may be a symbolic link.
fn given_metadata(path: &Path) -> Result<Metadata, ContextError> {
    fs::metadata(path).map_err(cannot_read(path))
}

fn path_of(top: &Path, levels: &[Level], name: &OsStr) -> PathBuf {
    let mut path = top.to_owned();
    path.extend(levels.iter().skip(1).map(|level| &level.name));
    path.join(name)
}

fn refuse_special(path: &PathFn<'_>, kind: Kind) -> Result<(), ContextError> {
    match kind {
        Kind::File => Ok(()),
        Kind::Directory => Err(ContextError::Special { path: path(), kind: "directory in a file's place" }),
        Kind::Link => Err(ContextError::Symlink(path())),
        Kind::Other(kind) => Err(ContextError::Special { path: path(), kind }),
    }
}

fn cannot_read(path: &Path) -> impl FnOnce(io::Error) -> ContextError {
    |source| unreadable(path.to_owned(), source)
}

/// Ignores an entry that was removed after its directory was listed.
fn unless_removed(path: &PathFn<'_>, error: io::Error) -> Result<(), ContextError> {
    if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(unreadable(path(), error)) }
}

fn unreadable(path: PathBuf, source: impl Into<io::Error>) -> ContextError {
    ContextError::Read { path, source: source.into() }
}

#[cfg(test)]
mod tests;
