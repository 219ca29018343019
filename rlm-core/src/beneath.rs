//! A directory that is held open, and what lies below it.
//!
//! Each name is opened in the directory that holds it, and a symbolic link is followed nowhere. So whatever is opened lies
//! below the directory that was opened first, whatever becomes of names and directories meanwhile.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use nix::dir::{Dir, Type};
use nix::fcntl::{AT_FDCWD, AtFlags, OFlag, openat, readlinkat};
use nix::sys::stat::{FileStat, Mode, SFlag, fstat, fstatat};

/// How directories are opened: on the way to something.
const ON_THE_WAY: OFlag = OFlag::O_DIRECTORY.union(OFlag::O_PATH).union(OFlag::O_CLOEXEC);

/// How files are opened: a FIFO or a device must not hold us up.
const FILE: OFlag = OFlag::O_RDONLY.union(OFlag::O_NONBLOCK).union(OFlag::O_NOCTTY).union(OFlag::O_CLOEXEC);

/// A directory that is held open.
#[derive(Debug)]
pub struct Directory(OwnedFd);

/// What a directory holds under a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The name.
    pub name: OsString,
    /// What it names.
    pub kind: Kind,
}

/// Kinds of what a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Link,
    /// A FIFO, a socket or a device.
    Other,
}

impl Directory {
    /// The directory at a path, whose symbolic links are followed.
    ///
    /// # Errors
    /// It cannot be opened, or is none.
    pub fn at_path(path: &Path) -> io::Result<Self> {
        Ok(Self(openat(AT_FDCWD, path, ON_THE_WAY, Mode::empty())?))
    }

    /// A directory in this one.
    ///
    /// # Errors
    /// `InvalidInput` where the name is no single one; `ENOTDIR` also where it is a symbolic link.
    pub fn directory(&self, name: &OsStr) -> io::Result<Self> {
        let flags = ON_THE_WAY | OFlag::O_NOFOLLOW;
        Ok(Self(openat(&self.0, single(name)?, flags, Mode::empty())?))
    }

    /// A file in this directory, for reading; it may be no regular one, and opening it waits for nothing.
    ///
    /// # Errors
    /// `InvalidInput` where the name is no single one; `ELOOP` where it is a symbolic link, `ENXIO` where it is a socket.
    pub fn file(&self, name: &OsStr) -> io::Result<File> {
        Ok(openat(&self.0, single(name)?, FILE | OFlag::O_NOFOLLOW, Mode::empty())?.into())
    }

    /// What a name stands for.
    ///
    /// # Errors
    /// `InvalidInput` where the name is no single one; `ENOENT` where there is none.
    pub fn kind(&self, name: &OsStr) -> io::Result<Kind> {
        Ok(kind_of(&fstatat(&self.0, single(name)?, AtFlags::AT_SYMLINK_NOFOLLOW)?))
    }

    /// The size of a file in this directory, in bytes.
    ///
    /// # Errors
    /// As those of [`Self::kind`].
    pub fn size(&self, name: &OsStr) -> io::Result<u64> {
        let stat = fstatat(&self.0, single(name)?, AtFlags::AT_SYMLINK_NOFOLLOW)?;
        Ok(u64::try_from(stat.st_size).unwrap_or_default())
    }

    /// Where a symbolic link in this directory leads, as it says itself.
    ///
    /// # Errors
    /// `InvalidInput` where the name is no single one; `EINVAL` where it is no link.
    pub fn link_target(&self, name: &OsStr) -> io::Result<PathBuf> {
        Ok(readlinkat(&self.0, single(name)?)?.into())
    }

    /// What the directory holds, without `.` and `..`, in the order of the file system.
    ///
    /// # Errors
    /// It may not be read.
    pub fn entries(&self) -> io::Result<impl Iterator<Item = io::Result<Entry>>> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let dir = Dir::openat(&self.0, ".", flags, Mode::empty())?;
        let entries = dir.into_iter().filter_map(|entry| match entry {
            Ok(entry) => {
                let name = OsStr::from_bytes(entry.file_name().to_bytes());
                (name != "." && name != "..")
                    .then(|| Ok(Entry { name: name.to_owned(), kind: self.kind_of_entry(&entry, name) }))
            }
            Err(errno) => Some(Err(errno.into())),
        });
        Ok(entries)
    }

    /// Whether it has been removed: it has no name any more, and nothing can be put into it.
    ///
    /// # Errors
    /// The system does not tell.
    pub fn is_removed(&self) -> io::Result<bool> {
        Ok(fstat(&self.0)?.st_nlink == 0)
    }

    /// Some file systems do not tell the kind with the name. What is gone meanwhile is of no kind that is opened.
    fn kind_of_entry(&self, entry: &nix::dir::Entry, name: &OsStr) -> Kind {
        match entry.file_type() {
            Some(Type::File) => Kind::File,
            Some(Type::Directory) => Kind::Directory,
            Some(Type::Symlink) => Kind::Link,
            Some(_) => Kind::Other,
            None => self.kind(name).unwrap_or(Kind::Other),
        }
    }
}

/// A name that stays in its directory.
fn single(name: &OsStr) -> io::Result<&OsStr> {
    if name.is_empty() || name == "." || name == ".." || name.as_bytes().contains(&b'/') {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the name is no single one"));
    }
    Ok(name)
}

fn kind_of(stat: &FileStat) -> Kind {
    match SFlag::from_bits_truncate(stat.st_mode & SFlag::S_IFMT.bits()) {
        SFlag::S_IFREG => Kind::File,
        SFlag::S_IFDIR => Kind::Directory,
        SFlag::S_IFLNK => Kind::Link,
        _ => Kind::Other,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Read as _;
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    use nix::errno::Errno;
    use nix::unistd::mkfifo;

    use super::*;

    fn errno<T>(result: io::Result<T>) -> Option<Errno> {
        result.err()?.raw_os_error().map(Errno::from_raw)
    }

    #[test]
    fn names_are_opened_in_their_directory_and_links_nowhere() {
        let temporary = tempfile::tempdir().unwrap();
        let at = |name: &str| temporary.path().join(name);
        fs::create_dir_all(at("root/sub")).unwrap();
        fs::write(at("secret"), "s").unwrap();
        fs::write(at("root/sub/file"), "f").unwrap();
        symlink("../secret", at("root/link")).unwrap();
        symlink("sub", at("root/way")).unwrap();
        mkfifo(&at("root/fifo"), Mode::S_IRWXU).unwrap();
        let _socket = UnixListener::bind(at("root/socket")).unwrap();
        let root = Directory::at_path(&at("root")).unwrap();
        let mut text = String::new();
        let sub = root.directory(OsStr::new("sub")).unwrap();
        sub.file(OsStr::new("file")).unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(text, "f");
        assert_eq!(errno(root.file(OsStr::new("link"))), Some(Errno::ELOOP));
        assert_eq!(errno(root.directory(OsStr::new("way"))), Some(Errno::ENOTDIR));
        assert_eq!(errno(root.file(OsStr::new("socket"))), Some(Errno::ENXIO));
        assert_eq!(root.link_target(OsStr::new("link")).unwrap(), Path::new("../secret"));
        // Nobody writes to it, and it opens all the same.
        assert!(root.file(OsStr::new("fifo")).is_ok());
        for name in ["", ".", "..", "sub/file", "../secret", "/etc/passwd"] {
            let refused = root.file(OsStr::new(name)).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::InvalidInput, "{name}");
            assert_eq!(root.directory(OsStr::new(name)).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        }
    }

    #[test]
    fn entries_tell_their_kinds_and_a_removed_directory_is_known() {
        let temporary = tempfile::tempdir().unwrap();
        let path = temporary.path().join("root");
        fs::create_dir_all(path.join("sub")).unwrap();
        fs::write(path.join("file"), "f").unwrap();
        symlink("..", path.join("link")).unwrap();
        mkfifo(&path.join("fifo"), Mode::S_IRWXU).unwrap();
        let root = Directory::at_path(&path).unwrap();
        let mut entries: Vec<_> = root.entries().unwrap().map(Result::unwrap).collect();
        entries.sort_by(|one, other| one.name.cmp(&other.name));
        let expected =
            [("fifo", Kind::Other), ("file", Kind::File), ("link", Kind::Link), ("sub", Kind::Directory)]
                .map(|(name, kind)| Entry { name: name.into(), kind });
        assert_eq!(entries, expected);
        assert!(!root.is_removed().unwrap());
        fs::remove_dir_all(&path).unwrap();
        assert!(root.is_removed().unwrap());
    }
}
