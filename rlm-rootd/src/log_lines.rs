//! A log on standard error that never blocks.

use std::io::{self, Write};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

/// The lines of a process's log on their way to standard error. A thread writes them. Lines are lost while standard error is
/// not read, and nothing waits for it.
#[derive(Debug)]
pub struct LogLines {
    /// An empty line is the end.
    lines: SyncSender<Vec<u8>>,
    ended: Receiver<()>,
}

impl LogLines {
    /// Starts the thread. At most this many lines wait to be written; further ones are lost.
    ///
    /// # Errors
    ///
    /// The thread cannot be started.
    pub fn start(waiting: usize) -> io::Result<Self> {
        let (lines, written) = sync_channel::<Vec<u8>>(waiting);
        let (end, ended) = sync_channel(1);
        let write = move || {
            let mut stderr = io::stderr();
            for line in written.into_iter().take_while(|line| !line.is_empty()) {
                // Standard error may be closed.
                let _lost = stderr.write_all(&line);
            }
            // The waiting thread may have given up.
            let _waited = end.send(());
        };
        thread::Builder::new().name("log".to_owned()).spawn(write)?;
        Ok(Self { lines, ended })
    }

    /// A writer for a log, one line at a time.
    #[must_use]
    pub fn writer(&self) -> LogWriter {
        LogWriter(self.lines.clone())
    }

    /// Writes the waiting lines, as far as standard error is read within the limit.
    pub fn finish(self, limit: Duration) {
        if self.lines.try_send(Vec::new()).is_ok() {
            // The last lines are lost if nothing reads them.
            let _lost = self.ended.recv_timeout(limit);
        }
    }
}

/// One end of [`LogLines`]: each write is a line, and none blocks or fails.
#[derive(Clone, Debug)]
pub struct LogWriter(SyncSender<Vec<u8>>);

impl Write for LogWriter {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        // If too many lines wait, this line is lost.
        let _lost = self.0.try_send(line.to_vec());
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
