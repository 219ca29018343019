//! Replies, as chat completions.

use serde_json::{Map, Value as Json, json};

use super::request::is_of_type;
use crate::llm::reply::count;

/// Fields of a native message that have another place, or no place, in a chat completion.
const NATIVE_FIELDS: [&str; 3] = ["type", "role", "stop_sequence"];

/// The reply as a chat completion.
///
/// # Errors
/// A sentence on what is malformed.
pub(in crate::llm::wire) fn reply(native: Json) -> Result<Json, String> {
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
    if let Some(by_time) = native.get("cache_creation").filter(|by_time| by_time.is_object()) {
        usage["prompt_tokens_details"]["cache_creation_token_details"] = by_time.clone();
    }
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
