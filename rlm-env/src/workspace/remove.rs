//! Removal of trees that were left by somebody who may have done anything to them.
//!
//! Symbolic links are removed, not followed. Directories that cannot be read or written are made so. What is mounted in the
//! tree is neither entered nor removed: it is an error, after the rest was removed.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::unistd::{UnlinkatFlags, unlinkat};

use super::cursor::Cursor;
use super::names::shown;

/// How often a directory that something still writes to is emptied again.
const PASSES: u32 = 16;

/// Removes what a directory holds under a name, whatever it is. Nothing there is a success.
///
/// # Errors
/// The first thing that could not be removed, with its path. What could be, is.
pub(super) fn remove_all(parent: BorrowedFd<'_>, name: &OsStr) -> io::Result<()> {
    let failed = |error: io::Error| with_path(Path::new(name), &error);
    for _ in 0..PASSES {
        if try_remove(parent, name).map_err(|errno| failed(errno.into()))? == Removal::Done {
            return Ok(());
        }
        match Cursor::at(parent, name) {
            Ok(mut dir) => clear_below(&mut dir, Path::new(name))?,
            // Another one removes it too, or has put something else there.
            Err(error) if is_race(&error) => {}
            Err(error) => return Err(failed(error)),
        }
    }
    Err(failed(Errno::ENOTEMPTY.into()))
}

/// Removes all that a directory holds.
///
/// # Errors
/// As for [`remove_all`].
pub(super) fn clear(dir: BorrowedFd<'_>) -> io::Result<()> {
    clear_below(&mut Cursor::at(dir, OsStr::new("."))?, Path::new("."))
}

#[derive(Debug, PartialEq, Eq)]
enum Removal {
    Done,
    DirNotEmpty,
}

fn try_remove(parent: BorrowedFd<'_>, name: &OsStr) -> Result<Removal, Errno> {
    match unlinkat(parent, name, UnlinkatFlags::NoRemoveDir) {
        Ok(()) | Err(Errno::ENOENT) => Ok(Removal::Done),
        // What unlink says of a directory differs between kernels.
        Err(errno @ (Errno::EISDIR | Errno::EPERM)) => match try_remove_dir(parent, name) {
            Err(Errno::ENOTDIR) => Err(errno),
            removal => removal,
        },
        Err(errno) => Err(errno),
    }
}

/// Linux refuses the removal of a mount point before it looks whether it is empty, so that nobody descends into one.
fn try_remove_dir(parent: BorrowedFd<'_>, name: &OsStr) -> Result<Removal, Errno> {
    match unlinkat(parent, name, UnlinkatFlags::RemoveDir) {
        Ok(()) | Err(Errno::ENOENT) => Ok(Removal::Done),
        Err(Errno::ENOTEMPTY | Errno::EEXIST) => Ok(Removal::DirNotEmpty),
        Err(errno) => Err(errno),
    }
}

/// A directory that is being cleared.
#[derive(Debug)]
struct Level {
    name: OsString,
    /// Those of its directories that are not empty, still to be cleared.
    dirs: Vec<OsString>,
}

/// Empties the directory that a cursor is at. What is added meanwhile may be left.
fn clear_below(cursor: &mut Cursor, path: &Path) -> io::Result<()> {
    let mut clearing = Clearing { levels: Vec::new(), first_error: None };
    clearing.scan(cursor, path.as_os_str().to_owned());
    while let Some(level) = clearing.levels.last_mut() {
        if let Some(name) = level.dirs.pop() {
            match cursor.enter(&name) {
                Ok(()) => clearing.scan(cursor, name),
                Err(error) if is_race(&error) => {}
                Err(error) => clearing.note(&name, &error),
            }
        } else if let Some(done) = clearing.levels.pop()
            && !clearing.levels.is_empty()
        {
            cursor.leave()?;
            if let Err(errno) = try_remove_dir(cursor.as_fd(), &done.name) {
                clearing.note(&done.name, &errno.into());
            }
        }
    }
    clearing.first_error.map_or(Ok(()), Err)
}

#[derive(Debug)]
struct Clearing {
    levels: Vec<Level>,
    first_error: Option<io::Error>,
}

impl Clearing {
    /// Removes what can be removed at once from the directory that the cursor is at, and notes the rest as a level.
    fn scan(&mut self, cursor: &Cursor, name: OsString) {
        self.levels.push(Level { name, dirs: Vec::new() });
        let entries = match cursor.restore_access().and_then(|()| cursor.list()) {
            Ok(entries) => entries,
            Err(error) => return self.note(OsStr::new(""), &error),
        };
        for entry in entries {
            let entry = match entry {
                Ok(entry) => entry,
                Err(error) => return self.note(OsStr::new(""), &error),
            };
            let removal = if entry.is_known_dir {
                try_remove_dir(cursor.as_fd(), &entry.name)
            } else {
                try_remove(cursor.as_fd(), &entry.name)
            };
            match removal {
                Ok(Removal::Done) => {}
                Ok(Removal::DirNotEmpty) => {
                    if let Some(level) = self.levels.last_mut() {
                        level.dirs.push(entry.name);
                    }
                }
                // Something else has taken the directory's place meanwhile: the next pass sees to it.
                Err(Errno::ENOTDIR) => {}
                Err(errno) => self.note(&entry.name, &errno.into()),
            }
        }
    }

    fn note(&mut self, name: &OsStr, error: &io::Error) {
        if self.first_error.is_none() {
            let dirs: PathBuf = self.levels.iter().map(|level| &level.name).collect();
            self.first_error = Some(with_path(&dirs.join(name), error));
        }
    }
}

fn is_race(error: &io::Error) -> bool {
    matches!(error.raw_os_error().map(Errno::from_raw), Some(Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP))
}

fn with_path(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("cannot remove {}: {error}", shown(path)))
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File, Permissions};
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use nix::mount::{MsFlags, mount, umount};
    use nix::sys::stat::{Mode, mkdirat};

    use super::super::testing::{as_nobody, is_root, with_own_mounts};
    use super::*;

    #[track_caller]
    fn remove(dir: &Path, name: &str) {
        remove_all(File::open(dir).unwrap().as_fd(), OsStr::new(name)).unwrap();
        assert!(fs::symlink_metadata(dir.join(name)).is_err(), "{name} is still there");
    }

    #[test]
    fn whatever_it_is_goes() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::write(at("file"), "x").unwrap();
        fs::create_dir(at("empty")).unwrap();
        fs::create_dir_all(at("tree/a/b")).unwrap();
        fs::create_dir_all(at("tree/c")).unwrap();
        fs::write(at("tree/a/b/new\nline"), "x").unwrap();
        fs::write(at("tree/a").join(OsStr::from_bytes(b"\xff\xfe")), "x").unwrap();
        nix::unistd::mkfifo(&at("tree/fifo"), Mode::S_IRUSR).unwrap();
        for name in ["file", "empty", "tree", "nothing there"] {
            remove(dir.path(), name);
        }
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn links_are_removed_and_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let outside = dir.path().join("outside");
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("file"), "mine").unwrap();
        fs::create_dir(dir.path().join("tree")).unwrap();
        symlink(&outside, dir.path().join("tree/link")).unwrap();
        symlink(&outside, dir.path().join("link")).unwrap();
        remove(dir.path(), "tree");
        remove(dir.path(), "link");
        assert_eq!(fs::read_to_string(outside.join("file")).unwrap(), "mine");
    }

    #[test]
    fn depth_is_no_limit() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("deep")).unwrap();
        let mut cursor = Cursor::at_path(&dir.path().join("deep")).unwrap();
        let name = OsStr::new("a-name-that-makes-the-path-longer-than-a-path-may-be");
        for _ in 0..2000 {
            mkdirat(&cursor, name, Mode::S_IRWXU).unwrap();
            cursor.enter(name).unwrap();
        }
        drop(cursor);
        remove(dir.path(), "deep");
    }

    #[test]
    fn permissions_that_were_taken_are_no_obstacle() {
        let dir = tempfile::tempdir().unwrap();
        as_nobody(dir.path(), |dir| {
            fs::create_dir_all(dir.join("tree/closed/inner")).unwrap();
            fs::create_dir_all(dir.join("tree/read-only")).unwrap();
            fs::write(dir.join("tree/closed/inner/file"), "x").unwrap();
            fs::write(dir.join("tree/read-only/file"), "x").unwrap();
            for (path, mode) in [
                ("tree/closed/inner/file", 0),
                ("tree/closed/inner", 0),
                ("tree/closed", 0),
                ("tree/read-only", 0o500),
                ("tree", 0),
            ] {
                fs::set_permissions(dir.join(path), Permissions::from_mode(mode)).unwrap();
            }
            assert!(fs::read_dir(dir.join("tree")).is_err(), "the test must not be able to read it");
            remove(dir, "tree");
        });
    }

    #[test]
    fn what_cannot_be_removed_is_named_and_the_rest_goes() {
        if !is_root("only root can make what this user cannot remove") {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let theirs = dir.path().join("theirs");
        fs::create_dir(&theirs).unwrap();
        fs::write(theirs.join("file"), "x").unwrap();
        as_nobody(dir.path(), |dir| {
            fs::create_dir(dir.join("tree")).unwrap();
            fs::write(dir.join("tree/mine"), "x").unwrap();
        });
        fs::rename(&theirs, dir.path().join("tree/theirs")).unwrap();
        as_nobody(dir.path(), |dir| {
            let error = remove_all(File::open(dir).unwrap().as_fd(), OsStr::new("tree")).unwrap_err();
            assert_eq!(error.to_string(), "cannot remove tree/theirs/file: Permission denied (os error 13)");
            assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
            let left: Vec<_> =
                fs::read_dir(dir.join("tree")).unwrap().map(|e| e.unwrap().file_name()).collect();
            assert_eq!(left, ["theirs"]);
        });
    }

    #[test]
    fn what_is_mounted_is_left_alone() {
        with_own_mounts(|| {
            let dir = tempfile::tempdir().unwrap();
            let (outside, mount_point) = (dir.path().join("outside"), dir.path().join("tree/sub/mounted"));
            for made in [&outside, &mount_point] {
                fs::create_dir_all(made).unwrap();
            }
            fs::write(outside.join("file"), "mine").unwrap();
            fs::write(dir.path().join("tree/sub/other"), "x").unwrap();
            let bind = |source: &Path| {
                let none = None::<&str>;
                mount(Some(source), &mount_point, none, MsFlags::MS_BIND, none).unwrap();
            };
            bind(&outside);
            let error = remove_all(File::open(dir.path()).unwrap().as_fd(), OsStr::new("tree")).unwrap_err();
            assert_eq!(
                error.to_string(),
                "cannot remove tree/sub/mounted: Device or resource busy (os error 16)"
            );
            assert_eq!(fs::read_to_string(outside.join("file")).unwrap(), "mine");
            assert!(!dir.path().join("tree/sub/other").exists());
            umount(&mount_point).unwrap();
            remove(dir.path(), "tree");
        });
    }

    #[test]
    fn a_directory_is_emptied_and_stays() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("a/b")).unwrap();
        fs::write(dir.path().join("file"), "x").unwrap();
        clear(File::open(dir.path()).unwrap().as_fd()).unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
