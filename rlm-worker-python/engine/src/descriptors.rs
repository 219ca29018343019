//! The descriptors of a copy of this process: files are opened anew, and connections are closed.

use std::collections::BTreeSet;
use std::ffi::CString;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd as _, RawFd};

use nix::errno::Errno;
use nix::libc;
use nix::unistd::Pid;

/// A file that a copy has closed while it waits, so that the session can lock, run or remove it.
pub(crate) struct ClosedFile {
    fd: RawFd,
    path: CString,
    /// Device and inode.
    file: (u64, u64),
    /// Flags of the file, and of the descriptor.
    flags: (i32, i32),
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
        // SAFETY: plain integers.
        let (flags, offset) = unsafe {
            (
                (libc::fcntl(fd, libc::F_GETFL), libc::fcntl(fd, libc::F_GETFD)),
                libc::lseek(fd, 0, libc::SEEK_CUR),
            )
        };
        is_there.then_some(Self { fd, path, file, flags, offset })
    }

    /// Opens the file again. If another one is at its path now, the descriptor stays closed by its other side.
    pub(crate) fn reopen(&self) {
        let close_on_exec = if self.flags.1 & libc::FD_CLOEXEC == 0 { 0 } else { libc::O_CLOEXEC };
        // SAFETY: the path is a live string, the struct plain numbers, and the descriptor that is closed was made here.
        unsafe {
            let new = libc::open(self.path.as_ptr(), self.flags.0 | libc::O_CLOEXEC | libc::O_NOCTTY);
            if new < 0 {
                return;
            }
            let mut found = std::mem::zeroed::<libc::stat>();
            if libc::fstat(new, &raw mut found) == 0 && (found.st_dev, found.st_ino) == self.file {
                libc::lseek(new, self.offset, libc::SEEK_SET);
                libc::dup3(new, self.fd, close_on_exec);
            }
            libc::close(new);
        }
    }
}

/// Replaces what leads to other processes, and files, by a connection whose other side has closed it. Otherwise the copy would keep
/// pipes and files open that the session has closed: a reader would wait for ever, and a lock would stay. Returns the files.
pub(crate) fn disconnect(kept: &[RawFd]) -> io::Result<Vec<ClosedFile>> {
    let (closed, other_side) = std::os::unix::net::UnixStream::pair()?;
    drop(other_side);
    let descriptors: Vec<RawFd> = fs::read_dir("/proc/self/fd")?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect();
    let mut files = Vec::new();
    for fd in descriptors {
        // SAFETY: the struct is plain numbers, and the pointer is to a live struct.
        let mut stat = unsafe { std::mem::zeroed::<libc::stat>() };
        // SAFETY: as above.
        let is_open = unsafe { libc::fstat(fd, &raw mut stat) } == 0;
        if fd <= 2 || fd == closed.as_raw_fd() || kept.contains(&fd) || !is_open {
            continue;
        }
        let file =
            if stat.st_mode & libc::S_IFMT == libc::S_IFREG { ClosedFile::of(fd, &stat) } else { None };
        if file.is_some() || is_connection(fd, &stat) {
            // SAFETY: plain integers.
            let flags = unsafe { libc::fcntl(fd, libc::F_GETFD) };
            let flags = if flags & libc::FD_CLOEXEC == 0 { 0 } else { libc::O_CLOEXEC };
            // SAFETY: plain integers. What the session had there goes on in the process that was copied.
            Errno::result(unsafe { libc::dup3(closed.as_raw_fd(), fd, flags) })?;
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

/// The descriptors of this process, without that of the directory in which they are listed.
pub(crate) fn open_descriptors() -> BTreeSet<RawFd> {
    let listed = fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let listed: Vec<_> = listed.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    // SAFETY: plain integers.
    listed.into_iter().filter(|fd| unsafe { libc::fcntl(*fd, libc::F_GETFD) } >= 0).collect()
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
