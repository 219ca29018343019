//! JSON as models write it: with raw line breaks and tabs in strings.

use std::io::Read;

use serde_json::{Deserializer, Value as Json};

/// A text that is JSON, strictly or leniently. The error is that of the strict reading.
pub(super) fn whole_json(text: &str) -> Result<Json, String> {
    serde_json::from_str(text).or_else(|error: serde_json::Error| match first_json(text) {
        Some((json, bytes)) if text[bytes..].trim().is_empty() => Ok(json),
        _ => Err(error.to_string()),
    })
}

/// The object, list or string at the start of a text, with raw line breaks and tabs in strings, and where it ends.
pub(super) fn first_json(text: &str) -> Option<(Json, usize)> {
    if !text.trim_start().starts_with(['{', '[', '"']) {
        return None;
    }
    let mut bytes =
        LenientBytes { bytes: text.as_bytes(), at: 0, in_string: false, escaped: false, escape: None };
    let json = Deserializer::from_reader(&mut bytes).into_iter().next()?.ok()?;
    Some((json, bytes.at))
}

/// JSON whose raw line breaks and tabs in strings are escaped.
struct LenientBytes<'a> {
    bytes: &'a [u8],
    at: usize,
    in_string: bool,
    /// True behind a backslash, where an escaped line break would be a backslash and an `n`.
    escaped: bool,
    /// Second byte of an escape.
    escape: Option<u8>,
}

impl Read for LenientBytes<'_> {
    /// Reads one byte at most: so `at` is where the parser stopped.
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let Some(slot) = buffer.first_mut() else { return Ok(0) };
        let Some(byte) = self.escape.take().or_else(|| self.next_byte()) else { return Ok(0) };
        *slot = byte;
        Ok(1)
    }
}

impl LenientBytes<'_> {
    fn next_byte(&mut self) -> Option<u8> {
        let byte = *self.bytes.get(self.at)?;
        self.at += 1;
        let escaped = std::mem::take(&mut self.escaped);
        self.escape = match byte {
            _ if escaped || !self.in_string => None,
            b'\n' => Some(b'n'),
            b'\r' => Some(b'r'),
            b'\t' => Some(b't'),
            _ => None,
        };
        self.escaped = byte == b'\\' && self.in_string && !escaped;
        self.in_string ^= byte == b'"' && !escaped;
        Some(self.escape.map_or(byte, |_| b'\\'))
    }
}
