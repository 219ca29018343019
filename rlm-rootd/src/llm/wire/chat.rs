//! Requests of chat completions: the conversation as it is, except for parts that the server is known to refuse.

use std::borrow::Cow;
use std::collections::{HashSet, VecDeque};

use serde::Serialize;
use serde_json::{Map, Value as Json, json};

use super::{Body, is_native};
use crate::llm::message::{ChatMessage, call_arguments};
use crate::llm::rules::{ArgumentsForm, NullContent, Rules};

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
    let (messages, adapted) = adapted(messages, rules);
    let bytes = serde_json::to_vec(&Request {
        messages: &messages,
        fields: &fields,
        stream: stream.then_some(true),
        stream_options: stream_options.then(|| with_usage(of_user)),
    });
    Body { bytes: bytes.expect("JSON can be written"), adapted }
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
    let adapted = adapter.in_turns(adapted);
    (adapted, adapter.notes)
}

/// Changes the parts of messages that a server would refuse.
#[derive(Debug)]
struct Adapter<'a> {
    rules: &'a Rules,
    notes: Vec<String>,
    /// New ids of the calls in the message before, for their answers, in order.
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
        if !self.may_change(reply) {
            return message.clone();
        }
        let mut new = reply.clone();
        self.fields(&mut new);
        self.content(&mut new);
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
            || has_calls && self.rules.changes_calls()
    }

    /// Joins what the user says to what the user, or a system prompt that the server refuses, has said before.
    fn in_turns(&mut self, messages: Vec<ChatMessage>) -> Vec<ChatMessage> {
        let &Rules { join_users, system_as_user, .. } = self.rules;
        if !join_users && !system_as_user {
            return messages;
        }
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

    /// Adapts the content of a reply: no server takes one without calls and content, and some take no null beside calls.
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

    /// Gives a call an id if it has none of its own, and returns the new id.
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

fn is_object(text: &str) -> bool {
    serde_json::from_str::<Map<String, Json>>(text).is_ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// JSON of any kind, a few levels deep.
    fn json() -> impl Strategy<Value = Json> {
        let leaf = prop_oneof![
            Just(Json::Null),
            any::<bool>().prop_map(Json::from),
            any::<i64>().prop_map(Json::from),
            any::<f64>().prop_map(Json::from),
            ".{0,12}".prop_map(Json::from),
        ];
        leaf.prop_recursive(3, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Json::from),
                fields(inner).prop_map(Json::from)
            ]
        })
    }

    fn fields(value: impl Strategy<Value = Json>) -> impl Strategy<Value = Map<String, Json>> {
        prop::collection::vec(("[a-z_]{1,9}", value), 0..4).prop_map(|fields| fields.into_iter().collect())
    }

    /// Calls with ids and arguments of every kind.
    fn call() -> impl Strategy<Value = Json> {
        let id = prop_oneof![
            Just(Json::Null),
            Just(json!("")),
            Just(json!("a")),
            "[a-z:.0-9]{1,40}".prop_map(Json::from)
        ];
        let text = prop_oneof![
            Just("{\"code\":  \"x\"}\n".to_owned()),
            Just("{\"code".to_owned()),
            ".{0,20}".boxed()
        ];
        let arguments = prop_oneof![text.prop_map(Json::from), json()];
        (id, "[a-z_.:0-9]{0,12}", arguments, fields(json())).prop_map(|(id, name, arguments, others)| {
            let mut call = Map::from_iter([("id".to_owned(), id), ("type".to_owned(), "function".into())]);
            call.insert("function".to_owned(), json!({"name": name, "arguments": arguments}));
            for (name, value) in others {
                call.entry(name).or_insert(value);
            }
            call.into()
        })
    }

    fn reply() -> impl Strategy<Value = Json> {
        let content = prop_oneof![
            Just(Json::Null),
            ".{0,40}".prop_map(Json::from),
            prop::collection::vec(json(), 0..3).prop_map(Json::from)
        ];
        (content, prop::collection::vec(call(), 0..4), fields(json())).prop_map(|(content, calls, others)| {
            let mut reply =
                Map::from_iter([("role".to_owned(), json!("assistant")), ("content".to_owned(), content)]);
            if !calls.is_empty() {
                reply.insert("tool_calls".to_owned(), calls.into());
            }
            for (name, value) in others {
                reply.entry(name).or_insert(value);
            }
            reply.into()
        })
    }

    fn sent(messages: &[Json], rules: &Rules) -> (Vec<Json>, Vec<String>) {
        let messages: Vec<ChatMessage> = messages.iter().cloned().map(Into::into).collect();
        let Body { bytes, adapted } = body(&messages, Cow::Owned(Map::new()), false, rules);
        let mut body: Json = serde_json::from_slice(&bytes).unwrap();
        (serde_json::from_value(body["messages"].take()).unwrap(), adapted)
    }

    proptest! {
        #[test]
        fn any_reply_goes_back_as_it_came(reply in reply(), answer in json()) {
            let answer = json!({"role": "tool", "tool_call_id": "a", "content": answer});
            let (sent, adapted) = sent(&[json!({"role": "user", "content": "?"}), reply.clone(), answer.clone()], &Rules::default());
            let mut expected = reply;
            let is_empty = expected["content"].is_null() && expected.get("tool_calls").is_none();
            if is_empty && expected["refusal"].as_str().is_none() && !expected["function_call"].is_object() {
                expected["content"] = "".into();
            }
            prop_assert_eq!(&sent[1..], &[expected, answer]);
            prop_assert_eq!(adapted.is_empty(), !is_empty || sent[1]["content"].is_null());
        }
    }

    /// A rule of a server by its name.
    fn rules(name: &str) -> Rules {
        Rules::named(name, "m").unwrap()
    }

    #[test]
    fn a_request_begins_with_the_one_before() {
        let messages: Vec<ChatMessage> = [
            json!({"role": "system", "content": "s"}),
            json!({"role": "user", "content": "q"}),
            json!({"role": "assistant", "content": "a", "x": 1.50}),
            json!({"role": "user", "content": "more"}),
        ]
        .map(Into::into)
        .into();
        let bytes = |count: usize| {
            let bytes = body(&messages[..count], Cow::Owned(Map::new()), false, &Rules::default()).bytes;
            String::from_utf8(bytes).unwrap().trim_end_matches("]}").to_owned()
        };
        assert!(bytes(4).starts_with(&bytes(2)));
    }

    #[test]
    fn what_a_server_refuses_is_not_sent_and_said() {
        let call = json!({"id": "", "type": "function", "function": {"name": "f", "arguments": "{\"cut"}, "index": 0, "x": 1});
        let reply = json!({"role": "assistant", "content": null, "reasoning_content": "hm", "tool_calls": [call, call]});
        let answers = [1, 2].map(|at| json!({"role": "tool", "tool_call_id": "", "content": at.to_string()}));
        let [one, two] = answers.clone();
        let conversation = [reply, one, two, json!({"role": "user", "content": "go on"})];
        let (mistral, adapted) = sent(&conversation, &rules("mistral"));
        let function = json!({"name": "f", "arguments": "{\"cut"});
        let call = |id: &str| json!({"id": id, "type": "function", "function": function, "index": 0});
        assert_eq!(
            mistral,
            [
                json!({"role": "assistant", "content": null, "tool_calls": [call("c00000000"), call("c00000001")]}),
                json!({"role": "tool", "tool_call_id": "c00000000", "content": "1"}),
                json!({"role": "tool", "tool_call_id": "c00000001", "content": "2"}),
                json!({"role": "assistant", "content": "Ok."}),
                json!({"role": "user", "content": "go on"}),
            ]
        );
        assert_eq!(
            adapted,
            [
                "`reasoning_content` of replies is left out: the server refuses it",
                "calls without an id of their own get one: the server refuses them otherwise",
                "a short reply stands between answers of tools and messages: the server wants one",
            ]
        );
        let (ollama, adapted) = sent(&conversation, &rules("ollama"));
        assert_eq!(ollama[0]["tool_calls"][0]["function"]["arguments"], "{}");
        assert_eq!(
            adapted,
            [
                "`content` of replies without text is sent as \"\": the server refuses null",
                "arguments that are no JSON object are sent as {}: the server refuses others",
            ]
        );
        let (deepseek, _) = sent(&conversation, &rules("deepseek"));
        assert_eq!((&deepseek[0]["content"], &deepseek[0]["reasoning_content"]), (&json!(""), &json!("hm")));
        let (gemini, _) = sent(&conversation, &rules("gemini"));
        let signature =
            |at: usize| gemini[0]["tool_calls"][at].pointer("/extra_content/google/thought_signature");
        assert_eq!((signature(0), signature(1)), (Some(&json!("skip_thought_signature_validator")), None));
    }

    #[test]
    fn a_conversation_has_the_turns_that_the_server_takes() {
        let user = |content: Json| json!({"role": "user", "content": content});
        let reply = json!({"role": "assistant", "content": "a"});
        let image = json!({"type": "image_url", "image_url": {"url": "data:"}});
        let conversation = [
            json!({"role": "system", "content": "s"}),
            user(json!("q")),
            user(json!("r")),
            reply.clone(),
            user(json!("t")),
            user(json!([image])),
        ];
        let joined = user(json!([{"type": "text", "text": "t"}, image]));
        let rules = |join_users, system_as_user| Rules { join_users, system_as_user, ..Rules::default() };
        let [system, first, second, ..] = conversation.clone();
        let (both, adapted) = sent(&conversation, &rules(true, true));
        assert_eq!(both, [user(json!("s\n\nq\n\nr")), reply.clone(), joined.clone()]);
        assert_eq!(adapted.len(), 2, "{adapted:?}");
        let (users, _) = sent(&conversation, &rules(true, false));
        assert_eq!(users, [system, user(json!("q\n\nr")), reply, joined]);
        let (prompt, adapted) = sent(&conversation, &rules(false, true));
        assert_eq!((&prompt[0], &prompt[1]), (&user(json!("s\n\nq")), &second));
        assert_eq!((prompt.len(), adapted.len()), (5, 1), "{adapted:?}");
        assert_eq!(sent(&conversation, &Rules::default()).0[1], first);
    }

    #[test]
    fn options_of_a_stream_are_joined_to_those_of_the_user() {
        let options = |of_user: Json| {
            let fields = Map::from_iter([("stream_options".to_owned(), of_user)]);
            let body = body(&[], Cow::Owned(fields), true, &Rules::default());
            serde_json::from_slice::<Json>(&body.bytes).unwrap()["stream_options"].clone()
        };
        let kept = options(json!({"include_obfuscation": false}));
        assert_eq!(kept, json!({"include_obfuscation": false, "include_usage": true}));
        assert_eq!(options(json!({"include_usage": false})), json!({"include_usage": false}));
        assert_eq!(options(Json::Null), json!({"include_usage": true}));
    }

    #[test]
    fn the_bound_has_the_name_that_the_server_knows() {
        let bound = |name: &str, fields: Json| {
            let Json::Object(fields) = fields else { unreachable!() };
            let streams = fields.contains_key("stream");
            let bytes = body(&[], Cow::Owned(fields), streams, &rules(name)).bytes;
            String::from_utf8(bytes).unwrap()
        };
        assert_eq!(bound("openai", json!({"max_tokens": 7})), r#"{"messages":[],"max_completion_tokens":7}"#);
        assert_eq!(bound("ollama", json!({"max_completion_tokens": 7})), r#"{"messages":[],"max_tokens":7}"#);
        let both = json!({"max_tokens": 7, "max_completion_tokens": 8});
        assert_eq!(bound("openai", both), r#"{"messages":[],"max_completion_tokens":8}"#);
        assert_eq!(bound("vllm", json!({"max_tokens": 7})), r#"{"messages":[],"max_tokens":7}"#);
        assert_eq!(bound("mistral", json!({"stream": true})), r#"{"messages":[],"stream":true}"#);
    }
}
