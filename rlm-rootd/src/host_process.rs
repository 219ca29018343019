//! The process on whose behalf a program runs, and with which it ends.

use std::os::fd::OwnedFd;

use nix::errno::Errno;
use nix::unistd::Pid;
use rlm_core::env::HOST_PID;
use rlm_core::sys::pidfd;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// The process that `RLM_HOST_PID` names, if any.
#[derive(Debug)]
pub enum HostProcess {
    /// The variable is not set.
    None,
    /// The process has ended.
    Ended,
    /// The process was there when it was looked for: its descriptor.
    Running(OwnedFd),
}

/// The variable does not name a process.
#[derive(Debug, thiserror::Error)]
#[error("{HOST_PID} is {value:?}, expected a process id{reason}")]
pub struct BadHostPid {
    value: String,
    reason: String,
}

impl HostProcess {
    /// The process that this value of the variable names.
    ///
    /// # Errors
    /// [`BadHostPid`].
    pub fn new(value: Option<&str>) -> Result<Self, BadHostPid> {
        let Some(value) = value else { return Ok(Self::None) };
        let bad = |reason| BadHostPid { value: value.to_owned(), reason };
        let pid = value.parse::<i32>().ok().filter(|pid| *pid > 0).ok_or_else(|| bad(String::new()))?;
        match pidfd(Pid::from_raw(pid)) {
            Ok(pidfd) => Ok(Self::Running(pidfd)),
            Err(Errno::ESRCH) => Ok(Self::Ended),
            Err(errno) => Err(bad(format!(": {errno}"))),
        }
    }

    /// Completes when the process has ended. Without a process, it never does.
    ///
    /// # Panics
    /// Outside a runtime with I/O.
    pub async fn ended(self) {
        let pidfd = match self {
            Self::None => return std::future::pending().await,
            Self::Ended => return,
            Self::Running(pidfd) => pidfd,
        };
        // SAFETY: the descriptor is open, and stays so: nothing but `watched` owns it.
        let watched = unsafe { AsyncFd::register_with_interest(pidfd, Interest::READABLE) };
        let watched = watched.expect("a runtime with I/O can watch it");
        let _readable = watched.readable().await;
    }
}
