//! The part of a worker that does not depend on its language.
//!
//! A worker is two processes. The one that the host started is the [`guard`]: it only forwards signals, and cleans up
//! if the other dies. The other is the server: [`serve()`] takes requests from the [`channel`], has the [`supervisor`]
//! perform them, and writes responses, answer file and history. The server waits in one place, [`events`], where it
//! also sees signals and the host's death, so that no wait can keep it from ending.
//!
//! A language is an [`Interpreter`] and a [`Program`].

pub mod channel;
pub mod confine;
pub mod descendants;
pub mod events;
pub mod exit;
pub mod fork_server;
mod forward_flag;
pub mod guard;
pub mod interpreter;
pub mod ladder;
mod live;
pub mod log;
mod not_ready;
pub mod output;
pub mod pipes;
pub mod process;
pub mod program;
pub mod resources;
mod responses;
mod run;
mod schedule;
pub mod serve;
pub mod settings;
pub mod supervisor;

pub use channel::Channel;
pub use events::{Events, Wake};
pub use exit::Exit;
pub use forward_flag::ForwardFlag;
pub use interpreter::{CallReport, Death, Description, Interpreter, Program, Progress};
pub use ladder::Ladder;
pub use live::LiveOutput;
pub use log::Log;
pub use output::HeadTail;
pub use process::Process;
pub use resources::ResourceLimits;
pub use serve::serve;
pub use settings::Settings;
pub use supervisor::Supervisor;
