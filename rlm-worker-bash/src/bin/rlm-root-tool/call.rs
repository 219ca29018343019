//! The request to the endpoint, and its answer.

use std::time::Instant;

use rlm_core::pickle::Limits;
use rlm_core::root_tool::client::PostError;
use rlm_core::root_tool::{Call, MAX_BODY_BYTES, Reply};
use rlm_core::worker::settings::{Environment, RootTools};

/// Sends a call to the endpoint that is set in the environment.
pub(crate) fn send(call: &Call, environment: &Environment) -> Result<Reply, String> {
    let tools = RootTools::from_environment(environment).map_err(|error| error.to_string())?;
    let tools =
        tools.ok_or_else(|| "RLM_ROOT_TOOL_URL is not set: there is no root-tool endpoint".to_owned())?;
    let endpoint = tools.endpoint().map_err(|error| error.to_string())?;
    let body = call.to_body(tools.serialization).map_err(|error| error.to_string())?;
    let deadline = Instant::now() + tools.timeout;
    // A signal that is not ignored ends the process, and so the call.
    let answer =
        endpoint.post(&body, &mut None, Some(deadline), &mut || true).map_err(|error| match error {
            PostError::TimedOut => {
                format!("{}: no answer within {} s", call.tool, tools.timeout.as_secs_f64())
            }
            other => other.to_string(),
        })?;
    let body = answer.into_ok()?;
    let limits = Limits { payload_bytes: MAX_BODY_BYTES, ..Limits::default() };
    Reply::from_body(&body, tools.serialization, &limits).map_err(|error| error.in_reply_of(&call.tool))
}
