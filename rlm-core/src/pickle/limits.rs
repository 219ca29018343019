//! Every limit of pickles, with its unit and reason.

/// Deepest nesting of containers, for [`Limits::depth`] and for all functions that walk a value.
///
/// Values are dropped and walked by recursion, and 200 levels stay far below a thread's 2 MiB stack, even without
/// optimisation. CPython's own pickler gives up at a few hundred levels, and `serde_json` reads 128.
pub const MAX_DEPTH: usize = 200;

/// Longest pickle that [`encode`](super::encode) writes, in bytes: the longest that [`decode`](super::decode) reads by
/// default.
pub const MAX_ENCODED_BYTES: usize = 32 << 20;

/// Limits of [`decode`](super::decode). The defaults are several times what sessions send to tools.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of the payload; 32 MiB by default, twice the largest request document.
    pub payload_bytes: usize,
    /// Levels of containers; [`MAX_DEPTH`] by default, and at most.
    pub depth: usize,
    /// Opcodes; 2 Mi by default, a list of a million str that each go to the memo. This is the main bound on memory
    /// besides the length of the payload: an opcode costs at most some 240 bytes, half a GiB in all, and most cost a
    /// third of that.
    pub opcodes: usize,
    /// Values on the stack; 2 Mi by default: a tuple's items are all on the stack at once.
    pub stack: usize,
    /// Open marks; 1000 by default. A pickler opens at most two per level.
    pub marks: usize,
    /// Entries in the memo; 2 Mi by default. A pickler makes at most one per container, str and bytes.
    pub memo_entries: usize,
    /// Largest index into the memo; 16 Mi by default. Picklers count from 0. A large index costs no more than a small one.
    pub memo_index: usize,
    /// Values in the result, counting shared ones each time they occur; 2 Mi by default, as many as that many opcodes
    /// create without sharing. This bounds any walk over the result: 60 opcodes can share a pair of pairs of pairs into
    /// 2^60 values. For JSON, the values and the names in objects.
    pub expanded_values: usize,
    /// Bytes of str, bytes, bytearrays and large ints in the result, counting shared ones each time they occur; 64 MiB
    /// by default. This bounds the size of the result when written: a list can hold one long str a thousand times.
    pub expanded_bytes: usize,
    /// Digits of a number written as text; 4300 by default, as in Python: the conversion's time is quadratic.
    pub digits: usize,
    /// Bytes of a binary int; 4 KiB by default, 9865 digits: later conversions to text take less than a millisecond
    /// each.
    pub int_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            payload_bytes: MAX_ENCODED_BYTES,
            depth: MAX_DEPTH,
            opcodes: 2 << 20,
            stack: 2 << 20,
            marks: 1000,
            memo_entries: 2 << 20,
            memo_index: 16 << 20,
            expanded_values: 2 << 20,
            expanded_bytes: 64 << 20,
            digits: 4300,
            int_bytes: 4 << 10,
        }
    }
}
