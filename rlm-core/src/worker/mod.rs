//! The part of a worker that does not depend on its interpreter.
//!
//! A worker is two processes. The one that the host started is the [`guard`]: it does nothing but pass signals on, and
//! clean up should the other die. The other serves: [`serve()`] takes requests from the [`channel`], hands them to an
//! [`Interpreter`], and writes responses, answer file and history. It waits in one place, [`events`], where signals
//! and the host's death are seen as well, so that nothing it waits for can keep it from ending.

pub mod channel;
pub mod descendants;
pub mod events;
mod forward_flag;
pub mod guard;
pub mod ladder;
pub mod log;
pub mod output;
pub mod pipes;
pub mod process;
pub mod program;
pub mod serve;
pub mod settings;

pub use channel::Channel;
pub use events::{Events, Exit, Wake};
pub use forward_flag::ForwardFlag;
pub use ladder::Ladder;
pub use log::Log;
pub use output::HeadTail;
pub use process::Process;
pub use program::Program;
pub use serve::{CallReport, Description, Interpreter, Surroundings, serve};
pub use settings::Settings;
