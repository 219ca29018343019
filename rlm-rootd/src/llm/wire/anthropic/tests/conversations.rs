//! The messages of a request.

use super::*;

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
        "tools": [{"name": "look", "description": "Looks.", "input_schema": schema}],
        "tool_choice": {"type": "any", "disable_parallel_tool_use": true},
        "system": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
        "messages": [
            {"role": "user", "content": [
                {"type": "text", "text": "What is this?"},
                {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aWNv"}},
                {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"},
                 "cache_control": {"type": "ephemeral"}}
            ]},
            {"role": "assistant", "content": native_reply},
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
    let native =
        json!({"role": "assistant", "anthropic": {"content": [{"type": "text", "text": "\n\n"}, tool_use]}});
    assert_eq!(messages_of(&[user("a"), native])[1]["content"], json!([tool_use]));
    // Beside thinking, a blank text is accepted and keeps its place.
    let native = json!({"role": "assistant", "anthropic": {"content": [
        {"type": "text", "text": "\n\n"},
        {"type": "thinking", "thinking": "", "signature": "a"},
        {"type": "text", "text": ""},
        {"type": "thinking", "thinking": "", "signature": "b"},
        tool_use,
    ]}});
    let expected = json!([
        {"type": "text", "text": "\n\n"},
        {"type": "thinking", "thinking": "", "signature": "a"},
        {"type": "thinking", "thinking": "", "signature": "b"},
        tool_use,
    ]);
    assert_eq!(messages_of(&[user("a"), native, user("b")])[1]["content"], expected);
    assert_eq!(request_of(&json!({}), &[json!({"role": "system", "content": ""})])["system"], Json::Null);
}

#[test]
fn thinking_that_nothing_follows_is_left_out_and_told() {
    let thinking = json!({"type": "thinking", "thinking": "Hm.", "signature": "a"});
    let redacted = json!({"type": "redacted_thinking", "data": "cmVk"});
    let text = |text: &str| json!({"type": "text", "text": text});
    let rules = Rules::default();
    let sent = |blocks: &[Json]| {
        let messages = [user("a"), json!({"role": "assistant", "anthropic": {"content": blocks}}), user("b")];
        let messages = messages.map(ChatMessage::from);
        let body = request(&Map::new(), &messages, Form { api: Api::Anthropic, has_native: true }, &rules);
        assert_eq!(body.adapted.len(), 1, "{blocks:?}");
        serde_json::from_slice::<Json>(&body.bytes).unwrap()["messages"].take()
    };
    let nothing: [&[Json]; 4] = [
        &[],
        std::slice::from_ref(&thinking),
        &[thinking.clone(), redacted.clone()],
        &[thinking.clone(), text("\n")],
    ];
    for blocks in nothing {
        let messages = sent(blocks);
        assert_eq!(
            (messages.as_array().unwrap().len(), &messages[0]["content"][1]["text"]),
            (1, &json!("b"))
        );
    }
    let cut = [thinking.clone(), text("So."), redacted, text("")];
    assert_eq!(sent(&cut)[1]["content"], json!([thinking, text("So.")]));
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

#[test]
fn a_request_only_adds_to_the_one_before() {
    let native = |text: &str| {
        let tool_use = json!({"type": "tool_use", "id": text, "name": "f", "input": {}});
        let blocks = json!([{"type": "thinking", "thinking": text, "signature": text}, tool_use]);
        json!({"role": "assistant", "content": null, "anthropic": {"content": blocks}})
    };
    let result =
        |id: &str| json!({"role": "tool", "tool_call_id": id, "content": [{"type": "text", "text": id}]});
    let tools = json!([{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]);
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
