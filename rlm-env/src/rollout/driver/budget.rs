//! The budget's room for a turn, and the part of it that is reserved for the last turn.

use rlm_core::text::grouped;
use rlm_rootd::{Estimate, Exhausted, LEAST_COMPLETION};
use serde_json::json;
use tokio::time::timeout_at;

use super::{RolloutDriver, Step, Stop};
use crate::rollout::recursion::Recursion;
use crate::terms::StopReason;

/// Turns that stay when the conversation must be cut down for the last turn.
const TURNS_AT_THE_END: usize = 2;

/// Characters of each output that stay where a last turn would otherwise not fit into the budget.
const SHORTEST_OUTPUT: usize = 100;

/// Most tokens that a completion is expected to have.
const MOST_EXPECTED: u64 = 2048;

/// Tokens of a short output and a notice, by which a conversation grows until its last turn.
const LAST_TURN_GROWTH: u64 = 256;

/// Turns that a budget should have room for: one that is too small is compared with them.
const FEW_TURNS: u64 = 4;

impl RolloutDriver<'_> {
    /// Shortens the conversation as far as the last turn, with this notice, needs that.
    ///
    /// # Errors
    /// The budget has no room for the last turn even then.
    pub(super) async fn fit_last_turn(&mut self, notice: &str, reason: StopReason) -> Result<(), Exhausted> {
        let expected = self.expected_tokens();
        let is_short = |turn: Estimate| self.registered.ledger.check(&turn).is_err();
        if reason == StopReason::ContextFull
            || self.last_turn_estimate(notice, expected).is_some_and(is_short)
        {
            self.conversation.shorten(TURNS_AT_THE_END);
        }
        if self.last_turn_fits(notice).await.is_ok() {
            return Ok(());
        }
        self.conversation.cut_outputs(SHORTEST_OUTPUT);
        self.last_turn_fits(notice).await
    }

    async fn last_turn_fits(&self, notice: &str) -> Result<(), Exhausted> {
        match self.last_turn_estimate(notice, LEAST_COMPLETION.min(self.expected_tokens())) {
            Some(turn) => self.check_when_free(&turn).await,
            None => Ok(()),
        }
    }

    /// Reserves the cost of the last turn, before which the conversation has grown by a turn.
    ///
    /// # Errors
    /// The budget has no room for a turn before the last, not even with amounts that running requests give back.
    pub(super) async fn reserve_last_turn(&self) -> Result<(), Exhausted> {
        let tokens = self.expected_tokens();
        let Some(turn) = self.estimate(tokens) else { return Ok(()) };
        let last = Estimate {
            prompt_tokens: turn.prompt_tokens + tokens + LAST_TURN_GROWTH,
            // By the time of the last turn, the cache has this turn's prompt.
            cached_tokens: if turn.cached_tokens > 0 { turn.prompt_tokens } else { 0 },
            ..turn.clone()
        };
        let ledger = &self.registered.ledger;
        let waiting = ledger.reserve_later_when_free(&last, &turn);
        self.in_time(waiting, || ledger.reserve_later(&last, Some(&turn))).await
    }

    /// Raises the reserve for the last turn to what that turn may cost after this reply. The reply's code has not run yet, and
    /// cannot spend it. If there is no room for more, the earlier amount stays.
    pub(super) fn raise_reserve(&self) {
        let expected = self.expected_tokens();
        for (tokens, growth) in
            [(expected, 2 * LAST_TURN_GROWTH), (LEAST_COMPLETION.min(expected), LAST_TURN_GROWTH)]
        {
            let Some(last) = self.estimate(tokens) else { return };
            let last = Estimate { prompt_tokens: last.prompt_tokens + growth, ..last };
            if self.registered.ledger.reserve_later(&last, None).is_ok() {
                return;
            }
        }
    }

    /// Checks that the budget has room for a turn, including amounts that running requests give back.
    async fn check_when_free(&self, turn: &Estimate) -> Result<(), Exhausted> {
        let ledger = &self.registered.ledger;
        self.in_time(ledger.check_when_free(turn), || ledger.check(turn)).await
    }

    /// Waits until the deadline of the next reply at most. If it passes, the result is that of `late`.
    async fn in_time(
        &self,
        waiting: impl Future<Output = Result<(), Exhausted>>,
        late: impl FnOnce() -> Result<(), Exhausted>,
    ) -> Result<(), Exhausted> {
        tokio::select! {
            biased;
            // The request of a stopped rollout is not sent.
            () = self.control.stopped() => Ok(()),
            checked = timeout_at(self.clock.model_deadline().into(), waiting) => checked.unwrap_or_else(|_late| late()),
        }
    }

    /// The most that a last turn may cost, with this notice and a completion of this many tokens.
    fn last_turn_estimate(&self, notice: &str, completion_tokens: u64) -> Option<Estimate> {
        let turn = self.estimate(completion_tokens)?;
        let message = [json!({"role": "user", "content": notice}).into()];
        let mut request = self.request(None);
        (request.messages, request.tools) = (&message, &[]);
        let notice = self.model.estimate(request)?;
        Some(Estimate { prompt_tokens: turn.prompt_tokens + notice.prompt_tokens, ..turn })
    }

    /// The most that a turn with a completion of this many tokens may cost. None without a budget: the estimate would take a
    /// look at the whole conversation for nothing.
    fn estimate(&self, completion_tokens: u64) -> Option<Estimate> {
        self.registered
            .ledger
            .has_limits()
            .then(|| self.model.estimate(self.request(Some(completion_tokens))))
            .flatten()
    }

    /// Tokens that the next completion is expected to have: no more than twice as many as the longest one so far.
    fn expected_tokens(&self) -> u64 {
        let twice = self.progress.longest_completion.saturating_mul(2);
        let expected = twice.clamp(LEAST_COMPLETION, MOST_EXPECTED);
        self.config.limits.max_completion_tokens.map_or(expected, |limit| limit.min(expected))
    }

    /// Fails if the budget has no room for a single turn. If other rollouts also spend from it, waits for what they give back.
    pub(super) async fn check_budget(&self) -> Step {
        let Some(turn) = self.estimate(LEAST_COMPLETION.min(self.expected_tokens())) else { return Ok(()) };
        let checked = tokio::select! {
            biased;
            () = self.control.stopped() => return self.check_control(),
            checked = self.registered.ledger.wait_for_room(&turn) => checked,
        };
        let Err(exhausted) = checked else { return Ok(()) };
        if exhausted.is_shared() {
            let is_child = self.config.recursion.as_ref().is_some_and(Recursion::is_of_child);
            let reason = if is_child { StopReason::BudgetExhausted } else { StopReason::Stopped };
            return Err(Stop::new(reason, exhausted.to_string()));
        }
        let mut error = format!("the budget is too small to begin with: {exhausted}");
        if let Some(turn) = self.estimate(self.expected_tokens()) {
            let turn = self.registered.ledger.amounts(&turn);
            let tokens = format!("{} tokens", grouped(turn.tokens.saturating_mul(FEW_TURNS)));
            let cost = turn.cost_usd.map(|cost| format!(", or {:.2} USD", cost * FEW_TURNS as f64));
            error += &format!("; a few turns may need {tokens}{}", cost.unwrap_or_default());
        }
        Err(Stop::new(StopReason::BudgetExhausted, error))
    }
}
