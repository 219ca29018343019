//! Python's int, of any size.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use num_bigint::BigInt;

use super::limits::Limits;

/// An int of any size.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Int(Size);

/// `Large` only holds ints that `Small` cannot, so that equal ints compare equal.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Size {
    Small(i64),
    Large(Arc<BigInt>),
}

impl Int {
    /// The int, if it fits.
    #[must_use]
    pub fn as_i64(&self) -> Option<i64> {
        match &self.0 {
            Size::Small(int) => Some(*int),
            Size::Large(_) => None,
        }
    }

    /// The int, if it fits.
    #[must_use]
    pub fn as_u64(&self) -> Option<u64> {
        match &self.0 {
            Size::Small(int) => u64::try_from(*int).ok(),
            Size::Large(int) => u64::try_from(&**int).ok(),
        }
    }

    /// Size of a large int in bytes; 0 for a small one.
    pub(super) fn large_bytes(&self) -> usize {
        match &self.0 {
            Size::Small(_) => 0,
            Size::Large(int) => usize::try_from(int.bits() / 8).unwrap_or(usize::MAX),
        }
    }

    /// Address of a large int, which its clones share.
    pub(super) fn address(&self) -> Option<usize> {
        match &self.0 {
            Size::Small(_) => None,
            Size::Large(int) => Some(Arc::as_ptr(int).addr()),
        }
    }

    /// Converts from little-endian two's complement, the form of ints in pickles.
    #[must_use]
    pub fn from_le_bytes(bytes: &[u8]) -> Self {
        if bytes.len() > size_of::<i64>() {
            return Self::from_big(BigInt::from_signed_bytes_le(bytes));
        }
        let negative = bytes.last().is_some_and(|last| last & 0x80 != 0);
        let mut whole = if negative { [0xff; size_of::<i64>()] } else { [0; size_of::<i64>()] };
        whole[..bytes.len()].copy_from_slice(bytes);
        Self::from(i64::from_le_bytes(whole))
    }

    /// Converts to little-endian two's complement of minimal length.
    #[must_use]
    pub fn to_le_bytes(&self) -> Vec<u8> {
        match &self.0 {
            Size::Small(int) => BigInt::from(*int).to_signed_bytes_le(),
            Size::Large(int) => int.to_signed_bytes_le(),
        }
    }

    /// The int that equals this float, if there is one.
    pub(super) fn from_whole(float: f64) -> Option<Self> {
        if !float.is_finite() || float.fract() != 0.0 {
            return None;
        }
        // Floats below 2^62 in size fit both types exactly.
        if float.abs() < (1u64 << 62) as f64 {
            return Some(Self::from(float as i64));
        }
        let bits = float.to_bits();
        let mantissa = BigInt::from((bits & ((1 << 52) - 1)) | (1 << 52));
        let whole = mantissa << (((bits >> 52) & 0x7ff) - 1075);
        Some(Self::from_big(if float < 0.0 { -whole } else { whole }))
    }

    /// Parses decimal digits with an optional sign.
    pub(super) fn from_decimal(text: &str) -> Option<Self> {
        let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
        if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        text.parse().map_or_else(|_| text.parse().ok().map(Self::from_big), |int: i64| Some(Self::from(int)))
    }

    fn from_big(int: BigInt) -> Self {
        i64::try_from(&int).map_or_else(|_| Self(Size::Large(Arc::new(int))), Self::from)
    }
}

impl From<i64> for Int {
    fn from(int: i64) -> Self {
        Self(Size::Small(int))
    }
}

impl From<u64> for Int {
    fn from(int: u64) -> Self {
        Self::from_big(BigInt::from(int))
    }
}

/// Parses decimal digits, at most the default of [`Limits::digits`](super::Limits::digits).
impl FromStr for Int {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        match text.parse::<i64>() {
            Ok(int) => Ok(Self::from(int)),
            Err(_) if text.len() > Limits::default().digits => Err(()),
            Err(_) => text.parse::<BigInt>().map(Self::from_big).map_err(|_| ()),
        }
    }
}

impl fmt::Display for Int {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Size::Small(int) => int.fmt(formatter),
            Size::Large(int) => int.fmt(formatter),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_and_digits_give_the_same_int() {
        for digits in ["0", "-1", "127", "128", "-128", "-129", "9223372036854775807", "9223372036854775808"]
        {
            let int = Int::from_decimal(digits).unwrap();
            assert_eq!(int.to_string(), digits);
            assert_eq!(Int::from_le_bytes(&int.to_le_bytes()), int);
        }
        assert_eq!(Int::from_le_bytes(&[]), Int::from(0i64));
        assert_eq!(Int::from_le_bytes(&[1, 0, 0, 0, 0, 0, 0, 0, 0, 0]).as_i64(), Some(1));
        assert_eq!(Int::from_decimal("1_0"), None);
        assert_eq!(Int::from_decimal("+-1"), None);
        assert_eq!(Int::from(u64::MAX).as_u64(), Some(u64::MAX));
    }

    #[test]
    fn a_whole_float_becomes_the_int_that_equals_it_in_python() {
        assert_eq!(Int::from_whole(-0.0), Some(Int::from(0i64)));
        assert_eq!(Int::from_whole(1.5), None);
        assert_eq!(Int::from_whole(f64::INFINITY), None);
        assert_eq!(Int::from_whole(-1e20).unwrap().to_string(), "-100000000000000000000");
        assert_eq!(Int::from_whole(2f64.powi(62)).unwrap().as_i64(), Some(1 << 62));
    }
}
