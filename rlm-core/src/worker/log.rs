//! `rlm_worker.log`: messages of a worker to people.

use std::fmt;
use std::fs::File;
use std::io::Write;
use std::time::{SystemTime, UNIX_EPOCH};

/// The worker's log, one line per message. A failure to write it must not fail a rollout.
#[derive(Debug)]
pub struct Log {
    file: Option<File>,
}

impl Log {
    /// A log that appends to `file`, or nowhere.
    #[must_use]
    pub fn new(file: Option<File>) -> Self {
        Self { file }
    }

    /// Writes one line: seconds since the epoch, process id, message.
    pub fn line(&mut self, message: impl fmt::Display) {
        let Some(file) = &mut self.file else { return };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let line =
            format!("{}.{:03} [{}] {message}\n", now.as_secs(), now.subsec_millis(), std::process::id());
        if file.write_all(line.as_bytes()).is_err() {
            self.file = None;
        }
    }
}
