//! The model that leads a rollout, as its driver sees it.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Map, Value as Json};

use super::message::ChatMessage;
use crate::ledger::{Estimate, Ledger, Usage};

/// A running request. Dropping the future cancels it.
pub type ModelFuture<'a> = Pin<Box<dyn Future<Output = Result<ChatReply, ModelError>> + Send + 'a>>;

/// A model that leads rollouts: over HTTP ([`HttpModel`](super::HttpModel)), or a script.
pub trait RootModel: fmt::Debug + Send + Sync {
    /// The model's name, by which its price is known.
    fn name(&self) -> &str;

    /// Asks for the next message of a conversation.
    fn complete<'a>(&'a self, request: ChatRequest<'a>) -> ModelFuture<'a>;

    /// The most that a request may cost, so that enough for the last turn can be reserved. None, the default: it costs
    /// nothing.
    fn estimate(&self, _request: ChatRequest<'_>) -> Option<Estimate> {
        None
    }

    /// False once the model's server has refused tools, so that code must come in the text.
    fn takes_tools(&self) -> bool {
        true
    }

    /// Checks that the model can serve a rollout with these sampling parameters and this budget.
    ///
    /// # Errors
    /// A sentence on what is wrong.
    fn check(&self, _sampling: &Map<String, Json>, _ledger: &Arc<Ledger>) -> Result<(), String> {
        Ok(())
    }
}

/// Watches a request that is sent again, or not waited for any more.
pub trait RetryObserver: fmt::Debug + Send + Sync {
    /// The request failed with this error, and is sent again after this pause.
    fn retry(&self, error: &str, pause: Duration);

    /// The request was dropped after so many attempts, for which the ledger was charged this.
    fn dropped(&self, charged: Usage, attempts: u32);
}

/// A request to a root model.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct ChatRequest<'a> {
    /// The conversation so far, in OpenAI's form.
    pub messages: &'a [ChatMessage],
    /// The tools that the model may call, in OpenAI's form; may be empty.
    pub tools: &'a [Json],
    /// Fields of each request of the rollout, such as `temperature`.
    pub sampling: &'a Map<String, Json>,
    /// The most tokens of the completion. None: the model's own limit.
    pub max_tokens: Option<u64>,
    /// The most tokens of the completion for which the context window has room, where that is known.
    pub room: Option<u64>,
    /// Tokens of the beginning of the conversation that the server is expected to have in its cache.
    pub cached_tokens: u64,
    /// Deadline for the reply.
    pub deadline: Instant,
    /// The ledger that pays for the request.
    pub ledger: &'a Arc<Ledger>,
    /// True for the request for which the ledger reserves something ([`Ledger::reserve_later`]).
    pub is_reserved: bool,
    /// Number of replies of the rollout that were cut off: a bound on the completion that nobody has set is doubled for each.
    pub cut_replies: u32,
    /// True if a model that has no room to think may reply without thinking.
    pub may_skip_thinking: bool,
    /// Hears of attempts that failed; nobody by default.
    pub observer: Option<&'a dyn RetryObserver>,
}

impl<'a> ChatRequest<'a> {
    /// A request without tools, sampling parameters or a limit of tokens.
    #[must_use]
    pub fn new(messages: &'a [ChatMessage], deadline: Instant, ledger: &'a Arc<Ledger>) -> Self {
        static NO_SAMPLING: std::sync::LazyLock<Map<String, Json>> = std::sync::LazyLock::new(Map::new);
        Self {
            messages,
            tools: &[],
            sampling: &NO_SAMPLING,
            max_tokens: None,
            room: None,
            cached_tokens: 0,
            deadline,
            ledger,
            is_reserved: false,
            cut_replies: 0,
            may_skip_thinking: false,
            observer: None,
        }
    }
}

/// The reply of a root model.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct ChatReply {
    /// The message as it came, in OpenAI's form: `content`, `tool_calls`, and all fields that the server added.
    pub message: Json,
    /// The reason why the reply ended: `stop`, `tool_calls`, `length`, …
    pub finish_reason: Option<String>,
    /// An object of the fields that the server added, such as `logprobs` and `token_ids`.
    pub extra: Option<Json>,
    /// Changes to the conversation before it was sent, and their reasons: a sentence for each kind. Empty for most servers.
    pub adapted: Vec<String>,
    /// Id of the request, if the server was told one.
    pub request_id: Option<String>,
    /// Tokens that the ledger was charged, failed attempts included.
    pub usage: Usage,
    /// Number of times the request was sent.
    pub attempts: u32,
}

impl ChatReply {
    /// A reply to a request that was sent once.
    #[must_use]
    pub fn new(message: Json, usage: Usage) -> Self {
        Self { message, usage, attempts: 1, ..Self::default() }
    }
}

/// A request that got no reply.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{message}")]
#[non_exhaustive]
pub struct ModelError {
    /// The kind, by which the driver decides.
    pub kind: ModelErrorKind,
    /// A sentence that says what happened.
    pub message: String,
    /// Tokens that the ledger was charged nevertheless.
    pub usage: Usage,
    /// Number of times the request was sent.
    pub attempts: u32,
}

impl ModelError {
    /// An error of a request that was sent once and charged nothing.
    #[must_use]
    pub fn new(kind: ModelErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), usage: Usage::default(), attempts: 1 }
    }
}

/// Kinds of [`ModelError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ModelErrorKind {
    /// The conversation is longer than the model's context window.
    TooLong,
    /// The budget does not allow the request.
    Budget,
    /// The server refuses tools.
    NoTools,
    /// The server refuses a request with images, perhaps because of them.
    NoImages,
    /// The deadline passed.
    TimedOut,
    /// The server refuses the key, or what it stands for: its rights, its credit, the model's name.
    Refused,
    /// The endpoint failed, retries included.
    Failed,
}
