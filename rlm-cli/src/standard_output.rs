//! Whether there is a standard output.
//!
//! Before `main` begins, the language's runtime puts `/dev/null` in the place of standard descriptors that are closed, and
//! whatever is written there is lost without an error. So it is asked before that.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use nix::libc;

static IS_CLOSED: AtomicBool = AtomicBool::new(false);

/// The loader calls what stands in this section.
#[used]
#[unsafe(link_section = ".init_array")]
static LOOK: extern "C" fn() = look;

extern "C" fn look() {
    // SAFETY: it asks about a descriptor by its number, whether or not that is open, and changes nothing.
    let flags = unsafe { libc::fcntl(libc::STDOUT_FILENO, libc::F_GETFD) };
    IS_CLOSED.store(flags == -1, Relaxed);
}

/// Refuses to begin what would be lost.
pub(crate) fn require() -> anyhow::Result<()> {
    anyhow::ensure!(
        !IS_CLOSED.load(Relaxed),
        "standard output is closed: there is nowhere to write the answer to"
    );
    Ok(())
}
