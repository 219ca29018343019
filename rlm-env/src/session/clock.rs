//! The clock of a session's calls, which can stand still.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rlm_core::control::ControlDir;
use rlm_core::protocol;
use rlm_core::sys::monotonic;

/// The clock by which the time limit of a call is measured. It stands still while the host works for the call within a limit of
/// its own, as for a child that the call has started. Clones are the same clock.
#[derive(Clone, Debug, Default)]
pub struct CallClock(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    /// The directory in which the worker looks.
    control: Option<ControlDir>,
    /// Number of calls for which the clock stands still.
    waiting: usize,
    stood_still: Duration,
    /// Time at which the clock began to stand still, on `CLOCK_MONOTONIC`.
    since: Option<Duration>,
}

impl CallClock {
    /// The clock for the worker of this directory.
    pub(super) fn attach(&self, control: &ControlDir) {
        self.state().control = Some(control.clone());
    }

    /// Begins a call.
    pub(super) fn begin(&self) {
        let mut state = self.state();
        if state.stood_still > Duration::ZERO || state.since.is_some() {
            state.stood_still = Duration::ZERO;
            state.since = (state.waiting > 0).then(monotonic);
            state.tell();
        }
    }

    /// The time that the running call's clock has stood still.
    pub(super) fn stood_still(&self) -> Duration {
        self.state().until_now()
    }

    /// Lets the clock stand still until the result is dropped.
    pub fn stand_still(&self) -> StandStill {
        let mut state = self.state();
        state.waiting += 1;
        if state.waiting == 1 {
            state.since = Some(monotonic());
            state.tell();
        }
        StandStill(self.clone())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn until_now(&self) -> Duration {
        self.stood_still + self.since.map_or(Duration::ZERO, |since| monotonic().saturating_sub(since))
    }

    /// Tells the worker, which looks when the time of the call is up.
    fn tell(&self) {
        let stands = protocol::CallClock {
            stood_still: self.stood_still.as_secs_f64(),
            since: self.since.map(|since| since.as_secs_f64()),
        };
        let stands = (stands != protocol::CallClock::default()).then_some(stands);
        let Some(control) = &self.control else { return };
        if let Err(error) = control.write_clock(stands.as_ref())
            && control.path().exists()
        {
            // The call may reach its limit too early, which its response says. Without the directory the session has ended.
            tracing::warn!(%error, "the worker cannot be told that the clock of a call stands still");
        }
    }
}

/// Lets the clock of the calls stand still, until it is dropped.
#[derive(Debug)]
#[must_use = "the clock goes on when this is dropped"]
pub struct StandStill(CallClock);

impl Drop for StandStill {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.waiting -= 1;
        if state.waiting == 0 {
            state.stood_still = state.until_now();
            state.since = None;
            state.tell();
        }
    }
}
