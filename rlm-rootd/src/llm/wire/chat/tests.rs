//! Conversations as servers take them.

use proptest::prelude::*;

use super::*;

/// JSON of any kind, a few levels deep.
fn json() -> impl Strategy<Value = Json> {
    let leaf = prop_oneof![
        Just(Json::Null),
        any::<bool>().prop_map(Json::from),
        any::<i64>().prop_map(Json::from),
        any::<f64>().prop_map(Json::from),
        ".{0,12}".prop_map(Json::from),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Json::from),
            fields(inner).prop_map(Json::from)
        ]
    })
}

fn fields(value: impl Strategy<Value = Json>) -> impl Strategy<Value = Map<String, Json>> {
    prop::collection::vec(("[a-z_]{1,9}", value), 0..4).prop_map(|fields| fields.into_iter().collect())
}

/// Calls with ids and arguments of every kind.
fn call() -> impl Strategy<Value = Json> {
    let id = prop_oneof![
        Just(Json::Null),
        Just(json!("")),
        Just(json!("a")),
        "[a-z:.0-9]{1,40}".prop_map(Json::from)
    ];
    let text =
        prop_oneof![Just("{\"code\":  \"x\"}\n".to_owned()), Just("{\"code".to_owned()), ".{0,20}".boxed()];
    let arguments = prop_oneof![text.prop_map(Json::from), json()];
    (id, "[a-z_.:0-9]{0,12}", arguments, fields(json())).prop_map(|(id, name, arguments, others)| {
        let mut call = Map::from_iter([("id".to_owned(), id), ("type".to_owned(), "function".into())]);
        call.insert("function".to_owned(), json!({"name": name, "arguments": arguments}));
        for (name, value) in others {
            call.entry(name).or_insert(value);
        }
        call.into()
    })
}

fn reply() -> impl Strategy<Value = Json> {
    let content = prop_oneof![
        Just(Json::Null),
        ".{0,40}".prop_map(Json::from),
        prop::collection::vec(json(), 0..3).prop_map(Json::from)
    ];
    (content, prop::collection::vec(call(), 0..4), fields(json())).prop_map(|(content, calls, others)| {
        let mut reply =
            Map::from_iter([("role".to_owned(), json!("assistant")), ("content".to_owned(), content)]);
        if !calls.is_empty() {
            reply.insert("tool_calls".to_owned(), calls.into());
        }
        for (name, value) in others {
            reply.entry(name).or_insert(value);
        }
        reply.into()
    })
}

fn sent(messages: &[Json], rules: &Rules) -> (Vec<Json>, Vec<String>) {
    let messages: Vec<ChatMessage> = messages.iter().cloned().map(Into::into).collect();
    let Body { bytes, adapted } = body(&messages, Cow::Owned(Map::new()), false, rules);
    let mut body: Json = serde_json::from_slice(&bytes).unwrap();
    (serde_json::from_value(body["messages"].take()).unwrap(), adapted)
}

proptest! {
    // Promise: **Replies of models go back as they came**, byte for byte, except for what a server is known to refuse.
    #[test]
    fn any_reply_goes_back_as_it_came(reply in reply(), answer in json()) {
        let answer = json!({"role": "tool", "tool_call_id": "a", "content": answer});
        let (sent, adapted) = sent(&[json!({"role": "user", "content": "?"}), reply.clone(), answer.clone()], &Rules::default());
        let mut expected = reply;
        let is_empty = expected["content"].is_null() && expected.get("tool_calls").is_none();
        if is_empty && expected["refusal"].as_str().is_none() && !expected["function_call"].is_object() {
            expected["content"] = "".into();
        }
        prop_assert_eq!(&sent[1..], &[expected, answer]);
        prop_assert_eq!(adapted.is_empty(), !is_empty || sent[1]["content"].is_null());
    }
}

/// A rule of a server by its name.
fn rules(name: &str) -> Rules {
    Rules::named(name, "m").unwrap()
}

#[test]
fn a_request_begins_with_the_one_before() {
    let messages: Vec<ChatMessage> = [
        json!({"role": "system", "content": "s"}),
        json!({"role": "user", "content": "q"}),
        json!({"role": "assistant", "content": "a", "x": 1.50}),
        json!({"role": "user", "content": "more"}),
    ]
    .map(Into::into)
    .into();
    let bytes = |count: usize| {
        let bytes = body(&messages[..count], Cow::Owned(Map::new()), false, &Rules::default()).bytes;
        String::from_utf8(bytes).unwrap().trim_end_matches("]}").to_owned()
    };
    assert!(bytes(4).starts_with(&bytes(2)));
}

#[test]
fn what_a_server_refuses_is_not_sent_and_said() {
    let call = json!({"id": "", "type": "function", "function": {"name": "f", "arguments": "{\"cut"}, "index": 0, "x": 1});
    let reply =
        json!({"role": "assistant", "content": null, "reasoning_content": "hm", "tool_calls": [call, call]});
    let answers = [1, 2].map(|at| json!({"role": "tool", "tool_call_id": "", "content": at.to_string()}));
    let [one, two] = answers.clone();
    let conversation = [reply, one, two, json!({"role": "user", "content": "go on"})];
    let (mistral, adapted) = sent(&conversation, &rules("mistral"));
    let function = json!({"name": "f", "arguments": "{\"cut"});
    let call = |id: &str| json!({"id": id, "type": "function", "function": function, "index": 0});
    assert_eq!(
        mistral,
        [
            json!({"role": "assistant", "content": null, "tool_calls": [call("c00000000"), call("c00000001")]}),
            json!({"role": "tool", "tool_call_id": "c00000000", "content": "1"}),
            json!({"role": "tool", "tool_call_id": "c00000001", "content": "2"}),
            json!({"role": "assistant", "content": "Ok."}),
            json!({"role": "user", "content": "go on"}),
        ]
    );
    assert_eq!(
        adapted,
        [
            "`reasoning_content` of replies is left out: the server refuses it",
            "calls without an id of their own get one: the server refuses them otherwise",
            "a short reply stands between answers of tools and messages: the server wants one",
        ]
    );
    let (ollama, adapted) = sent(&conversation, &rules("ollama"));
    assert_eq!(ollama[0]["tool_calls"][0]["function"]["arguments"], "{}");
    assert_eq!(
        adapted,
        [
            "`content` of replies without text is sent as \"\": the server refuses null",
            "arguments that are no JSON object are sent as {}: the server refuses others",
        ]
    );
    let (deepseek, _) = sent(&conversation, &rules("deepseek"));
    assert_eq!((&deepseek[0]["content"], &deepseek[0]["reasoning_content"]), (&json!(""), &json!("hm")));
    let (gemini, _) = sent(&conversation, &rules("gemini"));
    let signature =
        |at: usize| gemini[0]["tool_calls"][at].pointer("/extra_content/google/thought_signature");
    assert_eq!((signature(0), signature(1)), (Some(&json!("skip_thought_signature_validator")), None));
}

#[test]
fn fields_that_are_refused_are_left_out_of_calls_as_well() {
    let rules =
        Rules { omit_from_replies: vec!["extra_content".to_owned(), "signed".to_owned()], ..rules("gemini") };
    let call = |own: Json| {
        let function = json!({"name": "f", "arguments": "{}", "signed": "S"});
        let mut call = json!({"id": "c", "type": "function", "function": function});
        call.as_object_mut().unwrap().extend(own.as_object().unwrap().clone());
        call
    };
    let own = json!({"extra_content": {"google": {"thought_signature": "S"}}});
    let reply = json!({"role": "assistant", "content": "a", "tool_calls": [call(own.clone()), call(own)]});
    let (sent, _) = sent(&[reply], &rules);
    let calls = &sent[0]["tool_calls"];
    let dummy = "skip_thought_signature_validator";
    assert_eq!(calls[0]["extra_content"]["google"]["thought_signature"], dummy);
    assert_eq!(
        calls[1],
        json!({"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}})
    );
}

#[test]
fn a_reply_that_says_nothing_is_left_out_where_it_is_refused() {
    let call = json!({"id": "a23456789", "type": "function", "function": {"name": "f", "arguments": "{}"}});
    let calling = json!({"role": "assistant", "content": null, "tool_calls": [call]});
    let answer = json!({"role": "tool", "tool_call_id": "a23456789", "content": "1"});
    let [question, notice] = ["?", "no code"].map(|text| json!({"role": "user", "content": text}));
    for silent in [json!(null), json!(""), json!("\n\n"), json!([])] {
        let silent = json!({"role": "assistant", "content": silent, "reasoning_content": "hm"});
        let conversation =
            [question.clone(), calling.clone(), answer.clone(), silent.clone(), notice.clone()];
        let (plain, _) = sent(&conversation, &Rules::default());
        let content = if silent["content"].is_null() { json!("") } else { silent["content"].clone() };
        assert_eq!(
            (plain.len(), &plain[3]["content"], &plain[3]["reasoning_content"]),
            (5, &content, &json!("hm"))
        );
        let (moonshot, adapted) = sent(&conversation, &rules("moonshot"));
        assert_eq!(moonshot, [question.clone(), calling.clone(), answer.clone(), notice.clone()]);
        assert_eq!(adapted, ["replies without text and calls are left out: the server refuses them"]);
        let (mistral, _) = sent(&conversation, &rules("mistral"));
        let between = json!({"role": "assistant", "content": "Ok."});
        assert_eq!(mistral, [question.clone(), calling.clone(), answer.clone(), between, notice.clone()]);
    }
}

#[test]
fn an_empty_array_of_calls_is_left_out_where_it_is_refused() {
    let reply = json!({"role": "assistant", "content": "a", "tool_calls": []});
    let (as_it_came, adapted) = sent(std::slice::from_ref(&reply), &Rules::default());
    assert_eq!((&as_it_came[0], adapted.len()), (&reply, 0));
    let (deepseek, adapted) = sent(&[reply], &rules("deepseek"));
    assert_eq!((&deepseek[0], adapted.len()), (&json!({"role": "assistant", "content": "a"}), 1));
}

#[test]
fn replies_without_reasoning_get_a_blank_where_the_server_wants_some() {
    let own = json!({"role": "assistant", "content": "b", "reasoning_content": "hm"});
    let (sent, adapted) = sent(
        &[json!({"role": "assistant", "content": "a"}), own.clone()],
        &Rules { fill_reasoning: true, ..Rules::default() },
    );
    let filled = json!({"role": "assistant", "content": "a", "reasoning_content": " "});
    assert_eq!((sent, adapted.len()), (vec![filled, own], 1));
}

#[test]
fn answers_have_the_names_of_their_tools_where_the_server_wants_them() {
    let call =
        |name: &str| json!({"id": name, "type": "function", "function": {"name": name, "arguments": "{}"}});
    let answer = |id: &str| json!({"role": "tool", "tool_call_id": id, "content": "1"});
    let messages = [
        json!({"role": "assistant", "content": "", "tool_calls": [call("f"), call("g")]}),
        answer("f"),
        answer("g"),
        json!({"role": "assistant", "content": "", "tool_calls": [call("h")]}),
        json!({"role": "tool", "tool_call_id": "h", "content": "1", "name": "own"}),
    ];
    let (sent, adapted) = sent(&messages, &Rules { name_answers: true, ..Rules::default() });
    let names = [1, 2, 4].map(|at| sent[at]["name"].as_str().unwrap());
    assert_eq!((names, adapted.len()), (["f", "g", "own"], 1));
    assert_eq!(self::sent(&messages, &Rules::default()), (messages.to_vec(), Vec::new()));
}

#[test]
fn a_conversation_has_the_turns_that_the_server_takes() {
    let user = |content: Json| json!({"role": "user", "content": content});
    let reply = json!({"role": "assistant", "content": "a"});
    let image = json!({"type": "image_url", "image_url": {"url": "data:"}});
    let conversation = [
        json!({"role": "system", "content": "s"}),
        user(json!("q")),
        user(json!("r")),
        reply.clone(),
        user(json!("t")),
        user(json!([image])),
    ];
    let joined = user(json!([{"type": "text", "text": "t"}, image]));
    let rules = |join_users, system_as_user| Rules { join_users, system_as_user, ..Rules::default() };
    let [system, first, second, ..] = conversation.clone();
    let (both, adapted) = sent(&conversation, &rules(true, true));
    assert_eq!(both, [user(json!("s\n\nq\n\nr")), reply.clone(), joined.clone()]);
    assert_eq!(adapted.len(), 2, "{adapted:?}");
    let (users, _) = sent(&conversation, &rules(true, false));
    assert_eq!(users, [system, user(json!("q\n\nr")), reply, joined]);
    let (prompt, adapted) = sent(&conversation, &rules(false, true));
    assert_eq!((&prompt[0], &prompt[1]), (&user(json!("s\n\nq")), &second));
    assert_eq!((prompt.len(), adapted.len()), (5, 1), "{adapted:?}");
    assert_eq!(sent(&conversation, &Rules::default()).0[1], first);
}

#[test]
fn options_of_a_stream_are_joined_to_those_of_the_user() {
    let options = |of_user: Json| {
        let fields = Map::from_iter([("stream_options".to_owned(), of_user)]);
        let body = body(&[], Cow::Owned(fields), true, &Rules::default());
        serde_json::from_slice::<Json>(&body.bytes).unwrap()["stream_options"].clone()
    };
    let kept = options(json!({"include_obfuscation": false}));
    assert_eq!(kept, json!({"include_obfuscation": false, "include_usage": true}));
    assert_eq!(options(json!({"include_usage": false})), json!({"include_usage": false}));
    assert_eq!(options(Json::Null), json!({"include_usage": true}));
}

#[test]
fn the_bound_has_the_name_that_the_server_knows() {
    let bound = |name: &str, fields: Json| {
        let Json::Object(fields) = fields else { unreachable!() };
        let streams = fields.contains_key("stream");
        let bytes = body(&[], Cow::Owned(fields), streams, &rules(name)).bytes;
        String::from_utf8(bytes).unwrap()
    };
    assert_eq!(bound("openai", json!({"max_tokens": 7})), r#"{"messages":[],"max_completion_tokens":7}"#);
    assert_eq!(bound("ollama", json!({"max_completion_tokens": 7})), r#"{"messages":[],"max_tokens":7}"#);
    let both = json!({"max_tokens": 7, "max_completion_tokens": 8});
    assert_eq!(bound("openai", both), r#"{"messages":[],"max_completion_tokens":8}"#);
    assert_eq!(bound("vllm", json!({"max_tokens": 7})), r#"{"messages":[],"max_tokens":7}"#);
    assert_eq!(bound("mistral", json!({"stream": true})), r#"{"messages":[],"stream":true}"#);
}

#[test]
fn refused_ids_and_names_give_way_to_others() {
    let call = |id: &str, name: &str| json!({"id": id, "type": "function", "function": {"name": name, "arguments": "{}"}});
    let odd = [call("x:1", "functions.f"), call("x:2", "container.exec"), call("x:3", "")];
    let answer = |id: &str| json!({"role": "tool", "tool_call_id": id, "content": ""});
    let messages = [
        json!({"role": "user", "content": "?"}),
        json!({"role": "assistant", "content": "", "tool_calls": odd}),
        answer("x:1"),
        answer("x:2"),
        answer("x:3"),
    ];
    let messages = messages.map(ChatMessage::from);
    let rules = Rules { new_ids: true, plain_names: true, ..Rules::default() };
    let fields =
        Map::from_iter([("tools".to_owned(), json!([{"type": "function", "function": {"name": "f"}}]))]);
    let body = body(&messages, Cow::Owned(fields), false, &rules);
    assert_eq!(body.adapted.len(), 2, "{:?}", body.adapted);
    let body: Json = serde_json::from_slice(&body.bytes).unwrap();
    let ids = ["c00001000", "c00001001", "c00001002"];
    let calls = [call(ids[0], "f"), call(ids[1], "containerexec"), call(ids[2], "unknown")];
    assert_eq!(body["messages"][1]["tool_calls"], json!(calls));
    for (at, id) in ids.into_iter().enumerate() {
        assert_eq!(body["messages"][2 + at], answer(id));
    }
}
