//! What the allocator keeps of memory that was freed.

use crate::share::FREE_BYTES;

/// Makes large values go back to the system as soon as they are freed, in the whole process: for a `main` that serves. A
/// server that holds a few at once, on one thread after another, would keep a multiple of them else.
pub fn free_large_values_at_once() {
    rlm_core::memory::free_blocks_at_once(FREE_BYTES);
}

/// Gives back what the arenas of all threads hold and do not use. It takes milliseconds.
pub(crate) fn give_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it may be called at any time, from any thread.
    unsafe {
        nix::libc::malloc_trim(0);
    }
}
