//! The few classes and functions that pickles of plain data call.
//!
//! Protocols 0 to 2 lack an opcode for bytes, 0 to 3 for sets, 0 to 4 for bytearray; CPython's pickler writes calls instead.

use super::error::Fault;
use super::text::excerpt;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Callable {
    Bytes,
    ByteArray,
    Set,
    FrozenSet,
    /// `_codecs.encode`, with latin1 alone.
    Encode,
}

impl Callable {
    pub(super) fn find(module: &[u8], name: &[u8]) -> Result<Self, Fault> {
        match (module, name) {
            (b"builtins" | b"__builtin__", b"bytes") => Ok(Self::Bytes),
            (b"builtins" | b"__builtin__", b"bytearray") => Ok(Self::ByteArray),
            (b"builtins" | b"__builtin__", b"set") => Ok(Self::Set),
            (b"builtins" | b"__builtin__", b"frozenset") => Ok(Self::FrozenSet),
            (b"_codecs", b"encode") => Ok(Self::Encode),
            (b"pathlib" | b"pathlib._local", _) => Err(Fault::Path(qualified(module, name))),
            _ => Err(Fault::Global(qualified(module, name))),
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Bytes => "bytes",
            Self::ByteArray => "bytearray",
            Self::Set => "set",
            Self::FrozenSet => "frozenset",
            Self::Encode => "_codecs.encode",
        }
    }
}

/// `module.name` for an error message: printable, short.
pub(super) fn qualified(module: &[u8], name: &[u8]) -> String {
    excerpt(&[module, b".", name].concat())
}
