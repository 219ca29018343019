//! Requests, from their chat form.

use std::borrow::Cow;

use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value as Json, json};

use crate::llm::message::{
    ChatMessage, Form, call_arguments, has_broken_arguments, mend_arguments, message_text,
};
use crate::llm::rules::{ArgumentsForm, Rules};
use crate::llm::wire::{Body, EMPTY_ARGUMENTS, chat, parts_left_out};

/// Smallest bound of a completion that OpenAI accepts.
const LEAST_OUTPUT_TOKENS: u64 = 16;

/// Outputs that a request has to ask for, in `include`.
const ENCRYPTED_REASONING: &str = "reasoning.encrypted_content";
const LOGPROBS: &str = "message.output_text.logprobs";

/// The body of the request for these fields and messages.
pub(in crate::llm::wire) fn request(
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
    let (in_turns, notes) = chat::in_turns(messages, rules);
    let messages = after_instructions(&mut body, &in_turns);
    let mut sent = Cow::Borrowed(messages);
    if rules.arguments == Some(ArgumentsForm::Json) {
        for (at, message) in messages.iter().enumerate() {
            if let Some(mended) = with_arguments(message) {
                sent.to_mut()[at] = mended;
            }
        }
    }
    body.retain(|name, _| !rules.omits(name));
    let items: Vec<_> = sent.iter().map(|message| message.parts(form, items)).collect();
    let input = items.iter().flat_map(|items| items.iter()).map(|item| &*item.text).collect();
    let bytes = serde_json::to_vec(&Request { fields: body, input }).expect("JSON can be written");
    let mut adapted = [notes, parts_left_out(&sent, &items, form)].concat();
    if matches!(sent, Cow::Owned(_)) {
        adapted.push(EMPTY_ARGUMENTS.to_owned());
    }
    Body { bytes, adapted }
}

/// The message with `{}` for arguments that are no JSON object. None if it has no such arguments.
fn with_arguments(message: &ChatMessage) -> Option<ChatMessage> {
    let calls = message["tool_calls"].as_array()?;
    if !calls.iter().any(has_broken_arguments) {
        return None;
    }
    let mut new = (**message).clone();
    for call in new["tool_calls"].as_array_mut()? {
        mend_arguments(call);
    }
    let output = new.pointer_mut("/responses/output").and_then(Json::as_array_mut);
    for item in output.into_iter().flatten().filter(|item| item["type"] == "function_call") {
        if has_broken_arguments(&json!({ "function": item })) {
            item["arguments"] = "{}".into();
        }
    }
    Some(new.into())
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
