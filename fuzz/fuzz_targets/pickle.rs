//! Whatever comes as a pickle: no panic, nothing over the limits, and what was read can be printed, written and read again.

#![no_main]

use libfuzzer_sys::fuzz_target;
use rlm_core::pickle::{Limits, Value, decode, encode_within};

/// Longest text or pickle made of a value, in bytes: a few bytes can share a value thousands of times.
const MAX_BYTES: usize = 100_000;

fuzz_target!(|payload: &[u8]| {
    let limits = Limits { expanded_values: 50_000, ..Limits::default() };
    let Ok(value) = decode(payload, &limits) else { return };
    let _shown = value.repr(MAX_BYTES);
    if let Ok(json) = value.to_json(MAX_BYTES) {
        Value::from_json(&json).expect("it is no deeper than the value");
    }
    if let Ok(pickle) = encode_within(&value, MAX_BYTES) {
        assert_eq!(decode(&pickle, &Limits::default()).expect("it is our own"), value);
    }
});
