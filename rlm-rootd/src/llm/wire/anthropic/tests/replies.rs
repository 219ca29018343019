//! Replies, as chat completions.

use super::*;

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
