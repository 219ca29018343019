//! Calls of root tools.

use std::sync::Arc;
use std::time::Instant;

use axum::body::Bytes;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use rlm_core::root_tool::{Call, Envelope, Reply, Serialization, ToolResult, WireError};

use super::admission::{Admitted, admit};
use super::error::{HttpError, json_bytes, keeping};
use super::{Context, Id, open};
use crate::metrics::{Outcome, Route};
use crate::offload::{LARGE_BYTES, ShuttingDown, offload};
use crate::rollout::{Counted, Held, Rollout};
use crate::rootd::Shared;
use crate::share::{FREE_BYTES, Share, Size, expansion, hold_expanded, hold_result, may_hold_expanded};

/// `POST /rollout/{id}/v1/rlm/tools`
pub(super) async fn call(
    State(context): State<Context>,
    path: Id,
    request: Request,
) -> Result<Response, HttpError> {
    let (rollout, record) = open(&context, path, &request, Route::Tools)?;
    let shared = &context.shared;
    let Admitted { body, place, room: _room } = admit(&shared.config, &rollout, request).await?;
    let share = Share::of(&rollout.shares);
    let answered = share.clone().during(async {
        let envelope = envelope(shared, body).await?;
        let name = envelope.tool_name().map_err(HttpError::bad_request)?;
        let held = rollout.held(name)?;
        if let Some(record) = &record {
            record.tool.get_or_init(|| held.tool.name().to_owned());
        }
        run(shared, &rollout, held, envelope).await
    });
    Ok(json_bytes(StatusCode::OK, keeping(answered.await?, (place, share))))
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
    let (bytes, limits) = (body.len(), shared.limits.clone());
    let parse = move || {
        let envelope = Envelope::parse(&body, &limits)?;
        let size = Size::of(envelope.arguments(), expansion(bytes));
        Ok((envelope, size))
    };
    let envelope = read_within_share(shared, bytes, parse).await?;
    Ok(Read { envelope, bytes })
}

/// Reads something from so many bytes, whose size may be much more. Where the request has to wait until it may hold so much, it
/// does so with the bytes alone, and reads them again.
async fn read_within_share<T: Send + 'static>(
    shared: &Arc<Shared>,
    bytes: usize,
    read: impl Fn() -> Result<(T, Size), WireError> + Clone + Send + 'static,
) -> Result<T, HttpError> {
    let (value, size) = offload(&shared.large, bytes, read.clone()).await?.map_err(HttpError::bad_request)?;
    if size.bytes() <= expansion(bytes) || may_hold_expanded() {
        return Ok(value);
    }
    drop(value);
    hold_expanded().await;
    let (value, _) = offload(&shared.large, bytes, read).await?.map_err(HttpError::bad_request)?;
    Ok(value)
}

async fn run(shared: &Arc<Shared>, rollout: &Rollout, held: &Held, read: Read) -> Result<Vec<u8>, HttpError> {
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
    let written = match rollout.run(held, call, deadline).await {
        Err(error) => {
            counted.fail(&error);
            return Err(error.into());
        }
        Ok(reply) => {
            let size = size(&reply);
            hold_result(size).await;
            offload(&shared.large, size, move || reply.to_body(serialization)).await?
        }
    };
    match written {
        Ok(body) => {
            counted.end(Outcome::Ok);
            Ok(body)
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
    let Read { envelope, bytes } = read;
    let call = match serialization {
        // It is read already.
        Serialization::Json => envelope.into_call(&limits).map_err(HttpError::bad_request)?,
        Serialization::Pickle => {
            let decode = move || {
                let call = envelope.clone().into_call(&limits)?;
                let size = size_of_arguments(&call, expansion(bytes));
                Ok((call, size))
            };
            read_within_share(shared, bytes, decode).await?
        }
    };
    // A few bytes of a pickle can share one value a million times.
    let size = size_of_arguments(&call, LARGE_BYTES);
    let check = move || tool.check(&call).map(|()| call);
    let call = offload(&shared.large, size.bytes(), check).await?.map_err(HttpError::bad_request)?;
    Ok((call, serialization))
}

impl From<ShuttingDown> for HttpError {
    fn from(error: ShuttingDown) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, error.to_string())
    }
}

fn size_of_arguments(call: &Call, most: usize) -> Size {
    Size::of(call.args.iter().chain(call.kwargs.iter().map(|(_, value)| value)), most)
}

/// About how many bytes the reply takes, where these are not too many.
fn size(reply: &Reply) -> usize {
    let result = match &reply.result {
        ToolResult::Value(value) => Size::of([value], FREE_BYTES).bytes(),
        ToolResult::Repr(text) => text.len(),
    };
    result + reply.print_lines.iter().map(String::len).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use axum::response::IntoResponse as _;
    use rlm_core::pickle::Limits;
    use serde_json::json;

    use super::*;
    use crate::tool::{RootTool, Tool, ToolFuture};
    use crate::{RolloutConfig, Rootd, RootdConfig};

    /// 18 levels of it, a pickle of 183 bytes.
    const EXPANDS: &str = "XXEAMF1oAGFoAGFxATBdaAFhaAFhcQIwXWgCYWgCYXEDMF1oA2FoA2FxBDBdaARhaARhcQUwXWgFYWgFYXEGMF1oBmFo\
                           BmFxBzBdaAdhaAdhcQgwXWgIYWgIYXEJMF1oCWFoCWFxCjBdaAphaAphcQswXWgLYWgLYXEMMF1oDGFoDGFxDTBdaA1h\
                           aA1hcQ4wXWgOYWgOYXEPMF1oD2FoD2FxEDBdaBBhaBBhcREwXWgRYWgRYYUu";

    #[derive(Debug)]
    struct Nothing(serde_json::Value);

    impl RootTool for Nothing {
        fn name(&self) -> &str {
            "t"
        }

        fn description(&self) -> &str {
            "d"
        }

        fn parameters(&self) -> &serde_json::Value {
            &self.0
        }

        fn call(&self, _call: Call, _deadline: Instant) -> ToolFuture<'_> {
            unreachable!("it is not called")
        }
    }

    #[tokio::test]
    async fn a_few_bytes_that_stand_for_many_values_are_checked_elsewhere() {
        let rootd = Rootd::new(RootdConfig::default());
        let tool = Tool::new(Nothing(json!({"properties": {"a": {"type": "array"}}}))).unwrap();
        rootd.register("r", RolloutConfig { tools: vec![tool], ..RolloutConfig::default() }).unwrap();
        let shared = rootd.0;
        let rollout = shared.rollout("r").unwrap();
        // What would be done elsewhere is refused, and what is done here is not.
        shared.large.close();
        // An empty list, and a list that holds one list twice, which holds one list twice, and so on.
        let pickles = [("XYUu", 200), (EXPANDS, 503)];
        for (args, expected) in pickles {
            let body = format!(r#"{{"tool_name": "t", "args": "{args}"}}"#);
            let envelope = Envelope::parse(body.as_bytes(), &Limits::default()).unwrap();
            let read = Read { envelope, bytes: body.len() };
            let checked = checked(&shared, rollout.held("t").unwrap(), read).await;
            let status = checked.map_or_else(|error| error.into_response().status().as_u16(), |_| 200);
            assert_eq!(status, expected, "{args}");
        }
    }
}
