//! Open directories, and the files and directories below them.
//!
//! Each name is opened relative to its open directory, and symbolic links are never followed. So whatever is opened
//! lies below the directory that was opened first, even while a session renames and replaces things there.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, FileType, Metadata, Permissions};
use std::io;
use std::ops::Deref;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use nix::dir::{Dir, Type};
use nix::fcntl::{AT_FDCWD, OFlag, openat, readlinkat};
use nix::sys::stat::{Mode, mkdirat};

/// Opens a directory that may not be readable.
const DIRECTORY: OFlag = OFlag::O_DIRECTORY.union(OFlag::O_PATH).union(OFlag::O_CLOEXEC);

/// Opens a directory to list it.
const LISTING: OFlag = OFlag::O_DIRECTORY.union(OFlag::O_RDONLY).union(OFlag::O_CLOEXEC);

/// Opens a file for reading. A FIFO or a device does not block.
const FILE: OFlag = OFlag::O_RDONLY.union(OFlag::O_NONBLOCK).union(OFlag::O_NOCTTY);

/// The permissions an owner needs to list a directory and to change its entries.
const OWNER_MAY_ALL: u32 = 0o700;

/// An open directory.
#[derive(Debug)]
pub struct Directory(File);

/// A name in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// File name, without a path.
    pub name: OsString,
    /// Kind of file at the time of listing.
    pub kind: Kind,
}

/// Kind of file that a name refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Link,
    /// Anything else, by name: `FIFO`, `socket`, `block device`, `character device`.
    Other(&'static str),
}

/// Identity of a file, whatever its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    device: u64,
    inode: u64,
}

impl Directory {
    /// Opens the directory at a path, following symbolic links.
    ///
    /// # Errors
    /// The path cannot be opened, or is not a directory.
    pub fn at_path(path: &Path) -> io::Result<Self> {
        Ok(Self(openat(AT_FDCWD, path, DIRECTORY, Mode::empty())?.into()))
    }

    /// Opens a subdirectory.
    ///
    /// # Errors
    /// `InvalidInput` if the name is not a single path component; `ENOTDIR` also if it is a symbolic link.
    pub fn directory(&self, name: &OsStr) -> io::Result<Self> {
        self.open(name, DIRECTORY, Mode::empty()).map(Self)
    }

    /// Opens a file in this directory for reading. The file may be of any kind; opening it does not block.
    ///
    /// # Errors
    /// `InvalidInput` if the name is not a single path component; `ELOOP` if it is a symbolic link, `ENXIO` if it is a
    /// socket.
    pub fn file(&self, name: &OsStr) -> io::Result<File> {
        self.open(name, FILE, Mode::empty())
    }

    /// Opens the directory at a relative path below this one; an empty path is this directory.
    ///
    /// # Errors
    /// The errors of [`Self::directory`], for each component of the path.
    pub fn directory_below(&self, path: &Path) -> io::Result<Self> {
        path.iter().try_fold(Self(self.0.try_clone()?), |at, name| at.directory(name))
    }

    /// Opens the file at a relative path below this directory, as [`Self::file`] does.
    ///
    /// # Errors
    /// The errors of [`Self::directory_below`] and [`Self::file`].
    pub fn file_below(&self, path: &Path) -> io::Result<File> {
        let above = path.parent().unwrap_or(Path::new(""));
        self.directory_below(above)?.file(path.file_name().unwrap_or_default())
    }

    /// A handle to what is at a relative path below this directory, of any kind. It is not opened for reading.
    ///
    /// # Errors
    /// The errors of [`Self::directory_below`].
    pub fn handle_below(&self, path: &Path) -> io::Result<File> {
        let Some(name) = path.file_name() else { return self.0.try_clone() };
        let above = path.parent().unwrap_or(Path::new(""));
        self.directory_below(above)?.open(name, OFlag::O_PATH, Mode::empty())
    }

    /// Creates a file that only its owner can read and write.
    ///
    /// # Errors
    /// `EEXIST` if the name is taken.
    pub fn create_file(&self, name: &OsStr) -> io::Result<File> {
        let flags = OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_EXCL;
        self.open(name, flags, Mode::S_IRUSR | Mode::S_IWUSR)
    }

    /// Creates a directory that only its owner can enter.
    ///
    /// # Errors
    /// `EEXIST` if the name is taken.
    pub fn create_directory(&self, name: &OsStr) -> io::Result<()> {
        Ok(mkdirat(&self.0, single(name)?, Mode::S_IRWXU)?)
    }

    /// Kind of file that a name refers to.
    ///
    /// # Errors
    /// `InvalidInput` if the name is not a single path component; `ENOENT` if it does not exist.
    pub fn kind(&self, name: &OsStr) -> io::Result<Kind> {
        Ok(self.metadata_of(name)?.file_type().into())
    }

    /// Metadata of the file that a name refers to; symbolic links are not followed.
    ///
    /// # Errors
    /// The errors of [`Self::kind`].
    pub fn metadata_of(&self, name: &OsStr) -> io::Result<Metadata> {
        self.open(name, OFlag::O_PATH, Mode::empty())?.metadata()
    }

    /// Metadata of the directory itself.
    ///
    /// # Errors
    /// The system call fails.
    pub fn metadata(&self) -> io::Result<Metadata> {
        self.0.metadata()
    }

    /// Identity of the directory.
    ///
    /// # Errors
    /// The system call fails.
    pub fn identity(&self) -> io::Result<Identity> {
        Ok(Identity::from(&self.metadata()?))
    }

    /// Target of a symbolic link in this directory.
    ///
    /// # Errors
    /// `InvalidInput` if the name is not a single path component; `EINVAL` if it is not a symbolic link.
    pub fn link_target(&self, name: &OsStr) -> io::Result<PathBuf> {
        Ok(readlinkat(&self.0, single(name)?)?.into())
    }

    /// Entries of the directory, without `.` and `..`, in the order of the file system.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn entries(&self) -> io::Result<impl Iterator<Item = io::Result<Entry>>> {
        let dir = Dir::openat(&self.0, ".", LISTING, Mode::empty())?;
        let entries = dir.into_iter().map(|entry| {
            let entry = entry?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes()).to_owned();
            // Some file systems do not report the kind. A name that is gone by now refers to nothing that can be
            // opened.
            let kind = || self.kind(&name).unwrap_or(Kind::Other("missing file"));
            Ok(Entry { kind: entry.file_type().map_or_else(kind, Kind::from), name })
        });
        Ok(entries.filter(|entry| !entry.as_ref().is_ok_and(|entry| entry.name == "." || entry.name == "..")))
    }

    /// True if the directory was removed: it has no name any more, and no entry can be added.
    ///
    /// # Errors
    /// The system call fails.
    pub fn is_removed(&self) -> io::Result<bool> {
        Ok(self.metadata()?.nlink() == 0)
    }

    /// The directory, opened so that its times and permissions can be changed.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn as_file(&self) -> io::Result<File> {
        Ok(openat(&self.0, ".", LISTING, Mode::empty())?.into())
    }

    /// Gives the owner back the permissions that `chmod` has taken. A directory of another user is left alone.
    ///
    /// # Errors
    /// The system call fails.
    pub fn restore_access(&self) -> io::Result<()> {
        let mode = self.metadata()?.mode();
        if mode & OWNER_MAY_ALL == OWNER_MAY_ALL {
            return Ok(());
        }
        // chmod does not take the descriptor of an unreadable directory, but it takes this path.
        let name = format!("/proc/self/fd/{}", self.0.as_raw_fd());
        match fs::set_permissions(name, Permissions::from_mode((mode | OWNER_MAY_ALL) & 0o7777)) {
            Err(error) if error.kind() != io::ErrorKind::PermissionDenied => Err(error),
            _ => Ok(()),
        }
    }

    /// Another handle to the same directory.
    ///
    /// # Errors
    /// The process is out of descriptors.
    pub fn try_clone(&self) -> io::Result<Self> {
        self.0.try_clone().map(Self)
    }

    fn open(&self, name: &OsStr, flags: OFlag, mode: Mode) -> io::Result<File> {
        Ok(openat(&self.0, single(name)?, flags | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC, mode)?.into())
    }
}

impl AsFd for Directory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A position in a directory tree, which can move into a subdirectory and back up.
///
/// A cursor holds one descriptor at any depth, and builds no path, so neither the limit on open files nor `PATH_MAX`
/// bounds the depth. It goes up only to directories that it came through.
#[derive(Debug)]
pub struct Cursor {
    here: Directory,
    above: Vec<Identity>,
}

impl Cursor {
    /// Starts at a directory.
    #[must_use]
    pub fn new(directory: Directory) -> Self {
        Self { here: directory, above: Vec::new() }
    }

    /// Moves into a subdirectory.
    ///
    /// # Errors
    /// The errors of [`Directory::directory`].
    pub fn enter(&mut self, name: &OsStr) -> io::Result<()> {
        let here = self.identity()?;
        self.here = self.directory(name)?;
        self.above.push(here);
        Ok(())
    }

    /// Moves back up.
    ///
    /// # Errors
    /// The directory was moved to another parent in the meantime.
    pub fn leave(&mut self) -> io::Result<()> {
        let above = Directory(openat(&self.here, "..", DIRECTORY, Mode::empty())?.into());
        if self.above.pop() != Some(above.identity()?) {
            return Err(io::Error::other("the directory was moved"));
        }
        self.here = above;
        Ok(())
    }
}

impl Deref for Cursor {
    type Target = Directory;

    fn deref(&self) -> &Directory {
        &self.here
    }
}

impl From<FileType> for Kind {
    fn from(found: FileType) -> Self {
        match () {
            () if found.is_file() => Self::File,
            () if found.is_dir() => Self::Directory,
            () if found.is_symlink() => Self::Link,
            () if found.is_fifo() => Type::Fifo.into(),
            () if found.is_socket() => Type::Socket.into(),
            () if found.is_block_device() => Type::BlockDevice.into(),
            () => Type::CharacterDevice.into(),
        }
    }
}

impl From<Type> for Kind {
    fn from(found: Type) -> Self {
        match found {
            Type::File => Self::File,
            Type::Directory => Self::Directory,
            Type::Symlink => Self::Link,
            Type::Fifo => Self::Other("FIFO"),
            Type::Socket => Self::Other("socket"),
            Type::BlockDevice => Self::Other("block device"),
            Type::CharacterDevice => Self::Other("character device"),
        }
    }
}

impl From<&Metadata> for Identity {
    fn from(metadata: &Metadata) -> Self {
        Self { device: metadata.dev(), inode: metadata.ino() }
    }
}

/// A name that is a single path component.
fn single(name: &OsStr) -> io::Result<&OsStr> {
    if name.is_empty() || name == "." || name == ".." || name.as_bytes().contains(&b'/') {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the name is not a single path component"));
    }
    Ok(name)
}

#[cfg(test)]
mod tests {
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
    fn names_are_opened_in_their_directory_and_links_are_not_followed() {
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
        assert_eq!(errno(root.create_file(OsStr::new("link"))), Some(Errno::EEXIST));
        assert_eq!(errno(root.file(OsStr::new("socket"))), Some(Errno::ENXIO));
        assert_eq!(errno(root.handle_below(Path::new("way/file"))), Some(Errno::ENOTDIR));
        let kind_of =
            |path: &str| root.handle_below(Path::new(path)).unwrap().metadata().unwrap().file_type().into();
        let kinds: [Kind; 4] = ["", "sub", "sub/file", "link"].map(kind_of);
        assert_eq!(kinds, [Kind::Directory, Kind::Directory, Kind::File, Kind::Link]);
        assert_eq!(root.link_target(OsStr::new("link")).unwrap(), Path::new("../secret"));
        // The FIFO has no writer, and can be opened all the same.
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
        let expected = [
            ("fifo", Kind::Other("FIFO")),
            ("file", Kind::File),
            ("link", Kind::Link),
            ("sub", Kind::Directory),
        ]
        .map(|(name, kind)| Entry { name: name.into(), kind });
        assert_eq!(entries, expected);
        for Entry { name, kind } in entries {
            assert_eq!(root.kind(&name).unwrap(), kind);
        }
        assert!(!root.is_removed().unwrap());
        fs::remove_dir_all(&path).unwrap();
        assert!(root.is_removed().unwrap());
    }

    #[test]
    fn a_cursor_goes_back_only_where_it_came_from() {
        let temporary = tempfile::tempdir().unwrap();
        fs::create_dir_all(temporary.path().join("a/b")).unwrap();
        fs::create_dir(temporary.path().join("c")).unwrap();
        let mut cursor = Cursor::new(Directory::at_path(temporary.path()).unwrap());
        let top = cursor.identity().unwrap();
        for name in ["a", "b"] {
            cursor.enter(OsStr::new(name)).unwrap();
        }
        cursor.leave().unwrap();
        cursor.leave().unwrap();
        assert_eq!(cursor.identity().unwrap(), top);
        for name in ["a", "b"] {
            cursor.enter(OsStr::new(name)).unwrap();
        }
        fs::rename(temporary.path().join("a/b"), temporary.path().join("c/b")).unwrap();
        assert_eq!(cursor.leave().unwrap_err().to_string(), "the directory was moved");
    }
}
