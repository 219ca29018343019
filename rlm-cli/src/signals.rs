//! Signals that end the command. They are caught so that the session ends first and its directory is removed.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Exit status after Ctrl-C.
pub(crate) const INTERRUPTED: u8 = 128 + 2;

/// A stream of SIGTERM, SIGHUP and SIGQUIT.
#[derive(Debug)]
pub(crate) struct EndSignals {
    terminate: Signal,
    hang_up: Signal,
    quit: Signal,
}

impl EndSignals {
    pub(crate) fn catch() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            hang_up: signal(SignalKind::hangup())?,
            quit: signal(SignalKind::quit())?,
        })
    }

    /// Completes at the next signal, with the exit status for it.
    pub(crate) async fn next(&mut self) -> u8 {
        let kind = tokio::select! {
            _ = self.terminate.recv() => SignalKind::terminate(),
            _ = self.hang_up.recv() => SignalKind::hangup(),
            _ = self.quit.recv() => SignalKind::quit(),
        };
        128 + u8::try_from(kind.as_raw_value()).unwrap_or(0)
    }
}

/// [`EndSignals`] and Ctrl-C. Those that come before anybody waits are kept.
#[derive(Debug)]
pub(crate) struct AnyEndSignal {
    pub(crate) ends: EndSignals,
    interrupts: Signal,
}

impl AnyEndSignal {
    pub(crate) fn catch() -> io::Result<Self> {
        Ok(Self { ends: EndSignals::catch()?, interrupts: signal(SignalKind::interrupt())? })
    }

    /// Completes at the next signal, with the exit status for it.
    pub(crate) async fn next(&mut self) -> u8 {
        tokio::select! {
            status = self.ends.next() => status,
            _ = self.interrupts.recv() => INTERRUPTED,
        }
    }
}

/// Completes at the next Ctrl-C. If the signal cannot be caught, it never completes, and Ctrl-C ends the program.
pub(crate) async fn interrupted() {
    if tokio::signal::ctrl_c().await.is_err() {
        std::future::pending::<()>().await;
    }
}
