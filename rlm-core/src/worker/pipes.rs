//! Pipes and files in memory by which a worker speaks with its interpreter.
//!
//! The interpreter opens them by path, `/proc/PID/fd/N` of the worker, whenever it needs one. So code in the session finds
//! no descriptor of ours that it could close, write to, or leave open in a child.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::unistd::{pipe2, read};

/// A pipe that the interpreter writes to. We hold both ends, so that it never reports end of file.
#[derive(Debug)]
pub struct Pipe {
    reader: OwnedFd,
    writer: OwnedFd,
}

impl Pipe {
    /// Makes a pipe whose ends never block us.
    ///
    /// # Errors
    /// The system has no descriptor left.
    pub fn new() -> io::Result<Self> {
        let (reader, writer) = pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK)?;
        Ok(Self { reader, writer })
    }

    /// The path by which the interpreter opens the end for writing.
    #[must_use]
    pub fn path(&self) -> String {
        path_of(self.writer.as_raw_fd())
    }

    /// Polls readable when something has arrived.
    #[must_use]
    pub fn reader(&self) -> BorrowedFd<'_> {
        self.reader.as_fd()
    }

    /// Appends what has arrived, without waiting.
    ///
    /// # Errors
    /// The kernel refuses, which it does not for a pipe of ours.
    pub fn read_available(&self, bytes: &mut Vec<u8>) -> Result<(), Errno> {
        let mut buffer = [0; 8192];
        loop {
            match read(&self.reader, &mut buffer) {
                Ok(count) => {
                    bytes.extend_from_slice(&buffer[..count]);
                    if count < buffer.len() {
                        return Ok(());
                    }
                }
                Err(Errno::EAGAIN) => return Ok(()),
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(errno),
            }
        }
    }
}

/// A file in memory: no disk can be full, and nothing is left behind.
///
/// # Errors
/// The system has no descriptor or no memory left.
pub fn memory_file() -> io::Result<File> {
    Ok(File::from(memfd_create(c"rlm", MFdFlags::MFD_CLOEXEC)?))
}

/// The path by which another process opens a descriptor of ours.
#[must_use]
pub fn path_of(fd: RawFd) -> String {
    format!("/proc/{}/fd/{fd}", std::process::id())
}
