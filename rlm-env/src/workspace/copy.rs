//! Puts a context into a working directory.
//!
//! Below the paths that were given, symbolic links are refused. What is no file and no directory is refused before it is
//! opened, and a file is opened in a way that cannot block, should it have become something else meanwhile. Each directory
//! is listed once, and a file is copied no further than it went when it was opened, so a tree that changes meanwhile
//! ends too.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::vec;

use nix::fcntl::{AtFlags, OFlag, openat};
use nix::sys::stat::{FileStat, Mode, SFlag, fstatat, mkdirat};

use super::context::{Context, ContextError};
use super::cursor::{Cursor, Identity};
use super::remove;
use super::summary::{Summary, Tally};
use super::transcript::MESSAGES;

/// How much is copied before the copier looks whether it is to stop.
const CHUNK_BYTES: u64 = 4 << 20;

/// The names of contexts that have none.
const TEXT: &str = "context.txt";
const JSON: &str = "context.json";

/// How something is called, where an error has to say it.
type PathFn<'a> = dyn Fn() -> PathBuf + 'a;

/// Bounds of a context.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CopyLimits {
    pub(crate) max_bytes: u64,
    /// Files and directories.
    pub(crate) max_entries: u64,
}

impl CopyLimits {
    /// So many bytes, and a million files and directories.
    pub(crate) fn of_bytes(max_bytes: u64) -> Self {
        Self { max_bytes, max_entries: 1_000_000 }
    }
}

impl Default for CopyLimits {
    fn default() -> Self {
        Self::of_bytes(crate::rollout::Limits::default().max_context_bytes)
    }
}

/// Fills a working directory, which is empty, and says what it holds then. On an error it is empty again.
pub(super) fn fill(
    fs: &OwnedFd,
    fs_path: &Path,
    context: &Context,
    limits: CopyLimits,
    is_stopped: &dyn Fn() -> bool,
) -> Result<Summary, ContextError> {
    let write = |source| ContextError::Write { path: fs_path.to_owned(), source };
    let target = Cursor::at(fs.as_fd(), OsStr::new(".")).map_err(write)?;
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
        tally.summarize(fs.as_fd(), is_stopped).ok_or(ContextError::Cancelled)
    });
    if filled.is_err()
        && let Err(error) = remove::clear(fs.as_fd())
    {
        tracing::warn!(path = %fs_path.display(), %error, "cannot remove what was copied of a context");
    }
    filled
}

/// A context under way into a working directory.
struct Copier<'a> {
    /// The directory that is written to.
    target: Cursor,
    target_path: &'a Path,
    /// The working directory.
    root: Identity,
    /// How the cursor's directory is called in the working directory.
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
    stat: FileStat,
    /// Its entries that are still to be copied.
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
                refuse_special(&|| path.clone(), kind_of(&metadata))?;
                let flags = (OFlag::O_NONBLOCK | OFlag::O_NOCTTY).bits();
                let file = OpenOptions::new().read(true).custom_flags(flags).open(path);
                self.count_entry()?;
                self.copy_file(file.map_err(cannot_read(path))?, &|| path.clone(), name)?;
            }
        }
        Ok(())
    }

    /// Copies what a directory holds, into the working directory itself or into a new directory there.
    fn copy_dir(&mut self, path: &Path, as_name: Option<&OsStr>) -> Result<(), ContextError> {
        let mut source = Cursor::at_path(path).map_err(cannot_read(path))?;
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
        let stat = match fstatat(&*source, name.as_os_str(), AtFlags::AT_SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(errno) => return unless_removed(&path, errno.into()),
        };
        self.count_entry()?;
        if self.place.is_empty() && name == MESSAGES {
            return Err(ContextError::Reserved(path()));
        }
        match kind_of_mode(stat.st_mode) {
            Kind::Dir => {
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
            Kind::File => {
                let flags = OFlag::O_RDONLY
                    | OFlag::O_NOFOLLOW
                    | OFlag::O_NONBLOCK
                    | OFlag::O_NOCTTY
                    | OFlag::O_CLOEXEC;
                match openat(&*source, name.as_os_str(), flags, Mode::empty()) {
                    Ok(file) => self.copy_file(file.into(), &path, &name),
                    Err(errno) => unless_removed(&path, errno.into()),
                }
            }
            other => refuse_special(&path, other),
        }
    }

    fn copy_file(&mut self, source: File, path: &PathFn<'_>, name: &OsStr) -> Result<(), ContextError> {
        let metadata = source.metadata().map_err(|error| unreadable(path(), error))?;
        refuse_special(path, kind_of(&metadata))?;
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
        // Files of /proc and the like do not know their length.
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
        mkdirat(&self.target, name, Mode::S_IRWXU)
            .map_err(io::Error::from)
            .and_then(|()| self.target.enter(name))
            .map_err(|source| self.cannot_write(name, source))?;
        self.tally.dir(&self.place, name);
        self.place.push(name.to_owned());
        Ok(())
    }

    /// Goes up, after the directory got the permissions and the time of that which it is a copy of.
    fn leave_dir(&mut self, done: &Level) -> Result<(), ContextError> {
        self.place.pop();
        let finish = || {
            let dir = self.target.open()?;
            dir.set_permissions(Permissions::from_mode((done.stat.st_mode & 0o777) | 0o700))?;
            dir.set_modified(modified(&done.stat))
        };
        finish().and_then(|()| self.target.leave()).map_err(|source| self.cannot_write(&done.name, source))
    }

    fn create_file(&self, name: &OsStr) -> Result<File, ContextError> {
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_CLOEXEC;
        openat(&self.target, name, flags, Mode::S_IRUSR | Mode::S_IWUSR)
            .map(File::from)
            .map_err(|errno| self.cannot_write(name, errno.into()))
    }

    /// Lists a directory, up to one entry more than may be copied.
    fn list(&self, dir: &Cursor, name: &OsStr) -> io::Result<Level> {
        let room = usize::try_from(self.limits.max_entries - self.entries).unwrap_or(usize::MAX);
        let names = dir.list()?.map(|entry| Ok(entry?.name)).take(room.saturating_add(1));
        let mut entries = names.collect::<io::Result<Vec<_>>>()?;
        entries.sort_unstable();
        Ok(Level { name: name.to_owned(), stat: dir.stat()?, entries: entries.into_iter() })
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

    /// Finds out before the first byte is copied. One that holds the target by way of a mount is found out when it is met.
    fn refuse_holder_of_target(&self, source: &Cursor, path: &Path) -> Result<(), ContextError> {
        let holder = source.identity().map_err(cannot_read(path))?;
        let is_holder = |dir: &Path| {
            let above = Cursor::at_path(dir).and_then(|dir| dir.identity());
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

/// What something is that could be copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    File,
    Dir,
    Symlink,
    Special(&'static str),
}

fn kind_of_mode(mode: u32) -> Kind {
    match SFlag::from_bits_truncate(mode & SFlag::S_IFMT.bits()) {
        SFlag::S_IFREG => Kind::File,
        SFlag::S_IFDIR => Kind::Dir,
        SFlag::S_IFLNK => Kind::Symlink,
        SFlag::S_IFIFO => Kind::Special("FIFO"),
        SFlag::S_IFSOCK => Kind::Special("socket"),
        SFlag::S_IFBLK => Kind::Special("block device"),
        SFlag::S_IFCHR => Kind::Special("character device"),
        _ => Kind::Special("file of an unknown kind"),
    }
}

fn kind_of(metadata: &Metadata) -> Kind {
    kind_of_mode(metadata.permissions().mode())
}

fn refuse_special(path: &PathFn<'_>, kind: Kind) -> Result<(), ContextError> {
    match kind {
        Kind::File => Ok(()),
        Kind::Dir => Err(ContextError::Special { path: path(), kind: "directory in a file's place" }),
        Kind::Symlink => Err(ContextError::Symlink(path())),
        Kind::Special(kind) => Err(ContextError::Special { path: path(), kind }),
    }
}

/// What the user named, by way of symbolic links too.
fn given_metadata(path: &Path) -> Result<Metadata, ContextError> {
    fs::metadata(path).map_err(cannot_read(path))
}

/// The names that paths have in the working directory.
fn names_of(paths: &[PathBuf]) -> Result<Vec<OsString>, ContextError> {
    let mut names: Vec<OsString> = Vec::with_capacity(paths.len());
    let mut first_of = std::collections::HashMap::new();
    for path in paths {
        let name = match path.file_name() {
            Some(name) => name.to_owned(),
            None => fs::canonicalize(path)
                .map_err(cannot_read(path))?
                .file_name()
                .ok_or_else(|| ContextError::NoName(path.clone()))?
                .to_owned(),
        };
        if name == MESSAGES {
            return Err(ContextError::Reserved(path.clone()));
        }
        if let Some(first) = first_of.insert(name.clone(), path) {
            let (first, second) = (first.clone(), path.clone());
            return Err(ContextError::SameName { first, second, name: name.into() });
        }
        names.push(name);
    }
    Ok(names)
}

/// What lies at the top of a working directory with this context, as paths.
fn labels(context: &Context) -> Vec<PathBuf> {
    match context {
        Context::Nothing => Vec::new(),
        Context::Paths(paths) => paths.clone(),
        Context::Text(_) => vec![TEXT.into()],
        Context::Json(_) => vec![JSON.into()],
        Context::Files(files) => files.iter().map(|(name, _)| name.into()).collect(),
        Context::Together(parts) => parts.iter().flat_map(labels).collect(),
    }
}

fn path_of(top: &Path, levels: &[Level], name: &OsStr) -> PathBuf {
    let mut path = top.to_owned();
    path.extend(levels.iter().skip(1).map(|level| &level.name));
    path.join(name)
}

fn modified(stat: &FileStat) -> std::time::SystemTime {
    use std::time::{Duration, UNIX_EPOCH};
    let nanoseconds = Duration::from_nanos(u64::try_from(stat.st_mtime_nsec).unwrap_or(0));
    let seconds = Duration::from_secs(stat.st_mtime.unsigned_abs());
    let whole =
        if stat.st_mtime < 0 { UNIX_EPOCH.checked_sub(seconds) } else { UNIX_EPOCH.checked_add(seconds) };
    whole.and_then(|whole| whole.checked_add(nanoseconds)).unwrap_or(UNIX_EPOCH)
}

fn cannot_read(path: &Path) -> impl FnOnce(io::Error) -> ContextError {
    |source| unreadable(path.to_owned(), source)
}

/// What was removed since its directory was listed is as if it had been before.
fn unless_removed(path: &PathFn<'_>, error: io::Error) -> Result<(), ContextError> {
    if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(unreadable(path(), error)) }
}

fn unreadable(path: PathBuf, source: impl Into<io::Error>) -> ContextError {
    ContextError::Read { path, source: source.into() }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::{MetadataExt, symlink};
    use std::os::unix::net::UnixListener;
    use std::time::{Duration, SystemTime};

    use nix::mount::{MsFlags, mount, umount};
    use serde_json::json;

    use super::super::testing::{as_nobody, with_own_mounts};
    use super::*;

    const LIMITS: CopyLimits = CopyLimits { max_bytes: 1000, max_entries: 100 };

    /// A context's directory, and a working directory to fill from it.
    struct Ground {
        dir: tempfile::TempDir,
        context: PathBuf,
        fs: PathBuf,
    }

    impl Ground {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().canonicalize().unwrap();
            let (context, fs) = (path.join("context"), path.join("fs"));
            fs::create_dir(&context).unwrap();
            fs::create_dir(&fs).unwrap();
            Self { dir, context, fs }
        }

        fn file(&self, name: &str, text: &str) -> PathBuf {
            let path = self.context.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, text).unwrap();
            path
        }

        fn fill(&self, context: &Context) -> Result<Summary, ContextError> {
            self.fill_within(context, LIMITS, &|| false)
        }

        fn fill_within(
            &self,
            context: &Context,
            limits: CopyLimits,
            is_stopped: &dyn Fn() -> bool,
        ) -> Result<Summary, ContextError> {
            fill(&File::open(&self.fs).unwrap().into(), &self.fs, context, limits, is_stopped)
        }

        fn whole(&self) -> Context {
            Context::Paths(vec![self.context.clone()])
        }

        /// Fills from the whole directory, which fails and leaves nothing.
        #[track_caller]
        fn check_error(&self, expected: &str) -> ContextError {
            self.check_error_of(&self.whole(), expected)
        }

        #[track_caller]
        fn check_error_of(&self, context: &Context, expected: &str) -> ContextError {
            let error = self.fill(context).unwrap_err();
            let shown = error.to_string().replace(self.context.to_str().unwrap(), "CONTEXT");
            assert_eq!(shown.replace(self.fs.to_str().unwrap(), "FS"), expected);
            self.check_empty();
            error
        }

        #[track_caller]
        fn check_empty(&self) {
            assert_eq!(fs::read_dir(&self.fs).unwrap().count(), 0, "something is left of the copy");
        }

        fn read(&self, name: impl AsRef<Path>) -> String {
            fs::read_to_string(self.fs.join(name)).unwrap()
        }
    }

    #[test]
    fn what_a_single_directory_holds_lies_in_the_working_directory() {
        let ground = Ground::new();
        ground.file("a.txt", "one\ntwo\n");
        ground.file("sub/deep/new\nline", "x");
        fs::write(ground.context.join(OsStr::from_bytes(b"\xff\xfe")), "y").unwrap();
        fs::create_dir(ground.context.join("empty")).unwrap();
        let summary = ground.fill(&ground.whole()).unwrap();
        assert_eq!((summary.files(), summary.bytes()), (3, 10));
        assert_eq!(ground.read("a.txt"), "one\ntwo\n");
        assert_eq!(ground.read("sub/deep/new\nline"), "x");
        assert_eq!(ground.read(OsStr::from_bytes(b"\xff\xfe")), "y");
        assert!(ground.fs.join("empty").is_dir());
        assert_eq!(fs::read_dir(&ground.fs).unwrap().count(), 4);
    }

    #[test]
    fn several_paths_lie_there_under_their_names() {
        let ground = Ground::new();
        let file = ground.file("one/a.txt", "a");
        ground.file("two/b.txt", "b");
        let link = ground.context.join("link");
        symlink(ground.context.join("two"), &link).unwrap();
        ground.fill(&Context::Paths(vec![file.clone(), ground.context.join("two"), link])).unwrap();
        assert_eq!(ground.read("a.txt") + &ground.read("two/b.txt") + &ground.read("link/b.txt"), "abb");
        remove::clear(File::open(&ground.fs).unwrap().as_fd()).unwrap();
        ground.fill(&Context::Paths(vec![file])).unwrap();
        assert_eq!(ground.read("a.txt"), "a");
    }

    #[test]
    fn texts_and_documents_are_files() {
        let ground = Ground::new();
        ground.fill(&Context::Text("a\n\u{1F600}".into())).unwrap();
        assert_eq!(ground.read("context.txt"), "a\n\u{1F600}");
        ground.fill(&Context::Json(json!({"b": [1], "a": "x"}))).unwrap();
        assert_eq!(ground.read("context.json"), "{\n  \"b\": [\n    1\n  ],\n  \"a\": \"x\"\n}\n");
        let ground = Ground::new();
        for nothing in [Context::Nothing, Context::Paths(Vec::new())] {
            assert_eq!(ground.fill(&nothing).unwrap().text(), "The directory is empty.");
        }
        ground.check_error_of(
            &Context::Text("x".repeat(1001)),
            "the context has 1,001 bytes or more, the limit is 1,000: give a part of it, or raise `max_context_bytes`",
        );
    }

    #[test]
    fn times_stay_and_the_owner_may_write() {
        let ground = Ground::new();
        let time = SystemTime::UNIX_EPOCH + Duration::new(1_000_000_000, 123_456_789);
        for (path, mode) in
            [(ground.file("dir/read-only", "x"), 0o444), (ground.file("dir/program", "x"), 0o4555)]
        {
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            File::open(&path).unwrap().set_modified(time).unwrap();
        }
        let before_1970 = ground.file("old", "x");
        let old = SystemTime::UNIX_EPOCH - Duration::from_millis(1500);
        File::open(before_1970).unwrap().set_modified(old).unwrap();
        let dir = ground.context.join("dir");
        File::open(&dir).unwrap().set_modified(time).unwrap();
        fs::set_permissions(&dir, Permissions::from_mode(0o555)).unwrap();
        ground.fill(&ground.whole()).unwrap();
        for (name, mode) in [("dir", 0o755), ("dir/read-only", 0o644), ("dir/program", 0o755)] {
            let metadata = ground.fs.join(name).metadata().unwrap();
            assert_eq!((metadata.mode() & 0o7777, metadata.modified().unwrap()), (mode, time), "{name}");
        }
        assert_eq!(ground.fs.join("old").metadata().unwrap().modified().unwrap(), old);
        fs::set_permissions(&dir, Permissions::from_mode(0o755)).unwrap();
    }

    #[test]
    fn links_are_refused() {
        let ground = Ground::new();
        ground.file("a", "copied first");
        fs::create_dir(ground.context.join("sub")).unwrap();
        symlink("/etc/passwd", ground.context.join("sub/li\nk")).unwrap();
        ground.check_error(
            "the context holds a symbolic link, CONTEXT/sub/li\\nk: put what it leads to in its place, or leave it out",
        );
    }

    #[test]
    fn sockets_and_fifos_and_devices_are_refused_unopened() {
        let ground = Ground::new();
        let socket = ground.context.join("socket");
        let _listener = UnixListener::bind(&socket).unwrap();
        ground
            .check_error("the context holds a socket, CONTEXT/socket: expected files and directories alone");
        fs::remove_file(socket).unwrap();
        let fifo = ground.context.join("fifo");
        nix::unistd::mkfifo(&fifo, Mode::S_IRWXU).unwrap();
        let message = "the context holds a FIFO, CONTEXT/fifo: expected files and directories alone";
        ground.check_error(message);
        ground.check_error_of(&Context::Paths(vec![fifo]), message);
        ground.check_error_of(
            &Context::Paths(vec!["/dev/zero".into()]),
            "the context holds a character device, /dev/zero: expected files and directories alone",
        );
    }

    #[test]
    fn a_large_file_is_refused_before_it_is_copied() {
        let ground = Ground::new();
        ground.file("a", "123");
        File::create(ground.context.join("sparse")).unwrap().set_len(2 << 30).unwrap();
        let looks = Cell::new(0);
        let stop = || {
            looks.set(looks.get() + 1);
            false
        };
        let error =
            ground.fill_within(&ground.whole(), CopyLimits::of_bytes(1_000_000_000), &stop).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the context has 2,147,483,651 bytes or more, the limit is 1,000,000,000: give a part of it, or raise \
             `max_context_bytes`"
        );
        assert_eq!(looks.get(), 3, "two entries and the one chunk of the small file");
        ground.check_empty();
    }

    #[test]
    fn bytes_are_counted_where_a_file_does_not_know_its_length() {
        let ground = Ground::new();
        let proc = PathBuf::from("/proc/self/environ");
        let length = fs::read(&proc).unwrap().len() as u64;
        let limits = CopyLimits { max_bytes: length - 1, ..LIMITS };
        let context = Context::Paths(vec![proc]);
        let error = ground.fill_within(&context, limits, &|| false).unwrap_err();
        assert!(matches!(error, ContextError::TooLarge { at_least, .. } if at_least == length), "{error}");
        ground.check_empty();
        let limits = CopyLimits { max_bytes: length, ..LIMITS };
        assert_eq!(ground.fill_within(&context, limits, &|| false).unwrap().bytes(), length);
    }

    #[test]
    fn there_is_a_limit_of_files_too() {
        let ground = Ground::new();
        for index in 0..100 {
            ground.file(&format!("{index}"), "");
        }
        assert_eq!(ground.fill(&ground.whole()).unwrap().files(), 100);
        remove::clear(File::open(&ground.fs).unwrap().as_fd()).unwrap();
        ground.file("one more", "");
        ground.check_error(
            "the context has more than 100 files and directories: give a part of it, or an archive",
        );
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        let ground = Ground::new();
        ground.check_error_of(&Context::Paths(vec!["/does/not/exist".into()]), "cannot read /does/not/exist");
        // Opens, and does not read, for root either.
        ground.check_error_of(&Context::Paths(vec!["/proc/self/mem".into()]), "cannot copy /proc/self/mem");
        ground.file("a", "copied first");
        let (file, dir) = (ground.file("sub/secret", "x"), ground.context.join("sub"));
        if nix::unistd::geteuid().is_root() {
            nix::unistd::chown(&ground.fs, Some(nix::unistd::Uid::from_raw(65534)), None).unwrap();
        }
        fs::set_permissions(&file, Permissions::from_mode(0o0)).unwrap();
        as_nobody(ground.dir.path(), |_| {
            ground.check_error("cannot read CONTEXT/sub/secret");
        });
        fs::set_permissions(&dir, Permissions::from_mode(0o0)).unwrap();
        as_nobody(ground.dir.path(), |_| {
            ground.check_error("cannot read CONTEXT/sub");
        });
        fs::set_permissions(&dir, Permissions::from_mode(0o700)).unwrap();
    }

    #[test]
    fn names_must_differ() {
        let ground = Ground::new();
        let (one, two) = (ground.file("one/a", ""), ground.file("two/a", ""));
        ground.check_error_of(
            &Context::Paths(vec![one, two]),
            "CONTEXT/one/a and CONTEXT/two/a would both be `a`: rename one of them",
        );
        ground.check_error_of(
            &Context::Paths(vec![ground.context.join("one"), "/".into()]),
            "/ has no name to be given in the working directory: give it alone, or what it holds",
        );
        let messages = ground.file(".messages", "");
        let refusal =
            "CONTEXT/.messages has the name of the conversation's transcript: rename it, or leave it out";
        ground.check_error(refusal);
        ground.check_error_of(&Context::Paths(vec![messages.clone()]), refusal);
        fs::remove_file(messages).unwrap();
        ground.file("one/.messages", "below it is a name like others");
        ground.fill(&ground.whole()).unwrap();
    }

    #[test]
    fn a_directory_is_not_copied_into_itself() {
        let ground = Ground::new();
        let holder = ground.fs.parent().unwrap().to_owned();
        fs::write(holder.join("a"), "not copied").unwrap();
        for holder in [holder.as_path(), Path::new("/"), &ground.fs] {
            let error = ground.fill(&Context::Paths(vec![holder.to_owned()])).unwrap_err();
            assert_eq!(
                error.to_string(),
                format!(
                    "{} holds the directory that it would be copied to, {}: give a part of it, or have rollouts elsewhere",
                    holder.display(),
                    ground.fs.display()
                )
            );
            ground.check_empty();
        }
    }

    #[test]
    fn a_mount_does_not_lead_a_directory_into_itself() {
        with_own_mounts(|| {
            let ground = Ground::new();
            let mount_point = ground.context.join("mounted");
            fs::create_dir(&mount_point).unwrap();
            let none = None::<&str>;
            mount(Some(ground.dir.path()), &mount_point, none, MsFlags::MS_BIND, none).unwrap();
            ground.check_error(
                "CONTEXT holds the directory that it would be copied to, FS: give a part of it, or have rollouts elsewhere",
            );
            umount(&mount_point).unwrap();
        });
    }

    #[test]
    fn a_copy_stops_between_chunks_and_leaves_nothing() {
        let ground = Ground::new();
        File::create(ground.context.join("large")).unwrap().set_len(100 * CHUNK_BYTES).unwrap();
        let looks = Cell::new(0);
        let most = Cell::new(0);
        let stop = || {
            looks.set(looks.get() + 1);
            most.set(fs::metadata(ground.fs.join("large")).map_or(0, |metadata| metadata.len()));
            looks.get() == 4
        };
        let error = ground.fill_within(&ground.whole(), CopyLimits::default(), &stop).unwrap_err();
        assert!(matches!(error, ContextError::Cancelled), "{error}");
        assert_eq!(most.get(), 2 * CHUNK_BYTES);
        ground.check_empty();
    }

    /// Each time the copier looks whether to stop, the file that it copies grows.
    #[test]
    fn a_file_that_grows_is_copied_as_it_was() {
        let ground = Ground::new();
        let growing = ground.file("growing", "x");
        let grow = || {
            OpenOptions::new().append(true).open(&growing).unwrap().write_all(b"more").unwrap();
            false
        };
        ground.fill_within(&ground.whole(), LIMITS, &grow).unwrap();
        assert_eq!(ground.read("growing"), "xmore", "it had grown once when it was opened");
    }

    /// Each time the copier looks whether to stop, there is another file, and a file less.
    #[test]
    fn a_tree_that_changes_ends() {
        let ground = Ground::new();
        for index in 0..10 {
            ground.file(&format!("old-{index}"), "x");
        }
        let looks = Cell::new(0);
        let change = || {
            ground.file(&format!("new-{}", looks.get()), "x");
            let _gone_already = fs::remove_file(ground.context.join(format!("old-{}", 9 - looks.get() % 10)));
            looks.set(looks.get() + 1);
            false
        };
        let summary = ground.fill_within(&ground.whole(), LIMITS, &change).unwrap();
        assert!(summary.files() < 12, "{}", summary.files());
    }

    #[test]
    fn depth_is_no_limit() {
        let ground = Ground::new();
        let mut cursor = Cursor::at_path(&ground.context).unwrap();
        let name = OsStr::new("a-name-that-makes-the-path-longer-than-a-path-may-be");
        for _ in 0..1500 {
            mkdirat(&cursor, name, Mode::S_IRWXU).unwrap();
            cursor.enter(name).unwrap();
        }
        drop(cursor);
        ground.fill_within(&ground.whole(), CopyLimits::default(), &|| false).unwrap();
        let mut copy = Cursor::at_path(&ground.fs).unwrap();
        for _ in 0..1500 {
            copy.enter(name).unwrap();
        }
        drop(copy);
        for dir in [&ground.context, &ground.fs] {
            remove::clear(File::open(dir).unwrap().as_fd()).unwrap();
        }
    }
}
