//! Callback tools: root tools that live in another program, which serves them over the root-tool wire.

use std::sync::Arc;
use std::time::{Duration, Instant};

use reqwest::Client;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use rlm_core::pickle::Limits;
use rlm_core::root_tool::client::{Answer, Endpoint, MAX_RESPONSE_BYTES};
use rlm_core::root_tool::{Call, MAX_BODY_BYTES, Reply, Serialization};
use serde_json::Value as Json;

use crate::http_client::{bearer, builder, last_cause, read, without_tls};
use crate::offload::{LARGE_BYTES, LargeWork, value_bytes};
use crate::tool::{RootTool, ToolError, ToolFuture};

/// The server of callback tools: the program that has them.
#[derive(Debug)]
pub(crate) struct CallbackServer {
    endpoint: Endpoint,
    url: String,
    authorization: Option<HeaderValue>,
    client: Client,
}

impl CallbackServer {
    /// The server at a URL like that of `RLM_ROOT_TOOL_URL`.
    ///
    /// # Errors
    /// The fault, as a sentence.
    pub(crate) fn new(url: &str, secret: Option<&str>) -> Result<Self, String> {
        let endpoint = Endpoint::new(url, None).map_err(|error| error.to_string())?;
        let authorization = secret.map(bearer).transpose();
        let authorization =
            authorization.map_err(|_| "the secret has characters that a header cannot hold".to_owned())?;
        let client = without_tls(builder(endpoint.socket())).build();
        let client = client.map_err(|error| format!("no client can be made: {}", last_cause(&error)))?;
        Ok(Self { url: endpoint.http_url(), endpoint, authorization, client })
    }

    pub(crate) async fn post(&self, body: Vec<u8>) -> Result<Answer, String> {
        let mut request = self.client.post(&self.url).header(CONTENT_TYPE, "application/json").body(body);
        if let Some(authorization) = &self.authorization {
            request = request.header(AUTHORIZATION, authorization.clone());
        }
        let broke =
            |error| format!("the program with this tool, at {}: {}", self.endpoint, last_cause(&error));
        let response = request.send().await.map_err(broke)?;
        let status = response.status().as_u16();
        let body = read(response, MAX_RESPONSE_BYTES).await.map_err(broke)?;
        let body = body.ok_or_else(|| format!("its result is over {} MiB", MAX_RESPONSE_BYTES >> 20))?;
        Ok(Answer { status, body })
    }
}

/// A tool that lives in another program.
#[derive(Debug)]
pub(crate) struct CallbackTool {
    pub(crate) name: String,
    pub(crate) description: String,
    pub(crate) parameters: Json,
    pub(crate) time_limit: Option<Duration>,
    pub(crate) server: Arc<CallbackServer>,
    pub(crate) large_work: LargeWork,
}

impl RootTool for CallbackTool {
    fn name(&self) -> &str {
        &self.name
    }

    fn description(&self) -> &str {
        &self.description
    }

    fn parameters(&self) -> &Json {
        &self.parameters
    }

    fn checks_arguments(&self) -> bool {
        true
    }

    fn call(&self, call: Call, _deadline: Instant) -> ToolFuture<'_> {
        Box::pin(self.run(call))
    }
}

impl CallbackTool {
    async fn run(&self, call: Call) -> Result<Reply, ToolError> {
        let calling = self.send(call);
        let Some(limit) = self.time_limit else { return calling.await };
        let late = |_| ToolError::Failed(format!("{} timed out after {} s", self.name, limit.as_secs_f64()));
        tokio::time::timeout(limit, calling).await.map_err(late)?
    }

    async fn send(&self, call: Call) -> Result<Reply, ToolError> {
        let failed = |reason: String| ToolError::Failed(format!("{}: {reason}", self.name));
        let values = call.args.iter().chain(call.kwargs.iter().map(|(_, value)| value));
        let bytes = value_bytes(values, LARGE_BYTES);
        let encode = move || call.to_body(Serialization::Pickle);
        let encoded = self.large_work.run(bytes, encode).await.map_err(|error| failed(error.to_string()))?;
        let body = encoded.map_err(|error| ToolError::Arguments(error.to_string()))?;
        let answer = self.server.post(body).await.map_err(failed)?;
        let is_of_arguments = answer.status == 400;
        let body = answer.into_ok().map_err(|said| match is_of_arguments {
            true => ToolError::Arguments(said),
            false => ToolError::Failed(said),
        })?;
        let bytes = body.len();
        let limits =
            Limits { payload_bytes: MAX_BODY_BYTES, expanded_bytes: MAX_BODY_BYTES, ..Limits::default() };
        let decode = move || Reply::from_body(&body, Serialization::Pickle, &limits);
        let decoded = self.large_work.run(bytes, decode).await.map_err(|error| failed(error.to_string()))?;
        decoded.map_err(|error| ToolError::Failed(error.in_reply_of(&self.name)))
    }
}
