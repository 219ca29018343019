//! How much time a rollout has.

use std::future::Future;
use std::time::{Duration, Instant};

/// How long a model is waited for where nothing else limits it.
const MODEL_TIME_LIMIT: Duration = Duration::from_secs(600);

/// What the last turn gets of a rollout's time: this part, within these bounds.
const LAST_TURN_PART: u32 = 10;
const LAST_TURN_AT_LEAST: Duration = Duration::from_millis(500);
const LAST_TURN_AT_MOST: Duration = Duration::from_secs(60);

/// How much later than at its end a call is given up: its worker has a ladder to climb, and may be replaced.
const OVERDUE: Duration = Duration::from_secs(10);

/// The time of a rollout: most of it for work, and a rest for its last turn.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    /// When work is over, and when all is; None: never.
    ends: Option<(Instant, Instant)>,
    is_last_turn: bool,
}

impl Clock {
    /// Starts now.
    pub(super) fn start(limit: Option<Duration>) -> Self {
        let now = Instant::now();
        let ends = limit.and_then(|limit| {
            let rest = (limit / LAST_TURN_PART).clamp(LAST_TURN_AT_LEAST, LAST_TURN_AT_MOST).min(limit / 2);
            Some((now.checked_add(limit - rest)?, now.checked_add(limit)?))
        });
        Self { ends, is_last_turn: false }
    }

    /// The rest of the time is for the last turn.
    pub(super) fn begin_last_turn(&mut self) {
        self.is_last_turn = true;
    }

    pub(super) fn is_last_turn(&self) -> bool {
        self.is_last_turn
    }

    /// When what runs now must be over; None: there is no limit.
    pub(super) fn end(&self) -> Option<Instant> {
        self.ends.map(|(work, all)| if self.is_last_turn { all } else { work })
    }

    /// Whether that time is over.
    pub(super) fn is_over(&self) -> bool {
        self.end().is_some_and(|end| end <= Instant::now())
    }

    /// Completes when what runs should long be over. Never where there is no limit.
    pub(super) fn overdue(&self) -> impl Future<Output = ()> + use<> {
        let limit = self.end().and_then(|end| end.checked_add(OVERDUE));
        async move {
            match limit {
                Some(limit) => tokio::time::sleep_until(limit.into()).await,
                None => std::future::pending().await,
            }
        }
    }

    /// How long a call may take whose own limit this is.
    pub(super) fn limit(&self, own: Duration) -> Duration {
        self.end().map_or(own, |end| own.min(end.saturating_duration_since(Instant::now())))
    }

    /// When a model's answer is of no use any more.
    pub(super) fn model_deadline(&self) -> Instant {
        let longest = Instant::now() + MODEL_TIME_LIMIT;
        self.end().map_or(longest, |end| end.min(longest))
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
    fn without_a_limit_only_calls_have_one() {
        let clock = Clock::start(None);
        assert!(!clock.is_over());
        assert_eq!(clock.limit(Duration::from_secs(9)), Duration::from_secs(9));
        assert!(Clock::start(Some(Duration::ZERO)).is_over());
    }
}
