//! Errors: of requests, of models, and of lines that are no messages.

use std::fmt::Write as _;

use super::*;

#[test]
fn what_cannot_be_is_an_error_that_says_why() {
    let model = ScriptedModel::start([Rule::any().status(401, "no such key").times(9)]);
    let Some(mut client) = Client::allowing(&["--max-retries", "0"], &model) else { return };
    let session = client.session(json!({}));
    let image = json!([{"type": "image", "data": "", "mimeType": "image/png"}]);
    for (op, arguments, words) in [
        ("new", json!({"cwd": "relative"}), "cwd: relative is not an absolute path of a directory"),
        ("new", json!({"cwd": "/no/such"}), "cwd: /no/such is not an absolute path of a directory"),
        ("prompt", json!({"session": "none", "text": "?"}), "sessionId: there is no session none"),
        ("prompt", json!({"session": session, "text": " "}), "prompt: it has no text"),
        (
            "prompt",
            json!({"session": session, "blocks": image}),
            "prompt: expected blocks of text and links to resources",
        ),
        (
            "set",
            json!({"session": session, "option": "colour", "value": "red"}),
            "configId: `colour` is not an option: expected model or permissions",
        ),
        ("set", json!({"session": session, "option": "model", "value": ""}), "model: expected some text"),
        (
            "set",
            json!({"session": session, "option": "permissions", "value": "none"}),
            "permissions: expected ask or allow",
        ),
    ] {
        let error = client.error(op, arguments);
        assert_eq!(error["message"], words);
    }
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
    let Some(mut client) = Client::allowing(&["--max-retries", "0"], &model) else { return };
    let session = client.session(json!({}));
    let prompt = json!({"session": session, "text": "?"});
    for kind in ["model_refused", "model_refused", "model_refused", "model_transport"] {
        let error = client.error("prompt", prompt.clone());
        assert_eq!((&error["code"], &error["data"]["kind"]), (&json!(-32603), &json!(kind)), "{error}");
    }
    client.result("prompt", prompt);
    assert_eq!(last_message(&client.updates()), "after", "the session goes on");
    client.end();
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
}
