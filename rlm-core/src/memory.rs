//! The allocator's treatment of freed memory.

/// Returns freed blocks of at least this size to the system at once, in the whole process: for a `main`. It does
/// nothing unless the allocator is glibc's.
///
/// glibc starts out that way, but after the first such block is freed it takes later blocks of that size from a
/// thread's arena, where a hole stays until it is trimmed.
///
/// # Panics
/// The size is over 2 GiB.
pub fn free_blocks_at_once(bytes: usize) {
    #[cfg(target_env = "gnu")]
    {
        let bytes = i32::try_from(bytes).expect("it is less than 2 GiB");
        // SAFETY: the call takes two numbers and is safe at any time, from any thread.
        let is_set = unsafe { nix::libc::mallopt(nix::libc::M_MMAP_THRESHOLD, bytes) };
        debug_assert_eq!(is_set, 1, "glibc knows the setting");
    }
    #[cfg(not(target_env = "gnu"))]
    let _ = bytes;
}
