//! Detection of a closed standard output.
//!
//! Before `main` begins, the Rust runtime opens `/dev/null` in place of closed standard descriptors, and output is lost
//! without an error. So the check runs even earlier, when the program is loaded.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use nix::libc;

static IS_CLOSED: AtomicBool = AtomicBool::new(false);

/// The loader calls the functions in this section.
#[used]
#[unsafe(link_section = ".init_array")]
static LOOK: extern "C" fn() = look;

extern "C" fn look() {
    // SAFETY: F_GETFD is valid on any number, open or not, and changes nothing.
    let flags = unsafe { libc::fcntl(libc::STDOUT_FILENO, libc::F_GETFD) };
    IS_CLOSED.store(flags == -1, Relaxed);
}

/// Fails if standard output is closed: the result would be lost.
pub(crate) fn require() -> anyhow::Result<()> {
    anyhow::ensure!(!IS_CLOSED.load(Relaxed), "standard output is closed: there is nowhere to write to");
    Ok(())
}
