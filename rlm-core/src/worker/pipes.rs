//! Pipes and in-memory files between a worker and its interpreter.
//!
//! The interpreter opens them by path, `/proc/PID/fd/N` of the worker, whenever it needs one. So code in the session
//! has none of our descriptors to close, write to, or leak to a child.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::unistd::{pipe2, read};

/// A pipe that the interpreter writes to. We hold both ends, so it never reports end of file.
#[derive(Debug)]
pub struct Pipe {
    reader: OwnedFd,
    writer: OwnedFd,
}

impl Pipe {
    /// Creates a pipe with non-blocking ends.
    ///
    /// # Errors
    /// The process is out of descriptors.
    pub fn new() -> io::Result<Self> {
        let (reader, writer) = pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK)?;
        Ok(Self { reader, writer })
    }

    /// Path by which the interpreter opens the write end.
    #[must_use]
    pub fn path(&self) -> String {
        path_of(self.writer.as_raw_fd())
    }

    /// Polls readable when data has arrived.
    #[must_use]
    pub fn reader(&self) -> BorrowedFd<'_> {
        self.reader.as_fd()
    }

    /// Appends the data that has arrived, without waiting.
    ///
    /// # Errors
    /// The read fails, which does not happen on a pipe of ours.
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

/// A file in memory: it needs no disk space, and leaves nothing behind.
///
/// # Errors
/// The process is out of descriptors or memory.
pub fn memory_file() -> io::Result<File> {
    Ok(File::from(crate::sys::memory_file(c"rlm")?))
}

/// Path by which another process opens a descriptor of ours.
#[must_use]
pub fn path_of(fd: RawFd) -> String {
    format!("/proc/{}/fd/{fd}", std::process::id())
}
