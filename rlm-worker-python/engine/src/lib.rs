//! The cell engine: runs cells inside the user's own Python.
//!
//! The user's `python3` imports this library and calls `serve` with no Python frame below it. From then on that process
//! has one thing to do: read a command, run the cell in `__main__`, write a report. It has one thread, and while a cell
//! runs it holds no descriptor of ours beside 0, 1 and 2, and no name of ours in `__main__` but those that are documented.
//!
//! * `session`: the loop. Start reading there.
//! * `cell`: a cell, from its source to its value or exception. `glue.py`: the parts of that which are Python. `quiet`: no
//!   warning told twice.
//! * `answer`, `text`: what a cell leaves, as text, whatever it is.
//! * `signals`: how a cell is interrupted, and why nothing else is. `streams`: descriptors 0, 1, 2 and `sys.std*`.
//! * `guard_rails`, `jail`: refused modules, builtins and files.
//! * `tools`: functions that call the host. `tools.py`: the parts of that which are Python.
//! * `final_functions`: other ways to set the answer.
//! * `variables`: what the host puts into the namespace.
//! * `pipes`: pipes and files, opened by path.
//!
//! The supervisor, `rlm-worker-python`, does the rest: it has the time limits, the output, and the answer to the host.

mod answer;
mod cell;
mod eval;
mod final_functions;
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

use pyo3::prelude::*;
use rlm_worker_python::wire::LOST_STATUS;

/// Serves the session whose places stand in `sys.argv`, and never returns.
#[pyfunction]
fn serve(py: Python<'_>) -> PyResult<()> {
    let fault = match session::serve(py) {
        Ok(never) => match never {},
        Err(fault) => fault,
    };
    // The supervisor reads this as the interpreter's last words.
    fault.display(py);
    pipes::end_process(LOST_STATUS)
}

#[pymodule]
fn rlm_cell_engine(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(serve, module)?)
}
