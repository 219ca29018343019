//! Requests and replies in both forms.

mod conversations;
mod events;
mod fields;
mod replies;

use serde_json::{Map, Value as Json, json};

use super::*;
use crate::llm::api::Api;
use crate::llm::message::{ChatMessage, Form};
use crate::llm::rules::Rules;

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

#[test]
fn nonsense_ends_nothing() {
    let events = [
        json!(1),
        json!({}),
        json!({"type": "message_start", "message": 1}),
        json!({"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": "{}"}}),
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
