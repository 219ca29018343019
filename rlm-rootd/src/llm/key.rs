//! The key of a model's server.

use std::fmt;

/// The shortest key that is a secret, in bytes.
const SECRET_BYTES: usize = 8;

/// A key. No formatting shows it.
#[derive(Clone, PartialEq, Eq)]
pub struct Key(String);

impl Key {
    /// A key of this text without the white space around it.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into().trim().to_owned())
    }

    pub(super) fn reveal(&self) -> &str {
        &self.0
    }

    /// The text without the key in it: servers quote what they were sent. A short key, such as `token` of a local server, is not
    /// a secret, and may be a part of any word.
    pub(crate) fn redact(&self, text: &str) -> String {
        if self.0.len() < SECRET_BYTES { text.to_owned() } else { text.replace(&self.0, "[key]") }
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Key(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_redacted_unless_it_is_a_common_word() {
        let said = |key: &str| Key::new(key).redact("sk-12345 is not a key, 8192 tokens asked");
        assert_eq!(said(" sk-12345 "), "[key] is not a key, 8192 tokens asked");
        for key in ["", "k", "token", "EMPTY"] {
            assert_eq!(said(key), "sk-12345 is not a key, 8192 tokens asked", "{key}");
        }
    }
}
