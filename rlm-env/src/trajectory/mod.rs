//! What happened in rollouts, as JSON lines: one [`Entry`] per line, written when it happens.
//!
//! The schema is documented in `docs/trajectory.md`. A file that was cut off anywhere is valid but for its last line. Fields
//! are only ever added within a [`VERSION`].

mod entry;
mod output;
mod read;
mod sink;
mod write;

pub use self::entry::{
    CallEnded, CallStarted, Entry, Event, Message, MessageKind, ModelCall, RolloutEnded, RolloutStarted,
    SubCall, VERSION,
};
pub use self::read::{Line, ReadError, Reader, read};
pub use self::sink::Sink;
pub use self::write::Writer;
