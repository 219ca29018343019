//! A persistent Python session that nothing in a cell can end.
//!
//! Two kinds of process. This crate is the supervisor, with no Python in it: it has the host's FIFOs, time limits, signals
//! and all text. Below it runs the user's own `python3`, which imports the cell engine (the crate `rlm-cell-engine`, a
//! shared library next to the program). Output is read here, without the interpreter's lock, and the death of the
//! interpreter is an event, so every crash becomes a response.
//!
//! * [`session`]: calls, restarts. Start reading there.
//! * [`wire`]: what supervisor and engine say to each other.
//! * [`python`]: which Python is taken. `process`: how it is started and watched. `boot.py`: its first lines.
//! * `ladder`: how a cell is stopped.
//!
//! This is no security sandbox: cells run with the worker's rights.

mod ladder;
mod process;
pub mod python;
pub mod session;
pub mod tools;
pub mod wire;

pub use process::{ENGINE, StartError};
pub use python::{Python, PythonError};
pub use session::{PythonConfig, PythonSession};
