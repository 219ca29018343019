//! `rlm_worker.log`: messages of a worker to people.

use std::fmt;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt as _;
use std::time::{SystemTime, UNIX_EPOCH};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// The worker's log, one line per message. A line that the log cannot take goes to standard error.
#[derive(Debug)]
pub struct Log {
    program: &'static str,
    file: File,
}

impl Log {
    /// The log of a program, appended to `file`.
    #[must_use]
    pub fn new(program: &'static str, file: File) -> Self {
        Self { program, file }
    }

    /// Writes one line: seconds since the epoch, process id, message.
    pub fn line(&mut self, message: impl fmt::Display) {
        if !self.append(&message) {
            print_error(format_args!("{}: {message}", self.program));
        }
    }

    /// Writes one line to the log and to standard error: the worker cannot go on.
    pub fn failure(&mut self, message: impl fmt::Display) {
        let _printed_anyway = self.append(&message);
        print_error(format_args!("{}: {message}", self.program));
    }

    /// False if nobody will find the line in the log.
    fn append(&mut self, message: &impl fmt::Display) -> bool {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        // A message that code can influence must not make lines of its own.
        let message = message.to_string().replace(char::is_control, " ");
        let line =
            format!("{}.{:03} [{}] {message}\n", now.as_secs(), now.subsec_millis(), std::process::id());
        let is_linked = self.file.metadata().is_ok_and(|metadata| metadata.nlink() > 0);
        self.file.write_all(line.as_bytes()).is_ok() && is_linked
    }
}

/// Prints a line for people, unless they would have to make room first: nothing may keep a worker from ending.
pub(super) fn print_error(message: impl fmt::Display) {
    let stderr = io::stderr();
    let mut fds = [PollFd::new(stderr.as_fd(), PollFlags::POLLOUT)];
    if poll(&mut fds, PollTimeout::ZERO) == Ok(1) {
        // Written in one piece: standard error has no buffer, and others may write to it.
        let _nobody_listens = (&stderr).write_all(format!("{message}\n").as_bytes());
    }
}
