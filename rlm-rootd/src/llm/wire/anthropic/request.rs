//! Requests, from their chat form.

use std::borrow::Cow;

use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value as Json, json};

use crate::llm::bounds::above_thinking;
use crate::llm::message::{ChatMessage, Form, Part};
use crate::llm::rules::Rules;
use crate::llm::wire::{Body, parts_left_out};

/// User messages whose end is marked for the cache: see [`mark_for_cache`].
const MARKED_USER_MESSAGES: usize = 2;

/// Types of blocks that are signed in their place.
const THINKING: [&str; 2] = ["thinking", "redacted_thinking"];

#[derive(Serialize)]
struct Request<'a> {
    #[serde(flatten)]
    options: Map<String, Json>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    system: Vec<Cow<'a, RawValue>>,
    messages: Vec<Turn<'a>>,
}

#[derive(Serialize)]
struct Turn<'a> {
    role: &'static str,
    content: Vec<Cow<'a, RawValue>>,
    /// Number of blocks at the beginning that are results of tools.
    #[serde(skip)]
    results: usize,
}

/// The body of the request for these fields and messages, both in chat form.
pub(in crate::llm::wire) fn request(
    fields: &Map<String, Json>,
    messages: &[ChatMessage],
    form: Form,
    rules: &Rules,
) -> Body {
    let mut options = options(fields, rules.longest_completion());
    // A mark of the caller's, with a longer `ttl` for example, replaces ours everywhere: the API refuses a fifth mark, and
    // one with a longer `ttl` after one with a shorter.
    let mark = options.shift_remove("cache_control").unwrap_or_else(|| json!({"type": "ephemeral"}));
    options.retain(|name, _| !rules.omits(name));
    let parts: Vec<_> = messages.iter().map(|message| message.parts(form, blocks_of)).collect();
    let mut request = conversation(options, messages.iter().zip(&parts));
    mark_for_cache(&mut request, &mark);
    let bytes = serde_json::to_vec(&request).expect("JSON can be written");
    Body { bytes, adapted: parts_left_out(messages, &parts, form) }
}

/// The fields of a request beside its messages. Fields that chat completions do not have pass unchanged; a null is an absent
/// field.
pub(super) fn options(fields: &Map<String, Json>, default_max_tokens: u64) -> Map<String, Json> {
    let mut options = fields.clone();
    options
        .retain(|name, value| !value.is_null() && name != "stream_options" && (name != "n" || *value != 1));
    let max_tokens =
        options.shift_remove("max_completion_tokens").or_else(|| options.shift_remove("max_tokens"));
    let default = || above_thinking(default_max_tokens, fields).into();
    options.insert("max_tokens".to_owned(), max_tokens.unwrap_or_else(default));
    if let Some(stop) = options.shift_remove("stop") {
        let sequences = if stop.is_array() { stop } else { json!([stop]) };
        options.insert("stop_sequences".to_owned(), sequences);
    }
    if let Some(user) = options.shift_remove("user") {
        set_within(&mut options, "metadata", "user_id", user);
    }
    let format = options.shift_remove("response_format");
    if let Some(schema) = format.as_ref().and_then(|format| format.pointer("/json_schema/schema")) {
        let format = json!({"type": "json_schema", "schema": schema});
        set_within(&mut options, "output_config", "format", format);
    }
    let parallel = options.shift_remove("parallel_tool_calls");
    let choice = tool_choice(options.shift_remove("tool_choice"), parallel == Some(Json::Bool(false)));
    // A choice among no tools is refused.
    if let Some(Json::Array(tools)) = options.shift_remove("tools")
        && !tools.is_empty()
    {
        options.insert("tools".to_owned(), tools.iter().map(tool).collect());
        options.extend(choice.map(|choice| ("tool_choice".to_owned(), choice)));
    }
    options
}

/// Sets a field of an object among the options, unless the object has it.
fn set_within(options: &mut Map<String, Json>, object: &str, name: &str, value: Json) {
    let object = options.entry(object).or_insert_with(|| json!({}));
    if let Some(object) = object.as_object_mut() {
        object.entry(name).or_insert(value);
    }
}

/// A tool from its chat form. A tool that is not a function is passed as a native one.
fn tool(tool: &Json) -> Json {
    let Some(Json::Object(function)) = tool.get("function") else { return unmarked(tool) };
    let mut tool = function.clone();
    tool.retain(|_, value| !value.is_null());
    let mut schema = match tool.shift_remove("parameters") {
        Some(Json::Object(schema)) => schema,
        _ => Map::new(),
    };
    schema.entry("type").or_insert_with(|| "object".into());
    tool.insert("input_schema".to_owned(), schema.into());
    tool.into()
}

/// The tool choice from its chat form. None leaves the choice to the model.
fn tool_choice(chat: Option<Json>, is_single: bool) -> Option<Json> {
    let mut choice = match chat {
        None => is_single.then(|| json!({"type": "auto"}))?,
        Some(Json::String(kind)) if kind == "required" => json!({"type": "any"}),
        Some(Json::String(kind)) => json!({"type": kind}),
        Some(choice) => match choice.pointer("/function/name") {
            Some(name) => json!({"type": "tool", "name": name}),
            None => choice,
        },
    };
    if is_single
        && choice["type"] != "none"
        && let Some(choice) = choice.as_object_mut()
    {
        choice.insert("disable_parallel_tool_use".to_owned(), true.into());
    }
    Some(choice)
}

/// The request without marks for the cache. As a conversation grows, messages are only added; or blocks at the end of the last
/// one, if the model answered it with nothing.
fn conversation<'a>(
    options: Map<String, Json>,
    messages: impl Iterator<Item = (&'a ChatMessage, &'a Cow<'a, [Part]>)>,
) -> Request<'a> {
    let mut request = Request { options, system: Vec::new(), messages: Vec::new() };
    for (message, blocks) in messages.filter(|(_, blocks)| !blocks.is_empty()) {
        let texts = blocks.iter().map(|block| Cow::Borrowed(&*block.text));
        match message["role"].as_str() {
            Some("system" | "developer") => request.system.extend(texts),
            Some("assistant") => {
                request.messages.push(Turn { role: "assistant", content: texts.collect(), results: 0 });
            }
            _ => add_user_blocks(&mut request.messages, blocks),
        }
    }
    request
}

/// Adds blocks to the last message if it is the user's, or adds a message. The API wants all results of a turn's calls in one
/// message, before its other blocks.
fn add_user_blocks<'a>(turns: &mut Vec<Turn<'a>>, blocks: &'a [Part]) {
    if turns.last().is_none_or(|turn| turn.role != "user") {
        turns.push(Turn { role: "user", content: Vec::new(), results: 0 });
    }
    let turn = turns.last_mut().expect("there is one");
    for block in blocks {
        let at = if block.is_tool_result { turn.results } else { turn.content.len() };
        turn.results += usize::from(block.is_tool_result);
        turn.content.insert(at, Cow::Borrowed(&*block.text));
    }
}

/// The blocks of a message. A message without blocks is not sent: the API refuses one without content, and one whose last block
/// is thinking (tailcallhq/forgecode#3071).
fn blocks_of(message: &Json, form: Form) -> Vec<Json> {
    match message["role"].as_str() {
        Some("assistant") => {
            let blocks = assistant_blocks(message, form.has_native);
            if blocks.iter().all(|block| is_blank_text(block) || is_thinking(block)) {
                Vec::new()
            } else {
                blocks
            }
        }
        Some("tool") => vec![tool_result(message)],
        _ => blocks(&message["content"]),
    }
}

/// The blocks of a content in chat form: text, or parts. A part of another type is passed as a native block.
fn blocks(content: &Json) -> Vec<Json> {
    let text_block =
        |text: &str| Some(json!({"type": "text", "text": text})).filter(|_| !text.trim().is_empty());
    let block = |part: &Json| match part["type"].as_str() {
        Some("text") => text_block(part["text"].as_str()?),
        Some("image_url") => Some(image(part.pointer("/image_url/url")?.as_str()?)),
        _ => Some(unmarked(part)),
    };
    match content {
        Json::String(text) => text_block(text).into_iter().collect(),
        Json::Array(parts) => parts.iter().filter_map(block).collect(),
        _ => Vec::new(),
    }
}

/// The block of an image at a URL, or in a `data:` URL.
fn image(url: &str) -> Json {
    let data = url.strip_prefix("data:").and_then(|url| url.split_once(";base64,"));
    let source = match data {
        Some((media_type, data)) => json!({"type": "base64", "media_type": media_type, "data": data}),
        None => json!({"type": "url", "url": url}),
    };
    json!({"type": "image", "source": source})
}

/// The result of a call.
fn tool_result(message: &Json) -> Json {
    let mut result = json!({"type": "tool_result", "tool_use_id": message["tool_call_id"]});
    // A result may have no content, but not an empty text.
    match (&message["content"], blocks(&message["content"])) {
        (_, blocks) if blocks.is_empty() => {}
        (text @ Json::String(_), _) => result["content"] = text.clone(),
        (_, blocks) => result["content"] = blocks.into(),
    }
    result
}

/// The blocks of an assistant message: its native ones, or blocks made from the chat form of another server's message.
fn assistant_blocks(message: &Json, has_native: bool) -> Vec<Json> {
    if let Some(Json::Array(native)) = message.pointer("/anthropic/content").filter(|_| has_native) {
        // Models return empty and blank texts. The API refuses an empty one always, a blank one at times; but beside thinking,
        // a blank one must keep its place.
        let has_thinking = native.iter().any(is_thinking);
        let is_refused = |block: &&Json| is_blank_text(block) && (!has_thinking || block["text"] == "");
        let sent: Vec<&Json> = native.iter().filter(|block| !is_refused(block)).collect();
        let end = sent.iter().rposition(|block| !is_thinking(block)).map_or(0, |last| last + 1);
        return sent[..end].iter().copied().cloned().collect();
    }
    let text = blocks(&message["content"]).into_iter().filter(|block| is_of_type(block, "text"));
    let calls = message["tool_calls"].as_array().into_iter().flatten().map(tool_use);
    text.chain(calls).collect()
}

/// A call from its chat form.
fn tool_use(call: &Json) -> Json {
    let function = &call["function"];
    let input = match &function["arguments"] {
        Json::String(text) => input(text),
        // Some servers give JSON in place of JSON text.
        arguments @ Json::Object(_) => arguments.clone(),
        _ => json!({}),
    };
    json!({"type": "tool_use", "id": call["id"], "name": function["name"], "input": input})
}

/// The input of a call from its JSON text. The API requires an object: a call that was cut short gets an empty one.
fn input(text: &str) -> Json {
    serde_json::from_str(text).ok().filter(Json::is_object).unwrap_or_else(|| json!({}))
}

pub(super) fn is_of_type(block: &Json, kind: &str) -> bool {
    block["type"] == kind
}

fn is_thinking(block: &Json) -> bool {
    THINKING.iter().any(|kind| is_of_type(block, kind))
}

fn is_blank_text(block: &Json) -> bool {
    is_of_type(block, "text") && block["text"].as_str().is_none_or(|text| text.trim().is_empty())
}

/// A tool or block without a cache mark: a fifth mark in a request is refused.
fn unmarked(block: &Json) -> Json {
    let mut block = block.clone();
    if let Some(fields) = block.as_object_mut() {
        fields.shift_remove("cache_control");
    }
    block
}

/// Marks where the server caches the request: after the tools and the system, which conversations share, and after the last
/// two user messages. The last mark writes what the next request reads. The one before it is the last mark of the previous
/// request, so this request reads exactly what that one wrote: from a mark, the server looks back over 20 blocks only, and a
/// turn with many calls has more. Blocks of the model are never marked.
fn mark_for_cache(request: &mut Request<'_>, mark: &Json) {
    // The prompt begins with the tools, then the system: a mark after the system covers both.
    match request.options.get_mut("tools") {
        Some(Json::Array(tools)) if request.system.is_empty() => {
            if let Some(Json::Object(tool)) = tools.last_mut() {
                tool.insert("cache_control".to_owned(), mark.clone());
            }
        }
        _ => mark_last(&mut request.system, mark),
    }
    let messages = request.messages.iter_mut().rev().filter(|turn| turn.role == "user");
    for message in messages.take(MARKED_USER_MESSAGES) {
        mark_last(&mut message.content, mark);
    }
}

fn mark_last(blocks: &mut [Cow<'_, RawValue>], mark: &Json) {
    if let Some(last) = blocks.last_mut()
        && let Ok(mut block) = serde_json::from_str::<Map<String, Json>>(last.get())
    {
        block.insert("cache_control".to_owned(), mark.clone());
        *last = Cow::Owned(to_raw_value(&block).expect("JSON can be written"));
    }
}
