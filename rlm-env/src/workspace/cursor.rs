//! A place in a tree of directories, which moves by one level at a time.
//!
//! A cursor holds one descriptor however deep it is, follows no symbolic link below where it began, and builds no path, so
//! neither `PATH_MAX` nor the limit of open files bounds the depth. It remembers which directories it came through, and
//! goes back to none but these.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Permissions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use nix::dir::{Dir, Type};
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, openat};
use nix::sys::stat::{FileStat, Mode, fstat};

/// What its owner needs to list a directory, and to change what it holds.
const OWNER_MAY_ALL: u32 = 0o700;

/// Which file it is, whatever it is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    device: u64,
    inode: u64,
}

impl From<&FileStat> for Identity {
    fn from(stat: &FileStat) -> Self {
        Self { device: stat.st_dev, inode: stat.st_ino }
    }
}

/// A directory in a tree, and the way back to where the cursor began.
#[derive(Debug)]
pub(super) struct Cursor {
    dir: OwnedFd,
    above: Vec<Identity>,
}

impl Cursor {
    /// Begins at a path, whose symbolic links are followed.
    pub(super) fn at_path(path: &Path) -> io::Result<Self> {
        let dir =
            openat(AT_FDCWD, path, OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty())?;
        Ok(Self { dir, above: Vec::new() })
    }

    /// Begins at what a directory holds under a name. No symbolic link is followed.
    pub(super) fn at(parent: BorrowedFd<'_>, name: &OsStr) -> io::Result<Self> {
        Ok(Self { dir: open_dir(parent, name)?, above: Vec::new() })
    }

    /// Goes down into a directory of this one.
    pub(super) fn enter(&mut self, name: &OsStr) -> io::Result<()> {
        let here = self.identity()?;
        self.dir = open_dir(self.dir.as_fd(), name)?;
        self.above.push(here);
        Ok(())
    }

    /// Goes up again. Fails where the directory was moved to another one meanwhile.
    pub(super) fn leave(&mut self) -> io::Result<()> {
        let above = open_dir(self.dir.as_fd(), OsStr::new(".."))?;
        let expected = self.above.pop();
        if expected != Some(Identity::from(&fstat(&above)?)) {
            return Err(io::Error::other("the directory was moved meanwhile"));
        }
        self.dir = above;
        Ok(())
    }

    pub(super) fn stat(&self) -> io::Result<FileStat> {
        Ok(fstat(&self.dir)?)
    }

    pub(super) fn identity(&self) -> io::Result<Identity> {
        Ok(Identity::from(&self.stat()?))
    }

    /// What the directory holds, without `.` and `..`, in the order of the file system.
    pub(super) fn list(&self) -> io::Result<impl Iterator<Item = io::Result<Entry>>> {
        let dir = Dir::openat(
            &self.dir,
            ".",
            OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC,
            Mode::empty(),
        )?;
        let entries = dir.into_iter().map(|entry| {
            let entry = entry?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes()).to_owned();
            Ok(Entry { name, is_known_dir: entry.file_type() == Some(Type::Directory) })
        });
        Ok(entries.filter(|entry| !entry.as_ref().is_ok_and(|entry| entry.name == "." || entry.name == "..")))
    }

    /// The directory, open in a way in which its times and permissions can be changed.
    pub(super) fn open(&self) -> io::Result<File> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        Ok(openat(&self.dir, ".", flags, Mode::empty())?.into())
    }

    /// Gives the owner back what was taken from it by `chmod`. A directory of somebody else's stays as it is.
    pub(super) fn restore_access(&self) -> io::Result<()> {
        let mode = self.stat()?.st_mode;
        if mode & OWNER_MAY_ALL == OWNER_MAY_ALL {
            return Ok(());
        }
        // The descriptor may be that of a directory which we cannot open: only this name of it can be given to chmod.
        let name = format!("/proc/self/fd/{}", self.dir.as_raw_fd());
        match fs::set_permissions(name, Permissions::from_mode((mode | OWNER_MAY_ALL) & 0o7777)) {
            Err(error) if error.kind() != io::ErrorKind::PermissionDenied => Err(error),
            _ => Ok(()),
        }
    }
}

impl AsFd for Cursor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.dir.as_fd()
    }
}

/// A name in a directory.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) name: OsString,
    /// False also where the file system does not tell.
    pub(super) is_known_dir: bool,
}

/// Opens a directory that need not be readable. Symbolic links are refused.
fn open_dir(parent: BorrowedFd<'_>, name: &OsStr) -> Result<OwnedFd, Errno> {
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    openat(parent, name, flags, Mode::empty())
}
