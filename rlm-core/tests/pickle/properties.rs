//! Random values, and random bytes.

use std::sync::Arc;

use proptest::prelude::*;
use rlm_core::pickle::{Dict, Int, Limits, Set, Value, decode, encode};

use super::fixtures::cases;

fn scalar() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::None),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        prop::collection::vec(any::<u8>(), 0..40).prop_map(|bytes| Value::Int(Int::from_le_bytes(&bytes))),
        any::<f64>().prop_map(Value::from),
        (-300i64..300).prop_map(|int| Value::from(int as f64)),
        any::<String>().prop_map(Value::from),
        prop::collection::vec(any::<u8>(), 0..300).prop_map(|bytes| Value::Bytes(bytes.into())),
    ]
}

fn set(items: Vec<Value>) -> Arc<Set> {
    Arc::new(Set::from_items(items).unwrap())
}

fn key() -> impl Strategy<Value = Value> {
    scalar().prop_recursive(3, 12, 4, |key| {
        let keys = prop::collection::vec(key, 0..5);
        prop_oneof![keys.clone().prop_map(Value::tuple), keys.prop_map(|items| Value::FrozenSet(set(items))),]
    })
}

fn value() -> impl Strategy<Value = Value> {
    let bytearray = prop::collection::vec(any::<u8>(), 0..9).prop_map(|bytes| Value::ByteArray(bytes.into()));
    let leaf = prop_oneof![
        4 => key(),
        1 => bytearray,
        1 => prop::collection::vec(key(), 0..5).prop_map(|items| Value::Set(set(items))),
    ];
    leaf.prop_recursive(4, 40, 6, |value| {
        let values = prop::collection::vec(value.clone(), 0..6);
        prop_oneof![
            values.clone().prop_map(Value::tuple),
            values.clone().prop_map(Value::list),
            values.prop_map(|items| {
                let shared = Value::list(items);
                Value::tuple([shared.clone(), Value::list([shared.clone()]), shared])
            }),
            prop::collection::vec((key(), value), 0..6)
                .prop_map(|pairs| Value::from(Dict::from_pairs(pairs).unwrap())),
        ]
    })
}

/// The value as serde-pickle represents it. None for a value with NaN, dicts or sets, which it orders differently.
fn second_opinion(value: &Value) -> Option<serde_pickle::Value> {
    use serde_pickle::Value as Other;
    let all = |items: &[Value]| items.iter().map(second_opinion).collect::<Option<Vec<_>>>();
    Some(match value {
        Value::None => Other::None,
        Value::Bool(value) => Other::Bool(*value),
        Value::Int(int) => Other::I64(int.as_i64()?),
        Value::Float(value) if !value.is_nan() => Other::F64(*value),
        Value::Str(text) => Other::String(text.to_string()),
        Value::Bytes(bytes) => Other::Bytes(bytes.to_vec()),
        Value::Tuple(items) => Other::Tuple(all(items)?),
        Value::List(items) => Other::List(all(items)?),
        _ => return None,
    })
}

/// Limits that a few bytes reach.
fn small() -> Limits {
    Limits {
        payload_bytes: 4096,
        depth: 20,
        opcodes: 300,
        stack: 50,
        marks: 10,
        memo_entries: 20,
        memo_index: 300,
        expanded_values: 500,
        expanded_bytes: 5000,
        digits: 30,
        int_bytes: 30,
    }
}

/// Decodes arbitrary bytes, and walks the value if there is one.
fn read_and_walk(bytes: &[u8]) {
    for limits in [small(), Limits::default()] {
        let Ok(value) = decode(bytes, &limits) else { continue };
        let _shown = value.repr(10_000);
        let _json = value.to_json(10_000);
        if let Ok(pickle) = encode(&value) {
            assert_eq!(decode(&pickle, &Limits::default()).unwrap(), value);
        }
    }
}

proptest! {
    #[test]
    fn values_survive_the_round_trip(value in value()) {
        let pickle = encode(&value).unwrap();
        prop_assert_eq!(decode(&pickle, &Limits::default()).unwrap(), value);
    }

    #[test]
    fn serde_pickle_reads_the_same(value in value()) {
        let theirs = serde_pickle::value_from_slice(&encode(&value).unwrap(), serde_pickle::DeOptions::new());
        prop_assert!(theirs.is_ok(), "{:?}", theirs);
        if let Some(expected) = second_opinion(&value) {
            prop_assert_eq!(theirs.unwrap(), expected);
        }
    }

    #[test]
    fn pickles_of_serde_pickle_are_read(value in value()) {
        if let Some(theirs) = second_opinion(&value) {
            for options in [serde_pickle::SerOptions::new(), serde_pickle::SerOptions::new().proto_v2()] {
                let pickle = serde_pickle::value_to_vec(&theirs, options).unwrap();
                prop_assert_eq!(&decode(&pickle, &Limits::default()).unwrap(), &value);
            }
        }
    }

    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        read_and_walk(&bytes);
    }

    #[test]
    fn no_opcodes_panic(at in prop::collection::vec(0usize..OPCODES.len(), 0..60)) {
        let mut bytes: Vec<u8> = at.into_iter().flat_map(|at| OPCODES[at]).copied().collect();
        bytes.push(b'.');
        read_and_walk(&bytes);
    }

    #[test]
    fn no_change_to_a_pickle_panics(
        case in any::<prop::sample::Index>(),
        protocol in 0usize..6,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        end in any::<prop::sample::Index>(),
    ) {
        let cases = cases();
        let mut pickle = case.get(&cases).pickles().nth(protocol).unwrap();
        for (at, byte) in changes {
            let at = at.index(pickle.len());
            pickle[at] = byte;
        }
        read_and_walk(&pickle);
        pickle.truncate(end.index(pickle.len()));
        read_and_walk(&pickle);
    }
}

/// Whole opcodes, chosen so that most of them apply to most stacks.
const OPCODES: &[&[u8]] = &[
    b"(",
    b"0",
    b"1",
    b"2",
    b"N",
    b"K\x01",
    b"]",
    b"}",
    b")",
    b"\x8f",
    b"a",
    b"e",
    b"s",
    b"u",
    b"\x90",
    b"\x91",
    b"t",
    b"l",
    b"d",
    b"\x85",
    b"\x86",
    b"\x87",
    b"\x94",
    b"q\x00",
    b"q\x01",
    b"h\x00",
    b"h\x01",
    b"R",
    b"\x8c\x01a",
    b"C\x01b",
    b"cbuiltins\nset\n",
    b"cbuiltins\nfrozenset\n",
    b"cbuiltins\nbytes\n",
    b"cbuiltins\nbytearray\n",
    b"c_codecs\nencode\n",
    b"\x8c\x06latin1",
    b"G\x7f\xf8\0\0\0\0\0\0",
    b"\x8a\x09\0\0\0\0\0\0\0\0\x01",
];
