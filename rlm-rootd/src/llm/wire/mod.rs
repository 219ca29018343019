//! The interfaces of models' servers.
//!
//! Conversations and replies have the form of chat completions everywhere else. Each other interface is a file here, which
//! translates requests from that form, and replies to it. The message of a translated reply also holds the reply's own parts, in
//! a field with the interface's name, and the next request gives exactly those back.

mod anthropic;
mod chat;
mod pieces;
mod responses;

use std::borrow::Cow;
use std::time::Duration;

use serde_json::{Map, Value as Json, json};

pub use self::chat::new_call_id;
use self::pieces::Pieces;
use super::api::Api;
use super::estimate::{NATIVE, native};
use super::message::{ChatMessage, Form, Part};
use super::rules::Rules;

/// Time for a server to end its response after the last event.
pub(super) const CLOSING: Duration = Duration::from_millis(50);

/// Time for what follows the end of a reply whose usage is known: the server's word that the stream is over.
const BEHIND_USAGE: Duration = Duration::from_secs(1);

/// Time for the usage of a reply that has ended.
const BEFORE_USAGE: Duration = Duration::from_secs(10);

/// Time for what follows a reason with a text in its piece: where each piece has a reason, a thought or a call takes that long.
const BEHIND_TEXT: Duration = Duration::from_secs(60);

/// Fields of pieces that the model has not written: labels, images, and texts of others that it cites.
const UNSAMPLED: [&str; 7] = ["type", "role", "id", "images", "annotations", "citation", "citations"];

/// Types of events that only keep a connection open, in the other interfaces than chat completions.
const KEEPING_ALIVE: [&str; 4] = ["ping", "keepalive", "response.in_progress", "response.queued"];

/// A change to calls in requests, and its reason.
const EMPTY_ARGUMENTS: &str = "arguments that are no JSON object are sent as {}: the server refuses others";

/// The body of a request.
#[derive(Debug)]
pub(super) struct Body {
    pub(super) bytes: Vec<u8>,
    /// Changes to the request before it was sent, and their reasons: a sentence for each kind.
    pub(super) adapted: Vec<String>,
}

impl Api {
    /// The path of requests, below the base URL.
    pub(super) fn path(self) -> &'static [&'static str] {
        match self {
            Self::Chat => &["chat", "completions"],
            Self::Responses => &["responses"],
            Self::Anthropic => &["messages"],
        }
    }

    /// The body of a request, in pieces or whole.
    pub(super) fn body(
        self,
        messages: &[ChatMessage],
        mut fields: Cow<'_, Map<String, Json>>,
        streams: bool,
        rules: &Rules,
    ) -> Body {
        for (name, value) in &rules.add {
            if !fields.contains_key(name) {
                fields.to_mut().insert(name.clone(), value.clone());
            }
        }
        let mut sent = Cow::Borrowed(messages);
        for (at, message) in messages.iter().enumerate() {
            if let Some(own) = rules.without_foreign_reasoning(message) {
                sent.to_mut()[at] = own;
            }
        }
        if streams && self != Self::Chat {
            fields.to_mut().insert("stream".to_owned(), true.into());
        }
        let has_native = NATIVE.iter().all(|field| !rules.omits_of_replies(field));
        let form = Form { api: self, has_native };
        let mut body = match self {
            Self::Chat => chat::body(&sent, fields, streams, rules),
            Self::Anthropic => anthropic::request(&fields, &sent, form, rules),
            Self::Responses => responses::request(&fields, &sent, form, rules),
        };
        if self != Self::Chat && !has_native && sent.iter().any(|message| native(message).is_some()) {
            body.adapted.push(
                "replies are sent without what is only in their own form: the server refuses it".to_owned(),
            );
        }
        if matches!(sent, Cow::Owned(_)) {
            body.adapted
                .push("the reasoning of earlier replies is left out: the server refuses it".to_owned());
        }
        body
    }

    /// A reply in the form of chat completions. Err: a sentence on what is malformed.
    pub(super) fn reply(self, body: Json) -> Result<Json, String> {
        match self {
            Self::Chat => Ok(chat::reply(body)),
            Self::Responses => responses::reply(body),
            Self::Anthropic => anthropic::reply(body),
        }
    }

    /// The part of a reply that came before an error: its usage, and the texts of its pieces if it came in some.
    pub(super) fn part(self, mut native: Json, text: &str) -> Json {
        if let Some(fields) = native.as_object_mut() {
            fields.retain(|name, _| !["error", "status"].contains(&name.as_str()));
        }
        let mut body = self.reply(native).unwrap_or_default();
        if !text.is_empty() {
            body["choices"] = json!([{ "message": text }]);
        }
        body
    }

    /// A reply that comes in pieces, before the first one.
    pub(super) fn streamed(self) -> Streamed {
        let parts = match self {
            Self::Chat => Parts::Chat(Pieces::default()),
            Self::Responses => Parts::Responses(responses::Events::default()),
            Self::Anthropic => Parts::Anthropic(anthropic::Events::default()),
        };
        Streamed { parts, text: String::new() }
    }
}

/// A reply that comes in pieces.
#[derive(Debug)]
pub(super) struct Streamed {
    parts: Parts,
    /// All texts of the pieces: of content, reasoning and calls.
    text: String,
}

#[derive(Debug)]
enum Parts {
    Chat(Pieces),
    Responses(responses::Events),
    Anthropic(anthropic::Events),
}

impl Streamed {
    /// Adds a piece. False if it has nothing of the reply, but keeps the connection open.
    pub(super) fn add(&mut self, piece: Json) -> bool {
        let choices = piece["choices"].as_array().into_iter().flatten();
        let bytes = self.text.len();
        choices.clone().chain([&piece]).for_each(|part| add_texts(&part["delta"], &mut self.text));
        let is_empty = match &self.parts {
            Parts::Chat(pieces) => {
                let mut ends = choices.map(|choice| &choice["finish_reason"]);
                let is_told = pieces.is_whole() && pieces.has_usage();
                let tells_end = !ends.all(Json::is_null) || piece["usage"].is_object();
                self.text.len() == bytes && (is_told || !tells_end)
            }
            _ => {
                let is_kind = |kind: &str| {
                    KEEPING_ALIVE.contains(&kind) || kind.ends_with("delta") && self.text.len() == bytes
                };
                self.is_whole() || piece["type"].as_str().is_none_or(is_kind)
            }
        };
        match &mut self.parts {
            Parts::Chat(pieces) => pieces.add(piece, self.text.len() > bytes),
            Parts::Responses(events) => events.add(piece),
            Parts::Anthropic(events) => events.add(piece),
        }
        !is_empty
    }

    /// Length of all texts that have come.
    pub(super) fn text_bytes(&self) -> u64 {
        self.text.len() as u64
    }

    /// True if the reply has ended.
    pub(super) fn is_whole(&self) -> bool {
        match &self.parts {
            Parts::Chat(pieces) => pieces.is_whole(),
            Parts::Responses(events) => events.is_whole(),
            Parts::Anthropic(events) => events.is_whole(),
        }
    }

    /// The longest time to wait for anything else, once the reply has ended.
    pub(super) fn closing(&self) -> Option<Duration> {
        self.is_whole().then(|| match &self.parts {
            Parts::Chat(pieces) if pieces.ends_with_text() => BEHIND_TEXT,
            Parts::Chat(pieces) if !pieces.has_usage() => BEFORE_USAGE,
            Parts::Anthropic(events) if !events.has_stopped() => BEHIND_USAGE,
            Parts::Chat(_) => BEHIND_USAGE,
            Parts::Responses(_) | Parts::Anthropic(_) => CLOSING,
        })
    }

    /// True if the end of the stream ends the reply, although no piece did. `is_told`: the server has said that the stream is over.
    pub(super) fn is_whole_at_end(&self, is_told: bool) -> bool {
        match &self.parts {
            Parts::Chat(pieces) => is_told && pieces.has_begun() || pieces.is_whole_at_end(),
            Parts::Responses(events) => events.is_whole_at_end(),
            Parts::Anthropic(events) => events.is_whole_at_end(),
        }
    }

    /// The reply as the server would have sent it whole, and all texts of its pieces.
    pub(super) fn into_body(self) -> (Json, String) {
        let body = match self.parts {
            Parts::Chat(pieces) => pieces.into_body(),
            Parts::Responses(events) => events.into_body(),
            Parts::Anthropic(events) => events.into_body(),
        };
        (body, self.text)
    }
}

fn add_texts(json: &Json, text: &mut String) {
    match json {
        Json::String(more) => text.push_str(more),
        Json::Array(items) => items.iter().for_each(|item| add_texts(item, text)),
        Json::Object(fields) => {
            let written = fields.iter().filter(|(name, _)| !UNSAMPLED.contains(&name.as_str()));
            written.for_each(|(_, value)| add_texts(value, text));
        }
        _ => {}
    }
}

/// A sentence if some of the replies' own parts are not sent, in an interface that sends them.
fn parts_left_out(messages: &[ChatMessage], sent: &[Cow<'_, [Part]>], form: Form) -> Vec<String> {
    let place = if form.api == Api::Anthropic { "/anthropic/content" } else { "/responses/output" };
    // A reply of no parts is left out as well.
    let own = |message: &ChatMessage| {
        message.pointer(place).and_then(Json::as_array).map_or(0, |parts| parts.len().max(1))
    };
    let has_more =
        form.has_native && messages.iter().zip(sent).any(|(message, sent)| own(message) > sent.len());
    let sentence = "parts of replies are left out that the server refuses: empty ones, and reasoning that nothing follows";
    has_more.then(|| sentence.to_owned()).into_iter().collect()
}

/// True for a field of a message that is ours: the parts of a reply in another interface's form.
fn is_native(field: &str) -> bool {
    NATIVE.contains(&field)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_waited_for_long_behind_the_end_of_a_reply() {
        let usage = json!({"choices": [], "usage": {"prompt_tokens": 1}});
        for (api, events) in [
            (
                Api::Chat,
                vec![
                    (json!({"choices": [{"index": 0, "delta": {"content": "a"}}]}), None),
                    (
                        json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}),
                        Some(BEFORE_USAGE),
                    ),
                    (usage, Some(BEHIND_USAGE)),
                ],
            ),
            (
                Api::Anthropic,
                vec![
                    (json!({"type": "message_start", "message": {"usage": {"input_tokens": 1}}}), None),
                    (
                        json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}}),
                        Some(BEHIND_USAGE),
                    ),
                    (json!({"type": "message_stop"}), Some(CLOSING)),
                ],
            ),
            (
                Api::Responses,
                vec![
                    (json!({"type": "response.output_item.done", "item": {"type": "message"}}), None),
                    (json!({"type": "response.completed", "response": {}}), Some(CLOSING)),
                ],
            ),
        ] {
            let mut streamed = api.streamed();
            for (event, closing) in events {
                streamed.add(event.clone());
                assert_eq!(streamed.closing(), closing, "{event}");
            }
        }
    }

    /// A piece with this text and this reason.
    fn piece(text: &str, reason: Json) -> Json {
        json!({"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": reason}]})
    }

    #[test]
    fn a_reason_with_a_text_in_its_piece_may_not_be_the_end() {
        let usage = json!({"choices": [], "usage": {"prompt_tokens": 1}});
        let mut streamed = Api::Chat.streamed();
        for (event, closing, is_whole_at_end) in [
            (piece("a", "stop".into()), Some(BEHIND_TEXT), true),
            (piece("", Json::Null), Some(BEHIND_TEXT), true),
            (usage.clone(), Some(BEHIND_USAGE), true),
            (piece("b", "stop".into()), None, true),
            (piece("", "stop".into()), None, true),
        ] {
            streamed.add(event.clone());
            let found = (streamed.closing(), streamed.is_whole_at_end(false));
            assert_eq!(found, (closing, is_whole_at_end), "{event}");
        }
    }

    #[test]
    fn a_stream_without_a_reason_is_whole_with_its_usage_or_complete_calls() {
        let usage = || json!({"choices": [], "usage": {"prompt_tokens": 1}});
        let call = |arguments: &str| {
            let call = json!({"index": 0, "id": "a", "function": {"name": "f", "arguments": arguments}});
            json!({"choices": [{"index": 0, "delta": {"tool_calls": [call]}}]})
        };
        let with_usage = |text: &str| {
            let mut piece = piece(text, Json::Null);
            piece["usage"] = usage()["usage"].clone();
            piece
        };
        for (events, is_whole) in [
            (vec![usage()], false),
            (vec![piece("a", Json::Null)], false),
            (vec![piece("a", Json::Null), usage()], true),
            // A running count says nothing about the end.
            (vec![with_usage("a"), with_usage("b")], false),
            (vec![with_usage("a"), with_usage("")], true),
            (vec![call("{\"x\": 1")], false),
            (vec![call("{\"x\": 1}")], true),
        ] {
            let mut streamed = Api::Chat.streamed();
            events.iter().for_each(|event| assert!(streamed.add(event.clone()), "{event}"));
            assert_eq!(streamed.is_whole_at_end(false), is_whole, "{events:?}");
            assert_eq!(streamed.closing(), None, "{events:?}");
        }
    }

    #[test]
    fn pieces_without_anything_of_the_reply_are_known() {
        for (api, piece) in [
            (Api::Chat, json!({"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]})),
            (Api::Chat, json!({"choices": [], "usage": null})),
            (Api::Anthropic, json!({"type": "ping"})),
            (Api::Responses, json!({"type": "response.in_progress", "response": {}})),
        ] {
            assert!(!api.streamed().add(piece.clone()), "{piece}");
        }
        let started = json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text"}});
        assert!(Api::Anthropic.streamed().add(started));
    }
}
