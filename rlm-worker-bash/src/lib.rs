//! A persistent bash session that cannot be wedged.
//!
//! One interactive bash, with job control, runs on a pseudo-terminal. It reads its own commands from a private pipe and
//! the code of each call from a file in memory, and reports status, answer and state through another pipe. Neither code
//! nor control data ever passes through the terminal, so a program that reads the terminal cannot swallow a command, an
//! open quote is just a syntax error, and the output contains only what was printed.
//!
//! * [`session`]: calls, restarts, the end of a session. Start reading there.
//! * `driver`: the shell code around a call, with its `.bash` files. `code`: guesses about code without parsing it.
//! * `shell`: the process and its pipes. `terminal`: the pseudo-terminal. `ladder`: stopping a call.
//! * `completion`: the word that is being typed. `restoration`: the text for a new shell. `report`: the shell's report on itself.
//!   `variables`: the values that it can be given.
//! * [`tools`]: root tools as functions, which run the program `rlm-root-tool`.
//!
//! When the shell dies, the call says so, and a new shell takes over the state that the old one could save. When the
//! worker ends, everything that the session started ends with it. This is not a security sandbox: code runs with the
//! worker's rights.

mod code;
mod completion;
mod driver;
mod exchange;
mod ladder;
mod report;
mod restoration;
mod saved;
pub mod session;
mod shell;
mod state;
mod terminal;
pub mod tools;
mod variables;

pub use session::{BashConfig, BashSession};
pub use shell::ShellError;
pub use terminal::TerminalError;
