//! Amounts: of budgets, of requests, of sums of requests.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::llm::prices::Price;

/// Limits on the spending of a rollout. An absent field is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Budget {
    /// Requests that a model answers, or may have answered. Refused ones do not count.
    pub calls: Option<u64>,
    /// Tokens of prompts and completions together.
    pub tokens: Option<u64>,
    /// Tokens of completions.
    pub completion_tokens: Option<u64>,
    /// Cost in USD. Every model that is called needs a price.
    pub cost_usd: Option<f64>,
}

impl Budget {
    /// True if requests need a bound on their completion to stay within this budget.
    #[must_use]
    pub fn bounds_completions(&self) -> bool {
        self.tokens.is_some() || self.completion_tokens.is_some() || self.cost_usd.is_some()
    }
}

/// The most that a request may cost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Estimate {
    /// The model, whose price gives the cost.
    pub model: Arc<str>,
    /// Tokens of its prompt.
    pub prompt_tokens: u64,
    /// Most tokens of its completion; 0 without a limit.
    pub completion_tokens: u64,
    /// It is the request for which its ledger reserves something: [`super::Ledger::reserve_later`].
    pub is_reserved: bool,
}

/// The cost of a request that has ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Usage {
    /// Tokens of its prompt.
    pub prompt_tokens: u64,
    /// Tokens of its completion.
    pub completion_tokens: u64,
    /// True if the tokens are estimates because the server did not report them.
    pub is_estimated: bool,
}

impl std::ops::Add for Usage {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            prompt_tokens: self.prompt_tokens.saturating_add(other.prompt_tokens),
            completion_tokens: self.completion_tokens.saturating_add(other.completion_tokens),
            is_estimated: self.is_estimated || other.is_estimated,
        }
    }
}

/// The state of a [`Ledger`](super::Ledger) at one moment.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct LedgerSnapshot {
    /// Amounts spent.
    pub used: Amounts,
    /// Amounts that running requests may still spend.
    pub reserved: Amounts,
    /// Amounts that may still be reserved.
    pub left: Left,
    /// True if a part of `used` is estimated.
    pub usage_estimated: bool,
}

/// A sum of requests.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Amounts {
    /// Requests.
    pub calls: u64,
    /// Tokens of prompts.
    pub prompt_tokens: u64,
    /// Tokens of completions.
    pub completion_tokens: u64,
    /// Tokens of both.
    pub tokens: u64,
    /// Cost in USD; none if the price of one of the models is unknown.
    pub cost_usd: Option<f64>,
}

/// The rest of a [`Budget`]; none where it has no limit.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Left {
    /// Requests.
    pub calls: Option<u64>,
    /// Tokens of prompts and completions together.
    pub tokens: Option<u64>,
    /// Tokens of completions.
    pub completion_tokens: Option<u64>,
    /// USD.
    pub cost_usd: Option<f64>,
}

impl Left {
    /// The smaller of both, field by field.
    pub(super) fn at_most(self, other: &Self) -> Self {
        let least = |one: Option<u64>, other: Option<u64>| one.into_iter().chain(other).min();
        Self {
            calls: least(self.calls, other.calls),
            tokens: least(self.tokens, other.tokens),
            completion_tokens: least(self.completion_tokens, other.completion_tokens),
            cost_usd: self.cost_usd.into_iter().chain(other.cost_usd).reduce(f64::min),
        }
    }
}

/// [`Amounts`] in whole numbers: a cost in floats would not come back to 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sum {
    pub(super) calls: u64,
    pub(super) prompt_tokens: u64,
    pub(super) completion_tokens: u64,
    /// In units of 10⁻¹² USD, of the calls that have a price.
    pub(super) cost: u64,
    /// Calls that have none.
    pub(super) unpriced: u64,
}

impl Sum {
    pub(super) fn of(prompt_tokens: u64, completion_tokens: u64, price: Option<Price>) -> Self {
        let cost = |price: f64, tokens: u64| ((price * 1e6).round() as u64).saturating_mul(tokens);
        Self {
            calls: 1,
            prompt_tokens,
            completion_tokens,
            cost: price.map_or(0, |price| {
                cost(price.prompt, prompt_tokens).saturating_add(cost(price.completion, completion_tokens))
            }),
            unpriced: u64::from(price.is_none()),
        }
    }

    pub(super) fn tokens(&self) -> u64 {
        self.prompt_tokens.saturating_add(self.completion_tokens)
    }

    pub(super) fn plus(&self, other: &Self) -> Self {
        self.combine(other, u64::saturating_add)
    }

    pub(super) fn minus(&self, other: &Self) -> Self {
        self.combine(other, u64::saturating_sub)
    }

    fn combine(&self, other: &Self, with: fn(u64, u64) -> u64) -> Self {
        Self {
            calls: with(self.calls, other.calls),
            prompt_tokens: with(self.prompt_tokens, other.prompt_tokens),
            completion_tokens: with(self.completion_tokens, other.completion_tokens),
            cost: with(self.cost, other.cost),
            unpriced: with(self.unpriced, other.unpriced),
        }
    }

    pub(super) fn amounts(&self) -> Amounts {
        Amounts {
            calls: self.calls,
            prompt_tokens: self.prompt_tokens,
            completion_tokens: self.completion_tokens,
            tokens: self.tokens(),
            cost_usd: (self.unpriced == 0).then_some(self.cost as f64 / 1e12),
        }
    }
}
