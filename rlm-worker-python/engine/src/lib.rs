//! The cell engine: runs cells inside the user's own Python.
//!
//! The user's `python3` imports this library and calls `serve` with no Python frame below it. From then on that process
//! only reads a command, runs the cell in `__main__`, and writes a report. It has one thread. While a cell runs, it has
//! no descriptor of ours except 0, 1 and 2, and no name of ours in `__main__` except the documented ones.
//!
//! * `session`: the loop. Start reading there.
//! * `cell`: a cell, from its source to its value or exception. `glue.py`: the parts of it that are Python. `definitions.py`:
//!   what new processes of `multiprocessing` get. `notebook.py`: Python for IPython's syntax. `completing.py`: completion. `compiled`:
//!   those parts as the build has compiled them. `quiet`: compiling without repeating a warning.
//! * `answer`, `text`: the answer and other values as text, whatever a cell made of them.
//! * `fork`, `descriptors`: copies of this process. `checkpoint`: those that wait to take its place. `branch`: one for another session.
//!   `fork_server`: a process from which sessions are forked. `forked`: the interpreter of a session that was forked.
//! * `signals`: the ways to interrupt a cell, and nothing but a cell. `streams`: descriptors 0, 1, 2 and `sys.std*`.
//! * `guard_rails`, `jail`: refused modules, builtins and files.
//! * `tools`: functions that call the host. `tools.py`: the parts of them that are Python.
//! * `final_functions`: other ways to set the answer.
//! * `variables`: values that the host puts into the namespace.
//! * `pipes`: pipes and files, opened by path.
//!
//! The supervisor, `rlm-worker-python`, does the rest: time limits, output, and responses to the host.

mod answer;
mod branch;
mod cell;
mod checkpoint;
mod compiled;
mod descriptors;
mod eval;
mod final_functions;
mod fork;
mod fork_server;
mod forked;
mod guard_rails;
mod jail;
mod pipes;
mod quiet;
mod session;
mod signals;
mod streams;
mod text;
mod tools;
mod variables;

use forked::Served as _;
use pyo3::prelude::*;
use rlm_core::memory::Allocator;
use rlm_worker_python::fork_server::Arguments;
use rlm_worker_python::wire::LOST_STATUS;

/// A server that was forked says that it got no memory, as one that was started.
#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

/// Serves the session whose pipe paths are in `sys.argv`, or as the fork server that it describes, and never returns.
#[pyfunction]
fn serve(py: Python<'_>) -> PyResult<()> {
    let served =
        session::Session::new(py).and_then(|(mut session, arguments)| {
            match Arguments::from_arguments(&arguments) {
                Some(arguments) => fork_server::serve(py, session, arguments),
                None => session.lead_to_arguments(py, arguments).and_then(|()| session.serve(py)),
            }
        });
    let fault = match served {
        Ok(never) => match never {},
        Err(fault) => fault,
    };
    // The supervisor reports this as the interpreter's last output.
    fault.display(py);
    pipes::end_process(LOST_STATUS)
}

#[pymodule]
fn rlm_cell_engine(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(serve, module)?)
}
