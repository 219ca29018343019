//! Decodes JSON text to values.

use std::sync::Arc;

use super::super::int::Int;
use super::super::keys::Keys;
use super::super::limits::{Limits, MAX_DEPTH};
use super::super::value::{Dict, Value};

/// Objects with at most this many pairs are checked for duplicate names pair by pair.
const FEW_PAIRS: usize = 16;

/// A JSON text that was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JsonError {
    /// Not JSON; the message says where.
    #[error("{0}")]
    Syntax(String),
    /// Over one of the [`Limits`].
    #[error("more than {limit} {what}")]
    Limit {
        /// Unit of the limit.
        what: &'static str,
        /// Largest allowed number.
        limit: usize,
    },
}

impl Value {
    /// The value that Python's `json.loads` gives for this JSON text. A lone surrogate becomes U+FFFD, as in
    /// [`decode`](super::super::decode); numbers beyond the range of floats, NaN and infinities are refused.
    ///
    /// # Errors
    /// [`JsonError`] if it is not JSON, or is over the [`Limits`] on values, depth or digits.
    pub fn from_json_text(text: &[u8], limits: &Limits) -> Result<Self, JsonError> {
        let not_utf8 = |error: std::str::Utf8Error| {
            JsonError::Syntax(format!("invalid UTF-8 at byte {}", error.valid_up_to()))
        };
        let source = str::from_utf8(text).map_err(not_utf8)?;
        let mut reader = Reader { source, at: 0, values: 0, limits };
        reader.document().map_err(|fault| match fault {
            Fault::Syntax => JsonError::Syntax(explained(source, reader.at)),
            Fault::Limit { what, limit } => JsonError::Limit { what, limit },
        })
    }
}

enum Fault {
    Syntax,
    Limit { what: &'static str, limit: usize },
}

struct Reader<'a> {
    source: &'a str,
    /// Offset of the next byte, always at the start of a character.
    at: usize,
    values: usize,
    limits: &'a Limits,
}

impl<'a> Reader<'a> {
    fn document(&mut self) -> Result<Value, Fault> {
        let value = self.value(0)?;
        match self.next_token() {
            None => Ok(value),
            Some(_) => Err(Fault::Syntax),
        }
    }

    fn value(&mut self, depth: usize) -> Result<Value, Fault> {
        self.values += 1;
        if self.values > self.limits.expanded_values {
            return Err(Fault::Limit { what: "values", limit: self.limits.expanded_values });
        }
        match self.next_token().ok_or(Fault::Syntax)? {
            b'n' => self.word("null", Value::None),
            b't' => self.word("true", Value::Bool(true)),
            b'f' => self.word("false", Value::Bool(false)),
            b'"' => self.string().map(Value::Str),
            b'[' => self.list(self.deeper(depth)?),
            b'{' => self.dict(self.deeper(depth)?),
            b'-' | b'0'..=b'9' => self.number(),
            _ => Err(Fault::Syntax),
        }
    }

    fn deeper(&self, depth: usize) -> Result<usize, Fault> {
        let limit = self.limits.depth.min(MAX_DEPTH);
        if depth >= limit { Err(Fault::Limit { what: "levels of nesting", limit }) } else { Ok(depth + 1) }
    }

    fn list(&mut self, depth: usize) -> Result<Value, Fault> {
        self.at += 1;
        let mut items = Vec::new();
        if self.next_token() == Some(b']') {
            self.at += 1;
            return Ok(Value::List(Arc::new(items)));
        }
        loop {
            items.push(self.value(depth)?);
            if self.is_last(b']')? {
                items.shrink_to_fit();
                return Ok(Value::List(Arc::new(items)));
            }
        }
    }

    fn dict(&mut self, depth: usize) -> Result<Value, Fault> {
        self.at += 1;
        let mut pairs = Vec::new();
        if self.next_token() == Some(b'}') {
            self.at += 1;
            return Ok(dict_of(pairs));
        }
        loop {
            if self.next_token() != Some(b'"') {
                return Err(Fault::Syntax);
            }
            // Names count as values: they take as much memory.
            self.values += 1;
            let name = self.string()?;
            if self.next_token() != Some(b':') {
                return Err(Fault::Syntax);
            }
            self.at += 1;
            pairs.push((Value::Str(name), self.value(depth)?));
            if self.is_last(b'}')? {
                pairs.shrink_to_fit();
                return Ok(dict_of(pairs));
            }
        }
    }

    /// Skips a comma, or the end of the container. True at the end.
    fn is_last(&mut self, end: u8) -> Result<bool, Fault> {
        let is_last = match self.next_token() {
            Some(b',') => false,
            Some(byte) if byte == end => true,
            _ => return Err(Fault::Syntax),
        };
        self.at += 1;
        Ok(is_last)
    }

    fn word(&mut self, word: &str, value: Value) -> Result<Value, Fault> {
        if !self.source[self.at..].starts_with(word) {
            return Err(Fault::Syntax);
        }
        self.at += word.len();
        Ok(value)
    }

    fn number(&mut self) -> Result<Value, Fault> {
        let start = self.at;
        self.at += usize::from(self.peek() == Some(b'-'));
        match self.digits()? {
            // A number with a leading zero must be zero.
            count if count > 1 && self.source.as_bytes()[self.at - count] == b'0' => {
                return Err(Fault::Syntax);
            }
            _ => {}
        }
        let mut is_int = true;
        if self.peek() == Some(b'.') {
            is_int = false;
            self.at += 1;
            self.digits()?;
        }
        if let Some(b'e' | b'E') = self.peek() {
            is_int = false;
            self.at += 1;
            self.at += usize::from(matches!(self.peek(), Some(b'+' | b'-')));
            self.digits()?;
        }
        let text = &self.source[start..self.at];
        if is_int {
            let limit = self.limits.digits;
            if text.len() > limit {
                return Err(Fault::Limit { what: "digits in an int", limit });
            }
            return Int::from_decimal(text).map(Value::Int).ok_or(Fault::Syntax);
        }
        match text.parse::<f64>() {
            Ok(float) if float.is_finite() => Ok(Value::Float(float)),
            _ => Err(Fault::Syntax),
        }
    }

    /// Skips digits, at least one, and returns their number.
    fn digits(&mut self) -> Result<usize, Fault> {
        let rest = &self.source.as_bytes()[self.at..];
        let count = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        self.at += count;
        if count == 0 { Err(Fault::Syntax) } else { Ok(count) }
    }

    fn string(&mut self) -> Result<Arc<str>, Fault> {
        self.at += 1;
        let piece = self.plain()?;
        if self.peek() == Some(b'"') {
            self.at += 1;
            return Ok(piece.into());
        }
        let mut text = piece.to_owned();
        while self.peek() == Some(b'\\') {
            text.push(self.escape()?);
            text.push_str(self.plain()?);
        }
        self.at += 1;
        Ok(text.into())
    }

    /// Takes unescaped text up to a quote or backslash.
    fn plain(&mut self) -> Result<&'a str, Fault> {
        let rest = &self.source[self.at..];
        let length = memchr::memchr2(b'"', b'\\', rest.as_bytes()).ok_or(Fault::Syntax)?;
        let plain = &rest[..length];
        if plain.bytes().any(|byte| byte < b' ') {
            return Err(Fault::Syntax);
        }
        self.at += length;
        Ok(plain)
    }

    fn escape(&mut self) -> Result<char, Fault> {
        let kind = self.source.as_bytes().get(self.at + 1).copied();
        self.at += 2;
        Ok(match kind {
            Some(kind @ (b'"' | b'\\' | b'/')) => char::from(kind),
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => return self.code_point(),
            _ => return Err(Fault::Syntax),
        })
    }

    /// Parses `XXXX`, or `XXXX\uXXXX` for a surrogate pair.
    fn code_point(&mut self) -> Result<char, Fault> {
        let first = self.hex(self.at).ok_or(Fault::Syntax)?;
        self.at += 4;
        if (0xd800..0xdc00).contains(&first)
            && self.source.as_bytes()[self.at..].starts_with(b"\\u")
            && let Some(second @ 0xdc00..0xe000) = self.hex(self.at + 2)
        {
            self.at += 6;
            let both = 0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00);
            return char::from_u32(both).ok_or(Fault::Syntax);
        }
        Ok(char::from_u32(first).unwrap_or(char::REPLACEMENT_CHARACTER))
    }

    fn hex(&self, at: usize) -> Option<u32> {
        let digits = self.source.as_bytes().get(at..at + 4)?;
        digits.iter().try_fold(0, |code, digit| Some(code << 4 | char::from(*digit).to_digit(16)?))
    }

    /// Skips white space and returns the next byte.
    fn next_token(&mut self) -> Option<u8> {
        let rest = &self.source.as_bytes()[self.at..];
        self.at += rest.iter().take_while(|byte| matches!(byte, b' ' | b'\n' | b'\r' | b'\t')).count();
        self.peek()
    }

    fn peek(&self) -> Option<u8> {
        self.source.as_bytes().get(self.at).copied()
    }
}

fn dict_of(pairs: Vec<(Value, Value)>) -> Value {
    let is_new = |at: usize| pairs[..at].iter().all(|(name, _)| *name != pairs[at].0);
    let dict = if pairs.len() <= FEW_PAIRS && (0..pairs.len()).all(is_new) {
        Dict { pairs }
    } else {
        Keys::default().dict(pairs).expect("a str is hashable")
    };
    Value::from(dict)
}

/// Describes the fault and its place, in `serde_json`'s words where it finds one.
fn explained(text: &str, at: usize) -> String {
    match serde_json::from_str::<serde::de::IgnoredAny>(text) {
        Err(error) => error.to_string(),
        Ok(_) => format!("invalid number at byte {at}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Value, JsonError> {
        Value::from_json_text(text.as_bytes(), &Limits::default())
    }

    #[track_caller]
    fn check(text: &str, expected: &str) {
        let shown = read(text).map(|value| value.repr(10_000).unwrap());
        assert_eq!(shown.unwrap_or_else(|error| error.to_string()), expected, "{text}");
    }

    #[test]
    fn texts_are_read_as_python_reads_them() {
        check(" [1, -2 , 1.5e3,null,true,false , {}, [] ]\n", "[1, -2, 1500.0, None, True, False, {}, []]");
        check(r#"{"a": {"b": [0]}, "c": "d"}"#, "{'a': {'b': [0]}, 'c': 'd'}");
        check(r#""\"\\\/\b\f\n\r\t\u00e9\ud83d\ude00é""#, r#"'"\\/\x08\x0c\n\r\té😀é'"#);
        check("-0", "0");
        check("-0.0", "-0.0");
        check(r#"{"a": 1, "b": 2, "a": 3}"#, "{'a': 3, 'b': 2}");
        let many: Vec<_> = (0..40).map(|at| format!("\"{}\": {at}", at % 20)).collect();
        let Ok(Value::Dict(dict)) = read(&format!("{{{}}}", many.join(","))) else { panic!() };
        assert_eq!((dict.len(), dict.get("7")), (20, Some(&Value::from(27))));
    }

    #[test]
    fn an_int_of_any_size_is_an_int() {
        check(
            "[18446744073709551616, -12345678901234567890123]",
            "[18446744073709551616, -12345678901234567890123]",
        );
        check("12345678901234567890123.0", "1.2345678901234568e+22");
        check(&"1".repeat(4301), "more than 4300 digits in an int");
    }

    #[test]
    fn a_lone_surrogate_becomes_a_replacement_character() {
        check(r#"["\ud800", "\udfffx", "\ud800\n", "\ud800\ud83d\ude00"]"#, "['�', '�x', '�\\n', '�😀']");
    }

    #[test]
    fn invalid_json_is_refused_with_its_place() {
        check("", "EOF while parsing a value at line 1 column 0");
        check("{", "EOF while parsing an object at line 1 column 1");
        check("[1 2]", "expected `,` or `]` at line 1 column 4");
        check("[1]]", "trailing characters at line 1 column 4");
        for text in [
            "nul",
            "01",
            "-",
            "1.",
            ".5",
            "1e",
            "+1",
            "\"",
            "\"\\",
            "\"\\u12\"",
            "\"\\ud800\\u\"",
            "\"\\x\"",
            "\"\n\"",
            "[1,]",
            "{\"a\":1,}",
            "{\"a\" 1}",
            "{1: 2}",
            "NaN",
            "Infinity",
            "1e999",
            "'a'",
            "[",
            "{\"a\":",
            "\u{feff}1",
            "1 2",
            "tru",
            "\"\\u00é0\"",
        ] {
            assert!(matches!(read(text), Err(JsonError::Syntax(_))), "{text}");
        }
        let error = Value::from_json_text(b"\"\xff\"", &Limits::default()).unwrap_err();
        assert_eq!(error.to_string(), "invalid UTF-8 at byte 1");
    }

    #[test]
    fn values_and_levels_are_bounded() {
        let limits = Limits { expanded_values: 10, ..Limits::default() };
        let read = |text: &str| Value::from_json_text(text.as_bytes(), &limits).map(drop);
        let nested = |levels| "[".repeat(levels) + &"]".repeat(levels);
        assert_eq!(read("[1,2,3,4,5,6,7,8,9]"), Ok(()));
        let many = Err(JsonError::Limit { what: "values", limit: 10 });
        assert_eq!(read("[1,2,3,4,5,6,7,8,9,0]"), many);
        assert_eq!(read(r#"[{"":0},{"":0},{"":0},{"":0}]"#), many);
        let deep = |levels| Value::from_json_text(nested(levels).as_bytes(), &Limits::default()).map(drop);
        assert_eq!(deep(MAX_DEPTH), Ok(()));
        let what = "levels of nesting";
        assert_eq!(deep(MAX_DEPTH + 1), Err(JsonError::Limit { what, limit: MAX_DEPTH }));
        assert_eq!(deep(1 << 20), Err(JsonError::Limit { what, limit: MAX_DEPTH }));
    }

    #[test]
    fn texts_are_read_as_serde_json_reads_them() {
        use proptest::prelude::*;
        // serde_json reads -0 as a float, which Python does not: no piece here is a lone 0.
        let pieces = [
            "[", "]", "{", "}", ",", ":", "\"", "\"a\"", "1", "-", "20", ".5", "e3", "null", "true", " ",
            "\\n", "\\u00e9", "é",
        ];
        let texts = prop::collection::vec(prop::sample::select(pieces.to_vec()), 0..12);
        proptest!(|(texts in texts)| {
            let text = texts.concat();
            let (ours, theirs) = (read(&text), serde_json::from_str::<serde_json::Value>(&text));
            prop_assert_eq!(ours.is_ok(), theirs.is_ok(), "{}", text);
            if let (Ok(ours), Ok(theirs)) = (ours, theirs) {
                prop_assert_eq!(ours, Value::from_json(&theirs).unwrap(), "{}", text);
            }
        });
    }
}
