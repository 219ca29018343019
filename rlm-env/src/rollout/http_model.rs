//! A root model over HTTP.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rlm_rootd::{Ledger, Models, RootLlm, SubCallError, SubLlmError};
use serde_json::{Map, Value as Json};

use crate::model::{ChatReply, ChatRequest, ModelError, ModelErrorKind, ModelFuture, RootModel};

/// What servers write where a conversation is too long for their model. Gathered from the error texts of OpenAI, vLLM,
/// llama.cpp, Anthropic, TGI and SGLang.
const TOO_LONG: [&str; 8] = [
    "context length",
    "context_length",
    "context size",
    "context window",
    "maximum context",
    "too long",
    "too many tokens",
    "input tokens",
];

/// A time limit that has come so near is over.
const NEARLY: Duration = Duration::from_millis(20);

/// A root model over HTTP, which spends from the ledger of its rollout.
#[derive(Debug)]
pub(super) struct HttpModel {
    llm: RootLlm,
    ledger: Arc<Ledger>,
}

impl HttpModel {
    pub(super) fn new(
        models: &Arc<Models>,
        ledger: &Arc<Ledger>,
        sampling: Map<String, Json>,
    ) -> Result<Self, SubLlmError> {
        let llm = RootLlm::new(models.clone(), ledger.clone(), sampling)?;
        Ok(Self { llm, ledger: ledger.clone() })
    }
}

impl RootModel for HttpModel {
    fn name(&self) -> &str {
        self.llm.model()
    }

    fn complete<'a>(&'a self, request: ChatRequest<'a>) -> ModelFuture<'a> {
        Box::pin(async move {
            let ChatRequest { messages, tools, max_tokens, deadline } = request;
            let reply = self.llm.complete(messages, tools, max_tokens, deadline).await;
            let (usage, attempts) = (reply.usage, reply.attempts);
            match reply.result {
                Ok(said) => Ok(ChatReply {
                    message: said.message,
                    finish_reason: said.finish_reason,
                    prompt_tokens: usage.prompt_tokens,
                    completion_tokens: usage.completion_tokens,
                    usage_estimated: usage.is_estimated,
                    attempts,
                }),
                Err(error) => Err(ModelError {
                    kind: kind(&error, deadline),
                    message: error.to_string(),
                    prompt_tokens: usage.prompt_tokens,
                    completion_tokens: usage.completion_tokens,
                    attempts,
                }),
            }
        })
    }

    fn set_aside(&self, request: ChatRequest<'_>) -> bool {
        self.ledger.set_aside(Some(&self.llm.estimate(request.messages, request.tools, request.max_tokens)))
    }

    fn take_back(&self) {
        self.ledger.set_aside(None);
    }
}

fn kind(error: &SubCallError, deadline: Instant) -> ModelErrorKind {
    match error {
        SubCallError::Exhausted(_) => ModelErrorKind::Budget,
        SubCallError::Status { status: 413, .. } => ModelErrorKind::TooLong,
        SubCallError::Status { status: 400 | 422, message } if is_too_long(message) => {
            ModelErrorKind::TooLong
        }
        SubCallError::NotSent | SubCallError::TimedOut { .. } if Instant::now() + NEARLY >= deadline => {
            ModelErrorKind::TimedOut
        }
        _ => ModelErrorKind::Failed,
    }
}

fn is_too_long(message: &str) -> bool {
    let message = message.to_lowercase();
    TOO_LONG.iter().any(|words| message.contains(words))
}
