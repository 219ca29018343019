//! Checks for pickles that CPython's own unpickler will read.

use super::decode::decode;
use super::error::{DecodeError, Fault};
use super::limits::Limits;
use super::opcode::*;
use super::reader::Reader;
use super::text;

/// Checks that a pickle does no harm to CPython's unpickler, if that is told to find only the globals of plain data.
/// The unpickler trusts declared lengths, allocates a memo as large as the largest index, and returns a class that was
/// looked up but not called.
///
/// The opcodes are only scanned, and no value is built, unless there are globals: then [`decode`] must accept the
/// pickle. A refused global is left to CPython, which refuses it at the same opcode.
///
/// # Errors
/// [`DecodeError`] names the fault and its offset.
pub fn check_for_cpython(payload: &[u8], limits: &Limits) -> Result<(), DecodeError> {
    let mut survey = Survey { reader: Reader::new(payload), opcodes: 0, has_globals: false };
    loop {
        let offset = survey.reader.offset();
        match survey.step() {
            Ok(true) => {}
            Ok(false) => break,
            Err(fault) => return Err(DecodeError { offset, fault }),
        }
    }
    if !survey.has_globals {
        return Ok(());
    }
    match decode(payload, limits) {
        Ok(_) | Err(DecodeError { fault: Fault::Global(_), .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

struct Survey<'a> {
    reader: Reader<'a>,
    opcodes: u64,
    has_globals: bool,
}

impl Survey<'_> {
    /// Skips an opcode and its argument. False if it was the last one.
    fn step(&mut self) -> Result<bool, Fault> {
        self.opcodes += 1;
        let opcode = self.reader.u8()?;
        let fixed = match opcode {
            STOP => return Ok(false),
            BININT1 | BINGET | BINPUT | PROTO | EXT1 => 1,
            BININT2 | EXT2 => 2,
            BININT | LONG_BINGET | EXT4 => 4,
            BINFLOAT | FRAME => 8,
            SHORT_BINSTRING | SHORT_BINBYTES | SHORT_BINUNICODE | LONG1 => self.reader.u8()?.into(),
            BINSTRING | BINUNICODE | BINBYTES | LONG4 => self.reader.u32()?.into(),
            BINUNICODE8 | BINBYTES8 | BYTEARRAY8 => self.reader.u64()?,
            FLOAT | INT | LONG | PERSID | STRING | UNICODE | GET => {
                self.reader.line()?;
                0
            }
            PUT => {
                let line = self.reader.line()?;
                let index = text::ascii(line).and_then(|digits| digits.trim().parse().ok());
                self.put(index.unwrap_or(u64::MAX))?;
                0
            }
            LONG_BINPUT => {
                let index = self.reader.u32()?;
                self.put(index.into())?;
                0
            }
            GLOBAL | INST => {
                self.has_globals = true;
                self.reader.line()?;
                self.reader.line()?;
                0
            }
            STACK_GLOBAL => {
                self.has_globals = true;
                0
            }
            unknown if name(unknown) == "?" => return Err(Fault::UnknownOpcode(unknown)),
            _ => 0,
        };
        self.reader.take(fixed)?;
        Ok(true)
    }

    /// Picklers count from 0, and each index takes an opcode.
    fn put(&self, index: u64) -> Result<(), Fault> {
        if index > self.opcodes {
            let limit = usize::try_from(self.opcodes).unwrap_or(usize::MAX);
            return Err(Fault::MemoIndex { index, limit });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::encode::encode;
    use super::super::value::{Set, Value};
    use super::*;

    #[track_caller]
    fn check(pickle: &[u8], expected: &str) {
        let checked = check_for_cpython(pickle, &Limits::default());
        let found = checked.map_or_else(|error| error.to_string(), |()| "fine".to_owned());
        assert_eq!(found, expected, "{}", pickle.escape_ascii());
    }

    #[test]
    fn a_memo_index_is_bounded_by_the_length_of_the_pickle() {
        check(b"\x80\x04Nr\xff\xff\xff\x0f.", "pickle, byte 3: memo index 268435455 over the limit of 3");
        check(b"Np99999999\n.", "pickle, byte 1: memo index 99999999 over the limit of 2");
        check(
            b"Np99999999999999999999999\n.",
            "pickle, byte 1: memo index 18446744073709551615 over the limit of 2",
        );
        check(b"]q\0r\x02\0\0\0p1\n.", "fine");
    }

    #[test]
    fn declared_lengths_must_match_the_payload() {
        check(
            b"\x96\0\0\0\0\x01\0\0\0a.",
            "pickle, byte 0: truncated: 4294967296 more bytes expected, 2 left",
        );
        check(b"N", "pickle, byte 1: truncated: 1 more bytes expected, 0 left");
        check(b"\xff.", "pickle, byte 0: unknown opcode 0xff");
    }

    #[test]
    fn a_class_may_only_be_called() {
        check(
            b"c__builtin__\nset\n.",
            "pickle, byte 17: class set as a value refused: only plain data is read",
        );
        check(
            b"\x8c\x08builtins\x8c\x05bytes\x93.",
            "pickle, byte 18: class bytes as a value refused: only plain data is read",
        );
        let set = Set::from_items([Value::from(1)]).unwrap();
        check(&encode(&Value::Set(set.into())).unwrap(), "fine");
        // CPython refuses it with an error of its own.
        check(b"cos\nsystem\n.", "fine");
    }

    #[test]
    fn every_opcode_is_skipped_with_its_argument() {
        let pickle = b"\x80\x05\x95\x05\0\0\0\0\0\0\0(NI1\nL2L\nF1.5\nG\0\0\0\0\0\0\0\0J\x01\0\0\0K\x01M\x01\0\x8a\x01\x07\
            \x8b\x01\0\0\0\x07S'a'\nT\x01\0\0\0aU\x01aVa\nX\x01\0\0\0a\x8c\x01a\x8d\x01\0\0\0\0\0\0\0aB\x01\0\0\0aC\x01a\
            \x8e\x01\0\0\0\0\0\0\0a\x96\x01\0\0\0\0\0\0\0ap0\ng0\nq\x01h\x01r\x02\0\0\0j\x02\0\0\0\x94\
            \x88\x89)]}\x8fl.";
        let value = decode(pickle, &Limits::default());
        assert!(value.is_ok(), "{value:?}");
        check(pickle, "fine");
    }
}
