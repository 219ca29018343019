//! Formats values as Python's `repr` does.

use std::fmt::Write as _;

use super::error::WriteError;
use super::limits::MAX_DEPTH;
use super::value::{Set, Value};

impl Value {
    /// The value's Python `repr`. Unlike in Python, an int of more than 4300 digits is not an error, and the Unicode
    /// version of this program's compiler decides which characters are printable. Sets are printed in the order they
    /// are stored in.
    ///
    /// # Errors
    /// [`WriteError::TooLarge`] over `max_bytes`, [`WriteError::TooDeep`].
    pub fn repr(&self, max_bytes: usize) -> Result<String, WriteError> {
        let mut printer = Printer { text: String::new(), max_bytes };
        printer.value(self, 0)?;
        Ok(printer.text)
    }

    /// The start of the repr, as much as fits, for messages.
    pub(super) fn short_repr(&self, max_bytes: usize) -> String {
        let mut printer = Printer { text: String::new(), max_bytes };
        if printer.value(self, 0).is_err() {
            printer.text.truncate(printer.text.floor_char_boundary(max_bytes));
            printer.text.push('…');
        }
        printer.text
    }
}

/// A float as Python prints it: the shortest digits that round-trip, with an exponent below 1e-4 and from 1e16 on.
pub(super) fn float(value: f64) -> String {
    if value.is_nan() {
        return "nan".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    let scientific = format!("{value:e}");
    let (digits, exponent) = scientific.split_once('e').expect("that is its form");
    let exponent: i32 = exponent.parse().expect("it is an int");
    if (-4..16).contains(&exponent) || value == 0.0 {
        return format!("{value:?}");
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}

struct Printer {
    text: String,
    max_bytes: usize,
}

impl Printer {
    fn value(&mut self, value: &Value, depth: usize) -> Result<(), WriteError> {
        if depth > MAX_DEPTH {
            return Err(WriteError::TooDeep(MAX_DEPTH));
        }
        match value {
            Value::None => self.push("None"),
            Value::Bool(true) => self.push("True"),
            Value::Bool(false) => self.push("False"),
            Value::Int(int) => self.push(&int.to_string()),
            Value::Float(value) => self.push(&float(*value)),
            Value::Str(text) => self.str(text),
            Value::Bytes(bytes) => self.bytes(bytes),
            Value::ByteArray(bytes) => {
                self.push("bytearray(")?;
                self.bytes(bytes)?;
                self.push(")")
            }
            Value::Tuple(items) if items.len() == 1 => self.items("(", items, ",)", depth),
            Value::Tuple(items) => self.items("(", items, ")", depth),
            Value::List(items) => self.items("[", items, "]", depth),
            Value::Dict(dict) => self.dict(&dict.pairs, depth),
            Value::Set(set) if set.is_empty() => self.push("set()"),
            Value::Set(set) => self.items("{", &set.items, "}", depth),
            Value::FrozenSet(set) => self.frozenset(set, depth),
        }
    }

    fn items(&mut self, open: &str, items: &[Value], close: &str, depth: usize) -> Result<(), WriteError> {
        self.push(open)?;
        for (at, item) in items.iter().enumerate() {
            if at > 0 {
                self.push(", ")?;
            }
            self.value(item, depth + 1)?;
        }
        self.push(close)
    }

    fn dict(&mut self, pairs: &[(Value, Value)], depth: usize) -> Result<(), WriteError> {
        self.push("{")?;
        for (at, (key, value)) in pairs.iter().enumerate() {
            if at > 0 {
                self.push(", ")?;
            }
            self.value(key, depth + 1)?;
            self.push(": ")?;
            self.value(value, depth + 1)?;
        }
        self.push("}")
    }

    fn frozenset(&mut self, set: &Set, depth: usize) -> Result<(), WriteError> {
        if set.is_empty() {
            return self.push("frozenset()");
        }
        self.items("frozenset({", &set.items, "})", depth)
    }

    fn str(&mut self, text: &str) -> Result<(), WriteError> {
        let quote = quote(text.contains('\''), text.contains('"'));
        self.push_char(quote)?;
        for character in text.chars() {
            match character {
                '\\' => self.push("\\\\")?,
                '\n' => self.push("\\n")?,
                '\r' => self.push("\\r")?,
                '\t' => self.push("\\t")?,
                _ if character == quote => self.push(if quote == '"' { "\\\"" } else { "\\'" })?,
                _ if is_printable(character) => self.push_char(character)?,
                _ => self.escape(character)?,
            }
        }
        self.push_char(quote)
    }

    fn escape(&mut self, character: char) -> Result<(), WriteError> {
        let code = u32::from(character);
        match code {
            0..=0xff => self.push(&format!("\\x{code:02x}")),
            0x100..=0xffff => self.push(&format!("\\u{code:04x}")),
            _ => self.push(&format!("\\U{code:08x}")),
        }
    }

    fn bytes(&mut self, bytes: &[u8]) -> Result<(), WriteError> {
        let quote = quote(bytes.contains(&b'\''), bytes.contains(&b'"'));
        self.push("b")?;
        self.push_char(quote)?;
        for byte in bytes {
            match byte {
                b'\\' => self.push("\\\\")?,
                b'\n' => self.push("\\n")?,
                b'\r' => self.push("\\r")?,
                b'\t' => self.push("\\t")?,
                _ if char::from(*byte) == quote => self.push(if quote == '"' { "\\\"" } else { "\\'" })?,
                b' '..=b'~' => self.push_char(char::from(*byte))?,
                _ => self.hex(*byte)?,
            }
        }
        self.push_char(quote)
    }

    fn hex(&mut self, byte: u8) -> Result<(), WriteError> {
        write!(self.text, "\\x{byte:02x}").expect("a string takes all");
        self.check()
    }

    fn push(&mut self, piece: &str) -> Result<(), WriteError> {
        self.text.push_str(piece);
        self.check()
    }

    fn push_char(&mut self, character: char) -> Result<(), WriteError> {
        self.text.push(character);
        self.check()
    }

    fn check(&self) -> Result<(), WriteError> {
        if self.text.len() > self.max_bytes { Err(WriteError::TooLarge(self.max_bytes)) } else { Ok(()) }
    }
}

/// Double quotes only if they save escapes.
fn quote(single: bool, double: bool) -> char {
    if single && !double { '"' } else { '\'' }
}

/// Python's `str.isprintable`. The standard library has the same table, but exposes it only through this escape. It
/// also escapes combining characters, which Python prints, except after another character.
fn is_printable(character: char) -> bool {
    if character.is_ascii() {
        return matches!(character, ' '..='~');
    }
    // Letters and digits are printable, and this check takes a tenth of the time.
    if character.is_alphanumeric() {
        return true;
    }
    let mut pair = [0; 5];
    pair[0] = b'a';
    let length = 1 + character.encode_utf8(&mut pair[1..]).len();
    let pair = str::from_utf8(&pair[..length]).expect("two characters");
    pair.escape_debug().nth(1) == Some(character)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_as_python_prints_them() {
        let expected = [
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (1.0, "1.0"),
            (0.1, "0.1"),
            (1e-4, "0.0001"),
            (1e-5, "1e-05"),
            (1.5e-7, "1.5e-07"),
            (123456789012345680.0, "1.2345678901234568e+17"),
            (1e15, "1000000000000000.0"),
            (9999999999999998.0, "9999999999999998.0"),
            (1e16, "1e+16"),
            (1.7976931348623157e308, "1.7976931348623157e+308"),
            (5e-324, "5e-324"),
            (f64::NAN, "nan"),
            (f64::NEG_INFINITY, "-inf"),
        ];
        for (value, text) in expected {
            assert_eq!(float(value), text);
        }
    }

    #[test]
    fn a_repr_over_the_limit_is_refused_and_cut_in_messages() {
        let value = Value::list(["é"; 3].map(Value::from));
        assert_eq!(value.repr(18), Ok("['é', 'é', 'é']".to_owned()));
        assert_eq!(value.repr(17), Err(WriteError::TooLarge(17)));
        assert_eq!(value.short_repr(3), "['…");
    }

    #[test]
    fn a_value_made_by_hand_may_be_too_deep() {
        let nested = |levels| (0..levels).fold(Value::None, |value, _| Value::list([value]));
        assert!(nested(MAX_DEPTH).repr(1000).is_ok());
        assert_eq!(nested(MAX_DEPTH + 1).repr(1000), Err(WriteError::TooDeep(MAX_DEPTH)));
    }
}
