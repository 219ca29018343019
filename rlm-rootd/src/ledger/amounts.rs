//! What budgets, requests and sums of requests come to.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::llm::prices::Price;

/// What a rollout may spend. What is absent is not limited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Budget {
    /// Requests that a model answers, or may have answered. One that is refused is none.
    pub calls: Option<u64>,
    /// Tokens of prompts and completions together.
    pub tokens: Option<u64>,
    /// Tokens of completions.
    pub completion_tokens: Option<u64>,
    /// Cost in USD. Every model that is called needs a price.
    pub cost_usd: Option<f64>,
}

impl Budget {
    /// Whether a request needs a bound on its completion to be within this budget for sure.
    #[must_use]
    pub fn bounds_completions(&self) -> bool {
        self.tokens.is_some() || self.completion_tokens.is_some() || self.cost_usd.is_some()
    }
}

/// The most that a request may cost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Estimate {
    /// The model, by whose price the cost is reckoned.
    pub model: Arc<str>,
    /// Tokens of its prompt.
    pub prompt_tokens: u64,
    /// Tokens that its completion is limited to; 0 where it is not.
    pub completion_tokens: u64,
}

/// What a request did cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Usage {
    /// Tokens of its prompt.
    pub prompt_tokens: u64,
    /// Tokens of its completion.
    pub completion_tokens: u64,
    /// Whether these are estimates, since the server reported none.
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
    /// What was spent.
    pub used: Amounts,
    /// What requests under way may still spend.
    pub reserved: Amounts,
    /// What may yet be reserved.
    pub left: Left,
    /// Whether a part of `used` is estimated.
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
    /// Cost in USD; none where a model without a known price is among them.
    pub cost_usd: Option<f64>,
}

/// What is left of a [`Budget`]; none where there is no limit.
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
