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
//! * `worker`: the command line. [`fork_server`]: the process that interpreters can be forked from.
//! * `ladder`: stopping a cell. `checkpoint`: copies of the interpreter that wait to take its place.
//!
//! This is not a security sandbox: cells run with the worker's rights.

mod checkpoint;
pub mod fork_server;
mod ladder;
mod process;
pub mod python;
pub mod session;
pub mod tools;
pub mod wire;
mod worker;

pub use process::{ENGINE, Fork, Forking, Place, StartError};
pub use python::{Python, PythonError};
pub use session::{PythonConfig, PythonSession};
pub use worker::PythonWorker;
