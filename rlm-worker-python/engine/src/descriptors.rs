//! The descriptors of a copy of this process: files are opened anew, and connections are closed.

use std::collections::BTreeSet;
use std::ffi::{CStr, CString, OsStr};
use std::fs;
use std::io;
use std::os::fd::{AsRawFd as _, RawFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::libc;
use nix::unistd::Pid;

/// A file or directory that a copy has closed while it waits, so that the session can lock, run or remove it.
pub(crate) struct ClosedFile {
    fd: RawFd,
    path: CString,
    /// Device and inode.
    file: (u64, u64),
    is_directory: bool,
    flags: i32,
    /// 0, or the flag of a descriptor that is closed when a program is executed.
    close_on_exec: i32,
    offset: libc::off_t,
}

impl ClosedFile {
    /// The file behind a descriptor. None if no path leads to it.
    fn of(fd: RawFd, stat: &libc::stat) -> Option<Self> {
        let path = fs::read_link(format!("/proc/self/fd/{fd}")).ok()?;
        let path = CString::new(path.into_os_string().into_encoded_bytes()).ok()?;
        let file = (stat.st_dev, stat.st_ino);
        // SAFETY: the struct is plain numbers, and the pointers are to live values.
        let is_there = unsafe {
            let mut found = std::mem::zeroed::<libc::stat>();
            libc::stat(path.as_ptr(), &raw mut found) == 0 && (found.st_dev, found.st_ino) == file
        };
        let is_directory = stat.st_mode & libc::S_IFMT == libc::S_IFDIR;
        is_there.then(|| Self { path, file, is_directory, ..Self::open(fd) })
    }

    /// The open file behind a descriptor, by the path that always leads to it.
    fn open(fd: RawFd) -> Self {
        let path = CString::new(format!("/proc/self/fd/{fd}")).unwrap_or_default();
        // SAFETY: plain integers.
        let (flags, offset) = unsafe { (libc::fcntl(fd, libc::F_GETFL), libc::lseek(fd, 0, libc::SEEK_CUR)) };
        let close_on_exec = close_on_exec(fd);
        Self { fd, path, file: (0, 0), is_directory: false, flags, close_on_exec, offset }
    }

    /// Opens the file again, or its copy, if there is one of a directory: of this one, in that one. If another one is at its path now, the
    /// descriptor stays closed by its other side.
    pub(crate) fn reopen(&self, copied: Option<(&Path, &Path)>) {
        let path = Path::new(OsStr::from_bytes(self.path.as_bytes()));
        let copy = copied.and_then(|(from, to)| {
            let copy = to.join(path.strip_prefix(from).ok()?);
            (copy.is_dir() == self.is_directory)
                .then(|| CString::new(copy.into_os_string().into_vec()).ok())?
        });
        let is_it = |found: &libc::stat| (found.st_dev, found.st_ino) == self.file;
        let path = copy.as_ref().unwrap_or(&self.path);
        self.open_at(path, |found| copy.is_some() || is_it(found));
    }

    /// Opens a path at the number and the place of this file, if it is what is wanted.
    fn open_at(&self, path: &CStr, is_wanted: impl FnOnce(&libc::stat) -> bool) {
        // SAFETY: the path is a live string, the struct plain numbers, and the descriptor that is closed was made here.
        unsafe {
            let new = libc::open(path.as_ptr(), self.flags | libc::O_CLOEXEC | libc::O_NOCTTY);
            if new < 0 {
                return;
            }
            let mut found = std::mem::zeroed::<libc::stat>();
            if libc::fstat(new, &raw mut found) == 0 && is_wanted(&found) {
                libc::lseek(new, self.offset, libc::SEEK_SET);
                libc::dup3(new, self.fd, self.close_on_exec);
            }
            libc::close(new);
        }
    }
}

/// 0, or the flag by which a copy of the descriptor is closed too when a program is executed.
fn close_on_exec(fd: RawFd) -> i32 {
    // SAFETY: plain integers.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFD) };
    if flags & libc::FD_CLOEXEC == 0 { 0 } else { libc::O_CLOEXEC }
}

/// Replaces what leads to other processes, and files, by a connection whose other side has closed it. Otherwise the copy would keep
/// pipes and files open that the session has closed: a reader would wait for ever, and a lock would stay. Returns the files.
pub(crate) fn disconnect(kept: &[RawFd]) -> io::Result<Vec<ClosedFile>> {
    let (closed, other_side) = std::os::unix::net::UnixStream::pair()?;
    drop(other_side);
    let mut files = Vec::new();
    let is_replaced = |fd: &RawFd| *fd > 2 && *fd != closed.as_raw_fd() && !kept.contains(fd);
    for fd in open_descriptors()?.into_iter().filter(is_replaced) {
        // SAFETY: the struct is plain numbers, and the pointer is to a live struct.
        let mut stat = unsafe { std::mem::zeroed::<libc::stat>() };
        // SAFETY: as above.
        Errno::result(unsafe { libc::fstat(fd, &raw mut stat) })?;
        let kind = stat.st_mode & libc::S_IFMT;
        let is_file = [libc::S_IFREG, libc::S_IFDIR].contains(&kind);
        let file = is_file.then(|| ClosedFile::of(fd, &stat)).flatten();
        if file.is_some() || is_connection(fd, &stat) {
            // SAFETY: plain integers. What the session had there goes on in the process that was copied.
            Errno::result(unsafe { libc::dup3(closed.as_raw_fd(), fd, close_on_exec(fd)) })?;
        } else if kind == libc::S_IFREG {
            // No path leads to it, such as to a deleted one: it gets a place of its own in this process.
            let file = ClosedFile::open(fd);
            file.open_at(&file.path, |_| true);
        }
        files.extend(file);
    }
    Ok(files)
}

/// True for a pipe, a socket, a terminal, and for what the kernel has behind a descriptor without a file, such as an epoll set.
fn is_connection(fd: RawFd, stat: &libc::stat) -> bool {
    match stat.st_mode & libc::S_IFMT {
        libc::S_IFIFO | libc::S_IFSOCK | 0 => true,
        // SAFETY: a plain integer.
        libc::S_IFCHR => unsafe { libc::isatty(fd) == 1 },
        _ => false,
    }
}

/// True if this process has locked a file for writing: its memory alone does not come back without the file.
pub(crate) fn holds_lock() -> bool {
    let has_files = fs::read_dir("/proc/self/fd").is_ok_and(|entries| entries.count() > 4);
    let locks = if has_files { fs::read_to_string("/proc/locks").unwrap_or_default() } else { String::new() };
    let pid = Pid::this().to_string();
    locks.lines().any(|lock| {
        let mut fields = lock.split_ascii_whitespace().skip_while(|field| *field != "WRITE");
        fields.next().is_some() && fields.next() == Some(&pid)
    })
}

/// An open database of SQLite on disk. Its locks, and what the library has read, are those of one process.
pub(crate) fn open_database() -> Option<PathBuf> {
    const BEGINNING: &[u8; 16] = b"SQLite format 3\0";
    open_descriptors().ok()?.into_iter().filter(|fd| *fd > 2).find_map(|fd| {
        let mut bytes = [0; 16];
        // SAFETY: the pointer is to a live buffer of this size. Something else than a file cannot be read at a place.
        let count = unsafe { libc::pread(fd, bytes.as_mut_ptr().cast(), bytes.len(), 0) };
        (count == 16 && bytes == *BEGINNING).then(|| fs::read_link(format!("/proc/self/fd/{fd}")).ok())?
    })
}

/// The descriptors of this process, without that of the directory in which they are listed.
pub(crate) fn open_descriptors() -> io::Result<BTreeSet<RawFd>> {
    let listed = fs::read_dir("/proc/self/fd")?.flatten();
    let listed: Vec<_> = listed.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    // SAFETY: plain integers.
    Ok(listed.into_iter().filter(|fd| unsafe { libc::fcntl(*fd, libc::F_GETFD) } >= 0).collect())
}

/// Leads the standard outputs nowhere: nobody reads what hooks of a fork print.
pub(crate) fn silence() -> io::Result<()> {
    let nothing = fs::File::options().write(true).open("/dev/null")?;
    for stream in [1, 2] {
        // SAFETY: plain integers.
        Errno::result(unsafe { libc::dup2(nothing.as_raw_fd(), stream) })?;
    }
    Ok(())
}
