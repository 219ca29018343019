//! OpenAI's Responses API, between chat form and native form.
//!
//! A reply's message keeps its native items in the field `responses`, and the next request sends them back unchanged: only
//! they have the model's reasoning. Requests are stateless: the server stores nothing, and each request has the whole
//! conversation. The input of a request begins with that of the one before, so that servers can cache it.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value as Json, json};

use super::{Body, parts_left_out};
use crate::llm::message::{ChatMessage, Form, call_arguments, message_text};
use crate::llm::rules::Rules;

/// Smallest bound of a completion that OpenAI accepts.
const LEAST_OUTPUT_TOKENS: u64 = 16;

/// Outputs that a request has to ask for, in `include`.
const ENCRYPTED_REASONING: &str = "reasoning.encrypted_content";
const LOGPROBS: &str = "message.output_text.logprobs";

/// Native names of token counts, and their names in the chat form. The details have the same fields in both.
const COUNTS: [(&str, &str); 4] = [
    ("input_tokens", "prompt_tokens"),
    ("output_tokens", "completion_tokens"),
    ("input_tokens_details", "prompt_tokens_details"),
    ("output_tokens_details", "completion_tokens_details"),
];

/// Separator of the texts of two items.
const PARAGRAPH: &str = "\n\n";

/// The body of the request for these fields and messages.
pub(super) fn request(
    fields: &Map<String, Json>,
    messages: &[ChatMessage],
    form: Form,
    rules: &Rules,
) -> Body {
    #[derive(Serialize)]
    struct Request<'a> {
        #[serde(flatten)]
        fields: Map<String, Json>,
        input: Vec<&'a RawValue>,
    }
    let mut body = Map::new();
    fields.iter().filter(|(_, value)| !value.is_null()).for_each(|field| add_field(&mut body, field));
    body.entry("store").or_insert_with(|| false.into());
    include(&mut body, ENCRYPTED_REASONING);
    let messages = after_instructions(&mut body, messages);
    body.retain(|name, _| !rules.omits(name));
    let items: Vec<_> = messages.iter().map(|message| message.parts(form, items)).collect();
    let input = items.iter().flat_map(|items| items.iter()).map(|item| &*item.text).collect();
    let bytes = serde_json::to_vec(&Request { fields: body, input }).expect("JSON can be written");
    Body { bytes, adapted: parts_left_out(messages, &items, form) }
}

/// Adds a field of the chat form.
///
/// Fields that Responses does not have (`stop`, `seed`, `logit_bias`) are sent unchanged: vLLM and llama.cpp take them all
/// the same, and OpenAI refuses them by name. Leaving them out would change the sampling without a word.
fn add_field(body: &mut Map<String, Json>, (name, value): (&String, &Json)) {
    let value = match name.as_str() {
        "max_tokens" | "max_completion_tokens" => return bound(body, value),
        "reasoning_effort" => return set(body, "reasoning", "effort", value.clone()),
        "verbosity" => return set(body, "text", "verbosity", value.clone()),
        "response_format" => return set(body, "text", "format", flat(value)),
        "logprobs" if *value == true => return include(body, LOGPROBS),
        // A response always has its usage, and is always one choice.
        "logprobs" | "n" | "stream_options" => return,
        "include" => return strings(value).for_each(|name| include(body, name)),
        "reasoning" | "text" if value.is_object() => {
            let inner = value.as_object().into_iter().flatten();
            return inner.for_each(|(field, value)| set(body, name, field, value.clone()));
        }
        "tools" => each(value, tool),
        "tool_choice" => flat(value),
        _ => value.clone(),
    };
    body.insert(name.clone(), value);
}

fn strings(list: &Json) -> impl Iterator<Item = &str> {
    list.as_array().into_iter().flatten().filter_map(Json::as_str)
}

/// Bounds the completion. The smallest of several bounds holds.
fn bound(body: &mut Map<String, Json>, value: &Json) {
    let before = body.get("max_output_tokens").and_then(Json::as_u64).unwrap_or(u64::MAX);
    let bound = value.as_u64().map(|tokens| tokens.min(before).max(LEAST_OUTPUT_TOKENS));
    body.insert("max_output_tokens".to_owned(), bound.map_or_else(|| value.clone(), Json::from));
}

/// Adds a name to `include`.
fn include(body: &mut Map<String, Json>, name: &str) {
    if let Json::Array(names) = body.entry("include").or_insert_with(|| json!([]))
        && !names.iter().any(|old| old == name)
    {
        names.push(name.into());
    }
}

/// Sets a field of an object in the body.
fn set(body: &mut Map<String, Json>, object: &str, field: &str, value: Json) {
    if let Json::Object(fields) = body.entry(object).or_insert_with(|| json!({})) {
        fields.insert(field.to_owned(), value);
    }
}

/// A list with each item changed. Other values are returned as they are.
fn each(list: &Json, change: impl Fn(&Json) -> Json) -> Json {
    list.as_array().map_or_else(|| list.clone(), |items| items.iter().map(change).collect())
}

/// An object whose fields the chat form nests under the name of its type, without that level.
fn flat(value: &Json) -> Json {
    let (Some(fields), Some(kind)) = (value.as_object(), value["type"].as_str()) else {
        return value.clone();
    };
    let mut flat = Map::new();
    for (name, value) in fields {
        match value {
            Json::Object(inner) if name == kind => flat.extend(inner.clone()),
            _ => flat.extend([(name.clone(), value.clone())]),
        }
    }
    flat.into()
}

/// A tool. Here a function must have parameters, and is strict by default.
fn tool(tool: &Json) -> Json {
    let mut flat = flat(tool);
    if let Json::Object(fields) = &mut flat
        && fields.get("type").is_some_and(|kind| kind == "function")
    {
        fields.entry("parameters").or_insert_with(|| json!({"type": "object", "properties": {}}));
        fields.entry("strict").or_insert_with(|| false.into());
    }
    flat
}

/// Moves a leading system message to `instructions`, and returns the other messages.
///
/// No role of an input item suits all servers: OpenAI's ChatGPT backend refuses `system`, and the chat templates behind vLLM,
/// Ollama and llama.cpp do not know `developer`. All take `instructions`, and begin the prompt with it, so that caches work.
fn after_instructions<'a>(body: &mut Map<String, Json>, messages: &'a [ChatMessage]) -> &'a [ChatMessage] {
    match messages {
        // An input must not be empty.
        [first, rest @ ..] if !rest.is_empty() && !body.contains_key("instructions") && is_system(first) => {
            let text = message_text(first).unwrap_or_default();
            if !text.trim().is_empty() {
                body.insert("instructions".to_owned(), text.into());
            }
            rest
        }
        _ => messages,
    }
}

fn is_system(message: &Json) -> bool {
    matches!(message["role"].as_str(), Some("system" | "developer"))
}

/// The items of a message.
fn items(message: &Json, form: Form) -> Vec<Json> {
    let content = || content(&message["content"]);
    match message["role"].as_str() {
        Some("assistant") => match message.pointer("/responses/output") {
            Some(Json::Array(output)) if form.has_native => sendable(output).cloned().collect(),
            _ => assistant_items(message),
        },
        Some("tool") => vec![json!({
            "type": "function_call_output", "call_id": message["tool_call_id"], "output": content(),
        })],
        _ => vec![json!({"role": message["role"], "content": content()})],
    }
}

/// The items of a reply, without reasoning that OpenAI refuses: at the end, where a reply ran out of tokens, it is "without its
/// required following item"; and with nothing in it but an id, it refers to what the server has not stored.
fn sendable(output: &[Json]) -> impl Iterator<Item = &Json> {
    let is_reasoning = |item: &Json| item["type"] == "reasoning";
    let end = output.iter().rposition(|item| !is_reasoning(item)).map_or(0, |last| last + 1);
    let is_bare =
        |item: &Json| ["encrypted_content", "content", "summary"].iter().all(|field| is_empty(&item[*field]));
    output[..end].iter().filter(move |item| !(is_reasoning(item) && is_bare(item)))
}

fn is_empty(value: &Json) -> bool {
    value.is_null() || *value == "" || value.as_array().is_some_and(Vec::is_empty)
}

/// The items of an assistant's message that has no native ones.
fn assistant_items(message: &Json) -> Vec<Json> {
    let text = message_text(message).unwrap_or_default();
    // Elsewhere the type is optional, but llama.cpp refuses an assistant's item without it.
    let text =
        (!text.trim().is_empty()).then(|| json!({"type": "message", "role": "assistant", "content": text}));
    let calls = message["tool_calls"].as_array().into_iter().flatten().map(|call| {
        json!({
            "type": "function_call", "call_id": call["id"], "name": call["function"]["name"],
            "arguments": call_arguments(call),
        })
    });
    text.into_iter().chain(calls).collect()
}

fn content(content: &Json) -> Json {
    match content {
        Json::Null => "".into(),
        _ => each(content, part),
    }
}

/// A part of a content. Parts of unknown types are returned as they are.
fn part(part: &Json) -> Json {
    let native = match part["type"].as_str() {
        Some("text") => "input_text",
        Some("image_url") => "input_image",
        Some("file") => "input_file",
        _ => return part.clone(),
    };
    let mut part = flat(part);
    if native == "input_image"
        && let Json::Object(fields) = &mut part
    {
        fields.entry("detail").or_insert_with(|| "auto".into());
        if let Some(url) = fields.shift_remove("url") {
            fields.insert("image_url".to_owned(), url);
        }
    }
    part["type"] = native.into();
    part
}

/// The reply as a chat completion. If the response failed, a body that has only its `error`.
///
/// # Errors
/// A sentence on what is malformed.
pub(super) fn reply(native: Json) -> Result<Json, String> {
    let Json::Object(mut native) = native else { return Err("it is not an object".to_owned()) };
    native.retain(|_, value| !value.is_null());
    let status = native.get("status").and_then(Json::as_str).unwrap_or("completed");
    match (native.get("error"), status) {
        (Some(error), _) => return Ok(json!({"error": error})),
        (None, "failed") => return Ok(json!({"error": {"message": "the response failed without an error"}})),
        (None, "completed" | "incomplete") => {}
        (None, _) => return Err(format!("its status is {status}, not completed")),
    }
    let Some(Json::Array(output)) = native.get_mut("output").map(Json::take) else {
        return Err("it has no list of output items".to_owned());
    };
    let finish_reason = finish_reason(&native, &output);
    let mut take = |name: &str| native.shift_remove(name);
    let mut choice = Map::from_iter([("index".to_owned(), 0.into())]);
    choice.extend(logprobs(&output).map(|logprobs| ("logprobs".to_owned(), logprobs)));
    choice.insert("message".to_owned(), message(output));
    choice.insert("finish_reason".to_owned(), finish_reason.into());
    let mut body = Map::new();
    for (name, chat) in [("id", "id"), ("created_at", "created"), ("model", "model")] {
        body.extend(take(name).map(|value| (chat.to_owned(), value)));
    }
    body.insert("object".to_owned(), "chat.completion".into());
    body.insert("choices".to_owned(), json!([choice]));
    body.extend(take("usage").map(|counts| ("usage".to_owned(), usage(counts))));
    Ok(body.into())
}

/// The finish reason. That of an incomplete response comes first: its calls may be cut off as well.
fn finish_reason(native: &Map<String, Json>, output: &[Json]) -> &'static str {
    let is_incomplete = native.get("status").is_some_and(|status| status == "incomplete");
    let reason = native.get("incomplete_details").map(|details| &details["reason"]);
    match reason.and_then(Json::as_str) {
        Some("content_filter") if is_incomplete => "content_filter",
        _ if is_incomplete => "length",
        _ if output.iter().any(|item| item["type"] == "function_call") => "tool_calls",
        _ => "stop",
    }
}

/// The message that these items make.
fn message(output: Vec<Json>) -> Json {
    let of_kind = |kind: &'static str| output.iter().filter(move |item| item["type"] == kind);
    let texts = |kind, field| of_kind("message").map(move |item| joined(&item["content"], kind, field, ""));
    let content = paragraphs(texts("output_text", "text"));
    let mut message =
        Map::from_iter([("role".to_owned(), "assistant".into()), ("content".to_owned(), content.into())]);
    let mut add =
        |name: &str, value: Option<Json>| message.extend(value.map(|value| (name.to_owned(), value)));
    add("refusal", paragraphs(texts("refusal", "refusal")).map(Json::from));
    add("reasoning_content", paragraphs(of_kind("reasoning").map(thoughts)).map(Json::from));
    let calls: Vec<Json> = of_kind("function_call").map(call).collect();
    add("tool_calls", (!calls.is_empty()).then(|| calls.into()));
    add("responses", Some(json!({"output": output})));
    message.into()
}

/// The text of a reasoning item, or else its summary.
fn thoughts(item: &Json) -> String {
    let text = joined(&item["content"], "reasoning_text", "text", "");
    if text.is_empty() { joined(&item["summary"], "summary_text", "text", PARAGRAPH) } else { text }
}

fn call(item: &Json) -> Json {
    json!({
        "id": item["call_id"], "type": "function",
        "function": {"name": item["name"], "arguments": item["arguments"]},
    })
}

/// The texts in one field of all parts of a type.
fn joined(parts: &Json, kind: &str, field: &str, between: &str) -> String {
    let parts = parts.as_array().into_iter().flatten().filter(|part| part["type"] == kind);
    parts.filter_map(|part| part[field].as_str()).collect::<Vec<_>>().join(between)
}

/// The texts that are not empty. None if all are.
fn paragraphs(texts: impl Iterator<Item = String>) -> Option<String> {
    let texts: Vec<String> = texts.filter(|text| !text.is_empty()).collect();
    (!texts.is_empty()).then(|| texts.join(PARAGRAPH))
}

/// The log probabilities of all texts, as a choice has them. None if there are none.
fn logprobs(output: &[Json]) -> Option<Json> {
    let parts = output.iter().filter_map(|item| item["content"].as_array()).flatten();
    let tokens: Vec<&Json> = parts.filter_map(|part| part["logprobs"].as_array()).flatten().collect();
    (!tokens.is_empty()).then(|| json!({"content": tokens}))
}

/// Token counts under their names in the chat form. Further fields, such as costs, are kept.
fn usage(native: Json) -> Json {
    let Json::Object(native) = native else { return native };
    let renamed = native.into_iter().map(|(name, value)| {
        let chat = COUNTS.iter().find(|(native, _)| *native == name).map(|(_, chat)| (*chat).to_owned());
        (chat.unwrap_or(name), value)
    });
    renamed.collect()
}

/// Events of a stream, joined to the response that the same server would send whole.
#[derive(Debug, Default)]
pub(super) struct Events {
    /// Finished items by their index in the output.
    items: BTreeMap<u64, Json>,
    /// The response of the event that ends the stream.
    response: Option<Map<String, Json>>,
}

impl Events {
    /// Adds the data of an event. Pieces of items are ignored, since each finished item comes whole.
    pub(super) fn add(&mut self, mut event: Json) {
        let kind = event["type"].as_str().unwrap_or_default().to_owned();
        match kind.strip_prefix("response.") {
            Some("output_item.done") if event["item"].is_object() => {
                let next = self.items.last_key_value().map_or(0, |(last, _)| last + 1);
                self.items.insert(event["output_index"].as_u64().unwrap_or(next), event["item"].take());
            }
            Some(status @ ("completed" | "incomplete" | "failed")) => {
                let Json::Object(mut response) = event["response"].take() else { return };
                response.entry("status").or_insert_with(|| status.into());
                self.response = Some(response);
            }
            _ => {}
        }
    }

    /// True if the response has ended.
    pub(super) fn is_whole(&self) -> bool {
        self.response.is_some()
    }

    /// The native response. Where its last event has no output, as from OpenAI's ChatGPT backend, the finished items are the
    /// output.
    pub(super) fn into_body(self) -> Json {
        let unfinished = || Map::from_iter([("status".to_owned(), "in_progress".into())]);
        let mut response = self.response.unwrap_or_else(unfinished);
        let has_output =
            response.get("output").and_then(Json::as_array).is_some_and(|items| !items.is_empty());
        if !has_output {
            response.insert("output".to_owned(), self.items.into_values().collect());
        }
        response.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::llm::api::Api;

    fn request_of(fields: Json, messages: &[Json]) -> Json {
        let Json::Object(fields) = fields else { panic!("fields are an object") };
        let messages: Vec<ChatMessage> = messages.iter().cloned().map(ChatMessage::from).collect();
        let form = Form { api: Api::Responses, has_native: true };
        serde_json::from_slice(&request(&fields, &messages, form, &Rules::default()).bytes)
            .expect("a body is JSON")
    }

    fn input_of(messages: &[Json]) -> Json {
        request_of(json!({}), messages)["input"].clone()
    }

    /// The message of a reply whose output has these items.
    fn message_of(output: Json) -> Json {
        reply(json!({"output": output})).unwrap()["choices"][0]["message"].take()
    }

    fn chat_fields() -> Json {
        json!({
            "model": "gpt-5.6-terra",
            "tools": [
                {"type": "function", "function": {"name": "call_python_repl", "description": "Runs code.", "parameters": {
                    "type": "object", "properties": {"code": {"type": "string"}}, "required": ["code"],
                }}},
                {"type": "function", "function": {"name": "stop", "strict": true}},
                {"type": "web_search"},
            ],
            "tool_choice": {"type": "function", "function": {"name": "call_python_repl"}},
            "max_completion_tokens": 9000, "max_tokens": 8000,
            "reasoning_effort": "high", "reasoning": {"summary": "auto"},
            "response_format": {"type": "json_schema", "json_schema": {
                "name": "answer", "strict": true, "schema": {"type": "object"},
            }},
            "verbosity": "low",
            "logprobs": true, "top_logprobs": 2,
            "stream": true, "stream_options": {"include_usage": true},
            "n": 1, "temperature": 0.5, "top_p": null,
            "parallel_tool_calls": false, "prompt_cache_key": "rollout-1", "metadata": {"run": "7"}, "service_tier": "flex",
        })
    }

    fn request_with_all_fields() -> Json {
        json!({
            "model": "gpt-5.6-terra",
            "tools": [
                {"type": "function", "name": "call_python_repl", "description": "Runs code.", "parameters": {
                    "type": "object", "properties": {"code": {"type": "string"}}, "required": ["code"],
                }, "strict": false},
                {"type": "function", "name": "stop", "strict": true, "parameters": {"type": "object", "properties": {}}},
                {"type": "web_search"},
            ],
            "tool_choice": {"type": "function", "name": "call_python_repl"},
            "max_output_tokens": 8000,
            "reasoning": {"effort": "high", "summary": "auto"},
            "text": {
                "format": {"type": "json_schema", "name": "answer", "strict": true, "schema": {"type": "object"}},
                "verbosity": "low",
            },
            "include": ["message.output_text.logprobs", "reasoning.encrypted_content"],
            "top_logprobs": 2,
            "stream": true, "temperature": 0.5,
            "parallel_tool_calls": false, "prompt_cache_key": "rollout-1", "metadata": {"run": "7"}, "service_tier": "flex",
            "store": false,
            "input": [{"role": "user", "content": "Hi"}],
        })
    }

    #[test]
    fn fields_go_where_responses_has_them() {
        let body = request_of(chat_fields(), &[json!({"role": "user", "content": "Hi"})]);
        assert_eq!(body, request_with_all_fields());
    }

    #[test]
    fn a_bound_is_never_below_the_least() {
        let bound = |fields: Json| request_of(fields, &[])["max_output_tokens"].clone();
        assert_eq!(bound(json!({"max_tokens": 5})), 16);
        assert_eq!(bound(json!({"max_tokens": 17, "max_completion_tokens": 3})), 16);
        assert_eq!(bound(json!({"max_completion_tokens": 17, "max_tokens": null})), 17);
        assert_eq!(bound(json!({"max_tokens": "many"})), "many");
        assert_eq!(bound(json!({"max_output_tokens": 1})), 1);
        assert_eq!(bound(json!({})), Json::Null);
    }

    #[test]
    fn what_responses_has_no_field_for_is_left_to_the_server() {
        let include = json!(["reasoning.encrypted_content"]);
        let fields = json!({
            "stop": ["END"], "seed": 7, "store": true, "include": include, "logprobs": false, "tool_choice": "auto", "text": {},
        });
        let expected = json!({
            "stop": ["END"], "seed": 7, "store": true, "include": include, "tool_choice": "auto", "input": [],
        });
        assert_eq!(request_of(fields, &[]), expected);
    }

    fn chat_messages() -> Json {
        json!([
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": [
                {"type": "text", "text": "Look."},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}},
                {"type": "image_url", "image_url": {"url": "https://example.org/a.png", "detail": "low"}},
                {"type": "file", "file": {"file_id": "file-1"}},
            ]},
            {"role": "assistant", "content": " \n", "tool_calls": [
                {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{\"a\": 1}"}},
                {"id": "call_2", "type": "function", "function": {"name": "g", "arguments": ""}},
            ]},
            {"role": "tool", "tool_call_id": "call_1", "content": "one"},
            {"role": "tool", "tool_call_id": "call_2", "content": [{"type": "text", "text": "two"}]},
            {"role": "assistant", "content": "Done."},
            {"role": "developer", "content": "Be briefer."},
        ])
    }

    fn request_without_native_items() -> Json {
        json!({
            "model": "m",
            "store": false,
            "include": ["reasoning.encrypted_content"],
            "instructions": "Be brief.",
            "input": [
                {"role": "user", "content": [
                    {"type": "input_text", "text": "Look."},
                    {"type": "input_image", "image_url": "data:image/png;base64,AA==", "detail": "auto"},
                    {"type": "input_image", "image_url": "https://example.org/a.png", "detail": "low"},
                    {"type": "input_file", "file_id": "file-1"},
                ]},
                {"type": "function_call", "call_id": "call_1", "name": "f", "arguments": "{\"a\": 1}"},
                {"type": "function_call", "call_id": "call_2", "name": "g", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "call_1", "output": "one"},
                {"type": "function_call_output", "call_id": "call_2", "output": [{"type": "input_text", "text": "two"}]},
                {"type": "message", "role": "assistant", "content": "Done."},
                {"role": "developer", "content": "Be briefer."},
            ],
        })
    }

    #[test]
    fn messages_become_items() {
        let Json::Array(messages) = chat_messages() else { panic!("messages are a list") };
        assert_eq!(request_of(json!({"model": "m"}), &messages), request_without_native_items());
    }

    #[test]
    fn a_system_message_is_an_item_where_it_cannot_be_the_instructions() {
        let system = json!({"role": "system", "content": "Be brief."});
        let user = json!({"role": "user", "content": null});
        assert_eq!(input_of(std::slice::from_ref(&system)), json!([system]));
        let body = request_of(json!({"instructions": "Rhyme."}), &[system.clone(), user]);
        assert_eq!(body["instructions"], "Rhyme.");
        assert_eq!(body["input"], json!([system, {"role": "user", "content": ""}]));
    }

    /// A response with parts that a translation could lose: reasoning, phases, annotations, statuses, and an unknown item.
    fn native_response() -> Json {
        json!({
            "id": "resp_1", "object": "response", "created_at": 1790000000, "status": "completed", "error": null,
            "incomplete_details": null, "instructions": "Be brief.", "model": "gpt-5.6-terra", "parallel_tool_calls": true,
            "tool_choice": "auto", "tools": [], "metadata": {}, "temperature": 1.0, "top_p": 1.0,
            "output": [
                {"id": "rs_1", "type": "reasoning", "encrypted_content": "gAAAA", "summary": [
                    {"type": "summary_text", "text": "First"}, {"type": "summary_text", "text": "Second"},
                ]},
                {
                    "id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "phase": "commentary",
                    "content": [
                        {"type": "output_text", "text": "I look ", "logprobs": [], "annotations": [
                            {"type": "url_citation", "start_index": 0, "end_index": 6, "title": "T", "url": "https://a.org"},
                        ]},
                        {"type": "output_text", "text": "it up.", "annotations": []},
                    ],
                },
                {
                    "id": "fc_1", "type": "function_call", "status": "completed",
                    "call_id": "call_1", "name": "f", "arguments": "{\"a\":1 }",
                },
                {"id": "x_1", "type": "telepathy_call", "thought": {"b": 1, "a": 0.1}},
                {
                    "id": "fc_2", "type": "function_call", "status": "completed",
                    "call_id": "call_2", "name": "g", "arguments": "",
                },
            ],
            "usage": {
                "input_tokens": 100, "input_tokens_details": {"cached_tokens": 64, "cache_write_tokens": 32},
                "output_tokens": 50, "output_tokens_details": {"reasoning_tokens": 40}, "total_tokens": 150,
            },
        })
    }

    fn chat_completion() -> Json {
        json!({
            "id": "resp_1", "object": "chat.completion", "created": 1790000000, "model": "gpt-5.6-terra",
            "choices": [{
                "index": 0,
                "message": {
                    "role": "assistant",
                    "content": "I look it up.",
                    "reasoning_content": "First\n\nSecond",
                    "tool_calls": [
                        {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{\"a\":1 }"}},
                        {"id": "call_2", "type": "function", "function": {"name": "g", "arguments": ""}},
                    ],
                },
                "finish_reason": "tool_calls",
            }],
            "usage": {
                "prompt_tokens": 100, "prompt_tokens_details": {"cached_tokens": 64, "cache_write_tokens": 32},
                "completion_tokens": 50, "completion_tokens_details": {"reasoning_tokens": 40}, "total_tokens": 150,
            },
        })
    }

    #[test]
    fn a_reply_is_a_chat_completion_that_keeps_its_items() {
        let mut body = reply(native_response()).unwrap();
        let kept = body["choices"][0]["message"].as_object_mut().unwrap().shift_remove("responses").unwrap();
        assert_eq!(body, chat_completion());
        let output = json!({"output": native_response()["output"]});
        assert_eq!(kept.to_string(), output.to_string(), "also in their order");
    }

    #[test]
    fn items_go_back_unchanged_and_the_input_only_grows() {
        let mut messages =
            vec![json!({"role": "system", "content": "Be brief."}), json!({"role": "user", "content": "Hi"})];
        let first = input_of(&messages);
        messages.push(message_of(native_response()["output"].clone()));
        messages.push(json!({"role": "tool", "tool_call_id": "call_1", "content": "one"}));
        messages.push(json!({"role": "tool", "tool_call_id": "call_2", "content": "two"}));
        let second = input_of(&messages);
        messages.push(message_of(
            json!([{"id": "msg_2", "type": "message", "role": "assistant", "content": []}]),
        ));
        messages.push(json!({"role": "user", "content": "More"}));
        let third = input_of(&messages);

        let begins = |input: &Json, start: &Json| {
            let start = start.to_string();
            input.to_string().starts_with(start.strip_suffix(']').unwrap())
        };
        assert!(begins(&second, &first) && begins(&third, &second));
        let native = native_response();
        let native = native["output"].as_array().unwrap();
        let items = &second.as_array().unwrap()[1..=native.len()];
        assert_eq!(json!(items).to_string(), json!(native).to_string());
    }

    #[test]
    fn reasoning_that_would_be_refused_is_left_out() {
        let sent = |output: Json| input_of(&[json!({"role": "assistant", "responses": {"output": output}})]);
        let text = json!({"id": "msg_1", "type": "message", "role": "assistant", "content": []});
        let bare = json!({"id": "rs_1", "type": "reasoning", "encrypted_content": null, "summary": []});
        assert_eq!(sent(json!([bare, text])), json!([text]));
        for field in ["encrypted_content", "content", "summary"] {
            let mut reasoning = bare.clone();
            reasoning[field] = json!([{"text": "t"}]);
            assert_eq!(sent(json!([reasoning])), json!([]));
            assert_eq!(sent(json!([reasoning, text, reasoning])), json!([reasoning, text]));
        }
    }

    #[test]
    fn reasoning_that_is_left_out_is_told() {
        let reasoning = json!({"id": "rs_1", "type": "reasoning", "encrypted_content": "E", "summary": []});
        let text = json!({"id": "msg_1", "type": "message", "role": "assistant", "content": []});
        let form = Form { api: Api::Responses, has_native: true };
        let told = |output: Json| {
            let reply = json!({"role": "assistant", "responses": {"output": output}});
            request(&Map::new(), &[reply.into()], form, &Rules::default()).adapted.len()
        };
        assert_eq!([told(json!([text, reasoning])), told(json!([reasoning, text]))], [1, 0]);
    }

    #[test]
    fn texts_of_items_are_joined() {
        let text =
            |text: &str| json!({"type": "message", "content": [{"type": "output_text", "text": text}]});
        let message = message_of(json!([
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": "short"}], "content": [
                {"type": "reasoning_text", "text": "lo"}, {"type": "reasoning_text", "text": "ng"},
            ]},
            text("a"),
            {"type": "reasoning", "summary": []},
            text("b"),
        ]));
        assert_eq!(message["content"], "a\n\nb");
        assert_eq!(message["reasoning_content"], "long");

        let refused = json!([{"type": "message", "content": [{"type": "refusal", "refusal": "No."}]}]);
        let message = message_of(refused.clone());
        let expected =
            json!({"role": "assistant", "content": null, "refusal": "No.", "responses": {"output": refused}});
        assert_eq!(message, expected);
    }

    #[test]
    fn log_probabilities_are_those_of_the_choice() {
        let token = json!({"token": "a", "bytes": [97], "logprob": -0.1, "top_logprobs": []});
        let output = json!([{"type": "message", "content": [{"type": "output_text", "text": "a", "logprobs": [token]}]}]);
        let body = reply(json!({"output": output})).unwrap();
        assert_eq!(body["choices"][0]["logprobs"], json!({"content": [token]}));
    }

    #[test]
    fn a_status_is_a_finish_reason_or_a_fault() {
        let call = json!({"type": "function_call", "call_id": "c", "name": "f", "arguments": "{"});
        let finish = |status: &str, reason: &str, output: &Json| {
            let details = json!({"reason": reason});
            let body = reply(json!({"status": status, "incomplete_details": details, "output": output}));
            body.unwrap()["choices"][0]["finish_reason"].clone()
        };
        let (none, some) = (json!([]), json!([call]));
        assert_eq!(finish("completed", "", &none), "stop");
        assert_eq!(finish("completed", "", &some), "tool_calls");
        assert_eq!(finish("incomplete", "max_output_tokens", &none), "length");
        assert_eq!(finish("incomplete", "max_output_tokens", &some), "length");
        assert_eq!(finish("incomplete", "content_filter", &none), "content_filter");

        let fault = |body: Json| reply(body).unwrap_err();
        assert_eq!(fault(json!({"status": "queued", "output": []})), "its status is queued, not completed");
        assert_eq!(fault(json!({"status": "completed"})), "it has no list of output items");
        assert_eq!(fault(json!({"output": "text"})), "it has no list of output items");
        assert_eq!(fault(json!([])), "it is not an object");
    }

    #[test]
    fn an_error_is_the_whole_body() {
        let error = json!({"code": "server_error", "message": "Try again."});
        let failed = json!({"id": "resp_1", "status": "failed", "error": error, "output": [], "usage": null});
        assert_eq!(reply(failed), Ok(json!({"error": error})));
        let silent = json!({"error": {"message": "the response failed without an error"}});
        assert_eq!(reply(json!({"status": "failed", "error": null})), Ok(silent));
    }

    fn events_of_pieces() -> Json {
        json!([
            {
                "type": "response.output_text.delta", "sequence_number": 3, "output_index": 1, "item_id": "msg_1",
                "content_index": 0, "delta": "I look ", "logprobs": [],
            },
            {
                "type": "response.function_call_arguments.done", "sequence_number": 4, "output_index": 2, "item_id": "fc_1",
                "arguments": "{\"a\":1 }",
            },
            {"type": "response.output_item.added", "sequence_number": 5, "output_index": 4, "item": {
                "id": "fc_2", "type": "function_call", "status": "in_progress",
                "call_id": "call_2", "name": "g", "arguments": "",
            }},
            {"type": "keepalive", "sequence_number": 6},
        ])
    }

    /// The stream of a response, with another output in its last event.
    fn stream_of(output: Json) -> Events {
        let native = native_response();
        let mut events = Events::default();
        events.add(json!({"type": "response.created", "response": {"id": "resp_1", "status": "in_progress", "output": []}}));
        events_of_pieces().as_array().unwrap().iter().for_each(|piece| events.add(piece.clone()));
        let items = native["output"].as_array().unwrap().iter().enumerate().rev();
        for (index, item) in items {
            assert!(!events.is_whole());
            events.add(json!({"type": "response.output_item.done", "output_index": index, "item": item}));
        }
        let mut last = native.clone();
        last["output"] = output;
        events.add(json!({"type": "response.completed", "response": last}));
        assert!(events.is_whole());
        events
    }

    #[test]
    fn a_stream_is_what_the_server_gives_whole() {
        for output in [native_response()["output"].clone(), json!([]), Json::Null] {
            assert_eq!(stream_of(output).into_body(), native_response());
        }
    }

    #[test]
    fn a_stream_ends_in_each_status() {
        let last = |kind: &str, response: Json| {
            let mut events = Events::default();
            // Some servers do not number items.
            events.add(json!({"type": "response.output_item.done", "item": {"type": "a"}}));
            events.add(json!({"type": "response.output_item.done", "item": {"type": "b"}}));
            events.add(json!({"type": kind, "response": response}));
            (events.is_whole(), events.into_body())
        };
        let items = json!([{"type": "a"}, {"type": "b"}]);
        for status in ["completed", "incomplete", "failed"] {
            let body = json!({"id": "r", "status": status, "output": items});
            assert_eq!(last(&format!("response.{status}"), json!({"id": "r"})), (true, body));
        }
        let error = json!({"code": "rate_limit_exceeded", "message": "Wait."});
        let (_, body) = last("response.failed", json!({"status": "failed", "error": error}));
        assert_eq!(reply(body), Ok(json!({"error": error})));

        let (is_whole, body) = last("response.in_progress", json!({"status": "in_progress", "output": []}));
        assert!(!is_whole);
        assert_eq!(body, json!({"status": "in_progress", "output": items}));
        for nonsense in
            [json!(1), json!([]), json!({}), json!({"type": "response.completed"}), json!({"type": 1})]
        {
            let mut events = Events::default();
            events.add(nonsense);
            assert!(!events.is_whole());
        }
    }
}
