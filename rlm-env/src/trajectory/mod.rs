//! Trajectories: the events of rollouts as JSON lines, one [`Entry`] per line, written as they happen.
//!
//! `docs/trajectory.md` documents the schema. A file cut off anywhere is valid except for its last line. Within a
//! [`VERSION`], fields are only ever added.

mod entry;
mod images;
mod output;
mod read;
mod reasoning;
mod sink;
mod write;

pub use self::entry::{
    CallEnded, CallStarted, Entry, Event, Message, MessageKind, ModelCall, ModelChanged, ModelRetry,
    QuestionEnded, RolloutEnded, RolloutScored, RolloutStarted, SubCall, VERSION,
};
pub use self::images::{ImagePlace, image_places, images_dir, read_image};
pub(crate) use self::images::{read_bounded, without_image_data};
pub use self::read::{Line, ReadError, Reader, read};
pub(crate) use self::reasoning::event_without_reasoning;
#[doc(hidden)]
pub use self::reasoning::without_reasoning;
pub use self::sink::{OutputPiece, Sink};
pub use self::write::Writer;
