//! JSON values as text.
//!
//! A value that is only passed on is never converted to numbers and back: an integer keeps all its digits, a float its
//! spelling, an object its order. [`Part`] reads one level of a value at a time.

use std::fmt;
use std::str::FromStr;

use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;

/// One JSON value as text, valid and without white space between its parts. Two values are equal if their texts are.
#[derive(Clone)]
pub struct JsonText(Box<RawValue>);

/// Text that is not a JSON value.
#[derive(Debug, thiserror::Error)]
#[error("not a JSON value: {0}")]
pub struct NotJson(String);

impl JsonText {
    /// The JSON text.
    #[must_use]
    pub fn get(&self) -> &str {
        self.0.get()
    }

    /// Nesting depth of arrays and objects: 0 for a scalar.
    #[must_use]
    pub fn depth(&self) -> usize {
        let (mut depth, mut deepest) = (0_usize, 0);
        outside_strings(self.get(), |byte| match byte {
            b'[' | b'{' => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        });
        deepest
    }

    /// The value's first level.
    #[must_use]
    pub fn part(&self) -> Part<'_> {
        Part::of(self.get())
    }

    fn compact(raw: Box<RawValue>) -> Self {
        let text = raw.get();
        let mut spaces = false;
        outside_strings(text, |byte| spaces |= byte.is_ascii_whitespace());
        if !spaces {
            return Self(raw);
        }
        let mut compact = Vec::with_capacity(text.len());
        let (mut in_string, mut escaped) = (false, false);
        for byte in text.bytes() {
            if in_string || !byte.is_ascii_whitespace() {
                compact.push(byte);
            }
            step(byte, &mut in_string, &mut escaped);
        }
        let compact = String::from_utf8(compact).expect("only white space was taken out of UTF-8");
        Self(RawValue::from_string(compact).expect("only white space was taken out of a JSON value"))
    }
}

/// Calls `see` with every byte of a JSON text that is outside a string.
fn outside_strings(text: &str, mut see: impl FnMut(u8)) {
    let (mut in_string, mut escaped) = (false, false);
    for byte in text.bytes() {
        if !in_string {
            see(byte);
        }
        step(byte, &mut in_string, &mut escaped);
    }
}

/// Updates the state of the scan: within a string, and after a backslash.
fn step(byte: u8, in_string: &mut bool, escaped: &mut bool) {
    match (byte, *in_string, *escaped) {
        (_, true, true) => *escaped = false,
        (b'\\', true, false) => *escaped = true,
        (b'"', inside, _) => *in_string = !inside,
        _ => {}
    }
}

impl PartialEq for JsonText {
    fn eq(&self, other: &Self) -> bool {
        self.get() == other.get()
    }
}

impl Eq for JsonText {}

impl fmt::Debug for JsonText {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "JsonText({})", self.get())
    }
}

impl FromStr for JsonText {
    type Err = NotJson;

    fn from_str(text: &str) -> Result<Self, NotJson> {
        let raw = serde_json::from_str::<Box<RawValue>>(text).map_err(|error| NotJson(error.to_string()))?;
        Ok(Self::compact(raw))
    }
}

impl From<Value> for JsonText {
    fn from(value: Value) -> Self {
        Self(RawValue::from_string(value.to_string()).expect("a JSON value is written as JSON"))
    }
}

impl Serialize for JsonText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for JsonText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Box::<RawValue>::deserialize(deserializer).map(Self::compact)
    }
}

/// One level of a JSON value.
#[derive(Debug, PartialEq, Eq)]
pub enum Part<'a> {
    /// `null`.
    Null,
    /// `true`, `false`.
    Bool(bool),
    /// A number, as written.
    Number(&'a str),
    /// A string.
    String(Wtf8),
    /// The texts of an array's items.
    Array(Vec<&'a str>),
    /// Names and texts of an object's fields, in order; a name may come twice.
    Object(Vec<(Wtf8, &'a str)>),
}

/// The bytes of a JSON string: UTF-8, except that lone surrogates (`\ud800`) are encoded as if they were characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wtf8(pub Vec<u8>);

impl<'a> Part<'a> {
    /// The first level of a valid JSON text.
    ///
    /// # Panics
    /// The text is not a JSON value.
    #[must_use]
    pub fn of(text: &'a str) -> Self {
        const VALID: &str = "the text was found valid before";
        match text.as_bytes().first() {
            Some(b'n') => Self::Null,
            Some(b't') => Self::Bool(true),
            Some(b'f') => Self::Bool(false),
            Some(b'"') => Self::String(serde_json::from_str(text).expect(VALID)),
            Some(b'[') => {
                let Items(items) = serde_json::from_str(text).expect(VALID);
                Self::Array(items)
            }
            Some(b'{') => {
                let Fields(fields) = serde_json::from_str(text).expect(VALID);
                Self::Object(fields)
            }
            _ => Self::Number(text),
        }
    }
}

impl<'de> Deserialize<'de> for Wtf8 {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Bytes;
        impl Visitor<'_> for Bytes {
            type Value = Wtf8;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a string")
            }

            fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Wtf8, E> {
                Ok(Wtf8(bytes.to_vec()))
            }
        }
        deserializer.deserialize_bytes(Bytes)
    }
}

struct Items<'a>(Vec<&'a str>);

impl<'de> Deserialize<'de> for Items<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct List;
        impl<'de> Visitor<'de> for List {
            type Value = Items<'de>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("an array")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Items<'de>, A::Error> {
                let mut list = Vec::new();
                while let Some(item) = items.next_element::<&RawValue>()? {
                    list.push(item.get());
                }
                Ok(Items(list))
            }
        }
        deserializer.deserialize_seq(List)
    }
}

struct Fields<'a>(Vec<(Wtf8, &'a str)>);

impl<'de> Deserialize<'de> for Fields<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Pairs;
        impl<'de> Visitor<'de> for Pairs {
            type Value = Fields<'de>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Fields<'de>, A::Error> {
                let mut pairs = Vec::new();
                while let Some((name, value)) = fields.next_entry::<Wtf8, &RawValue>()? {
                    pairs.push((name, value.get()));
                }
                Ok(Fields(pairs))
            }
        }
        deserializer.deserialize_map(Pairs)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn text(text: &str) -> JsonText {
        text.parse().unwrap()
    }

    fn string(bytes: &[u8]) -> Wtf8 {
        Wtf8(bytes.to_vec())
    }

    #[test]
    fn numbers_keep_their_spelling() {
        for number in ["1.0", "1e400", "-0", "1E+2", &"9".repeat(5000)] {
            assert_eq!(text(number).get(), number);
            assert_eq!(text(number).part(), Part::Number(number));
        }
    }

    #[test]
    fn white_space_goes_and_strings_stay() {
        let spaced = text(" { \"a b\" : [ 1 ,\n\t\"c \\\" d\\\\\" ] ,\r\"e\":{ } } ");
        assert_eq!(spaced.get(), r#"{"a b":[1,"c \" d\\"],"e":{}}"#);
        assert_eq!(spaced.depth(), 2);
        assert_eq!((text(r#""[[[""#).depth(), text("[[],{}]").depth()), (0, 2));
    }

    #[test]
    fn a_level_is_read_with_all_that_json_can_say() {
        assert_eq!((text("null").part(), text("false").part()), (Part::Null, Part::Bool(false)));
        assert_eq!(
            text(r#"{"b":[1],"a":"x","b":2,"\ud800":0}"#).part(),
            Part::Object(vec![
                (string(b"b"), "[1]"),
                (string(b"a"), r#""x""#),
                (string(b"b"), "2"),
                (string(b"\xed\xa0\x80"), "0")
            ])
        );
        assert_eq!(
            text(r#""\ud83d\ude00\udc00\u0000""#).part(),
            Part::String(string(b"\xf0\x9f\x98\x80\xed\xb0\x80\0"))
        );
        assert_eq!(text("[ [] , 1e9 ]").part(), Part::Array(vec!["[]", "1e9"]));
        assert!("[1,]".parse::<JsonText>().is_err() && "".parse::<JsonText>().is_err());
    }

    proptest! {
        #[test]
        fn any_string_comes_back(plain in any::<String>()) {
            let json = JsonText::from(Value::from(plain.clone()));
            prop_assert_eq!(json.part(), Part::String(Wtf8(plain.into_bytes())));
        }

        #[test]
        fn any_text_is_a_value_or_none(anything in "[\\[\\]{}\":, \\\\a-e0-9.-]{0,40}") {
            let valid = serde_json::from_str::<Value>(&anything);
            let json = anything.parse::<JsonText>();
            // A text can hold numbers out of range and lone surrogates; a `Value` cannot.
            prop_assert!(json.is_ok() || valid.is_err());
            if let (Ok(json), Ok(valid)) = (json, valid) {
                prop_assert_eq!(serde_json::from_str::<Value>(json.get()).unwrap(), valid);
            }
        }
    }
}
