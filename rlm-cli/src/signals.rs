//! Signals that end the command. They are caught so that the session, and its directory, are ended first.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// SIGTERM, SIGHUP and SIGQUIT, from now on.
#[derive(Debug)]
pub(crate) struct Ends {
    terminate: Signal,
    hang_up: Signal,
    quit: Signal,
}

impl Ends {
    pub(crate) fn catch() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            hang_up: signal(SignalKind::hangup())?,
            quit: signal(SignalKind::quit())?,
        })
    }

    /// Completes when one of them comes, with the exit status that goes with it.
    pub(crate) async fn come(&mut self) -> u8 {
        let kind = tokio::select! {
            _ = self.terminate.recv() => SignalKind::terminate(),
            _ = self.hang_up.recv() => SignalKind::hangup(),
            _ = self.quit.recv() => SignalKind::quit(),
        };
        128 + u8::try_from(kind.as_raw_value()).unwrap_or(0)
    }
}

/// Completes at the next Ctrl-C. Where the signal cannot be had, it never does, and Ctrl-C ends the program.
pub(crate) async fn interrupted() {
    if tokio::signal::ctrl_c().await.is_err() {
        std::future::pending::<()>().await;
    }
}
