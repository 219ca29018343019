//! `rlm-worker-python`: a persistent Python session behind two FIFOs.

use std::process::ExitCode;

use rlm_core::memory::Allocator;
use rlm_core::worker::program;
use rlm_worker_python::{PythonWorker, fork_server};

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

fn main() -> ExitCode {
    fork_server::main().unwrap_or_else(program::main::<PythonWorker>)
}
