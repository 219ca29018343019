//! The Python worker: cells in one namespace, in the user's own Python.

mod answer;
mod crashes;
mod environments;
mod errors;
mod final_functions;
mod growth;
mod guard_rails;
mod input;
mod interpreters;
mod interrupts;
mod output;
mod persistence;
mod result;
mod tasks;
mod written;

use rlm_core::protocol::{Outcome, Response, State};
use rlm_tests::Worker;

/// Runs a cell that must raise this, and returns the response; the session must keep its state.
#[track_caller]
fn raises(worker: &mut Worker, code: &str, kind: &str) -> Response {
    let response = worker.call(code);
    let exception = response.exception.as_ref().map(|exception| exception.kind.as_str());
    assert_eq!(
        (response.outcome, response.state, exception),
        (Outcome::Error, State::Kept, Some(kind)),
        "{code:?}: {response:?}"
    );
    response
}

/// Runs a cell that must raise this, and returns the traceback.
#[track_caller]
fn traceback(worker: &mut Worker, code: &str, kind: &str) -> String {
    raises(worker, code, kind).result.expect("an error has a traceback")
}
