//! The server of the demo's sub-LLM: OpenAI's chat completions on the loopback device.

use std::net::Ipv4Addr;

use axum::extract::DefaultBodyLimit;
use axum::routing::post;
use axum::{Json, Router};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::reader;

/// The name of its model.
pub(super) const MODEL: &str = "scripted-sub-llm";

/// Characters of a token, for the counts.
const TOKEN_CHARS: usize = 4;

/// A running server. Dropping it ends it.
#[derive(Debug)]
pub(super) struct Server {
    base_url: String,
    serving: JoinHandle<()>,
}

impl Server {
    pub(super) async fn start() -> std::io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let base_url = format!("http://{}/v1", listener.local_addr()?);
        let app =
            Router::new().route("/v1/chat/completions", post(complete)).layer(DefaultBodyLimit::disable());
        let serving = tokio::spawn(async move {
            // The server ends only with the demo. Its clients see any earlier failure.
            let _ended = axum::serve(listener, app).await;
        });
        Ok(Self { base_url, serving })
    }

    pub(super) fn base_url(&self) -> &str {
        &self.base_url
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn complete(Json(request): Json<Value>) -> Json<Value> {
    let messages = request["messages"].as_array();
    let prompt = messages.and_then(|messages| messages.last()?["content"].as_str()).unwrap_or_default();
    let answer = reader::answer(prompt);
    let (prompt_tokens, completion_tokens) = (prompt.len() / TOKEN_CHARS, answer.len() / TOKEN_CHARS);
    Json(json!({
        "object": "chat.completion",
        "model": MODEL,
        "choices": [{"index": 0, "message": {"role": "assistant", "content": answer}, "finish_reason": "stop"}],
        "usage": {
            "prompt_tokens": prompt_tokens,
            "completion_tokens": completion_tokens,
            "total_tokens": prompt_tokens + completion_tokens,
        },
    }))
}
