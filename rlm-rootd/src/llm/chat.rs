//! The proxy: requests that code in a session writes itself.

use std::time::Instant;

use serde_json::{Map, Value as Json};

use super::bounds::check_bounds;
use super::error::SubCallError;
use super::message::ChatMessage;
use super::request_ids::new_request_id;
use super::sub_llm::{SubLlm, new_id};
use crate::ledger::Exhausted;

/// Longest id of a batch or request that a caller may give, in characters.
const MAX_ID_CHARS: usize = 128;

/// A request through the proxy that failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChatError {
    /// The request cannot be sent on.
    #[error("{0}")]
    Request(String),
    /// The call of the model failed.
    #[error(transparent)]
    Call(#[from] SubCallError),
}

impl ChatError {
    /// The HTTP status to answer with. A refusal of our key is not the caller's fault: 502.
    #[must_use]
    pub fn status(&self) -> u16 {
        match self {
            Self::Request(_) => 400,
            Self::Call(error) => match error {
                // Not 429, on which clients try again.
                SubCallError::Exhausted(Exhausted::Short { .. } | Exhausted::Refused { .. }) => 402,
                SubCallError::Exhausted(Exhausted::Unpriced(_)) => 500,
                SubCallError::NotSent | SubCallError::TimedOut { .. } => 504,
                SubCallError::Status { status, .. } | SubCallError::MustWait { status, .. } => match status {
                    401 | 403 => 502,
                    400..500 => *status,
                    _ => 502,
                },
                _ => 502,
            },
        }
    }
}

impl SubLlm {
    /// Forwards a chat completion request to the rollout's model, whatever model it names, and returns the server's response
    /// unchanged. Sampling parameters of the options are added where the request does not set them.
    ///
    /// `_batch_id` and `_request_id` name the request in records; they are not forwarded.
    ///
    /// # Errors
    /// [`ChatError`]. A request that asks for a stream is refused.
    pub async fn chat(&self, request: Json, deadline: Instant) -> Result<Json, ChatError> {
        let refuse = |why: &str| ChatError::Request(why.to_owned());
        let Json::Object(mut body) = request else { return Err(refuse("the request must be a JSON object")) };
        if body.get("stream").is_some_and(|stream| !matches!(stream, Json::Null | Json::Bool(false))) {
            return Err(refuse("stream is not supported: leave it out, or set it to false"));
        }
        let messages = match body.shift_remove("messages") {
            Some(Json::Array(messages)) if !messages.is_empty() => messages,
            Some(Json::Array(_)) => return Err(refuse("messages must not be empty")),
            Some(_) => return Err(refuse("messages must be a list")),
            None => return Err(refuse("messages are missing")),
        };
        check_bounds(&body, self.sender.ledger.bounds_completions()).map_err(ChatError::Request)?;
        let batch_id = take_id(&mut body, "_batch_id")?.unwrap_or_else(new_id);
        let id = take_id(&mut body, "_request_id")?.unwrap_or_else(new_request_id);
        let messages: Vec<ChatMessage> = messages.into_iter().map(Into::into).collect();
        let request = self.request((&batch_id, 0, 0, id), body, &messages);
        let check = |reply: &super::reply::Reply| reply.message().map(|_| reply.body.clone());
        let (result, ..) = self.sender.exchange(&request, deadline, check).await;
        Ok(result?)
    }
}

/// Takes an id that the caller gives, which must fit a header.
fn take_id(body: &mut Map<String, Json>, field: &str) -> Result<Option<String>, ChatError> {
    match body.shift_remove(field) {
        None | Some(Json::Null) => Ok(None),
        Some(Json::String(id))
            if !id.is_empty()
                && id.len() <= MAX_ID_CHARS
                && id.bytes().all(|byte| byte.is_ascii_graphic()) =>
        {
            Ok(Some(id))
        }
        Some(_) => Err(ChatError::Request(format!(
            "{field} must be a str of 1 to {MAX_ID_CHARS} printable ASCII characters without blanks"
        ))),
    }
}
