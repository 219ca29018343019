//! Requests and replies in both forms.

use serde_json::{Map, Value as Json, json};

use super::request::options;
use super::*;
use crate::llm::api::Api;
use crate::llm::message::{ChatMessage, Form};
use crate::llm::rules::Rules;

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
    let thinking = json!({"type": "enabled", "budget_tokens": 32_000});
    assert_eq!(options(json!({"thinking": thinking}))["max_tokens"], 36_096);
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
    assert_eq!(choice(json!({"tool_choice": "none", "parallel_tool_calls": false})), json!({"type": "none"}));
    assert_eq!(choice(json!({"tool_choice": "auto", "parallel_tool_calls": true})), json!({"type": "auto"}));
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
            "prompt_tokens_details": {
                "cached_tokens": 3000, "cache_write_tokens": 200,
                "cache_creation_token_details": {"ephemeral_5m_input_tokens": 200, "ephemeral_1h_input_tokens": 0},
            },
            "completion_tokens_details": {"reasoning_tokens": 20},
        },
        "stop_details": null,
        "container": {"id": "container_1", "expires_at": "2026-11-27T00:00:00Z"},
    });
    assert_eq!(reply(native()).unwrap(), expected);
}

#[test]
fn stop_reasons_get_openais_names() {
    let end =
        |reason: &str| reply(json!({"content": [], "stop_reason": reason})).unwrap()["choices"][0].clone();
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
    let odd =
        json!({"content": [{}, {"type": "text"}, {"type": "tool_use"}, {"type": "thinking", "thinking": 3}]});
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
