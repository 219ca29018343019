//! Replies in pieces.

use super::*;

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
