//! What the allocator does with memory that was freed.

/// Makes blocks from this size in bytes on go back to the system as soon as they are freed, in the whole process: for a
/// `main`. With another allocator than glibc's it does nothing.
///
/// glibc's begins so, and learns from the first block that is freed to take the next ones of that size from a thread's
/// arena instead, where a hole stays until it is trimmed.
///
/// # Panics
/// The size is over 2 GiB.
pub fn free_blocks_at_once(bytes: usize) {
    #[cfg(target_env = "gnu")]
    {
        let bytes = i32::try_from(bytes).expect("it is less than 2 GiB");
        // SAFETY: it takes two numbers, and may be called at any time, from any thread.
        let is_set = unsafe { nix::libc::mallopt(nix::libc::M_MMAP_THRESHOLD, bytes) };
        debug_assert_eq!(is_set, 1, "glibc knows the setting");
    }
    #[cfg(not(target_env = "gnu"))]
    let _ = bytes;
}
