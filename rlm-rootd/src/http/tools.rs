//! `POST /rollout/{id}/v1/rlm/tools`: calls of root tools.

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use rlm_core::root_tool::{Envelope, Reply};

use super::admission::{Admission, admit};
use super::context::{Context, Id, open};
use super::error::{HttpError, holding, json_bytes};
use crate::error::CallError;
use crate::metrics::Route;

/// Reads the request, calls the tool that it names, and writes the reply.
pub(super) async fn call(
    State(context): State<Context>,
    path: Id,
    request: Request,
) -> Result<Response, HttpError> {
    let (rollout, record) = open(&context, path, &request, Route::Tools)?;
    let shared = &context.shared;
    let Admission { body, permits } = admit(&shared.config, &rollout, request).await?;
    let (bytes, limits) = (body.len(), shared.limits.clone());
    let parsed = shared.large_work.run(bytes, move || Envelope::parse(&body, &limits)).await;
    let envelope = parsed.map_err(CallError::from)?.map_err(HttpError::bad_request)?;
    let entry = rollout.tool(envelope.tool_name().map_err(HttpError::bad_request)?)?;
    if let Some(record) = record {
        record.set_tool(entry.tool.name());
    }
    let (name, limits) = (entry.tool.name().to_owned(), shared.limits.clone());
    // An unknown serialization is refused by `into_call`.
    let serialization = envelope.serialization().unwrap_or_default();
    let decode = move || envelope.into_call(&limits).map_err(|error| CallError::Arguments(error.to_string()));
    let encode = move |reply: Reply| {
        let failed = |error| CallError::Failed(format!("Tool '{name}': {error}"));
        reply.to_body(serialization).map_err(failed)
    };
    let body = rollout.call(shared, entry, bytes, decode, encode).await?;
    Ok(json_bytes(StatusCode::OK, holding(body, permits)))
}
