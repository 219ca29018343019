//! The private directory of a host, and the removal of directories whose hosts were killed.
//!
//! A host holds a lock (`flock`) on the file [`LOCK`] in its directory while it runs. If the host is killed, the kernel
//! releases the lock, whatever processes it left running. A directory whose lock can be taken is an orphan, and the
//! next host removes it: while holding the lock, and the lock file last, so that an interrupted removal leaves an
//! orphan too.
//!
//! A directory without a lock file is removed only if it is empty. It may belong to a host that is just starting, which
//! then makes another one.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Permissions, TryLockError};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};

use nix::errno::Errno;
use nix::unistd::{UnlinkatFlags, geteuid, unlinkat};
use rlm_core::dirfd::{Directory, Identity};
use tempfile::TempDir;

use super::remove::remove_all;

const PREFIX: &str = "rlm-host-";

/// Name of the lock file. Ids of rollouts do not contain `@`.
const LOCK: &str = "rlm@lock";

/// Attempts of a starting host to make a directory, while other hosts remove it as an orphan.
const ATTEMPTS: u32 = 1000;

/// A host's private directory. Clones share it; the last one removes it.
#[derive(Debug)]
pub(crate) struct HostDir(Arc<OwnedDir>);

impl HostDir {
    /// Removes the orphans of this user in a directory, and makes a new one there. Blocks.
    ///
    /// # Errors
    /// The parent cannot be used. An orphan that cannot be removed is only logged.
    pub(crate) fn create(parent: &Path) -> io::Result<Self> {
        let path = fs::canonicalize(parent)?;
        let parent = Directory::at_path(&path)?;
        remove_orphans(&parent, &path);
        for _ in 0..ATTEMPTS {
            if let Some(owned) = OwnedDir::try_create(&parent, &path)? {
                return Ok(Self(Arc::new(owned)));
            }
        }
        Err(io::Error::other("another process keeps removing new directories"))
    }

    /// The directory that this process has in the system's directory for temporary files, for as long as it is in use.
    /// Blocks as [`Self::create`], if there is none.
    ///
    /// # Errors
    /// As for [`Self::create`].
    pub(crate) fn of_process() -> io::Result<Self> {
        static CURRENT: Mutex<Weak<OwnedDir>> = Mutex::new(Weak::new());
        let mut current = CURRENT.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(owned) = current.upgrade() {
            *owned.clones() += 1;
            let shared = Self(owned);
            if shared.is_in_place() {
                return Ok(shared);
            }
        }
        let made = Self::create(&std::env::temp_dir())?;
        *current = Arc::downgrade(&made.0);
        Ok(made)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0.path
    }

    pub(crate) fn directory(&self) -> &Directory {
        &self.0.directory
    }

    /// True if it is still where it was made: a session may have removed or moved it.
    pub(crate) fn is_in_place(&self) -> bool {
        let there = fs::symlink_metadata(self.path()).map(|there| Identity::from(&there));
        there.is_ok_and(|there| self.0.directory.identity().is_ok_and(|made| made == there))
    }

    /// Removes it with its contents, once no clone is in use. Blocks.
    ///
    /// # Errors
    /// Something in it could not be removed.
    pub(crate) fn remove(self) -> io::Result<()> {
        let mut others = self.0.clones();
        while *others > 0 {
            others = self.0.gone.wait(others).unwrap_or_else(PoisonError::into_inner);
        }
        drop(others);
        self.0.remove()
    }
}

impl Clone for HostDir {
    fn clone(&self) -> Self {
        *self.0.clones() += 1;
        Self(self.0.clone())
    }
}

impl Drop for HostDir {
    fn drop(&mut self) {
        let mut others = self.0.clones();
        *others = others.saturating_sub(1);
        self.0.gone.notify_all();
    }
}

/// A directory in `HostDir::of_process`, removed when it is dropped.
#[derive(Debug)]
pub struct PrivateDir {
    // Field order matters: the inner directory is removed first.
    inner: TempDir,
    _outer: HostDir,
}

impl PrivateDir {
    /// Creates it.
    ///
    /// # Errors
    /// The system's directory for temporary files cannot be used.
    pub fn create() -> io::Result<Self> {
        let outer = HostDir::of_process()?;
        let inner = tempfile::Builder::new().prefix("session-").tempdir_in(outer.path())?;
        Ok(Self { inner, _outer: outer })
    }

    /// The path of the directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.inner.path()
    }
}

#[derive(Debug)]
struct OwnedDir {
    parent: Directory,
    directory: Directory,
    path: PathBuf,
    /// Dropped, and so released, after the removal.
    _lock: File,
    is_removed: AtomicBool,
    /// Number of other clones.
    clones: Mutex<usize>,
    /// Notified when a clone is dropped.
    gone: Condvar,
}

impl OwnedDir {
    /// None: another host took the new directory for an orphan.
    fn try_create(parent: &Directory, parent_path: &Path) -> io::Result<Option<Self>> {
        let made = tempfile::Builder::new()
            .prefix(PREFIX)
            .permissions(Permissions::from_mode(0o700))
            .tempdir_in(parent_path)?;
        let name = made.path().file_name().unwrap_or_default();
        let created = parent.directory(name).and_then(|directory| {
            let lock = directory.create_file(OsStr::new(LOCK))?;
            Ok((directory, lock))
        });
        let (directory, mut lock) = match created {
            Ok(created) => created,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        if !take(&lock)? {
            return Ok(None);
        }
        writeln!(lock, "{}", std::process::id())?;
        Ok(Some(Self {
            parent: parent.try_clone()?,
            directory,
            path: made.keep(),
            _lock: lock,
            is_removed: AtomicBool::new(false),
            clones: Mutex::new(0),
            gone: Condvar::new(),
        }))
    }

    fn clones(&self) -> MutexGuard<'_, usize> {
        self.clones.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes the directory; does nothing a second time.
    fn remove(&self) -> io::Result<()> {
        if self.is_removed.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        remove_locked(&self.parent, self.path.file_name().unwrap_or_default(), &self.directory)
    }
}

impl Drop for OwnedDir {
    fn drop(&mut self) {
        if let Err(error) = self.remove() {
            tracing::warn!(path = %self.path.display(), %error, "cannot remove the host's directory");
        }
    }
}

/// Removes the directories of dead hosts. Errors are logged.
fn remove_orphans(parent: &Directory, path: &Path) {
    let entries = match parent.entries() {
        Ok(entries) => entries,
        Err(error) => {
            tracing::warn!(path = %path.display(), %error, "cannot look for directories of killed hosts");
            return;
        }
    };
    for name in entries.filter_map(|entry| Some(entry.ok()?.name)) {
        if name.as_bytes().starts_with(PREFIX.as_bytes())
            && let Err(error) = remove_if_orphan(parent, &name)
        {
            let path = path.join(&name);
            tracing::warn!(path = %path.display(), %error, "cannot remove the directory of a killed host");
        }
    }
}

fn remove_if_orphan(parent: &Directory, name: &OsStr) -> io::Result<()> {
    let directory = match parent.directory(name) {
        Ok(directory) => directory,
        Err(error) if is_not_a_directory(&error) => return Ok(()),
        Err(error) => return Err(error),
    };
    if directory.metadata()?.uid() != geteuid().as_raw() {
        return Ok(());
    }
    directory.restore_access()?;
    match directory.file(OsStr::new(LOCK)) {
        Ok(lock) if lock.metadata()?.is_file() && take(&lock)? => remove_locked(parent, name, &directory),
        Ok(_theirs) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => remove_empty(parent, name),
        Err(error) => Err(error),
    }
}

/// Takes the lock. False if another process has it, or had it and has removed the file.
fn take(lock: &File) -> io::Result<bool> {
    match lock.try_lock() {
        Ok(()) => Ok(lock.metadata()?.nlink() > 0),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Removes a host's directory. The caller holds its lock.
fn remove_locked(parent: &Directory, name: &OsStr, directory: &Directory) -> io::Result<()> {
    directory.restore_access()?;
    let held: Vec<OsString> = directory.entries()?.map(|entry| Ok(entry?.name)).collect::<io::Result<_>>()?;
    let removals = held.iter().filter(|held| *held != LOCK).map(|held| remove_all(directory, held));
    // Try all of them and return the first error.
    removals.fold(Ok(()), Result::and)?;
    match unlinkat(directory, LOCK, UnlinkatFlags::NoRemoveDir) {
        Ok(()) | Err(Errno::ENOENT) => remove_empty(parent, name),
        Err(errno) => Err(errno.into()),
    }
}

/// Removes a directory if it is empty.
fn remove_empty(parent: &Directory, name: &OsStr) -> io::Result<()> {
    match unlinkat(parent, name, UnlinkatFlags::RemoveDir) {
        Ok(()) | Err(Errno::ENOENT | Errno::ENOTEMPTY | Errno::EEXIST) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

fn is_not_a_directory(error: &io::Error) -> bool {
    let errno = error.raw_os_error().map(Errno::from_raw);
    matches!(errno, Some(Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP))
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::fs::symlink;
    use std::process::{Command, Stdio};

    use super::super::testing::{as_nobody, is_root};
    use super::*;

    impl HostDir {
        /// Leaves the directory behind as a killed host does.
        fn kill(self) -> PathBuf {
            self.0.is_removed.store(true, Ordering::Release);
            self.0.path.clone()
        }
    }

    fn names(dir: &Path) -> Vec<OsString> {
        let mut names: Vec<_> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    }

    #[test]
    fn the_directory_is_private_and_removed_with_its_contents() {
        let parent = tempfile::tempdir().unwrap();
        let host = HostDir::create(parent.path()).unwrap();
        assert_eq!(host.path().metadata().unwrap().mode() & 0o7777, 0o700);
        fs::create_dir_all(host.path().join("rollout/rlm_fs")).unwrap();
        let clone = host.clone();
        let path = host.path().join("rollout");
        let removing = std::thread::spawn(move || host.remove());
        assert!(path.exists(), "a clone is in use");
        drop(clone);
        removing.join().unwrap().unwrap();
        assert!(names(parent.path()).is_empty());
    }

    #[test]
    fn directories_of_killed_hosts_are_removed_and_those_of_live_hosts_are_not() {
        let parent = tempfile::tempdir().unwrap();
        as_nobody(parent.path(), |parent| {
            let living = HostDir::create(parent).unwrap();
            let killed = HostDir::create(parent).unwrap().kill();
            fs::create_dir_all(killed.join("rollout/rlm_fs/closed")).unwrap();
            fs::write(killed.join("rollout/rlm_fs/closed/file"), "x").unwrap();
            for closed in [killed.join("rollout/rlm_fs/closed"), killed.join("rollout"), killed.clone()] {
                fs::set_permissions(closed, Permissions::from_mode(0o0)).unwrap();
            }
            let next = HostDir::create(parent).unwrap();
            let mut expected = [living.path().file_name().unwrap(), next.path().file_name().unwrap()];
            expected.sort();
            assert_eq!(names(parent), expected);
        });
    }

    #[test]
    fn a_child_of_a_killed_host_does_not_keep_its_directory() {
        let parent = tempfile::tempdir().unwrap();
        let host = HostDir::create(parent.path()).unwrap();
        let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        // Output shows that exec has happened: spawning returns a moment earlier, with all descriptors still open.
        let mut byte = [0];
        child.stdin.as_mut().unwrap().write_all(b"x").unwrap();
        child.stdout.as_mut().unwrap().read_exact(&mut byte).unwrap();
        let killed = host.kill();
        let _next = HostDir::create(parent.path()).unwrap();
        let is_swept = !killed.exists();
        let is_alive = child.try_wait().unwrap().is_none();
        drop(child.stdin.take());
        child.wait().unwrap();
        assert!(is_alive && is_swept);
    }

    #[test]
    fn only_directories_of_hosts_are_removed() {
        let parent = tempfile::tempdir().unwrap();
        let at = |name: &str| parent.path().join(name);
        fs::write(at("rlm-host-file"), "x").unwrap();
        fs::create_dir(at("rlm-host-notes")).unwrap();
        fs::write(at("rlm-host-notes/mine"), "x").unwrap();
        fs::create_dir(at("elsewhere")).unwrap();
        fs::write(at("elsewhere").join(LOCK), "1").unwrap();
        symlink("elsewhere", at("rlm-host-link")).unwrap();
        fs::create_dir_all(at("rlm-host-odd").join(LOCK)).unwrap();
        fs::create_dir(at("rlm-host-fifo")).unwrap();
        nix::unistd::mkfifo(&at("rlm-host-fifo").join(LOCK), nix::sys::stat::Mode::S_IRWXU).unwrap();
        let before = names(parent.path());
        drop(HostDir::create(parent.path()).unwrap());
        assert_eq!(names(parent.path()), before);
        assert!(at("rlm-host-notes/mine").exists() && at("elsewhere").join(LOCK).exists());
    }

    #[test]
    fn a_host_killed_before_it_had_a_lock_left_an_empty_directory() {
        let parent = tempfile::tempdir().unwrap();
        fs::create_dir(parent.path().join("rlm-host-000000")).unwrap();
        drop(HostDir::create(parent.path()).unwrap());
        assert!(names(parent.path()).is_empty());
    }

    #[test]
    fn directories_of_other_users_are_left_alone() {
        if !is_root("only root can make a directory of another user") {
            return;
        }
        let parent = tempfile::tempdir().unwrap();
        fs::set_permissions(parent.path(), Permissions::from_mode(0o755)).unwrap();
        let mut theirs = PathBuf::new();
        as_nobody(parent.path(), |parent| theirs = HostDir::create(parent).unwrap().kill());
        drop(HostDir::create(parent.path()).unwrap());
        assert!(theirs.join(LOCK).exists());
    }

    #[test]
    fn hosts_that_start_end_and_die_side_by_side_leave_each_other_alone() {
        let parent = tempfile::tempdir().unwrap();
        let living: Vec<HostDir> = std::thread::scope(|scope| {
            let start_hosts = || {
                let mut living = Vec::new();
                for index in 0..60 {
                    let host = HostDir::create(parent.path()).unwrap();
                    fs::write(host.path().join("file"), "x").unwrap();
                    match index % 3 {
                        0 => living.push(host),
                        1 => drop(host.kill()),
                        _ => host.remove().unwrap(),
                    }
                }
                living
            };
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(start_hosts)).collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        let last = HostDir::create(parent.path()).unwrap();
        assert_eq!(names(parent.path()).len(), living.len() + 1);
        assert!(
            living.iter().all(|host| host.path().join("file").exists() && host.path().join(LOCK).exists())
        );
        drop(last);
    }

    #[test]
    fn a_lock_counts_only_while_its_file_is_there() {
        let dir = tempfile::tempdir().unwrap();
        let open = || File::options().create(true).append(true).open(dir.path().join(LOCK)).unwrap();
        let (held, late) = (open(), open());
        assert!(take(&held).unwrap());
        assert!(!take(&late).unwrap(), "it is held");
        fs::remove_file(dir.path().join(LOCK)).unwrap();
        drop(held);
        assert!(!take(&late).unwrap(), "its file is gone");
        assert!(take(&open()).unwrap());
    }

    #[test]
    fn a_parent_that_cannot_be_used_is_an_error() {
        let error = HostDir::create(Path::new("/does/not/exist")).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
