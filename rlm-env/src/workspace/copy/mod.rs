//! Puts a context into a working directory.
//!
//! Below the given paths, the copy leaves out the files that its filter names, and anything but files and directories, which is
//! not opened. Files are opened without following a symbolic link and without blocking, in case one was replaced in between.
//! Each directory is listed once, and a file is copied up to the length that it had when it was opened, so the copy of a tree
//! that keeps changing ends too.

mod check;
mod names;

use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::vec;

use rlm_core::dirfd::{Cursor, Directory, Entry, Identity, Kind};
use rlm_rootd::nav::IgnoreRules;

use self::check::{Given, cannot_read, given, refuse_special, single_directory};
use self::names::{JSON, TEXT, labels, names_of};
use super::context::{Context, ContextError};
use super::filter::ContextFilter;
use super::summary::{Summary, Tally};
use super::transcript::MESSAGES_IN_CONTEXT;
use crate::files;
use crate::terms::LeftOutReason;

/// Bytes that are copied between two checks for a stop.
const CHUNK_BYTES: u64 = 4 << 20;

/// The path of an entry, for an error.
type PathFn<'a> = dyn Fn() -> PathBuf + 'a;

/// Bounds of a context.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CopyLimits {
    pub(crate) max_bytes: u64,
    /// Most files and directories.
    pub(crate) max_entries: u64,
}

impl CopyLimits {
    /// Bounds of this many bytes, and a million files and directories.
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
    filter: &ContextFilter,
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
        filter,
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
    filter: &'a ContextFilter,
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
    entries: vec::IntoIter<Entry>,
    /// The rules for the entries.
    rules: IgnoreRules,
}

impl Copier<'_> {
    fn fill(&mut self, context: &Context) -> Result<(), ContextError> {
        if let Some(directory) = single_directory(context)? {
            return self.copy_dir(&directory, None);
        }
        names_of(&labels(context))?;
        self.put(context)
    }

    /// Puts a part of the context into the working directory, each thing under its own name.
    fn put(&mut self, context: &Context) -> Result<(), ContextError> {
        match context {
            Context::Nothing => Ok(()),
            Context::Paths(_) | Context::Within(_) => self.copy_given(context),
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

    fn copy_given(&mut self, context: &Context) -> Result<(), ContextError> {
        let names = names_of(&labels(context))?;
        for (given, name) in given(context).iter().zip(&names) {
            self.check_stopped()?;
            if given.metadata()?.is_dir() {
                self.copy_dir(given, Some(name))?;
            } else {
                let file = given.file()?;
                self.count_entry()?;
                self.copy_file(file, &|| given.path().to_owned(), name)?;
            }
        }
        Ok(())
    }

    /// Copies a directory's entries into the working directory itself or into a new directory there.
    fn copy_dir(&mut self, given: &Given<'_>, as_name: Option<&OsStr>) -> Result<(), ContextError> {
        let (path, mut source) = (given.path(), Cursor::new(given.directory()?));
        self.refuse_holder_of_target(&source, path)?;
        let name = as_name.unwrap_or_default().to_owned();
        if as_name.is_some() {
            self.count_entry()?;
            self.enter_new_dir(&name)?;
        }
        let mut levels = Vec::new();
        levels.push(self.list(&source, &levels, &name).map_err(cannot_read(path))?);
        while let Some(level) = levels.last_mut() {
            self.check_stopped()?;
            if let Some(entry) = level.entries.next() {
                self.copy_entry(&mut source, path, &mut levels, &entry)?;
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
        entry: &Entry,
    ) -> Result<(), ContextError> {
        let name = &entry.name;
        let path = || path_of(top, levels, name);
        self.count_entry()?;
        if let Some(reason) = self.reason_against(levels, entry) {
            self.tally.left_out(reason, &self.place, entry);
            return Ok(());
        }
        // The entry may have been replaced since its directory was listed.
        let kind = match source.kind(name) {
            Ok(kind) => kind,
            Err(error) => return unless_removed(&path, error),
        };
        if self.place.is_empty() && *name == *MESSAGES_IN_CONTEXT {
            return Err(ContextError::Reserved(path()));
        }
        match kind {
            Kind::Directory => {
                if let Err(error) = source.enter(name) {
                    return unless_removed(&path, error);
                }
                if source.identity().map_err(|error| unreadable(path(), error))? == self.root {
                    return Err(self.holds_target(top));
                }
                let level = self.list(source, levels, name).map_err(|error| unreadable(path(), error))?;
                self.enter_new_dir(name)?;
                levels.push(level);
                Ok(())
            }
            Kind::File => match source.file(name) {
                Ok(file) => self.copy_file(file, &path, name),
                Err(error) => unless_removed(&path, error),
            },
            Kind::Link => {
                self.tally.left_out(LeftOutReason::SymbolicLink, &self.place, entry);
                Ok(())
            }
            Kind::Other(_) => {
                self.tally.left_out(LeftOutReason::Special, &self.place, entry);
                Ok(())
            }
        }
    }

    /// The filter's reason to leave an entry out, if it has one.
    fn reason_against(&self, levels: &[Level], entry: &Entry) -> Option<LeftOutReason> {
        let rules = &levels.last()?.rules;
        let path = || path_of(Path::new(""), levels, &entry.name);
        self.filter.reason(rules, &entry.name, path, entry.kind == Kind::Directory)
    }

    fn copy_file(&mut self, source: File, path: &PathFn<'_>, name: &OsStr) -> Result<(), ContextError> {
        let metadata = source.metadata().map_err(|error| unreadable(path(), error))?;
        if !metadata.is_file() {
            refuse_special(metadata.file_type().into(), &path())?;
        }
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

    /// Lists a directory of this name below these levels, up to one entry more than may be copied.
    fn list(&self, dir: &Cursor, above: &[Level], name: &OsStr) -> io::Result<Level> {
        let room = usize::try_from(self.limits.max_entries - self.entries).unwrap_or(usize::MAX);
        let mut entries = dir.entries()?.take(room.saturating_add(1)).collect::<io::Result<Vec<_>>>()?;
        entries.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        let (path, rules) = match above.last() {
            Some(level) => (path_of(Path::new(""), above, name), level.rules.clone()),
            None => Default::default(),
        };
        let names = entries.iter().map(|entry| entry.name.as_os_str());
        let rules = self.filter.rules(rules, dir, &path, names);
        Ok(Level { name: name.to_owned(), metadata: dir.metadata()?, entries: entries.into_iter(), rules })
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

    /// Refuses a directory that holds the target, before a byte is copied. Through a mount, it is refused when the copy meets it.
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

fn path_of(top: &Path, levels: &[Level], name: &OsStr) -> PathBuf {
    let mut path = top.to_owned();
    path.extend(levels.iter().skip(1).map(|level| &level.name));
    path.join(name)
}

/// Ignores an entry that was removed after its directory was listed.
fn unless_removed(path: &PathFn<'_>, error: io::Error) -> Result<(), ContextError> {
    if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(unreadable(path(), error)) }
}

fn unreadable(path: PathBuf, source: impl Into<io::Error>) -> ContextError {
    ContextError::ReadEntry { path, source: source.into() }
}

#[cfg(test)]
mod tests;
