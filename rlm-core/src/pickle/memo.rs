//! The memo: values that a pickle stores by index to refer to them again.

use std::collections::HashMap;

use super::heap::Slot;

/// Picklers count from 0, so the entries form a vector; an index far beyond its end costs no more than its own entry.
#[derive(Default)]
pub(super) struct Memo {
    row: Vec<Slot>,
    /// Entries beyond the end of the vector, none of them also in it.
    beyond: HashMap<usize, Slot>,
}

impl Memo {
    /// Number of entries, which is the next index of MEMOIZE.
    pub(super) fn len(&self) -> usize {
        self.row.len() + self.beyond.len()
    }

    pub(super) fn get(&self, index: usize) -> Option<Slot> {
        self.row.get(index).or_else(|| self.beyond.get(&index)).copied()
    }

    pub(super) fn put(&mut self, index: usize, slot: Slot) {
        if let Some(entry) = self.row.get_mut(index) {
            *entry = slot;
        } else if index == self.row.len() {
            self.row.push(slot);
            if !self.beyond.is_empty() {
                self.beyond.remove(&index);
            }
        } else {
            self.beyond.insert(index, slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_entry_at_an_index_counts() {
        let mut memo = Memo::default();
        for (index, int) in [(2, 20), (1 << 40, 40), (0, 0), (1, 1), (2, 2), (2, 22)] {
            memo.put(index, Slot::Int(int));
        }
        assert_eq!(memo.len(), 4);
        assert_eq!(memo.get(2), Some(Slot::Int(22)));
        assert_eq!(memo.get(1 << 40), Some(Slot::Int(40)));
        assert_eq!(memo.get(3), None);
    }
}
