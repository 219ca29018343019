//! Numbers on the command line.

use std::num::NonZeroUsize;

/// Parses a whole number from 1 to `MOST`.
pub(super) fn up_to<const MOST: usize>(text: &str) -> Result<NonZeroUsize, String> {
    let number = text.parse().ok().filter(|number: &NonZeroUsize| number.get() <= MOST);
    number.ok_or_else(|| format!("expected a whole number from 1 to {MOST}"))
}
