//! Replies, as chat completions.

use serde_json::{Map, Value as Json, json};

use crate::llm::server_error::says_something;

/// Separator of the texts of two items.
const PARAGRAPH: &str = "\n\n";

/// Native names of token counts, and their names in the chat form. The details have the same fields in both.
const COUNTS: [(&str, &str); 4] = [
    ("input_tokens", "prompt_tokens"),
    ("output_tokens", "completion_tokens"),
    ("input_tokens_details", "prompt_tokens_details"),
    ("output_tokens_details", "completion_tokens_details"),
];

/// The reply as a chat completion. If the response failed, a body that has only its `error`.
///
/// # Errors
/// A sentence on what is malformed.
pub(in crate::llm::wire) fn reply(native: Json) -> Result<Json, String> {
    let Json::Object(mut native) = native else { return Err("it is not an object".to_owned()) };
    native.retain(|_, value| !value.is_null());
    let status = native.get("status").and_then(Json::as_str).unwrap_or("completed");
    match (native.get("error").filter(|error| says_something(error)), status) {
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
    // SGLang's router has texts of the type `text` (sgl-project/sglang#12652).
    let text =
        |item: &Json| ["output_text", "text"].map(|kind| joined(&item["content"], kind, "text", "")).concat();
    // Commentary before an answer is not a part of it.
    let answers = of_kind("message").filter(|item| item["phase"] != "commentary");
    let content = paragraphs(answers.map(text)).or_else(|| paragraphs(of_kind("message").map(text)));
    let mut message =
        Map::from_iter([("role".to_owned(), "assistant".into()), ("content".to_owned(), content.into())]);
    let mut add =
        |name: &str, value: Option<Json>| message.extend(value.map(|value| (name.to_owned(), value)));
    let refusal = |item: &Json| joined(&item["content"], "refusal", "refusal", "");
    add("refusal", paragraphs(of_kind("message").map(refusal)).map(Json::from));
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
