//! The output of a call as it comes, for a host that watches.
//!
//! A host that wants it makes the FIFOs `rlm_stdout` and `rlm_stderr` before it starts the worker. Each call opens those that
//! have a reader, and writes there what it also collects for the response. The worker never waits for the reader: when a FIFO
//! is full, the rest of this call's output is in the response alone. So a reader sees the beginning of the output, all of it
//! if it keeps up.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use nix::libc;

use crate::control::ControlDir;

/// The FIFOs for output, as far as the host has made them.
#[derive(Clone, Debug, Default)]
pub struct LiveOutput {
    stdout: Option<PathBuf>,
    stderr: Option<PathBuf>,
}

impl LiveOutput {
    /// Looks for the FIFOs.
    #[must_use]
    pub fn of(control: &ControlDir) -> Self {
        let found = |path: PathBuf| {
            path.symlink_metadata().is_ok_and(|metadata| metadata.file_type().is_fifo()).then_some(path)
        };
        Self { stdout: found(control.stdout_fifo()), stderr: found(control.stderr_fifo()) }
    }

    /// Opens the FIFO for standard output, or for the terminal's text. None without a reader.
    #[must_use]
    pub fn stdout(&self) -> Option<File> {
        open(self.stdout.as_deref()?)
    }

    /// Opens the FIFO for standard error. None without a reader.
    #[must_use]
    pub fn stderr(&self) -> Option<File> {
        open(self.stderr.as_deref()?)
    }
}

fn open(fifo: &Path) -> Option<File> {
    let flags = libc::O_NONBLOCK | libc::O_NOFOLLOW;
    OpenOptions::new().write(true).custom_flags(flags).open(fifo).ok()
}
