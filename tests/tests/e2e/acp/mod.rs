//! `rlm acp`, driven by the official Python SDK's client, and by lines that no SDK sends.

mod errors;
mod trainer;

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use rlm_tests::scripted_model::{Gate, Request, Rule, ScriptedModel, calling};
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

    /// [`Self::start`], where the user need not be asked.
    fn allowing(arguments: &[&str], model: &ScriptedModel) -> Option<Self> {
        Self::start(&[&["--permissions", "allow"], arguments].concat(), model)
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
        let events = std::mem::take(&mut self.seen).into_iter();
        events.filter_map(|mut event| Some(event.get_mut("update")?.take())).collect()
    }

    /// Asks a question, and returns the last message of the agent.
    fn answer(&mut self, session: &str, text: &str) -> String {
        self.result("prompt", json!({"session": session, "text": text}));
        last_message(&self.updates())
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

fn says(text: &str) -> Rule {
    Rule::any().reply(text).once()
}

fn bash(code: &str) -> Rule {
    Rule::any().calls("call_bash_repl", code).once()
}

/// The last message of the agent, which may come in pieces.
fn last_message(updates: &[Value]) -> String {
    let chunks: Vec<_> =
        updates.iter().filter(|update| update["sessionUpdate"] == "agent_message_chunk").collect();
    let last = chunks.last().unwrap()["messageId"].clone();
    let texts = chunks.iter().filter(|chunk| chunk["messageId"] == last);
    texts.map(|chunk| chunk["content"]["text"].as_str().unwrap()).collect()
}

#[test]
fn reasoning_is_a_thought_and_no_part_of_a_message() {
    let reply = json!({"role": "assistant", "content": "<think>\nLet me see.\n</think>\n\nIt is 6."});
    let model = ScriptedModel::start([Rule::any().message(reply).once()]);
    let Some(mut client) = Client::allowing(&[], &model) else { return };
    let session = client.session(json!({}));
    client.result("prompt", json!({"session": session, "text": "How many?"}));
    let updates = client.updates();
    let said = |kind: &str| -> Vec<(String, String)> {
        let chunks = updates.iter().filter(|update| update["sessionUpdate"] == kind);
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
    let Some(mut client) = Client::allowing(&[], &model) else { return };
    client.place.write("numbers.txt", "one\ntwo\n");
    let session = client.session(json!({}));
    let result = client.result("prompt", json!({"session": session, "text": "How many?"}));
    assert_eq!(result["stopReason"], "end_turn");
    let updates = client.updates();
    assert_eq!(last_message(&updates), "6");
    let calls: Vec<_> = updates.iter().filter(|update| update["sessionUpdate"] == "tool_call").collect();
    assert_eq!(calls.len(), 2);
    assert_eq!((&calls[0]["kind"], &calls[0]["status"]), (&json!("execute"), &json!("in_progress")));
    assert_eq!(calls[0]["rawInput"]["code"], "n=6; cat numbers.txt");
    let ends: Vec<_> = updates.iter().filter(|update| update["status"] == "completed").collect();
    assert_eq!(ends.len(), 2);
    assert_eq!(ends[0]["toolCallId"], calls[0]["toolCallId"]);
    assert_eq!(ends[0]["content"][1]["content"]["text"], "```\none\ntwo\n```");
    assert_ne!(calls[0]["toolCallId"], calls[1]["toolCallId"], "the model gave both the same id");
    assert_eq!(client.answer(&session, "And seven times?"), "42");
    assert_eq!(client.answer(&session, "Thanks."), "Hello.");
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
    let Some(mut client) = Client::allowing(&[], &model) else { return };
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
    assert_eq!(client.answer(&session, "How many?"), "1");
    // A call that has set the answer.
    client.send("prompt", "prompt", prompt.clone());
    wait_until("the call runs", || client.place.file("ready").exists());
    cancelled(&mut client);
    assert!(!client.updates().iter().any(|update| update["sessionUpdate"] == "agent_message_chunk"));
    // A request to the model.
    client.send("prompt", "prompt", prompt.clone());
    wait_until("the model is asked", || model.requests().len() == 4);
    cancelled(&mut client);
    // A batch.
    client.send("prompt", "prompt", prompt.clone());
    wait_until("the batch runs", || model.requests().len() == 7);
    cancelled(&mut client);
    assert_eq!(client.answer(&session, "How many?"), "still-1");
    gate.open();
    client.end();
}

#[test]
fn sessions_run_side_by_side_and_close_alone() {
    let model = ScriptedModel::start([
        bash("who=one; : >started; while ! [ -e go ]; do sleep 0.05; done; RLM_CONTENT=$who RLM_READY=1"),
        bash("who=two; : >go; RLM_CONTENT=$who RLM_READY=1"),
        bash(": >again; sleep 600"),
        bash("RLM_CONTENT=$who RLM_READY=1"),
    ]);
    let Some(mut client) = Client::allowing(&[], &model) else { return };
    let (one, two) = (client.session(json!({})), client.session(json!({})));
    client.send("first", "prompt", json!({"session": one, "text": "?"}));
    wait_until("the first works", || client.place.file("started").exists());
    client.result("prompt", json!({"session": two, "text": "?"}));
    if !client.seen.iter().any(|event| event["name"] == "first") {
        client.wait_for("first");
    }
    for (session, answer) in [(&one, "one"), (&two, "two")] {
        let of_session = client.seen.iter().filter(|event| event["session"] == **session);
        let updates: Vec<_> = of_session.map(|event| event["update"].clone()).collect();
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
    assert_eq!(client.answer(&two, "?"), "two");
    client.end();
}

#[test]
fn the_end_of_input_ends_a_running_call_and_everything_else() {
    let model = ScriptedModel::start([bash(
        "sleep 1000 & : >started; trap '' INT TERM HUP; while :; do sleep 1000; done",
    )]);
    let Some(mut client) = Client::allowing(&[], &model) else { return };
    let session = client.session(json!({}));
    client.send("prompt", "prompt", json!({"session": session, "text": "?"}));
    wait_until("the call runs", || client.place.file("started").exists());
    client.end();
}

#[test]
fn large_messages_pass_and_stay_out_of_the_conversation() {
    let model = ScriptedModel::start([
        bash(
            "RLM_CONTENT=$(wc -c <\"$(find / -name message-1.txt -newer /proc/self 2>/dev/null | head -1)\") RLM_READY=1; RLM_CONTENT=done",
        ),
        bash("RLM_CONTENT=$(head -c 200000 /dev/zero | tr '\\0' x) RLM_READY=1"),
    ]);
    let Some(mut client) = Client::allowing(&[], &model) else { return };
    let session = client.session(json!({}));
    let text = "word ".repeat(40_000);
    client.result("prompt", json!({"session": session, "text": text}));
    assert_eq!(client.answer(&session, &"x".repeat(16 << 20)).len(), 200_000);
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
    let Some(mut client) = Client::allowing(&["--trajectory", &file], &model) else { return };
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
    assert_eq!(client.answer(session.as_str().unwrap(), "And seven times?"), "42");
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
    let Some(mut client) = Client::allowing(&[], &model) else { return };
    let session = client.session(json!({}));
    client.result("prompt", json!({"session": session, "text": "?"}));
    let updates = client.updates();
    let of =
        |id: &str| -> Vec<&Value> { updates.iter().filter(|update| update["toolCallId"] == id).collect() };
    let text =
        |update: &Value| update["content"][1]["content"]["text"].as_str().unwrap_or_default().to_owned();
    let large = of("1-c");
    // The last one has the text twice: as content, and in the raw output.
    let sizes: Vec<usize> = large.iter().map(|update| update.to_string().len()).collect();
    assert!(sizes.iter().all(|size| *size < 80_000), "{sizes:?}");
    assert!(sizes.iter().rev().skip(1).all(|size| *size < 40_000), "{sizes:?}");
    assert!(text(large.last().unwrap()).contains("9000000\n"), "{}", text(large.last().unwrap()));
    let dots: Vec<_> = of("2-c").into_iter().map(text).collect();
    assert!(dots.iter().any(|text| text.contains("...") && !text.contains("end")), "{dots:?}");
    assert!(dots.last().unwrap().contains("......end"), "{dots:?}");
    client.end();
}

#[test]
fn mcp_servers_of_the_client_are_functions_of_code_in_the_session() {
    let Some(server) = python_with_mcp() else { return };
    let script = repository().join("tests/mcp_tools.py");
    let code =
        ["RLM_CONTENT=$(srv_add 40 2) RLM_READY=1", "answer.update(content=srv_add(40, 2), ready=True)"];
    for (language, code) in ["bash", "python"].into_iter().zip(code) {
        let model = ScriptedModel::start([Rule::any().calls(&format!("call_{language}_repl"), code).once()]);
        let python = format!("--python={}", default_python().display());
        let options = if language == "bash" { &[][..] } else { &[python.as_str()] };
        let Some(mut client) = Client::allowing(options, &model) else { return };
        let cwd = client.place.path("work");
        let [(mark, value), _] = client.place.mark();
        let declared = json!([{"name": "srv", "command": server, "args": [script], "env": [{"name": mark, "value": value}]}]);
        let result = client.result("new", json!({"cwd": cwd, "servers": declared}));
        let session = result["sessionId"].clone();
        assert_eq!(client.answer(session.as_str().unwrap(), "How many?"), "42");
        // A session is closed before its first prompt.
        let result = client.result("new", json!({"cwd": cwd, "servers": declared}));
        client.result("close", json!({"session": result["sessionId"]}));
        let absent = json!([{"name": "gone", "command": "/no/such", "args": [], "env": []}]);
        let error = client.error("new", json!({"cwd": cwd, "servers": absent}));
        let words = error["message"].as_str().unwrap();
        assert!(words.starts_with("mcpServers: the MCP server 'gone' "), "{words}");
        client.end();
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
    rlm_tests::write_program(&launcher, &script);
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
}
