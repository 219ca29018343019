//! A fork server for Python sessions, which ends with its owner.

use std::ffi::OsString;
use std::io::Read as _;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, poll};
use rlm_core::{env, ids, sys};

/// Longest wait for the fork server to end after its last session. It ends by itself later.
const END_LIMIT: Duration = Duration::from_secs(1);

/// A fork server that cannot be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ForkServerError {
    /// The worker program cannot be run.
    #[error("cannot start a fork server")]
    Spawn(#[source] std::io::Error),
    /// It ended before it was ready.
    #[error("{0}")]
    NotReady(String),
    /// It was not ready in time.
    #[error("the fork server was not ready within {} s", .0.as_secs_f64())]
    TimedOut(Duration),
}

/// A process from which workers for Python get their interpreters, with modules imported, in place of starting them.
///
/// Give sessions [`Self::variable`] in their environment. A session that cannot come from it starts as without one, and says why in its
/// log. Dropping it ends it after its last session.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use rlm_env::session::for_workers;
/// use rlm_env::{ForkServer, Session, SessionConfig};
///
/// let env = for_workers(&std::env::vars_os().collect::<Vec<_>>());
/// let server = ForkServer::start("rlm-worker-python".as_ref(), &env, &["numpy"])?;
/// let env = env.into_iter().chain([server.variable()]).collect();
/// let session = Session::start(SessionConfig { env, ..SessionConfig::new("rlm-worker-python", "/data") }).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct ForkServer {
    name: String,
    child: Child,
    /// Its end of file ends the fork server.
    owner: Option<ChildStdin>,
}

impl ForkServer {
    /// Time limit of a start.
    const START_LIMIT: Duration = Duration::from_secs(60);

    /// Starts the fork server of a worker program, with the environment of workers, which names the Python, and waits until it has
    /// imported these modules.
    ///
    /// # Errors
    /// [`ForkServerError`], which says which module cannot be imported.
    pub fn start(
        worker: &Path,
        variables: &[(OsString, OsString)],
        preload: &[impl AsRef<str>],
    ) -> Result<Self, ForkServerError> {
        let name = format!("rlm-{}", ids::unique().map_err(ForkServerError::Spawn)?);
        let preload: Vec<&str> = preload.iter().map(AsRef::as_ref).collect();
        let mut child = Command::new(worker)
            // It writes `ready` to its standard output.
            .args(["--fork-server", &name, "--ready-fd", "1"])
            .env_clear()
            .envs(variables.iter().map(|(name, value)| (name, value)))
            .env(env::PYTHON_PRELOAD, preload.join(","))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .map_err(ForkServerError::Spawn)?;
        let (owner, ready, errors) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let mut server = Self { name, child, owner };
        let mut ready = ready.ok_or_else(|| ForkServerError::NotReady(String::new()))?;
        if !is_readable(&ready, Self::START_LIMIT) {
            // It may hang in a module.
            let _ended_already = server.child.kill();
            return Err(ForkServerError::TimedOut(Self::START_LIMIT));
        }
        if ready.read(&mut [0; 16]).is_ok_and(|count| count > 0) {
            return Ok(server);
        }
        let mut words = String::new();
        if let Some(mut errors) = errors {
            let _unreadable = errors.read_to_string(&mut words);
        }
        let status = server.child.wait().map_or_else(|error| error.to_string(), |status| status.to_string());
        let ended = || format!("the fork server ended before it was ready ({status})");
        Err(ForkServerError::NotReady(if words.trim().is_empty() {
            ended()
        } else {
            words.trim().to_owned()
        }))
    }

    /// The variable of workers that names the fork server.
    #[must_use]
    pub fn variable(&self) -> (OsString, OsString) {
        (env::FORK_SERVER_NAME.into(), self.name.clone().into())
    }

    /// Process id of the fork server.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for ForkServer {
    fn drop(&mut self) {
        self.owner = None;
        let pid = nix::unistd::Pid::from_raw(i32::try_from(self.child.id()).unwrap_or(0));
        if sys::pidfd(pid).is_ok_and(|process| is_readable(&process, END_LIMIT)) {
            let _reaped = self.child.wait();
        }
    }
}

/// True once a descriptor can be read, or has ended. False after the limit.
fn is_readable(fd: &impl AsFd, limit: Duration) -> bool {
    let deadline = Instant::now() + limit;
    loop {
        let mut fds = [PollFd::new(fd.as_fd(), PollFlags::POLLIN)];
        match poll(&mut fds, sys::timeout_until(Some(deadline))) {
            Ok(0) => return false,
            Err(nix::errno::Errno::EINTR) => {}
            _ => return true,
        }
    }
}
