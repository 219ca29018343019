//! The log, on standard error. A client that does not read it loses lines, and holds nothing up.

use std::io::{self, Write};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use anyhow::Context;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

/// Lines that may wait to be written.
const LINES: usize = 1024;

/// How long the end waits for the last lines.
const LAST_LINES: Duration = Duration::from_millis(200);

/// The running log.
#[derive(Debug)]
pub(super) struct Log {
    /// An empty line is the end.
    lines: SyncSender<Vec<u8>>,
    ended: Receiver<()>,
}

/// Starts the log, with a filter as in `RUST_LOG`.
pub(super) fn start(filter: &str) -> anyhow::Result<Log> {
    let filter =
        EnvFilter::try_new(filter).with_context(|| format!("cannot use the log filter `{filter}`"))?;
    let (lines, waiting) = sync_channel::<Vec<u8>>(LINES);
    let (end, ended) = sync_channel(1);
    let write = move || {
        let mut errors = io::stderr();
        for line in waiting.into_iter().take_while(|line| !line.is_empty()) {
            // Nobody reads it.
            let _lost = errors.write_all(&line);
        }
        // The end may not have waited so long.
        let _gone = end.send(());
    };
    std::thread::Builder::new().name("log".to_owned()).spawn(write).context("cannot start the log")?;
    let writer = Lines(lines.clone());
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_target(false)
        .with_ansi(false)
        .with_writer(writer)
        .init();
    Ok(Log { lines, ended })
}

impl Log {
    /// Writes what waits, as far as somebody reads it.
    pub(super) fn finish(self) {
        if self.lines.try_send(Vec::new()).is_ok() {
            // Who does not read loses the last lines.
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
        // Too many wait: this one is lost.
        let _lost = self.0.try_send(line.to_vec());
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
