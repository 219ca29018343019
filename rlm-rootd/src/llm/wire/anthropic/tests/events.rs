//! Events of a stream, joined to the whole message.

use super::*;

/// The events of the native message.
fn native_events() -> Vec<Json> {
    let thinking = json!({"type": "thinking", "thinking": "", "signature": ""});
    let signed = |signature: &str| json!({"type": "signature_delta", "signature": signature});
    let cited = |text: &str, start: u32, end: u32| {
        json!({"type": "citations_delta", "citation": {
            "type": "char_location", "cited_text": text, "document_index": 0, "document_title": null,
            "start_char_index": start, "end_char_index": end, "file_id": null
        }})
    };
    let text = |text: &str| json!({"type": "text_delta", "text": text});
    let input = |piece: &str| json!({"type": "input_json_delta", "partial_json": piece});
    let tool_use = |id: &str, name: &str| json!({"type": "tool_use", "id": id, "name": name, "input": {}});
    // Each block at its start, and its deltas.
    let blocks = [
        (
            thinking.clone(),
            vec![
                json!({"type": "thinking_delta", "thinking": "First "}),
                json!({"type": "thinking_delta", "thinking": "the docs."}),
                signed("c2lnMQ=="),
            ],
        ),
        (json!({"type": "redacted_thinking", "data": "cmVk"}), vec![]),
        (
            json!({
                "type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {},
                "caller": {"type": "direct"}
            }),
            vec![input(""), input("{\"query\": \"ser"), input("de 1.0\"}")],
        ),
        (
            json!({"type": "of_tomorrow", "payload": [1, {"deep": null}]}),
            vec![json!({"type": "of_tomorrow_delta", "payload": [2]})],
        ),
        (
            json!({"type": "text", "text": "", "citations": []}),
            vec![cited("so", 0, 2), text("It says"), cited("it", 5, 7), text(" so.")],
        ),
        (thinking, vec![signed("c2lnMg==")]),
        (json!({"type": "text", "text": ""}), vec![text(" Running.")]),
        (
            tool_use("toolu_1", "call_bash_repl"),
            vec![input("{\"z\": \"ls\", "), input("\"a\": [1.5, \"é\"]}")],
        ),
        (tool_use("toolu_2", "budget"), vec![input("")]),
    ];
    let start = json!({"type": "message_start", "message": {
        "id": "msg_01", "type": "message", "role": "assistant", "model": "claude-opus-5", "content": [],
        "stop_reason": null, "stop_sequence": null, "stop_details": null,
        "usage": {
            "input_tokens": 10, "cache_creation_input_tokens": 200, "cache_read_input_tokens": 3000,
            "cache_creation": {"ephemeral_5m_input_tokens": 200, "ephemeral_1h_input_tokens": 0},
            "output_tokens": 1, "service_tier": "standard"
        }
    }});
    let mut events = vec![start, json!({"type": "ping"})];
    for (index, (block, deltas)) in blocks.into_iter().enumerate() {
        events.push(json!({"type": "content_block_start", "index": index, "content_block": block}));
        let delta = |delta| json!({"type": "content_block_delta", "index": index, "delta": delta});
        events.extend(deltas.into_iter().map(delta));
        events.push(json!({"type": "content_block_stop", "index": index}));
    }
    events.push(json!({"type": "message_delta",
     "delta": {"stop_reason": "tool_use", "stop_sequence": null,
               "container": {"id": "container_1", "expires_at": "2026-11-27T00:00:00Z"}},
     "usage": {"output_tokens": 50, "input_tokens": null, "output_tokens_details": {"thinking_tokens": 20}}}));
    events.push(json!({"type": "message_stop"}));
    events
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
    let expected = json!({"content": [tool_use], "stop_reason": "max_tokens", "usage": {"output_tokens": 9}});
    assert_eq!(events.into_body(), expected);
    let mut events = Events::default();
    events.add(json!({"type": "message_stop"}));
    assert!(events.is_whole());
}

#[test]
fn the_last_counts_of_a_stream_are_those_of_the_whole_message() {
    let usage = |start: Json, last: Json| {
        let body = joined_events([
            json!({"type": "message_start", "message": {"content": [], "usage": start}}),
            json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": last}),
        ]);
        let usage = reply(body).unwrap()["usage"].clone();
        [&usage["prompt_tokens"], &usage["prompt_tokens_details"]["cached_tokens"]].map(Json::as_u64)
    };
    for (start, last, prompt, cached) in [
        (
            json!({"input_tokens": 5000, "cache_read_input_tokens": 300}),
            json!({"input_tokens": 0}),
            5300,
            300,
        ),
        (json!({"input_tokens": 0}), json!({"input_tokens": 14, "cache_read_input_tokens": 100}), 114, 100),
        (json!({"input_tokens": 20}), json!({"input_tokens": 20, "cache_read_input_tokens": 100}), 120, 100),
        // DashScope
        (json!({"input_tokens": 3602}), json!({"cache_read_input_tokens": 3604}), 3604, 3604),
        (json!({"input_tokens": 3602}), json!({"cache_read_input_tokens": 600}), 3602, 600),
    ] {
        assert_eq!(usage(start.clone(), last.clone()), [Some(prompt), Some(cached)], "{start} {last}");
    }
}

#[test]
fn later_models_and_compactions_are_those_of_the_whole_message() {
    let start = |block: Json| json!({"type": "content_block_start", "index": 0, "content_block": block});
    let fallback = json!({"type": "fallback", "from": {"model": "a"}, "to": {"model": "b"}});
    let compaction = json!({"type": "compaction_delta", "content": "So far.", "encrypted_content": "eA=="});
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
