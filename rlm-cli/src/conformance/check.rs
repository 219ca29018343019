//! Comparisons of what a case expects with what it saw.

use std::fmt::{Debug, Display};

use serde_json::{Value, json};

/// A broken promise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) expected: String,
    pub(super) seen: String,
}

/// The result of a step of a case.
pub(super) type Check<T = ()> = Result<T, Fault>;

/// Most characters of a value in a message.
const MAX_SHOWN_CHARS: usize = 600;

/// A fault.
pub(super) fn fault<T>(expected: impl Display, seen: impl Display) -> Check<T> {
    Err(Fault { expected: short(&expected.to_string()), seen: short(&seen.to_string()) })
}

/// Checks a condition.
pub(super) fn that(holds: bool, expected: impl Display, seen: impl Display) -> Check {
    if holds { Ok(()) } else { fault(expected, seen) }
}

/// Checks that two values are the same.
pub(super) fn same<T: PartialEq + Debug>(what: &str, expected: &T, seen: &T) -> Check {
    that(expected == seen, format_args!("{what}: {expected:?}"), format_args!("{what}: {seen:?}"))
}

/// Checks fields of an object: those that are expected, and no others.
pub(super) fn fields(expected: &Value, seen: &Value) -> Check {
    let names = expected.as_object().into_iter().flatten().map(|(name, _)| name);
    let of_seen: serde_json::Map<_, _> =
        names.map(|name| (name.clone(), seen.get(name).cloned().unwrap_or(json!("(missing)")))).collect();
    let of_seen = Value::Object(of_seen);
    that(*expected == of_seen, expected, format_args!("{of_seen} in {seen}"))
}

/// Checks that an object has fields with these names, and no others.
pub(super) fn names(what: &str, expected: &[&str], seen: &Value) -> Check {
    let mut expected: Vec<&str> = expected.to_vec();
    let mut found: Vec<&str> =
        seen.as_object().into_iter().flatten().map(|(name, _)| name.as_str()).collect();
    expected.sort_unstable();
    found.sort_unstable();
    same(what, &expected, &found)
}

/// A text that is cut in its middle if it is long.
fn short(text: &str) -> String {
    let count = text.chars().count();
    if count <= MAX_SHOWN_CHARS {
        return text.to_owned();
    }
    let half = MAX_SHOWN_CHARS / 2;
    let head: String = text.chars().take(half).collect();
    let tail: String = text.chars().skip(count - half).collect();
    format!("{head} … {tail}")
}
