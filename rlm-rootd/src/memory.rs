//! What the allocator keeps of memory that was freed.
//!
//! glibc's takes a block from the system where it is large, and learns from the first that is freed to take the next ones of
//! that size from a thread's arena instead, where a hole stays until it is trimmed. A server that holds a few large values
//! at once, on one thread after another, would keep a multiple of them.

use crate::share::FREE_BYTES;

/// Makes large values go back to the system as soon as they are freed, in the whole process: for a `main` that serves. With
/// another allocator than glibc's it does nothing.
pub fn free_large_values_at_once() {
    #[cfg(target_env = "gnu")]
    {
        let bytes = i32::try_from(FREE_BYTES).expect("it is a mebibyte");
        // SAFETY: it takes two numbers, and may be called at any time, from any thread.
        let is_set = unsafe { nix::libc::mallopt(nix::libc::M_MMAP_THRESHOLD, bytes) };
        debug_assert_eq!(is_set, 1, "glibc knows the setting");
    }
}

/// Gives back what the arenas of all threads hold and do not use. It takes milliseconds.
pub(crate) fn give_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it may be called at any time, from any thread.
    unsafe {
        nix::libc::malloc_trim(0);
    }
}
