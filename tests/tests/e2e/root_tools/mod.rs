//! Root tools: functions in the session that run on the host.

mod bash;
mod python;
mod rootd;

use nix::sys::signal::Signal;
use rlm_core::protocol::{Outcome, State};
use rlm_tests::endpoint::ExistingEndpoint;
use rlm_tests::{Setup, Worker};
use serde_json::json;

/// A worker with the tools of an endpoint.
fn start(setup: Setup, endpoint: &ExistingEndpoint, serialization: &str) -> Worker {
    endpoint.tools_for(setup).env("RLM_ROOT_TOOL_SERIALIZATION", serialization).start()
}

/// Tests a worker for each serialization.
fn for_both(setup: fn() -> Setup, test: impl Fn(&mut Worker, &str)) {
    let endpoint = ExistingEndpoint::start();
    for serialization in ["pickle", "json"] {
        let mut worker = start(setup(), &endpoint, serialization);
        test(&mut worker, serialization);
        worker.end();
    }
}

/// Interrupts a call that creates the file `started` and then waits for a tool: the session is kept.
fn is_interrupted(worker: &mut Worker, code: &str) {
    worker.send_call(code, json!({}));
    worker.wait_for_file("started");
    worker.signal(Signal::SIGINT);
    let response = worker.receive();
    assert_eq!((response.outcome, response.state), (Outcome::Interrupted, State::Kept), "{response:?}");
}

/// Lets a call that waits for a tool run into the time limit, in seconds: the session is kept.
fn times_out(worker: &mut Worker, code: &str, limit: f64) {
    let response = worker.call_with(code, json!({"timeout": limit}));
    assert_eq!((response.outcome, response.state), (Outcome::TimedOut, State::Kept), "{response:?}");
}
