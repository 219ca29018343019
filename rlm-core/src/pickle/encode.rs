//! Encodes values as pickles of protocol 3.

use super::error::WriteError;
use super::int::Int;
use super::limits::{MAX_DEPTH, MAX_ENCODED_BYTES};
use super::opcode::*;
use super::value::{Dict, Value};

/// Items added to a list or dict at once, as in CPython's pickler: they all lie on the reader's stack.
const BATCH: usize = 1000;

/// Encodes a value as a pickle of protocol 3, which every Python 3 reads. Python loads an equal value, with dicts in
/// the same order; values that are shared here are not shared there.
///
/// # Errors
/// [`WriteError::TooLarge`] over [`MAX_ENCODED_BYTES`], [`WriteError::TooDeep`].
pub fn encode(value: &Value) -> Result<Vec<u8>, WriteError> {
    encode_within(value, MAX_ENCODED_BYTES)
}

/// [`encode`] with another limit on the pickle's length, in bytes below 4 GiB.
///
/// # Errors
/// [`WriteError::TooLarge`] over the limit, [`WriteError::TooDeep`].
pub fn encode_within(value: &Value, max_bytes: usize) -> Result<Vec<u8>, WriteError> {
    // Lengths are written in 32 bits.
    let mut encoder = Encoder { pickle: Vec::new(), max_bytes: max_bytes.min(u32::MAX as usize) };
    encoder.push(&[PROTO, 3])?;
    encoder.value(value, 0)?;
    encoder.push(&[STOP])?;
    Ok(encoder.pickle)
}

/// The pickle so far.
struct Encoder {
    pickle: Vec<u8>,
    max_bytes: usize,
}

impl Encoder {
    fn value(&mut self, value: &Value, depth: usize) -> Result<(), WriteError> {
        if depth > MAX_DEPTH {
            return Err(WriteError::TooDeep(MAX_DEPTH));
        }
        match value {
            Value::None => self.push(&[NONE]),
            Value::Bool(true) => self.push(&[NEWTRUE]),
            Value::Bool(false) => self.push(&[NEWFALSE]),
            Value::Int(int) => self.int(int),
            Value::Float(float) => self.with_argument(BINFLOAT, &float.to_be_bytes()),
            Value::Str(text) => self.sized(BINUNICODE, text.as_bytes()),
            Value::Bytes(bytes) => self.sized(BINBYTES, bytes),
            Value::Tuple(items) => self.tuple(items, depth),
            Value::List(items) => self.list(items, depth),
            Value::Dict(dict) => self.dict(dict, depth),
            // Protocol 3 has no opcode for these: it calls the class.
            Value::ByteArray(bytes) => self.call("bytearray", |encoder| encoder.sized(BINBYTES, bytes)),
            Value::Set(set) => self.call("set", |encoder| encoder.list(&set.items, depth)),
            Value::FrozenSet(set) => self.call("frozenset", |encoder| encoder.list(&set.items, depth)),
        }
    }

    fn int(&mut self, int: &Int) -> Result<(), WriteError> {
        if let Some(int) = int.as_i64().and_then(|int| i32::try_from(int).ok()) {
            return self.with_argument(BININT, &int.to_le_bytes());
        }
        let bytes = int.to_le_bytes();
        match u8::try_from(bytes.len()) {
            Ok(length) => self.push(&[LONG1, length])?,
            Err(_) => self.with_argument(LONG4, &(bytes.len() as u32).to_le_bytes())?,
        }
        self.push(&bytes)
    }

    fn tuple(&mut self, items: &[Value], depth: usize) -> Result<(), WriteError> {
        let opcode = match items.len() {
            0 => return self.push(&[EMPTY_TUPLE]),
            1 => TUPLE1,
            2 => TUPLE2,
            3 => TUPLE3,
            _ => {
                self.push(&[MARK])?;
                TUPLE
            }
        };
        items.iter().try_for_each(|item| self.value(item, depth + 1))?;
        self.push(&[opcode])
    }

    fn list(&mut self, items: &[Value], depth: usize) -> Result<(), WriteError> {
        self.push(&[EMPTY_LIST])?;
        for batch in items.chunks(BATCH) {
            self.push(&[MARK])?;
            batch.iter().try_for_each(|item| self.value(item, depth + 1))?;
            self.push(&[APPENDS])?;
        }
        Ok(())
    }

    fn dict(&mut self, dict: &Dict, depth: usize) -> Result<(), WriteError> {
        self.push(&[EMPTY_DICT])?;
        for batch in dict.pairs.chunks(BATCH) {
            self.push(&[MARK])?;
            for (key, value) in batch {
                self.value(key, depth + 1)?;
                self.value(value, depth + 1)?;
            }
            self.push(&[SETITEMS])?;
        }
        Ok(())
    }

    /// Writes the call of a builtin class with one argument.
    fn call(
        &mut self,
        class: &str,
        argument: impl FnOnce(&mut Self) -> Result<(), WriteError>,
    ) -> Result<(), WriteError> {
        self.push(&[&[GLOBAL], &b"builtins\n"[..], class.as_bytes(), b"\n"].concat())?;
        argument(self)?;
        self.push(&[TUPLE1, REDUCE])
    }

    fn sized(&mut self, opcode: u8, bytes: &[u8]) -> Result<(), WriteError> {
        // A length over 32 bits does not fit into the pickle either.
        let length = u32::try_from(bytes.len()).map_err(|_| WriteError::TooLarge(self.max_bytes))?;
        self.with_argument(opcode, &length.to_le_bytes())?;
        self.push(bytes)
    }

    fn with_argument<const BYTES: usize>(
        &mut self,
        opcode: u8,
        argument: &[u8; BYTES],
    ) -> Result<(), WriteError> {
        self.push(&[opcode])?;
        self.push(argument)
    }

    fn push(&mut self, bytes: &[u8]) -> Result<(), WriteError> {
        if bytes.len() > self.max_bytes - self.pickle.len() {
            return Err(WriteError::TooLarge(self.max_bytes));
        }
        self.pickle.extend_from_slice(bytes);
        Ok(())
    }
}
