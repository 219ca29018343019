//! Messages of models, in OpenAI's form.

use std::borrow::Cow;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use serde::{Serialize, Serializer};
use serde_json::value::RawValue;
use serde_json::{Map, Value as Json};

use super::estimate::{PER_MESSAGE, fields_tokens, message_tokens};

/// A message of a conversation in OpenAI's form, with the text in which it is sent: a long conversation is written once, not
/// again for each request. Clones share both.
#[derive(Clone)]
pub struct ChatMessage(Arc<Written>);

struct Written {
    json: Json,
    text: Box<RawValue>,
    tokens: u64,
}

impl ChatMessage {
    /// Tokens of the message, as estimated.
    pub(super) fn tokens(&self) -> u64 {
        self.0.tokens
    }

    /// Length of the message as it is sent, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.0.text.get().len()
    }
}

impl From<Json> for ChatMessage {
    fn from(json: Json) -> Self {
        let text = serde_json::value::to_raw_value(&json).expect("JSON can be written");
        Self(Arc::new(Written { tokens: message_tokens(&json), json, text }))
    }
}

impl Deref for ChatMessage {
    type Target = Json;

    fn deref(&self) -> &Json {
        &self.0.json
    }
}

impl Serialize for ChatMessage {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.text.serialize(serializer)
    }
}

impl fmt::Debug for ChatMessage {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.json.fmt(formatter)
    }
}

impl PartialEq for ChatMessage {
    fn eq(&self, other: &Self) -> bool {
        self.0.json == other.0.json
    }
}

/// Tokens of the prompt that a request makes of its messages and its other fields: tools and schemas are part of it.
pub(super) fn prompt_tokens(messages: &[ChatMessage], fields: &Map<String, Json>) -> u64 {
    let of_messages: u64 = messages.iter().map(ChatMessage::tokens).sum();
    PER_MESSAGE + of_messages + fields_tokens(fields)
}

/// The text of a message: its `content` is text, or a list of parts that may have one. None: it is of another type.
#[must_use]
pub fn message_text(message: &Json) -> Option<String> {
    match message.get("content") {
        None | Some(Json::Null) => Some(String::new()),
        Some(Json::String(text)) => Some(text.clone()),
        Some(Json::Array(parts)) => {
            Some(parts.iter().filter_map(|part| part.get("text").and_then(Json::as_str)).collect())
        }
        Some(_) => None,
    }
}

/// A message as a reply in a conversation: one that has no role, or none of the model's, gets that.
pub(super) fn as_reply(mut message: Json) -> Json {
    if let Some(fields) = message
        .as_object_mut()
        .filter(|fields| fields.get("role").and_then(Json::as_str) != Some("assistant"))
    {
        fields.insert("role".to_owned(), "assistant".into());
    }
    message
}

/// What a model, or a filter of its server, refused with; None for a reply that was not refused. `finish_reason` is the reason why
/// the reply ended.
#[must_use]
pub fn refusal(message: &Json, finish_reason: Option<&str>) -> Option<String> {
    let words = message.get("refusal").and_then(Json::as_str).filter(|words| !words.trim().is_empty());
    match (words, finish_reason) {
        (Some(words), _) => Some(words.to_owned()),
        (None, Some("content_filter" | "refusal" | "safety" | "recitation")) => {
            let by = if finish_reason == Some("refusal") {
                "the model refused to answer"
            } else {
                "a content filter of the server cut the reply"
            };
            Some(by.to_owned())
        }
        _ => None,
    }
}

/// The arguments of a tool call, as JSON text: an empty object where there are none. Some servers give JSON in the place of
/// its text.
#[must_use]
pub fn call_arguments(call: &Json) -> Cow<'_, str> {
    match call.pointer("/function/arguments") {
        None | Some(Json::Null) => "{}".into(),
        Some(Json::String(text)) if text.trim().is_empty() => "{}".into(),
        Some(Json::String(text)) => text.into(),
        Some(other) => other.to_string().into(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn content_is_text_or_parts() {
        let text = |content: Json| message_text(&json!({ "content": content }));
        assert_eq!(text(json!("a")).as_deref(), Some("a"));
        assert_eq!(text(json!([{"text": "a"}, {"type": "image_url"}, {"text": "b"}])).as_deref(), Some("ab"));
        assert_eq!([text(Json::Null), message_text(&json!({}))], [Some(String::new()), Some(String::new())]);
        assert_eq!(text(json!(3)), None);
    }

    #[test]
    fn arguments_are_json_text_in_every_form() {
        let arguments = |given: Json| call_arguments(&json!({"function": {"arguments": given}})).into_owned();
        let given = [json!(r#"{"a": 1}"#), json!({"a": 1}), json!(" "), Json::Null, json!([1])];
        assert_eq!(given.map(arguments), [r#"{"a": 1}"#, r#"{"a":1}"#, "{}", "{}", "[1]"]);
    }
}
