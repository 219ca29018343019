//! Bearer secrets.

use std::fmt;
use std::io;

use rlm_core::text::hex;
use subtle::ConstantTimeEq;

/// Random bytes of a secret.
const BYTES: usize = 32;

/// A bearer secret. It is compared in constant time, and shows itself only through [`Self::reveal`].
#[derive(Clone)]
pub struct Secret(Box<str>);

impl Secret {
    /// A new one: 32 random bytes in hexadecimal.
    ///
    /// # Errors
    /// The system has no random bytes.
    pub fn random() -> io::Result<Self> {
        let mut bytes = [0; BYTES];
        getrandom::fill(&mut bytes).map_err(|error| io::Error::other(error.to_string()))?;
        Ok(Self::new(&hex(&bytes)))
    }

    /// A secret that was made elsewhere.
    #[must_use]
    pub fn new(text: &str) -> Self {
        Self(text.into())
    }

    /// The secret itself.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// Compares with the secret that a caller presented. The time depends only on the length.
    #[must_use]
    pub fn is(&self, presented: &[u8]) -> bool {
        self.0.as_bytes().ct_eq(presented).into()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Secret(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_differ_match_themselves_alone_and_are_not_shown() {
        let (one, two) = (Secret::random().unwrap(), Secret::random().unwrap());
        assert_eq!(one.reveal().len(), 2 * BYTES);
        assert_ne!(one.reveal(), two.reveal());
        assert!(one.is(one.reveal().as_bytes()));
        assert!(!one.is(two.reveal().as_bytes()));
        assert!(!one.is(&one.reveal().as_bytes()[1..]));
        assert!(!one.is(b""));
        assert_eq!(format!("{one:?}"), "Secret(…)");
    }
}
