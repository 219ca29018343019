//! The log, on standard error. Who does not read it loses lines, and holds nobody up.

use std::io::{self, Write};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

use crate::arguments::LogFormat;

/// Lines that wait to be written.
const LINES: usize = 4096;

/// How long the end waits for lines to be written.
const LAST_LINES: Duration = Duration::from_secs(1);

/// The running log.
pub(crate) struct Log {
    /// An empty line is the end.
    lines: SyncSender<Vec<u8>>,
    ended: Receiver<()>,
}

/// Starts the log, with a filter as in `RUST_LOG`.
pub(crate) fn start(format: LogFormat, filter: &str) -> Log {
    let (lines, written) = sync_channel::<Vec<u8>>(LINES);
    let (end, ended) = sync_channel(1);
    thread::spawn(move || {
        let mut stderr = io::stderr();
        for line in written.into_iter().take_while(|line| !line.is_empty()) {
            // Nobody reads it.
            let _lost = stderr.write_all(&line);
        }
        // Who waits may have given up.
        let _waited = end.send(());
    });
    let writer = Lines(lines.clone());
    let builder = tracing_subscriber::fmt().with_env_filter(EnvFilter::new(filter)).with_writer(writer);
    let builder = builder.with_target(false);
    match format {
        LogFormat::Text => builder.init(),
        LogFormat::Json => builder.json().flatten_event(true).init(),
    }
    Log { lines, ended }
}

impl Log {
    /// Writes what waits, for a second at most.
    pub(crate) fn finish(self) {
        if self.lines.try_send(Vec::new()).is_ok() {
            // A reader that takes nothing loses the last lines.
            let _lost = self.ended.recv_timeout(LAST_LINES);
        }
    }
}

#[derive(Clone)]
struct Lines(SyncSender<Vec<u8>>);

impl<'a> MakeWriter<'a> for Lines {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

impl Write for Lines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        // Full: the line is lost.
        let _lost = self.0.try_send(line.to_vec());
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
