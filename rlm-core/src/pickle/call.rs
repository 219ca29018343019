//! The few classes and functions that pickles of plain data name, and what their calls give.
//!
//! Protocols 0 to 2 have no opcode for bytes, 0 to 3 none for sets, 0 to 4 none for bytearray; CPython's pickler writes
//! calls instead. Nothing is called here: each gives the value that the call would.

use std::sync::Arc;

use super::error::Fault;
use super::heap::{Class, Content, Finished, Heap, Slot};
use super::text::excerpt;
use super::value::Value;

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

/// What a call would give.
pub(super) fn call(
    callable: Callable,
    arguments: &[Slot],
    heap: &Heap,
    copies: &mut Copies,
) -> Result<Content, Fault> {
    let given = match callable {
        Callable::Set => items(arguments, heap, copies)?.map(|items| Content::Container(Class::Set, items)),
        Callable::FrozenSet => {
            items(arguments, heap, copies)?.map(|items| Content::Container(Class::FrozenSet, items))
        }
        Callable::Bytes => bytes(arguments, heap, copies)?.map(|bytes| finished(Value::Bytes(bytes))),
        Callable::ByteArray => bytes(arguments, heap, copies)?.map(|bytes| finished(Value::ByteArray(bytes))),
        Callable::Encode => latin1(arguments, heap, copies)?.map(|bytes| finished(Value::Bytes(bytes))),
    };
    given.ok_or_else(|| refused(callable, arguments, heap))
}

/// What calls have copied so far. A pickler writes each argument for one call, so a payload whose calls copy more than it
/// holds makes one value grow into many.
pub(super) struct Copies {
    bytes: usize,
    items: usize,
    max_bytes: usize,
    max_items: usize,
}

impl Copies {
    /// A payload holds no more items than it has bytes, and none that no opcode made.
    pub(super) fn from_payload(bytes: usize, opcodes: usize) -> Self {
        Self { bytes: 0, items: 0, max_bytes: bytes, max_items: opcodes.min(bytes) }
    }

    fn add_bytes(&mut self, count: usize) -> Result<(), Fault> {
        self.bytes += count;
        if self.bytes > self.max_bytes {
            return Err(Fault::Limit { what: "bytes copied by calls", limit: self.max_bytes });
        }
        Ok(())
    }

    fn add_items(&mut self, count: usize) -> Result<(), Fault> {
        self.items += count;
        if self.items > self.max_items {
            return Err(Fault::Limit { what: "items copied by calls", limit: self.max_items });
        }
        Ok(())
    }
}

fn finished(value: Value) -> Content {
    Content::Finished(Finished::scalar(value))
}

fn refused(callable: Callable, arguments: &[Slot], heap: &Heap) -> Fault {
    let types: Vec<_> = arguments.iter().take(4).map(|argument| heap.type_name(*argument)).collect();
    let more = if arguments.len() > types.len() { ", …" } else { "" };
    Fault::Call(format!("{}({}{more})", callable.name(), types.join(", ")))
}

/// The items of `set()`, `set(list)`, `set(tuple)`.
fn items(arguments: &[Slot], heap: &Heap, copies: &mut Copies) -> Result<Option<Vec<Slot>>, Fault> {
    let [argument] = arguments else {
        return Ok(arguments.is_empty().then(Vec::new));
    };
    let Some(items) = sequence(*argument, heap) else { return Ok(None) };
    copies.add_items(items.len())?;
    match items.iter().find(|item| !heap.is_hashable(**item)) {
        Some(item) => Err(Fault::Unhashable(heap.type_name(*item))),
        None => Ok(Some(items.to_vec())),
    }
}

/// The bytes of `bytes()`, `bytes(bytes)`, `bytes(list of ints)`, `bytes(str, latin1)`. `bytes(int)` is not among them: it
/// would take as much memory as the int says.
fn bytes(arguments: &[Slot], heap: &Heap, copies: &mut Copies) -> Result<Option<Arc<[u8]>>, Fault> {
    let [argument] = arguments else {
        return if arguments.is_empty() { Ok(Some([].into())) } else { latin1(arguments, heap, copies) };
    };
    if let Some(Value::Bytes(bytes) | Value::ByteArray(bytes)) = heap.value(*argument) {
        return Ok(Some(bytes.clone()));
    }
    let Some(items) = sequence(*argument, heap) else { return Ok(None) };
    copies.add_items(items.len())?;
    Ok(items.iter().map(byte).collect())
}

fn byte(item: &Slot) -> Option<u8> {
    match item {
        Slot::Int(int) => u8::try_from(*int).ok(),
        _ => None,
    }
}

/// The bytes of a str whose characters stand for bytes.
fn latin1(arguments: &[Slot], heap: &Heap, copies: &mut Copies) -> Result<Option<Arc<[u8]>>, Fault> {
    let [text, encoding] = arguments else { return Ok(None) };
    let (Some(Value::Str(text)), Some(Value::Str(encoding))) = (heap.value(*text), heap.value(*encoding))
    else {
        return Ok(None);
    };
    if !matches!(&**encoding, "latin1" | "latin-1") {
        return Ok(None);
    }
    copies.add_bytes(text.chars().count())?;
    Ok(text.chars().map(|character| u8::try_from(character).ok()).collect())
}

fn sequence(slot: Slot, heap: &Heap) -> Option<&[Slot]> {
    match heap.content(slot) {
        Some(Content::Container(Class::List | Class::Tuple, items)) => Some(items),
        _ => None,
    }
}
