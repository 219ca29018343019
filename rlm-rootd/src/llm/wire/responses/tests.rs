//! Requests and replies in both forms.

use serde_json::{Map, Value as Json, json};

use super::*;
use crate::llm::api::Api;
use crate::llm::message::{ChatMessage, Form};
use crate::llm::rules::Rules;

fn request_of(fields: Json, messages: &[Json]) -> Json {
    let Json::Object(fields) = fields else { panic!("fields are an object") };
    let messages: Vec<ChatMessage> = messages.iter().cloned().map(ChatMessage::from).collect();
    let form = Form { api: Api::Responses, has_native: true };
    serde_json::from_slice(&request(&fields, &messages, form, &Rules::default()).bytes)
        .expect("a body is JSON")
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

fn events_of_pieces() -> Json {
    json!([
        {
            "type": "response.output_text.delta", "sequence_number": 3, "output_index": 1, "item_id": "msg_1",
            "content_index": 0, "delta": "I look ", "logprobs": [],
        },
        {
            "type": "response.function_call_arguments.done", "sequence_number": 4, "output_index": 2, "item_id": "fc_1",
            "arguments": "{\"a\":1 }",
        },
        {"type": "response.output_item.added", "sequence_number": 5, "output_index": 4, "item": {
            "id": "fc_2", "type": "function_call", "status": "in_progress",
            "call_id": "call_2", "name": "g", "arguments": "",
        }},
        {"type": "keepalive", "sequence_number": 6},
    ])
}

/// The stream of a response, with another output in its last event.
fn stream_of(output: Json) -> Events {
    let native = native_response();
    let mut events = Events::default();
    events.add(json!({"type": "response.created", "response": {"id": "resp_1", "status": "in_progress", "output": []}}));
    events_of_pieces().as_array().unwrap().iter().for_each(|piece| events.add(piece.clone()));
    let items = native["output"].as_array().unwrap().iter().enumerate().rev();
    for (index, item) in items {
        assert!(!events.is_whole());
        events.add(json!({"type": "response.output_item.done", "output_index": index, "item": item}));
    }
    let mut last = native.clone();
    last["output"] = output;
    events.add(json!({"type": "response.completed", "response": last}));
    assert!(events.is_whole());
    events
}

#[test]
fn a_stream_is_what_the_server_gives_whole() {
    let whole = native_response()["output"].clone();
    let without_message: Vec<_> =
        whole.as_array().unwrap().iter().filter(|item| item["type"] != "message").cloned().collect();
    for output in [whole, json!([]), Json::Null, without_message.into()] {
        assert_eq!(stream_of(output).into_body(), native_response());
    }
}

#[test]
fn arguments_that_only_their_own_events_have_are_those_of_the_call() {
    let call = |arguments: &str| json!({"type": "function_call", "call_id": "c", "name": "f", "arguments": arguments});
    let event = |kind: &str, field: &str, text: &str| json!({"type": format!("response.function_call_arguments.{kind}"), "output_index": 1, field: text});
    let delta = |text: &str| event("delta", "delta", text);
    let done = |text: &str| event("done", "arguments", text);
    let message = json!({"type": "message", "content": []});
    for (events, finished, expected) in [
        (vec![done("{\"x\": 1}")], "{}", "{\"x\": 1}"),
        (vec![delta("{\"x\""), delta(": 1}")], "", "{\"x\": 1}"),
        (vec![delta("{\"x\""), delta(": 1}"), done("{}")], "{}", "{\"x\": 1}"),
        (vec![delta("{\"x\":1}"), done("{\"x\":1}")], "{\"x\": 1}", "{\"x\": 1}"),
        (vec![delta("{}"), done("{}")], "{}", "{}"),
    ] {
        for last in [json!([message, call(finished)]), json!([])] {
            let mut all = Events::default();
            all.add(json!({"type": "response.output_item.done", "output_index": 0, "item": message}));
            events.iter().for_each(|event| all.add(event.clone()));
            all.add(json!({"type": "response.output_item.done", "output_index": 1, "item": call(finished)}));
            all.add(json!({"type": "response.completed", "response": {"output": last}}));
            assert_eq!(all.into_body()["output"], json!([message, call(expected)]), "{events:?}");
        }
    }
}

#[test]
fn a_stream_without_its_last_event_is_whole_behind_a_text_or_a_call() {
    let done = |item: &Json| json!({"type": "response.output_item.done", "output_index": 0, "item": item});
    let (thought, message) =
        (json!({"type": "reasoning", "id": "rs_1"}), json!({"type": "message", "content": []}));
    let mut events = Events::default();
    events.add(done(&thought));
    assert!(!events.is_whole_at_end());
    events.add(json!({"type": "response.output_item.added", "output_index": 1, "item": message}));
    assert!(!events.is_whole_at_end());
    events.add(json!({"type": "response.output_item.done", "output_index": 1, "item": message}));
    assert!(events.is_whole_at_end() && !events.is_whole());
    assert_eq!(events.into_body(), json!({"status": "completed", "output": [thought, message]}));
    // Items of one number are all there.
    let calls =
        ["a", "b"].map(|id| json!({"type": "function_call", "call_id": id, "name": "f", "arguments": "{}"}));
    let mut events = Events::default();
    calls.iter().for_each(|call| events.add(done(call)));
    events.add(json!({"type": "response.done", "response": {"output": []}}));
    assert_eq!(events.into_body()["output"], json!(calls));
}

#[test]
fn a_call_that_was_not_told_to_be_done_is_one_with_its_arguments() {
    let call = |arguments: &str| json!({"type": "function_call", "call_id": "c", "name": "f", "arguments": arguments});
    let message = json!({"type": "message", "content": []});
    let mut done = call("{\"x\": 1}");
    done["status"] = "completed".into();
    let mut events = Events::default();
    events.add(json!({"type": "response.output_item.added", "output_index": 1, "item": call("")}));
    events.add(json!({"type": "response.function_call_arguments.done", "output_index": 1, "arguments": "{\"x\": 1}"}));
    events.add(json!({"type": "response.completed", "response": {"output": [message]}}));
    assert_eq!(events.into_body()["output"], json!([message, done]));
}

#[test]
fn a_text_that_only_its_pieces_have_is_that_of_the_message() {
    let message = |content: Json| json!({"type": "message", "role": "assistant", "content": content});
    let part = |text: &str| json!({"type": "output_text", "text": text, "annotations": []});
    let said = json!([part("4")]);
    let other = json!([part("five")]);
    for (told, expected) in [
        (message(json!([])), said.clone()),
        (message(Json::Null), said.clone()),
        (message(json!([part("")])), said.clone()),
        (message(other.clone()), other),
        (json!({"type": "reasoning", "content": []}), json!([])),
    ] {
        for last in [json!([]), json!([told])] {
            let mut events = Events::default();
            events.add(json!({"type": "response.output_text.delta", "output_index": 0, "content_index": 0, "delta": "4"}));
            events.add(json!({"type": "response.output_item.done", "output_index": 0, "item": told}));
            events.add(json!({"type": "response.completed", "response": {"output": last}}));
            assert_eq!(events.into_body()["output"][0]["content"], expected, "{told}");
        }
    }
    for last in [json!([]), json!([message(Json::Null)])] {
        let mut events = Events::default();
        events.add(json!({"type": "response.output_text.delta", "delta": "a"}));
        events.add(json!({"type": "response.output_text.delta", "content_index": 1, "delta": "b"}));
        events.add(json!({"type": "response.completed", "response": {"output": last}}));
        assert_eq!(events.into_body()["output"][0]["content"], json!([part("ab")]), "{last}");
    }
}

#[test]
fn a_stream_ends_in_each_status() {
    let last = |kind: &str, response: Json| {
        let mut events = Events::default();
        // Some servers do not number items.
        events.add(json!({"type": "response.output_item.done", "item": {"type": "a"}}));
        events.add(json!({"type": "response.output_item.done", "item": {"type": "b"}}));
        events.add(json!({"type": kind, "response": response}));
        (events.is_whole(), events.into_body())
    };
    let items = json!([{"type": "a"}, {"type": "b"}]);
    for status in ["completed", "incomplete", "failed"] {
        let body = json!({"id": "r", "status": status, "output": items});
        assert_eq!(last(&format!("response.{status}"), json!({"id": "r"})), (true, body));
    }
    let error = json!({"code": "rate_limit_exceeded", "message": "Wait."});
    let (_, body) = last("response.failed", json!({"status": "failed", "error": error}));
    assert_eq!(reply(body), Ok(json!({"error": error})));

    let (is_whole, body) = last("response.in_progress", json!({"status": "in_progress", "output": []}));
    assert!(!is_whole);
    assert_eq!(body, json!({"status": "in_progress", "output": items}));
    for nonsense in
        [json!(1), json!([]), json!({}), json!({"type": "response.completed"}), json!({"type": 1})]
    {
        let mut events = Events::default();
        events.add(nonsense);
        assert!(!events.is_whole());
    }
}
