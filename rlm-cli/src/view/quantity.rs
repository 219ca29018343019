//! Tokens and money.

use rlm_core::text::grouped;
use rlm_env::trajectory::{ModelCall, SubCall};

use crate::tokens::TokenParts;

/// Tokens and cost of one or more requests to models.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Usage {
    pub(super) prompt_tokens: u64,
    pub(super) completion_tokens: u64,
    pub(super) parts: TokenParts,
    pub(super) is_estimated: bool,
    /// Cost of the requests with a known price.
    pub(super) cost_usd: f64,
    /// True if a request has no known price.
    is_unpriced: bool,
}

impl Usage {
    pub(super) fn new(
        prompt_tokens: u64,
        completion_tokens: u64,
        is_estimated: bool,
        cost: Option<f64>,
    ) -> Self {
        let is_unpriced = cost.is_none() && (prompt_tokens > 0 || completion_tokens > 0);
        Self {
            prompt_tokens,
            completion_tokens,
            parts: TokenParts::default(),
            is_estimated,
            cost_usd: cost.unwrap_or_default(),
            is_unpriced,
        }
    }

    /// The usage with these parts of its tokens.
    pub(super) fn with(self, parts: TokenParts) -> Self {
        Self { parts, ..self }
    }

    pub(super) fn add(&mut self, other: Self) {
        self.prompt_tokens = self.prompt_tokens.saturating_add(other.prompt_tokens);
        self.completion_tokens = self.completion_tokens.saturating_add(other.completion_tokens);
        self.parts.add(other.parts);
        self.is_estimated |= other.is_estimated;
        self.cost_usd += other.cost_usd;
        self.is_unpriced |= other.is_unpriced;
    }

    pub(super) fn all_tokens(&self) -> u64 {
        self.prompt_tokens.saturating_add(self.completion_tokens)
    }

    /// `812 (700 cached) + 41 tokens`: prompt and completion, with `~` if estimated.
    pub(super) fn tokens(&self) -> String {
        let sign = if self.is_estimated { "~" } else { "" };
        let (prompt, completion) = (grouped(self.prompt_tokens), grouped(self.completion_tokens));
        let (of_prompt, of_completion) = (self.parts.of_prompt(), self.parts.of_completion());
        format!("{sign}{prompt}{of_prompt} + {completion}{of_completion} tokens")
    }

    /// `0.0012 USD`; None if the cost is unknown.
    pub(super) fn cost(&self) -> Option<String> {
        (!self.is_unpriced).then(|| match self.cost_usd {
            0.0 => "0 USD".to_owned(),
            cost if cost < 0.0001 => "< 0.0001 USD".to_owned(),
            cost => format!("{cost:.4} USD"),
        })
    }
}

impl From<&ModelCall> for Usage {
    fn from(call: &ModelCall) -> Self {
        Self::new(call.prompt_tokens, call.completion_tokens, call.usage_estimated, call.cost_usd)
            .with(call.into())
    }
}

impl From<&SubCall> for Usage {
    fn from(call: &SubCall) -> Self {
        Self::new(call.prompt_tokens, call.completion_tokens, call.usage_estimated, call.cost_usd)
            .with(call.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_with_an_unknown_price_has_none() {
        let mut usage = Usage::new(1000, 5, false, Some(0.00123));
        assert_eq!(
            (usage.tokens().as_str(), usage.cost().as_deref()),
            ("1,000 + 5 tokens", Some("0.0012 USD"))
        );
        usage.add(Usage::new(0, 0, false, None));
        assert_eq!(usage.cost().as_deref(), Some("0.0012 USD"), "nothing was spent on it");
        usage.add(Usage::new(1, 1, true, None));
        assert_eq!((usage.tokens().as_str(), usage.cost()), ("~1,001 + 6 tokens", None));
        assert_eq!(Usage::new(1, 1, false, Some(0.00001)).cost().as_deref(), Some("< 0.0001 USD"));
        let parts = TokenParts { cached_tokens: 11_000, cache_write_tokens: 1000, reasoning_tokens: 500 };
        usage = Usage::new(12_345, 678, false, None).with(parts);
        assert_eq!(usage.tokens(), "12,345 (11,000 cached, 1,000 written) + 678 (500 reasoning) tokens");
    }
}
