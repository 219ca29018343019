//! The ladder by which a call is stopped: rung by rung, gently first.

use std::time::{Duration, Instant};

use crate::protocol::Outcome;

/// A call that is being stopped. The ladder decides which rung is due and when; the interpreter carries it out.
#[derive(Debug)]
pub struct Ladder<R: 'static> {
    /// Reason for the stop: the outcome of the call.
    pub cause: Outcome,
    /// Time at which the next rung is due.
    pub next: Instant,
    rungs: &'static [(R, Duration)],
    taken: usize,
}

impl<R: Copy> Ladder<R> {
    /// Starts a ladder if a call must be stopped: it was interrupted, or its time limit has passed. Each rung (there
    /// must be at least one) has the time that the call is given to end after it.
    #[must_use]
    pub fn start(
        rungs: &'static [(R, Duration)],
        is_interrupted: bool,
        time_is_up: Option<Instant>,
        now: Instant,
    ) -> Option<Self> {
        let cause = if is_interrupted {
            Outcome::Interrupted
        } else if time_is_up.is_some_and(|limit| now >= limit) {
            Outcome::TimedOut
        } else {
            return None;
        };
        Some(Self { cause, next: now, rungs, taken: 0 })
    }

    /// Takes the next rung; repeats the last one.
    pub fn take(&mut self, now: Instant) -> R {
        let (rung, pause) = self.rungs[self.taken.min(self.rungs.len() - 1)];
        self.taken += 1;
        self.next = now + pause;
        rung
    }

    /// True once every rung has been taken.
    #[must_use]
    pub fn is_at_end(&self) -> bool {
        self.taken >= self.rungs.len()
    }
}
