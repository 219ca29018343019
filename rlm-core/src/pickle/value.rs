//! Plain Python values.

use std::fmt;
use std::sync::Arc;

use super::int::Int;

/// A plain Python value. A clone shares what it holds.
///
/// Equality is stricter than Python's: it takes 1, True and 1.0 for different, tells dicts by their order too, and NaN
/// equals itself. Sets are equal in any order.
///
/// A value made by hand may be nested without limit, yet is dropped and compared by recursion: keep to
/// [`MAX_DEPTH`](super::MAX_DEPTH), as [`decode`](super::decode) and [`Value::from_json`] do.
#[derive(Clone)]
pub enum Value {
    /// `None`
    None,
    /// `True` or `False`
    Bool(bool),
    /// An int of any size.
    Int(Int),
    /// A float.
    Float(f64),
    /// A str; lone surrogates in a pickle become U+FFFD.
    Str(Arc<str>),
    /// Bytes.
    Bytes(Arc<[u8]>),
    /// A bytearray.
    ByteArray(Arc<[u8]>),
    /// A tuple.
    Tuple(Arc<Vec<Self>>),
    /// A list.
    List(Arc<Vec<Self>>),
    /// A dict, in its order.
    Dict(Arc<Dict>),
    /// A set.
    Set(Arc<Set>),
    /// A frozenset.
    FrozenSet(Arc<Set>),
}

impl Value {
    /// A list of these items.
    pub fn list(items: impl IntoIterator<Item = Self>) -> Self {
        Self::List(Arc::new(items.into_iter().collect()))
    }

    /// A tuple of these items.
    pub fn tuple(items: impl IntoIterator<Item = Self>) -> Self {
        Self::Tuple(Arc::new(items.into_iter().collect()))
    }

    /// The name of the value's class in Python.
    #[must_use]
    pub fn type_name(&self) -> &'static str {
        match self {
            Self::None => "NoneType",
            Self::Bool(_) => "bool",
            Self::Int(_) => "int",
            Self::Float(_) => "float",
            Self::Str(_) => "str",
            Self::Bytes(_) => "bytes",
            Self::ByteArray(_) => "bytearray",
            Self::Tuple(_) => "tuple",
            Self::List(_) => "list",
            Self::Dict(_) => "dict",
            Self::Set(_) => "set",
            Self::FrozenSet(_) => "frozenset",
        }
    }
}

/// An ordered dict. Its keys are hashable and differ in Python's sense, where 1, True and 1.0 are one key.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Dict {
    pub(super) pairs: Vec<(Value, Value)>,
}

impl Dict {
    /// The value of a str key; searched for from the front, pair by pair.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.iter()
            .find_map(|(held, value)| matches!(held, Value::Str(text) if **text == *key).then_some(value))
    }

    /// The pairs in their order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&Value, &Value)> {
        self.pairs.iter().map(|(key, value)| (key, value))
    }

    /// Number of pairs.
    #[must_use]
    pub fn len(&self) -> usize {
        self.pairs.len()
    }

    /// True if there are no pairs.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }
}

/// The items of a set or frozenset, in the order of the pickle: hashable, and different in Python's sense.
#[derive(Clone, Debug, Default)]
pub struct Set {
    pub(super) items: Vec<Value>,
}

impl Set {
    /// The items.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Value> {
        self.items.iter()
    }

    /// Number of items.
    #[must_use]
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// True if there are no items.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }
}

impl PartialEq for Value {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::None, Self::None) => true,
            (Self::Bool(one), Self::Bool(two)) => one == two,
            (Self::Int(one), Self::Int(two)) => one == two,
            (Self::Float(one), Self::Float(two)) => {
                one.to_bits() == two.to_bits() || one.is_nan() && two.is_nan()
            }
            (Self::Str(one), Self::Str(two)) => Arc::ptr_eq(one, two) || one == two,
            (Self::Bytes(one), Self::Bytes(two)) | (Self::ByteArray(one), Self::ByteArray(two)) => {
                Arc::ptr_eq(one, two) || one == two
            }
            (Self::Tuple(one), Self::Tuple(two)) | (Self::List(one), Self::List(two)) => {
                Arc::ptr_eq(one, two) || one == two
            }
            (Self::Dict(one), Self::Dict(two)) => Arc::ptr_eq(one, two) || one == two,
            (Self::Set(one), Self::Set(two)) | (Self::FrozenSet(one), Self::FrozenSet(two)) => {
                Arc::ptr_eq(one, two) || one == two
            }
            _ => false,
        }
    }
}

/// Formats the value as Python prints it, but shortened: a value can be millions of items in print.
impl fmt::Debug for Value {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.short_repr(4096))
    }
}

impl From<bool> for Value {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

impl From<i64> for Value {
    fn from(value: i64) -> Self {
        Self::Int(Int::from(value))
    }
}

impl From<f64> for Value {
    fn from(value: f64) -> Self {
        Self::Float(value)
    }
}

impl From<&str> for Value {
    fn from(value: &str) -> Self {
        Self::Str(value.into())
    }
}

impl From<String> for Value {
    fn from(value: String) -> Self {
        Self::Str(value.into())
    }
}

impl From<Dict> for Value {
    fn from(value: Dict) -> Self {
        Self::Dict(Arc::new(value))
    }
}
