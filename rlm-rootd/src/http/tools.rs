//! Calls of root tools.

use std::sync::Arc;
use std::time::Instant;

use axum::body::Bytes;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use rlm_core::root_tool::{Call, Envelope, Reply, Serialization, ToolResult, WireError};
use tokio::time::timeout_at;

use super::admission::admit;
use super::error::{HttpError, json_bytes};
use super::{Context, Id, id, open, record};
use crate::metrics::{Outcome, Route};
use crate::offload::{ShuttingDown, Size, offload};
use crate::rollout::{Counted, Held, Rollout};
use crate::rootd::Shared;
use crate::signature::shortened;
use crate::tool::ToolError;

/// `POST /rollout/{id}/v1/rlm/tools`
pub(super) async fn call(
    State(context): State<Context>,
    path: Id,
    request: Request,
) -> Result<Response, HttpError> {
    let record = record(&request, Route::Tools);
    let rollout = open(&context, &id(path)?, request.headers())?;
    if let Some(record) = &record {
        record.rollout.get_or_init(|| rollout.id.clone());
    }
    let shared = &context.shared;
    let admitted = admit(&shared.config, &rollout, request).await?;
    let envelope = envelope(shared, admitted.body.clone()).await?;
    let name = envelope.tool_name().map_err(HttpError::bad_request)?;
    let held = rollout.tool(name).ok_or_else(|| no_tool(&rollout, name))?;
    if let Some(record) = &record {
        record.tool.get_or_init(|| held.tool.name().to_owned());
    }
    run(shared, &rollout, held, envelope).await
}

/// A request that is read up to its arguments.
struct Read {
    envelope: Envelope,
    bytes: usize,
}

impl Read {
    fn tool_name(&self) -> Result<&str, WireError> {
        self.envelope.tool_name()
    }
}

async fn envelope(shared: &Arc<Shared>, body: Bytes) -> Result<Read, HttpError> {
    let bytes = body.len();
    let read = offload(&shared.large, bytes, move || Envelope::parse(&body)).await?;
    read.map(|envelope| Read { envelope, bytes }).map_err(HttpError::bad_request)
}

async fn run(
    shared: &Arc<Shared>,
    rollout: &Rollout,
    held: &Held,
    read: Read,
) -> Result<Response, HttpError> {
    let counted = Counted::begin(rollout, held, &shared.metrics);
    let deadline = Instant::now() + rollout.tool_time_limit;
    let checked = tokio::select! {
        biased;
        () = rollout.ended.cancelled() => return Err(HttpError::ended()),
        checked = checked(shared, held, read) => checked,
    };
    let (call, serialization) = match checked {
        Ok(checked) => checked,
        Err(error) => {
            counted.end(Outcome::Arguments);
            return Err(error);
        }
    };
    let name = held.tool.name();
    let replied = tokio::select! {
        biased;
        () = rollout.ended.cancelled() => return Err(HttpError::ended()),
        replied = timeout_at(deadline.into(), held.tool.call(call, deadline)) => replied,
    };
    let written = match replied {
        Err(_late) => {
            counted.end(Outcome::TimedOut);
            let seconds = rollout.tool_time_limit.as_secs_f64();
            return Err(HttpError::failed(format!("Tool '{name}' timed out after {seconds} s")));
        }
        Ok(Err(error)) => {
            tracing::debug!(tool = name, %error, "tool failed");
            let (outcome, status) = match error {
                ToolError::Arguments(_) => (Outcome::Arguments, StatusCode::BAD_REQUEST),
                ToolError::Failed(_) => (Outcome::Failed, StatusCode::INTERNAL_SERVER_ERROR),
            };
            counted.end(outcome);
            return Err(HttpError::new(status, error.to_string()));
        }
        Ok(Ok(reply)) => {
            let size = size(&reply);
            offload(&shared.large, size, move || reply.to_body(serialization)).await?
        }
    };
    match written {
        Ok(body) => {
            counted.end(Outcome::Ok);
            Ok(json_bytes(StatusCode::OK, body))
        }
        Err(error) => {
            counted.end(Outcome::Failed);
            Err(HttpError::failed(format!("Tool '{name}': {error}")))
        }
    }
}

/// The arguments, checked against the tool's schema.
async fn checked(shared: &Arc<Shared>, held: &Held, read: Read) -> Result<(Call, Serialization), HttpError> {
    let serialization = read.envelope.serialization().map_err(HttpError::bad_request)?;
    let (tool, limits) = (held.tool.clone(), shared.limits.clone());
    let work = move || {
        let call = read.envelope.into_call(&limits).map_err(HttpError::bad_request)?;
        tool.check(&call).map_err(HttpError::bad_request)?;
        Ok(call)
    };
    let call: Result<Call, HttpError> = offload(&shared.large, read.bytes, work).await?;
    Ok((call?, serialization))
}

fn no_tool(rollout: &Rollout, name: &str) -> HttpError {
    let names: Vec<_> = rollout.tools.iter().map(|held| held.tool.name()).collect();
    let there = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    let message = format!("Tool '{}' not found; tools: {there}", shortened(name));
    HttpError::new(StatusCode::NOT_FOUND, message)
}

impl From<ShuttingDown> for HttpError {
    fn from(error: ShuttingDown) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, error.to_string())
    }
}

/// About how many bytes the reply takes.
fn size(reply: &Reply) -> usize {
    let result = match &reply.result {
        ToolResult::Value(value) => Size::of([value]).bytes(),
        ToolResult::Repr(text) => text.len(),
    };
    result + reply.print_lines.iter().map(String::len).sum::<usize>()
}
