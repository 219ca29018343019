//! Requests of chat completions: the conversation as it is, but for what this server is known to refuse.

use std::collections::{HashSet, VecDeque};

use serde::Serialize;
use serde_json::{Map, Value as Json, json};

use super::{Body, is_native};
use crate::llm::message::{ChatMessage, call_arguments};
use crate::llm::rules::{ArgumentsForm, NullContent, Rules};

/// The body of a request for these fields.
pub(super) fn body(messages: &[ChatMessage], mut fields: Map<String, Json>, rules: &Rules) -> Body {
    #[derive(Serialize)]
    struct Request<'a> {
        // First, so that a request begins with the one before it.
        messages: &'a [ChatMessage],
        #[serde(flatten)]
        fields: &'a Map<String, Json>,
    }
    if fields.contains_key("stream") {
        fields.insert("stream_options".to_owned(), json!({"include_usage": true}));
    }
    for (name, value) in &rules.add {
        fields.entry(name.clone()).or_insert_with(|| value.clone());
    }
    rename_bound(&mut fields, rules);
    fields.retain(|name, _| !rules.omits(name));
    let (messages, adapted) = adapted(messages, rules);
    let bytes = serde_json::to_vec(&Request { messages: &messages, fields: &fields });
    Body { bytes: bytes.expect("JSON can be written"), adapted }
}

/// Gives the bound of the completion the name that the server knows.
fn rename_bound(fields: &mut Map<String, Json>, rules: &Rules) {
    let Some((name, other)) = rules.bound() else { return };
    if let Some(bound) = fields.shift_remove(other)
        && !fields.contains_key(name)
    {
        fields.insert(name.to_owned(), bound);
    }
}

/// The messages as this server takes them, and what of them is not as it came.
fn adapted(messages: &[ChatMessage], rules: &Rules) -> (Vec<ChatMessage>, Vec<String>) {
    let mut adapter = Adapter { rules, notes: Vec::new(), ids: VecDeque::new(), taken: HashSet::new() };
    let mut adapted = Vec::with_capacity(messages.len());
    for (at, message) in messages.iter().enumerate() {
        let follows_tool = at > 0 && messages[at - 1]["role"] == "tool";
        if let Some(text) =
            rules.user_after_tool.as_ref().filter(|_| follows_tool && message["role"] == "user")
        {
            adapter.note("a short reply stands between answers of tools and messages: the server wants one");
            adapted.push(json!({"role": "assistant", "content": text}).into());
        }
        adapted.push(adapter.message(at, message));
    }
    (adapted, adapter.notes)
}

/// Changes messages where a server would refuse them.
#[derive(Debug)]
struct Adapter<'a> {
    rules: &'a Rules,
    notes: Vec<String>,
    /// Ids for the answers to the calls of the message before that have got another one, in order.
    ids: VecDeque<Option<String>>,
    taken: HashSet<String>,
}

impl Adapter<'_> {
    fn note(&mut self, text: &str) {
        if !self.notes.iter().any(|note| note == text) {
            self.notes.push(text.to_owned());
        }
    }

    fn message(&mut self, at: usize, message: &ChatMessage) -> ChatMessage {
        match message["role"].as_str() {
            Some("assistant") => self.reply(at, message),
            Some("tool") => match self.ids.pop_front().flatten() {
                Some(id) => {
                    changed(message, |answer| drop(answer.insert("tool_call_id".to_owned(), id.into())))
                }
                None => message.clone(),
            },
            _ => message.clone(),
        }
    }

    fn reply(&mut self, at: usize, message: &ChatMessage) -> ChatMessage {
        self.ids.clear();
        let Json::Object(reply) = &**message else { return message.clone() };
        let mut new = reply.clone();
        self.fields(&mut new);
        self.content(&mut new);
        if let Some(Json::Array(calls)) = new.get_mut("tool_calls") {
            self.calls(at, calls);
        }
        if new == *reply { message.clone() } else { Json::Object(new).into() }
    }

    fn fields(&mut self, reply: &mut Map<String, Json>) {
        let rules = self.rules;
        for field in reply.iter().filter(|(_, value)| !value.is_null()).map(|(field, _)| field) {
            if rules.omits_of_replies(field) {
                self.note(&format!("`{field}` of replies is left out: the server refuses it"));
            }
        }
        reply.retain(|field, _| !is_native(field) && !rules.omits_of_replies(field));
    }

    /// No server takes a reply without calls and without content, and some take no null beside calls.
    fn content(&mut self, reply: &mut Map<String, Json>) {
        if !reply.get("content").is_none_or(Json::is_null) {
            return;
        }
        let has_calls =
            reply.get("tool_calls").and_then(Json::as_array).is_some_and(|calls| !calls.is_empty())
                || reply.get("function_call").is_some_and(Json::is_object);
        let is_refusal = reply.get("refusal").is_some_and(Json::is_string);
        let form = if has_calls || is_refusal { self.rules.null_content } else { Some(NullContent::Empty) };
        match form {
            None => {}
            Some(NullContent::Empty) => {
                self.note("`content` of replies without text is sent as \"\": the server refuses null");
                reply.insert("content".to_owned(), "".into());
            }
            Some(NullContent::Omit) => {
                self.note("`content` of replies without text is left out: the server refuses null");
                reply.shift_remove("content");
            }
        }
    }

    fn calls(&mut self, at: usize, calls: &mut [Json]) {
        for (number, call) in calls.iter_mut().enumerate() {
            if self.rules.fill_ids {
                let id = self.id(at, number, call);
                self.ids.push_back(id);
            }
            if let Some(call) = call.as_object_mut() {
                call.retain(|field, _| !self.rules.omits_of_calls(field));
            }
            if self.rules.arguments == Some(ArgumentsForm::Json) && !is_object(&call_arguments(call)) {
                self.note("arguments that are no JSON object are sent as {}: the server refuses others");
                if let Some(arguments) = call.pointer_mut("/function/arguments") {
                    *arguments = "{}".into();
                }
            }
            if let Some(call) = call.as_object_mut().filter(|_| number == 0) {
                for (field, value) in &self.rules.first_call_signature {
                    call.entry(field.clone()).or_insert_with(|| value.clone());
                }
            }
        }
    }

    /// Gives a call an id if it has none of its own, and returns it then.
    fn id(&mut self, at: usize, number: usize, call: &mut Json) -> Option<String> {
        let own = call["id"].as_str().unwrap_or_default();
        if !own.is_empty() && self.taken.insert(own.to_owned()) {
            return None;
        }
        self.note("calls without an id of their own get one: the server refuses them otherwise");
        let id = new_call_id(at, number);
        call.as_object_mut()?.insert("id".to_owned(), id.clone().into());
        Some(id)
    }
}

/// An id for a call of a model: nine letters and digits, since Mistral takes no others
/// (mistral-common, `validator.py`: "Tool call id was … but must be a-z, A-Z, 0-9, with a length of 9").
pub fn new_call_id(at: usize, number: usize) -> String {
    format!("c{:05}{:03}", at % 100_000, number % 1000)
}

fn changed(message: &ChatMessage, change: impl FnOnce(&mut Map<String, Json>)) -> ChatMessage {
    let mut new = (**message).clone();
    if let Some(fields) = new.as_object_mut() {
        change(fields);
    }
    new.into()
}

fn is_object(text: &str) -> bool {
    serde_json::from_str::<Map<String, Json>>(text).is_ok()
}
