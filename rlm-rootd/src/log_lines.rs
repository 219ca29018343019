//! Where a log's lines go: to standard error, which nobody waits for.

use std::io::{self, Write};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

/// The lines of a process's log on their way to standard error. A thread writes them; who does not read standard error
/// loses lines, and holds nobody up.
#[derive(Debug)]
pub struct LogLines {
    /// An empty line is the end.
    lines: SyncSender<Vec<u8>>,
    ended: Receiver<()>,
}

impl LogLines {
    /// Starts the thread. So many lines at most wait to be written; one more is lost.
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
                // Nobody reads it.
                let _lost = stderr.write_all(&line);
            }
            // Who waits may have given up.
            let _waited = end.send(());
        };
        thread::Builder::new().name("log".to_owned()).spawn(write)?;
        Ok(Self { lines, ended })
    }

    /// What a log writes to, one line at a time.
    #[must_use]
    pub fn writer(&self) -> LogWriter {
        LogWriter(self.lines.clone())
    }

    /// Writes what waits, as far as somebody reads it in this time.
    pub fn finish(self, limit: Duration) {
        if self.lines.try_send(Vec::new()).is_ok() {
            // A reader that takes nothing loses the last lines.
            let _lost = self.ended.recv_timeout(limit);
        }
    }
}

/// One end of [`LogLines`]: each write is a line, and none blocks or fails.
#[derive(Clone, Debug)]
pub struct LogWriter(SyncSender<Vec<u8>>);

impl Write for LogWriter {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        // Too many wait: this one is lost.
        let _lost = self.0.try_send(line.to_vec());
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
