//! The wire of an RLM environment, and the code that all workers share.
//!
//! A worker serves one host over two FIFOs in a control directory: the host writes one JSON document per call to
//! `rlm_cmd` and reads one from `rlm_res`. [`protocol`] holds the documents, [`frame`] finds them in a byte stream,
//! [`control`] knows the directory's files, [`mod@env`] names every environment variable. `worker`, behind a feature of that
//! name, is the part of a worker that does not depend on its interpreter. [`json`] keeps values as they were written;
//! [`pickle`] reads and writes the arguments and results of root tools, [`saved`] the files of
//! saved sessions.
//!
//! This crate knows no terminal, no Python and no HTTP server.

pub mod control;
pub mod dirfd;
pub mod env;
pub mod error;
pub mod frame;
pub mod ids;
pub mod json;
pub mod jsonl;
pub mod limits;
pub mod memory;
pub mod percent;
pub mod pickle;
pub mod programs;
pub mod protocol;
pub mod root_tool;
pub mod saved;
pub mod shell;
pub mod sys;
pub mod text;
#[cfg(feature = "worker")]
pub mod worker;
