//! The sub-LLM proxy.

use std::time::Instant;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use rlm_core::pickle::{Limits, Value};
use serde_json::Value as Json;

use super::admission::{Admitted, admit};
use super::error::{HttpError, json_bytes, keeping};
use super::{Context, Id, open};
use crate::metrics::Route;
use crate::offload::offload;
use crate::share::Share;

/// `POST /rollout/{id}/v1/chat/completions`
pub(super) async fn complete(
    State(context): State<Context>,
    path: Id,
    request: Request,
) -> Result<Response, HttpError> {
    let (rollout, _record) = open(&context, path, &request, Route::Chat)?;
    let no_model = || HttpError::new(StatusCode::NOT_FOUND, "no model is configured");
    let sub_llm = rollout.sub_llm.as_ref().ok_or_else(no_model)?;
    let shared = &context.shared;
    let Admitted { body, place, room: _room } = admit(&shared.config, &rollout, request).await?;
    let share = Share::of(&rollout.shares);
    let limits = shared.limits.clone();
    let reading = offload(&shared.large, body.len(), move || read(&body, &limits));
    let asked = share.clone().during(reading).await?.map_err(HttpError::bad_request)?;
    let deadline = Instant::now() + rollout.tool_time_limit;
    let answered = tokio::select! {
        biased;
        () = rollout.ended.cancelled() => return Err(HttpError::ended()),
        answered = sub_llm.chat(asked, deadline) => answered,
    };
    match answered {
        Ok(answer) => match serde_json::to_vec(&answer) {
            Ok(bytes) => Ok(json_bytes(StatusCode::OK, keeping(bytes, (place, share)))),
            Err(error) => Err(HttpError::failed(error)),
        },
        Err(error) => {
            let status = StatusCode::from_u16(error.status()).unwrap_or(StatusCode::BAD_GATEWAY);
            Err(HttpError::new(status, error.to_string()))
        }
    }
}

fn read(body: &[u8], limits: &Limits) -> Result<Json, String> {
    let value = Value::from_json_text(body, limits).map_err(|error| format!("Invalid JSON: {error}"))?;
    // An int that is too large for the tree is named.
    value.to_json(usize::MAX).map_err(|error| format!("the request cannot be sent on: {error}"))
}
