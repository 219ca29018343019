//! Removal of directory trees that a session left behind, whatever it did to them.
//!
//! Symbolic links are removed, not followed. Unreadable or unwritable directories get their permissions back. A mount
//! point in the tree is neither entered nor removed: it is an error, reported after the rest was removed.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::unistd::{UnlinkatFlags, unlinkat};
use rlm_core::dirfd::{Cursor, Directory};

use super::names::shown;

/// Attempts to empty a directory that something still writes to.
const PASSES: u32 = 4;

/// Removes the entry of a directory with this name, of any kind. A missing entry is a success.
///
/// # Errors
/// The first entry that could not be removed, with its path. Everything else is removed.
pub(crate) fn remove_all(parent: &Directory, name: &OsStr) -> io::Result<()> {
    let failed = |error: io::Error| with_path(Path::new(name), &error);
    for _ in 0..PASSES {
        if remove_one(parent, name).map_err(|errno| failed(errno.into()))? == Removal::Done {
            return Ok(());
        }
        match parent.directory(name) {
            Ok(directory) => clear_below(directory, Path::new(name))?,
            // Another process removed it too, or replaced it.
            Err(error) if is_race(&error) => {}
            Err(error) => return Err(failed(error)),
        }
    }
    Err(failed(Errno::ENOTEMPTY.into()))
}

/// Removes all entries of a directory.
///
/// # Errors
/// As for [`remove_all`].
pub(crate) fn clear(directory: &Directory) -> io::Result<()> {
    clear_below(directory.try_clone()?, Path::new("."))
}

#[derive(Debug, PartialEq, Eq)]
enum Removal {
    Done,
    DirectoryNotEmpty,
}

/// Removes one entry, unless it is a directory that is not empty.
fn remove_one(parent: &Directory, name: &OsStr) -> Result<Removal, Errno> {
    let refusal = match unlinkat(parent, name, UnlinkatFlags::NoRemoveDir) {
        Ok(()) | Err(Errno::ENOENT) => return Ok(Removal::Done),
        // The errno of unlink for a directory depends on the kernel.
        Err(errno @ (Errno::EISDIR | Errno::EPERM)) => errno,
        Err(errno) => return Err(errno),
    };
    // Linux refuses to remove a mount point before it checks whether it is empty, so we never descend into one.
    match unlinkat(parent, name, UnlinkatFlags::RemoveDir) {
        Ok(()) | Err(Errno::ENOENT) => Ok(Removal::Done),
        Err(Errno::ENOTEMPTY | Errno::EEXIST) => Ok(Removal::DirectoryNotEmpty),
        Err(Errno::ENOTDIR) => Err(refusal),
        Err(errno) => Err(errno),
    }
}

/// A directory that is being cleared.
#[derive(Debug)]
struct Level {
    name: OsString,
    /// Non-empty directories in this one, still to be cleared.
    directories: Vec<OsString>,
}

/// Empties a directory; `path` is its name in errors. Entries that are added during the removal may be left.
fn clear_below(directory: Directory, path: &Path) -> io::Result<()> {
    let mut cursor = Cursor::new(directory);
    let mut clearing = Clearing { levels: Vec::new(), first_error: None };
    clearing.scan(&cursor, path.as_os_str().to_owned());
    while let Some(level) = clearing.levels.last_mut() {
        if let Some(name) = level.directories.pop() {
            match cursor.enter(&name) {
                Ok(()) => clearing.scan(&cursor, name),
                Err(error) if is_race(&error) => {}
                Err(error) => clearing.note(&name, &error),
            }
        } else if let Some(done) = clearing.levels.pop()
            && !clearing.levels.is_empty()
        {
            cursor.leave()?;
            // If it is not empty, an entry's error is already recorded, or an entry was added.
            if let Err(errno) = remove_one(&cursor, &done.name) {
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
    /// Removes the entries of the cursor's directory that can be removed at once, and records the rest as a level.
    fn scan(&mut self, cursor: &Cursor, name: OsString) {
        self.levels.push(Level { name, directories: Vec::new() });
        let entries = match cursor.restore_access().and_then(|()| cursor.entries()) {
            Ok(entries) => entries,
            Err(error) => return self.note(OsStr::new(""), &error),
        };
        for entry in entries {
            let entry = match entry {
                Ok(entry) => entry,
                Err(error) => return self.note(OsStr::new(""), &error),
            };
            match remove_one(cursor, &entry.name) {
                Ok(Removal::Done) => {}
                Ok(Removal::DirectoryNotEmpty) => {
                    if let Some(level) = self.levels.last_mut() {
                        level.directories.push(entry.name);
                    }
                }
                Err(errno) => self.note(&entry.name, &errno.into()),
            }
        }
    }

    fn note(&mut self, name: &OsStr, error: &io::Error) {
        if self.first_error.is_none() {
            let directory: PathBuf = self.levels.iter().map(|level| &level.name).collect();
            self.first_error = Some(with_path(&directory.join(name), error));
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
    use std::fs::{self, Permissions};
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use nix::mount::{MsFlags, mount, umount};
    use nix::sys::stat::Mode;

    use super::super::testing::{as_nobody, is_root, with_own_mounts};
    use super::*;

    #[track_caller]
    fn remove(dir: &Path, name: &str) {
        remove_all(&Directory::at_path(dir).unwrap(), OsStr::new(name)).unwrap();
        assert!(fs::symlink_metadata(dir.join(name)).is_err(), "{name} is still there");
    }

    #[test]
    fn entries_of_any_kind_are_removed() {
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
    fn deep_trees_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("deep")).unwrap();
        let mut cursor = Cursor::new(Directory::at_path(&dir.path().join("deep")).unwrap());
        let name = OsStr::new("a-name-that-makes-the-path-longer-than-a-path-may-be");
        for _ in 0..2000 {
            cursor.create_directory(name).unwrap();
            cursor.enter(name).unwrap();
        }
        drop(cursor);
        remove(dir.path(), "deep");
    }

    #[test]
    fn trees_without_permissions_are_removed() {
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
    fn entries_that_cannot_be_removed_are_named_and_the_rest_is_removed() {
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
            let error = remove_all(&Directory::at_path(dir).unwrap(), OsStr::new("tree")).unwrap_err();
            assert_eq!(error.to_string(), "cannot remove tree/theirs/file: Permission denied (os error 13)");
            assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
            let left: Vec<_> =
                fs::read_dir(dir.join("tree")).unwrap().map(|e| e.unwrap().file_name()).collect();
            assert_eq!(left, ["theirs"]);
        });
    }

    #[test]
    fn mount_points_are_left_alone() {
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
            let error = remove_all(&Directory::at_path(dir.path()).unwrap(), OsStr::new("tree")).unwrap_err();
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
    fn clear_empties_a_directory_and_keeps_it() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("a/b")).unwrap();
        fs::write(dir.path().join("file"), "x").unwrap();
        clear(&Directory::at_path(dir.path()).unwrap()).unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
