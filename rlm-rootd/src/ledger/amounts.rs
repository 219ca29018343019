//! Amounts: of budgets, of requests, of sums of requests.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::prices::Price;

/// Costs are counted in whole numbers of this fraction of a USD.
pub(super) const UNITS_PER_USD: f64 = 1e12;

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
    /// Tokens of the prompt.
    pub prompt_tokens: u64,
    /// The tokens of the prompt that are likely read from the server's cache.
    pub cached_tokens: u64,
    /// Most tokens of the completion; 0 without a limit.
    pub completion_tokens: u64,
    /// True if what is written to the server's cache is kept for an hour.
    pub has_hour_cache: bool,
    /// True for the request for which its ledger reserves something: [`super::Ledger::reserve_later`].
    pub is_reserved: bool,
}

/// The cost of a request that has ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Usage {
    /// Tokens of the prompt, with those in the server's cache.
    pub prompt_tokens: u64,
    /// Tokens of the completion, with those of its reasoning.
    pub completion_tokens: u64,
    /// The tokens of the prompt that were read from the server's cache.
    pub cached_tokens: u64,
    /// The tokens of the prompt that were written to the server's cache at a price of their own.
    pub cache_write_tokens: u64,
    /// The tokens among these that the cache keeps for an hour.
    pub hour_cache_write_tokens: u64,
    /// The tokens of the completion that are reasoning.
    pub reasoning_tokens: u64,
    /// The cost in USD, if the server reported it.
    pub cost_usd: Option<f64>,
    /// True if the tokens are estimates because the server did not report them.
    pub is_estimated: bool,
}

impl Usage {
    /// A usage of so many tokens, without a cache or reasoning.
    #[must_use]
    pub fn new(prompt_tokens: u64, completion_tokens: u64) -> Self {
        Self { prompt_tokens, completion_tokens, ..Self::default() }
    }

    /// The cost in USD: as the server reported it, or by this price where it reported nothing or 0. None without both.
    #[must_use]
    pub fn cost_usd(&self, price: Option<Price>) -> Option<f64> {
        self.cost(price).map(|cost| cost as f64 / UNITS_PER_USD)
    }

    /// The same in units of 10⁻¹² USD. LiteLLM reports 0 for models of which it has no price (BerriAI/litellm#13790).
    fn cost(&self, price: Option<Price>) -> Option<u64> {
        let told = self.cost_usd.map(|usd| (usd * UNITS_PER_USD).round() as u64);
        let by_price = || Some(self.cost_by(&price?));
        told.filter(|cost| *cost > 0).or_else(by_price).or(told)
    }

    /// The cost by this price, in units of 10⁻¹² USD.
    fn cost_by(&self, price: &Price) -> u64 {
        let cached = self.cached_tokens.min(self.prompt_tokens);
        let written = self.cache_write_tokens.min(self.prompt_tokens - cached);
        let hour = self.hour_cache_write_tokens.min(written);
        [
            (price.prompt, self.prompt_tokens - cached - written),
            (price.cached.unwrap_or(price.prompt), cached),
            (price.cache_write.unwrap_or(price.prompt), written - hour),
            (price.hour_cache_write(), hour),
            (price.completion, self.completion_tokens),
        ]
        .into_iter()
        .map(|(price, tokens)| units(price).saturating_mul(tokens))
        .fold(0, u64::saturating_add)
    }
}

/// A price per million tokens, as units of 10⁻¹² USD per token.
fn units(price: f64) -> u64 {
    (price * UNITS_PER_USD / 1e6).round() as u64
}

impl std::ops::Add for Usage {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        let (nothing, is_nothing) =
            (Some(0.0), |usage: &Self| usage.prompt_tokens + usage.completion_tokens == 0);
        let cost = |usage: &Self| usage.cost_usd.or(nothing.filter(|_| is_nothing(usage)));
        Self {
            prompt_tokens: self.prompt_tokens.saturating_add(other.prompt_tokens),
            completion_tokens: self.completion_tokens.saturating_add(other.completion_tokens),
            cached_tokens: self.cached_tokens.saturating_add(other.cached_tokens),
            cache_write_tokens: self.cache_write_tokens.saturating_add(other.cache_write_tokens),
            hour_cache_write_tokens: self
                .hour_cache_write_tokens
                .saturating_add(other.hour_cache_write_tokens),
            reasoning_tokens: self.reasoning_tokens.saturating_add(other.reasoning_tokens),
            // For no tokens at all, no server has reported a cost.
            cost_usd: match self.cost_usd.or(other.cost_usd) {
                None => None,
                Some(_) => cost(&self).zip(cost(&other)).map(|(one, other)| one + other),
            },
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
    /// Tokens of prompts that were read from a cache.
    pub cached_tokens: u64,
    /// Tokens of prompts and completions.
    pub tokens: u64,
    /// Cost in USD; none if the price of one of the models is unknown.
    pub cost_usd: Option<f64>,
}

/// The rest of a [`Budget`]; None where the budget has no limit.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Left {
    /// Requests that may still be sent.
    pub calls: Option<u64>,
    /// Tokens of prompts and completions that are left.
    pub tokens: Option<u64>,
    /// Tokens of completions that are left.
    pub completion_tokens: Option<u64>,
    /// USD that are left.
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
    pub(super) cached_tokens: u64,
    /// Cost of the calls that have a price, in units of 10⁻¹² USD.
    pub(super) cost: u64,
    /// Number of calls that have no price.
    pub(super) unpriced: u64,
}

impl Sum {
    /// The most that a request may cost. Tokens of its prompt that are not read from a cache may be written to it.
    pub(super) fn most(estimate: &Estimate, price: Option<Price>) -> Self {
        let Estimate { prompt_tokens, cached_tokens, completion_tokens, has_hour_cache, .. } = *estimate;
        let cached_tokens = cached_tokens.min(prompt_tokens);
        let price = price.map(|price| Price {
            cache_write: price.cache_write.map(|written| written.max(price.prompt)),
            ..price
        });
        let cache_write_tokens = prompt_tokens - cached_tokens;
        let usage = Usage {
            prompt_tokens,
            completion_tokens,
            cached_tokens,
            cache_write_tokens,
            hour_cache_write_tokens: if has_hour_cache { cache_write_tokens } else { 0 },
            ..Usage::default()
        };
        Self::of(&usage, price)
    }

    /// The cost of a request that has ended.
    pub(super) fn of(usage: &Usage, price: Option<Price>) -> Self {
        let cost = usage.cost(price);
        Self {
            calls: 1,
            prompt_tokens: usage.prompt_tokens,
            completion_tokens: usage.completion_tokens,
            cached_tokens: usage.cached_tokens.min(usage.prompt_tokens),
            cost: cost.unwrap_or(0),
            unpriced: u64::from(cost.is_none()),
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
            cached_tokens: with(self.cached_tokens, other.cached_tokens),
            cost: with(self.cost, other.cost),
            unpriced: with(self.unpriced, other.unpriced),
        }
    }

    pub(super) fn amounts(&self) -> Amounts {
        Amounts {
            calls: self.calls,
            prompt_tokens: self.prompt_tokens,
            completion_tokens: self.completion_tokens,
            cached_tokens: self.cached_tokens,
            tokens: self.tokens(),
            cost_usd: (self.unpriced == 0).then_some(self.cost as f64 / UNITS_PER_USD),
        }
    }
}
