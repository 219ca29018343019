//! Converts the machine's nodes to values: each node that the result reaches becomes one value.

use std::sync::Arc;

use super::error::{DecodeError, Fault, Unhashable};
use super::heap::{Class, Content, Finished, Heap, Slot};
use super::int::Int;
use super::keys::Keys;
use super::limits::{Limits, MAX_DEPTH};
use super::value::Value;

/// Builds the value of a slot. `offset` is reported in errors if the slot is not a node.
pub(super) fn finish(heap: Heap, root: Slot, offset: usize, limits: &Limits) -> Result<Value, DecodeError> {
    let mut finisher = Finisher { heap, keys: Keys::default(), limits };
    Ok(finisher.finish(root, offset, 0)?.value)
}

struct Finisher<'a> {
    heap: Heap,
    keys: Keys,
    limits: &'a Limits,
}

/// The finished items of a container, and the cost of walking them.
struct Items {
    values: Vec<Value>,
    height: u16,
    count: u32,
    bytes: u32,
}

impl Finisher<'_> {
    fn finish(&mut self, slot: Slot, offset: usize, depth: usize) -> Result<Finished, DecodeError> {
        let value = match slot {
            Slot::None => Value::None,
            Slot::Bool(value) => Value::Bool(value),
            Slot::Int(value) => Value::Int(Int::from(value)),
            Slot::Float(value) => Value::Float(value),
            Slot::Callable(callable) => {
                return Err(DecodeError { offset, fault: Fault::Class(callable.name()) });
            }
            Slot::Node(number) => return self.finish_node(number, depth),
        };
        Ok(Finished::scalar(value))
    }

    fn finish_node(&mut self, number: u32, depth: usize) -> Result<Finished, DecodeError> {
        let node = self.heap.node_mut(number);
        let offset = node.made_at as usize;
        let fail = |fault| DecodeError { offset, fault };
        let (class, slots) = match &mut node.content {
            Content::Finished(finished) => return Ok(finished.clone()),
            Content::Unfinished(class) => return Err(fail(Fault::Recursive(class.name()))),
            Content::Container(class, slots) => (*class, std::mem::take(slots)),
        };
        node.content = Content::Unfinished(class);
        self.check_depth(depth + 1).map_err(fail)?;
        let items = self.finish_items(slots, offset, depth + 1)?;
        self.check_depth(items.height.into()).map_err(fail)?;
        self.check_count(items.count).map_err(fail)?;
        self.check_bytes(items.bytes).map_err(fail)?;
        let value =
            self.container(class, items.values).map_err(|Unhashable(name)| fail(Fault::Unhashable(name)))?;
        let finished = Finished { value, height: items.height, values: items.count, bytes: items.bytes };
        self.heap.node_mut(number).content = Content::Finished(finished.clone());
        Ok(finished)
    }

    fn finish_items(&mut self, slots: Vec<Slot>, offset: usize, depth: usize) -> Result<Items, DecodeError> {
        let mut items = Items { values: Vec::with_capacity(slots.len()), height: 1, count: 1, bytes: 0 };
        for slot in slots {
            let item = self.finish(slot, offset, depth)?;
            items.values.push(item.value);
            items.height = items.height.max(item.height + 1);
            items.count = items.count.saturating_add(item.values);
            items.bytes = items.bytes.saturating_add(item.bytes);
        }
        Ok(items)
    }

    fn container(&mut self, class: Class, values: Vec<Value>) -> Result<Value, Unhashable> {
        Ok(match class {
            Class::Tuple => Value::Tuple(Arc::new(values)),
            Class::List => Value::List(Arc::new(values)),
            Class::Dict => {
                let pairs = values.len() / 2;
                let mut values = values.into_iter();
                let mut next = || values.next().expect("SETITEMS takes even numbers");
                Value::Dict(Arc::new(self.keys.dict((0..pairs).map(|_| (next(), next())))?))
            }
            Class::Set => Value::Set(Arc::new(self.keys.set(values)?)),
            Class::FrozenSet => Value::FrozenSet(Arc::new(self.keys.set(values)?)),
        })
    }

    fn check_depth(&self, depth: usize) -> Result<(), Fault> {
        let limit = self.limits.depth.min(MAX_DEPTH);
        if depth > limit { Err(Fault::Limit { what: "levels of nesting", limit }) } else { Ok(()) }
    }

    fn check_count(&self, count: u32) -> Result<(), Fault> {
        let limit = self.limits.expanded_values.min(u32::MAX as usize - 1);
        if count as usize > limit {
            return Err(Fault::Limit { what: "values, with shared ones counted each time", limit });
        }
        Ok(())
    }

    fn check_bytes(&self, bytes: u32) -> Result<(), Fault> {
        let limit = self.limits.expanded_bytes.min(u32::MAX as usize - 1);
        if bytes as usize > limit {
            return Err(Fault::Limit { what: "bytes, with shared ones counted each time", limit });
        }
        Ok(())
    }
}
