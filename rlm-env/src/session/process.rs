//! The worker's process. One value owns it, ends it and reaps it.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::{Read, Seek, SeekFrom};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::libc;
use nix::poll::{PollFd, PollFlags, poll};
use nix::sys::signal::Signal;
use nix::unistd::Pid;
use rlm_core::control::ControlDir;
use rlm_core::limits::SHUTDOWN_LIMIT;
use rlm_core::sys;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::time::timeout;

use super::error::{SessionError, io_error};

/// Bytes of a log's end that are quoted.
const LOG_TAIL_BYTES: u64 = 2048;

/// Time beyond the worker's own limit for ending, after which it is killed.
const END_MARGIN: Duration = Duration::from_millis(500);

#[derive(Debug)]
pub(super) struct WorkerProcess {
    child: Child,
    pidfd: Arc<AsyncFd<OwnedFd>>,
    status: Option<ExitStatus>,
}

impl WorkerProcess {
    /// Starts the program and waits until it reports that it is ready.
    pub(super) async fn start(
        worker: &Path,
        arguments: &[OsString],
        control: &Path,
        env: &[(OsString, OsString)],
        limit: Duration,
    ) -> Result<Self, SessionError> {
        let mut child = Command::new(worker)
            .arg("--control-dir")
            .arg(control)
            // The worker writes the byte that says "ready" to its standard output.
            .args(["--ready-fd", "1"])
            .args(arguments)
            .env_clear()
            .envs(env.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // Ctrl-C at our terminal is for us; the host passes it on as an interrupt if it wants to.
            .process_group(0)
            .spawn()
            .map_err(|source| SessionError::Spawn { worker: worker.to_owned(), source })?;
        let pid = Pid::from_raw(i32::try_from(child.id()).unwrap_or(0));
        let watch = sys::pidfd(pid).map_err(std::io::Error::from);
        let watch = watch.and_then(|fd| watch_fd(fd, Interest::READABLE));
        let watch = match watch {
            Ok(watch) => watch,
            Err(error) => {
                // The descriptor could not be watched, so end the process here.
                let _ended_already = child.kill();
                let _reaped = child.wait();
                return Err(io_error("watch the worker")(error));
            }
        };
        let ready = child.stdout.take();
        let errors = child.stderr.take();
        let mut process = Self { child, pidfd: Arc::new(watch), status: None };
        let is_ready = match timeout(limit, wait_ready(ready)).await {
            Ok(is_ready) => is_ready?,
            Err(_elapsed) => {
                process.end();
                return Err(SessionError::StartTimedOut(limit));
            }
        };
        if is_ready {
            return Ok(process);
        }
        process.end();
        let mut words = String::new();
        if let Some(errors) = errors {
            // The worker is dead, so this read ends. A read error does not matter next to the one we report.
            let _unreadable = errors.take(LOG_TAIL_BYTES).read_to_string(&mut words);
        }
        let words = words.trim().to_owned();
        Err(SessionError::NotReady { status: process.status_text(), words })
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(super) fn interrupter(&self) -> Interrupter {
        Interrupter { pidfd: Arc::clone(&self.pidfd) }
    }

    /// Waits until the process is dead. Cancel-safe.
    pub(super) async fn died(&self) {
        // The descriptor stays readable once the process is dead. An error means that the runtime is shutting down.
        let _ready = self.pidfd.readable().await;
    }

    pub(super) fn is_dead(&self) -> bool {
        wait_dead(&self.pidfd, Duration::ZERO)
    }

    /// Ends the process if needed, and returns its death as an error.
    pub(super) fn death(&mut self, control: &ControlDir) -> SessionError {
        self.end();
        let log_tail = log_tail(&control.log_file()).unwrap_or_default();
        SessionError::Died { status: self.status_text(), log_tail: log_tail.trim().to_owned() }
    }

    /// Ends the process and everything it started, and reaps it: SIGTERM, then SIGKILL. Safe to repeat.
    pub(super) fn end(&mut self) {
        for (signal, limit) in
            [(Signal::SIGTERM, SHUTDOWN_LIMIT + END_MARGIN), (Signal::SIGKILL, Duration::MAX)]
        {
            if self.status.is_some() {
                return;
            }
            sys::signal_process(self.pidfd.get_ref(), signal);
            // A stopped process handles no signal until it is continued.
            sys::signal_process(self.pidfd.get_ref(), Signal::SIGCONT);
            if wait_dead(&self.pidfd, limit) {
                self.status = self.child.wait().ok();
            }
        }
    }

    pub(super) fn ended_well(&mut self) -> bool {
        self.end();
        self.status.is_some_and(|status| status.success())
    }

    fn status_text(&self) -> String {
        self.status.map_or_else(|| "no status".to_owned(), |status| status.to_string())
    }
}

impl Drop for WorkerProcess {
    fn drop(&mut self) {
        self.end();
    }
}

/// Interrupts the running call of a session. Outlives the session and is then harmless.
#[derive(Clone, Debug)]
pub struct Interrupter {
    pidfd: Arc<AsyncFd<OwnedFd>>,
}

impl Interrupter {
    /// Interrupts the running call: it returns with outcome `interrupted` and its output so far, and the session stays
    /// usable. Does nothing while no call is running.
    pub fn interrupt(&self) {
        sys::signal_process(self.pidfd.get_ref(), Signal::SIGINT);
    }
}

/// Registers a descriptor with the runtime.
pub(super) fn watch_fd<T: AsRawFd>(inner: T, interest: Interest) -> std::io::Result<AsyncFd<T>>
where
    OwnedFd: From<T>,
{
    // SAFETY: a type that converts into OwnedFd owns one descriptor, keeps it open and never exchanges it.
    Ok(unsafe { AsyncFd::register_with_interest(inner, interest) }?)
}

fn wait_dead(pidfd: &AsyncFd<OwnedFd>, limit: Duration) -> bool {
    let deadline = Instant::now().checked_add(limit);
    loop {
        let mut fds = [PollFd::new(pidfd.get_ref().as_fd(), PollFlags::POLLIN)];
        if poll(&mut fds, sys::timeout_until(deadline)).is_ok_and(|ready| ready > 0) {
            return true;
        }
        if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            return false;
        }
    }
}

/// True when the worker reports that it is ready; false when it ends without doing so.
async fn wait_ready(pipe: Option<std::process::ChildStdout>) -> Result<bool, SessionError> {
    let Some(pipe) = pipe else { return Ok(false) };
    let pipe = tokio::net::unix::pipe::Receiver::from_owned_fd(pipe.into())
        .map_err(io_error("wait for the worker"))?;
    let mut byte = [0; 1];
    loop {
        pipe.readable().await.map_err(io_error("wait for the worker"))?;
        match pipe.try_read(&mut byte) {
            Ok(count) => return Ok(count > 0),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(io_error("wait for the worker")(error)),
        }
    }
}

fn log_tail(path: &Path) -> std::io::Result<String> {
    // The session may have replaced this file; do not block on it or follow it.
    let flags = libc::O_NONBLOCK | libc::O_NOFOLLOW;
    let mut file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Ok(String::new());
    }
    let length = metadata.len();
    file.seek(SeekFrom::Start(length.saturating_sub(LOG_TAIL_BYTES)))?;
    let mut tail = Vec::new();
    file.take(LOG_TAIL_BYTES).read_to_end(&mut tail)?;
    Ok(String::from_utf8_lossy(&tail).into_owned())
}
