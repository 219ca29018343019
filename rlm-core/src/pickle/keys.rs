//! Dicts and sets, with keys that are equal where Python takes them for equal.
//!
//! Every key gets a number, and equal keys the same one. A tuple's number derives from its items' numbers and is kept with
//! the tuple, so that a key is read once however often it is used: hashing by walking would take unbounded time where keys
//! share parts (`t = (t, t)`, 60 times), and where many dicts use one long key.

use std::collections::HashMap;
use std::sync::Arc;

use super::error::Unhashable;
use super::int::Int;
use super::value::{Dict, Set, Value};

/// Longest str or bytes, in bytes, that is hashed each time; beyond it the number is kept with the value.
const HASHED_EACH_TIME: usize = 64;

impl Dict {
    /// A dict of these pairs. As in Python, a later equal key replaces the value and leaves key and place as they were.
    ///
    /// # Errors
    /// [`Unhashable`] names a key's type that cannot be one.
    pub fn from_pairs(pairs: impl IntoIterator<Item = (Value, Value)>) -> Result<Self, Unhashable> {
        Keys::default().dict(pairs)
    }
}

impl Set {
    /// A set of these items. As in Python, the first of equal items stays.
    ///
    /// # Errors
    /// [`Unhashable`] names an item's type that cannot be one.
    pub fn from_items(items: impl IntoIterator<Item = Value>) -> Result<Self, Unhashable> {
        Keys::default().set(items)
    }
}

impl PartialEq for Set {
    fn eq(&self, other: &Self) -> bool {
        self.items == other.items || Keys::default().same_items(&self.items, &other.items)
    }
}

/// A key with its parts replaced by their numbers. Equal shapes are equal keys.
#[derive(PartialEq, Eq, Hash)]
enum Shape {
    None,
    /// Bools and whole floats as well: `1 == True == 1.0`.
    Int(Int),
    /// The bits of a float that is not whole.
    Float(u64),
    Str(Arc<str>),
    Bytes(Arc<[u8]>),
    Tuple(Vec<u32>),
    /// Numbers of the elements, in ascending order.
    FrozenSet(Vec<u32>),
}

/// The numbers given so far.
#[derive(Default)]
pub(super) struct Keys {
    numbers: HashMap<Shape, u32>,
    /// The known values by address. A value is held so that no other takes its address.
    known: HashMap<usize, (Value, u32)>,
    next: u32,
    /// The last container of each number, and the place there.
    last: Vec<(u32, u32)>,
    containers: u32,
}

impl Keys {
    pub(super) fn dict(
        &mut self,
        pairs: impl IntoIterator<Item = (Value, Value)>,
    ) -> Result<Dict, Unhashable> {
        let pairs = pairs.into_iter();
        let mut dict = Dict { pairs: Vec::with_capacity(pairs.size_hint().0) };
        self.numbers.reserve(dict.pairs.capacity());
        self.containers += 1;
        for (key, value) in pairs {
            match self.place(&key, dict.pairs.len())? {
                Some(place) => dict.pairs[place].1 = value,
                None => dict.pairs.push((key, value)),
            }
        }
        Ok(dict)
    }

    pub(super) fn set(&mut self, items: impl IntoIterator<Item = Value>) -> Result<Set, Unhashable> {
        let items = items.into_iter();
        let mut set = Set { items: Vec::with_capacity(items.size_hint().0) };
        self.numbers.reserve(set.items.capacity());
        self.containers += 1;
        for item in items {
            if self.place(&item, set.items.len())?.is_none() {
                set.items.push(item);
            }
        }
        Ok(set)
    }

    /// True where two sets hold equal items.
    pub(super) fn same_items(&mut self, one: &[Value], two: &[Value]) -> bool {
        match (self.sorted_numbers(one), self.sorted_numbers(two)) {
            (Ok(one), Ok(two)) => one == two,
            _ => false,
        }
    }

    /// The place of an equal key in the container being made; without one, the key is noted at the place given.
    fn place(&mut self, key: &Value, place: usize) -> Result<Option<usize>, Unhashable> {
        let number = self.number(key)? as usize;
        if self.last.len() <= number {
            self.last.resize(number + 1, (0, 0));
        }
        if self.last[number].0 == self.containers {
            return Ok(Some(self.last[number].1 as usize));
        }
        // A container has fewer items than there are numbers.
        self.last[number] = (self.containers, place as u32);
        Ok(None)
    }

    fn number(&mut self, key: &Value) -> Result<u32, Unhashable> {
        let Some(address) = address(key) else {
            let shape = self.shape(key)?;
            return Ok(self.number_of(shape));
        };
        if let Some((_, number)) = self.known.get(&address) {
            return Ok(*number);
        }
        let shape = self.shape(key)?;
        let number = self.number_of(shape);
        self.known.insert(address, (key.clone(), number));
        Ok(number)
    }

    /// The number of a value. Without a shape it is a NaN, which equals nothing.
    fn number_of(&mut self, shape: Option<Shape>) -> u32 {
        let fresh = self.next;
        let number = shape.map_or(fresh, |shape| *self.numbers.entry(shape).or_insert(fresh));
        self.next += u32::from(number == fresh);
        number
    }

    fn shape(&mut self, key: &Value) -> Result<Option<Shape>, Unhashable> {
        Ok(Some(match key {
            Value::None => Shape::None,
            Value::Bool(value) => Shape::Int(Int::from(i64::from(*value))),
            Value::Int(value) => Shape::Int(value.clone()),
            Value::Float(value) if value.is_nan() => return Ok(None),
            Value::Float(value) => Int::from_whole(*value).map_or(Shape::Float(value.to_bits()), Shape::Int),
            Value::Str(value) => Shape::Str(value.clone()),
            Value::Bytes(value) => Shape::Bytes(value.clone()),
            Value::Tuple(items) => Shape::Tuple(self.numbers_of(items)?),
            Value::FrozenSet(set) => Shape::FrozenSet(self.sorted_numbers(&set.items)?),
            Value::ByteArray(_) | Value::List(_) | Value::Dict(_) | Value::Set(_) => {
                return Err(Unhashable(key.type_name()));
            }
        }))
    }

    fn numbers_of(&mut self, items: &[Value]) -> Result<Vec<u32>, Unhashable> {
        items.iter().map(|item| self.number(item)).collect()
    }

    fn sorted_numbers(&mut self, items: &[Value]) -> Result<Vec<u32>, Unhashable> {
        let mut numbers = self.numbers_of(items)?;
        numbers.sort_unstable();
        Ok(numbers)
    }
}

/// The address of a key that takes long to hash.
fn address(key: &Value) -> Option<usize> {
    match key {
        Value::Int(int) => int.address(),
        Value::Str(text) if text.len() > HASHED_EACH_TIME => Some(Arc::as_ptr(text).addr()),
        Value::Bytes(bytes) if bytes.len() > HASHED_EACH_TIME => Some(Arc::as_ptr(bytes).addr()),
        Value::Tuple(items) => Some(Arc::as_ptr(items).addr()),
        Value::FrozenSet(set) => Some(Arc::as_ptr(set).addr()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(keys: &[Value], expected: &str) {
        let pairs = keys.iter().cloned().zip((0i64..).map(Value::from));
        let dict = Dict::from_pairs(pairs).map(Value::from);
        assert_eq!(dict.map_or_else(|error| error.to_string(), |dict| dict.repr(1000).unwrap()), expected);
    }

    #[test]
    fn a_later_equal_key_replaces_the_value_alone() {
        check(&[1i64.into(), "a".into(), true.into(), 1.0.into()], "{1: 3, 'a': 1}");
        check(&[0.0.into(), (-0.0).into(), false.into(), 0.5.into()], "{0.0: 2, 0.5: 3}");
        check(
            &[Value::Int(u64::MAX.into()), 18446744073709551616.0.into()],
            "{18446744073709551615: 0, 1.8446744073709552e+19: 1}",
        );
        check(&["a".into(), Value::Bytes(b"a"[..].into())], "{'a': 0, b'a': 1}");
        check(&[f64::NAN.into(), f64::NAN.into()], "{nan: 0, nan: 1}");
        check(&[Value::tuple([1i64.into()]), Value::tuple([true.into()])], "{(1,): 1}");
        check(&[Value::tuple([Value::list([])])], "unhashable list as a key");
    }

    #[test]
    fn sets_are_equal_in_any_order() {
        let set = |items: &[i64]| Set::from_items(items.iter().map(|item| Value::from(*item))).unwrap();
        assert_eq!(set(&[1, 2, 1]), set(&[2, 1]));
        assert_ne!(set(&[1, 2]), set(&[1, 3]));
        assert_ne!(set(&[1, 2]), set(&[1]));
        let nested = |items: &[i64]| Set::from_items([Value::FrozenSet(Arc::new(set(items)))]).unwrap();
        assert_eq!(nested(&[1, 2]), nested(&[2, 1]));
    }

    #[test]
    fn keys_that_share_parts_cost_no_expansion() {
        let grow = |_: usize| {
            let mut key = Value::from("leaf");
            for _ in 0..100 {
                key = Value::tuple([key.clone(), key]);
            }
            key
        };
        assert_eq!(Set::from_items((0..3).map(grow)).unwrap().len(), 1);
    }
}
