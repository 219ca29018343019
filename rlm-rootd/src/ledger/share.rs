//! Shares of what is left, for rollouts below one.

use std::sync::Arc;

use super::amounts::{Budget, Sum};
use super::{Ledger, State};

impl Ledger {
    /// Takes a part of what is left, from 0 to 1, for a rollout below this one: until the share is dropped, nobody else in the
    /// tree can spend it. The rest of a batch stays open to its other rollouts, which could only wait for the share.
    pub fn share(self: &Arc<Self>, part: f64, rollout: &str) -> Share {
        let left = self.snapshot().left;
        let part_of = |left: Option<u64>| left.map(|left| (left as f64 * part) as u64);
        let budget = Budget {
            calls: part_of(left.calls),
            tokens: part_of(left.tokens),
            completion_tokens: part_of(left.completion_tokens),
            cost_usd: left.cost_usd.map(|left| left * part),
        };
        let ledger = Self::new(budget, self.prices.clone()).of_rollout(rollout);
        let ledger = match (self.batch(), self.remote()) {
            (Some(batch), _) => ledger.within(batch.clone()),
            (None, Some(remote)) => ledger.within_remote(remote.clone()),
            (None, None) => ledger,
        };
        let tokens = budget.tokens.unwrap_or_default();
        let completion_tokens = budget.completion_tokens.unwrap_or_default();
        let held = Sum {
            calls: budget.calls.unwrap_or_default(),
            prompt_tokens: tokens.saturating_sub(completion_tokens),
            completion_tokens,
            cost: ledger.cost_limit.unwrap_or_default(),
            ..Sum::default()
        };
        Self::change(self.tree(), |state| state.reserve = state.reserve.plus(&held));
        Share { ledger: Arc::new(ledger), lender: self.clone(), held }
    }
}

/// A part of a ledger for a rollout below it. When it is dropped, after all requests that spend from it, its rest comes back.
#[derive(Debug)]
#[must_use = "a share that is dropped is given back"]
pub struct Share {
    ledger: Arc<Ledger>,
    lender: Arc<Ledger>,
    held: Sum,
}

impl Share {
    /// The ledger that has this part alone.
    #[must_use]
    pub fn ledger(&self) -> &Arc<Ledger> {
        &self.ledger
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let State { used, reserved, is_estimated, .. } = *self.ledger.state();
        Ledger::change(self.lender.tree(), |state| {
            state.reserve = state.reserve.minus(&self.held);
            // A request that still runs may cost all that it has reserved.
            state.used = state.used.plus(&used).plus(&reserved);
            state.is_estimated |= is_estimated || reserved.calls > 0;
        });
    }
}
