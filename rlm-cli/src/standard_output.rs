//! Standard output, and the detection of a closed one.
//!
//! Before `main` begins, the Rust runtime opens `/dev/null` in place of closed standard descriptors, and output is lost
//! without an error. So the check runs even earlier, when the program is loaded.

use std::io::{self, Write as _};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use anyhow::Context as _;
use nix::libc;

use crate::lock::lock;

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

/// Prints a text.
pub(crate) fn print(text: impl AsRef<[u8]>) -> anyhow::Result<()> {
    let mut output = io::stdout().lock();
    output.write_all(text.as_ref()).and_then(|()| output.flush()).context("cannot write to standard output")
}

/// Reports whether an error says that a reader has closed the pipe.
pub(crate) fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        let of_json = || cause.downcast_ref::<serde_json::Error>()?.io_error_kind();
        let kind = cause.downcast_ref::<io::Error>().map(io::Error::kind).or_else(of_json);
        kind == Some(io::ErrorKind::BrokenPipe)
    })
}

/// Standard output of work that goes on if it cannot be written.
#[derive(Debug, Default)]
pub(crate) struct Output {
    /// The first error.
    failed: Mutex<Option<anyhow::Error>>,
}

impl Output {
    pub(crate) fn print(&self, text: &str) {
        if let Err(error) = print(text) {
            lock(&self.failed).get_or_insert(error);
        }
    }

    /// Fails with the first error of printing. A reader that closed the pipe has seen enough.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        lock(&self.failed).take().filter(|error| !is_broken_pipe(error)).map_or(Ok(()), Err)
    }
}
