//! A flag in memory that both processes of a worker share.

use std::sync::atomic::{AtomicBool, Ordering};

use nix::errno::Errno;
use nix::libc;

/// Tells the server that the guard holds a signal which it has not forwarded yet.
#[derive(Clone, Copy, Debug)]
pub struct ForwardFlag(&'static AtomicBool);

impl ForwardFlag {
    /// A cleared flag, in memory that is shared with children of this process.
    pub(super) fn new() -> Result<Self, Errno> {
        let size = size_of::<AtomicBool>();
        let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
        // SAFETY: this requests a new mapping at any address; the result is checked.
        let page = unsafe { libc::mmap(std::ptr::null_mut(), size, access, kind, -1, 0) };
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
