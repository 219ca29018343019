//! The parts of a token count that have names of their own.

use rlm_core::text::grouped;
use rlm_env::rollout::Metrics;
use rlm_env::trajectory::{ModelCall, SubCall};
use serde::{Deserialize, Serialize};

/// Parts of the tokens of requests to models. Zeros are neither written nor shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct TokenParts {
    /// Prompt tokens that were read from the server's cache.
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) cached_tokens: u64,
    /// Prompt tokens that were written to it.
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) cache_write_tokens: u64,
    /// Completion tokens that are reasoning.
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) reasoning_tokens: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl TokenParts {
    pub(crate) fn add(&mut self, other: Self) {
        self.cached_tokens = self.cached_tokens.saturating_add(other.cached_tokens);
        self.cache_write_tokens = self.cache_write_tokens.saturating_add(other.cache_write_tokens);
        self.reasoning_tokens = self.reasoning_tokens.saturating_add(other.reasoning_tokens);
    }

    /// These tokens without the others.
    pub(crate) fn beyond(self, others: Self) -> Self {
        Self {
            cached_tokens: self.cached_tokens.saturating_sub(others.cached_tokens),
            cache_write_tokens: self.cache_write_tokens.saturating_sub(others.cache_write_tokens),
            reasoning_tokens: self.reasoning_tokens.saturating_sub(others.reasoning_tokens),
        }
    }

    /// ` (11,000 cached, 200 written)`, to follow the tokens of a prompt.
    pub(crate) fn of_prompt(self) -> String {
        in_brackets(&self.words()[..2])
    }

    /// ` (500 reasoning)`, to follow the tokens of a completion.
    pub(crate) fn of_completion(self) -> String {
        in_brackets(&self.words()[2..])
    }

    /// ` (11,000 cached, 500 reasoning)`, to follow all tokens.
    pub(crate) fn of_all(self) -> String {
        in_brackets(&self.words())
    }

    fn words(self) -> [(u64, &'static str); 3] {
        [
            (self.cached_tokens, "cached"),
            (self.cache_write_tokens, "written"),
            (self.reasoning_tokens, "reasoning"),
        ]
    }
}

fn in_brackets(words: &[(u64, &str)]) -> String {
    let shown = words.iter().filter(|(count, _)| *count > 0);
    let shown: Vec<_> = shown.map(|(count, word)| format!("{} {word}", grouped(*count))).collect();
    if shown.is_empty() { String::new() } else { format!(" ({})", shown.join(", ")) }
}

impl From<&ModelCall> for TokenParts {
    fn from(call: &ModelCall) -> Self {
        Self {
            cached_tokens: call.cached_tokens,
            cache_write_tokens: call.cache_write_tokens,
            reasoning_tokens: call.reasoning_tokens,
        }
    }
}

impl From<&SubCall> for TokenParts {
    fn from(call: &SubCall) -> Self {
        Self {
            cached_tokens: call.cached_tokens,
            cache_write_tokens: call.cache_write_tokens,
            reasoning_tokens: call.reasoning_tokens,
        }
    }
}

impl From<&Metrics> for TokenParts {
    fn from(metrics: &Metrics) -> Self {
        let mut parts = Self {
            cached_tokens: metrics.root_llm_cached_tokens,
            cache_write_tokens: metrics.root_llm_cache_write_tokens,
            reasoning_tokens: metrics.root_llm_reasoning_tokens,
        };
        parts.add(Self {
            cached_tokens: metrics.sub_llm_cached_tokens,
            cache_write_tokens: metrics.sub_llm_cache_write_tokens,
            reasoning_tokens: metrics.sub_llm_reasoning_tokens,
        });
        parts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_shown_unless_they_are_zero() {
        let parts = TokenParts { cached_tokens: 11_000, cache_write_tokens: 0, reasoning_tokens: 500 };
        assert_eq!(parts.of_prompt(), " (11,000 cached)");
        assert_eq!(parts.of_completion(), " (500 reasoning)");
        assert_eq!(parts.of_all(), " (11,000 cached, 500 reasoning)");
        let mut sum = TokenParts { cache_write_tokens: 7, ..parts };
        sum.add(parts);
        assert_eq!(sum.of_all(), " (22,000 cached, 7 written, 1,000 reasoning)");
        assert_eq!(parts.beyond(sum).of_all(), "");
        assert_eq!(serde_json::to_string(&TokenParts::default()).unwrap(), "{}");
    }
}
