//! CPython loads our pickles as the same values.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use rlm_core::pickle::{Int, Limits, Value, WriteError, decode, encode, encode_within};

use super::fixtures::{cases, read};
use super::python::ask;

/// Reads lines of a repr and a pickle, and prints the names of those that differ in value, type or order.
const COMPARE: &str = "
import base64, json, pickle, sys
sys.setrecursionlimit(5000)
if hasattr(sys, 'set_int_max_str_digits'):
    sys.set_int_max_str_digits(0)

def canonical(value):
    if isinstance(value, (set, frozenset)):
        return type(value).__name__ + repr(sorted(map(canonical, value)))
    if isinstance(value, (list, tuple)):
        return type(value).__name__ + repr([canonical(item) for item in value])
    if isinstance(value, dict):
        return repr([(canonical(key), canonical(item)) for key, item in value.items()])
    return repr(value)

for line in sys.stdin:
    shown, pickled = json.loads(line)
    expected = eval(shown, {'nan': float('nan'), 'inf': float('inf')})
    loaded = pickle.loads(base64.b64decode(pickled))
    if canonical(expected) != canonical(loaded):
        print(shown, 'loaded as', repr(loaded))
";

#[test]
fn python_loads_our_pickles() {
    let mut lines = String::new();
    for case in cases().iter().filter(|case| case.name != "deep") {
        let value = read(&case.pickles().last().unwrap());
        let pickle = BASE64_STANDARD.encode(encode(&value).unwrap());
        lines += &serde_json::json!([value.repr(1 << 20).unwrap(), pickle]).to_string();
        lines.push('\n');
    }
    let Some(complaints) = ask(COMPARE, lines.as_bytes()) else { return };
    assert_eq!(String::from_utf8(complaints).unwrap(), "");
}

#[test]
fn values_survive_the_round_trip() {
    for case in cases() {
        let value = read(&case.pickles().last().unwrap());
        assert_eq!(read(&encode(&value).unwrap()), value, "{}", case.name);
    }
}

#[test]
fn ints_of_more_than_255_bytes_are_written() {
    let bytes = [&[1; 300][..], &[0xff]].concat();
    let int = Value::Int(Int::from_le_bytes(&bytes));
    assert_eq!(read(&encode(&int).unwrap()), int);
}

#[test]
fn a_pickle_over_the_size_limit_is_refused() {
    let shared = Value::list(vec![Value::from("x".repeat(1000)); 1000]);
    let length = encode(&shared).unwrap().len();
    assert_eq!(encode_within(&shared, length).unwrap().len(), length);
    assert_eq!(encode_within(&shared, length - 1), Err(WriteError::TooLarge(length - 1)));
}

#[test]
fn pickles_may_be_longer_if_the_caller_allows_it() {
    let text = Value::from("x".repeat(60 << 20));
    assert_eq!(encode(&text), Err(WriteError::TooLarge(32 << 20)));
    let pickle = encode_within(&text, 64 << 20).unwrap();
    let error = decode(&pickle, &Limits::default()).unwrap_err();
    assert_eq!(error.to_string(), "pickle, byte 33554432: more than 33554432 bytes of payload");
    let limits = Limits { payload_bytes: 64 << 20, ..Limits::default() };
    assert!(decode(&pickle, &limits).unwrap() == text);
}

#[test]
fn a_value_made_by_hand_may_be_too_deep() {
    let nested = (0..201).fold(Value::None, |value, _| Value::list([value]));
    assert_eq!(encode(&nested), Err(WriteError::TooDeep(200)));
}
