//! `POST /rollout/{id}/v1/rlm/tools`: calls of root tools.

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use rlm_core::root_tool::{Envelope, Reply, Serialization};

use super::admission::{Admission, admit, json_value_bytes};
use super::context::{Context, Id, open};
use super::error::{HttpError, holding, json_bytes};
use crate::call::Called;
use crate::error::CallError;
use crate::metrics::Route;
use crate::offload::value_bytes;

/// Bytes that a byte of a body with pickles can take in memory while it is decoded.
const PICKLE_EXPANSION: usize = 16;

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
    permits.arguments.hold(&rollout, json_value_bytes(&body)).await?;
    let parse = move || Envelope::parse(&body, &limits);
    let parsed = shared.large_work.run_in_turn(&rollout.large_turn, bytes, parse).await;
    let envelope = parsed.map_err(CallError::from)?.map_err(HttpError::bad_request)?;
    let entry = rollout.tool(envelope.tool_name().map_err(HttpError::bad_request)?)?;
    if let Some(record) = record {
        record.set_tool(entry.tool.name());
    }
    let (name, limits) = (entry.tool.name().to_owned(), shared.limits.clone());
    // An unknown serialization is refused by `into_call`.
    let serialization = envelope.serialization().unwrap_or_default();
    if serialization == Serialization::Pickle {
        permits.arguments.hold(&rollout, PICKLE_EXPANSION * bytes).await?;
    }
    let tool = entry.tool.clone();
    let decode_and_check = move || {
        let call = envelope.into_call(&limits).map_err(|error| CallError::Arguments(error.to_string()))?;
        tool.check(&call).map_err(CallError::Arguments)?;
        let values = call.args.iter().chain(call.kwargs.iter().flat_map(|(key, value)| [key, value]));
        let bytes = value_bytes(values, usize::MAX);
        Ok::<_, CallError>((call, bytes))
    };
    let decode = async {
        let decoded = shared.large_work.run_in_turn(&rollout.large_turn, bytes, decode_and_check).await;
        let (call, value_bytes) = decoded??;
        // Shared values count each time, as a tool may write them out.
        permits.arguments.settle(&rollout, value_bytes).await?;
        Ok(call)
    };
    let encode = move |reply: Reply| {
        let failed = |error| CallError::Failed(format!("Tool '{name}': {error}"));
        reply.to_body(serialization).map_err(failed)
    };
    let Called { reply: body, receipt, large } = rollout.call(shared, entry, decode, encode).await?;
    let mut response = json_bytes(StatusCode::OK, holding(body, (permits, large)));
    if let Some(receipt) = receipt {
        response.extensions_mut().insert(receipt);
    }
    Ok(response)
}
