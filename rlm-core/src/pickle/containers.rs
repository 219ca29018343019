//! The machine's stack and marks, and its opcodes for containers.

use super::decode::Machine;
use super::error::Fault;
use super::heap::{Class, Content, Slot};
use super::opcode::*;

/// The stack and its marks.
impl Machine<'_> {
    pub(super) fn push(&mut self, slot: Slot) -> Result<(), Fault> {
        if self.stack.len() >= self.limits.stack {
            return Err(Fault::Limit { what: "values on the stack", limit: self.limits.stack });
        }
        self.stack.push(slot);
        Ok(())
    }

    pub(super) fn push_content(&mut self, content: Content) -> Result<(), Fault> {
        let slot = self.heap.add(content, self.at);
        self.push(slot)
    }

    pub(super) fn push_new(&mut self, class: Class, items: Vec<Slot>) -> Result<(), Fault> {
        self.push_content(Content::Container(class, items))
    }

    /// Height of the stack at the last mark.
    fn floor(&self) -> usize {
        self.marks.last().copied().unwrap_or(0)
    }

    /// Values above the last mark.
    fn reachable(&self) -> usize {
        self.stack.len() - self.floor()
    }

    pub(super) fn top(&self, opcode: u8) -> Result<Slot, Fault> {
        match self.stack.last() {
            Some(top) if self.reachable() > 0 => Ok(*top),
            _ => Err(Fault::StackUnderflow(name(opcode))),
        }
    }

    pub(super) fn pop(&mut self, opcode: u8) -> Result<Slot, Fault> {
        let top = self.top(opcode)?;
        self.stack.pop();
        Ok(top)
    }

    pub(super) fn mark(&mut self) -> Result<(), Fault> {
        if self.marks.len() >= self.limits.marks {
            return Err(Fault::Limit { what: "open marks", limit: self.limits.marks });
        }
        self.marks.push(self.stack.len());
        Ok(())
    }

    /// Handles POP, which also removes a mark if one is on top.
    pub(super) fn pop_or_unmark(&mut self) -> Result<(), Fault> {
        if self.reachable() == 0 && self.marks.pop().is_some() {
            return Ok(());
        }
        self.pop(POP).map(drop)
    }

    /// Removes the last mark, and returns the start of its items on the stack.
    pub(super) fn unmark(&mut self, opcode: u8) -> Result<usize, Fault> {
        self.marks.pop().ok_or(Fault::NoMark(name(opcode)))
    }
}

/// Tuples, lists, dicts and sets.
impl Machine<'_> {
    pub(super) fn tuple_of(&mut self, opcode: u8, length: usize) -> Result<(), Fault> {
        if self.reachable() < length {
            return Err(Fault::StackUnderflow(name(opcode)));
        }
        let items = self.stack.split_off(self.stack.len() - length);
        self.push_new(Class::Tuple, items)
    }

    /// Pushes a container of the values above the last mark.
    pub(super) fn collect(&mut self, opcode: u8, class: Class) -> Result<(), Fault> {
        let base = self.unmark(opcode)?;
        self.check_items(opcode, class, base)?;
        let items = self.stack.split_off(base);
        self.push_new(class, items)
    }

    /// Adds the values above the last mark to the container below it.
    pub(super) fn extend(&mut self, opcode: u8, class: Class) -> Result<(), Fault> {
        let base = self.unmark(opcode)?;
        self.extend_from(opcode, class, base)
    }

    /// Adds the topmost values to the container below them.
    pub(super) fn extend_by(&mut self, opcode: u8, class: Class, count: usize) -> Result<(), Fault> {
        if self.reachable() < count {
            return Err(Fault::StackUnderflow(name(opcode)));
        }
        self.extend_from(opcode, class, self.stack.len() - count)
    }

    fn extend_from(&mut self, opcode: u8, class: Class, base: usize) -> Result<(), Fault> {
        self.check_items(opcode, class, base)?;
        if base <= self.floor() {
            return Err(Fault::StackUnderflow(name(opcode)));
        }
        let target = self.stack[base - 1];
        match self.heap.container_mut(target) {
            Some((found, items)) if found == class => items.extend(self.stack.drain(base..)),
            _ => return Err(self.wrong_type(opcode, target, class.name())),
        }
        Ok(())
    }

    /// Checks that the values from `base` on can be items of such a container.
    fn check_items(&self, opcode: u8, class: Class, base: usize) -> Result<(), Fault> {
        let items = &self.stack[base..];
        let every = match class {
            Class::Tuple | Class::List => return Ok(()),
            Class::Dict if !items.len().is_multiple_of(2) => return Err(Fault::OddItems(name(opcode))),
            Class::Dict => 2,
            Class::Set | Class::FrozenSet => 1,
        };
        match items.iter().step_by(every).find(|key| !self.heap.is_hashable(**key)) {
            Some(key) => Err(Fault::Unhashable(self.heap.type_name(*key))),
            None => Ok(()),
        }
    }
}

/// The memo.
impl Machine<'_> {
    pub(super) fn put(&mut self, opcode: u8, index: u64) -> Result<(), Fault> {
        let top = self.top(opcode)?;
        let limit = self.limits.memo_index;
        let index = match usize::try_from(index) {
            Ok(small) if small <= limit => small,
            _ => return Err(Fault::MemoIndex { index, limit }),
        };
        self.memo.put(index, top);
        let limit = self.limits.memo_entries;
        if self.memo.len() > limit {
            return Err(Fault::Limit { what: "memo entries", limit });
        }
        Ok(())
    }

    pub(super) fn get(&mut self, index: u64) -> Result<(), Fault> {
        let entry = usize::try_from(index).ok().and_then(|index| self.memo.get(index));
        self.push(entry.ok_or(Fault::NoMemo(index))?)
    }
}
