//! Requests and replies in both forms.

mod events;

use serde_json::{Map, Value as Json, json};

use super::*;
use crate::llm::api::Api;
use crate::llm::message::{ChatMessage, Form};
use crate::llm::rules::{ArgumentsForm, Rules};

fn request_of(fields: Json, messages: &[Json]) -> Json {
    let Json::Object(fields) = fields else { panic!("fields are an object") };
    let messages: Vec<ChatMessage> = messages.iter().cloned().map(ChatMessage::from).collect();
    let form = Form { api: Api::Responses, has_native: true };
    serde_json::from_slice(&request(&fields, &messages, form, &Rules::default()).bytes)
        .expect("a body is JSON")
}

#[test]
fn rules_that_a_server_has_taught_hold_here_too() {
    let broken = json!({"type": "function_call", "call_id": "c", "name": "f", "arguments": "{\"cut"});
    let call = json!({"id": "c", "type": "function", "function": {"name": "f", "arguments": "{\"cut"}});
    let calls = json!({"role": "assistant", "content": null, "tool_calls": [call]});
    let mut native = calls.clone();
    native["responses"] = json!({"output": [broken]});
    let rules = Rules { arguments: Some(ArgumentsForm::Json), system_as_user: true, ..Rules::default() };
    let form = Form { api: Api::Responses, has_native: true };
    for reply in [calls, native] {
        let messages =
            [json!({"role": "system", "content": "s"}), json!({"role": "user", "content": "u"}), reply];
        let messages: Vec<ChatMessage> = messages.into_iter().map(ChatMessage::from).collect();
        let body = request(&Map::new(), &messages, form, &rules);
        assert_eq!(body.adapted.len(), 2, "{:?}", body.adapted);
        let body: Json = serde_json::from_slice(&body.bytes).unwrap();
        assert_eq!(body["instructions"], Json::Null);
        let mended = json!({"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"});
        assert_eq!(body["input"], json!([{"role": "user", "content": "s\n\nu"}, mended]));
    }
}

fn input_of(messages: &[Json]) -> Json {
    request_of(json!({}), messages)["input"].clone()
}

/// The message of a reply whose output has these items.
fn message_of(output: Json) -> Json {
    reply(json!({"output": output})).unwrap()["choices"][0]["message"].take()
}

fn chat_fields() -> Json {
    json!({
        "model": "gpt-5.6-terra",
        "tools": [
            {"type": "function", "function": {"name": "call_python_repl", "description": "Runs code.", "parameters": {
                "type": "object", "properties": {"code": {"type": "string"}}, "required": ["code"],
            }}},
            {"type": "function", "function": {"name": "stop", "strict": true}},
            {"type": "web_search"},
        ],
        "tool_choice": {"type": "function", "function": {"name": "call_python_repl"}},
        "max_completion_tokens": 9000, "max_tokens": 8000,
        "reasoning_effort": "high", "reasoning": {"summary": "auto"},
        "response_format": {"type": "json_schema", "json_schema": {
            "name": "answer", "strict": true, "schema": {"type": "object"},
        }},
        "verbosity": "low",
        "logprobs": true, "top_logprobs": 2,
        "stream": true, "stream_options": {"include_usage": true},
        "n": 1, "temperature": 0.5, "top_p": null,
        "parallel_tool_calls": false, "prompt_cache_key": "rollout-1", "metadata": {"run": "7"}, "service_tier": "flex",
    })
}

fn request_with_all_fields() -> Json {
    json!({
        "model": "gpt-5.6-terra",
        "tools": [
            {"type": "function", "name": "call_python_repl", "description": "Runs code.", "parameters": {
                "type": "object", "properties": {"code": {"type": "string"}}, "required": ["code"],
            }, "strict": false},
            {"type": "function", "name": "stop", "strict": true, "parameters": {"type": "object", "properties": {}}},
            {"type": "web_search"},
        ],
        "tool_choice": {"type": "function", "name": "call_python_repl"},
        "max_output_tokens": 8000,
        "reasoning": {"effort": "high", "summary": "auto"},
        "text": {
            "format": {"type": "json_schema", "name": "answer", "strict": true, "schema": {"type": "object"}},
            "verbosity": "low",
        },
        "include": ["message.output_text.logprobs", "reasoning.encrypted_content"],
        "top_logprobs": 2,
        "stream": true, "temperature": 0.5,
        "parallel_tool_calls": false, "prompt_cache_key": "rollout-1", "metadata": {"run": "7"}, "service_tier": "flex",
        "store": false,
        "input": [{"role": "user", "content": "Hi"}],
    })
}

#[test]
fn fields_go_where_responses_has_them() {
    let body = request_of(chat_fields(), &[json!({"role": "user", "content": "Hi"})]);
    assert_eq!(body, request_with_all_fields());
}

#[test]
fn a_bound_is_never_below_the_least() {
    let bound = |fields: Json| request_of(fields, &[])["max_output_tokens"].clone();
    assert_eq!(bound(json!({"max_tokens": 5})), 16);
    assert_eq!(bound(json!({"max_tokens": 17, "max_completion_tokens": 3})), 16);
    assert_eq!(bound(json!({"max_completion_tokens": 17, "max_tokens": null})), 17);
    assert_eq!(bound(json!({"max_tokens": "many"})), "many");
    assert_eq!(bound(json!({"max_output_tokens": 1})), 1);
    assert_eq!(bound(json!({})), Json::Null);
}

#[test]
fn what_responses_has_no_field_for_is_left_to_the_server() {
    let include = json!(["reasoning.encrypted_content"]);
    let fields = json!({
        "stop": ["END"], "seed": 7, "store": true, "include": include, "logprobs": false, "tool_choice": "auto", "text": {},
    });
    let expected = json!({
        "stop": ["END"], "seed": 7, "store": true, "include": include, "tool_choice": "auto", "input": [],
    });
    assert_eq!(request_of(fields, &[]), expected);
}

fn chat_messages() -> Json {
    json!([
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [
            {"type": "text", "text": "Look."},
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}},
            {"type": "image_url", "image_url": {"url": "https://example.org/a.png", "detail": "low"}},
            {"type": "file", "file": {"file_id": "file-1"}},
        ]},
        {"role": "assistant", "content": " \n", "tool_calls": [
            {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{\"a\": 1}"}},
            {"id": "call_2", "type": "function", "function": {"name": "g", "arguments": ""}},
        ]},
        {"role": "tool", "tool_call_id": "call_1", "content": "one"},
        {"role": "tool", "tool_call_id": "call_2", "content": [{"type": "text", "text": "two"}]},
        {"role": "assistant", "content": "Done."},
        {"role": "developer", "content": "Be briefer."},
    ])
}

fn request_without_native_items() -> Json {
    json!({
        "model": "m",
        "store": false,
        "include": ["reasoning.encrypted_content"],
        "instructions": "Be brief.",
        "input": [
            {"role": "user", "content": [
                {"type": "input_text", "text": "Look."},
                {"type": "input_image", "image_url": "data:image/png;base64,AA==", "detail": "auto"},
                {"type": "input_image", "image_url": "https://example.org/a.png", "detail": "low"},
                {"type": "input_file", "file_id": "file-1"},
            ]},
            {"type": "function_call", "call_id": "call_1", "name": "f", "arguments": "{\"a\": 1}"},
            {"type": "function_call", "call_id": "call_2", "name": "g", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "call_1", "output": "one"},
            {"type": "function_call_output", "call_id": "call_2", "output": [{"type": "input_text", "text": "two"}]},
            {"type": "message", "role": "assistant", "content": "Done."},
            {"role": "developer", "content": "Be briefer."},
        ],
    })
}

#[test]
fn messages_become_items() {
    let Json::Array(messages) = chat_messages() else { panic!("messages are a list") };
    assert_eq!(request_of(json!({"model": "m"}), &messages), request_without_native_items());
}

#[test]
fn a_system_message_is_an_item_where_it_cannot_be_the_instructions() {
    let system = json!({"role": "system", "content": "Be brief."});
    let user = json!({"role": "user", "content": null});
    assert_eq!(input_of(std::slice::from_ref(&system)), json!([system]));
    let body = request_of(json!({"instructions": "Rhyme."}), &[system.clone(), user]);
    assert_eq!(body["instructions"], "Rhyme.");
    assert_eq!(body["input"], json!([system, {"role": "user", "content": ""}]));
}

/// A response with parts that a translation could lose: reasoning, phases, annotations, statuses, and an unknown item.
fn native_response() -> Json {
    json!({
        "id": "resp_1", "object": "response", "created_at": 1790000000, "status": "completed", "error": null,
        "incomplete_details": null, "instructions": "Be brief.", "model": "gpt-5.6-terra", "parallel_tool_calls": true,
        "tool_choice": "auto", "tools": [], "metadata": {}, "temperature": 1.0, "top_p": 1.0,
        "output": [
            {"id": "rs_1", "type": "reasoning", "encrypted_content": "gAAAA", "summary": [
                {"type": "summary_text", "text": "First"}, {"type": "summary_text", "text": "Second"},
            ]},
            {
                "id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "phase": "commentary",
                "content": [
                    {"type": "output_text", "text": "I look ", "logprobs": [], "annotations": [
                        {"type": "url_citation", "start_index": 0, "end_index": 6, "title": "T", "url": "https://a.org"},
                    ]},
                    {"type": "output_text", "text": "it up.", "annotations": []},
                ],
            },
            {
                "id": "fc_1", "type": "function_call", "status": "completed",
                "call_id": "call_1", "name": "f", "arguments": "{\"a\":1 }",
            },
            {"id": "x_1", "type": "telepathy_call", "thought": {"b": 1, "a": 0.1}},
            {
                "id": "fc_2", "type": "function_call", "status": "completed",
                "call_id": "call_2", "name": "g", "arguments": "",
            },
        ],
        "usage": {
            "input_tokens": 100, "input_tokens_details": {"cached_tokens": 64, "cache_write_tokens": 32},
            "output_tokens": 50, "output_tokens_details": {"reasoning_tokens": 40}, "total_tokens": 150,
        },
    })
}

fn chat_completion() -> Json {
    json!({
        "id": "resp_1", "object": "chat.completion", "created": 1790000000, "model": "gpt-5.6-terra",
        "choices": [{
            "index": 0,
            "message": {
                "role": "assistant",
                "content": "I look it up.",
                "reasoning_content": "First\n\nSecond",
                "tool_calls": [
                    {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{\"a\":1 }"}},
                    {"id": "call_2", "type": "function", "function": {"name": "g", "arguments": ""}},
                ],
            },
            "finish_reason": "tool_calls",
        }],
        "usage": {
            "prompt_tokens": 100, "prompt_tokens_details": {"cached_tokens": 64, "cache_write_tokens": 32},
            "completion_tokens": 50, "completion_tokens_details": {"reasoning_tokens": 40}, "total_tokens": 150,
        },
    })
}

#[test]
fn a_reply_is_a_chat_completion_that_keeps_its_items() {
    let mut body = reply(native_response()).unwrap();
    let kept = body["choices"][0]["message"].as_object_mut().unwrap().shift_remove("responses").unwrap();
    assert_eq!(body, chat_completion());
    let output = json!({"output": native_response()["output"]});
    assert_eq!(kept.to_string(), output.to_string(), "also in their order");
}

#[test]
fn commentary_is_not_a_part_of_the_answer_behind_it() {
    let message = |phase: &str, text: &str| {
        let content = [json!({"type": "output_text", "text": text})];
        json!({"type": "message", "role": "assistant", "phase": phase, "content": content})
    };
    let items = [message("commentary", "I look."), message("final_answer", "Paris")];
    for (output, expected) in [(&items[..], "Paris"), (&items[..1], "I look.")] {
        let body = reply(json!({"output": output})).unwrap();
        let message = &body["choices"][0]["message"];
        assert_eq!(
            (&message["content"], &message["responses"]["output"]),
            (&json!(expected), &json!(output))
        );
    }
}

#[test]
fn items_go_back_unchanged_and_the_input_only_grows() {
    let mut messages =
        vec![json!({"role": "system", "content": "Be brief."}), json!({"role": "user", "content": "Hi"})];
    let first = input_of(&messages);
    messages.push(message_of(native_response()["output"].clone()));
    messages.push(json!({"role": "tool", "tool_call_id": "call_1", "content": "one"}));
    messages.push(json!({"role": "tool", "tool_call_id": "call_2", "content": "two"}));
    let second = input_of(&messages);
    messages
        .push(message_of(json!([{"id": "msg_2", "type": "message", "role": "assistant", "content": []}])));
    messages.push(json!({"role": "user", "content": "More"}));
    let third = input_of(&messages);

    let begins = |input: &Json, start: &Json| {
        let start = start.to_string();
        input.to_string().starts_with(start.strip_suffix(']').unwrap())
    };
    assert!(begins(&second, &first) && begins(&third, &second));
    let native = native_response();
    let native = native["output"].as_array().unwrap();
    let items = &second.as_array().unwrap()[1..=native.len()];
    assert_eq!(json!(items).to_string(), json!(native).to_string());
}

#[test]
fn reasoning_that_would_be_refused_is_left_out() {
    let sent = |output: Json| input_of(&[json!({"role": "assistant", "responses": {"output": output}})]);
    let text = json!({"id": "msg_1", "type": "message", "role": "assistant", "content": []});
    let bare = json!({"id": "rs_1", "type": "reasoning", "encrypted_content": null, "summary": []});
    assert_eq!(sent(json!([bare, text])), json!([text]));
    for field in ["encrypted_content", "content", "summary"] {
        let mut reasoning = bare.clone();
        reasoning[field] = json!([{"text": "t"}]);
        assert_eq!(sent(json!([reasoning])), json!([]));
        assert_eq!(sent(json!([reasoning, text, reasoning])), json!([reasoning, text]));
    }
}

#[test]
fn reasoning_that_is_left_out_is_told() {
    let reasoning = json!({"id": "rs_1", "type": "reasoning", "encrypted_content": "E", "summary": []});
    let text = json!({"id": "msg_1", "type": "message", "role": "assistant", "content": []});
    let form = Form { api: Api::Responses, has_native: true };
    let told = |output: Json| {
        let reply = json!({"role": "assistant", "responses": {"output": output}});
        request(&Map::new(), &[reply.into()], form, &Rules::default()).adapted.len()
    };
    assert_eq!([told(json!([text, reasoning])), told(json!([reasoning, text]))], [1, 0]);
}

#[test]
fn texts_of_items_are_joined() {
    let text = |text: &str| json!({"type": "message", "content": [{"type": "output_text", "text": text}]});
    let message = message_of(json!([
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "short"}], "content": [
            {"type": "reasoning_text", "text": "lo"}, {"type": "reasoning_text", "text": "ng"},
        ]},
        text("a"),
        {"type": "reasoning", "summary": []},
        {"type": "message", "content": [{"type": "text", "text": "b"}]},
    ]));
    assert_eq!(message["content"], "a\n\nb");
    assert_eq!(message["reasoning_content"], "long");

    let refused = json!([{"type": "message", "content": [{"type": "refusal", "refusal": "No."}]}]);
    let message = message_of(refused.clone());
    let expected =
        json!({"role": "assistant", "content": null, "refusal": "No.", "responses": {"output": refused}});
    assert_eq!(message, expected);
}

#[test]
fn log_probabilities_are_those_of_the_choice() {
    let token = json!({"token": "a", "bytes": [97], "logprob": -0.1, "top_logprobs": []});
    let output =
        json!([{"type": "message", "content": [{"type": "output_text", "text": "a", "logprobs": [token]}]}]);
    let body = reply(json!({"output": output})).unwrap();
    assert_eq!(body["choices"][0]["logprobs"], json!({"content": [token]}));
}

#[test]
fn a_status_is_a_finish_reason_or_a_fault() {
    let call = json!({"type": "function_call", "call_id": "c", "name": "f", "arguments": "{"});
    let finish = |status: &str, reason: &str, output: &Json| {
        let details = json!({"reason": reason});
        let body = reply(json!({"status": status, "incomplete_details": details, "output": output}));
        body.unwrap()["choices"][0]["finish_reason"].clone()
    };
    let (none, some) = (json!([]), json!([call]));
    assert_eq!(finish("completed", "", &none), "stop");
    assert_eq!(finish("completed", "", &some), "tool_calls");
    assert_eq!(finish("incomplete", "max_output_tokens", &none), "length");
    assert_eq!(finish("incomplete", "max_output_tokens", &some), "length");
    assert_eq!(finish("incomplete", "content_filter", &none), "content_filter");

    let fault = |body: Json| reply(body).unwrap_err();
    assert_eq!(fault(json!({"status": "queued", "output": []})), "its status is queued, not completed");
    assert_eq!(fault(json!({"status": "completed"})), "it has no list of output items");
    assert_eq!(fault(json!({"output": "text"})), "it has no list of output items");
    assert_eq!(fault(json!([])), "it is not an object");
}

#[test]
fn an_error_is_the_whole_body() {
    let error = json!({"code": "server_error", "message": "Try again."});
    let failed = json!({"id": "resp_1", "status": "failed", "error": error, "output": [], "usage": null});
    assert_eq!(reply(failed), Ok(json!({"error": error})));
    for nothing in [json!({}), json!({"code": null, "message": null})] {
        let completed = json!({"status": "completed", "error": nothing, "output": []});
        assert_eq!(reply(completed).unwrap()["choices"][0]["finish_reason"], "stop");
    }
    let silent = json!({"error": {"message": "the response failed without an error"}});
    assert_eq!(reply(json!({"status": "failed", "error": null})), Ok(silent));
}
