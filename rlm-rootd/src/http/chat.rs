//! `POST /rollout/{id}/v1/chat/completions`: the sub-LLM proxy.

use std::time::Instant;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use rlm_core::pickle::{Limits, Value};
use serde_json::Value as Json;

use super::admission::{Admission, admit, json_value_bytes};
use super::context::{Context, Id, open};
use super::error::{HttpError, holding, json_bytes};
use crate::error::CallError;
use crate::metrics::Route;

/// Sends the request on to the rollout's model.
pub(super) async fn complete(
    State(context): State<Context>,
    path: Id,
    request: Request,
) -> Result<Response, HttpError> {
    let (rollout, _record) = open(&context, path, &request, Route::Chat)?;
    let no_model = || HttpError::new(StatusCode::NOT_FOUND, "no model is configured");
    let sub_llm = rollout.sub_llm.as_ref().ok_or_else(no_model)?;
    let shared = &context.shared;
    let Admission { body, permits } = admit(&shared.config, &rollout, request).await?;
    let limits = shared.limits.clone();
    permits.arguments.hold(&rollout, json_value_bytes(&body)).await?;
    let parsed =
        shared.large_work.run_in_turn(&rollout.large_turn, body.len(), move || parse(&body, &limits)).await;
    let request = parsed.map_err(CallError::from)?.map_err(HttpError::bad_request)?;
    let deadline = Instant::now() + rollout.tool_time_limit;
    let answer = tokio::select! {
        biased;
        () = rollout.ended.cancelled() => return Err(HttpError::ended()),
        answer = sub_llm.chat(request, deadline) => answer,
    };
    let answer = answer.map_err(|error| {
        let status = StatusCode::from_u16(error.status()).unwrap_or(StatusCode::BAD_GATEWAY);
        HttpError::new(status, error.to_string())
    })?;
    let bytes = serde_json::to_vec(&answer).map_err(HttpError::failed)?;
    Ok(json_bytes(StatusCode::OK, holding(bytes, permits)))
}

fn parse(body: &[u8], limits: &Limits) -> Result<Json, String> {
    let value = Value::from_json_text(body, limits).map_err(|error| format!("Invalid JSON: {error}"))?;
    // The error names an int that is too large for the tree.
    value.to_json(usize::MAX).map_err(|error| format!("the request cannot be sent on: {error}"))
}
