//! A program that serves over its standard input and output until it is stopped.

use std::io;
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nix::sys::signal::Signal;
use tokio::io::AsyncReadExt as _;
use tokio::io::unix::AsyncFd;
use tokio::net::unix::pipe::{Receiver, Sender};
use tokio::sync::OnceCell;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::run::{exit_of, how_it_ended, pipes};
use super::spawner::{Program, Spawner};

/// Time that a server has to exit after the end of its input, and again after SIGTERM.
const GRACE: Duration = Duration::from_secs(1);

/// Time for the last lines of a server that has exited: a process that it started may keep the stream open.
const LAST_LINES: Duration = Duration::from_millis(200);

/// Bytes that are kept of the end of standard error; up to twice as many are held.
const ERROR_TAIL_BYTES: usize = 4 << 10;

/// A running server. Dropping it kills its process group.
#[derive(Debug)]
pub(crate) struct StdioServer {
    exited: AsyncFd<OwnedFd>,
    /// The program. None once it is reaped.
    program: Mutex<Option<Program>>,
    errors: Arc<Mutex<Vec<u8>>>,
    /// Cancelled at the end of standard error.
    said_all: CancellationToken,
    _reading: AbortOnDropHandle<()>,
    how_it_ended: OnceCell<String>,
}

impl StdioServer {
    /// Starts the server. The caller gets its standard output and input.
    pub(crate) async fn start(
        spawner: &Spawner,
        mut command: Command,
    ) -> io::Result<(Self, Receiver, Sender)> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut program = spawner.spawn(command).await?;
        let exited = exit_of(program.child())?;
        let (stdin, stdout, stderr) = pipes(program.child())?;
        let (errors, said_all) = (Arc::<Mutex<Vec<u8>>>::default(), CancellationToken::new());
        let reading = tokio::spawn(read_errors(stderr, errors.clone(), said_all.clone()));
        let server = Self {
            exited,
            program: Mutex::new(Some(program)),
            errors,
            said_all,
            _reading: AbortOnDropHandle::new(reading),
            how_it_ended: OnceCell::new(),
        };
        Ok((server, stdout, stdin))
    }

    /// Completes when the server has exited.
    pub(crate) async fn exited(&self) {
        // This fails only if the runtime ends.
        if let Ok(mut exited) = self.exited.readable().await {
            exited.retain_ready();
        }
    }

    /// The end of the server's standard error so far.
    pub(crate) fn said(&self) -> String {
        String::from_utf8_lossy(&locked(&self.errors)).into_owned()
    }

    /// Stops the server once its input is closed. It has time to exit, and again after SIGTERM; then its process group is killed.
    pub(crate) async fn stop(&self) {
        if timeout(GRACE, self.exited()).await.is_err() {
            if let Some(program) = &*locked(&self.program) {
                program.signal(Signal::SIGTERM);
            }
            let _too_slow = timeout(GRACE, self.exited()).await;
        }
        self.end().await;
    }

    /// Kills what is left of the server's process group, and reads the rest of its standard error.
    ///
    /// Returns how the server ended: a sentence without its subject.
    pub(crate) async fn end(&self) -> &str {
        let end = async || {
            let Some(program) = locked(&self.program).take() else { return "has ended".to_owned() };
            let status = program.end();
            let _kept_open = timeout(LAST_LINES, self.said_all.cancelled()).await;
            status.map_or_else(|error| format!("cannot be reaped: {error}"), how_it_ended)
        };
        self.how_it_ended.get_or_init(end).await
    }
}

async fn read_errors(mut stderr: Receiver, errors: Arc<Mutex<Vec<u8>>>, said_all: CancellationToken) {
    let mut piece = [0; 4 << 10];
    while let Ok(count @ 1..) = stderr.read(&mut piece).await {
        let mut errors = locked(&errors);
        errors.extend_from_slice(&piece[..count]);
        if errors.len() > 2 * ERROR_TAIL_BYTES {
            let surplus = errors.len() - ERROR_TAIL_BYTES;
            errors.drain(..surplus);
        }
    }
    said_all.cancel();
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
