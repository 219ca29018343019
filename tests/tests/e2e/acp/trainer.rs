//! Trainers that speak the protocol, and their extensions: settings of a session, tokens, and who asked whom.

use super::*;

#[test]
fn a_trainer_configures_a_session() {
    let model = ScriptedModel::start([
        bash("echo \"$KERNEL $SECRET\"; echo 0123456789"),
        bash(":"),
        bash(":"),
        bash("llm_batch one two >replies; RLM_CONTENT=$KERNEL"),
        Rule::any().reply("reply").once(),
        Rule::any().status(400, "no").once(),
        bash("RLM_READY=1"),
    ]);
    let Some(mut client) = Client::start(&[], &model) else { return };
    let contract = |policy: Value| {
        json!({"ai.prime.rlm/runtime-v1": {
            "session_id": "trace-7",
            "model": "trained",
            "provider": {"base_url": model.base_url(), "api_key": "the-key-of-the-trainer", "headers": {"X-Trainer": "yes"}, "max_retries": 5},
            "append_to_system_prompt": "Be very brief.",
            "kernel_env": {"KERNEL": "there"},
            "skills": ["edit"],
            "search_api_key": null,
            "policy": policy,
        }})
    };
    let session = client.session(contract(
        json!({"max_total_turns": 3, "max_total_tokens": 10_000_000, "exec_timeout": 300}),
    ));
    let result = client.result("prompt", json!({"session": session, "text": "?"}));
    assert_eq!(result["stopReason"], "max_turn_requests");
    let snapshot = &result["_meta"]["ai.prime.rlm/session-v1"];
    assert_eq!(
        (&snapshot["session_id"], &snapshot["last_stop_reason"]),
        (&json!("trace-7"), &json!("max_total_turns"))
    );
    let metrics = snapshot["metrics"].as_object().unwrap();
    assert!(metrics.values().all(Value::is_number), "{metrics:?}");
    assert_eq!(metrics["root_llm_turns"], 3);
    // No turn is left for another prompt.
    let result = client.result("prompt", json!({"session": session, "text": "?"}));
    assert_eq!(result["stopReason"], "max_turn_requests");
    let session = client.session(contract(json!({})));
    let result = client.result("prompt", json!({"session": session, "text": "?"}));
    assert_eq!(result["_meta"]["ai.prime.rlm/session-v1"]["last_stop_reason"], Value::Null);
    let edges = result["_meta"]["ai.prime.acp/semantic-edges-v1"]["edges"].as_array().unwrap().clone();
    assert_eq!(last_message(&client.updates()), "there");
    let wrong = json!({"ai.prime.rlm/runtime-v1": {"policy": {"exec_timeout": "soon"}}});
    let cwd = client.place.path("work");
    let error = client.error("new", json!({"cwd": cwd, "meta": wrong}));
    assert!(
        error["message"]
            .as_str()
            .unwrap()
            .starts_with("ai.prime.rlm/runtime-v1: policy.exec_timeout: expected"),
        "{error}"
    );
    client.end();
    let requests = model.finish();
    assert_eq!(requests.len(), 7);
    // The root model was asked twice, and a sub-LLM answered one of two.
    let id = |request: &Request| request.header("x-acp-model-request-id").to_owned();
    let (root, next) = (id(&requests[3]), id(&requests[6]));
    let kinds: Vec<_> = edges.iter().map(|edge| edge["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["subagent_call", "continuation", "subagent_return"]);
    let sub = edges[0]["target_request_id"].as_str().unwrap();
    assert!(requests[4..6].iter().any(|request| id(request) == sub), "{edges:?}");
    let edge = |source: &str, target: &str, kind: &str| json!({"source_request_id": source, "target_request_id": target, "type": kind});
    assert_eq!(
        edges,
        [
            edge(&root, sub, "subagent_call"),
            edge(&root, &next, "continuation"),
            edge(sub, &next, "subagent_return")
        ]
    );
    for request in requests[..4].iter().chain(&requests[6..]) {
        assert_eq!(request.body["model"], "trained");
        assert_eq!(request.header("idempotency-key"), id(request));
        assert_eq!(request.header("authorization"), "Bearer the-key-of-the-trainer");
        assert_eq!(request.header("x-trainer"), "yes");
        let system = request.body["messages"][0]["content"].as_str().unwrap();
        assert!(system.ends_with("Be very brief."), "{system}");
    }
    let output =
        requests[1].body["messages"].as_array().unwrap().last().unwrap()["content"].as_str().unwrap();
    assert_eq!(output, "there \n0123456789\n");
}

#[test]
fn a_trainer_gets_the_tokens_of_each_reply() {
    let body = |message: &Value, extra: &Value| {
        let mut choice = json!({"index": 0, "message": message, "finish_reason": "stop"});
        let mut body = json!({"usage": {"prompt_tokens": 2, "completion_tokens": 1}});
        for (name, value) in extra.as_object().unwrap() {
            let place =
                if ["token_ids", "logprobs"].contains(&name.as_str()) { &mut choice } else { &mut body };
            place[name] = value.clone();
        }
        body["choices"] = json!([choice]);
        Rule::any().body(body.to_string()).once()
    };
    let logprobs = json!({"content": [{"token": "a", "logprob": -0.25}]});
    let call = calling("call_bash_repl", ":");
    let model = ScriptedModel::start([
        body(&call, &json!({"prompt_token_ids": [1, 2], "token_ids": [3], "logprobs": logprobs})),
        body(&call, &json!({"sglext": {"input_ids": [1, 2, 3, 4], "output_ids": [[5]]}})),
        body(
            &calling("call_bash_repl", "RLM_CONTENT=a RLM_READY=1"),
            &json!({"token_ids": [7], "logprobs": "x".repeat(5 << 20)}),
        ),
        bash("RLM_CONTENT=b RLM_READY=1"),
    ]);
    let Some(mut client) = Client::start(&[], &model) else { return };
    let session = client.session(json!({"ai.prime.rlm/runtime-v1": {"token_ids": true}}));
    client.result("prompt", json!({"session": session, "text": "?"}));
    let updates = client.updates();
    let metas = updates.iter().map(|update| (&update["messageId"], &update["_meta"]["rlm/tokens-v1"]));
    let metas: Vec<_> = metas.filter(|(_, tokens)| !tokens.is_null()).collect();
    assert_eq!(
        metas.iter().map(|(id, _)| id.as_str().unwrap()).collect::<Vec<_>>(),
        ["reply-1", "reply-2", "reply-3"]
    );
    let tokens = |at: usize, name: &str| metas[at].1[name].clone();
    assert_eq!([tokens(0, "prompt_token_ids"), tokens(0, "token_ids")], [json!([1, 2]), json!([3])]);
    assert_eq!([tokens(0, "logprobs"), tokens(0, "is_summary")], [json!([-0.25]), json!(false)]);
    assert_eq!([tokens(1, "prompt_token_ids"), tokens(1, "token_ids")], [json!([1, 2, 3, 4]), json!([5])]);
    assert_eq!(tokens(2, "token_ids"), json!([7]));
    assert!(tokens(2, "logprobs").as_str().unwrap().starts_with("left out: 5,242,882 bytes, "), "{metas:?}");
    let ids: Vec<_> = (0..3).map(|at| tokens(at, "request_id")).collect();
    // Nobody asks for tokens here.
    let session = client.session(json!({}));
    client.result("permission", json!({"answer": "allow"}));
    client.result("prompt", json!({"session": session, "text": "?"}));
    assert!(client.updates().iter().all(|update| update["_meta"].is_null()));
    client.end();
    let requests = model.finish();
    for (request, id) in requests.iter().zip(&ids) {
        assert_eq!(
            (&request.body["return_token_ids"], request.header("x-request-id")),
            (&json!(true), id.as_str().unwrap())
        );
    }
    assert!(requests[3].body.get("return_token_ids").is_none());
}

/// A request for a summary, one of them without a text, branches off; what follows the summary goes on from it.
#[test]
fn a_trainer_has_the_conversation_compacted() {
    let model = ScriptedModel::start([
        bash("llm_batch one; n=3").usage(990, 10),
        Rule::any().reply("reply").once(),
        bash(":"),
        says("n is 3"),
        bash("RLM_CONTENT=$n RLM_READY=1").usage(300, 10),
        bash("RLM_CONTENT=more").usage(990, 10),
        bash(":"),
        bash(":"),
        bash("RLM_READY=1"),
    ]);
    let Some(mut client) = Client::start(&[], &model) else { return };
    let contract = json!({"ai.prime.rlm/runtime-v1": {
        "session_id": "trace-7",
        "policy": {"compaction": true, "summarize_at_tokens": 1000, "max_compaction_attempts": 2},
    }});
    let session = client.session(contract);
    let [first, second] =
        ["?", "More?"].map(|text| client.result("prompt", json!({"session": session, "text": text})));
    let snapshot = |result: &Value| result["_meta"]["ai.prime.rlm/session-v1"].clone();
    assert_eq!(snapshot(&first)["last_stop_reason"], Value::Null);
    let metrics = &snapshot(&first)["metrics"];
    assert_eq!((&metrics["root_llm_turns"], &metrics["root_llm_summary_count"]), (&json!(2), &json!(1)));
    assert_eq!(snapshot(&second)["last_stop_reason"], Value::Null);
    let edges =
        [first, second].map(|result| result["_meta"]["ai.prime.acp/semantic-edges-v1"]["edges"].clone());
    client.end();
    let requests = model.finish();
    let place = |id: &Value| {
        let of = |request: &Request| request.header("x-acp-model-request-id") == id.as_str().unwrap();
        requests.iter().position(of).unwrap()
    };
    let edges = edges.map(|edges| {
        let edges = edges.as_array().unwrap().iter();
        edges
            .map(|edge| {
                let kind = edge["type"].as_str().unwrap().to_owned();
                (place(&edge["source_request_id"]), place(&edge["target_request_id"]), kind)
            })
            .collect::<Vec<_>>()
    });
    let edge = |source: usize, target: usize, kind: &str| (source, target, kind.to_owned());
    let expected = [
        edge(0, 1, "subagent_call"),
        edge(0, 2, "compaction_attempt"),
        edge(1, 2, "subagent_return"),
        edge(0, 3, "compaction_attempt"),
        edge(1, 3, "subagent_return"),
        edge(3, 4, "compaction"),
    ];
    assert_eq!(edges[0], expected);
    let failed = [
        edge(4, 5, "continuation"),
        edge(5, 6, "compaction_attempt"),
        edge(5, 7, "compaction_attempt"),
        edge(5, 8, "continuation"),
    ];
    assert_eq!(edges[1], failed);
}
