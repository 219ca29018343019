//! Names: identifiers, rollout ids, and names that nothing else has.

use std::{fs, io};

/// Longest rollout id, in bytes.
pub const MAX_ROLLOUT_ID_BYTES: usize = 128;

/// A name that nothing else has: a random UUID of the kernel's.
///
/// # Errors
/// The kernel does not show one.
pub fn unique() -> io::Result<String> {
    fs::read_to_string("/proc/sys/kernel/random/uuid").map(|id| id.trim().to_owned())
}

/// True for an ASCII identifier, which is a valid name in both bash and Python.
#[must_use]
pub fn is_identifier(text: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_';
    let mut bytes = text.bytes();
    bytes.next().is_some_and(is_letter) && bytes.all(|byte| is_letter(byte) || byte.is_ascii_digit())
}

/// True if a text can be a rollout id, which also names the rollout's directory: 1 to [`MAX_ROLLOUT_ID_BYTES`] of `a-z
/// A-Z 0-9 _ - .`, but not dots alone.
#[must_use]
pub fn is_rollout_id(text: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
    text.len() <= MAX_ROLLOUT_ID_BYTES
        && text.bytes().all(is_allowed)
        && text.bytes().any(|byte| byte != b'.')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_are_words_of_ascii() {
        assert!(["a", "_", "A_1", "x9"].into_iter().all(is_identifier));
        assert!(!["", "9", "a-b", "é", "a b", "a\n"].into_iter().any(is_identifier));
    }

    #[test]
    fn ids_of_rollouts_are_names_of_directories() {
        assert!(["a", "1-1", ".a", "...b", &"x".repeat(128)].into_iter().all(is_rollout_id));
        let bad = ["", ".", "..", "a/b", "a b", "rlm@lock", "é", &"x".repeat(129)];
        assert!(!bad.into_iter().any(is_rollout_id));
    }
}
