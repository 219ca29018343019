//! The allocator: its treatment of freed memory, and of a lack of memory.

use std::alloc::{GlobalAlloc, Layout, System};

use nix::libc;

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
        let is_set = unsafe { libc::mallopt(libc::M_MMAP_THRESHOLD, bytes) };
        debug_assert_eq!(is_set, 1, "glibc knows the setting");
    }
    #[cfg(not(target_env = "gnu"))]
    let _ = bytes;
}

/// Exit status of a process whose [`Allocator`] got no memory.
pub const OUT_OF_MEMORY: u8 = 4;

/// The system's allocator, except that a process that gets no memory ends with status [`OUT_OF_MEMORY`] instead of
/// SIGABRT, so that its parent can say why. For programs, as their `#[global_allocator]`.
#[derive(Debug)]
pub struct Allocator;

// SAFETY: every call goes to the system's allocator as it came, and a null pointer is never returned.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller vouches for the layout.
        or_end(unsafe { System.alloc(layout) })
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        or_end(unsafe { System.alloc_zeroed(layout) })
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: the caller vouches for block, layout and size.
        or_end(unsafe { System.realloc(block, layout, new_size) })
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller vouches for block and layout.
        unsafe { System.dealloc(block, layout) }
    }
}

fn or_end(block: *mut u8) -> *mut u8 {
    if block.is_null() {
        // SAFETY: the call is safe at any time. Nothing is run at the exit: that might need memory.
        unsafe { libc::_exit(OUT_OF_MEMORY.into()) }
    }
    block
}
