//! Quoting for bash.

/// A text quoted as one bash word. NUL, which bash cannot hold, is left out.
#[must_use]
pub fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\0', "").replace('\'', r"'\''"))
}

/// [`quoted`] for bytes that may not be UTF-8.
#[must_use]
pub fn quoted_bytes(bytes: &[u8]) -> Vec<u8> {
    let mut word = vec![b'\''];
    for &byte in bytes.iter().filter(|byte| **byte != 0) {
        match byte {
            b'\'' => word.extend_from_slice(br"'\''"),
            other => word.push(other),
        }
    }
    word.push(b'\'');
    word
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_survive_quoting_and_nul_does_not() {
        assert_eq!(quoted("it's\0"), r"'it'\''s'");
        assert_eq!(quoted_bytes(b"it's\0\xff"), b"'it'\\''s\xff'");
    }
}
