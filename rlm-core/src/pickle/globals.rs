//! The machine's opcodes that name and call classes, and those that are always refused.

use super::call::call;
use super::callable::{Callable, qualified};
use super::decode::Machine;
use super::error::Fault;
use super::heap::{Class, Content, Slot};
use super::opcode::*;
use super::text::excerpt;
use super::value::Value;

impl Machine<'_> {
    pub(super) fn global(&mut self) -> Result<(), Fault> {
        let (module, class) = (self.reader.line()?, self.reader.line()?);
        self.push(Slot::Callable(Callable::find(module, class)?))
    }

    pub(super) fn stack_global(&mut self) -> Result<(), Fault> {
        let (class, module) = (self.pop(STACK_GLOBAL)?, self.pop(STACK_GLOBAL)?);
        let callable = Callable::find(self.name_part(module)?, self.name_part(class)?)?;
        self.push(Slot::Callable(callable))
    }

    pub(super) fn reduce(&mut self) -> Result<(), Fault> {
        let (arguments, callable) = (self.pop(REDUCE)?, self.pop(REDUCE)?);
        let Slot::Callable(callable) = callable else {
            return Err(self.wrong_type(REDUCE, callable, "class"));
        };
        let content = match self.heap.content(arguments) {
            Some(Content::Container(Class::Tuple, items)) => {
                call(callable, items, &self.heap, &mut self.copies)?
            }
            _ => return Err(self.wrong_type(REDUCE, arguments, "tuple")),
        };
        self.push_content(content)
    }

    /// The fault for an opcode that pickles of plain data never contain.
    pub(super) fn refusal(&mut self, opcode: u8) -> Fault {
        self.refused_object(opcode).map_or_else(|fault| fault, Fault::Object)
    }

    fn refused_object(&mut self, opcode: u8) -> Result<String, Fault> {
        let name = name(opcode);
        Ok(match opcode {
            PERSID => format!("{name} {}", excerpt(self.reader.line()?)),
            INST => {
                let (module, class) = (self.reader.line()?, self.reader.line()?);
                format!("{name} of {}", qualified(module, class))
            }
            EXT1 => format!("{name} {}", self.reader.u8()?),
            EXT2 => format!("{name} {}", self.reader.u16()?),
            EXT4 => format!("{name} {}", self.reader.i32()?),
            BINPERSID | OBJ | NEWOBJ | NEWOBJ_EX | BUILD | NEXT_BUFFER | READONLY_BUFFER => name.to_owned(),
            unknown => return Err(Fault::UnknownOpcode(unknown)),
        })
    }

    fn name_part(&self, slot: Slot) -> Result<&[u8], Fault> {
        match self.heap.value(slot) {
            Some(Value::Str(text)) => Ok(text.as_bytes()),
            _ => Err(self.wrong_type(STACK_GLOBAL, slot, "str")),
        }
    }

    pub(super) fn wrong_type(&self, opcode: u8, slot: Slot, expected: &'static str) -> Fault {
        Fault::WrongType { opcode: name(opcode), found: self.heap.type_name(slot), expected }
    }
}
