//! Signals that end rollouts.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::signals::Ends;

/// What a signal asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    /// End after the call that runs.
    Stop,
    /// End at once, with this exit status.
    Cancel(u8),
}

/// Ctrl-C and the signals that end the command, from now on.
#[derive(Debug)]
pub(crate) struct Requests {
    interrupts: Signal,
    ends: Ends,
    is_stopping: bool,
}

impl Requests {
    pub(crate) fn catch() -> io::Result<Self> {
        Ok(Self { interrupts: signal(SignalKind::interrupt())?, ends: Ends::catch()?, is_stopping: false })
    }

    /// Completes when the next one comes. The first Ctrl-C stops, each further one cancels. May be dropped and asked again.
    pub(crate) async fn next(&mut self) -> Request {
        tokio::select! {
            status = self.ends.come() => Request::Cancel(status),
            _ = self.interrupts.recv() => {
                if std::mem::replace(&mut self.is_stopping, true) {
                    Request::Cancel(128 + 2)
                } else {
                    Request::Stop
                }
            }
        }
    }
}
