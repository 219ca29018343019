//! The root model, as its loop sees it.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::time::Instant;

use serde_json::Value as Json;

/// A request under way. Dropping the future cancels it.
pub type ModelFuture<'a> = Pin<Box<dyn Future<Output = Result<ChatReply, ModelError>> + Send + 'a>>;

/// A model that leads rollouts: over HTTP, or a script.
pub trait RootModel: fmt::Debug + Send + Sync {
    /// Its name.
    fn name(&self) -> &str;

    /// Asks for the next message of a conversation.
    fn complete<'a>(&'a self, request: ChatRequest<'a>) -> ModelFuture<'a>;

    /// Keeps enough of the budget for this request from all others, until [`Self::take_back`], and says whether there is
    /// enough. For a model that costs nothing there is.
    fn set_aside(&self, _request: ChatRequest<'_>) -> bool {
        true
    }

    /// Gives back what was set aside.
    fn take_back(&self) {}
}

/// What a root model is asked.
#[derive(Clone, Copy, Debug)]
pub struct ChatRequest<'a> {
    /// The conversation so far, in OpenAI's form.
    pub messages: &'a [Json],
    /// The tools that it may call, in OpenAI's form.
    pub tools: &'a [Json],
    /// The most tokens that it may answer; the model's own limit when None.
    pub max_tokens: Option<u64>,
    /// When the answer is of no use any more.
    pub deadline: Instant,
}

/// What a root model answers.
#[derive(Clone, Debug, PartialEq)]
pub struct ChatReply {
    /// The message, in OpenAI's form: `content`, `tool_calls`.
    pub message: Json,
    /// Why it ended: `stop`, `tool_calls`, `length`, …
    pub finish_reason: Option<String>,
    /// Tokens of the prompt.
    pub prompt_tokens: u64,
    /// Tokens of the completion.
    pub completion_tokens: u64,
    /// Whether the tokens are estimated, since the server reported none.
    pub usage_estimated: bool,
    /// How often the request was sent.
    pub attempts: u32,
}

/// A request that gave no reply.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ModelError {
    /// What the loop can do about it.
    pub kind: ModelErrorKind,
    /// What happened.
    pub message: String,
    /// Tokens of prompts that were charged all the same.
    pub prompt_tokens: u64,
    /// Tokens of completions that were charged all the same.
    pub completion_tokens: u64,
    /// How often the request was sent.
    pub attempts: u32,
}

/// Kinds of [`ModelError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelErrorKind {
    /// The conversation is longer than the model takes.
    TooLong,
    /// The budget does not allow the request.
    Budget,
    /// The deadline passed.
    TimedOut,
    /// The endpoint failed, retries included.
    Failed,
}
