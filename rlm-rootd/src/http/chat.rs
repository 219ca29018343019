//! The sub-LLM proxy.

use std::time::Instant;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde_json::Value as Json;

use super::admission::admit;
use super::error::{HttpError, json};
use super::{Context, Id, id, open, record};
use crate::metrics::Route;
use crate::offload::offload;

/// `POST /rollout/{id}/v1/chat/completions`
pub(super) async fn complete(
    State(context): State<Context>,
    path: Id,
    request: Request,
) -> Result<Response, HttpError> {
    let record = record(&request, Route::Chat);
    let rollout = open(&context, &id(path)?, request.headers())?;
    if let Some(record) = &record {
        record.rollout.get_or_init(|| rollout.id.clone());
    }
    let no_model = || HttpError::new(StatusCode::NOT_FOUND, "no model is configured");
    let sub_llm = rollout.sub_llm.as_ref().ok_or_else(no_model)?;
    let shared = &context.shared;
    let admitted = admit(&shared.config, &rollout, request).await?;
    let bytes = admitted.body.clone();
    let read = offload(&shared.large, bytes.len(), move || serde_json::from_slice::<Json>(&bytes)).await?;
    let asked = read.map_err(|error| HttpError::bad_request(format!("Invalid JSON: {error}")))?;
    let deadline = Instant::now() + rollout.tool_time_limit;
    let answered = tokio::select! {
        biased;
        () = rollout.ended.cancelled() => return Err(HttpError::ended()),
        answered = sub_llm.chat(asked, deadline) => answered,
    };
    match answered {
        Ok(answer) => Ok(json(StatusCode::OK, &answer)),
        Err(error) => {
            let status = StatusCode::from_u16(error.status()).unwrap_or(StatusCode::BAD_GATEWAY);
            Err(HttpError::new(status, error.to_string()))
        }
    }
}
