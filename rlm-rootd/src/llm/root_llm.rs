//! The root model of a rollout: it spends from the same ledger as the sub-LLMs that it calls.

use std::sync::Arc;
use std::time::Instant;

use serde_json::{Map, Value as Json};

use super::error::SubCallError;
use super::models::Models;
use super::reply::Reply;
use super::sub_llm::{SubLlm, SubLlmError, SubLlmOptions, new_id};
use crate::ledger::{Estimate, Ledger, Usage};

/// A root model over HTTP.
#[derive(Debug)]
pub struct RootLlm {
    llm: SubLlm,
}

/// A request to a root model, over.
#[derive(Clone, Debug, PartialEq)]
pub struct RootReply {
    /// The message and why it ended, or why there is none.
    pub result: Result<RootMessage, SubCallError>,
    /// What the ledger was charged, failed attempts included.
    pub usage: Usage,
    /// How often the request was sent.
    pub attempts: u32,
}

/// What a root model said.
#[derive(Clone, Debug, PartialEq)]
pub struct RootMessage {
    /// The message, in OpenAI's form.
    pub message: Json,
    /// The server's word on why it ended.
    pub finish_reason: Option<String>,
}

impl RootLlm {
    /// The root model of a rollout with this ledger. Sampling parameters go into each request.
    ///
    /// # Errors
    /// [`SubLlmError`].
    pub fn new(
        models: Arc<Models>,
        ledger: Arc<Ledger>,
        sampling: Map<String, Json>,
    ) -> Result<Self, SubLlmError> {
        let options = SubLlmOptions { sampling, ..SubLlmOptions::default() };
        Ok(Self { llm: SubLlm::new(models, ledger, options)? })
    }

    /// The model that is called.
    #[must_use]
    pub fn model(&self) -> &str {
        self.llm.model()
    }

    /// Asks for the next message. Tools may be empty.
    pub async fn complete(
        &self,
        messages: &[Json],
        tools: &[Json],
        max_tokens: Option<u64>,
        deadline: Instant,
    ) -> RootReply {
        let batch_id = new_id();
        let id = format!("{batch_id}-0-0");
        let request = self.llm.request((&batch_id, 0, 0, id), body(tools, max_tokens), messages);
        let check = |reply: &Reply| {
            let message = reply.message()?.clone();
            let reason = reply.body.pointer("/choices/0/finish_reason").and_then(Json::as_str);
            Ok(RootMessage { message, finish_reason: reason.map(str::to_owned) })
        };
        let (result, usage, attempts) = self.llm.sender.exchange(&request, deadline, check).await;
        RootReply { result, usage, attempts }
    }

    /// The most that such a request may cost.
    #[must_use]
    pub fn estimate(&self, messages: &[Json], tools: &[Json], max_tokens: Option<u64>) -> Estimate {
        self.llm.request(("", 0, 0, String::new()), body(tools, max_tokens), messages).estimate
    }
}

fn body(tools: &[Json], max_tokens: Option<u64>) -> Map<String, Json> {
    let mut body = Map::new();
    if !tools.is_empty() {
        body.insert("tools".to_owned(), tools.to_vec().into());
        body.insert("tool_choice".to_owned(), "auto".into());
    }
    if let Some(bound) = max_tokens {
        body.insert("max_tokens".to_owned(), bound.into());
    }
    body
}
