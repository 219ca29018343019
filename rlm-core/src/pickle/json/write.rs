//! Encodes values as JSON text or `serde_json`'s tree, and converts that tree to values.

use std::sync::Arc;

use serde_json::{Map, Number, Value as Json};

use super::super::error::WriteError;
use super::super::int::Int;
use super::super::limits::MAX_DEPTH;
use super::super::repr;
use super::super::value::{Dict, Value};

/// Longest excerpt of a value or key in an error, in bytes.
const EXCERPT_BYTES: usize = 60;

impl Value {
    /// Converts the value as Python's `json.dumps` would: tuples become arrays, and keys that are None, bool, int or
    /// float become strings. Of keys that become equal, the last one counts. The tree takes 72 bytes of memory for each
    /// value and more for an object's, however short its text.
    ///
    /// # Errors
    /// [`WriteError::NotJson`] for NaN and infinities, ints of more than 64 bits (which `serde_json` cannot hold),
    /// bytes, bytearrays, sets, and keys of other types; [`WriteError::TooLarge`] if the JSON text without escapes
    /// would be longer than `max_bytes`; [`WriteError::TooDeep`].
    pub fn to_json(&self, max_bytes: usize) -> Result<Json, WriteError> {
        let mut walk = Walk { max_bytes, left: max_bytes };
        walk.value(self, 0).map_err(with_root)
    }

    /// Encodes the value as Python's `json.dumps` would, but without spaces and without escapes for non-ASCII text.
    /// Ints may have any size; otherwise this is [`Self::to_json`].
    ///
    /// # Errors
    /// The errors of [`Self::to_json`]; [`WriteError::TooLarge`] counts the bytes written.
    pub fn to_json_text(&self, max_bytes: usize) -> Result<Vec<u8>, WriteError> {
        let mut bytes = Vec::new();
        self.push_json_text(&mut bytes, max_bytes)?;
        Ok(bytes)
    }

    /// Appends [`Self::to_json_text`] to a text. `max_bytes` limits the whole text.
    ///
    /// # Errors
    /// The errors of [`Self::to_json_text`]; part of the value may have been appended.
    pub fn push_json_text(&self, text: &mut Vec<u8>, max_bytes: usize) -> Result<(), WriteError> {
        Text { bytes: text, max_bytes, style: Style::Compact }.value(self, 0).map_err(with_root)
    }

    /// Encodes the value as Python's `json.dumps` does, including spaces: all ASCII, NaN and infinities by name.
    ///
    /// # Errors
    /// The errors of [`Self::to_json_text`], except for NaN and infinities.
    pub fn to_python_json(&self, max_bytes: usize) -> Result<String, WriteError> {
        let mut bytes = Vec::new();
        Text { bytes: &mut bytes, max_bytes, style: Style::Python }.value(self, 0).map_err(with_root)?;
        Ok(String::from_utf8(bytes).expect("all of it is ASCII"))
    }

    /// The value that Python's `json.loads` would give for this JSON, except that ints of more than 64 bits are floats,
    /// as `serde_json` reads them. [`Self::from_json_text`] keeps them.
    ///
    /// # Errors
    /// [`WriteError::TooDeep`] beyond [`MAX_DEPTH`].
    pub fn from_json(json: &Json) -> Result<Self, WriteError> {
        from_json(json, 0)
    }
}

struct Walk {
    max_bytes: usize,
    left: usize,
}

impl Walk {
    fn value(&mut self, value: &Value, depth: usize) -> Result<Json, WriteError> {
        if depth > MAX_DEPTH {
            return Err(WriteError::TooDeep(MAX_DEPTH));
        }
        Ok(match value {
            Value::None => self.scalar(Json::Null, "null".len())?,
            Value::Bool(value) => self.scalar(Json::Bool(*value), "true".len())?,
            Value::Int(int) => {
                let number = number(int).ok_or_else(|| not_json(value))?;
                self.scalar(Json::Number(number), 1)?
            }
            Value::Float(float) => {
                let number = Number::from_f64(*float).ok_or_else(|| not_json(value))?;
                self.scalar(Json::Number(number), "0.0".len())?
            }
            Value::Str(text) => {
                self.spend(text.len() + 2)?;
                Json::String(text.to_string())
            }
            Value::Tuple(items) | Value::List(items) => self.array(items, depth)?,
            Value::Dict(dict) => self.object(dict, depth)?,
            Value::Bytes(_) | Value::ByteArray(_) | Value::Set(_) | Value::FrozenSet(_) => {
                return Err(not_json(value));
            }
        })
    }

    fn array(&mut self, items: &[Value], depth: usize) -> Result<Json, WriteError> {
        self.spend(2 + items.len().saturating_sub(1))?;
        let mut array = Vec::with_capacity(items.len());
        for (at, item) in items.iter().enumerate() {
            let place = || format!("[{at}]");
            array.push(self.value(item, depth + 1).map_err(|error| within(error, place))?);
        }
        Ok(Json::Array(array))
    }

    fn object(&mut self, dict: &Dict, depth: usize) -> Result<Json, WriteError> {
        self.spend(2 + dict.len().saturating_sub(1))?;
        let mut object = Map::with_capacity(dict.len());
        for (key, value) in dict.iter() {
            let name = name(key)?;
            self.spend(name.len() + 3)?;
            let place = || format!("[{}]", key.short_repr(EXCERPT_BYTES));
            let value = self.value(value, depth + 1).map_err(|error| within(error, place))?;
            object.insert(name, value);
        }
        Ok(Json::Object(object))
    }

    fn scalar(&mut self, json: Json, bytes: usize) -> Result<Json, WriteError> {
        self.spend(bytes)?;
        Ok(json)
    }

    fn spend(&mut self, bytes: usize) -> Result<(), WriteError> {
        self.left = self.left.checked_sub(bytes).ok_or(WriteError::TooLarge(self.max_bytes))?;
        Ok(())
    }
}

/// The formatting of a JSON text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Style {
    /// `serde_json`'s formatting.
    Compact,
    /// The formatting of Python's `json.dumps`.
    Python,
}

/// A JSON text being written.
struct Text<'a> {
    bytes: &'a mut Vec<u8>,
    max_bytes: usize,
    style: Style,
}

impl Text<'_> {
    fn value(&mut self, value: &Value, depth: usize) -> Result<(), WriteError> {
        if depth > MAX_DEPTH {
            return Err(WriteError::TooDeep(MAX_DEPTH));
        }
        match value {
            Value::None => self.push(b"null"),
            Value::Bool(true) => self.push(b"true"),
            Value::Bool(false) => self.push(b"false"),
            Value::Int(int) => self.push(int.to_string().as_bytes()),
            Value::Float(float) => {
                let text = match self.style {
                    Style::Compact => Number::from_f64(*float).ok_or_else(|| not_json(value))?.to_string(),
                    Style::Python => python_float(*float),
                };
                self.push(text.as_bytes())
            }
            Value::Str(text) => self.string(text),
            Value::Tuple(items) | Value::List(items) => self.array(items, depth),
            Value::Dict(dict) => self.object(dict, depth),
            Value::Bytes(_) | Value::ByteArray(_) | Value::Set(_) | Value::FrozenSet(_) => {
                Err(not_json(value))
            }
        }
    }

    fn array(&mut self, items: &[Value], depth: usize) -> Result<(), WriteError> {
        self.push(b"[")?;
        for (at, item) in items.iter().enumerate() {
            self.comma(at)?;
            self.value(item, depth + 1).map_err(|error| within(error, || format!("[{at}]")))?;
        }
        self.push(b"]")
    }

    fn object(&mut self, dict: &Dict, depth: usize) -> Result<(), WriteError> {
        self.push(b"{")?;
        for (at, (key, value)) in dict.iter().enumerate() {
            self.comma(at)?;
            match key {
                Value::Str(key) => self.string(key)?,
                Value::Float(key) if self.style == Style::Python => self.string(&python_float(*key))?,
                other => self.string(&name(other)?)?,
            }
            self.push(if self.style == Style::Python { b": " } else { b":" })?;
            let place = || format!("[{}]", key.short_repr(EXCERPT_BYTES));
            self.value(value, depth + 1).map_err(|error| within(error, place))?;
        }
        self.push(b"}")
    }

    fn comma(&mut self, at: usize) -> Result<(), WriteError> {
        match (at, self.style) {
            (0, _) => Ok(()),
            (_, Style::Compact) => self.push(b","),
            (_, Style::Python) => self.push(b", "),
        }
    }

    fn string(&mut self, text: &str) -> Result<(), WriteError> {
        self.check(text.len() + 2)?;
        let start = self.bytes.len();
        serde_json::to_writer(&mut *self.bytes, text).expect("a str can be written to a Vec");
        if self.style == Style::Python && !self.bytes[start..].iter().all(|byte| is_plain(*byte)) {
            let written = self.bytes.split_off(start);
            escape_for_ascii(&String::from_utf8(written).expect("JSON is UTF-8"), self.bytes);
        }
        self.check(0)
    }

    fn push(&mut self, piece: &[u8]) -> Result<(), WriteError> {
        self.check(piece.len())?;
        self.bytes.extend_from_slice(piece);
        Ok(())
    }

    /// Checks that this many more bytes fit.
    fn check(&self, more: usize) -> Result<(), WriteError> {
        if self.bytes.len() + more > self.max_bytes {
            return Err(WriteError::TooLarge(self.max_bytes));
        }
        Ok(())
    }
}

/// True for a character that ASCII JSON does not escape; Python escapes DEL.
fn is_plain(byte: u8) -> bool {
    matches!(byte, b' '..=b'~')
}

/// Appends a JSON text, with non-ASCII characters escaped.
fn escape_for_ascii(json: &str, bytes: &mut Vec<u8>) {
    for character in json.chars() {
        match u8::try_from(character) {
            Ok(byte) if is_plain(byte) => bytes.push(byte),
            _ => {
                for unit in character.encode_utf16(&mut [0; 2]) {
                    bytes.extend_from_slice(format!("\\u{unit:04x}").as_bytes());
                }
            }
        }
    }
}

/// Formats a float as Python's `json.dumps` does.
fn python_float(float: f64) -> String {
    match float {
        f64::INFINITY => "Infinity".to_owned(),
        f64::NEG_INFINITY => "-Infinity".to_owned(),
        float if float.is_nan() => "NaN".to_owned(),
        float => repr::float(float),
    }
}

/// Prefixes the path of an error with the whole value.
fn with_root(error: WriteError) -> WriteError {
    match error {
        WriteError::NotJson { path, what } => WriteError::NotJson { path: format!("value{path}"), what },
        other => other,
    }
}

/// Formats a key as Python's `json.dumps` does.
fn name(key: &Value) -> Result<String, WriteError> {
    Ok(match key {
        Value::Str(text) => text.to_string(),
        Value::None => "null".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Int(int) => int.to_string(),
        Value::Float(float) if float.is_finite() => repr::float(*float),
        _ => {
            let what = format!("a dict with the key {}", described(key));
            return Err(WriteError::NotJson { path: String::new(), what });
        }
    })
}

fn number(int: &Int) -> Option<Number> {
    int.as_i64().map(Number::from).or_else(|| int.as_u64().map(Number::from))
}

fn not_json(value: &Value) -> WriteError {
    WriteError::NotJson { path: String::new(), what: described(value) }
}

fn described(value: &Value) -> String {
    format!("the {} {}", value.type_name(), value.short_repr(EXCERPT_BYTES))
}

/// Prefixes the path of an error with a step.
fn within(error: WriteError, step: impl FnOnce() -> String) -> WriteError {
    match error {
        WriteError::NotJson { path, what } => WriteError::NotJson { path: step() + &path, what },
        other => other,
    }
}

fn from_json(json: &Json, depth: usize) -> Result<Value, WriteError> {
    if depth > MAX_DEPTH {
        return Err(WriteError::TooDeep(MAX_DEPTH));
    }
    Ok(match json {
        Json::Null => Value::None,
        Json::Bool(value) => Value::Bool(*value),
        Json::Number(number) => from_number(number),
        Json::String(text) => Value::from(text.as_str()),
        Json::Array(items) => {
            let items: Result<_, _> = items.iter().map(|item| from_json(item, depth + 1)).collect();
            Value::List(Arc::new(items?))
        }
        Json::Object(object) => {
            let pair =
                |(name, json): (&String, _)| Ok((Value::from(name.as_str()), from_json(json, depth + 1)?));
            // The names in an object are already distinct.
            Value::from(Dict { pairs: object.iter().map(pair).collect::<Result<_, _>>()? })
        }
    })
}

fn from_number(number: &Number) -> Value {
    match (number.as_i64(), number.as_u64()) {
        (Some(int), _) => Value::from(int),
        (None, Some(int)) => Value::Int(Int::from(int)),
        (None, None) => Value::Float(number.as_f64().expect("a number is one of the three")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::super::value::Set;
    use super::*;

    fn dict<const LENGTH: usize>(pairs: [(Value, Value); LENGTH]) -> Value {
        Dict::from_pairs(pairs).unwrap().into()
    }

    #[track_caller]
    fn check(value: &Value, expected: &str) {
        let json = value.to_json(1000).map(|json| json.to_string());
        assert_eq!(json.unwrap_or_else(|error| error.to_string()), expected);
        let text = value.to_json_text(1000).map(|text| String::from_utf8(text).unwrap());
        assert_eq!(text.unwrap_or_else(|error| error.to_string()), expected);
    }

    #[test]
    fn keys_are_written_as_python_writes_them() {
        let keys = [Value::None, true.into(), 2i64.into(), 1e20.into(), "z".into(), "a".into()];
        let pairs = keys.into_iter().map(|key| (key, Value::tuple([])));
        let value = Value::from(Dict::from_pairs(pairs).unwrap());
        check(&value, r#"{"null":[],"true":[],"2":[],"1e+20":[],"z":[],"a":[]}"#);
    }

    #[test]
    fn values_that_json_cannot_hold_are_named_with_their_path() {
        let rows = |value| dict([("rows".into(), Value::list([Value::None, value]))]);
        check(&rows(f64::NAN.into()), "value['rows'][1] is the float nan, which JSON cannot hold");
        check(&Value::Bytes(b"x"[..].into()), "value is the bytes b'x', which JSON cannot hold");
        check(
            &rows(Value::Set(Arc::new(Set::default()))),
            "value['rows'][1] is the set set(), which JSON cannot hold",
        );
        check(
            &rows(dict([(Value::tuple([1i64.into()]), Value::None)])),
            "value['rows'][1] is a dict with the key the tuple (1,), which JSON cannot hold",
        );
        let long = Value::Int(Int::from_decimal(&"1".repeat(100)).unwrap());
        let what = format!("the int {}…", "1".repeat(EXCERPT_BYTES));
        assert_eq!(long.to_json(1000), Err(WriteError::NotJson { path: "value".into(), what }));
    }

    #[test]
    fn shared_values_count_each_time() {
        let text = Value::from("x".repeat(100));
        let shared = Value::list(vec![text; 50]);
        assert!(shared.to_json(50 * 103 + 1).is_ok());
        assert_eq!(shared.to_json(50 * 103), Err(WriteError::TooLarge(50 * 103)));
        assert_eq!(shared.to_json_text(50 * 103 + 1).unwrap().len(), 50 * 103 + 1);
        assert_eq!(shared.to_json_text(50 * 103), Err(WriteError::TooLarge(50 * 103)));
        // Escapes count too.
        assert_eq!(Value::from("\0".repeat(10)).to_json_text(61), Err(WriteError::TooLarge(61)));
    }

    #[test]
    fn a_large_int_is_digits_in_a_text() {
        let int = Value::Int(Int::from_decimal("-12345678901234567890123").unwrap());
        let text = Value::list([int.clone(), 1e20.into()]).to_json_text(100).unwrap();
        assert_eq!(String::from_utf8(text).unwrap(), "[-12345678901234567890123,1e+20]");
    }

    #[test]
    fn json_survives_the_round_trip() {
        let json = json!({"b": [1, -1, 1.5, u64::MAX, null, true, "é"], "a": {}});
        let value = Value::from_json(&json).unwrap();
        assert_eq!(
            value.repr(1000).unwrap(),
            "{'b': [1, -1, 1.5, 18446744073709551615, None, True, 'é'], 'a': {}}"
        );
        assert_eq!(value.to_json(1000).unwrap(), json);
    }

    #[test]
    fn json_too_deep_is_refused() {
        let nested = |levels| (0..levels).fold(Json::Null, |json, _| json!([json]));
        assert!(Value::from_json(&nested(MAX_DEPTH)).is_ok());
        assert_eq!(Value::from_json(&nested(MAX_DEPTH + 1)), Err(WriteError::TooDeep(MAX_DEPTH)));
    }
}
