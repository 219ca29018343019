//! A persistent Python session that nothing in a cell can end.
//!
//! There are two kinds of process. This crate is the supervisor, without Python: it owns the host's FIFOs, time limits,
//! signals and all texts. Below it runs the user's own `python3`, which imports the cell engine (the crate
//! `rlm-cell-engine`, a shared library next to the program). The supervisor reads output without the interpreter's
//! lock, and the death of the interpreter is an event, so every crash becomes a response.
//!
//! * [`session`]: calls, restarts. Start reading there.
//! * [`wire`]: messages between supervisor and engine.
//! * [`python`]: the choice of a Python. `process`: its process. `boot.py`: its first lines.
//! * `ladder`: stopping a cell. `checkpoint`: copies of the interpreter that wait to take its place.
//!
//! This is not a security sandbox: cells run with the worker's rights.

mod checkpoint;
mod ladder;
mod process;
pub mod python;
pub mod session;
pub mod tools;
pub mod wire;

pub use process::{ENGINE, StartError};
pub use python::{Python, PythonError};
pub use session::{PythonConfig, PythonSession};
