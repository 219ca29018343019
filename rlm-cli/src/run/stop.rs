//! Signals that end rollouts.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::signals::EndSignals;

/// A request to end, made by a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    /// End after the running call.
    Stop,
    /// End at once, with this exit status.
    Cancel(u8),
}

/// A stream of requests from Ctrl-C and the signals that end the command.
#[derive(Debug)]
pub(crate) struct Requests {
    interrupts: Signal,
    ends: EndSignals,
    is_stopping: bool,
}

impl Requests {
    pub(crate) fn catch() -> io::Result<Self> {
        Ok(Self {
            interrupts: signal(SignalKind::interrupt())?,
            ends: EndSignals::catch()?,
            is_stopping: false,
        })
    }

    /// Completes at the next signal. The first Ctrl-C stops, each further one cancels. Cancel-safe.
    pub(crate) async fn next(&mut self) -> Request {
        tokio::select! {
            status = self.ends.next() => Request::Cancel(status),
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
