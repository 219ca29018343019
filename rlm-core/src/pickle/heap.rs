//! The values made so far, as nodes that refer to each other by number.
//!
//! Nodes are flat. A list can be appended to while others refer to it, a cycle does not leak, and dropping the heap never
//! recurses, however deep the structure.

use super::callable::Callable;
use super::value::Value;

/// A value on the stack, in the memo or in a container.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Slot {
    None,
    Bool(bool),
    Int(i64),
    Float(f64),
    /// An allowed class or function, to be called by REDUCE.
    Callable(Callable),
    /// The node of this number.
    Node(u32),
}

/// A class of containers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    Tuple,
    List,
    Dict,
    Set,
    FrozenSet,
}

/// The content of a node.
#[derive(Debug)]
pub(super) enum Content {
    /// A dict's items are key, value, key, value.
    Container(Class, Vec<Slot>),
    /// A complete value. Str, bytes, bytearray and large ints are complete from the start.
    Finished(Finished),
    /// A container on its way to a value. Whoever meets one has found a cycle.
    Unfinished(Class),
}

/// A value, and its size when it is walked.
#[derive(Clone, Debug)]
pub(super) struct Finished {
    pub(super) value: Value,
    /// Levels of containers in the value, 0 for a scalar.
    pub(super) height: u16,
    /// Values in the value, itself included, with shared ones counted each time.
    pub(super) values: u32,
    /// Bytes of the value's texts, byte strings and large ints, with shared ones counted each time.
    pub(super) bytes: u32,
}

impl Finished {
    pub(super) fn scalar(value: Value) -> Self {
        let bytes = match &value {
            Value::Str(text) => text.len(),
            Value::Bytes(bytes) | Value::ByteArray(bytes) => bytes.len(),
            Value::Int(int) => int.large_bytes(),
            _ => 0,
        };
        // A payload is below 4 GiB.
        Self { value, height: 0, values: 1, bytes: u32::try_from(bytes).unwrap_or(u32::MAX) }
    }
}

#[derive(Debug)]
pub(super) struct Node {
    pub(super) content: Content,
    /// Offset of the opcode that made the node.
    pub(super) made_at: u32,
    /// True if Python can hash the value; for a tuple, this is known when it is made.
    hashable: bool,
}

#[derive(Default)]
pub(super) struct Heap {
    nodes: Vec<Node>,
}

impl Heap {
    /// Adds a node. Opcodes are fewer than 2^32, and each makes one at most.
    pub(super) fn add(&mut self, content: Content, made_at: usize) -> Slot {
        let number = u32::try_from(self.nodes.len()).expect("one opcode makes one node");
        let made_at = u32::try_from(made_at).expect("the payload is below 4 GiB");
        let hashable = self.is_hashable_content(&content);
        self.nodes.push(Node { content, made_at, hashable });
        Slot::Node(number)
    }

    pub(super) fn node(&self, number: u32) -> &Node {
        &self.nodes[number as usize]
    }

    pub(super) fn node_mut(&mut self, number: u32) -> &mut Node {
        &mut self.nodes[number as usize]
    }

    pub(super) fn content(&self, slot: Slot) -> Option<&Content> {
        match slot {
            Slot::Node(number) => Some(&self.node(number).content),
            _ => None,
        }
    }

    /// The value of a node that is not a container.
    pub(super) fn value(&self, slot: Slot) -> Option<&Value> {
        match self.content(slot) {
            Some(Content::Finished(finished)) => Some(&finished.value),
            _ => None,
        }
    }

    pub(super) fn container_mut(&mut self, slot: Slot) -> Option<(Class, &mut Vec<Slot>)> {
        match slot {
            Slot::Node(number) => match &mut self.node_mut(number).content {
                Content::Container(class, items) => Some((*class, items)),
                Content::Finished(_) | Content::Unfinished(_) => None,
            },
            _ => None,
        }
    }

    pub(super) fn is_hashable(&self, slot: Slot) -> bool {
        match slot {
            Slot::Node(number) => self.node(number).hashable,
            _ => true,
        }
    }

    /// The name of the slot's class in Python.
    pub(super) fn type_name(&self, slot: Slot) -> &'static str {
        match slot {
            Slot::None => "NoneType",
            Slot::Bool(_) => "bool",
            Slot::Int(_) => "int",
            Slot::Float(_) => "float",
            Slot::Callable(_) => "class",
            Slot::Node(number) => self.node(number).content.type_name(),
        }
    }

    fn is_hashable_content(&self, content: &Content) -> bool {
        match content {
            Content::Container(Class::Tuple, items) => items.iter().all(|item| self.is_hashable(*item)),
            Content::Container(class, _) | Content::Unfinished(class) => *class == Class::FrozenSet,
            Content::Finished(finished) => !matches!(finished.value, Value::ByteArray(_)),
        }
    }
}

impl Class {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Tuple => "tuple",
            Self::List => "list",
            Self::Dict => "dict",
            Self::Set => "set",
            Self::FrozenSet => "frozenset",
        }
    }
}

impl Content {
    pub(super) fn type_name(&self) -> &'static str {
        match self {
            Self::Container(class, _) | Self::Unfinished(class) => class.name(),
            Self::Finished(finished) => finished.value.type_name(),
        }
    }
}
