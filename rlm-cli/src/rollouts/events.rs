//! `--events`: everything that happens, as JSON lines on standard output, for a program that drives the command.

use std::io::{self, Write as _};
use std::os::fd::AsFd as _;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, bail};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rlm_core::jsonl;
use rlm_env::trajectory::{Entry, Sink};
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use super::{Request, Requests};
use crate::evaluation::RunResult;
use crate::lock::lock;

/// Writes entries and results to standard output, in a thread of its own: a slow reader delays no rollout.
#[derive(Debug)]
pub(crate) struct Events {
    lines: Mutex<Option<Sender<Vec<u8>>>>,
    thread: Mutex<Option<JoinHandle<io::Result<()>>>>,
    closed: CancellationToken,
}

/// The result of a rollout, in the form of an entry.
#[derive(Serialize)]
struct ResultLine<'a> {
    rollout: &'a str,
    time: f64,
    event: &'static str,
    result: &'a RunResult,
}

impl Events {
    pub(crate) fn start() -> io::Result<Self> {
        let (lines, received) = channel();
        let closed = CancellationToken::new();
        let token = closed.clone();
        let write = move || write(&received).inspect_err(|_| token.cancel());
        let thread = thread::Builder::new().name("rlm-events".to_owned()).spawn(write)?;
        let token = closed.clone();
        // The thread ends with the process.
        let watch = move || {
            wait_for_close();
            token.cancel();
        };
        thread::Builder::new().name("rlm-events-end".to_owned()).spawn(watch)?;
        Ok(Self { lines: Mutex::new(Some(lines)), thread: Mutex::new(Some(thread)), closed })
    }

    /// Completes once nobody reads standard output any more.
    pub(crate) async fn closed(&self) {
        self.closed.cancelled().await;
    }

    /// Adds the result of a rollout. It comes after its entries.
    pub(crate) fn result(&self, result: &RunResult) {
        let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        self.add(&ResultLine { rollout: &result.rollout.id, time, event: "result", result });
    }

    /// Waits until everything is read, or until a request or a loss cancels.
    pub(crate) async fn finish(&self, requests: &mut Requests) -> anyhow::Result<()> {
        drop(lock(&self.lines).take());
        let Some(thread) = lock(&self.thread).take() else {
            return Ok(());
        };
        let mut joined = tokio::task::spawn_blocking(|| thread.join());
        loop {
            tokio::select! {
                written = &mut joined => {
                    let written = written?.unwrap_or_else(|_panicked| Err(io::Error::other("its thread panicked")));
                    return written.context("cannot write to standard output");
                }
                request = requests.next() => match request {
                    Request::Stop => {}
                    Request::Cancel(_) => bail!("standard output was not read to its end"),
                }
            }
        }
    }

    fn add(&self, line: &impl Serialize) {
        let line = jsonl::line(line).expect("entries and results can be JSON");
        if let Some(lines) = &*lock(&self.lines) {
            // Without a reader, the command is about to end.
            let _closed = lines.send(line);
        }
    }
}

impl Sink for Events {
    fn entry(&self, entry: &Entry) {
        self.add(entry);
    }
}

/// Returns once nobody can read standard output any more. Never, if it is a file.
fn wait_for_close() {
    let output = io::stdout();
    loop {
        // Errors and hang-ups are always reported.
        let mut fds = [PollFd::new(output.as_fd(), PollFlags::empty())];
        let polled = poll(&mut fds, PollTimeout::NONE);
        if polled.is_ok() && fds[0].revents().is_some_and(|events| !events.is_empty()) {
            return;
        }
    }
}

fn write(lines: &Receiver<Vec<u8>>) -> io::Result<()> {
    let mut output = io::stdout().lock();
    for line in lines {
        output.write_all(&line)?;
        output.flush()?;
    }
    Ok(())
}
