//! Pickles from CPython give the values that CPython means, in every protocol.

use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use rlm_core::pickle::{Limits, Value, decode};
use serde::Deserialize;

use super::python::ask;

#[derive(Deserialize)]
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) repr: String,
    /// Base64, one for each protocol from 0 on.
    pickles: Vec<String>,
}

impl Case {
    pub(crate) fn pickles(&self) -> impl Iterator<Item = Vec<u8>> {
        self.pickles.iter().map(|pickle| BASE64_STANDARD.decode(pickle).unwrap())
    }
}

/// Written by `testdata/pickle/generate.py`.
pub(crate) fn cases() -> Vec<Case> {
    serde_json::from_str(include_str!("../../testdata/pickle/cases.json")).unwrap()
}

pub(crate) fn read(pickle: &[u8]) -> Value {
    decode(pickle, &Limits::default()).unwrap_or_else(|error| panic!("{error}: {}", pickle.escape_ascii()))
}

fn case(name: &str) -> Case {
    cases().into_iter().find(|case| case.name == name).unwrap()
}

fn list(value: &Value) -> &[Value] {
    let Value::List(items) = value else { panic!("{value:?} is not a list") };
    items
}

fn is_same(one: &Value, two: &Value) -> bool {
    match (one, two) {
        (Value::Str(one), Value::Str(two)) => Arc::ptr_eq(one, two),
        (Value::Bytes(one), Value::Bytes(two)) | (Value::ByteArray(one), Value::ByteArray(two)) => {
            Arc::ptr_eq(one, two)
        }
        (Value::List(one), Value::List(two)) | (Value::Tuple(one), Value::Tuple(two)) => {
            Arc::ptr_eq(one, two)
        }
        (Value::Dict(one), Value::Dict(two)) => Arc::ptr_eq(one, two),
        (Value::Set(one), Value::Set(two)) | (Value::FrozenSet(one), Value::FrozenSet(two)) => {
            Arc::ptr_eq(one, two)
        }
        _ => false,
    }
}

#[test]
fn every_protocol_gives_the_value_that_python_means() {
    for case in cases() {
        let pickles: Vec<_> = case.pickles().collect();
        assert_eq!(pickles.len(), 6);
        for (protocol, pickle) in pickles.iter().enumerate() {
            let shown = read(pickle).repr(1 << 20).unwrap();
            assert_eq!(shown, case.repr, "{}, protocol {protocol}", case.name);
        }
    }
}

#[test]
fn values_that_python_shares_are_shared() {
    for pickle in case("shared at two levels").pickles() {
        let Value::Dict(dict) = read(&pickle) else { panic!("not a dict") };
        let (x, y) = (list(dict.get("x").unwrap()), list(dict.get("y").unwrap()));
        assert!(is_same(&x[0], &y[0]) && is_same(&x[1], &y[1]));
    }
    for pickle in case("shared and shared again").pickles() {
        let value = read(&pickle);
        let pair = list(&value);
        assert!(is_same(&pair[0], &pair[1]) && is_same(&list(&pair[0])[0], &list(&pair[1])[1]));
    }
    for pickle in case("shared str, bytes, tuple, set").pickles() {
        let value = read(&pickle);
        let [one, two] = list(&value) else { panic!("not a pair") };
        assert!(list(one).iter().zip(list(two)).all(|(one, two)| is_same(one, two)), "{value:?}");
    }
}

#[test]
fn ten_million_characters_are_read() {
    let script =
        "import pickle, sys; sys.stdout.buffer.write(pickle.dumps('x' * 10**7, int(sys.stdin.read())))";
    for protocol in 0..=5 {
        let Some(pickle) = ask(script, protocol.to_string().as_bytes()) else { return };
        let value = read(&pickle);
        assert!(matches!(&value, Value::Str(text) if text.len() == 10_000_000), "protocol {protocol}");
    }
}

#[test]
fn the_same_characters_are_printable_as_in_python() {
    let script = "
import sys, unicodedata
for code in range(0x110000):
    if not 0xd800 <= code < 0xe000:
        character = chr(code)
        mark = 'p' if character.isprintable() else 'u' if unicodedata.category(character) == 'Cn' else '.'
        sys.stdout.write(mark)
";
    let Some(marks) = ask(script, b"") else { return };
    let characters = '\0'..=char::MAX;
    for (character, mark) in characters.zip(marks) {
        let shown = Value::from(character.to_string()).repr(20).unwrap();
        let printed = shown.contains(character) || matches!(character, '\\' | '\'');
        // A character unassigned in Python's Unicode version may be assigned in ours.
        assert!(printed == (mark == b'p') || mark == b'u', "U+{:04X}: {shown}", u32::from(character));
    }
}
