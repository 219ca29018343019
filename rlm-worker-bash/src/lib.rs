//! A persistent bash session that cannot be wedged.
//!
//! One interactive bash, with job control, lives on a pseudo-terminal. It reads its own commands from a private pipe and
//! the code of each call from a file in memory, and reports status, answer and state through another pipe. Neither code
//! nor control data ever passes through the terminal, so a program that reads it cannot swallow a command, a quote left
//! open is a syntax error and nothing more, and the output holds what was printed and nothing else.
//!
//! * [`session`]: calls, restarts, the end of a session. Start reading there.
//! * `driver`: the shell text around a call, with the `.bash` files that it is made of. `code`: what is known of code
//!   without parsing it.
//! * `shell`: the process and its pipes. `terminal`: the pseudo-terminal. `ladder`: how a call is stopped.
//! * `report`: what the shell says of itself. `variables`: what it can be given.
//! * [`tools`]: root tools as functions, which run the program `rlm-root-tool`.
//!
//! When the shell dies, the call says so and a new shell takes over what the old one could save. When the worker ends,
//! everything that the session started ends with it. This is no security sandbox: code runs with the worker's rights.

mod code;
mod driver;
mod exchange;
mod ladder;
mod report;
pub mod session;
mod shell;
mod state;
mod terminal;
pub mod tools;
mod variables;

pub use session::{BashConfig, BashSession};
pub use shell::ShellError;
pub use terminal::TerminalError;
