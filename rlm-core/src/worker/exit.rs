//! The reasons why a worker ends.

use nix::errno::Errno;
use nix::sys::signal::Signal;

/// The reason why a worker ends.
#[derive(Debug, thiserror::Error)]
pub enum Exit {
    /// SIGTERM, SIGHUP or SIGQUIT.
    #[error("ended by {0}")]
    Signalled(Signal),
    /// The process named by `RLM_HOST_PID` is gone.
    #[error("ended because the host is gone")]
    HostGone,
    /// The host sent `{{"shutdown": true}}`.
    #[error("ended by the host's request")]
    Shutdown,
    /// The worker can no longer serve: its files, its interpreter or the system failed.
    #[error("cannot continue")]
    Failed(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl Exit {
    /// An [`Exit::Failed`] with this cause.
    pub fn failed(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Failed(error.into())
    }

    /// True if no process or thread could be started, since the session has as many as it may.
    #[must_use]
    pub fn is_for_want_of_a_process(&self) -> bool {
        let Self::Failed(error) = self else { return false };
        let mut causes =
            std::iter::successors(Some(&**error as &dyn std::error::Error), |error| error.source());
        causes.any(|error| {
            error.downcast_ref().map(std::io::Error::kind) == Some(std::io::ErrorKind::WouldBlock)
        })
    }
}

impl From<Errno> for Exit {
    fn from(errno: Errno) -> Self {
        Self::failed(std::io::Error::from(errno))
    }
}
