//! Root tools: functions in the session that run on the host.

mod bash;
mod both;
mod python;
mod rootd;

use rlm_tests::endpoint::ExistingEndpoint;
use rlm_tests::{Setup, Worker};

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
    }
}
