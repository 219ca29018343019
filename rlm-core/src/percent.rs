//! Percent-encoding of URLs.

use std::fmt::Write as _;

/// The bytes, percent-encoded except for letters, digits, `-._~` and the bytes in `plain`.
#[must_use]
pub fn encoded(bytes: &[u8], plain: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() + 16);
    for &byte in bytes {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) || plain.contains(&byte) {
            text.push(char::from(byte));
        } else {
            write!(text, "%{byte:02X}").expect("a String takes everything");
        }
    }
    text
}

/// The bytes that a text encodes. None if a `%` is not followed by two hexadecimal digits.
#[must_use]
pub fn decoded(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
            let code = digit(rest.next())? * 16 + digit(rest.next())?;
            bytes.push(u8::try_from(code).ok()?);
        } else {
            bytes.push(byte);
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_survive_the_way_there_and_back() {
        let bytes: Vec<u8> = (0..=255).collect();
        for plain in [&b""[..], b"/"] {
            assert_eq!(decoded(&encoded(&bytes, plain)).as_deref(), Some(&bytes[..]));
        }
        assert_eq!(encoded("/a b/é~".as_bytes(), b"/"), "/a%20b/%C3%A9~");
        assert_eq!(encoded(b"/a", b""), "%2Fa");
    }

    #[test]
    fn a_percent_sign_alone_is_refused() {
        for text in ["%", "%2", "%zz", "%+1", "%2é"] {
            assert_eq!(decoded(text), None, "{text}");
        }
    }
}
