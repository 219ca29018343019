//! How a call is stopped: from rung to rung, gently first.

use std::time::{Duration, Instant};

use crate::protocol::Outcome;

/// A call that is being stopped. What a rung does is the worker's own; this knows which one is due, and when.
#[derive(Debug)]
pub struct Ladder<R: 'static> {
    /// Why: the outcome of the call.
    pub cause: Outcome,
    /// When the next rung is due.
    pub next: Instant,
    rungs: &'static [(R, Duration)],
    taken: usize,
}

impl<R: Copy> Ladder<R> {
    /// A ladder where a call has to be stopped: it was interrupted, or its time is up. The rungs, one at least, come with
    /// how long the call has to end after each.
    #[must_use]
    pub fn start(
        rungs: &'static [(R, Duration)],
        is_interrupted: bool,
        time_is_up: Option<Instant>,
    ) -> Option<Self> {
        let now = Instant::now();
        let cause = if is_interrupted {
            Outcome::Interrupted
        } else if time_is_up.is_some_and(|limit| now >= limit) {
            Outcome::TimedOut
        } else {
            return None;
        };
        Some(Self { cause, next: now, rungs, taken: 0 })
    }

    /// Takes the next rung; the last one again and again.
    pub fn take(&mut self) -> R {
        let (rung, pause) = self.rungs[self.taken.min(self.rungs.len() - 1)];
        self.taken += 1;
        self.next = Instant::now() + pause;
        rung
    }

    /// Whether every rung has been taken.
    #[must_use]
    pub fn is_at_end(&self) -> bool {
        self.taken >= self.rungs.len()
    }
}
