//! The requests other than calls: `reset`, `set`, `complete`, `info`; and their lines in the history.

mod complete;
mod history;
mod info;
mod one_call;
mod reset;
mod session;
mod set;
mod set_bash;
mod set_python;

use rlm_core::protocol::{Answer, Outcome, Response, State, Status};
use rlm_tests::Worker;
use serde_json::{Value, json};

/// The `seq` of requests that are not calls.
const SEQ: i64 = 1 << 40;

/// Sends a request and returns the response, which has its `seq`.
#[track_caller]
pub(crate) fn ask(worker: &Worker, mut request: Value) -> Response {
    request["seq"] = SEQ.into();
    ask_as(worker, &request.to_string())
}

/// Like [`ask`], for a request that is sent as it is.
#[track_caller]
fn ask_as(worker: &Worker, request: &str) -> Response {
    worker.send(request.as_bytes());
    let response = worker.receive();
    assert_eq!(response.seq, SEQ, "{response:?}");
    assert_eq!(response.status, response.outcome.status(), "{response:?}");
    response
}

/// Resets the session, which must succeed.
#[track_caller]
pub(crate) fn reset(worker: &Worker) -> Response {
    let response = ask(worker, json!({"op": "reset"}));
    assert_eq!(
        (response.status, response.outcome, response.state, response.hint.as_deref()),
        (Status::Ok, Outcome::Ok, State::Reset, None),
        "{response:?}"
    );
    assert_eq!(
        (&response.answer, response.result.as_ref(), response.exit_code),
        (&Answer::default(), None, None)
    );
    response
}

/// Sets variables, which must succeed.
#[track_caller]
pub(super) fn set(worker: &Worker, variables: Value) -> Response {
    let response = ask(worker, json!({"op": "set", "variables": variables}));
    assert_eq!(
        (response.outcome, response.state, response.hint.as_deref(), response.stdout.as_str()),
        (Outcome::Ok, State::Kept, None, ""),
        "{variables}: {response:?}"
    );
    response
}

/// Tries to set variables, which must be refused with a hint that contains `fault`; the session goes on.
#[track_caller]
pub(super) fn set_is_refused(worker: &Worker, variables: &Value, fault: &str) {
    let response = ask(worker, json!({"op": "set", "variables": variables}));
    assert_eq!(
        (response.outcome, response.state),
        (Outcome::Error, State::Kept),
        "{variables}: {response:?}"
    );
    let hint = response.hint.unwrap_or_default();
    assert!(hint.contains(fault) && hint.ends_with("; nothing was set"), "{variables}: {hint}");
}

/// Names of the session's processes other than the worker's two and the interpreter.
fn programs(worker: &Worker) -> Vec<String> {
    let own = [worker.pid(), worker.server(), worker.interpreter()];
    worker.processes().into_iter().filter(|(pid, _)| !own.contains(pid)).map(|(_, name)| name).collect()
}
