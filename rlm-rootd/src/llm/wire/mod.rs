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

use serde_json::{Map, Value as Json};

pub use self::chat::new_call_id;
use self::pieces::Pieces;
use super::api::Api;
use super::estimate::NATIVE;
use super::message::{ChatMessage, Form, Part};
use super::rules::Rules;

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
        if self == Self::Chat {
            return chat::body(messages, fields, streams, rules);
        }
        if streams {
            fields.to_mut().insert("stream".to_owned(), true.into());
        }
        let has_native = NATIVE.iter().all(|field| !rules.omits_of_replies(field));
        let form = Form { api: self, has_native };
        let mut body = match self {
            Self::Anthropic => anthropic::request(&fields, messages, form, rules),
            _ => responses::request(&fields, messages, form, rules),
        };
        let is_adapted =
            !has_native && messages.iter().any(|message| NATIVE.iter().any(|own| message.get(own).is_some()));
        if is_adapted {
            body.adapted.push(
                "replies are sent without what is only in their own form: the server refuses it".to_owned(),
            );
        }
        body
    }

    /// A reply in the form of chat completions. Err: a sentence on what is malformed.
    pub(super) fn reply(self, body: Json) -> Result<Json, String> {
        match self {
            Self::Chat => Ok(body),
            Self::Responses => responses::reply(body),
            Self::Anthropic => anthropic::reply(body),
        }
    }

    /// A reply that comes in pieces, before the first one.
    pub(super) fn streamed(self) -> Streamed {
        Streamed(match self {
            Self::Chat => Parts::Chat(Pieces::default()),
            Self::Responses => Parts::Responses(responses::Events::default()),
            Self::Anthropic => Parts::Anthropic(anthropic::Events::default()),
        })
    }
}

/// A reply that comes in pieces.
#[derive(Debug)]
pub(super) struct Streamed(Parts);

#[derive(Debug)]
enum Parts {
    Chat(Pieces),
    Responses(responses::Events),
    Anthropic(anthropic::Events),
}

impl Streamed {
    /// Adds a piece.
    pub(super) fn add(&mut self, piece: Json) {
        match &mut self.0 {
            Parts::Chat(pieces) => pieces.add(piece),
            Parts::Responses(events) => events.add(piece),
            Parts::Anthropic(events) => events.add(piece),
        }
    }

    /// True if the reply has ended.
    pub(super) fn is_whole(&self) -> bool {
        match &self.0 {
            Parts::Chat(pieces) => pieces.is_whole(),
            Parts::Responses(events) => events.is_whole(),
            Parts::Anthropic(events) => events.is_whole(),
        }
    }

    /// True if the server's word that the stream is over ends the reply, although the reply has no reason.
    pub(super) fn is_over(&self) -> bool {
        matches!(&self.0, Parts::Chat(pieces) if pieces.has_begun())
    }

    /// The reply as the server would have sent it whole.
    pub(super) fn into_body(self) -> Json {
        match self.0 {
            Parts::Chat(pieces) => pieces.into_body(),
            Parts::Responses(events) => events.into_body(),
            Parts::Anthropic(events) => events.into_body(),
        }
    }
}

/// A sentence if some of the replies' own parts are not sent, in an interface that sends them.
fn parts_left_out(messages: &[ChatMessage], sent: &[Cow<'_, [Part]>], form: Form) -> Vec<String> {
    let place = if form.api == Api::Anthropic { "/anthropic/content" } else { "/responses/output" };
    let own = |message: &ChatMessage| message.pointer(place).and_then(Json::as_array).map_or(0, Vec::len);
    let has_more =
        form.has_native && messages.iter().zip(sent).any(|(message, sent)| own(message) > sent.len());
    let sentence = "parts of replies are left out that the server refuses: empty ones, and reasoning that nothing follows";
    has_more.then(|| sentence.to_owned()).into_iter().collect()
}

/// True for a field of a message that is ours: the parts of a reply in another interface's form.
fn is_native(field: &str) -> bool {
    NATIVE.contains(&field)
}
