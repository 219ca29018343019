//! Replies in pieces, of servers with many habits.

use super::*;

fn whole(pieces: impl IntoIterator<Item = Json>) -> Json {
    let mut all = Pieces::default();
    pieces.into_iter().for_each(|piece| all.add(piece, false));
    assert!(all.is_whole());
    all.into_body()
}

/// A piece of the first choice.
fn delta(delta: Json) -> Json {
    json!({"id": "r", "object": "chat.completion.chunk", "model": "m", "choices": [
        {"index": 0, "delta": delta, "finish_reason": null},
    ], "obfuscation": "xyz"})
}

fn end(reason: &str) -> Json {
    json!({"id": "r", "choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
}

fn message(pieces: impl IntoIterator<Item = Json>) -> Json {
    whole(pieces.into_iter().map(delta).chain([end("stop")]))["choices"][0]["message"].clone()
}

#[test]
fn a_text_comes_together_with_its_usage() {
    let usage = json!({"id": "r", "choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2}});
    let body = whole([
        delta(json!({"role": "assistant", "content": "", "refusal": null})),
        delta(json!({"content": "He"})),
        delta(json!({"content": "llo"})),
        end("stop"),
        usage,
    ]);
    let message = json!({"role": "assistant", "content": "Hello", "refusal": null});
    let expected = json!({
        "id": "r", "object": "chat.completion", "model": "m",
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 2},
    });
    assert_eq!(body, expected);
}

#[test]
fn a_text_that_is_told_anew_is_there_once() {
    let text = "The answer, which took a while to be found, is 42.";
    let piece = |text: &str| json!({"content": text});
    let told = |pieces: &[&str]| message(pieces.iter().map(|text| piece(text)))["content"].clone();
    // All of it so far in each piece (DashScope, QwenLM/qwen-code#3896), or in one (openclaw/openclaw#136262).
    assert_eq!(told(&["", "The", "The answer", "The answer, which", text, ""]), text);
    assert_eq!(told(&[&text[..30], &text[30..45], text]), text);
    // With the reason of the end (Rapid-MLX#1709).
    let mut last = delta(piece("I look."));
    last["choices"][0]["finish_reason"] = "stop".into();
    let body = whole([delta(piece("I ")), delta(piece("look.")), last]);
    assert_eq!(body["choices"][0]["message"]["content"], "I look.");
    // What a model may write.
    let (dashes, line) = ("-".repeat(40), "a line of the table that is there again\n");
    for pieces in [
        &["1", "1", "11", "2"][..],
        &["ha", "ha", "ha"],
        &[&dashes, &dashes, &dashes],
        &[line, line, line],
        &["a", "ab"],
    ] {
        assert_eq!(told(pieces), pieces.concat());
    }
    let reasoning = ["Hm", "Hm, it", "Hm, it is"].map(|text| json!({"reasoning_content": text}));
    assert_eq!(message(reasoning)["reasoning_content"], "Hm, it is");
}

#[test]
fn parts_of_reasoning_come_together_by_their_types() {
    let detail = |kind: &str, field: &str, text: &str| json!({"type": kind, field: text, "index": 0});
    let (text, hidden) = ("reasoning.text", "reasoning.encrypted");
    let pieces = [detail(text, "text", "h"), detail(text, "text", "m"), detail(hidden, "data", "E")];
    let pieces = pieces.map(|detail| json!({"reasoning_details": [detail]}));
    let expected = json!([detail(text, "text", "hm"), detail(hidden, "data", "E")]);
    assert_eq!(message(pieces)["reasoning_details"], expected);

    let block = |text: &str| json!({"type": "thinking", "thinking": text});
    let signed = |text: &str| json!({"type": "thinking", "thinking": text, "signature": "S"});
    let pieces = [block("Let "), block("me"), signed(""), block("see"), signed("")];
    let pieces = pieces.map(|block| json!({"thinking_blocks": [block]}));
    assert_eq!(message(pieces)["thinking_blocks"], json!([signed("Let me"), signed("see")]));

    // Databricks (databricks/databricks-ai-bridge#133).
    let summary = |text: &str, signature: &str| json!({"type": "reasoning", "summary": [{"type": "summary_text", "text": text, "signature": signature}]});
    let pieces =
        [summary("Let ", ""), summary("me", ""), summary("", "S"), json!({"type": "text", "text": "I"})];
    let expected = json!([summary("Let me", "S"), {"type": "text", "text": "I"}]);
    assert_eq!(message(pieces.map(|part| json!({"content": [part]})))["content"], expected);
}

#[test]
fn calls_come_together_however_a_server_numbers_them() {
    let call = |id: &str, arguments: &str| json!({"id": id, "type": "function", "function": {"name": "f", "arguments": arguments}});
    let numbered = |index: u64, mut call: Json| {
        call["index"] = index.into();
        json!({"tool_calls": [call]})
    };
    let more =
        |index: u64, text: &str| json!({"tool_calls": [{"index": index, "function": {"arguments": text}}]});
    let expected = json!({
        "role": "assistant", "content": null, "tool_calls": [call("a", "{\"x\": 1}"), call("b", "{}")],
    });
    let usual = [
        json!({"role": "assistant", "content": ""}),
        numbered(0, call("a", "")),
        more(0, "{\"x\":"),
        more(0, " 1}"),
        numbered(1, call("b", "{")),
        more(1, "}"),
    ];
    assert_eq!(message(usual), expected);
    // The name and the id again in each piece.
    let again =
        [numbered(0, call("a", "{\"x\":")), numbered(0, call("a", " 1}")), numbered(1, call("b", "{}"))];
    assert_eq!(message(again)["tool_calls"], expected["tool_calls"]);
    let one_number = [numbered(0, call("a", "{\"x\": 1}")), numbered(0, call("b", "{}"))];
    assert_eq!(message(one_number)["tool_calls"], expected["tool_calls"]);
    let no_number = [
        json!({"tool_calls": [call("a", "{\"x\": 1")]}),
        json!({"tool_calls": [{"function": {"arguments": "}"}}]}),
        json!({"tool_calls": [call("b", "{}")]}),
    ];
    assert_eq!(message(no_number)["tool_calls"], expected["tool_calls"]);
    // Gemini: whole calls, all with the same number or none, and without ids.
    let whole = [call("", "{\"x\": 1}"), call("", "{}")];
    let [mut one, mut two] = whole.clone();
    assert_eq!(message(whole.clone().map(|call| json!({"tool_calls": [call]})))["tool_calls"], json!(whole));
    assert_eq!(message([json!({"tool_calls": whole})])["tool_calls"], json!(whole));
    assert_eq!(message(whole.clone().map(|call| numbered(0, call)))["tool_calls"], json!(whole));
    (one["index"], two["index"]) = (0.into(), 0.into());
    assert_eq!(message([json!({"tool_calls": [one, two]})])["tool_calls"], json!(whole));
    // The name again in each piece, of calls without ids.
    let named = ["{\"x\":", " 1", "}"].map(|text| numbered(0, call("", text)));
    assert_eq!(message(named)["tool_calls"], json!([call("", "{\"x\": 1}")]));
}

#[test]
fn a_call_in_odd_pieces_is_one_call() {
    let function = |name: &str, arguments: &str| json!({"name": name, "arguments": arguments});
    let call = |id: &str, arguments: &str| json!({"id": id, "type": "function", "function": function("f", arguments)});
    let begun = |arguments: &str| json!({"index": 0, "id": "a", "type": "function", "function": function("f", arguments)});
    let more =
        |id: Json, arguments: &str| json!({"index": 0, "id": id, "function": {"arguments": arguments}});
    let calls = |calls: &[Json]| json!({"tool_calls": calls});
    let expected = json!([call("a", "{\"x\": 1}")]);
    let one_list = calls(&[begun(""), more(Json::Null, "{\"x\":"), more(Json::Null, " 1}")]);
    assert_eq!(message([one_list])["tool_calls"], expected);
    let new_ids = [begun(""), more("b".into(), "{\"x\":"), more("c".into(), " 1}")];
    assert_eq!(message(new_ids.map(|call| calls(&[call])))["tool_calls"], expected);
    let mut again = begun("{\"x\": 1}");
    again["index"] = 1.into();
    assert_eq!(message([begun("{\"x\": 1}"), again].map(|call| calls(&[call])))["tool_calls"], expected);
    let named =
        |name: &str| json!({"tool_calls": [{"index": 0, "function": {"name": name, "arguments": ""}}]});
    for names in [["call_", "bash_repl", ""], ["call_", "call_bash_repl", "call_bash_repl"]] {
        assert_eq!(message(names.map(named))["tool_calls"][0]["function"]["name"], "call_bash_repl");
    }
    let details = ["a", "b"].map(|text| json!({"type": "reasoning.text", "index": 0, "text": text}));
    let joined = message([json!({"reasoning_details": details})]);
    assert_eq!(joined["reasoning_details"], json!([{"type": "reasoning.text", "index": 0, "text": "ab"}]));
}

#[test]
fn what_follows_complete_arguments_is_told_again_or_is_another_call() {
    let whole = "{\"x\": 1}";
    let call = |id: Option<&str>, arguments: &str| {
        let mut call = json!({"type": "function", "function": {"name": "f", "arguments": arguments}});
        if let Some(id) = id {
            call["id"] = id.into();
        }
        call
    };
    let head = |id: &str, arguments: &str| {
        let mut call = call(Some(id), arguments);
        call["index"] = 0.into();
        call
    };
    let tail = |index: u64, arguments: &str| json!({"index": index, "function": {"name": "", "arguments": arguments}});
    let named = |arguments: &str| json!({"index": 0, "function": {"name": "f", "arguments": arguments}});
    let one = json!([call(Some("a"), whole)]);
    let other = "{\"y\": 2}";
    for (pieces, expected) in [
        (vec![head("a", "{}"), tail(0, whole)], &one),
        (vec![head("a", "{}"), tail(0, "{\"x\""), tail(0, ": 1}")], &one),
        (vec![head("a", "{}"), head("a", whole)], &one),
        (vec![head("a", ""), tail(0, whole), tail(0, whole)], &one),
        (vec![head("a", "{\"x\""), tail(0, ": 1}"), tail(0, whole)], &one),
        (vec![head("a", "{\"x\""), tail(0, whole)], &one),
        (vec![head("a", whole), tail(0, "\n")], &json!([call(Some("a"), "{\"x\": 1}\n")])),
        (vec![head("a", "{}")], &json!([call(Some("a"), "{}")])),
        // The name again.
        (vec![head("a", "{\"x\""), named(": 1}"), named(""), named("")], &one),
        (vec![head("a", whole), named("\n")], &json!([call(Some("a"), "{\"x\": 1}\n")])),
        (
            vec![head("a", ""), tail(0, whole), tail(0, other)],
            &json!([call(Some("a"), whole), call(None, other)]),
        ),
        (
            vec![head("a", whole), head("b", ""), tail(1, "{\"y\""), tail(1, ": 2}")],
            &json!([call(Some("a"), whole), call(Some("b"), other)]),
        ),
    ] {
        let deltas = pieces.iter().map(|call| json!({"tool_calls": [call]}));
        assert_eq!(&message(deltas)["tool_calls"], expected, "{pieces:?}");
    }
}

#[test]
fn a_message_has_no_field_that_no_piece_has_had() {
    let call = json!({"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}});
    let numbered =
        json!({"index": 0, "id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}});
    for content in [None, Some(Json::Null)] {
        let [mut first, mut expected] = [json!({"role": "assistant"}), json!({"role": "assistant"})];
        if let Some(content) = content {
            for message in [&mut first, &mut expected] {
                message["content"] = content.clone();
            }
        }
        expected["tool_calls"] = json!([call]);
        assert_eq!(message([first, json!({"tool_calls": [numbered]})]), expected);
    }
}

#[test]
fn a_message_beside_deltas_is_not_the_reply() {
    let piece = |delta: Json, message: Json, reason: Json| json!({"choices": [{"index": 0, "delta": delta, "message": message, "finish_reason": reason}]});
    let nothing = json!({"role": null, "content": "", "tool_calls": null});
    let pieces = [("Hel", Json::Null), ("lo", Json::Null), ("", "stop".into())];
    let pieces = pieces.map(|(text, reason)| piece(json!({"content": text}), nothing.clone(), reason));
    let expected = json!({"role": "assistant", "content": "Hello"});
    assert_eq!(whole(pieces)["choices"][0]["message"], expected);
    // Some servers give the whole message in the only piece.
    let only = [piece(Json::Null, expected.clone(), "stop".into())];
    assert_eq!(whole(only)["choices"][0]["message"], expected);
}

#[test]
fn what_is_told_again_in_each_piece_is_told_once() {
    let channel = ["a", "b"].map(|text| json!({"channel": "analysis", "reasoning": text}));
    let expected = json!({"role": "assistant", "channel": "analysis", "reasoning": "ab"});
    assert_eq!(message(channel), expected);
    let filtered =
        |severity: &str| json!({"hate": {"filtered": false, "severity": severity}, "seen": [severity]});
    let piece = |severity: &str, reason: Json| {
        json!({"choices": [{
            "index": 0, "delta": {"content": "a"}, "finish_reason": reason, "content_filter_results": filtered(severity),
        }]})
    };
    let body = whole([piece("safe", Json::Null), piece("safe", Json::Null), piece("low", "stop".into())]);
    assert_eq!(body["choices"][0]["content_filter_results"], filtered("low"));
}

#[test]
fn parts_of_a_text_come_together() {
    let thinking =
        |text: &str| json!({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": text}]}]});
    let pieces = [
        json!({"role": "assistant", "content": ""}),
        thinking("Let "),
        thinking("me"),
        json!({"content": "He"}),
        json!({"content": [{"type": "text", "text": "llo"}]}),
        json!({"content": [{"type": "reference", "reference_ids": [1]}]}),
    ];
    let expected = json!([
        {"type": "thinking", "thinking": [{"type": "text", "text": "Let me"}]},
        {"type": "text", "text": "Hello"},
        {"type": "reference", "reference_ids": [1]},
    ]);
    assert_eq!(message(pieces)["content"], expected);
}

#[test]
fn reasoning_and_what_servers_add_come_together() {
    let piece = |text: &str, id: u64| {
        json!({"prompt_token_ids": (id == 1).then_some([7]), "choices": [{
            "index": 0,
            "delta": {
                "content": text,
                "reasoning_content": text,
                "reasoning_details": [{"index": 0, "type": "reasoning.text", "text": text}],
            },
            "logprobs": {"content": [{"token": text}]},
            "token_ids": [id],
            "finish_reason": (id == 2).then_some("length"),
        }]})
    };
    let body = whole([piece("a", 1), piece("b", 2)]);
    assert_eq!(body["prompt_token_ids"], json!([7]));
    let message = json!({
        "role": "assistant", "content": "ab", "reasoning_content": "ab",
        "reasoning_details": [{"index": 0, "type": "reasoning.text", "text": "ab"}],
    });
    let logprobs = json!({"content": [{"token": "a"}, {"token": "b"}]});
    let choice = json!({
        "index": 0, "message": message, "finish_reason": "length", "logprobs": logprobs, "token_ids": [1, 2],
    });
    assert_eq!(body["choices"][0], choice);
}

#[test]
fn a_reply_is_whole_once_each_choice_has_ended() {
    let mut pieces = Pieces::default();
    assert!(!pieces.is_whole());
    pieces.add(
        json!({"choices": [
            {"index": 1, "delta": {"content": "b"}, "finish_reason": "stop"},
            {"index": 0, "delta": {"content": "a"}, "finish_reason": null},
        ]}),
        true,
    );
    assert!(!pieces.is_whole());
    pieces.add(end("stop"), false);
    assert!(pieces.is_whole());
    assert_eq!(pieces.into_body()["choices"][0]["message"]["content"], "a");
    for nonsense in
        [json!(1), json!({"choices": 3}), json!({"choices": [1]}), json!({"choices": [{"delta": 1}]})]
    {
        Pieces::default().add(nonsense, false);
    }
}
