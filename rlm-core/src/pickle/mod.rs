//! Pickles as plain data: a bounded decoder, and an encoder.
//!
//! A pickle is a program for a small stack machine, and in Python that program may call anything. Here it can only
//! build plain values: None, bool, int, float, str, bytes, bytearray, tuple, list, dict, set and frozenset. Anything
//! else in a pickle (another global, an instance, a persistent id, an extension code, an out-of-band buffer) is refused
//! by an error that names it and the offset of its opcode. Nothing is looked up, called or imported.
//!
//! [`decode`] reads protocols 0 to 5 in two steps. The machine fills a heap of flat nodes that refer to each other by
//! number, so that a list may be appended to after others refer to it, as Python's pickles do. Then the nodes that the
//! result reaches become [`Value`]s, each once: a value that the pickle shares is shared. Time and memory are
//! proportional to the payload and capped by [`Limits`]; a declared length is never trusted before its bytes are found.
//!
//! [`Value::from_json_text`] reads JSON within the same limits.
//!
//! [`encode`] writes protocol 3. Values that it, [`Value::repr`], [`Value::to_json_text`] or [`Value::to_json`] cannot
//! write give a [`WriteError`]: all of these write a shared value out each time it occurs, and limit the size of the
//! result.
//!
//! Differences from CPython's decoder:
//!
//! * A lone surrogate in a str becomes U+FFFD: a Rust string cannot hold one.
//! * Bytes after STOP are refused, and so is a STOP with more than one value on the stack: a payload is one value, and
//!   a sender of more means something other than what we read. CPython ignores both.
//! * A structure that contains itself is refused: a [`Value`] cannot hold one.
//! * Text ints are plain decimal; `0x10` and `1_000`, which no pickler writes, are refused.
//! * The str opcodes of Python 2 (STRING, BINSTRING, SHORT_BINSTRING) hold ASCII, which is CPython's default.

mod call;
mod callable;
mod containers;
mod cpython;
mod decode;
mod encode;
mod error;
mod finish;
mod globals;
mod heap;
mod int;
mod json;
mod keys;
mod limits;
mod memo;
mod opcode;
mod reader;
mod repr;
mod scalars;
mod text;
mod value;

pub use cpython::check_for_cpython;
pub use decode::decode;
pub use encode::{encode, encode_within};
pub use error::{DecodeError, Fault, Unhashable, WriteError};
pub use int::Int;
pub use json::JsonError;
pub use limits::{Limits, MAX_DEPTH, MAX_ENCODED_BYTES};
pub use value::{Dict, Set, Value};
