//! A root model over HTTP: it spends from the same ledger as the sub-LLMs that its code calls.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Map, Value as Json};

use super::bounds::{DEFAULT_COMPLETION, LEAST_COMPLETION, LONGEST_BOUND, thinking_budget};
use super::error::{SubCallError, SubLlmError};
use super::message::{ChatMessage, as_reply};
use super::models::Models;
use super::reply::Reply;
use super::request_ids::new_request_id;
use super::root_model::{ChatReply, ChatRequest, ModelError, ModelErrorKind, ModelFuture, RootModel};
use super::rules::{ErrorKind, is_too_long, names_word};
use super::sub_llm::{SubLlm, SubLlmOptions, new_id};
use crate::ledger::{Estimate, Ledger};

/// The field of Claude's thinking.
const THINKING: &str = "thinking";

/// A deadline this near counts as passed.
const NEARLY: Duration = Duration::from_millis(20);

/// A root model over HTTP.
#[derive(Clone, Debug)]
pub struct HttpModel {
    models: Arc<Models>,
    /// The name of the model, if it is another one than the server's default.
    name: Option<String>,
    /// True once the server has refused tools.
    refused_tools: Arc<AtomicBool>,
}

impl HttpModel {
    /// The model of a server.
    #[must_use]
    pub fn new(models: Arc<Models>) -> Self {
        Self { models, name: None, refused_tools: Arc::default() }
    }

    /// Another model of the same server.
    #[must_use]
    pub fn named(models: Arc<Models>, name: impl Into<String>) -> Self {
        Self { name: Some(name.into()), ..Self::new(models) }
    }

    /// A sender for the requests of a rollout of which so many replies were cut off.
    fn sender(
        &self,
        sampling: &Map<String, Json>,
        ledger: &Arc<Ledger>,
        cut_replies: u32,
    ) -> Result<SubLlm, SubLlmError> {
        let doubled = DEFAULT_COMPLETION.saturating_mul(1_u64.checked_shl(cut_replies).unwrap_or(u64::MAX));
        let options = SubLlmOptions {
            model: self.name.clone(),
            sampling: sampling.clone(),
            // It sends one request at a time.
            parallelism: 1,
            default_max_tokens: doubled.min(LONGEST_BOUND),
            ..SubLlmOptions::default()
        };
        SubLlm::new(self.models.clone(), ledger.clone(), options)
    }

    /// The sampling parameters, without the model's thinking where that may be left out and has no room.
    fn sampling<'a>(&self, request: ChatRequest<'a>) -> Cow<'a, Map<String, Json>> {
        let mut sampling = Cow::Borrowed(request.sampling);
        let least = thinking_budget(request.sampling).saturating_add(LEAST_COMPLETION);
        if request.may_skip_thinking && request.sampling.contains_key(THINKING) {
            let estimate = self.estimate(ChatRequest { max_tokens: Some(least), ..request });
            let is_affordable = estimate.is_none_or(|estimate| request.ledger.check(&estimate).is_ok());
            if !is_affordable || request.room.is_some_and(|room| room < least) {
                sampling.to_mut().shift_remove(THINKING);
            }
        }
        sampling
    }

    async fn exchange(&self, request: ChatRequest<'_>) -> Result<ChatReply, ModelError> {
        let ChatRequest { messages, tools, sampling, deadline, ledger, observer, .. } = request;
        let llm = self
            .sender(sampling, ledger, request.cut_replies)
            .map_err(|error| ModelError::new(ModelErrorKind::Failed, error.to_string()))?;
        let batch_id = new_id();
        let id = new_request_id();
        let request_id = Some(id.clone());
        let mut sent = llm.request((&batch_id, 0, 0, id), fields(request), messages);
        sent.least_completion = Some(LEAST_COMPLETION.saturating_add(thinking_budget(&sent.fields)));
        sent.estimate = of_request(sent.estimate, request);
        sent.room = request.room;
        sent.observer = observer;
        let check = |reply: &Reply| {
            let message = as_reply(reply.message()?.clone());
            let finish_reason = reply.finish_reason().map(str::to_owned);
            Ok(ChatReply {
                message,
                finish_reason,
                extra: reply.extra(),
                adapted: reply.adapted.clone(),
                ..ChatReply::default()
            })
        };
        let (result, usage, attempts) = llm.sender.exchange(&sent, deadline, check).await;
        match result {
            Ok(reply) => Ok(ChatReply { request_id, usage, attempts, ..reply }),
            Err(error) => {
                let kind = if !tools.is_empty() && refuses_tools(&error) {
                    ModelErrorKind::NoTools
                } else if messages.iter().any(ChatMessage::has_images) && may_refuse_images(&error) {
                    ModelErrorKind::NoImages
                } else {
                    kind(&error, deadline)
                };
                if kind == ModelErrorKind::NoTools && !self.refused_tools.swap(true, Ordering::Relaxed) {
                    tracing::warn!(
                        "the model's server refuses tool calls, so code is asked for in fenced blocks; \
                         `tool_calls = false` begins with that; it said: {error}"
                    );
                }
                let mut message = match kind {
                    // The model reads this error, too.
                    ModelErrorKind::NoImages => format!("{error}; the request had images"),
                    _ => self.models.explain(&error, attempts),
                };
                if let Some(field) = refused_field(&error, sampling) {
                    message +=
                        &format!("; `sampling` sets `{field}`: leave it out, or set what the server takes");
                }
                Err(ModelError { kind, message, usage, attempts })
            }
        }
    }
}

impl RootModel for HttpModel {
    fn name(&self) -> &str {
        self.name.as_deref().unwrap_or(self.models.model())
    }

    fn complete<'a>(&'a self, request: ChatRequest<'a>) -> ModelFuture<'a> {
        Box::pin(async move {
            let sampling = self.sampling(request);
            self.exchange(ChatRequest { sampling: &sampling, ..request }).await
        })
    }

    fn estimate(&self, request: ChatRequest<'_>) -> Option<Estimate> {
        let llm = self.sender(request.sampling, request.ledger, request.cut_replies).ok()?;
        let estimate = llm.estimate(&llm.fields(fields(request)), request.messages);
        Some(of_request(estimate, request))
    }

    fn takes_tools(&self) -> bool {
        !self.refused_tools.load(Ordering::Relaxed)
    }

    fn check(&self, sampling: &Map<String, Json>, ledger: &Arc<Ledger>) -> Result<(), String> {
        self.sender(sampling, ledger, 0).map(drop).map_err(|error| error.to_string())
    }
}

/// The fields of a request besides its messages.
fn fields(request: ChatRequest<'_>) -> Map<String, Json> {
    let mut fields = Map::new();
    if !request.tools.is_empty() {
        fields.insert("tools".to_owned(), request.tools.to_vec().into());
        fields.insert("tool_choice".to_owned(), "auto".into());
    }
    if let Some(bound) = request.max_tokens {
        fields.insert("max_tokens".to_owned(), bound.into());
    }
    fields
}

fn kind(error: &SubCallError, deadline: Instant) -> ModelErrorKind {
    match error {
        SubCallError::Exhausted(_) => ModelErrorKind::Budget,
        SubCallError::NoRoomToThink { .. } => ModelErrorKind::TooLong,
        SubCallError::Status { status, message } if is_too_long(*status, message) => ModelErrorKind::TooLong,
        SubCallError::NotSent | SubCallError::TimedOut { .. } if Instant::now() + NEARLY >= deadline => {
            ModelErrorKind::TimedOut
        }
        SubCallError::Status { status: 401..=404, .. } => ModelErrorKind::Refused,
        SubCallError::Status { status: 400 | 422, message } if !ErrorKind::Overloaded.is_of(message) => {
            ModelErrorKind::Refused
        }
        SubCallError::Status { message, .. } if ErrorKind::NoCredit.is_of(message) => ModelErrorKind::Refused,
        _ => ModelErrorKind::Failed,
    }
}

/// The estimate of a request, with the request's facts on the ledger and the cache.
fn of_request(estimate: Estimate, request: ChatRequest<'_>) -> Estimate {
    let ChatRequest { is_reserved, cached_tokens, .. } = request;
    Estimate { is_reserved, cached_tokens: cached_tokens.min(estimate.prompt_tokens), ..estimate }
}

/// The field of `sampling` that an error names, if any: a field that a user sets is never left out in silence.
fn refused_field<'a>(error: &SubCallError, sampling: &'a Map<String, Json>) -> Option<&'a str> {
    let SubCallError::Status { status: 400 | 422, message } = error else { return None };
    sampling.keys().map(String::as_str).find(|field| names_word(message, field))
}

/// True if a server refuses a request for its tools.
fn refuses_tools(error: &SubCallError) -> bool {
    matches!(error, SubCallError::Status { status: 400 | 404 | 405 | 422 | 500 | 501, message } if ErrorKind::NoTools.is_of(message))
}

/// True if a server refuses a request with images, perhaps because of them: servers word that in too many ways to know.
fn may_refuse_images(error: &SubCallError) -> bool {
    let SubCallError::Status { status, message } = error else { return false };
    match status {
        413 | 415 => true,
        400 | 422 => !ErrorKind::ContextFull.is_of(message),
        404 | 500 | 501 => ErrorKind::NoImages.is_of(message),
        _ => false,
    }
}
