//! The fields of a request that bound its completion.

use serde_json::{Map, Value as Json};

/// Fields that bound a completion, and the largest value of each.
const BOUNDS: [(&str, u64); 3] =
    [("max_tokens", 1 << 31), ("max_completion_tokens", 1 << 31), ("n", 1 << 10)];

/// Fields that let some servers exceed the bounds of a completion.
const BEYOND: [&str; 4] = ["best_of", "min_tokens", "max_new_tokens", "n_predict"];

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
