//! Signals that end rollouts.

use std::io;
use std::pin::Pin;

use crate::signals::{AnyEndSignal, INTERRUPTED};

/// A request to end, made by a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    /// End after the running call.
    Stop,
    /// End at once, with this exit status.
    Cancel(u8),
}

impl Request {
    /// The exit status of a command that ends before it began its work.
    pub(crate) fn status(self) -> u8 {
        match self {
            Self::Stop => INTERRUPTED,
            Self::Cancel(status) => status,
        }
    }
}

/// A stream of requests from Ctrl-C and the signals that end the command.
pub(crate) struct Requests {
    signals: AnyEndSignal,
    is_stopping: bool,
    /// Completes when the command has lost what it works for, and then is gone.
    loss: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl Requests {
    pub(crate) fn catch() -> io::Result<Self> {
        Ok(Self { signals: AnyEndSignal::catch()?, is_stopping: false, loss: None })
    }

    /// Cancels also when this completes.
    pub(crate) fn until(mut self, loss: impl Future<Output = ()> + Send + 'static) -> Self {
        self.loss = Some(Box::pin(loss));
        self
    }

    /// Makes the next Ctrl-C the first again.
    pub(crate) fn begin_again(&mut self) {
        self.is_stopping = false;
    }

    /// Completes at the next signal or loss. The first Ctrl-C stops, each further one cancels. Cancel-safe.
    pub(crate) async fn next(&mut self) -> Request {
        tokio::select! {
            status = self.signals.next() => match status {
                INTERRUPTED if !std::mem::replace(&mut self.is_stopping, true) => Request::Stop,
                status => Request::Cancel(status),
            },
            () = lost(&mut self.loss) => {
                self.loss = None;
                Request::Cancel(crate::ENVIRONMENT_ERROR)
            }
        }
    }
}

async fn lost(loss: &mut Option<Pin<Box<dyn Future<Output = ()> + Send>>>) {
    match loss {
        Some(loss) => loss.await,
        None => std::future::pending().await,
    }
}
