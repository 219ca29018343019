//! Stopping the work of a call that is over.

use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Instant;

/// Tells worker threads when a call is over: cancelled, or past its deadline.
#[derive(Clone, Debug)]
pub(super) struct Stop {
    is_cancelled: Arc<AtomicBool>,
    deadline: Instant,
}

/// Cancels the work on drop.
#[derive(Debug)]
pub(super) struct CancelOnDrop(Arc<AtomicBool>);

/// The call is over: it was cancelled, or its time is up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("stopped")]
pub(super) struct Stopped;

impl Stop {
    pub(super) fn at(deadline: Instant) -> Self {
        Self { is_cancelled: Arc::default(), deadline }
    }

    pub(super) fn cancel_on_drop(&self) -> CancelOnDrop {
        CancelOnDrop(self.is_cancelled.clone())
    }

    pub(super) fn check(&self) -> Result<(), Stopped> {
        if self.is_cancelled.load(Relaxed) || Instant::now() >= self.deadline { Err(Stopped) } else { Ok(()) }
    }
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// A reader that fails once the call is over.
#[derive(Debug)]
pub(super) struct Stoppable<'a, R> {
    pub(super) inner: R,
    pub(super) stop: &'a Stop,
}

impl<R: Read> Read for Stoppable<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.stop.check().map_err(io::Error::other)?;
        self.inner.read(buffer)
    }
}

/// True if a read failed because the call is over.
pub(super) fn is_stopped(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<Stopped>())
}
