//! A flag that both processes of a worker see.

use std::sync::atomic::{AtomicBool, Ordering};

use nix::errno::Errno;
use nix::libc;

/// Tells the server that the guard holds a signal which it has not forwarded yet.
#[derive(Clone, Copy, Debug)]
pub struct ForwardFlag(&'static AtomicBool);

impl ForwardFlag {
    /// A flag that is not set, in memory that a child of this process shares.
    pub(super) fn new() -> Result<Self, Errno> {
        let size = size_of::<AtomicBool>();
        let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping is asked for, at any address; the result is checked.
        let page = unsafe { libc::mmap(std::ptr::null_mut(), size, access, kind, -1, 0) };
        if page == libc::MAP_FAILED {
            return Err(Errno::last());
        }
        // SAFETY: the mapping is zeroed, aligned to a page, large enough, never unmapped, and used by atomic operations
        // alone, by the other process too.
        Ok(Self(unsafe { &*page.cast::<AtomicBool>() }))
    }

    /// Says whether the guard holds a signal.
    pub(super) fn set(self, holds: bool) {
        self.0.store(holds, Ordering::SeqCst);
    }

    /// Whether the guard holds a signal.
    pub(super) fn is_set(self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}
