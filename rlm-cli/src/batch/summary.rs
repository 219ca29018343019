//! The summary of a batch.

use std::collections::BTreeMap;
use std::time::Duration;

use rlm_core::text::{counted, grouped};
use rlm_env::StopReason;
use rlm_env::rollout::Metrics;

use crate::evaluation::{RunResult, Statistics};
use crate::rollouts::{Tally, is_failure, money};
use crate::runs::tokens;

/// Exit status if a rollout has no final answer.
const NOT_ALL_ANSWERED: u8 = 1;

/// Fewest rollouts for a table.
const LEAST_FOR_TABLE: usize = 5;

/// Counts of results.
#[derive(Clone, Debug, Default)]
pub(super) struct Summary {
    /// Counts by the name of the stop reason.
    ended: BTreeMap<String, usize>,
    pub(super) answered: u64,
    /// The answered rollouts that ended before a batch was resumed.
    done_before: u64,
    /// Answered and failed rollouts of the whole batch.
    all_answered: u64,
    all_failed: u64,
    /// The metrics of each rollout.
    pub(super) rollouts: Vec<Metrics>,
    pub(super) not_started: usize,
    /// Costs of what ran for several rollouts, in USD. None: the price of a model is unknown.
    pub(super) shared_costs: Vec<Option<f64>>,
    /// The scores of the whole batch.
    scores: Statistics,
}

impl Summary {
    pub(super) fn count(&mut self, result: &RunResult) {
        self.scores.add(result);
        let result = &result.rollout;
        self.rollouts.push(result.metrics.clone());
        self.answered += u64::from(result.stop_reason == StopReason::Answered);
        self.count_end(result.stop_reason);
        // The reason's name in the JSON of a result.
        let name = serde_json::to_value(result.stop_reason).ok();
        let name = name.as_ref().and_then(serde_json::Value::as_str).unwrap_or("other");
        *self.ended.entry(name.to_owned()).or_default() += 1;
    }

    /// Counts a result that the batch had before it was resumed.
    pub(super) fn count_before(&mut self, result: &RunResult) {
        self.done_before += 1;
        self.scores.add(result);
        self.count_end(result.rollout.stop_reason);
    }

    fn count_end(&mut self, reason: StopReason) {
        self.all_answered += u64::from(reason == StopReason::Answered);
        self.all_failed += u64::from(is_failure(reason));
    }

    /// The exit status, of the whole batch.
    pub(super) fn status(&self) -> u8 {
        let rollouts = self.rollouts.len() as u64 + self.done_before + self.not_started as u64;
        if self.all_answered == rollouts {
            0
        } else if self.all_failed == rollouts {
            crate::ENVIRONMENT_ERROR
        } else {
            NOT_ALL_ANSWERED
        }
    }

    /// Two lines for the user, a third if there are scores, and a table if there are enough rollouts to compare.
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
        // The cost of a cancelled request is only in the results.
        let costs = self.rollouts.iter().map(|one| one.cost_usd);
        let cost: Option<f64> = costs.chain(self.shared_costs.iter().copied()).sum();
        let cost = cost.filter(|cost| *cost > 0.0).map(|cost| format!(", {}", money(cost)));
        format!(
            "rlm: {}: {}\nrlm: {}, {}, {}, {}{}{}, {:.1} s{}{}",
            counted(self.rollouts.len() as u64, "rollout"),
            parts.join(", "),
            counted(tally.turns, "turn"),
            counted(tally.calls, "call"),
            counted(tally.sub_calls, "sub-call"),
            counted(tally.tokens, "token"),
            tally.parts.of_all(),
            cost.unwrap_or_default(),
            elapsed.as_secs_f64(),
            self.scores.line().map_or(String::new(), |line| format!("\nrlm: {line}")),
            self.table()
        )
    }

    /// A table of turns, tokens, seconds and cost of a rollout: the median, the 90th percentile and the maximum.
    fn table(&self) -> String {
        if self.rollouts.len() < LEAST_FOR_TABLE {
            return String::new();
        }
        let mut table = format!("\nrlm: {:<14}{:>12}{:>12}{:>12}", "each", "median", "90 %", "most");
        let mut row = |name: &str, all: Vec<f64>, show: &dyn Fn(f64) -> String| {
            let [median, most_of, most] = percentiles(all).map(show);
            table += &format!("\nrlm: {name:<14}{median:>12}{most_of:>12}{most:>12}");
        };
        let count = |number: f64| grouped(number as u64);
        let all = |field: &dyn Fn(&Metrics) -> f64| self.rollouts.iter().map(field).collect::<Vec<_>>();
        row("turns", all(&|one| one.root_llm_turns as f64), &count);
        row("tokens", all(&|one| tokens(one) as f64), &count);
        row("seconds", all(&|one| one.total_time_seconds), &|seconds| format!("{seconds:.1}"));
        let costs: Option<Vec<f64>> = self.rollouts.iter().map(|one| one.cost_usd).collect();
        if let Some(costs) = costs.filter(|costs| costs.iter().any(|cost| *cost > 0.0)) {
            row("cost", costs, &money);
        }
        table
    }
}

/// The median, the value that nine in ten do not exceed, and the largest.
pub(crate) fn percentiles(mut values: Vec<f64>) -> [f64; 3] {
    values.sort_by(f64::total_cmp);
    let at = |percent: usize| values[(values.len() * percent).div_ceil(100).max(1) - 1];
    [at(50), at(90), at(100)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evaluation::result;

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
        let mut summary = Summary { not_started: 1, ..summary(&[Answered, MaxTurns, ModelFailed, MaxTurns]) };
        for _ in 0..3 {
            summary.count_before(&result("1", Answered, None));
        }
        assert_eq!(
            summary.text(&Tally::default(), Duration::from_millis(1540)),
            "rlm: 4 rollouts: 1 answered, 2 max_turns, 1 model_failed, 3 done before, 1 not started\n\
             rlm: 0 turns, 0 calls, 0 sub-calls, 0 tokens, 1.5 s"
        );
    }

    #[test]
    fn a_table_compares_many_rollouts() {
        let mut summary = Summary::default();
        for turns in [1, 2, 3, 4, 1000] {
            let mut result = result("1", StopReason::Answered, None);
            result.rollout.metrics.root_llm_turns = turns;
            result.rollout.metrics.root_llm_prompt_tokens = 1000 * turns;
            result.rollout.metrics.total_time_seconds = 0.5 * turns as f64;
            result.rollout.metrics.cost_usd = Some(0.01 * turns as f64);
            summary.count(&result);
        }
        let text = summary.text(&Tally::default(), Duration::from_secs(1));
        assert!(text.lines().nth(1).unwrap().contains(", $10.10, "), "{text}");
        let table: Vec<_> = text.lines().skip(2).collect();
        assert_eq!(
            table,
            [
                "rlm: each                median        90 %        most",
                "rlm: turns                    3       1,000       1,000",
                "rlm: tokens               3,000   1,000,000   1,000,000",
                "rlm: seconds                1.5       500.0       500.0",
                "rlm: cost               $0.0300      $10.00      $10.00",
            ]
        );
        assert_eq!(percentiles((1..=100).map(f64::from).collect()), [50.0, 90.0, 100.0]);
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
        assert_eq!(Summary { not_started: 1, ..summary(&[ModelFailed]) }.status(), 1);
        let resumed = |before, now: &[StopReason]| {
            let mut summary = summary(now);
            summary.count_before(&result("1", before, None));
            summary.status()
        };
        assert_eq!(resumed(Answered, &[ModelFailed]), 1);
        assert_eq!(resumed(ModelFailed, &[ModelFailed]), 3);
        assert_eq!(resumed(ModelFailed, &[Answered]), 1);
        assert_eq!(resumed(MaxTurns, &[]), 1);
        assert_eq!(resumed(Answered, &[]), 0);
    }
}
