//! What can be wrong with a pickle, and with a value that is to be written.

/// A pickle that was not read, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("pickle, byte {offset}: {fault}")]
pub struct DecodeError {
    /// Offset of the opcode at fault, in bytes from the payload's start. For a fault of a whole value, of the opcode that
    /// made the value.
    pub offset: usize,
    /// What is wrong.
    pub fault: Fault,
}

/// What is wrong with a pickle: it is no plain data, it is over a limit, or it is no pickle.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// A class or function other than those of plain data: `os.system`.
    #[error("global {0} refused: only plain data is read")]
    Global(String),
    /// An opcode that makes or fills something else than plain data, with its argument where it has one.
    #[error("{0} refused: only plain data is read")]
    Object(String),
    /// An allowed class, called in a way that no pickle of plain data does: `bytearray(int)`.
    #[error("call of {0} refused")]
    Call(String),
    /// An allowed class that is itself part of the value.
    #[error("class {0} as a value refused: only plain data is read")]
    Class(&'static str),
    /// A list or dict that contains itself.
    #[error("recursive structure: this {0} contains itself")]
    Recursive(&'static str),
    /// Over one of the [`Limits`](super::Limits).
    #[error("more than {limit} {what}")]
    Limit {
        /// What there is too much of.
        what: &'static str,
        /// How much there may be.
        limit: usize,
    },
    /// PUT at an index over [`Limits::memo_index`](super::Limits::memo_index).
    #[error("memo index {index} over the limit of {limit}")]
    MemoIndex {
        /// The index.
        index: u64,
        /// The largest index taken.
        limit: usize,
    },
    /// The payload ends inside an opcode's argument, or before STOP.
    #[error("truncated: {needed} more bytes expected, {left} left")]
    Truncated {
        /// Bytes that the opcode needs.
        needed: u64,
        /// Bytes that are left.
        left: usize,
    },
    /// The payload ends inside an argument that is a line of text.
    #[error("truncated: no end of line after {0} bytes")]
    NoLineEnd(usize),
    /// Bytes after STOP.
    #[error("{0} bytes after STOP")]
    Trailing(usize),
    /// STOP with more than its one value on the stack.
    #[error("STOP with {0} values on the stack, expected 1")]
    LeftOver(usize),
    /// A protocol that does not exist yet.
    #[error("protocol {0} unknown, expected 0 to 5")]
    Protocol(u8),
    /// A byte that is no opcode.
    #[error("unknown opcode 0x{0:02x}")]
    UnknownOpcode(u8),
    /// An opcode needs a value that is not there, or that lies below the last mark.
    #[error("stack underflow in {0}")]
    StackUnderflow(&'static str),
    /// An opcode needs a mark, and none is open.
    #[error("no mark for {0}")]
    NoMark(&'static str),
    /// GET of what was never PUT.
    #[error("no memo entry {0}")]
    NoMemo(u64),
    /// An opcode applied to the wrong type.
    #[error("{opcode} on {found}, expected {expected}")]
    WrongType {
        /// The opcode's name.
        opcode: &'static str,
        /// The type it was applied to.
        found: &'static str,
        /// The type it takes.
        expected: &'static str,
    },
    /// A key without a value.
    #[error("{0} with an odd number of items")]
    OddItems(&'static str),
    /// A dict key or set item that Python cannot hash.
    #[error("unhashable {0} as a key")]
    Unhashable(&'static str),
    /// An argument that is no number, quoted string or UTF-8, or a negative length.
    #[error("{opcode} argument {text} is not {expected}")]
    Argument {
        /// The opcode's name.
        opcode: &'static str,
        /// An excerpt of the argument.
        text: String,
        /// What it should be.
        expected: &'static str,
    },
}

/// A list, dict, set or bytearray where Python needs something hashable: a dict key, or an item of a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unhashable {0} as a key")]
pub struct Unhashable(pub &'static str);

/// A value that cannot be written as asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WriteError {
    /// With shared values written out each time, the result is longer than it may be.
    #[error("value takes more than the limit of {0} bytes")]
    TooLarge(usize),
    /// Deeper than [`MAX_DEPTH`](super::MAX_DEPTH); only a value built by hand can be.
    #[error("value is nested deeper than {0} levels")]
    TooDeep(usize),
    /// JSON has nothing for it.
    #[error("{path} is {what}, which JSON cannot hold")]
    NotJson {
        /// Where in the value, as a Python expression: `value['rows'][3]`.
        path: String,
        /// The value, shortened.
        what: String,
    },
}
