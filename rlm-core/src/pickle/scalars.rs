//! The machine's opcodes for numbers, strings and bytes.

use std::sync::Arc;

use super::decode::Machine;
use super::error::Fault;
use super::heap::{Content, Finished, Slot};
use super::int::Int;
use super::opcode::*;
use super::text;
use super::value::Value;

/// Numbers.
impl<'a> Machine<'a> {
    pub(super) fn text_int(&mut self, opcode: u8) -> Result<(), Fault> {
        let line = self.number_line()?;
        let slot = match (opcode, line) {
            (INT, b"00") => Slot::Bool(false),
            (INT, b"01") => Slot::Bool(true),
            _ => {
                let digits = if opcode == LONG { line.strip_suffix(b"L").unwrap_or(line) } else { line };
                let int = text::ascii(digits).and_then(|digits| Int::from_decimal(digits.trim()));
                self.int_slot(int.ok_or_else(|| argument(opcode, line, "a decimal int"))?)
            }
        };
        self.push(slot)
    }

    pub(super) fn binary_int(&mut self, length: u64) -> Result<(), Fault> {
        let limit = self.limits.int_bytes;
        if length > limit as u64 {
            return Err(Fault::Limit { what: "bytes in an int", limit });
        }
        let int = Int::from_le_bytes(self.reader.take(length)?);
        let slot = self.int_slot(int);
        self.push(slot)
    }

    fn int_slot(&mut self, int: Int) -> Slot {
        match int.as_i64() {
            Some(int) => Slot::Int(int),
            None => self.heap.add(Content::Finished(Finished::scalar(Value::Int(int))), self.at),
        }
    }

    pub(super) fn text_float(&mut self) -> Result<(), Fault> {
        let line = self.number_line()?;
        let float = text::float(line).ok_or_else(|| argument(FLOAT, line, "a float"))?;
        self.push(Slot::Float(float))
    }

    pub(super) fn text_index(&mut self, opcode: u8) -> Result<u64, Fault> {
        let line = self.number_line()?;
        text::ascii(line)
            .and_then(|digits| digits.trim().parse().ok())
            .ok_or_else(|| argument(opcode, line, "a memo index"))
    }

    fn number_line(&mut self) -> Result<&'a [u8], Fault> {
        let line = self.reader.line()?;
        let limit = self.limits.digits;
        if line.len() > limit.saturating_add("-L".len()) {
            return Err(Fault::Limit { what: "digits in a number", limit });
        }
        Ok(line)
    }

    /// Reads one of the few lengths that are signed for historical reasons.
    pub(super) fn signed_length(&mut self, opcode: u8) -> Result<u64, Fault> {
        let length = self.reader.i32()?;
        u64::try_from(length)
            .map_err(|_| argument(opcode, length.to_string().as_bytes(), "a length of 0 or more"))
    }
}

/// Strings and bytes.
impl Machine<'_> {
    pub(super) fn str(&mut self, opcode: u8, length: u64) -> Result<(), Fault> {
        let bytes = self.reader.take(length)?;
        let text = text::utf8(bytes).ok_or_else(|| argument(opcode, bytes, "UTF-8"))?;
        self.push_scalar(Value::Str(text))
    }

    pub(super) fn ascii_str(&mut self, opcode: u8, length: u64) -> Result<(), Fault> {
        let bytes = self.reader.take(length)?;
        let text = text::ascii(bytes).ok_or_else(|| argument(opcode, bytes, "ASCII"))?;
        self.push_scalar(Value::from(text))
    }

    pub(super) fn quoted_str(&mut self) -> Result<(), Fault> {
        let line = self.reader.line()?;
        let bytes = text::quoted(line).ok_or_else(|| argument(STRING, line, "a quoted string"))?;
        let text = text::ascii(&bytes).ok_or_else(|| argument(STRING, line, "ASCII"))?;
        self.push_scalar(Value::from(text))
    }

    pub(super) fn escaped_str(&mut self) -> Result<(), Fault> {
        let line = self.reader.line()?;
        let text =
            text::raw_unicode_escape(line).ok_or_else(|| argument(UNICODE, line, "text with \\u escapes"))?;
        self.push_scalar(Value::from(text))
    }

    pub(super) fn bytes(&mut self, length: u64) -> Result<(), Fault> {
        let bytes = Arc::from(self.reader.take(length)?);
        self.push_scalar(Value::Bytes(bytes))
    }

    pub(super) fn bytearray(&mut self) -> Result<(), Fault> {
        let length = self.reader.u64()?;
        let bytes = Arc::from(self.reader.take(length)?);
        self.push_scalar(Value::ByteArray(bytes))
    }

    fn push_scalar(&mut self, value: Value) -> Result<(), Fault> {
        self.push_content(Content::Finished(Finished::scalar(value)))
    }
}

fn argument(opcode: u8, argument: &[u8], expected: &'static str) -> Fault {
    Fault::Argument { opcode: name(opcode), text: text::excerpt(argument), expected }
}
