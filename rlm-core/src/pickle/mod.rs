//! Pickles as data: a bounded decoder, and an encoder.
//!
//! A pickle is a program for a small stack machine, and in Python that program may call anything. Here it may build plain
//! values and nothing else: None, bool, int, float, str, bytes, bytearray, tuple, list, dict, set and frozenset. Anything
//! else that a pickle asks for (another global, an instance, a persistent id, an extension code, an out-of-band buffer) is
//! refused by an error that names it and the offset of its opcode. Nothing is looked up, called or imported.
//!
//! [`decode`] reads protocols 0 to 5. It runs in two steps. The machine fills a heap of flat nodes that refer to each other
//! by number, so that a list may be appended to after others refer to it, as Python's pickles do. Then the nodes that the
//! result reaches become [`Value`]s, each once: a value that the pickle shares is shared. Time and memory are
//! proportional to the payload and capped by [`Limits`]; no length that a payload declares is believed before its bytes
//! are there.
//!
//! [`Value::from_json_text`] reads JSON within the same limits.
//!
//! [`encode`] writes protocol 3. What it cannot write, and what [`Value::repr`], [`Value::to_json_text`] and
//! [`Value::to_json`] cannot, is a [`WriteError`]: these write a shared value out each time it occurs, and are bounded by a size.
//!
//! Where the decoder differs from CPython's:
//!
//! * A lone surrogate in a str becomes U+FFFD: a Rust string cannot hold one.
//! * Bytes after STOP are refused, and so is a STOP with more than one value on the stack: a payload is one value, and who
//!   sends more means something else than we read. CPython ignores both.
//! * A structure that contains itself is refused: a [`Value`] cannot hold one.
//! * Text ints are plain decimal; `0x10` and `1_000`, which no pickler writes, are refused.
//! * str opcodes of Python 2 (STRING, BINSTRING, SHORT_BINSTRING) hold ASCII, as CPython's default has it.

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
