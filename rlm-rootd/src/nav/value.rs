//! Construction of result values.

use rlm_core::pickle::{Dict, Value};

/// A dict of these pairs, in their order.
pub(super) fn dict<const N: usize>(pairs: [(&str, Value); N]) -> Value {
    of_pairs(pairs.into_iter().map(|(key, value)| (Value::from(key), value)))
}

/// A dict of these pairs, in their order; the keys are str.
pub(super) fn of_pairs(pairs: impl IntoIterator<Item = (Value, Value)>) -> Value {
    Value::from(Dict::from_pairs(pairs).expect("a str is hashable"))
}

/// An int.
pub(super) fn int(number: impl TryInto<i64>) -> Value {
    Value::from(number.try_into().unwrap_or(i64::MAX))
}
