//! Anthropic's Messages API, translated from and to chat completions.
//!
//! Conversations are kept in OpenAI's chat form. A reply becomes the body of a chat completion, and its message keeps the
//! native content blocks under `anthropic.content`. The next request sends these blocks back as they came, in order:
//! signatures of thinking, redacted thinking, calls of server tools, and blocks and fields that we do not know. Thinking is
//! signed together with all that precedes it, so a request must only add to the one before.
//!
//! A request is not checked: the API refuses what it does not accept, and says why. The translation leaves out only what
//! chat completions allow and the API always refuses, such as empty texts.

use std::borrow::Cow;

use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value as Json, json};

use super::{Body, parts_left_out};
use crate::llm::message::{ChatMessage, Form, Part};
use crate::llm::reply::count;
use crate::llm::rules::Rules;

/// User messages whose end is marked for the cache: see [`mark_for_cache`].
const MARKED_USER_MESSAGES: usize = 2;

/// Types of blocks that are signed in their place.
const THINKING: [&str; 2] = ["thinking", "redacted_thinking"];

/// Fields of a native message that have another place, or no place, in a chat completion.
const NATIVE_FIELDS: [&str; 3] = ["type", "role", "stop_sequence"];

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
pub(super) fn request(
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
fn options(fields: &Map<String, Json>, default_max_tokens: u64) -> Map<String, Json> {
    let mut options = fields.clone();
    options
        .retain(|name, value| !value.is_null() && name != "stream_options" && (name != "n" || *value != 1));
    let max_tokens =
        options.shift_remove("max_completion_tokens").or_else(|| options.shift_remove("max_tokens"));
    options.insert("max_tokens".to_owned(), max_tokens.unwrap_or_else(|| default_max_tokens.into()));
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

/// The blocks of a message. A message without blocks is not sent: the API refuses one without content.
fn blocks_of(message: &Json, form: Form) -> Vec<Json> {
    match message["role"].as_str() {
        Some("assistant") => {
            let blocks = assistant_blocks(message, form.has_native);
            if blocks.iter().all(is_blank_text) { Vec::new() } else { blocks }
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
        let has_thinking = native.iter().any(|block| THINKING.iter().any(|kind| is_of_type(block, kind)));
        let is_refused = |block: &Json| is_blank_text(block) && (!has_thinking || block["text"] == "");
        return native.iter().filter(|block| !is_refused(block)).cloned().collect();
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

fn is_of_type(block: &Json, kind: &str) -> bool {
    block["type"] == kind
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

/// The reply as a chat completion.
///
/// # Errors
/// A sentence on what is malformed.
pub(super) fn reply(native: Json) -> Result<Json, String> {
    let Json::Object(mut native) = native else { return Err("it is not an object".to_owned()) };
    let blocks = match native.shift_remove("content") {
        Some(Json::Array(blocks)) => blocks,
        Some(_) => return Err("its content is not a list".to_owned()),
        None => return Err("it has no content".to_owned()),
    };
    if !blocks.iter().all(Json::is_object) {
        return Err("a block of its content is not an object".to_owned());
    }
    let mut message = message(blocks);
    let stop_reason = native.shift_remove("stop_reason").unwrap_or_default();
    if stop_reason == "refusal"
        && let Some(refusal) = refusal(&native)
    {
        message["refusal"] = refusal;
    }
    let mut body = json!({
        "id": native.shift_remove("id"),
        "object": "chat.completion",
        "model": native.shift_remove("model"),
        "choices": [{"index": 0, "message": message, "finish_reason": finish_reason(stop_reason)}],
    });
    if let Some(Json::Object(usage)) = native.shift_remove("usage") {
        body["usage"] = chat_usage(&usage);
    }
    let fields = body.as_object_mut().expect("the body was made as an object");
    for (name, value) in native.into_iter().filter(|(name, _)| !NATIVE_FIELDS.contains(&name.as_str())) {
        fields.entry(name).or_insert(value);
    }
    Ok(body)
}

/// The message in chat form, with its native blocks.
fn message(blocks: Vec<Json>) -> Json {
    let mut message = json!({"role": "assistant", "content": joined(&blocks, "text", "")});
    if let Some(thinking) = joined(&blocks, "thinking", "\n\n") {
        message["reasoning_content"] = thinking.into();
    }
    let calls: Vec<Json> = blocks.iter().filter(|block| is_of_type(block, "tool_use")).map(call).collect();
    if !calls.is_empty() {
        message["tool_calls"] = calls.into();
    }
    message["anthropic"] = json!({"content": blocks});
    message
}

/// The texts of the blocks of a type, in the field of the same name. None if there is no text.
fn joined(blocks: &[Json], kind: &str, separator: &str) -> Option<String> {
    let texts =
        blocks.iter().filter(|block| is_of_type(block, kind)).filter_map(|block| block[kind].as_str());
    let texts: Vec<&str> = texts.filter(|text| !text.is_empty()).collect();
    (!texts.is_empty()).then(|| texts.join(separator))
}

/// A call in chat form.
fn call(block: &Json) -> Json {
    let arguments = match &block["input"] {
        Json::Null => "{}".to_owned(),
        input => input.to_string(),
    };
    json!({"id": block["id"], "type": "function", "function": {"name": block["name"], "arguments": arguments}})
}

/// The text of a refusal: its explanation, or its category.
fn refusal(native: &Map<String, Json>) -> Option<Json> {
    let details = native.get("stop_details")?;
    ["explanation", "category"].iter().map(|name| &details[*name]).find(|text| text.is_string()).cloned()
}

/// The reason in OpenAI's terms. A reason without an equivalent keeps its name.
fn finish_reason(stop_reason: Json) -> Json {
    match stop_reason.as_str() {
        Some("end_turn" | "stop_sequence") => "stop".into(),
        Some("tool_use") => "tool_calls".into(),
        Some("max_tokens") => "length".into(),
        _ => stop_reason,
    }
}

/// The usage in OpenAI's terms, where the tokens of a prompt include those read from and written to the cache.
fn chat_usage(native: &Map<String, Json>) -> Json {
    let tokens = |name: &str| native.get(name).and_then(count);
    let cached = tokens("cache_read_input_tokens").unwrap_or(0);
    let written = tokens("cache_creation_input_tokens").unwrap_or(0);
    let mut usage =
        json!({"prompt_tokens_details": {"cached_tokens": cached, "cache_write_tokens": written}});
    if let Some(input) = tokens("input_tokens") {
        usage["prompt_tokens"] = input.saturating_add(cached).saturating_add(written).into();
    }
    if let Some(output) = tokens("output_tokens") {
        usage["completion_tokens"] = output.into();
    }
    let details = native.get("output_tokens_details");
    if let Some(thinking) = details.and_then(|details| count(&details["thinking_tokens"])) {
        usage["completion_tokens_details"] = json!({"reasoning_tokens": thinking});
    }
    usage
}

/// Events of a stream, joined to the message that the server would send whole.
#[derive(Debug, Default)]
pub(super) struct Events {
    /// The message without its blocks.
    message: Map<String, Json>,
    blocks: Vec<Block>,
    has_stopped: bool,
}

/// A content block, as far as it has arrived.
#[derive(Debug)]
struct Block {
    index: Json,
    fields: Map<String, Json>,
    /// JSON text of the block's input; empty if none has arrived.
    input: String,
}

impl Events {
    /// Adds the data of an event. An event of an unknown type is ignored.
    pub(super) fn add(&mut self, event: Json) {
        let Json::Object(mut event) = event else { return };
        let kind = event.shift_remove("type").unwrap_or_default();
        match kind.as_str() {
            Some("message_start") => self.start(event),
            Some("content_block_start") => self.start_block(event),
            Some("content_block_delta") => {
                let index = event.get("index").cloned().unwrap_or_default();
                let block = self.blocks.iter_mut().rev().find(|block| block.index == index);
                if let (Some(block), Some(delta)) = (block, event.get("delta")) {
                    block.add(delta);
                }
            }
            Some("message_delta") => self.change(event),
            Some("message_stop") => self.has_stopped = true,
            _ => {}
        }
    }

    fn start(&mut self, mut event: Map<String, Json>) {
        if let Some(Json::Object(message)) = event.shift_remove("message") {
            self.message = message;
        }
    }

    fn start_block(&mut self, mut event: Map<String, Json>) {
        let Some(Json::Object(fields)) = event.shift_remove("content_block") else { return };
        // Another model continues the reply, and the whole message has that model's name.
        if fields.get("type").is_some_and(|kind| kind == "fallback")
            && let Some(model) = fields.get("to").and_then(|to| to.get("model"))
        {
            replace(&mut self.message, "model".to_owned(), model.clone());
        }
        let index = event.shift_remove("index").unwrap_or_default();
        self.blocks.push(Block { index, fields, input: String::new() });
    }

    /// Replaces fields of the message. Token counts are totals.
    fn change(&mut self, mut event: Map<String, Json>) {
        if let Some(Json::Object(usage)) = event.shift_remove("usage") {
            let old = self.message.entry("usage").or_insert_with(|| json!({}));
            if let Some(old) = old.as_object_mut() {
                usage.into_iter().for_each(|(name, value)| replace(old, name, value));
            }
        }
        if let Some(Json::Object(delta)) = event.shift_remove("delta") {
            event.extend(delta);
        }
        event.into_iter().for_each(|(name, value)| replace(&mut self.message, name, value));
    }

    /// True once the message has ended.
    pub(super) fn is_whole(&self) -> bool {
        self.has_stopped || self.message.get("stop_reason").is_some_and(|reason| !reason.is_null())
    }

    /// The native message.
    pub(super) fn into_body(self) -> Json {
        let is_whole = self.is_whole();
        let Self { mut message, blocks, .. } = self;
        // The count at the start is of the first tokens alone.
        if let Some(usage) = message.get_mut("usage").and_then(Json::as_object_mut).filter(|_| !is_whole) {
            usage.shift_remove("output_tokens");
        }
        message.insert("content".to_owned(), blocks.into_iter().map(Block::into_json).collect());
        message.into()
    }
}

impl Block {
    fn add(&mut self, delta: &Json) {
        match delta["type"].as_str() {
            Some("text_delta") => self.append("text", delta),
            Some("thinking_delta") => self.append("thinking", delta),
            Some("input_json_delta") => {
                self.input.push_str(delta["partial_json"].as_str().unwrap_or_default());
            }
            // Signatures arrive whole.
            Some("signature_delta") => self.set("signature", delta),
            Some("compaction_delta") => {
                self.set("content", delta);
                self.set("encrypted_content", delta);
            }
            Some("citations_delta") => match self.fields.get_mut("citations") {
                Some(Json::Array(citations)) => citations.push(delta["citation"].clone()),
                _ => {
                    self.fields.insert("citations".to_owned(), json!([delta["citation"]]));
                }
            },
            _ => {}
        }
    }

    /// Continues a text by the delta's field of the same name.
    fn append(&mut self, name: &str, delta: &Json) {
        let more = delta[name].as_str().unwrap_or_default();
        match self.fields.get_mut(name) {
            Some(Json::String(text)) => text.push_str(more),
            _ => {
                self.fields.insert(name.to_owned(), more.into());
            }
        }
    }

    fn set(&mut self, name: &str, delta: &Json) {
        replace(&mut self.fields, name.to_owned(), delta[name].clone());
    }

    fn into_json(mut self) -> Json {
        if !self.input.trim().is_empty() {
            self.fields.insert("input".to_owned(), input(&self.input));
        }
        self.fields.into()
    }
}

/// Sets a field, unless the value is null and the field is there already.
fn replace(fields: &mut Map<String, Json>, name: String, value: Json) {
    if !value.is_null() || !fields.contains_key(&name) {
        fields.insert(name, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::llm::api::Api;

    fn fields(fields: Json) -> Map<String, Json> {
        fields.as_object().expect("the fields of a test are an object").clone()
    }

    fn request_of(fields: &Json, messages: &[Json]) -> Json {
        let fields = fields.as_object().expect("the fields of a test are an object");
        let rules = Rules { longest_completion: Some(4096), ..Rules::default() };
        let messages: Vec<ChatMessage> = messages.iter().cloned().map(ChatMessage::from).collect();
        let body = request(fields, &messages, Form { api: Api::Anthropic, has_native: true }, &rules);
        serde_json::from_slice(&body.bytes).expect("a body is JSON")
    }

    /// The messages of a request without fields.
    fn messages_of(messages: &[Json]) -> Json {
        request_of(&json!({}), messages)["messages"].clone()
    }

    fn user(text: &str) -> Json {
        json!({"role": "user", "content": text})
    }

    /// A request without its cache marks, and their number.
    fn without_marks(request: &Json) -> (Json, usize) {
        let mut request = request.clone();
        let mut marks = 0;
        let mut unmark = |blocks: Option<&mut Json>| {
            for block in blocks.and_then(Json::as_array_mut).into_iter().flatten() {
                let fields = block.as_object_mut().expect("a block is an object");
                marks += usize::from(fields.shift_remove("cache_control").is_some());
            }
        };
        unmark(request.get_mut("system"));
        unmark(request.get_mut("tools"));
        for message in request["messages"].as_array_mut().expect("a request has messages") {
            unmark(message.get_mut("content"));
        }
        (request, marks)
    }

    fn joined_events(events: impl IntoIterator<Item = Json>) -> Json {
        let mut all = Events::default();
        events.into_iter().for_each(|event| all.add(event));
        assert!(all.is_whole());
        all.into_body()
    }

    fn native() -> Json {
        json!({
            "id": "msg_01", "type": "message", "role": "assistant", "model": "claude-opus-5",
            "content": [
                {"type": "thinking", "thinking": "First the docs.", "signature": "c2lnMQ=="},
                {"type": "redacted_thinking", "data": "cmVk"},
                {
                    "type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "serde 1.0"},
                    "caller": {"type": "direct"}
                },
                {"type": "of_tomorrow", "payload": [1, {"deep": null}]},
                {"type": "text", "text": "It says so.", "citations": [
                    {"type": "char_location", "cited_text": "so", "document_index": 0, "document_title": null,
                     "start_char_index": 0, "end_char_index": 2, "file_id": null},
                    {"type": "char_location", "cited_text": "it", "document_index": 0, "document_title": null,
                     "start_char_index": 5, "end_char_index": 7, "file_id": null}
                ]},
                {"type": "thinking", "thinking": "", "signature": "c2lnMg=="},
                {"type": "text", "text": " Running."},
                {"type": "tool_use", "id": "toolu_1", "name": "call_bash_repl", "input": {"z": "ls", "a": [1.5, "é"]}},
                {"type": "tool_use", "id": "toolu_2", "name": "budget", "input": {}}
            ],
            "stop_reason": "tool_use", "stop_sequence": null, "stop_details": null,
            "container": {"id": "container_1", "expires_at": "2026-11-27T00:00:00Z"},
            "usage": {
                "input_tokens": 10, "cache_creation_input_tokens": 200, "cache_read_input_tokens": 3000,
                "cache_creation": {"ephemeral_5m_input_tokens": 200, "ephemeral_1h_input_tokens": 0},
                "output_tokens": 50, "output_tokens_details": {"thinking_tokens": 20}, "service_tier": "standard"
            }
        })
    }

    /// The events of the native message.
    fn native_events() -> Vec<Json> {
        vec![
            json!({"type": "message_start", "message": {
                "id": "msg_01", "type": "message", "role": "assistant", "model": "claude-opus-5", "content": [],
                "stop_reason": null, "stop_sequence": null, "stop_details": null,
                "usage": {
                    "input_tokens": 10, "cache_creation_input_tokens": 200, "cache_read_input_tokens": 3000,
                    "cache_creation": {"ephemeral_5m_input_tokens": 200, "ephemeral_1h_input_tokens": 0},
                    "output_tokens": 1, "service_tier": "standard"
                }
            }}),
            json!({"type": "ping"}),
            json!({
                "type": "content_block_start", "index": 0,
                "content_block": {"type": "thinking", "thinking": "", "signature": ""}
            }),
            json!({"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "First "}}),
            json!({"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "the docs."}}),
            json!({"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "c2lnMQ=="}}),
            json!({"type": "content_block_stop", "index": 0}),
            json!({"type": "content_block_start", "index": 1, "content_block": {"type": "redacted_thinking", "data": "cmVk"}}),
            json!({"type": "content_block_stop", "index": 1}),
            json!({"type": "content_block_start", "index": 2, "content_block": {
                "type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}, "caller": {"type": "direct"}
            }}),
            json!({"type": "content_block_delta", "index": 2, "delta": {"type": "input_json_delta", "partial_json": ""}}),
            json!({
                "type": "content_block_delta", "index": 2,
                "delta": {"type": "input_json_delta", "partial_json": "{\"query\": \"ser"}
            }),
            json!({
                "type": "content_block_delta", "index": 2,
                "delta": {"type": "input_json_delta", "partial_json": "de 1.0\"}"}
            }),
            json!({"type": "content_block_stop", "index": 2}),
            json!({
                "type": "content_block_start", "index": 3,
                "content_block": {"type": "of_tomorrow", "payload": [1, {"deep": null}]}
            }),
            json!({"type": "content_block_delta", "index": 3, "delta": {"type": "of_tomorrow_delta", "payload": [2]}}),
            json!({"type": "content_block_stop", "index": 3}),
            json!({"type": "content_block_start", "index": 4, "content_block": {"type": "text", "text": "", "citations": []}}),
            json!({"type": "content_block_delta", "index": 4, "delta": {"type": "citations_delta", "citation": {
                "type": "char_location", "cited_text": "so", "document_index": 0, "document_title": null,
                "start_char_index": 0, "end_char_index": 2, "file_id": null
            }}}),
            json!({"type": "content_block_delta", "index": 4, "delta": {"type": "text_delta", "text": "It says"}}),
            json!({"type": "content_block_delta", "index": 4, "delta": {"type": "citations_delta", "citation": {
                "type": "char_location", "cited_text": "it", "document_index": 0, "document_title": null,
                "start_char_index": 5, "end_char_index": 7, "file_id": null
            }}}),
            json!({"type": "content_block_delta", "index": 4, "delta": {"type": "text_delta", "text": " so."}}),
            json!({"type": "content_block_stop", "index": 4}),
            json!({
                "type": "content_block_start", "index": 5,
                "content_block": {"type": "thinking", "thinking": "", "signature": ""}
            }),
            json!({"type": "content_block_delta", "index": 5, "delta": {"type": "signature_delta", "signature": "c2lnMg=="}}),
            json!({"type": "content_block_stop", "index": 5}),
            json!({"type": "content_block_start", "index": 6, "content_block": {"type": "text", "text": ""}}),
            json!({"type": "content_block_delta", "index": 6, "delta": {"type": "text_delta", "text": " Running."}}),
            json!({"type": "content_block_stop", "index": 6}),
            json!({"type": "content_block_start", "index": 7, "content_block": {
                "type": "tool_use", "id": "toolu_1", "name": "call_bash_repl", "input": {}
            }}),
            json!({
                "type": "content_block_delta", "index": 7,
                "delta": {"type": "input_json_delta", "partial_json": "{\"z\": \"ls\", "}
            }),
            json!({
                "type": "content_block_delta", "index": 7,
                "delta": {"type": "input_json_delta", "partial_json": "\"a\": [1.5, \"é\"]}"}
            }),
            json!({"type": "content_block_stop", "index": 7}),
            json!({"type": "content_block_start", "index": 8, "content_block": {
                "type": "tool_use", "id": "toolu_2", "name": "budget", "input": {}
            }}),
            json!({"type": "content_block_delta", "index": 8, "delta": {"type": "input_json_delta", "partial_json": ""}}),
            json!({"type": "content_block_stop", "index": 8}),
            json!({"type": "message_delta",
             "delta": {"stop_reason": "tool_use", "stop_sequence": null,
                       "container": {"id": "container_1", "expires_at": "2026-11-27T00:00:00Z"}},
             "usage": {"output_tokens": 50, "input_tokens": null, "output_tokens_details": {"thinking_tokens": 20}}}),
            json!({"type": "message_stop"}),
        ]
    }

    #[test]
    fn a_conversation_becomes_a_request() {
        let native_reply = json!([
            {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"},
            {"type": "redacted_thinking", "data": "cmVk"},
            {"type": "text", "text": "I look."},
            {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"at": "a.png"}},
            {"type": "tool_use", "id": "toolu_2", "name": "look", "input": {"at": "b.png"}}
        ]);
        let reply = json!({
            "role": "assistant", "content": "ignored", "tool_calls": [], "anthropic": {"content": native_reply},
        });
        let parts = json!([
            {"type": "text", "text": "What is this?"},
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,aWNv"}},
            {"type": "image_url", "image_url": {"url": "https://example.com/a.png", "detail": "low"}},
        ]);
        let messages = [
            json!({"role": "system", "content": "Be brief."}),
            json!({"role": "user", "content": parts}),
            reply,
            json!({"role": "tool", "tool_call_id": "toolu_1", "content": "a cat"}),
            json!({"role": "tool", "tool_call_id": "toolu_2", "content": [parts[1]]}),
            user("And?"),
        ];
        let schema = json!({"type": "object", "properties": {"at": {"type": "string"}}, "required": ["at"]});
        let fields = json!({
            "model": "claude-opus-5", "max_tokens": 1000, "stream": true, "stream_options": {"include_usage": true},
            "thinking": {"type": "adaptive"}, "stop": "END", "user": "u1", "n": 1, "parallel_tool_calls": false,
            "tool_choice": "required",
            "tools": [{"type": "function", "function": {"name": "look", "description": "Looks.", "parameters": schema}}],
        });
        let expected = json!({
            "model": "claude-opus-5", "stream": true, "thinking": {"type": "adaptive"}, "max_tokens": 1000,
            "stop_sequences": ["END"], "metadata": {"user_id": "u1"},
            "tools": [{
                "name": "look", "description": "Looks.",
                "input_schema": {"type": "object", "properties": {"at": {"type": "string"}}, "required": ["at"]}
            }],
            "tool_choice": {"type": "any", "disable_parallel_tool_use": true},
            "system": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
            "messages": [
                {"role": "user", "content": [
                    {"type": "text", "text": "What is this?"},
                    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aWNv"}},
                    {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"},
                     "cache_control": {"type": "ephemeral"}}
                ]},
                {"role": "assistant", "content": [
                    {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"},
                    {"type": "redacted_thinking", "data": "cmVk"},
                    {"type": "text", "text": "I look."},
                    {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"at": "a.png"}},
                    {"type": "tool_use", "id": "toolu_2", "name": "look", "input": {"at": "b.png"}}
                ]},
                {"role": "user", "content": [
                    {"type": "tool_result", "tool_use_id": "toolu_1", "content": "a cat"},
                    {"type": "tool_result", "tool_use_id": "toolu_2", "content": [
                        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aWNv"}}
                    ]},
                    {"type": "text", "text": "And?", "cache_control": {"type": "ephemeral"}}
                ]}
            ]
        });
        assert_eq!(request_of(&fields, &messages), expected);
    }

    #[test]
    fn messages_of_another_server_become_blocks() {
        let call = |id: &str, arguments: Json| {
            let function = json!({"name": "f", "arguments": arguments});
            json!({"id": id, "type": "function", "function": function})
        };
        let calls = [
            call("a", json!("{\"x\": 1}")),
            call("b", json!("{\"x\":")),
            call("c", json!("[1]")),
            call("d", json!({"y": 2})),
            call("e", Json::Null),
        ];
        let messages = [
            json!({"role": "system", "content": [{"type": "text", "text": "One."}]}),
            user("Go."),
            json!({"role": "assistant", "content": "Calling.", "reasoning_content": "Hm.", "tool_calls": calls}),
            // Results that come late are still first in their message.
            json!({"role": "tool", "tool_call_id": "a", "content": "1"}),
            user("Wait."),
            json!({"role": "tool", "tool_call_id": "b", "content": ""}),
            json!({"role": "system", "content": "Two."}),
            json!({"role": "assistant", "content": [{"type": "thinking", "thinking": []}, {"type": "text", "text": "Done."}]}),
            user("Thanks."),
        ];
        let expected = json!({
            "model": "m",
            "max_tokens": 4096,
            "system": [
                {"type": "text", "text": "One."},
                {"type": "text", "text": "Two.", "cache_control": {"type": "ephemeral"}}
            ],
            "messages": [
                {"role": "user", "content": [{"type": "text", "text": "Go."}]},
                {"role": "assistant", "content": [
                    {"type": "text", "text": "Calling."},
                    {"type": "tool_use", "id": "a", "name": "f", "input": {"x": 1}},
                    {"type": "tool_use", "id": "b", "name": "f", "input": {}},
                    {"type": "tool_use", "id": "c", "name": "f", "input": {}},
                    {"type": "tool_use", "id": "d", "name": "f", "input": {"y": 2}},
                    {"type": "tool_use", "id": "e", "name": "f", "input": {}}
                ]},
                {"role": "user", "content": [
                    {"type": "tool_result", "tool_use_id": "a", "content": "1"},
                    {"type": "tool_result", "tool_use_id": "b"},
                    {"type": "text", "text": "Wait.", "cache_control": {"type": "ephemeral"}}
                ]},
                {"role": "assistant", "content": [{"type": "text", "text": "Done."}]},
                {"role": "user", "content": [
                    {"type": "text", "text": "Thanks.", "cache_control": {"type": "ephemeral"}}
                ]}
            ]
        });
        assert_eq!(request_of(&json!({"model": "m"}), &messages), expected);
    }

    #[test]
    fn fields_have_their_names_here() {
        let options = |given: Json| Json::Object(options(&fields(given), 4096));
        let unchanged = json!({
            "temperature": 0.5, "top_k": 3, "service_tier": "auto", "n": 2, "metadata": {"user_id": "a"}, "max_tokens": 9,
        });
        assert_eq!(options(unchanged.clone()), unchanged);
        let translated = options(json!({
            "max_tokens": null, "max_completion_tokens": 7, "temperature": null, "stop": ["a", "b"], "user": "ignored",
            "metadata": {"user_id": "a"}, "output_config": {"effort": "low"}, "n": 1, "tools": [], "tool_choice": "auto",
            "response_format": {"type": "json_schema", "json_schema": {"name": "answer", "schema": {"type": "object"}}},
        }));
        let expected = json!({
            "metadata": {"user_id": "a"}, "max_tokens": 7, "stop_sequences": ["a", "b"],
            "output_config": {"effort": "low", "format": {"type": "json_schema", "schema": {"type": "object"}}},
        });
        assert_eq!(translated, expected);
        assert_eq!(options(json!({"response_format": {"type": "json_object"}})), json!({"max_tokens": 4096}));
    }

    #[test]
    fn tools_and_their_choice_are_translated() {
        let native = json!({"type": "web_search_20250305", "name": "web_search", "max_uses": 2});
        let mut marked = native.clone();
        marked["cache_control"] = json!({"type": "ephemeral"});
        let strict = json!({"name": "f", "description": null, "strict": true, "parameters": null});
        let tools = json!([marked, {"type": "function", "function": strict}]);
        let options = |mut given: Json| {
            given["tools"] = tools.clone();
            Json::Object(options(&fields(given), 4096))
        };
        let expected = json!([native, {"name": "f", "strict": true, "input_schema": {"type": "object"}}]);
        assert_eq!(options(json!({}))["tools"], expected);
        let choice = |given: Json| options(given)["tool_choice"].clone();
        assert_eq!(choice(json!({})), Json::Null);
        assert_eq!(
            choice(json!({"tool_choice": "none", "parallel_tool_calls": false})),
            json!({"type": "none"})
        );
        assert_eq!(
            choice(json!({"tool_choice": "auto", "parallel_tool_calls": true})),
            json!({"type": "auto"})
        );
        let single = json!({"type": "auto", "disable_parallel_tool_use": true});
        assert_eq!(choice(json!({"tool_choice": null, "parallel_tool_calls": false})), single);
        let named = json!({"type": "function", "function": {"name": "f"}});
        assert_eq!(choice(json!({"tool_choice": named})), json!({"type": "tool", "name": "f"}));
        for native in [json!({"type": "any"}), json!(3)] {
            assert_eq!(choice(json!({"tool_choice": native, "parallel_tool_calls": null})), native);
        }
    }

    #[test]
    fn what_is_empty_is_left_out() {
        let nothing = json!({"role": "assistant", "content": null, "anthropic": {"content": []}});
        let blank = json!({"role": "assistant", "content": [{"type": "text", "text": " \n"}]});
        let native_blank = json!({"role": "assistant", "content": null, "anthropic": {"content": [
            {"type": "text", "text": ""}, {"type": "text", "text": "\n\n"},
        ]}});
        let messages = messages_of(&[user("a"), nothing, user(" "), blank, native_blank, user("b")]);
        let expected = json!([{"role": "user", "content": [
            {"type": "text", "text": "a"},
            {"type": "text", "text": "b", "cache_control": {"type": "ephemeral"}},
        ]}]);
        assert_eq!(messages, expected);
        let tool_use = json!({"type": "tool_use", "id": "a", "name": "f", "input": {}});
        let native = json!({"role": "assistant", "anthropic": {"content": [{"type": "text", "text": "\n\n"}, tool_use]}});
        assert_eq!(messages_of(&[user("a"), native])[1]["content"], json!([tool_use]));
        // Beside thinking, a blank text is accepted and keeps its place.
        let native = json!({"role": "assistant", "anthropic": {"content": [
            {"type": "text", "text": "\n\n"},
            {"type": "thinking", "thinking": "", "signature": "a"},
            {"type": "text", "text": ""},
            {"type": "thinking", "thinking": "", "signature": "b"},
        ]}});
        let expected = json!([
            {"type": "text", "text": "\n\n"},
            {"type": "thinking", "thinking": "", "signature": "a"},
            {"type": "thinking", "thinking": "", "signature": "b"},
        ]);
        assert_eq!(messages_of(&[user("a"), native, user("b")])[1]["content"], expected);
        assert_eq!(request_of(&json!({}), &[json!({"role": "system", "content": ""})])["system"], Json::Null);
    }

    #[test]
    fn a_reply_comes_back_as_it_was() {
        let reply = reply(native()).unwrap();
        let message = reply["choices"][0]["message"].clone();
        let messages = messages_of(&[
            user("a"),
            message,
            json!({"role": "tool", "tool_call_id": "toolu_1", "content": "b"}),
        ]);
        assert_eq!(messages[1]["content"].to_string(), native()["content"].to_string());
    }

    #[test]
    fn a_request_only_adds_to_the_one_before() {
        let native = |text: &str| {
            let tool_use = json!({"type": "tool_use", "id": text, "name": "f", "input": {}});
            let blocks = json!([{"type": "thinking", "thinking": text, "signature": text}, tool_use]);
            json!({"role": "assistant", "content": null, "anthropic": {"content": blocks}})
        };
        let result =
            |id: &str| json!({"role": "tool", "tool_call_id": id, "content": [{"type": "text", "text": id}]});
        let tools =
            json!([{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]);
        let system = json!({"role": "system", "content": "s"});
        for (fields, head) in [(json!({}), vec![system]), (json!({"tools": tools}), vec![])] {
            let mut messages = head;
            let mut before: Option<Json> = None;
            for turn in ["a", "b", "c", "d", "e"] {
                messages.extend(match turn {
                    "a" => vec![user("x"), user("y")],
                    "d" => vec![native(turn), result(turn), user("z")],
                    _ => vec![native(turn), result(turn)],
                });
                let request = request_of(&fields, &messages);
                let (plain, marks) = without_marks(&request);
                assert_eq!(marks, if turn == "a" { 2 } else { 3 });
                let turns = request["messages"].as_array().unwrap();
                let is_marked = |turn: &Json| turn.to_string().contains("cache_control");
                assert!(turns.iter().all(|turn| turn["role"] == "user" || !is_marked(turn)));
                if let Some(before) = before.replace(request.clone()) {
                    let before_turns = before["messages"].as_array().unwrap();
                    let before_plain = without_marks(&before).0;
                    let len = before_turns.len();
                    assert_eq!(
                        plain["messages"].as_array().unwrap()[..len],
                        before_plain["messages"].as_array().unwrap()[..]
                    );
                    // The cache that the request before wrote ends at a mark of this request.
                    assert_eq!(turns[len - 1], before_turns[len - 1]);
                    assert!(is_marked(&turns[len - 1]));
                }
            }
        }
    }

    #[test]
    fn marks_of_others_do_not_count() {
        let mark = json!({"type": "ephemeral", "ttl": "1h"});
        let part = json!({"type": "text", "text": "a", "cache_control": mark});
        let document =
            json!({"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "d"}});
        let mut marked = document.clone();
        marked["cache_control"] = mark.clone();
        let request = request_of(
            &json!({"cache_control": mark}),
            &[json!({"role": "user", "content": [part, marked, part]})],
        );
        assert_eq!(request["cache_control"], Json::Null);
        let plain = json!({"type": "text", "text": "a"});
        assert_eq!(request["messages"][0]["content"], json!([plain, document, part]));
    }

    #[test]
    fn a_reply_becomes_a_chat_completion() {
        let blocks = native()["content"].clone();
        let expected = json!({
            "id": "msg_01", "object": "chat.completion", "model": "claude-opus-5",
            "choices": [{
                "index": 0,
                "message": {
                    "role": "assistant",
                    "content": "It says so. Running.",
                    "reasoning_content": "First the docs.",
                    "tool_calls": [
                        {"id": "toolu_1", "type": "function", "function": {
                            "name": "call_bash_repl", "arguments": "{\"z\":\"ls\",\"a\":[1.5,\"é\"]}",
                        }},
                        {"id": "toolu_2", "type": "function", "function": {"name": "budget", "arguments": "{}"}},
                    ],
                    "anthropic": {"content": blocks},
                },
                "finish_reason": "tool_calls",
            }],
            "usage": {
                "prompt_tokens": 3210, "completion_tokens": 50,
                "prompt_tokens_details": {"cached_tokens": 3000, "cache_write_tokens": 200},
                "completion_tokens_details": {"reasoning_tokens": 20},
            },
            "stop_details": null,
            "container": {"id": "container_1", "expires_at": "2026-11-27T00:00:00Z"},
        });
        assert_eq!(reply(native()).unwrap(), expected);
    }

    #[test]
    fn stop_reasons_get_openais_names() {
        let end = |reason: &str| {
            reply(json!({"content": [], "stop_reason": reason})).unwrap()["choices"][0].clone()
        };
        let ends = [
            ("end_turn", "stop"),
            ("stop_sequence", "stop"),
            ("tool_use", "tool_calls"),
            ("max_tokens", "length"),
            ("refusal", "refusal"),
            ("pause_turn", "pause_turn"),
            ("model_context_window_exceeded", "model_context_window_exceeded"),
            ("of_tomorrow", "of_tomorrow"),
        ];
        for (reason, expected) in ends {
            assert_eq!(end(reason)["finish_reason"], expected);
        }
        let message = json!({"role": "assistant", "content": null, "anthropic": {"content": []}});
        assert_eq!(end("refusal")["message"], message);
        let refusal = |details: Json| {
            let native = json!({"content": [], "stop_reason": "refusal", "stop_details": details});
            reply(native).unwrap()["choices"][0]["message"]["refusal"].clone()
        };
        assert_eq!(refusal(json!({"type": "refusal", "category": "cyber", "explanation": "No."})), "No.");
        assert_eq!(refusal(json!({"type": "refusal", "category": "cyber", "explanation": null})), "cyber");
        assert_eq!(refusal(Json::Null), Json::Null);
    }

    #[test]
    fn a_usage_has_what_the_server_tells() {
        let usage = |usage: Json| reply(json!({"content": [], "usage": usage})).unwrap()["usage"].clone();
        let nothing_cached = json!({"cached_tokens": 0, "cache_write_tokens": 0});
        let told = json!({
            "input_tokens": 3, "output_tokens": 2, "cache_read_input_tokens": null, "output_tokens_details": null,
        });
        let expected =
            json!({"prompt_tokens": 3, "completion_tokens": 2, "prompt_tokens_details": nothing_cached});
        assert_eq!(usage(told), expected);
        let expected = json!({"completion_tokens": 2, "prompt_tokens_details": nothing_cached});
        assert_eq!(usage(json!({"output_tokens": 2})), expected);
        assert_eq!(usage(Json::Null), Json::Null);
        let most = usage(json!({"input_tokens": u64::MAX, "cache_read_input_tokens": 1}));
        assert_eq!(most["prompt_tokens"], u64::MAX);
    }

    #[test]
    fn a_malformed_reply_is_refused() {
        let malformed = [
            (json!([]), "it is not an object"),
            (json!({"type": "error"}), "it has no content"),
            (json!({"content": "text"}), "its content is not a list"),
            (json!({"content": ["text"]}), "a block of its content is not an object"),
        ];
        for (native, expected) in malformed {
            assert_eq!(reply(native), Err(expected.to_owned()));
        }
        // Fields that a block lacks are left to the reader of the message.
        let odd = json!({"content": [{}, {"type": "text"}, {"type": "tool_use"}, {"type": "thinking", "thinking": 3}]});
        let message = reply(odd).unwrap()["choices"][0]["message"].clone();
        assert_eq!(message["tool_calls"][0]["function"], json!({"name": null, "arguments": "{}"}));
    }

    #[test]
    fn events_join_to_the_whole_message() {
        assert_eq!(joined_events(native_events()), native());
    }

    #[test]
    fn a_stream_is_whole_once_its_end_is_known() {
        let mut events = Events::default();
        events.add(json!({"type": "message_start", "message": {"content": [], "stop_reason": null}}));
        let tool_use = json!({"type": "tool_use", "id": "a", "name": "f", "input": {}});
        events.add(json!({"type": "content_block_start", "index": 0, "content_block": tool_use}));
        let piece = json!({"type": "input_json_delta", "partial_json": "{\"code\": \"pri"});
        events.add(json!({"type": "content_block_delta", "index": 0, "delta": piece}));
        assert!(!events.is_whole());
        events.add(json!({"type": "message_delta", "delta": {"stop_reason": "max_tokens"}, "usage": {"output_tokens": 9}}));
        assert!(events.is_whole());
        let expected =
            json!({"content": [tool_use], "stop_reason": "max_tokens", "usage": {"output_tokens": 9}});
        assert_eq!(events.into_body(), expected);
        let mut events = Events::default();
        events.add(json!({"type": "message_stop"}));
        assert!(events.is_whole());
    }

    #[test]
    fn later_models_and_compactions_are_those_of_the_whole_message() {
        let start = |block: Json| json!({"type": "content_block_start", "index": 0, "content_block": block});
        let fallback = json!({"type": "fallback", "from": {"model": "a"}, "to": {"model": "b"}});
        let compaction =
            json!({"type": "compaction_delta", "content": "So far.", "encrypted_content": "eA=="});
        let body = joined_events([
            json!({"type": "message_start", "message": {"model": "a"}}),
            start(fallback.clone()),
            // A server that does not number blocks.
            start(json!({"type": "compaction", "content": null})),
            json!({"type": "content_block_delta", "index": 0, "delta": compaction}),
            json!({
                "type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": null,
                "context_management": {"applied_edits": []},
            }),
        ]);
        let expected = json!({
            "model": "b",
            "content": [fallback, {"type": "compaction", "content": "So far.", "encrypted_content": "eA=="}],
            "context_management": {"applied_edits": []},
            "stop_reason": "end_turn",
        });
        assert_eq!(body, expected);
    }

    #[test]
    fn nonsense_ends_nothing() {
        let events = [
            json!(1),
            json!({}),
            json!({"type": "message_start", "message": 1}),
            json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "lost"}}),
            json!({"type": "content_block_start", "content_block": 1}),
            json!({"type": "content_block_start", "content_block": {"type": "text", "text": 1, "citations": 1}}),
            json!({"type": "content_block_delta", "delta": 1}),
            json!({"type": "content_block_delta", "delta": {"type": "text_delta", "text": 1}}),
            json!({"type": "content_block_delta", "delta": {"type": "input_json_delta"}}),
            json!({"type": "content_block_delta", "delta": {"type": "citations_delta"}}),
            json!({"type": "message_delta", "delta": 1, "usage": 1}),
            json!({"type": "message_stop"}),
        ];
        assert_eq!(joined_events(events)["content"].as_array().map(Vec::len), Some(1));
        let messages =
            [json!(1), json!({}), json!({"role": "assistant", "content": 1, "tool_calls": [1]}), user("a")];
        let fields =
            json!({"stop": 1, "user": 1, "metadata": 1, "tools": 1, "tool_choice": 1, "response_format": 1});
        assert_eq!(request_of(&fields, &messages)["messages"].as_array().map(Vec::len), Some(2));
        let fields = json!({"tools": [1], "tool_choice": 1, "parallel_tool_calls": false});
        assert_eq!(request_of(&fields, &messages)["tools"], json!([1]));
    }
}
