//! A flag in memory that both processes of a worker share.

use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use nix::errno::Errno;
use nix::libc;
use nix::unistd::ftruncate;

use crate::sys::memory_file;

/// Tells the server that the guard holds a signal which it has not forwarded yet.
#[derive(Clone, Copy, Debug)]
pub struct ForwardFlag(&'static AtomicBool);

impl ForwardFlag {
    /// A cleared flag, and the file in memory by which another process gets it.
    pub(super) fn new() -> Result<(Self, OwnedFd), Errno> {
        let file = memory_file(c"rlm")?;
        ftruncate(&file, size_of::<AtomicBool>() as i64)?;
        Ok((Self::of(file.as_fd())?, file))
    }

    /// The flag in a file of [`Self::new`].
    pub(super) fn of(file: BorrowedFd<'_>) -> Result<Self, Errno> {
        let size = size_of::<AtomicBool>();
        let (access, fd) = (libc::PROT_READ | libc::PROT_WRITE, file.as_raw_fd());
        // SAFETY: this requests a new mapping at any address; the result is checked.
        let page = unsafe { libc::mmap(std::ptr::null_mut(), size, access, libc::MAP_SHARED, fd, 0) };
        if page == libc::MAP_FAILED {
            return Err(Errno::last());
        }
        // SAFETY: the mapping is zeroed, page-aligned, large enough, never unmapped, and accessed only by atomic
        // operations, in the other process too.
        Ok(Self(unsafe { &*page.cast::<AtomicBool>() }))
    }

    /// Sets or clears the flag.
    pub(super) fn set(self, holds: bool) {
        self.0.store(holds, Ordering::SeqCst);
    }

    /// True while the guard holds a signal.
    pub(super) fn is_set(self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}
