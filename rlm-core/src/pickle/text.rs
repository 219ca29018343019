//! Parses arguments that are text: numbers, quoted strings, escapes, and UTF-8 with surrogates.

use std::sync::Arc;

/// Longest excerpt of an argument in an error message, in bytes.
const EXCERPT_BYTES: usize = 80;

/// A short, printable excerpt of an argument for an error message.
pub(super) fn excerpt(argument: &[u8]) -> String {
    let short = &argument[..argument.len().min(EXCERPT_BYTES)];
    let more = if argument.len() > short.len() { "…" } else { "" };
    format!("\"{}\"{more}", short.escape_ascii())
}

/// The line as text, if it is ASCII.
pub(super) fn ascii(line: &[u8]) -> Option<&str> {
    line.is_ascii().then(|| str::from_utf8(line).expect("ASCII is UTF-8"))
}

/// Parses `nan`, `inf`, `-1.5e300`: the syntax of `float()`, except for underscores.
pub(super) fn float(line: &[u8]) -> Option<f64> {
    ascii(line)?.trim().parse().ok()
}

/// Decodes UTF-8 in which surrogates may be encoded as if they were characters, as CPython writes them
/// (`surrogatepass`). Each surrogate becomes U+FFFD.
pub(super) fn utf8(bytes: &[u8]) -> Option<Arc<str>> {
    if let Ok(text) = str::from_utf8(bytes) {
        return Some(text.into());
    }
    let mut text = String::with_capacity(bytes.len());
    let mut rest = bytes;
    loop {
        let bad = match str::from_utf8(rest) {
            Ok(good) => {
                text.push_str(good);
                return Some(text.into());
            }
            Err(error) => error.valid_up_to(),
        };
        let (good, after) = rest.split_at(bad);
        let [0xed, 0xa0..=0xbf, 0x80..=0xbf, after @ ..] = after else { return None };
        text.push_str(str::from_utf8(good).expect("it was valid up to there"));
        text.push(char::REPLACEMENT_CHARACTER);
        rest = after;
    }
}

/// Decodes Latin-1 with `\uXXXX` and `\UXXXXXXXX`: Python's `raw-unicode-escape`. A backslash before any other
/// character stands for itself, and keeps that character from starting an escape.
pub(super) fn raw_unicode_escape(line: &[u8]) -> Option<String> {
    let mut text = String::with_capacity(line.len());
    let mut rest = line;
    while let [byte, after @ ..] = rest {
        rest = after;
        match (*byte, after) {
            (b'\\', [kind @ (b'u' | b'U'), after @ ..]) => {
                let digits = if *kind == b'u' { 4 } else { 8 };
                text.push(code_point(after.get(..digits)?)?);
                rest = &after[digits..];
            }
            (b'\\', [hidden, after @ ..]) => {
                text.push('\\');
                text.push(char::from(*hidden));
                rest = after;
            }
            (byte, _) => text.push(char::from(byte)),
        }
    }
    Some(text)
}

fn code_point(digits: &[u8]) -> Option<char> {
    let code = hex(digits)?;
    let surrogate = (0xd800..0xe000).contains(&code);
    char::from_u32(code).or(surrogate.then_some(char::REPLACEMENT_CHARACTER))
}

fn hex(digits: &[u8]) -> Option<u32> {
    digits.iter().try_fold(0u32, |code, digit| Some(code << 4 | char::from(*digit).to_digit(16)?))
}

/// Decodes a string as Python 2's `repr` writes it: in quotes, with escapes.
pub(super) fn quoted(line: &[u8]) -> Option<Vec<u8>> {
    let [first @ (b'\'' | b'"'), inner @ .., last] = line.trim_ascii() else { return None };
    if first != last {
        return None;
    }
    let mut bytes = Vec::with_capacity(inner.len());
    let mut rest = inner;
    while let [byte, after @ ..] = rest {
        rest = after;
        if *byte == b'\\' {
            rest = escape(after, &mut bytes)?;
        } else {
            bytes.push(*byte);
        }
    }
    Some(bytes)
}

/// Decodes the escape after a backslash, and returns the rest.
fn escape<'a>(after: &'a [u8], bytes: &mut Vec<u8>) -> Option<&'a [u8]> {
    let (kind, rest) = after.split_first()?;
    let byte = match kind {
        b'\\' | b'\'' | b'"' => *kind,
        b'a' => 0x07,
        b'b' => 0x08,
        b't' => b'\t',
        b'n' => b'\n',
        b'v' => 0x0b,
        b'f' => 0x0c,
        b'r' => b'\r',
        b'x' => {
            bytes.push(hex(rest.get(..2)?)?.try_into().ok()?);
            return Some(&rest[2..]);
        }
        b'0'..=b'7' => {
            let length = after.iter().take(3).take_while(|digit| matches!(digit, b'0'..=b'7')).count();
            let code = after[..length].iter().fold(0u32, |code, digit| code << 3 | u32::from(digit - b'0'));
            bytes.push((code & 0xff) as u8);
            return Some(&after[length..]);
        }
        _ => {
            bytes.push(b'\\');
            *kind
        }
    };
    bytes.push(byte);
    Some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn surrogates_become_replacement_characters() {
        assert_eq!(utf8(b"a\xed\xa0\x80\xed\xbf\xbfb").as_deref(), Some("a\u{fffd}\u{fffd}b"));
        assert_eq!(utf8(b"a\xed\xa0"), None);
        assert_eq!(utf8(b"\xff"), None);
        assert_eq!(raw_unicode_escape(b"\\ud800\\U0001f600").as_deref(), Some("\u{fffd}\u{1f600}"));
    }

    #[test]
    fn raw_unicode_escapes_as_python_reads_them() {
        assert_eq!(raw_unicode_escape(b"\xe9\\\\u0041\\n\\").as_deref(), Some("é\\\\u0041\\n\\"));
        assert_eq!(raw_unicode_escape(b"\\u00e9\\u005c").as_deref(), Some("é\\"));
        assert_eq!(raw_unicode_escape(b"\\u00g0"), None);
        assert_eq!(raw_unicode_escape(b"\\u00"), None);
        assert_eq!(raw_unicode_escape(b"\\U00110000"), None);
    }

    #[test]
    fn quoted_strings_as_python_2_writes_them() {
        assert_eq!(quoted(b"'a\\'\\x41\\101\\n\\q'").as_deref(), Some(&b"a'AA\n\\q"[..]));
        assert_eq!(quoted(b"\"\"").as_deref(), Some(&b""[..]));
        for bad in [&b"'"[..], b"", b"'a\"", b"a", b"'\\'", b"'\\x4'"] {
            assert_eq!(quoted(bad), None, "{}", bad.escape_ascii());
        }
    }
}
