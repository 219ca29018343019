//! Root tools that are programs, programs that are run alone, and servers on standard streams.
//!
//! A call starts the program. It reads one JSON document from standard input to end of file, and its standard output is
//! the result. It runs in a process group of its own, which is killed when it exits, at its time limit, when it writes too
//! much, and when the call is cancelled. It sees a small environment.

mod alone;
mod lookup;
mod run;
mod spawner;
mod stdio_server;
mod tool;

pub use self::alone::{Program, ProgramError};
pub(crate) use self::lookup::{Variables, find, usual_variables};
pub use self::run::ProgramOutput;
pub(crate) use self::spawner::Spawner;
pub(crate) use self::stdio_server::StdioServer;
pub(crate) use self::tool::{MAX_OUTPUT_BYTES, OutputFormat, ProgramTool, Shared};
