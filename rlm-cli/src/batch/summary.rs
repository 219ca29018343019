//! The summary of a batch.

use std::collections::BTreeMap;
use std::time::Duration;

use rlm_core::text::counted;
use rlm_env::{RolloutResult, StopReason};

use crate::run::{Tally, is_failure, money};

/// Exit status if a rollout has no final answer.
const NOT_ALL_ANSWERED: u8 = 1;

/// Counts of results.
#[derive(Clone, Debug, Default)]
pub(super) struct Summary {
    /// Counts by the name of the stop reason.
    ended: BTreeMap<String, usize>,
    answered: u64,
    failed: u64,
    rollouts: u64,
    pub(super) done_before: usize,
    pub(super) not_started: usize,
}

impl Summary {
    pub(super) fn count(&mut self, result: &RolloutResult) {
        self.rollouts += 1;
        self.answered += u64::from(result.stop_reason == StopReason::Answered);
        self.failed += u64::from(is_failure(result.stop_reason));
        // The reason's name in the JSON of a result.
        let name = serde_json::to_value(result.stop_reason).ok();
        let name = name.as_ref().and_then(serde_json::Value::as_str).unwrap_or("other");
        *self.ended.entry(name.to_owned()).or_default() += 1;
    }

    /// The exit status.
    pub(super) fn status(&self) -> u8 {
        if self.answered == self.rollouts && self.not_started == 0 {
            0
        } else if self.failed == self.rollouts && self.rollouts > 0 {
            crate::ENVIRONMENT_ERROR
        } else {
            NOT_ALL_ANSWERED
        }
    }

    /// Two lines for the user.
    pub(super) fn text(&self, tally: &Tally, elapsed: Duration) -> String {
        let mut parts = vec![format!("{} answered", self.answered)];
        let others = self.ended.iter().filter(|(name, _)| *name != "answered");
        parts.extend(others.map(|(name, count)| format!("{count} {name}")));
        if self.done_before > 0 {
            parts.push(format!("{} done before", self.done_before));
        }
        if self.not_started > 0 {
            parts.push(format!("{} not started", self.not_started));
        }
        let cost = tally.cost_usd().filter(|cost| *cost > 0.0).map(|cost| format!(", {}", money(cost)));
        format!(
            "rlm: {}: {}\nrlm: {}, {}, {}, {}{}, {:.1} s",
            counted(self.rollouts, "rollout"),
            parts.join(", "),
            counted(tally.turns, "turn"),
            counted(tally.calls, "call"),
            counted(tally.sub_calls, "sub-call"),
            counted(tally.tokens, "token"),
            cost.unwrap_or_default(),
            elapsed.as_secs_f64()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::result;

    fn summary(reasons: &[StopReason]) -> Summary {
        let mut summary = Summary::default();
        for reason in reasons {
            summary.count(&result("1", *reason, None));
        }
        summary
    }

    #[test]
    fn it_counts_rollouts_by_stop_reason() {
        use StopReason::{Answered, MaxTurns, ModelFailed};
        let summary = Summary {
            done_before: 3,
            not_started: 1,
            ..summary(&[Answered, MaxTurns, ModelFailed, MaxTurns])
        };
        assert_eq!(
            summary.text(&Tally::default(), Duration::from_millis(1540)),
            "rlm: 4 rollouts: 1 answered, 2 max_turns, 1 model_failed, 3 done before, 1 not started\n\
             rlm: 0 turns, 0 calls, 0 sub-calls, 0 tokens, 1.5 s"
        );
    }

    #[test]
    fn the_exit_status_tells_all_from_some_and_from_failures_alone() {
        use StopReason::{Answered, MaxTurns, ModelFailed};
        assert_eq!(summary(&[]).status(), 0);
        assert_eq!(summary(&[Answered, Answered]).status(), 0);
        assert_eq!(summary(&[Answered, ModelFailed]).status(), 1);
        assert_eq!(summary(&[MaxTurns]).status(), 1);
        assert_eq!(summary(&[ModelFailed, ModelFailed]).status(), 3);
        assert_eq!(Summary { not_started: 1, ..summary(&[Answered]) }.status(), 1);
    }
}
