//! The values of calls in a pickle. Nothing is called: each call is replaced by the value that it would return.

use std::sync::Arc;

use super::callable::Callable;
use super::error::Fault;
use super::heap::{Class, Content, Finished, Heap, Slot};
use super::value::Value;

/// The value that a call would return.
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

/// The amount that calls have copied so far. A pickler writes each argument for one call, so a payload whose calls copy more
/// than it holds makes one value grow into many.
pub(super) struct Copies {
    bytes: usize,
    items: usize,
    max_bytes: usize,
    max_items: usize,
}

impl Copies {
    /// A payload holds at most as many items as it has bytes, and as it has opcodes.
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

/// The bytes of `bytes()`, `bytes(bytes)`, `bytes(list of ints)`, `bytes(str, latin1)`. `bytes(int)` is refused: it
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
