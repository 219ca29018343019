//! Messages of the protocol: what they mean here, and what results and errors become.

use std::path::Path;

use agent_client_protocol::Error;
use agent_client_protocol::v1::schema::{self, ContentBlock, EmbeddedResourceResource, SessionId};
use rlm_core::percent;
use rlm_env::rollout::Metrics;
use rlm_env::{RolloutResult, StopReason};
use rlm_rootd::{McpServer, McpTransport};
use serde_json::{Value as Json, json};

/// The key of what a trainer reads from each response to a prompt.
pub(super) const SNAPSHOT: &str = "ai.prime.rlm/session-v1";

/// A server of the client's.
pub(super) fn declared(server: schema::McpServer, cwd: &Path) -> Result<McpServer, Error> {
    match server {
        schema::McpServer::Http(http) => Ok(McpServer {
            name: http.name,
            transport: McpTransport::Http {
                url: http.url,
                headers: http.headers.into_iter().map(|header| (header.name, header.value)).collect(),
            },
        }),
        schema::McpServer::Stdio(stdio) => Ok(McpServer {
            name: stdio.name,
            transport: McpTransport::Stdio {
                command: stdio.command.display().to_string(),
                args: stdio.args,
                env: stdio.env.into_iter().map(|variable| (variable.name, variable.value)).collect(),
                cwd: cwd.to_owned(),
            },
        }),
        _ => Err(invalid("mcpServers: expected servers of type http or stdio")),
    }
}

/// The text of a prompt. Links are named by their paths: the session reads them itself.
pub(super) fn text_of(blocks: &[ContentBlock]) -> Result<String, Error> {
    let mut parts = Vec::new();
    for block in blocks {
        parts.push(match block {
            ContentBlock::Text(text) => text.text.clone(),
            ContentBlock::ResourceLink(link) => format!("[{}]({})", link.name, path_of(&link.uri)),
            ContentBlock::Resource(resource) => match &resource.resource {
                EmbeddedResourceResource::TextResourceContents(contents) => {
                    format!("{}:\n\n{}", path_of(&contents.uri), contents.text)
                }
                _ => return Err(invalid("prompt: expected text, not bytes of a resource")),
            },
            _ => return Err(invalid("prompt: expected blocks of text and links to resources")),
        });
    }
    let text = parts.join("\n\n");
    if text.trim().is_empty() {
        return Err(invalid("prompt: it has no text"));
    }
    Ok(text)
}

/// The path of a `file:` address; any other address as it is.
fn path_of(uri: &str) -> String {
    let Some(path) = uri.strip_prefix("file://").filter(|path| path.starts_with('/')) else {
        return uri.to_owned();
    };
    percent::decoded(path).and_then(|path| String::from_utf8(path).ok()).unwrap_or_else(|| path.to_owned())
}

/// The numbers that a trainer reads from a response.
pub(super) fn snapshot(trace: &str, result: &RolloutResult) -> Json {
    let reason = match result.stop_reason {
        StopReason::Answered => Json::Null,
        StopReason::MaxTurns => "max_total_turns".into(),
        StopReason::BudgetExhausted => "max_total_tokens".into(),
        StopReason::ContextFull => "compaction_failed".into(),
        reason => json!(reason),
    };
    json!({"session_id": trace, "metrics": numbers(&result.metrics), "last_stop_reason": reason})
}

/// Metrics as plain numbers: one that is unknown is left out, true is 1, and counts by name have the name in theirs.
fn numbers(metrics: &Metrics) -> Json {
    let mut numbers = serde_json::Map::new();
    let metrics = serde_json::to_value(metrics).unwrap_or_default();
    for (name, value) in metrics.as_object().into_iter().flatten() {
        match value {
            Json::Number(_) => {
                numbers.insert(name.clone(), value.clone());
            }
            Json::Bool(flag) => {
                numbers.insert(name.clone(), u8::from(*flag).into());
            }
            Json::Object(counts) => {
                numbers
                    .extend(counts.iter().map(|(inner, count)| (format!("{name}_{inner}"), count.clone())));
            }
            _ => {}
        }
    }
    numbers.into()
}

/// The error of a prompt whose rollout failed.
pub(super) fn failure(result: &RolloutResult) -> Error {
    let details = result.error.clone().unwrap_or_else(|| "the rollout failed".to_owned());
    let kind = match result.stop_reason {
        StopReason::ModelFailed if result.refused_by_server => "model_refused",
        StopReason::ModelFailed => "model_transport",
        _ => "session",
    };
    Error::new(Error::internal_error().code, details.clone()).data(json!({"details": details, "kind": kind}))
}

pub(super) fn invalid(details: impl Into<String>) -> Error {
    let details = details.into();
    Error::new(Error::invalid_params().code, details.clone()).data(json!({"details": details}))
}

pub(super) fn unknown_session(id: &SessionId) -> Error {
    invalid(format!("sessionId: there is no session {id}"))
}
