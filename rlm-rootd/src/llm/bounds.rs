//! The fields of a request that bound its completion.

use serde_json::{Map, Value as Json};

/// Fields that bound the tokens of a completion.
const MAX_TOKENS: [&str; 2] = ["max_tokens", "max_completion_tokens"];

/// Fields that bound a completion, and the largest value of each.
const BOUNDS: [(&str, u64); 3] =
    [("max_tokens", 1 << 31), ("max_completion_tokens", 1 << 31), ("n", 1 << 10)];

/// Fields that let some servers exceed the bounds of a completion.
const BEYOND: [&str; 4] = ["best_of", "min_tokens", "max_new_tokens", "n_predict"];

/// The bound on a completion. If a request has both fields, servers use one of them.
pub(super) fn bound(fields: &Map<String, Json>) -> Option<u64> {
    MAX_TOKENS.iter().filter_map(|name| fields.get(*name)?.as_u64()).max()
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
