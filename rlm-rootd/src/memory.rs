//! Freed memory that the allocator keeps.

/// Blocks from this size on go back to the system as soon as they are freed, in bytes.
pub(crate) const LARGE_BLOCK_BYTES: usize = 1 << 20;

/// Makes large values go back to the system as soon as they are freed, in the whole process: for a `main` that serves. A
/// server that holds a few at once, on one thread after another, would otherwise keep several times as much.
pub fn free_large_values_at_once() {
    rlm_core::memory::free_blocks_at_once(LARGE_BLOCK_BYTES);
}

/// Gives back memory that the arenas of all threads hold but do not use. Takes milliseconds.
pub(crate) fn give_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: `malloc_trim` may be called at any time, from any thread.
    unsafe {
        nix::libc::malloc_trim(0);
    }
}
