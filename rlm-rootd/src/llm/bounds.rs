//! The fields of a request that bound its completion.

use std::borrow::Cow;

use serde_json::{Map, Value as Json};

/// Fewest tokens of a completion that are worth a request.
pub const LEAST_COMPLETION: u64 = 256;

/// Tokens of a completion where it needs a bound and nobody has set one. Thinking that has a budget of its own comes on top.
pub(super) const DEFAULT_COMPLETION: u64 = 4096;

/// The largest bound on a completion.
pub(super) const LONGEST_BOUND: u64 = 1 << 31;

/// Fields that bound the tokens of a completion.
const MAX_TOKENS: [&str; 2] = ["max_tokens", "max_completion_tokens"];

/// Fields that bound a completion, and the largest value of each.
const BOUNDS: [(&str, u64); 3] =
    [("max_tokens", LONGEST_BOUND), ("max_completion_tokens", LONGEST_BOUND), ("n", 1 << 10)];

/// Fields that let some servers exceed the bounds of a completion.
const BEYOND: [&str; 4] = ["best_of", "min_tokens", "max_new_tokens", "n_predict"];

/// The bound on a completion. If a request has both fields, servers use one of them.
pub(super) fn bound(fields: &Map<String, Json>) -> Option<u64> {
    MAX_TOKENS.iter().filter_map(|name| fields.get(*name)?.as_u64()).max()
}

/// The tokens that these sampling parameters give a model to think with, 0 without such a number: Claude's (`thinking.budget_tokens`),
/// whose bound on a completion must be above them, and Qwen's (`thinking_budget`).
///
/// ```
/// let sampling = serde_json::json!({"thinking": {"type": "enabled", "budget_tokens": 2048}});
/// assert_eq!(rlm_rootd::thinking_budget(sampling.as_object().unwrap()), 2048);
/// ```
#[must_use]
pub fn thinking_budget(fields: &Map<String, Json>) -> u64 {
    let of_claude = fields.get("thinking").and_then(|thinking| thinking.get("budget_tokens"));
    of_claude.or_else(|| fields.get("thinking_budget")).and_then(Json::as_u64).unwrap_or(0)
}

/// The bound of an interface that needs one, where a request has none: above what the model may think with.
pub(super) fn above_thinking(longest: u64, fields: &Map<String, Json>) -> u64 {
    match thinking_budget(fields) {
        0 => longest,
        budget => longest.max(budget.saturating_add(DEFAULT_COMPLETION)),
    }
}

/// Lowers the bounds so that all choices together have at most so many tokens.
pub(super) fn lower_bounds(fields: &mut Map<String, Json>, tokens: u64) {
    let most = tokens / choices(fields).max(1);
    for name in MAX_TOKENS {
        if let Some(value) = fields.get_mut(name).filter(|value| value.as_u64() > Some(most)) {
            *value = most.into();
        }
    }
}

/// Lowers the bound on a completion to the room in the context window, and returns it. `default` is the bound of an interface that
/// needs one, where the request has none.
pub(super) fn fit_bound(
    fields: &mut Cow<'_, Map<String, Json>>,
    default: Option<u64>,
    room: Option<u64>,
) -> Option<u64> {
    let set = bound(fields).or(default)?;
    let Some(room) = room.filter(|room| *room < set) else { return Some(set) };
    let fields = fields.to_mut();
    if bound(fields).is_none() {
        fields.insert("max_tokens".to_owned(), room.into());
    } else {
        lower_bounds(fields, room.saturating_mul(choices(fields)));
    }
    Some(room)
}

/// The context window and the prompt, in tokens, as a server's error tells them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ToldWindow {
    window: u64,
    prompt: u64,
    /// True if the server has not counted all of the prompt.
    is_least: bool,
}

impl ToldWindow {
    /// Reads the error of a request with this bound on its completion.
    pub(super) fn in_error(error: &str, bound: u64) -> Option<Self> {
        // Anthropic: "input length and `max_tokens` exceed context limit: 170636 + 34048 > 200000".
        if let Some((_, sum)) = error.split_once("context limit: ") {
            let (prompt, window) = (first_number(sum)?, first_number(sum.split_once('>')?.1)?);
            return Some(Self { window, prompt, is_least: false });
        }
        // OpenAI, vLLM, SGLang, OpenRouter, llama-cpp-python: "maximum context length is 8192 tokens", "of 8192 tokens".
        let (_, rest) = error.split_once("maximum context length ")?;
        let window = first_number(rest)?;
        // vLLM: "your request has 7000 input tokens", "your prompt contains at least 7000 input tokens".
        let counted = error.split_once(" input tokens").and_then(|(before, _)| last_number(before));
        // The others: "you requested 9000 tokens (…)", "a total of 9000 tokens", "about 9000 tokens".
        let total = || first_number(rest.to_lowercase().split_once("you requested ")?.1)?.checked_sub(bound);
        Some(Self { window, prompt: counted.or_else(total)?, is_least: error.contains("at least") })
    }

    /// Tokens of the longest completion; None if the prompt alone fills the window.
    pub(super) fn room(self, estimated_prompt: impl FnOnce() -> u64) -> Option<u64> {
        let most = self.window.checked_sub(self.prompt).filter(|most| *most >= LEAST_COMPLETION)?;
        if !self.is_least {
            return Some(most);
        }
        Some(self.window.saturating_sub(estimated_prompt()).clamp(LEAST_COMPLETION, most))
    }
}

/// The most tokens of a completion that the account can pay (OpenRouter): "This request requires more credits, or fewer max_tokens. You
/// requested up to 64000 tokens, but can only afford 2666." (astrio-labs/forall#76)
pub(super) fn afforded(error: &str) -> Option<u64> {
    first_number(error.split_once("can only afford ")?.1)
}

fn first_number(text: &str) -> Option<u64> {
    text.split(|letter: char| !letter.is_ascii_digit()).find(|digits| !digits.is_empty())?.parse().ok()
}

fn last_number(text: &str) -> Option<u64> {
    text.rsplit(|letter: char| !letter.is_ascii_digit()).find(|digits| !digits.is_empty())?.parse().ok()
}

/// The number of completions of a request.
pub(super) fn choices(fields: &Map<String, Json>) -> u64 {
    fields.get("n").and_then(Json::as_u64).unwrap_or(1)
}

/// Checks the fields that bound a completion: a server may read a value as a number that we would not.
///
/// # Errors
/// A sentence that names the field.
pub(super) fn check_bounds(fields: &Map<String, Json>, has_budget: bool) -> Result<(), String> {
    for (field, most) in BOUNDS {
        let is_fine = match fields.get(field) {
            None | Some(Json::Null) => true,
            Some(value) => value.as_u64().is_some_and(|count| (1..=most).contains(&count)),
        };
        if !is_fine {
            return Err(format!("{field} must be an int from 1 to {most}, or null"));
        }
    }
    let is_given = |field: &&&str| fields.get(**field).is_some_and(|value| !value.is_null());
    match BEYOND.iter().find(is_given).filter(|_| has_budget) {
        Some(field) => Err(format!("{field} cannot be used with a budget of tokens or cost: leave it out")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_tell_the_room_in_the_context_window() {
        let vllm = "'max_tokens' or 'max_completion_tokens' is too large: 4096. This model's maximum context length is 8192 tokens and your request has 4500 input tokens (4096 > 8192 - 4500).";
        let newer = "This model's maximum context length is 8192 tokens. However, you requested 4096 output tokens and your prompt contains at least 4097 input tokens, for a total of at least 8193 tokens.";
        let openai = "This model's maximum context length is 8192 tokens. However, you requested 8596 tokens (4500 in the messages, 4096 in the completion).";
        let sglang = "Requested token count exceeds the model's maximum context length of 8192 tokens. You requested a total of 8596 tokens: 4500 tokens from the input messages and 4096 tokens for the completion.";
        let openrouter = "This endpoint's maximum context length is 8192 tokens. However, you requested about 8596 tokens (4000 of text input, 500 of tool input, 4096 in the output).";
        let anthropic = "input length and `max_tokens` exceed context limit: 4500 + 4096 > 8192, decrease input length or `max_tokens` and try again";
        for error in [vllm, openai, sglang, openrouter, anthropic] {
            let told = ToldWindow::in_error(error, 4096).unwrap();
            assert_eq!(told, ToldWindow { window: 8192, prompt: 4500, is_least: false }, "{error}");
            assert_eq!(told.room(|| unreachable!()), Some(3692));
        }
        let told = ToldWindow::in_error(newer, 4096).unwrap();
        assert_eq!(told, ToldWindow { window: 8192, prompt: 4097, is_least: true });
        assert_eq!([5000, 100, 9000].map(|estimated| told.room(|| estimated)), [3192, 4095, 256].map(Some));
        let full = "input length and `max_tokens` exceed context limit: 8000 + 4096 > 8192";
        assert_eq!(ToldWindow::in_error(full, 4096).unwrap().room(|| 0), None);
        let other =
            "This model's maximum context length is 8192 tokens. Please reduce the length of the messages.";
        assert_eq!(ToldWindow::in_error(other, 4096), None);
    }
}
