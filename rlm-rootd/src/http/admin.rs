//! `/rollout/{id}` for hosts in other processes.

use std::time::Duration;

use axum::extract::{FromRequestParts, Path, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

use super::admission::read_body;
use super::context::{Context, bearer, id, record};
use super::error::{HttpError, json};
use crate::error::CallError;
use crate::ledger::Budget;
use crate::llm::SubLlmOptions;
use crate::metrics::Route;
use crate::rollout::{MAX_TOOL_TIME_LIMIT, RegisterError, RolloutConfig, TOOL_TIME_LIMIT};
use crate::rootd::Rootd;
use crate::signature::shortened;
use crate::tool::Tool;

/// The body of a `PUT`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct RolloutRequest {
    /// Names of configured tools; all of them when absent.
    tools: Option<Vec<String>>,
    /// Seconds.
    tool_time_limit: Option<f64>,
    max_running: Option<usize>,
    #[serde(default)]
    budget: Budget,
    sub_model: Option<String>,
    parallelism: Option<usize>,
    #[serde(default)]
    boxed: bool,
    /// Names of configured tools for the sub-LLM itself.
    #[serde(default)]
    sub_tools: Vec<String>,
    max_tool_turns: Option<u32>,
    /// Seconds.
    item_time_limit: Option<f64>,
    system_prompt: Option<String>,
    /// Fields of each request to the model, such as `temperature`.
    #[serde(default)]
    sampling: Map<String, Json>,
}

impl RolloutRequest {
    fn check(&self) -> Result<(), HttpError> {
        let refuse = |what: &str| Err(HttpError::bad_request(what));
        if self.budget.cost_usd.is_some_and(|usd| usd < 0.0) {
            return refuse("budget.cost_usd must be 0 or more");
        }
        if self.max_running == Some(0) {
            return refuse("max_running must be 1 or more");
        }
        if self.sub_model.as_deref() == Some("") {
            return refuse("sub_model must not be empty");
        }
        Ok(())
    }

    fn into_config(self, configured: &[Tool]) -> Result<RolloutConfig, HttpError> {
        self.check()?;
        let tools = match &self.tools {
            None => configured.to_vec(),
            Some(names) => named(configured, "tools", names)?,
        };
        let sub_tools = named(configured, "sub_tools", &self.sub_tools)?;
        let defaults = SubLlmOptions::default();
        let sub_llm = SubLlmOptions {
            model: self.sub_model,
            parallelism: self.parallelism.unwrap_or(defaults.parallelism),
            boxed: self.boxed,
            tools: sub_tools.iter().map(Tool::inner).collect(),
            max_tool_turns: self.max_tool_turns.unwrap_or(defaults.max_tool_turns),
            item_deadline: self.item_time_limit.map(|limit| seconds("item_time_limit", limit)).transpose()?,
            system_prompt: self.system_prompt,
            sampling: self.sampling,
            ..defaults
        };
        let limit = self.tool_time_limit.map(|limit| seconds("tool_time_limit", limit)).transpose()?;
        let tool_time_limit = limit.unwrap_or(TOOL_TIME_LIMIT);
        let defaults = RolloutConfig::default();
        let max_running = self.max_running.unwrap_or(defaults.max_running);
        Ok(RolloutConfig { tools, tool_time_limit, max_running, budget: self.budget, sub_llm, ..defaults })
    }
}

/// The response to a `PUT`.
#[derive(Debug, Serialize)]
struct RolloutResponse<'a> {
    id: &'a str,
    secret: &'a str,
    tools_url: String,
    chat_url: String,
    tools: Vec<ToolResponse<'a>>,
}

/// The parts of a tool that a prompt describes.
#[derive(Debug, Serialize)]
struct ToolResponse<'a> {
    name: &'a str,
    description: &'a str,
    parameters: &'a Json,
}

impl<'a> ToolResponse<'a> {
    fn of(tool: &'a Tool) -> Self {
        Self { name: tool.name(), description: tool.description(), parameters: tool.parameters() }
    }
}

/// A request with the admin token, and the id in its path.
pub(super) struct Admin {
    id: String,
}

impl FromRequestParts<Context> for Admin {
    type Rejection = HttpError;

    async fn from_request_parts(parts: &mut Parts, context: &Context) -> Result<Self, HttpError> {
        record(&parts.extensions, Route::Rollout);
        guard(context, &parts.headers)?;
        Ok(Self { id: id(Path::from_request_parts(parts, context).await)? })
    }
}

/// `PUT /rollout/{id}`
pub(super) async fn register(
    State(context): State<Context>,
    Admin { id }: Admin,
    request: Request,
) -> Result<Response, HttpError> {
    let settings = &context.shared.config;
    let bytes = read_body(request, settings.max_body_bytes, settings.body_time_limit).await?;
    let request: RolloutRequest = if bytes.trim_ascii().is_empty() {
        RolloutRequest::default()
    } else {
        read(&bytes).map_err(|error| HttpError::bad_request(format!("Invalid JSON: {error}")))?
    };
    let config = request.into_config(&settings.tools)?;
    let rootd = Rootd(context.shared.clone());
    let registration = rootd.register(&id, config).map_err(|error| match error {
        RegisterError::Taken(_) => HttpError::new(StatusCode::CONFLICT, error.to_string()),
        RegisterError::Secret(_) => HttpError::failed(error),
        _ => HttpError::bad_request(error),
    })?;
    let rollout = context.shared.rollout(&id).ok_or_else(HttpError::ended)?;
    Ok(json(
        StatusCode::CREATED,
        &RolloutResponse {
            id: &id,
            secret: registration.secret.reveal(),
            tools_url: registration.tools_url(&context.base_url),
            chat_url: registration.chat_url(&context.base_url),
            tools: rollout.tools.iter().map(|held| ToolResponse::of(&held.tool)).collect(),
        },
    ))
}

/// `GET /rollout/{id}`
pub(super) async fn metrics(
    State(context): State<Context>,
    Admin { id }: Admin,
) -> Result<Response, HttpError> {
    let rollout = context.shared.rollout(&id).ok_or(CallError::NoRollout)?;
    Ok(json(StatusCode::OK, &rollout.metrics()))
}

/// `DELETE /rollout/{id}`
pub(super) async fn unregister(
    State(context): State<Context>,
    Admin { id }: Admin,
) -> Result<Response, HttpError> {
    let metrics = Rootd(context.shared.clone()).unregister(&id).ok_or(CallError::NoRollout)?;
    Ok(json(StatusCode::OK, &metrics))
}

fn read(body: &[u8]) -> Result<RolloutRequest, String> {
    // serde would accept a list as the fields in their order.
    if body.trim_ascii_start().first() == Some(&b'[') {
        return Err("the body must be a JSON object, not list".to_owned());
    }
    serde_json::from_slice(body).map_err(|error| error.to_string())
}

fn guard(context: &Context, headers: &HeaderMap) -> Result<(), HttpError> {
    let token = context.shared.config.admin_token.as_ref();
    let is_admin = token.zip(bearer(headers)).is_some_and(|(token, presented)| token.is(presented));
    if is_admin { Ok(()) } else { Err(HttpError::unauthorized()) }
}

fn named(tools: &[Tool], field: &str, names: &[String]) -> Result<Vec<Tool>, HttpError> {
    let named = |name: &String| {
        tools.iter().find(|tool| tool.name() == name).cloned().ok_or_else(|| {
            HttpError::bad_request(format!("{field}: no tool '{}' is configured", shortened(name)))
        })
    };
    names.iter().map(named).collect()
}

fn seconds(field: &str, seconds: f64) -> Result<Duration, HttpError> {
    let limit = Duration::try_from_secs_f64(seconds).ok();
    limit.filter(|limit| !limit.is_zero() && *limit <= MAX_TOOL_TIME_LIMIT).ok_or_else(|| {
        let most = MAX_TOOL_TIME_LIMIT.as_secs();
        HttpError::bad_request(format!("{field} must be above 0 and at most {most} s"))
    })
}
