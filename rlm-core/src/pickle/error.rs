//! Errors of decoding and encoding.

/// A pickle that was refused, and the offset of the fault.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("pickle, byte {offset}: {fault}")]
pub struct DecodeError {
    /// Offset of the opcode at fault, in bytes from the start of the payload. If a whole value is at fault, of the
    /// opcode that created it.
    pub offset: usize,
    /// The fault at that offset.
    pub fault: Fault,
}

/// A fault of a pickle: it is not plain data, it is over a limit, or it is not a pickle.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// A class or function outside plain data, such as `os.system`.
    #[error("global {0} refused: only plain data is read")]
    Global(String),
    /// A path of `pathlib`.
    #[error("global {0} refused: write str(path) for a path")]
    Path(String),
    /// An opcode that creates or fills anything but plain data, with its argument if it has one.
    #[error("{0} refused: only plain data is read")]
    Object(String),
    /// An allowed class, called in a way that pickles of plain data never do: `bytearray(int)`.
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
        /// Unit of the limit.
        what: &'static str,
        /// Largest allowed number.
        limit: usize,
    },
    /// PUT at an index over [`Limits::memo_index`](super::Limits::memo_index).
    #[error("memo index {index} over the limit of {limit}")]
    MemoIndex {
        /// Index of the PUT.
        index: u64,
        /// Largest allowed index.
        limit: usize,
    },
    /// The payload ends inside an opcode's argument, or before STOP.
    #[error("truncated: {needed} more bytes expected, {left} left")]
    Truncated {
        /// Bytes that the opcode needs.
        needed: u64,
        /// Bytes left in the payload.
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
    /// A byte that is not an opcode.
    #[error("unknown opcode 0x{0:02x}")]
    UnknownOpcode(u8),
    /// An opcode needs a value that does not exist, or that lies below the last mark.
    #[error("stack underflow in {0}")]
    StackUnderflow(&'static str),
    /// An opcode needs a mark, and no mark is open.
    #[error("no mark for {0}")]
    NoMark(&'static str),
    /// GET of an index without a PUT.
    #[error("no memo entry {0}")]
    NoMemo(u64),
    /// An opcode applied to the wrong type.
    #[error("{opcode} on {found}, expected {expected}")]
    WrongType {
        /// Name of the opcode.
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
    /// An argument that is not a number, quoted string or UTF-8, or a negative length.
    #[error("{opcode} argument {text} is not {expected}")]
    Argument {
        /// Name of the opcode.
        opcode: &'static str,
        /// Excerpt of the argument.
        text: String,
        /// Expected form of the argument.
        expected: &'static str,
    },
}

/// A list, dict, set or bytearray used as a dict key or an item of a set, which Python must be able to hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unhashable {0} as a key")]
pub struct Unhashable(pub &'static str);

/// A value that cannot be encoded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WriteError {
    /// With shared values written out each time, the result is over its limit in bytes.
    #[error("value takes more than the limit of {0} bytes")]
    TooLarge(usize),
    /// Deeper than [`MAX_DEPTH`](super::MAX_DEPTH), which only a value built by hand can be.
    #[error("value is nested deeper than {0} levels")]
    TooDeep(usize),
    /// JSON cannot represent the value.
    #[error("{path} is {what}, which JSON cannot hold")]
    NotJson {
        /// Path to the value, as a Python expression: `value['rows'][3]`.
        path: String,
        /// Description of the value, shortened.
        what: String,
    },
}
