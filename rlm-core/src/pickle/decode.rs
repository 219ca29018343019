//! The stack machine.

use super::call::Copies;
use super::error::{DecodeError, Fault};
use super::finish::finish;
use super::heap::{Class, Heap, Slot};
use super::limits::Limits;
use super::memo::Memo;
use super::opcode::*;
use super::reader::Reader;
use super::value::Value;

/// Newest pickle protocol of CPython.
const HIGHEST_PROTOCOL: u8 = 5;

/// Decodes one pickle of plain data.
///
/// # Errors
/// [`DecodeError`] names the fault and its offset; the module's documentation lists what is refused.
pub fn decode(payload: &[u8], limits: &Limits) -> Result<Value, DecodeError> {
    // Offsets are stored in 32 bits.
    let limit = limits.payload_bytes.min(u32::MAX as usize - 1);
    if payload.len() > limit {
        return Err(DecodeError { offset: limit, fault: Fault::Limit { what: "bytes of payload", limit } });
    }
    let machine = Machine {
        reader: Reader::new(payload),
        limits,
        at: 0,
        stack: Vec::new(),
        marks: Vec::new(),
        memo: Memo::default(),
        heap: Heap::default(),
        copies: Copies::from_payload(payload.len(), limits.opcodes),
    };
    let (heap, root, offset) = machine.run()?;
    finish(heap, root, offset, limits)
}

/// The opcodes are in `scalars`, `containers` and `globals`.
pub(super) struct Machine<'a> {
    pub(super) reader: Reader<'a>,
    pub(super) limits: &'a Limits,
    /// Offset of the current opcode.
    pub(super) at: usize,
    pub(super) stack: Vec<Slot>,
    /// Heights of the stack at which there is a mark. Values below the last mark are out of reach.
    pub(super) marks: Vec<usize>,
    pub(super) memo: Memo,
    pub(super) heap: Heap,
    pub(super) copies: Copies,
}

impl<'a> Machine<'a> {
    /// Runs to the end, and returns the heap, the result and the offset of STOP. This frees stack and memo before the
    /// values are built, which takes as much memory again.
    fn run(mut self) -> Result<(Heap, Slot, usize), DecodeError> {
        match self.run_to_stop() {
            Ok(root) => Ok((self.heap, root, self.at)),
            Err(fault) => Err(DecodeError { offset: self.at, fault }),
        }
    }

    fn run_to_stop(&mut self) -> Result<Slot, Fault> {
        for _ in 0..self.limits.opcodes {
            self.at = self.reader.offset();
            match self.reader.u8()? {
                STOP => return self.stop(),
                opcode => self.step(opcode)?,
            }
        }
        self.at = self.reader.offset();
        Err(Fault::Limit { what: "opcodes", limit: self.limits.opcodes })
    }

    fn step(&mut self, opcode: u8) -> Result<(), Fault> {
        match opcode {
            PROTO => self.protocol(),
            FRAME => self.frame(),

            NONE => self.push(Slot::None),
            NEWTRUE => self.push(Slot::Bool(true)),
            NEWFALSE => self.push(Slot::Bool(false)),
            INT => self.text_int(opcode),
            LONG => self.text_int(opcode),
            BININT => self.reader.i32().and_then(|int| self.push(Slot::Int(int.into()))),
            BININT1 => self.reader.u8().and_then(|int| self.push(Slot::Int(int.into()))),
            BININT2 => self.reader.u16().and_then(|int| self.push(Slot::Int(int.into()))),
            LONG1 => self.reader.u8().and_then(|length| self.binary_int(length.into())),
            LONG4 => self.signed_length(opcode).and_then(|length| self.binary_int(length)),
            FLOAT => self.text_float(),
            BINFLOAT => self.reader.f64().and_then(|float| self.push(Slot::Float(float))),

            UNICODE => self.escaped_str(),
            SHORT_BINUNICODE => self.reader.u8().and_then(|length| self.str(opcode, length.into())),
            BINUNICODE => self.reader.u32().and_then(|length| self.str(opcode, length.into())),
            BINUNICODE8 => self.reader.u64().and_then(|length| self.str(opcode, length)),
            STRING => self.quoted_str(),
            SHORT_BINSTRING => self.reader.u8().and_then(|length| self.ascii_str(opcode, length.into())),
            BINSTRING => self.signed_length(opcode).and_then(|length| self.ascii_str(opcode, length)),
            SHORT_BINBYTES => self.reader.u8().and_then(|length| self.bytes(length.into())),
            BINBYTES => self.reader.u32().and_then(|length| self.bytes(length.into())),
            BINBYTES8 => self.reader.u64().and_then(|length| self.bytes(length)),
            BYTEARRAY8 => self.bytearray(),

            MARK => self.mark(),
            POP => self.pop_or_unmark(),
            POP_MARK => self.unmark(opcode).map(|base| self.stack.truncate(base)),
            DUP => self.top(opcode).and_then(|top| self.push(top)),

            EMPTY_TUPLE => self.push_new(Class::Tuple, Vec::new()),
            TUPLE1 => self.tuple_of(opcode, 1),
            TUPLE2 => self.tuple_of(opcode, 2),
            TUPLE3 => self.tuple_of(opcode, 3),
            TUPLE => self.collect(opcode, Class::Tuple),
            EMPTY_LIST => self.push_new(Class::List, Vec::new()),
            LIST => self.collect(opcode, Class::List),
            EMPTY_DICT => self.push_new(Class::Dict, Vec::new()),
            DICT => self.collect(opcode, Class::Dict),
            EMPTY_SET => self.push_new(Class::Set, Vec::new()),
            FROZENSET => self.collect(opcode, Class::FrozenSet),
            APPEND => self.extend_by(opcode, Class::List, 1),
            APPENDS => self.extend(opcode, Class::List),
            SETITEM => self.extend_by(opcode, Class::Dict, 2),
            SETITEMS => self.extend(opcode, Class::Dict),
            ADDITEMS => self.extend(opcode, Class::Set),

            PUT => self.text_index(opcode).and_then(|index| self.put(opcode, index)),
            BINPUT => self.reader.u8().and_then(|index| self.put(opcode, index.into())),
            LONG_BINPUT => self.reader.u32().and_then(|index| self.put(opcode, index.into())),
            MEMOIZE => self.put(opcode, self.memo.len() as u64),
            GET => self.text_index(opcode).and_then(|index| self.get(index)),
            BINGET => self.reader.u8().and_then(|index| self.get(index.into())),
            LONG_BINGET => self.reader.u32().and_then(|index| self.get(index.into())),

            GLOBAL => self.global(),
            STACK_GLOBAL => self.stack_global(),
            REDUCE => self.reduce(),
            _ => Err(self.refusal(opcode)),
        }
    }
}

/// Start and end.
impl Machine<'_> {
    fn protocol(&mut self) -> Result<(), Fault> {
        match self.reader.u8()? {
            0..=HIGHEST_PROTOCOL => Ok(()),
            unknown => Err(Fault::Protocol(unknown)),
        }
    }

    /// Frames only help a reader that reads in pieces. Like CPython, this takes a frame longer than the rest for
    /// truncation.
    fn frame(&mut self) -> Result<(), Fault> {
        let needed = self.reader.u64()?;
        let left = self.reader.left();
        if needed > left as u64 { Err(Fault::Truncated { needed, left }) } else { Ok(()) }
    }

    fn stop(&mut self) -> Result<Slot, Fault> {
        let root = self.pop(STOP)?;
        if !self.stack.is_empty() {
            return Err(Fault::LeftOver(self.stack.len() + 1));
        }
        match self.reader.left() {
            0 => Ok(root),
            left => Err(Fault::Trailing(left)),
        }
    }
}
