//! Messages without the model's reasoning, and without what signs or encrypts it: for trajectories and transcripts that
//! are not to keep it. Such a message cannot be sent to a server that wants its own reasoning back, so what was left out is
//! named beside it.

use std::collections::BTreeSet;

use rlm_rootd::without_thoughts;
use serde_json::{Map, Value as Json};

use super::entry::Event;

/// Fields of a message, of its calls and of the parts of its text.
const FIELDS: [&str; 19] = [
    "reasoning_content",
    "reasoning",
    "reasoning_details",
    "reasoning_text",
    "reasoning_opaque",
    "reasoning_signature",
    "reasoning_summary",
    "cot_summary",
    "cot_id",
    "thinking",
    "thinking_blocks",
    "signature",
    "thought_signature",
    "thoughtSignature",
    "encrypted_content",
    "extra_content",
    "provider_specific_fields",
    "anthropic",
    "responses",
];

/// Types of the parts of a text.
const PARTS: [&str; 5] = ["thinking", "redacted_thinking", "reasoning", "reasoning_text", "thought"];

/// LiteLLM's separator between an id of a call and a signature.
const SIGNED_ID: &str = "__thought__";

/// A message without the model's reasoning, and the names of what was left out.
#[must_use]
pub fn without_reasoning(message: &Json) -> (Json, Vec<String>) {
    let (mut message, mut left_out) = (message.clone(), BTreeSet::new());
    let is_reply = message.get("role").is_none_or(|role| role == "assistant");
    if let Some(fields) = message.as_object_mut() {
        if let Some(Json::String(id)) = fields.get_mut("tool_call_id") {
            unsign(id);
        }
        if is_reply {
            reply(fields, &mut left_out);
        }
    }
    (message, left_out.into_iter().collect())
}

/// An event whose messages have none of it. Tokens and their log probabilities would tell it, too.
pub(crate) fn event_without_reasoning(mut event: Event) -> Event {
    match &mut event {
        Event::Message(message) => {
            (message.message, message.left_out) = without_reasoning(&message.message);
        }
        Event::ModelCall(call) => call.left_out = extra(&mut call.extra),
        Event::RolloutStarted(started) => {
            if let Some(id) = &mut started.parent_call_id {
                unsign(id);
            }
        }
        Event::CallStarted(call) => unsign(&mut call.call_id),
        Event::CallEnded(call) => unsign(&mut call.call_id),
        Event::SubCall(call) => {
            let mut left_out: BTreeSet<String> = extra(&mut call.extra).into_iter().collect();
            for message in call.messages.iter_mut().chain(&mut call.reply) {
                let (kept, names) = without_reasoning(message);
                *message = kept;
                left_out.extend(names);
            }
            call.left_out = left_out.into_iter().collect();
            if let Some(id) = &mut call.call_id {
                unsign(id);
            }
        }
        _ => {}
    }
    event
}

fn extra(extra: &mut Option<Json>) -> Vec<String> {
    extra.take().map(|_| "extra".to_owned()).into_iter().collect()
}

fn reply(fields: &mut Map<String, Json>, left_out: &mut BTreeSet<String>) {
    remove(fields, "", left_out);
    match fields.get_mut("content") {
        Some(Json::String(text)) => forget_thoughts(text, left_out),
        Some(Json::Array(parts)) => {
            parts.retain(|part| {
                let kind = part["type"].as_str().filter(|kind| PARTS.contains(kind));
                left_out.extend(kind.map(|kind| format!("content.{kind}")));
                kind.is_none()
            });
            for part in parts.iter_mut().filter_map(Json::as_object_mut) {
                remove(part, "content.", left_out);
                if let Some(Json::String(text)) = part.get_mut("text") {
                    forget_thoughts(text, left_out);
                }
            }
        }
        _ => {}
    }
    let calls = fields.get_mut("tool_calls").and_then(Json::as_array_mut);
    for call in calls.into_iter().flatten().filter_map(Json::as_object_mut) {
        remove(call, "tool_calls.", left_out);
        if let Some(Json::Object(function)) = call.get_mut("function") {
            remove(function, "tool_calls.", left_out);
        }
        if let Some(Json::String(id)) = call.get_mut("id") {
            unsign(id);
        }
    }
}

fn remove(fields: &mut Map<String, Json>, place: &str, left_out: &mut BTreeSet<String>) {
    fields.retain(|name, value| {
        let is_removed = FIELDS.contains(&name.as_str());
        if is_removed && !value.is_null() {
            left_out.insert(format!("{place}{name}"));
        }
        !is_removed
    });
}

fn forget_thoughts(text: &mut String, left_out: &mut BTreeSet<String>) {
    let kept = without_thoughts(text);
    if kept != *text {
        left_out.insert("content".to_owned());
        *text = kept.into_owned();
    }
}

fn unsign(id: &mut String) {
    if let Some(at) = id.find(SIGNED_ID) {
        id.truncate(at);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn reasoning_is_left_out_wherever_a_server_puts_it() {
        let (kept, left_out) = without_reasoning(&json!({
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": [{"type": "text", "text": "SECRET"}]},
                {"type": "redacted_thinking", "data": "SECRET"},
                {"type": "text", "text": "<think>SECRET</think>Hello."},
            ],
            "reasoning_content": "SECRET",
            "reasoning": null,
            "reasoning_details": [{"type": "reasoning.encrypted", "data": "SECRET"}],
            "thinking_blocks": [{"signature": "SECRET"}],
            "anthropic": [{"type": "thinking", "signature": "SECRET"}],
            "responses": [{"type": "reasoning", "encrypted_content": "SECRET"}],
            "tool_calls": [{
                "id": "call_1__thought__SECRET", "type": "function",
                "function": {"name": "f", "arguments": "{}", "provider_specific_fields": {"thought_signature": "SECRET"}},
                "extra_content": {"google": {"thought_signature": "SECRET"}},
            }],
        }));
        assert!(!kept.to_string().contains("SECRET"), "{kept}");
        let expected = json!({
            "role": "assistant",
            "content": [{"type": "text", "text": "Hello."}],
            "tool_calls": [{"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
        });
        assert_eq!(kept, expected);
        assert_eq!(
            left_out,
            [
                "anthropic",
                "content",
                "content.redacted_thinking",
                "content.thinking",
                "reasoning_content",
                "reasoning_details",
                "responses",
                "thinking_blocks",
                "tool_calls.extra_content",
                "tool_calls.provider_specific_fields",
            ]
        );
    }

    #[test]
    fn what_others_say_stays_as_it_is() {
        for message in [
            json!({"role": "user", "content": "<think>mine</think>", "reasoning": "mine"}),
            json!({"role": "tool", "tool_call_id": "c", "content": "<think>"}),
            json!({"role": "assistant", "content": "plain", "tool_calls": [{"id": "c"}]}),
        ] {
            assert_eq!(without_reasoning(&message), (message, Vec::new()));
        }
        let answer = json!({"role": "tool", "tool_call_id": "c__thought__SECRET", "content": ""});
        assert_eq!(without_reasoning(&answer).0["tool_call_id"], "c");
        let started = json!({
            "event": "rollout_started", "version": 1, "question": "?", "language": "bash", "model": "m", "root_tools": [],
            "tools": [], "context_files": 0, "context_bytes": 0, "parent_call_id": "c__thought__SECRET",
        });
        let started = event_without_reasoning(serde_json::from_value(started).unwrap());
        assert_eq!(serde_json::to_value(started).unwrap()["parent_call_id"], "c");
    }
}
