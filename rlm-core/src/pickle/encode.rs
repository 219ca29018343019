//! Values to pickles of protocol 3, through serde-pickle's serializer.
//!
//! Serde knows no bytearray, set, frozenset or int of any size, and serde-pickle's own value type, which knows most of
//! them, sorts dicts. The serializer keeps nothing back from its writer, so the opcodes around these are written to the
//! same writer between its own.

use std::cell::{Cell, RefCell};
use std::io;

use serde::ser::{Error as _, Serialize, SerializeMap, SerializeSeq, SerializeTuple, Serializer};

use super::error::WriteError;
use super::int::Int;
use super::limits::{MAX_DEPTH, MAX_ENCODED_BYTES};
use super::opcode::{GLOBAL, LONG1, LONG4, REDUCE, TUPLE1};
use super::value::{Dict, Value};

/// Writes a value as a pickle of protocol 3, which every Python 3 reads. What Python loads is equal, in a dict's order too;
/// values that are shared here are not shared there.
///
/// # Errors
/// [`WriteError::TooLarge`] over [`MAX_ENCODED_BYTES`], [`WriteError::TooDeep`].
pub fn encode(value: &Value) -> Result<Vec<u8>, WriteError> {
    encode_within(value, MAX_ENCODED_BYTES)
}

/// The same, with a bound of one's own on the pickle's length in bytes; below 4 GiB.
///
/// # Errors
/// [`WriteError::TooLarge`] over the bound, [`WriteError::TooDeep`].
pub fn encode_within(value: &Value, max_bytes: usize) -> Result<Vec<u8>, WriteError> {
    // Lengths are written with 32 bits.
    let max_bytes = max_bytes.min(u32::MAX as usize);
    let output =
        Output { bytes: RefCell::default(), max_bytes, too_deep: Cell::default(), muted: Cell::default() };
    let node = Node { value, depth: 0, output: &output };
    match serde_pickle::to_writer(&mut &output, &node, serde_pickle::SerOptions::new()) {
        Ok(()) => Ok(output.bytes.into_inner()),
        Err(_) if output.too_deep.get() => Err(WriteError::TooDeep(MAX_DEPTH)),
        // Nothing else fails: the serializer takes every type that is used, and the writer only runs out of room.
        Err(_) => Err(WriteError::TooLarge(max_bytes)),
    }
}

/// The pickle so far, written to by the serializer and beside it.
struct Output {
    bytes: RefCell<Vec<u8>>,
    max_bytes: usize,
    /// Set where an error is for the depth; serde's errors are only text.
    too_deep: Cell<bool>,
    /// While set, what is written is dropped.
    muted: Cell<bool>,
}

impl io::Write for &Output {
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        if self.muted.get() {
            return Ok(piece.len());
        }
        let mut bytes = self.bytes.borrow_mut();
        if piece.len() > self.max_bytes - bytes.len() {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        bytes.extend_from_slice(piece);
        Ok(piece.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

struct Node<'a> {
    value: &'a Value,
    depth: usize,
    output: &'a Output,
}

impl Serialize for Node<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.depth > MAX_DEPTH {
            self.output.too_deep.set(true);
            return Err(S::Error::custom("too deep"));
        }
        match self.value {
            Value::None => serializer.serialize_unit(),
            Value::Bool(value) => serializer.serialize_bool(*value),
            Value::Int(int) => self.int(int, serializer),
            Value::Float(value) => serializer.serialize_f64(*value),
            Value::Str(text) => serializer.serialize_str(text),
            Value::Bytes(bytes) => serializer.serialize_bytes(bytes),
            Value::ByteArray(bytes) => {
                self.call("bytearray", |serializer| serializer.serialize_bytes(bytes), serializer)
            }
            Value::Tuple(items) => self.tuple(items, serializer),
            Value::List(items) => self.list(items, serializer),
            Value::Dict(dict) => self.dict(dict, serializer),
            Value::Set(set) => self.call("set", |serializer| self.list(&set.items, serializer), serializer),
            Value::FrozenSet(set) => {
                self.call("frozenset", |serializer| self.list(&set.items, serializer), serializer)
            }
        }
    }
}

impl<'a> Node<'a> {
    fn inner(&self, value: &'a Value) -> Self {
        Node { value, depth: self.depth + 1, output: self.output }
    }

    fn list<S: Serializer>(&self, items: &'a [Value], serializer: S) -> Result<S::Ok, S::Error> {
        let mut list = serializer.serialize_seq(Some(items.len()))?;
        for item in items {
            list.serialize_element(&self.inner(item))?;
        }
        list.end()
    }

    fn tuple<S: Serializer>(&self, items: &'a [Value], serializer: S) -> Result<S::Ok, S::Error> {
        let mut tuple = serializer.serialize_tuple(items.len())?;
        for item in items {
            tuple.serialize_element(&self.inner(item))?;
        }
        tuple.end()
    }

    fn dict<S: Serializer>(&self, dict: &'a Dict, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(dict.len()))?;
        for (key, value) in dict.iter() {
            map.serialize_entry(&self.inner(key), &self.inner(value))?;
        }
        map.end()
    }

    /// The serializer has no way to write nothing, and must be asked for something: where an int is written beside it, it
    /// is asked for None and not heard.
    fn int<S: Serializer>(&self, int: &Int, serializer: S) -> Result<S::Ok, S::Error> {
        if let Some(int) = int.as_i64() {
            return serializer.serialize_i64(int);
        }
        let bytes = int.to_le_bytes();
        match u8::try_from(bytes.len()) {
            Ok(length) => self.beside(&[LONG1, length])?,
            Err(_) => self.beside(&[&[LONG4], &(bytes.len() as u32).to_le_bytes()[..]].concat())?,
        }
        self.beside(&bytes)?;
        self.output.muted.set(true);
        let done = serializer.serialize_unit();
        self.output.muted.set(false);
        done
    }

    /// The call of a builtin class with one argument.
    fn call<S: Serializer>(
        &self,
        class: &str,
        argument: impl FnOnce(S) -> Result<S::Ok, S::Error>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        self.beside(&[&[GLOBAL], &b"builtins\n"[..], class.as_bytes(), b"\n"].concat())?;
        let done = argument(serializer)?;
        self.beside(&[TUPLE1, REDUCE])?;
        Ok(done)
    }

    fn beside<E: serde::ser::Error>(&self, opcodes: &[u8]) -> Result<(), E> {
        io::Write::write_all(&mut &*self.output, opcodes).map_err(E::custom)
    }
}
