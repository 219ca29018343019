//! The process on whose behalf a program runs, and with which it ends.

use std::os::fd::OwnedFd;

use nix::errno::Errno;
use nix::unistd::Pid;
use rlm_core::env::HOST_PID;
use rlm_core::sys::pidfd;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// The process that `RLM_HOST_PID` names.
#[derive(Debug)]
pub struct HostProcess {
    /// None: it had ended before.
    pidfd: Option<OwnedFd>,
}

/// The variable does not name a process.
#[derive(Debug, thiserror::Error)]
#[error("{HOST_PID} is {value:?}, expected a process id{reason}")]
pub struct BadHostPid {
    value: String,
    reason: String,
}

impl HostProcess {
    /// The process with this id, which may have ended.
    ///
    /// # Errors
    /// [`BadHostPid`].
    pub fn new(value: &str) -> Result<Self, BadHostPid> {
        let bad = |reason| BadHostPid { value: value.to_owned(), reason };
        let pid = value.parse::<i32>().ok().filter(|pid| *pid > 0).ok_or_else(|| bad(String::new()))?;
        match pidfd(Pid::from_raw(pid)) {
            Ok(pidfd) => Ok(Self { pidfd: Some(pidfd) }),
            Err(Errno::ESRCH) => Ok(Self { pidfd: None }),
            Err(errno) => Err(bad(format!(": {errno}"))),
        }
    }

    /// Completes when it has ended.
    ///
    /// # Panics
    /// Outside a runtime with I/O.
    pub async fn ended(self) {
        let Some(pidfd) = self.pidfd else { return };
        // SAFETY: the descriptor is open, and stays so: nothing but `watched` owns it.
        let watched = unsafe { AsyncFd::register_with_interest(pidfd, Interest::READABLE) };
        let watched = watched.expect("a runtime with I/O can watch it");
        let _readable = watched.readable().await;
    }
}
