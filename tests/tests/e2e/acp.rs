//! `rlm acp`, driven by the official Python SDK's client, and by lines that no SDK sends.

use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use rlm_tests::scripted_model::{Gate, Request, Rule, ScriptedModel};
use rlm_tests::{Place, default_python, program, repository, wait_until};
use serde_json::{Value, json};

use crate::venv::{python_with, python_with_mcp};

/// The SDK's client, in a process of its own.
struct Client {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    /// Updates that the client has shown, and that no test has asked for yet.
    seen: Vec<Value>,
    place: Place,
}

impl Client {
    /// None if the SDK cannot be had.
    fn start(arguments: &[&str], model: &ScriptedModel) -> Option<Self> {
        let python = python_with("acp", "agent-client-protocol==0.12.1", "acp")?;
        let place = Place::new();
        let mut command = place.command(&python);
        command.arg(repository().join("tests/acp_client.py")).arg(program("rlm")).arg("acp");
        command.args(["--model", "root", "--base-url", &model.base_url()]).args(arguments);
        command.env("RLM_SUB_MODEL", "sub");
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (input, output) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()));
        let mut client = Self { child, input, output, seen: Vec::new(), place };
        let result = client.result("initialize", json!({}));
        assert_eq!((&result["protocolVersion"], &result["agentInfo"]["name"]), (&json!(1), &json!("rlm")));
        Some(client)
    }

    /// Sends a command, under its own name.
    fn send(&mut self, name: &str, op: &str, mut arguments: Value) {
        arguments["op"] = op.into();
        arguments["name"] = name.into();
        let input = self.input.as_mut().unwrap();
        writeln!(input, "{arguments}").unwrap();
        input.flush().unwrap();
    }

    /// Waits for a line, and passes over those before it.
    #[track_caller]
    fn wait(&mut self, is_wanted: impl Fn(&Value) -> bool) -> Value {
        loop {
            let mut line = String::new();
            assert!(self.output.read_line(&mut line).unwrap() > 0, "the client has ended: {:?}", self.seen);
            let event: Value = serde_json::from_str(&line).unwrap();
            self.seen.push(event.clone());
            if is_wanted(&event) {
                return event;
            }
        }
    }

    #[track_caller]
    fn wait_for(&mut self, name: &str) -> Value {
        self.wait(|event| event["name"] == name)
    }

    /// The result of a command.
    #[track_caller]
    fn result(&mut self, op: &str, arguments: Value) -> Value {
        self.send(op, op, arguments);
        let event = self.wait_for(op);
        assert!(event.get("error").is_none(), "{event}");
        event["result"].clone()
    }

    /// The error of a command.
    #[track_caller]
    fn error(&mut self, op: &str, arguments: Value) -> Value {
        self.send(op, op, arguments);
        let event = self.wait_for(op);
        assert!(event.get("error").is_some(), "{event}");
        event["error"].clone()
    }

    /// A new session in the place's directory.
    fn session(&mut self, meta: Value) -> String {
        let cwd = self.place.path("work");
        let result = self.result("new", json!({"cwd": cwd, "meta": meta}));
        result["sessionId"].as_str().unwrap().to_owned()
    }

    /// The updates so far, and forgets them.
    fn updates(&mut self) -> Vec<Value> {
        std::mem::take(&mut self.seen).into_iter().filter(|event| event.get("update").is_some()).collect()
    }

    /// Closes the agent's standard input and checks that nothing is left.
    fn end(mut self) {
        drop(self.input.take());
        let event = self.wait(|event| event.get("exit").is_some());
        assert_eq!(event["exit"], 0, "{event}");
        assert!(self.child.wait().unwrap().success());
        self.place.assert_nothing_left();
    }
}

fn calling(id: &str, language: &str, code: &str) -> Value {
    let arguments = json!({"code": code}).to_string();
    json!({"role": "assistant", "content": null, "tool_calls": [
        {"id": id, "type": "function", "function": {"name": format!("call_{language}_repl"), "arguments": arguments}},
    ]})
}

fn says(text: &str) -> Rule {
    Rule::any().message(json!({"role": "assistant", "content": text})).once()
}

fn bash(code: &str) -> Rule {
    Rule::any().message(calling("c", "bash", code)).once()
}

/// The last message of the agent, which may come in pieces.
fn last_message(updates: &[Value]) -> String {
    let chunks = updates.iter().map(|event| &event["update"]);
    let chunks: Vec<_> = chunks.filter(|update| update["sessionUpdate"] == "agent_message_chunk").collect();
    let last = chunks.last().unwrap()["messageId"].clone();
    let texts = chunks.iter().filter(|chunk| chunk["messageId"] == last);
    texts.map(|chunk| chunk["content"]["text"].as_str().unwrap()).collect()
}

#[test]
fn reasoning_is_a_thought_and_no_part_of_a_message() {
    let reply = json!({"role": "assistant", "content": "<think>\nLet me see.\n</think>\n\nIt is 6."});
    let model = ScriptedModel::start([Rule::any().message(reply).once()]);
    let Some(mut client) = Client::start(&["--permissions", "allow"], &model) else { return };
    let session = client.session(json!({}));
    client.result("prompt", json!({"session": session, "text": "How many?"}));
    let updates = client.updates();
    let said = |kind: &str| -> Vec<(String, String)> {
        let chunks =
            updates.iter().map(|event| &event["update"]).filter(|update| update["sessionUpdate"] == kind);
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        chunks.map(|chunk| (text(&chunk["messageId"]), text(&chunk["content"]["text"]))).collect()
    };
    let chunk = |id: &str, text: &str| vec![(id.to_owned(), text.to_owned())];
    assert_eq!(said("agent_thought_chunk"), chunk("reasoning-1", "Let me see."));
    assert_eq!(said("agent_message_chunk"), chunk("reply-1", "It is 6."));
    client.end();
}

#[test]
fn prompts_of_a_session_share_its_state_and_show_their_calls() {
    let model = ScriptedModel::start([
        bash("n=6; cat numbers.txt"),
        bash("RLM_CONTENT=$n RLM_READY=1"),
        bash("RLM_CONTENT=$((n * 7)) RLM_READY=1"),
        says("Hello."),
    ]);
    let Some(mut client) = Client::start(&["--permissions", "allow"], &model) else { return };
    client.place.write("numbers.txt", "one\ntwo\n");
    let session = client.session(json!({}));
    let result = client.result("prompt", json!({"session": session, "text": "How many?"}));
    assert_eq!(result["stopReason"], "end_turn");
    let updates = client.updates();
    assert_eq!(last_message(&updates), "6");
    let calls: Vec<_> = updates
        .iter()
        .map(|event| &event["update"])
        .filter(|update| update["sessionUpdate"] == "tool_call")
        .collect();
    assert_eq!(calls.len(), 2);
    assert_eq!((&calls[0]["kind"], &calls[0]["status"]), (&json!("execute"), &json!("in_progress")));
    assert_eq!(calls[0]["rawInput"]["code"], "n=6; cat numbers.txt");
    let ends: Vec<_> = updates
        .iter()
        .map(|event| &event["update"])
        .filter(|update| update["status"] == "completed")
        .collect();
    assert_eq!(ends.len(), 2);
    assert_eq!(ends[0]["toolCallId"], calls[0]["toolCallId"]);
    assert_eq!(ends[0]["content"][1]["content"]["text"], "```\none\ntwo\n```");
    assert_ne!(calls[0]["toolCallId"], calls[1]["toolCallId"], "the model gave both the same id");
    client.result("prompt", json!({"session": session, "text": "And seven times?"}));
    assert_eq!(last_message(&client.updates()), "42");
    client.result("prompt", json!({"session": session, "text": "Thanks."}));
    assert_eq!(last_message(&client.updates()), "Hello.");
    client.end();
    let requests = model.finish();
    let first = requests[0].body["messages"].as_array().unwrap();
    let last = requests[3].body["messages"].as_array().unwrap();
    assert_eq!(last[..first.len()], first[..], "earlier messages stay");
}

#[test]
fn a_prompt_can_be_cancelled_wherever_it_is() {
    let gate = Gate::shut();
    let model = ScriptedModel::start([
        bash("kept=1; : >started; sleep 600"),
        bash("RLM_CONTENT=$kept RLM_READY=1"),
        bash("RLM_CONTENT=early RLM_READY=1; : >ready; sleep 600"),
        says("late").after(&gate),
        bash("llm_batch one two; : never"),
        Rule::any().reply("slow").times(2).after(&gate),
        bash("RLM_CONTENT=still-$kept RLM_READY=1"),
    ]);
    let Some(mut client) = Client::start(&["--permissions", "allow"], &model) else { return };
    let session = client.session(json!({}));
    let prompt = json!({"session": session, "text": "How many?"});
    let cancelled = |client: &mut Client| {
        client.send("cancel", "cancel", json!({"session": session}));
        let event = client.wait_for("prompt");
        assert_eq!(event["result"]["stopReason"], "cancelled", "{event}");
    };
    // A call.
    client.send("prompt", "prompt", prompt.clone());
    wait_until("the call runs", || client.place.file("started").exists());
    assert_eq!(client.error("prompt", prompt.clone())["message"], "the session works on a prompt already");
    cancelled(&mut client);
    client.result("prompt", prompt.clone());
    assert_eq!(last_message(&client.updates()), "1");
    // A call that has set the answer.
    client.send("prompt", "prompt", prompt.clone());
    wait_until("the call runs", || client.place.file("ready").exists());
    cancelled(&mut client);
    assert!(!client.updates().iter().any(|event| event["update"]["sessionUpdate"] == "agent_message_chunk"));
    // A request to the model.
    client.send("prompt", "prompt", prompt.clone());
    wait_until("the model is asked", || model.requests().len() == 4);
    cancelled(&mut client);
    // A batch.
    client.send("prompt", "prompt", prompt.clone());
    wait_until("the batch runs", || model.requests().len() == 7);
    cancelled(&mut client);
    client.result("prompt", prompt);
    assert_eq!(last_message(&client.updates()), "still-1");
    gate.open();
    client.end();
    drop(model);
}

#[test]
fn sessions_run_side_by_side_and_close_alone() {
    let model = ScriptedModel::start([
        bash("who=one; : >started; while ! [ -e go ]; do sleep 0.05; done; RLM_CONTENT=$who RLM_READY=1"),
        bash("who=two; : >go; RLM_CONTENT=$who RLM_READY=1"),
        bash(": >again; sleep 600"),
        bash("RLM_CONTENT=$who RLM_READY=1"),
    ]);
    let Some(mut client) = Client::start(&["--permissions", "allow"], &model) else { return };
    let (one, two) = (client.session(json!({})), client.session(json!({})));
    client.send("first", "prompt", json!({"session": one, "text": "?"}));
    wait_until("the first works", || client.place.file("started").exists());
    client.result("prompt", json!({"session": two, "text": "?"}));
    if !client.seen.iter().any(|event| event["name"] == "first") {
        client.wait_for("first");
    }
    for (session, answer) in [(&one, "one"), (&two, "two")] {
        let updates: Vec<_> =
            client.seen.iter().filter(|event| event["session"] == **session).cloned().collect();
        assert_eq!(last_message(&updates), answer);
    }
    client.updates();
    // One session is closed while it works.
    client.send("first", "prompt", json!({"session": one, "text": "?"}));
    wait_until("it works", || client.place.file("again").exists());
    client.result("close", json!({"session": one}));
    let first = client.seen.iter().find(|event| event["name"] == "first").cloned();
    let first = first.unwrap_or_else(|| client.wait_for("first"));
    assert_eq!(first["result"]["stopReason"], "cancelled", "{first}");
    let error = client.error("prompt", json!({"session": one, "text": "?"}));
    assert!(error["message"].as_str().unwrap().contains("there is no session"), "{error}");
    client.updates();
    client.result("prompt", json!({"session": two, "text": "?"}));
    assert_eq!(last_message(&client.updates()), "two");
    client.end();
    drop(model);
}

#[test]
fn the_end_of_input_ends_a_running_call_and_everything_else() {
    let model = ScriptedModel::start([bash(
        "sleep 1000 & : >started; trap '' INT TERM HUP; while :; do sleep 1000; done",
    )]);
    let Some(mut client) = Client::start(&["--permissions", "allow"], &model) else { return };
    let session = client.session(json!({}));
    client.send("prompt", "prompt", json!({"session": session, "text": "?"}));
    wait_until("the call runs", || client.place.file("started").exists());
    client.end();
    drop(model);
}

#[test]
fn large_messages_pass_and_stay_out_of_the_conversation() {
    let model = ScriptedModel::start([
        bash(
            "RLM_CONTENT=$(wc -c <\"$(find / -name message-1.txt -newer /proc/self 2>/dev/null | head -1)\") RLM_READY=1; RLM_CONTENT=done",
        ),
        bash("RLM_CONTENT=$(head -c 200000 /dev/zero | tr '\\0' x) RLM_READY=1"),
    ]);
    let Some(mut client) = Client::start(&["--permissions", "allow"], &model) else { return };
    let session = client.session(json!({}));
    let text = "word ".repeat(40_000);
    client.result("prompt", json!({"session": session, "text": text}));
    let text = "x".repeat(16 << 20);
    client.result("prompt", json!({"session": session, "text": text}));
    assert_eq!(last_message(&client.updates()).len(), 200_000);
    client.end();
    let requests = model.finish();
    for (request, bytes) in requests.iter().zip(["200,000", "16,777,216"]) {
        let messages = request.body["messages"].as_array().unwrap();
        let last = messages.last().unwrap()["content"].as_str().unwrap();
        assert!(
            last.len() < 5000
                && last.contains(&format!("The message has {bytes} bytes. All of it is in the file")),
            "{last}"
        );
    }
}

#[test]
fn the_user_is_asked_before_each_call_where_nothing_else_is_said() {
    let gate = Gate::shut();
    let model = ScriptedModel::start([
        bash(": >ran-one"),
        bash(": >ran-two; RLM_CONTENT=first RLM_READY=1"),
        bash(": >ran-three; RLM_CONTENT=second RLM_READY=1").after(&gate),
        bash("RLM_CONTENT=third RLM_READY=1"),
        bash(": >ran-four"),
    ]);
    let Some(mut client) = Client::start(&[], &model) else { return };
    let session = client.session(json!({}));
    client.result("permission", json!({"answer": "reject"}));
    client.send("prompt", "prompt", json!({"session": session, "text": "?"}));
    let asked = client.wait(|event| event.get("asked").is_some());
    assert_eq!(asked["asked"]["toolCallId"], "1-c");
    assert_eq!(asked["asked"]["rawInput"]["code"], ": >ran-one");
    // The second call is allowed: it waits for the answer to a question that came before.
    client.wait(|event| event["update"]["status"] == "failed");
    client.wait(|event| event.get("asked").is_some());
    client.wait(|event| event["update"]["status"] == "failed");
    client.result("permission", json!({"answer": "allow_always"}));
    gate.open();
    client.wait_for("prompt");
    assert!(!client.place.file("ran-one").exists() && !client.place.file("ran-two").exists());
    let asked = |client: &Client| client.seen.iter().filter(|event| event.get("asked").is_some()).count();
    let before = asked(&client);
    assert_eq!(before, 3);
    // The prompt is cancelled while the user is asked.
    client.result("set", json!({"session": session, "option": "permissions", "value": "ask"}));
    client.result("permission", json!({"answer": "never"}));
    client.send("prompt", "prompt", json!({"session": session, "text": "?"}));
    client.wait(|event| event.get("asked").is_some());
    client.send("cancel", "cancel", json!({"session": session}));
    assert_eq!(client.wait_for("prompt")["result"]["stopReason"], "cancelled");
    client.end();
    drop(model);
}

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
    let call = calling("c", "bash", ":");
    let model = ScriptedModel::start([
        body(&call, &json!({"prompt_token_ids": [1, 2], "token_ids": [3], "logprobs": logprobs})),
        body(&call, &json!({"sglext": {"input_ids": [1, 2, 3, 4], "output_ids": [[5]]}})),
        body(
            &calling("c", "bash", "RLM_CONTENT=a RLM_READY=1"),
            &json!({"token_ids": [7], "logprobs": "x".repeat(5 << 20)}),
        ),
        bash("RLM_CONTENT=b RLM_READY=1"),
    ]);
    let Some(mut client) = Client::start(&[], &model) else { return };
    let session = client.session(json!({"ai.prime.rlm/runtime-v1": {"token_ids": true}}));
    client.result("prompt", json!({"session": session, "text": "?"}));
    let updates = client.updates();
    let metas = updates
        .iter()
        .map(|event| (&event["update"]["messageId"], &event["update"]["_meta"]["rlm/tokens-v1"]));
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
    assert!(client.updates().iter().all(|event| event["update"]["_meta"].is_null()));
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

#[test]
fn what_cannot_be_is_an_error_that_says_why() {
    let model = ScriptedModel::start([Rule::any().status(401, "no such key").times(9)]);
    let Some(mut client) = Client::start(&["--permissions", "allow", "--max-retries", "0"], &model) else {
        return;
    };
    for (cwd, words) in [("relative", "cwd: relative is not"), ("/no/such", "cwd: /no/such is not")] {
        let error = client.error("new", json!({"cwd": cwd}));
        assert!(error["message"].as_str().unwrap().starts_with(words), "{error}");
    }
    let session = client.session(json!({}));
    let error = client.error("prompt", json!({"session": "none", "text": "?"}));
    assert_eq!(error["message"], "sessionId: there is no session none");
    let error = client.error("prompt", json!({"session": session, "text": " "}));
    assert_eq!(error["message"], "prompt: it has no text");
    let image = json!([{"type": "image", "data": "", "mimeType": "image/png"}]);
    let error = client.error("prompt", json!({"session": session, "blocks": image}));
    assert_eq!(error["message"], "prompt: expected blocks of text and links to resources");
    let error = client.error("set", json!({"session": session, "option": "colour", "value": "red"}));
    assert!(error["message"].as_str().unwrap().contains("expected model or permissions"), "{error}");
    let error = client.error("set", json!({"session": session, "option": "model", "value": ""}));
    assert_eq!(error["message"], "model: expected some text");
    let error = client.error("set", json!({"session": session, "option": "permissions", "value": "none"}));
    assert_eq!(error["message"], "permissions: expected ask or allow");
    let options = client.result("set", json!({"session": session, "option": "model", "value": "other"}));
    assert_eq!(options["configOptions"][0]["currentValue"], "other");
    let link = json!([{"type": "text", "text": "Read"}, {"type": "resource_link", "name": "a b", "uri": "file:///tmp/a%20b"}]);
    let error = client.error("prompt", json!({"session": session, "blocks": link}));
    assert_eq!(error["data"]["kind"], "model_refused");
    assert!(error["message"].as_str().unwrap().contains("401"), "{error}");
    let cwd = client.place.path("work");
    for (contract, words) in [
        (
            json!({"provider": {"base_url": "host/v1"}}),
            "base_url (ai.prime.rlm/runtime-v1: provider.base_url): the base URL of the models cannot be read: ",
        ),
        (
            json!({"provider": {"headers": {"a b": "c"}}}),
            "headers (ai.prime.rlm/runtime-v1: provider.headers): the header a b of the models has ",
        ),
        (json!({"policy": {"max_tokens": 0}}), "ai.prime.rlm/runtime-v1: policy.max_tokens: expected "),
    ] {
        let meta = json!({"ai.prime.rlm/runtime-v1": contract});
        let error = client.error("new", json!({"cwd": cwd, "meta": meta}));
        assert!(error["message"].as_str().unwrap().starts_with(words), "{error}");
    }
    client.end();
    let requests = model.finish();
    assert_eq!(requests[0].body["model"], "other");
    assert_eq!(requests[0].body["messages"][1]["content"], "Read\n\n[a b](/tmp/a b)");
}

/// Failures that a trainer should try again, and those that it should not.
#[test]
fn a_failure_says_whether_the_server_refused_or_failed() {
    let model = ScriptedModel::start([
        Rule::any().status(402, "no credit").once(),
        Rule::any().status(403, "not yours").once(),
        Rule::any().status(404, "no such model").once(),
        Rule::any().status(500, "out of order").once(),
        bash("RLM_CONTENT=after RLM_READY=1"),
    ]);
    let Some(mut client) = Client::start(&["--permissions", "allow", "--max-retries", "0"], &model) else {
        return;
    };
    let session = client.session(json!({}));
    let prompt = json!({"session": session, "text": "?"});
    for kind in ["model_refused", "model_refused", "model_refused", "model_transport"] {
        let error = client.error("prompt", prompt.clone());
        assert_eq!((&error["code"], &error["data"]["kind"]), (&json!(-32603), &json!(kind)), "{error}");
    }
    client.result("prompt", prompt);
    assert_eq!(last_message(&client.updates()), "after", "the session goes on");
    client.end();
    drop(model);
}

#[test]
fn the_model_changes_between_prompts_and_the_conversation_stays() {
    let model = ScriptedModel::start([
        bash("n=6; RLM_CONTENT=$n RLM_READY=1"),
        bash("RLM_CONTENT=$((n * 7)) RLM_READY=1"),
    ]);
    model.set_models(json!([{"id": "root"}, {"id": "large"}, {"id": "small"}]));
    let trajectory = Place::new();
    let file = trajectory.path("t.jsonl").display().to_string();
    let arguments = ["--permissions", "allow", "--trajectory", &file];
    let Some(mut client) = Client::start(&arguments, &model) else { return };
    let cwd = client.place.path("work");
    let result = client.result("new", json!({"cwd": cwd}));
    let session = result["sessionId"].clone();
    let option = result["configOptions"][0].clone();
    assert_eq!((&option["id"], &option["currentValue"]), (&json!("model"), &json!("root")));
    let listed: Vec<_> = option["options"].as_array().unwrap().iter().map(|one| &one["value"]).collect();
    assert_eq!(listed, ["root", "large", "small"]);
    client.result("prompt", json!({"session": session, "text": "How many?"}));
    let options = client.result("set", json!({"session": session, "option": "model", "value": "large"}));
    assert_eq!(options["configOptions"][0]["currentValue"], "large");
    client.result("prompt", json!({"session": session, "text": "And seven times?"}));
    assert_eq!(last_message(&client.updates()), "42");
    client.end();
    let requests = model.finish();
    assert_eq!((&requests[0].body["model"], &requests[1].body["model"]), (&json!("root"), &json!("large")));
    let [before, after] = [0, 1].map(|at| requests[at].body["messages"].as_array().unwrap().clone());
    assert_eq!(after[..before.len()], before[..], "the system prompt and the conversation stay");
    let written = std::fs::read_to_string(&file).unwrap();
    let entries: Vec<Value> = written.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let changed: Vec<_> = entries.iter().filter(|entry| entry["event"] == "model_changed").collect();
    assert_eq!(changed.len(), 1);
    assert_eq!((&changed[0]["model"], &changed[0]["turn"]), (&json!("large"), &json!(1)));
    let asked = entries.iter().filter(|entry| entry["event"] == "model_call").map(|entry| &entry["model"]);
    assert_eq!(asked.collect::<Vec<_>>(), ["root", "large"]);
}

#[test]
fn much_output_is_shown_as_it_comes_within_bounds() {
    let model = ScriptedModel::start([
        bash("seq 9000000; : >done"),
        bash("for n in 1 2 3 4 5 6; do printf .; sleep 0.05; done; echo end"),
        bash("RLM_CONTENT=yes RLM_READY=1"),
    ]);
    let Some(mut client) = Client::start(&["--permissions", "allow"], &model) else { return };
    let session = client.session(json!({}));
    client.result("prompt", json!({"session": session, "text": "?"}));
    let updates = client.updates();
    let of = |id: &str| {
        let updates = updates.iter().map(|event| &event["update"]);
        updates.filter(|update| update["toolCallId"] == id).cloned().collect::<Vec<_>>()
    };
    let text =
        |update: &Value| update["content"][1]["content"]["text"].as_str().unwrap_or_default().to_owned();
    let large = of("1-c");
    assert!(large.iter().all(|update| update.to_string().len() < 40_000));
    assert!(text(large.last().unwrap()).contains("9000000\n"), "{}", text(large.last().unwrap()));
    let dots: Vec<_> = of("2-c").iter().map(text).collect();
    assert!(dots.iter().any(|text| text.contains("...") && !text.contains("end")), "{dots:?}");
    assert!(dots.last().unwrap().contains("......end"), "{dots:?}");
    client.end();
    drop(model);
}

/// An agent that is spoken to line by line.
struct Raw {
    agent: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Raw {
    fn start(place: &Place) -> Self {
        let mut command: Command = place.rlm(&["acp", "--model", "m", "--base-url", "http://127.0.0.1:1/v1"]);
        let mut agent = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (input, output) = (agent.stdin.take().unwrap(), BufReader::new(agent.stdout.take().unwrap()));
        Self { agent, input, output }
    }

    fn send(&mut self, bytes: &[u8]) {
        self.input.write_all(bytes).unwrap();
        self.input.write_all(b"\n").unwrap();
    }

    fn read(&mut self) -> Value {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"))
    }
}

#[test]
fn malformed_messages_get_an_error_and_the_agent_lives() {
    let place = Place::new();
    let mut raw = Raw::start(&place);
    raw.send(br#"{"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {"protocolVersion": 1}}"#);
    assert_eq!(raw.read()["result"]["protocolVersion"], 1);
    let mut deep = String::new();
    for _ in 0..10_000 {
        deep.push('[');
    }
    let mut many = String::new();
    write!(many, "{{\"jsonrpc\": \"2.0\", \"id\": 6, \"method\": \"session/prompt\", \"params\": {deep}")
        .unwrap();
    for (line, code) in [
        (&b"{"[..], -32700),
        (b"no JSON at all", -32700),
        (b"\xff\xfe", -32700),
        (many.as_bytes(), -32700),
        (&vec![b'x'; 70 << 20], -32700),
        (br#"{"jsonrpc": "2.0", "id": 1, "method": "session/dance", "params": {}}"#, -32601),
        (br#"{"jsonrpc": "2.0", "id": 2, "method": "session/prompt", "params": {"sessionId": 7}}"#, -32602),
        (br#"{"jsonrpc": "2.0", "id": 3, "method": "session/prompt"}"#, -32602),
        (br#"{"jsonrpc": "2.0", "id": 4, "method": "session/new", "params": {"cwd": "/", "mcpServers": 1}}"#, -32602),
    ] {
        raw.send(line);
        let response = raw.read();
        assert_eq!(response["error"]["code"], code, "{}: {response}", String::from_utf8_lossy(&line[..line.len().min(90)]));
        assert!(response.to_string().len() < 100_000, "a message that is too long is not sent back");
    }
    // These lines get no answer.
    for line in [
        &br#"{"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": "none"}}"#[..],
        br#"{"jsonrpc": "2.0", "method": "session/cancel", "params": 3}"#,
        br#"{"jsonrpc": "2.0", "method": "$/unknown"}"#,
        br#"{"jsonrpc": "2.0", "id": 99, "result": {}}"#,
        b"",
    ] {
        raw.send(line);
    }
    raw.send(br#"{"jsonrpc": "2.0", "id": "last", "method": "session/new", "params": {"cwd": "/", "mcpServers": []}}"#);
    loop {
        let response = raw.read();
        if response["id"] == "last" {
            assert!(response["result"]["sessionId"].is_string(), "{response}");
            break;
        }
        assert!(response.get("error").is_some(), "{response}");
    }
    drop(raw.input);
    assert!(raw.agent.wait().unwrap().success());
    place.assert_nothing_left();
}

#[test]
fn mcp_servers_of_the_client_are_functions_of_code_in_the_session() {
    let Some(server) = python_with_mcp() else { return };
    let script = repository().join("tests/mcp_tools.py");
    let code =
        ["RLM_CONTENT=$(srv_add 40 2) RLM_READY=1", "answer.update(content=srv_add(40, 2), ready=True)"];
    for (language, code) in ["bash", "python"].into_iter().zip(code) {
        let model = ScriptedModel::start([Rule::any().message(calling("c", language, code)).once()]);
        let python = format!("--python={}", default_python().display());
        let options = ["--permissions", "allow", &python];
        let options = if language == "bash" { &options[..2] } else { &options };
        let Some(mut client) = Client::start(options, &model) else { return };
        let cwd = client.place.path("work");
        let [(mark, value), _] = client.place.mark();
        let declared = json!([{"name": "srv", "command": server, "args": [script], "env": [{"name": mark, "value": value}]}]);
        let result = client.result("new", json!({"cwd": cwd, "servers": declared}));
        let session = result["sessionId"].clone();
        client.result("prompt", json!({"session": session, "text": "How many?"}));
        assert_eq!(last_message(&client.updates()), "42");
        // A session is closed before its first prompt.
        let result = client.result("new", json!({"cwd": cwd, "servers": declared}));
        client.result("close", json!({"session": result["sessionId"]}));
        let absent = json!([{"name": "gone", "command": "/no/such", "args": [], "env": []}]);
        let error = client.error("new", json!({"cwd": cwd, "servers": absent}));
        let words = error["message"].as_str().unwrap();
        assert!(words.starts_with("mcpServers: the MCP server 'gone' "), "{words}");
        client.end();
        drop(model);
    }
}

/// Harbor starts agents in containers, where its runner speaks to them: the runner runs here without one.
#[test]
fn harbor_runs_it() {
    let Some(python) = python_with("harbor", "harbor==0.25.0 agent-client-protocol==0.12.1", "harbor, acp")
    else {
        return;
    };
    let place = Place::new();
    let model = ScriptedModel::start([bash("echo done >made; RLM_CONTENT=$(cat task) RLM_READY=1")]);
    place.write("task", "toy");
    let described = repository().join("examples/harbor/agent.json");
    let code = "import json, sys\nfrom harbor.agents.installed.acp import AcpRegistryEntry\n\
                print(json.dumps(AcpRegistryEntry.model_validate_json(open(sys.argv[1]).read()).distribution.local.args))";
    let output = Command::new(&python).args(["-c", code]).arg(described).output().unwrap();
    let arguments: Vec<String> = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)));
    // The launcher takes no arguments.
    let launcher = place.path("launch");
    let script = format!("#!/bin/sh\nexec '{}' {}\n", program("rlm").display(), arguments.join(" "));
    std::fs::write(&launcher, script).unwrap();
    std::fs::set_permissions(&launcher, std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = place.at_work(&python);
    command.args([
        "-m",
        "harbor.agents.installed.acp_runner",
        "--instruction",
        "What is the task?",
        "--logs-dir",
        "logs",
    ]);
    command.arg("--launcher").arg(&launcher).env("HARBOR_ACP_REQUESTED_MODEL", "root");
    let output = command.env("RLM_BASE_URL", model.base_url()).output().unwrap();
    let summary = place.read("logs/acp-summary.json");
    assert!(output.status.success(), "{}{summary}", String::from_utf8_lossy(&output.stderr));
    let summary: Value = serde_json::from_str(&summary).unwrap();
    assert_eq!(summary["resolved_session_model_id"], "root");
    assert_eq!(summary["prompt_response"]["stopReason"], "end_turn", "{summary:#}");
    assert_eq!(place.read("made"), "done\n");
    assert!(place.read("logs/acp-events.jsonl").contains("\"toy\""));
    assert_eq!(model.finish()[0].body["model"], "root");
    std::fs::remove_file(launcher).unwrap();
    place.assert_nothing_left();
}
