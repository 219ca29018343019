//! The time limits of a rollout.

use std::future::Future;
use std::time::{Duration, Instant};

/// The time for a model's answer where the rollout has no limit: 30 years. Its requests have a limit on silence.
const NEVER: Duration = Duration::from_secs(30 * 365 * 86_400);

/// The last turn gets this fraction of a rollout's time (1/10), within these bounds.
const LAST_TURN_PART: u32 = 10;
const LAST_TURN_AT_LEAST: Duration = Duration::from_millis(500);
const LAST_TURN_AT_MOST: Duration = Duration::from_secs(60);

/// Time past its end after which a call is abandoned: its worker has a ladder to climb, and may be replaced.
const OVERDUE: Duration = Duration::from_secs(10);

/// The time of a rollout: most of it for work, the rest for its last turn.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    /// The ends of work and of the whole rollout; None: never.
    ends: Option<(Instant, Instant)>,
    is_last_turn: bool,
}

impl Clock {
    /// Starts the clock.
    pub(super) fn start(limit: Option<Duration>) -> Self {
        let now = Instant::now();
        let ends = limit.and_then(|limit| {
            let rest = (limit / LAST_TURN_PART).clamp(LAST_TURN_AT_LEAST, LAST_TURN_AT_MOST).min(limit / 2);
            Some((now.checked_add(limit - rest)?, now.checked_add(limit)?))
        });
        Self { ends, is_last_turn: false }
    }

    /// Makes the rest of the time available to the last turn.
    pub(super) fn begin_last_turn(&mut self) {
        self.is_last_turn = true;
    }

    /// The end of the current phase; None: no limit.
    pub(super) fn end(&self) -> Option<Instant> {
        self.ends.map(|(work, all)| if self.is_last_turn { all } else { work })
    }

    /// True when the current phase is over.
    pub(super) fn is_over(&self) -> bool {
        self.end().is_some_and(|end| end <= Instant::now())
    }

    /// Completes [`OVERDUE`] after the end of the current phase; never if there is no limit.
    pub(super) fn overdue(&self) -> impl Future<Output = ()> + use<> {
        let limit = self.end().and_then(|end| end.checked_add(OVERDUE));
        reach(limit)
    }

    /// The time limit of a call: its own or, if less, the rest of the current phase.
    pub(super) fn limit(&self, own: Duration) -> Duration {
        self.end().map_or(own, |end| own.min(end.saturating_duration_since(Instant::now())))
    }

    /// The deadline of a model's answer.
    pub(super) fn model_deadline(&self) -> Instant {
        self.end().unwrap_or_else(|| Instant::now() + NEVER)
    }
}

/// Waits until this moment, or for ever if there is none.
pub(super) async fn reach(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment.into()).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_turn_has_a_part_of_the_time_to_itself() {
        let parts = |limit: f64| {
            let mut clock = Clock::start(Some(Duration::from_secs_f64(limit)));
            let work = clock.end().unwrap();
            clock.begin_last_turn();
            (clock.end().unwrap() - work).as_secs_f64()
        };
        assert_eq!([0.4, 2.0, 100.0, 6000.0].map(parts), [0.2, 0.5, 10.0, 60.0]);
    }

    #[test]
    fn a_model_may_take_all_of_the_time() {
        let left = |clock: Clock| clock.model_deadline() - Instant::now();
        let (hours, day) = (Duration::from_hours(20), Duration::from_hours(24));
        assert!((hours - LAST_TURN_AT_MOST - OVERDUE..hours).contains(&left(Clock::start(Some(hours)))));
        assert!(left(Clock::start(None)) > 365 * day);
    }

    #[test]
    fn without_a_limit_only_calls_have_one() {
        let clock = Clock::start(None);
        assert!(!clock.is_over());
        assert_eq!(clock.limit(Duration::from_secs(9)), Duration::from_secs(9));
        assert!(Clock::start(Some(Duration::ZERO)).is_over());
    }
}
