//! Requests of chat completions: the conversation as it is, except for parts that the server is known to refuse.

use std::borrow::Cow;
use std::collections::{HashSet, VecDeque};

use serde::Serialize;
use serde_json::{Map, Value as Json, json};

use super::{Body, EMPTY_ARGUMENTS, is_native};
use crate::llm::forms::tool_named;
use crate::llm::message::{ChatMessage, is_plain_name, mend_arguments, says_nothing};
use crate::llm::rules::{ArgumentsForm, NullContent, Rules};

/// Fields that every function of a call has.
const FUNCTION: [&str; 2] = ["name", "arguments"];

/// Fields that ask for a reply in pieces, with its usage.
const STREAM_FIELDS: [&str; 2] = ["stream", "stream_options"];

/// The body of a request for these fields, which are not copied where the server takes them as they are.
pub(super) fn body(
    messages: &[ChatMessage],
    mut fields: Cow<'_, Map<String, Json>>,
    streams: bool,
    rules: &Rules,
) -> Body {
    #[derive(Serialize)]
    struct Request<'a> {
        // The messages come first, so that a request begins with the one before it.
        messages: &'a [ChatMessage],
        #[serde(flatten)]
        fields: &'a Map<String, Json>,
        #[serde(skip_serializing_if = "Option::is_none")]
        stream: Option<bool>,
        #[serde(skip_serializing_if = "Option::is_none")]
        stream_options: Option<Json>,
    }
    let of_user = fields.get("stream_options").cloned();
    rename_bound(&mut fields, rules);
    // A field of the same name is not sent twice.
    let is_left_out = |name: &str| rules.omits(name) || streams && STREAM_FIELDS.contains(&name);
    if fields.keys().any(|name| is_left_out(name)) {
        fields.to_mut().retain(|name, _| !is_left_out(name));
    }
    let [stream, stream_options] = STREAM_FIELDS.map(|name| streams && !rules.omits(name));
    let tools = fields.get("tools").and_then(Json::as_array).into_iter().flatten();
    let tools = tools.filter_map(|tool| tool["function"]["name"].as_str()).collect();
    let (messages, adapted) = adapted(messages, rules, tools);
    let bytes = serde_json::to_vec(&Request {
        messages: &messages,
        fields: &fields,
        stream: stream.then_some(true),
        stream_options: stream_options.then(|| with_usage(of_user)),
    });
    Body { bytes: bytes.expect("JSON can be written"), adapted }
}

/// The reply as one choice, where its calls are in another one than its text (GitHub Copilot's Claude, ericc-ch/copilot-api#81).
pub(super) fn reply(mut body: Json) -> Json {
    let choices = body.get_mut("choices").and_then(Json::as_array_mut);
    let Some([first, others @ ..]) = choices.map(Vec::as_mut_slice) else {
        return body;
    };
    let calls =
        |choice: &Json| choice["message"]["tool_calls"].as_array().is_some_and(|calls| !calls.is_empty());
    if first["finish_reason"] == "tool_calls"
        && !calls(first)
        && first["message"].is_object()
        && let Some(other) = others.iter_mut().find(|other| calls(other))
    {
        first["message"]["tool_calls"] = other["message"]["tool_calls"].take();
    }
    body
}

/// The options of a stream, which ends with its usage unless the user does not want that.
fn with_usage(of_user: Option<Json>) -> Json {
    let mut options = of_user.filter(Json::is_object).unwrap_or_else(|| json!({}));
    if let Some(options) = options.as_object_mut() {
        options.entry("include_usage").or_insert_with(|| true.into());
    }
    options
}

/// Gives the bound of the completion the name that the server knows.
fn rename_bound(fields: &mut Cow<'_, Map<String, Json>>, rules: &Rules) {
    let Some((name, other)) = rules.bound() else { return };
    if !fields.contains_key(other) {
        return;
    }
    let fields = fields.to_mut();
    if let Some(bound) = fields.shift_remove(other)
        && !fields.contains_key(name)
    {
        fields.insert(name.to_owned(), bound);
    }
}

/// The messages as this server takes them, and sentences on what was changed.
fn adapted(messages: &[ChatMessage], rules: &Rules, tools: Vec<&str>) -> (Vec<ChatMessage>, Vec<String>) {
    let mut adapter = Adapter::new(rules, tools);
    let mut adapted = Vec::with_capacity(messages.len());
    for (at, message) in messages.iter().enumerate() {
        if rules.omit_empty_replies && says_nothing(message) {
            adapter.note("replies without text and calls are left out: the server refuses them");
            continue;
        }
        let follows_tool = adapted.last().is_some_and(|before: &ChatMessage| before["role"] == "tool");
        if let Some(text) =
            rules.user_after_tool.as_ref().filter(|_| follows_tool && message["role"] == "user")
        {
            adapter.note("a short reply stands between answers of tools and messages: the server wants one");
            adapted.push(json!({"role": "assistant", "content": text}).into());
        }
        adapted.push(adapter.message(at, message));
    }
    let adapted = adapter.in_turns(adapted);
    (adapted, adapter.notes)
}

/// The messages with the roles and in the order that this server takes, and sentences on what was changed.
pub(super) fn in_turns<'a>(
    messages: &'a [ChatMessage],
    rules: &Rules,
) -> (Cow<'a, [ChatMessage]>, Vec<String>) {
    if !rules.changes_turns() {
        return (messages.into(), Vec::new());
    }
    let mut adapter = Adapter::new(rules, Vec::new());
    (adapter.in_turns(messages.to_vec()).into(), adapter.notes)
}

/// Changes the parts of messages that a server would refuse.
#[derive(Debug)]
struct Adapter<'a> {
    rules: &'a Rules,
    /// Names of the tools that the model may call.
    tools: Vec<&'a str>,
    notes: Vec<String>,
    /// New ids of the calls in the message before, for their answers, in order.
    ids: VecDeque<Option<String>>,
    /// Names of the tools that are called there, where their answers need them.
    names: VecDeque<Json>,
    taken: HashSet<String>,
}

impl<'a> Adapter<'a> {
    fn new(rules: &'a Rules, tools: Vec<&'a str>) -> Self {
        let (notes, ids, names, taken) = (Vec::new(), VecDeque::new(), VecDeque::new(), HashSet::new());
        Self { rules, tools, notes, ids, names, taken }
    }

    fn note(&mut self, text: &str) {
        if !self.notes.iter().any(|note| note == text) {
            self.notes.push(text.to_owned());
        }
    }

    fn message(&mut self, at: usize, message: &ChatMessage) -> ChatMessage {
        match message["role"].as_str() {
            Some("assistant") => self.reply(at, message),
            Some("tool") => self.answer(message),
            _ => message.clone(),
        }
    }

    fn answer(&mut self, message: &ChatMessage) -> ChatMessage {
        let (id, name) = (self.ids.pop_front().flatten(), self.names.pop_front());
        if id.is_none() && name.is_none() {
            return message.clone();
        }
        changed(message, |answer| {
            answer.extend(id.map(|id| ("tool_call_id".to_owned(), id.into())));
            if let Some(name) = name {
                self.note("answers of tools have the name of the tool: the server refuses them otherwise");
                answer.entry("name").or_insert(name);
            }
        })
    }

    fn reply(&mut self, at: usize, message: &ChatMessage) -> ChatMessage {
        self.ids.clear();
        let calls = message["tool_calls"].as_array().filter(|_| self.rules.name_answers);
        self.names = calls.into_iter().flatten().map(|call| call["function"]["name"].clone()).collect();
        let Json::Object(reply) = &**message else { return message.clone() };
        if !self.may_change(reply) {
            return message.clone();
        }
        let mut new = reply.clone();
        self.fields(&mut new);
        if self.omits_calls(&new) {
            self.note("`tool_calls` without calls is left out of replies: the server refuses an empty array");
            new.shift_remove("tool_calls");
        }
        self.content(&mut new, message);
        self.reasoning(&mut new);
        if let Some(Json::Array(calls)) = new.get_mut("tool_calls") {
            self.calls(at, calls);
        }
        if new == *reply { message.clone() } else { Json::Object(new).into() }
    }

    /// Checks without a copy, which would be one of the whole conversation for each request.
    fn may_change(&self, reply: &Map<String, Json>) -> bool {
        let has_calls = reply.contains_key("tool_calls");
        reply.keys().any(|field| is_native(field) || self.rules.omits_of_replies(field))
            || reply.get("content").is_none_or(Json::is_null)
                && (!has_calls || self.rules.null_content.is_some())
            || self.rules.fill_reasoning
            || has_calls && (self.rules.changes_calls() || self.omits_calls(reply))
    }

    fn omits_calls(&self, reply: &Map<String, Json>) -> bool {
        let is_empty = || reply.get("tool_calls").and_then(Json::as_array).is_some_and(Vec::is_empty);
        self.rules.omit_empty_calls && is_empty()
    }

    /// Joins what the user says to what the user, or a system prompt that the server refuses, has said before.
    fn in_turns(&mut self, messages: Vec<ChatMessage>) -> Vec<ChatMessage> {
        if !self.rules.changes_turns() {
            return messages;
        }
        let &Rules { join_users, system_as_user, .. } = self.rules;
        let mut turns: Vec<ChatMessage> = Vec::with_capacity(messages.len());
        let mut may_join = false;
        for mut message in messages {
            let is_system = matches!(message["role"].as_str(), Some("system" | "developer"));
            if is_system && system_as_user {
                self.note(
                    "the system prompt is sent in the first message of the user: the server refuses it",
                );
                message = changed(&message, |fields| drop(fields.insert("role".to_owned(), "user".into())));
            }
            let is_user = message["role"] == "user";
            match turns.last_mut().filter(|_| may_join && is_user) {
                Some(before) => {
                    if join_users {
                        self.note("messages of the user that follow each other are sent as one: the server wants that");
                    }
                    let content = joined(&before["content"], &message["content"]);
                    *before = changed(before, |fields| drop(fields.insert("content".to_owned(), content)));
                }
                None => turns.push(message),
            }
            may_join = is_user && (join_users || is_system);
        }
        turns
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

    /// Adapts the content of a reply: most servers take no null in one that says nothing, and some take none beside calls.
    fn content(&mut self, reply: &mut Map<String, Json>, message: &ChatMessage) {
        if !reply.get("content").is_none_or(Json::is_null) {
            return;
        }
        let form = if says_nothing(message) { Some(NullContent::Empty) } else { self.rules.null_content };
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

    fn reasoning(&mut self, reply: &mut Map<String, Json>) {
        if self.rules.fill_reasoning && reply.get("reasoning_content").is_none_or(Json::is_null) {
            self.note(
                "`reasoning_content` of replies without one is a blank: the server refuses them otherwise",
            );
            reply.insert("reasoning_content".to_owned(), " ".into());
        }
    }

    fn calls(&mut self, at: usize, calls: &mut [Json]) {
        for (number, call) in calls.iter_mut().enumerate() {
            if self.rules.fill_ids || self.rules.new_ids {
                let id = self.id(at, number, call);
                self.ids.push_back(id);
            }
            if let Some(call) = call.as_object_mut() {
                call.retain(|field, _| !self.rules.omits_of_calls(field));
                if let Some(Json::Object(function)) = call.get_mut("function") {
                    function.retain(|field, _| {
                        FUNCTION.contains(&field.as_str()) || !self.rules.omits_of_calls(field)
                    });
                }
            }
            if self.rules.plain_names {
                self.name(call);
            }
            if self.rules.arguments == Some(ArgumentsForm::Json) && mend_arguments(call) {
                self.note(EMPTY_ARGUMENTS);
            }
            if let Some(call) = call.as_object_mut().filter(|_| number == 0) {
                for (field, value) in &self.rules.first_call_signature {
                    call.entry(field.clone()).or_insert_with(|| value.clone());
                }
            }
        }
    }

    /// Gives a call the name of the tool that it means, or one that servers take.
    fn name(&mut self, call: &mut Json) {
        let written = call["function"]["name"].as_str().unwrap_or_default();
        if is_plain_name(written) {
            return;
        }
        let is_plain = |char: &char| char.is_ascii_alphanumeric() || "_-".contains(*char);
        let plain = || match written.chars().filter(is_plain).take(64).collect::<String>() {
            name if name.is_empty() => "unknown".to_owned(),
            name => name,
        };
        let name = tool_named(written, &self.tools).map_or_else(plain, str::to_owned);
        if let Some(Json::Object(function)) = call.get_mut("function") {
            function.insert("name".to_owned(), name.into());
            self.note("names of functions have letters, digits, _ and - alone: the server refuses others");
        }
    }

    /// Gives a call an id if it has none of its own, or the server refuses that, and returns the new id.
    fn id(&mut self, at: usize, number: usize, call: &mut Json) -> Option<String> {
        let own = call["id"].as_str().unwrap_or_default();
        if self.rules.new_ids {
            self.note("calls get ids of ours: the server refuses those that came");
        } else if !own.is_empty() && self.taken.insert(own.to_owned()) {
            return None;
        } else {
            self.note("calls without an id of their own get one: the server refuses them otherwise");
        }
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

/// Two contents as one: texts with a blank line between them, or the parts of both.
fn joined(first: &Json, second: &Json) -> Json {
    if let (Json::String(first), Json::String(second)) = (first, second) {
        return format!("{first}\n\n{second}").into();
    }
    let parts = |content: &Json| match content {
        Json::Array(parts) => parts.clone(),
        text => vec![json!({"type": "text", "text": text})],
    };
    [parts(first), parts(second)].concat().into()
}

#[cfg(test)]
mod tests;
