//! `rlm doctor`.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;

use rlm_tests::Place;
use rlm_tests::scripted_model::{Rule, ScriptedModel};
use serde_json::json;

use super::{answering, ask, shown, start, text};

/// Answers a request for the list of models, and returns the request.
fn serve(listener: &TcpListener, status: &str, body: &str) -> String {
    let (mut stream, _) = listener.accept().unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    let length = body.len();
    write!(stream, "HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}")
        .unwrap();
    String::from_utf8(head).unwrap()
}

/// The last line, which is about the model, after this reply.
fn said(model: &str, status: &str, body: &str) -> (String, Option<i32>, String) {
    let place = Place::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    let mut command = place.rlm(&["doctor", "--model", model]);
    let child = command.env("OPENAI_BASE_URL", &url).env("RLM_API_KEY", "secret-key").spawn().unwrap();
    let request = serve(&listener, status, body);
    let output = child.wait_with_output().unwrap();
    assert_eq!(text(&output.stderr), "");
    let all = text(&output.stdout).to_owned();
    assert!(!all.contains("secret-key"), "{all}");
    for line in ["ok  bash      5.", "ok  python    3."] {
        assert!(all.contains(line), "{all}");
    }
    place.assert_nothing_left();
    (all.lines().last().unwrap().replace(&url, "URL"), output.status.code(), request)
}

#[test]
fn it_says_whether_the_server_has_the_model() {
    let list = r#"{"object": "list", "data": [{"id": "large-model"}, {"id": "small-model"}]}"#;
    let (line, status, request) = said("large-model", "200 OK", list);
    let place = "from model (--model); base_url (OPENAI_BASE_URL): ";
    let expected =
        format!("ok  model     large-model, {place}the server answers, and lists it among 2 models");
    assert_eq!((&line, status), (&expected, Some(0)));
    assert!(request.starts_with("GET /v1/models HTTP/1.1\r\n"), "{request}");
    assert!(request.contains("authorization: Bearer secret-key"), "{request}");
    // A list without an object around it, as Together has it.
    let bare = r#"[{"id": "large-model"}, {"id": "small-model"}]"#;
    assert_eq!(said("large-model", "200 OK", bare).0, expected);
    // Names as Gemini and Ollama list them.
    for listed in ["models/large-model", "large-model:latest"] {
        let list = list.replace("large-model", listed);
        assert_eq!(said("large-model", "200 OK", &list).1, Some(0), "{listed}");
    }
    let (line, status, _) = said("large-mode", "200 OK", list);
    let expected = format!(
        "--  model     large-mode, {place}the server lists 2 models, but not this one: is large-model meant?"
    );
    assert_eq!((line, status), (expected, Some(3)));
    let (line, status, _) = said("m", "401 Unauthorized", r#"{"error": {"message": "no secret-key"}}"#);
    let expected = format!(
        "--  model     m, {place}the model's server answered 401: no [key] (asked URL/models 1 time: is the key right?)"
    );
    assert_eq!((line, status), (expected, Some(3)));
    let (line, status, _) = said("m", "200 OK", "<html></html>");
    assert!(line.contains("malformed") && line.contains("is this an interface like OpenAI's?"), "{line}");
    assert_eq!(status, Some(3));
}

#[test]
fn what_is_missing_is_said_and_the_rest_is_shown() {
    let place = Place::new();
    let output = place.rlm(&["doctor", "--python=/nowhere/python"]).output().unwrap();
    let (seen, errors, status) = shown(&output);
    assert_eq!((errors, status), ("", Some(3)));
    let lines: Vec<_> = seen.lines().collect();
    assert!(lines[0].starts_with("ok  rlm       ") && lines[1].starts_with("ok  bash      "), "{seen}");
    assert!(lines[2].starts_with("--  python    ") && seen.contains("/nowhere/python"), "{seen}");
    assert!(seen.contains("ok  settings  no file; `rlm config` shows all\n"), "{seen}");
    let expected = "--  model     the model is not set: give --model, RLM_MODEL, or `model` in rlm.toml";
    assert_eq!(lines.last(), Some(&expected));
}

/// The lines on the server, in which the words are in columns.
fn of_model(output: &std::process::Output) -> Vec<String> {
    let lines = text(&output.stdout).lines().skip_while(|line| !line.starts_with("ok  model.tools"));
    lines.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
}

#[test]
fn it_asks_what_the_server_takes_and_saves_what_that_taught() {
    let call = json!({"id": "c1", "type": "function", "function": {"name": "ping", "arguments": "{}"}});
    let thinking =
        json!({"role": "assistant", "content": null, "reasoning_content": "hm", "tool_calls": [call]});
    let cached = json!({
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "pong"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 1400, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 1024}},
    });
    let (place, model) = start([
        Rule::any()
            .status(400, "Unsupported parameter: 'max_tokens' is not supported with this model.")
            .once(),
        Rule::any().message(thinking).in_pieces().usage(1390, 8).once(),
        Rule::any().body(cached.to_string()).once(),
        Rule::any().status(400, "The `reasoning_content` must be passed back to the API.").once(),
        answering("42"),
    ]);
    model.set_models(json!([{"id": "root", "max_model_len": 131_072}]));
    place.write("rlm.toml", "# mine\nmax_turns = 7 # few\n\n# how it samples\n[sampling]\ntop_p = 1\n");
    let output = ask(&place, &model, &["doctor", "--save"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let warning = "rlm: warning: the bound on completions is sent as `max_completion_tokens`";
    assert!(text(&output.stderr).starts_with(warning), "{output:?}");
    let file = place.file("rlm.toml");
    let expected = [
        "ok model.tools yes".to_owned(),
        "ok model.stream yes, with usage".to_owned(),
        "ok model.reasoning reasoning_content, which must come back, and does".to_owned(),
        "ok model.bound max_completion_tokens".to_owned(),
        "ok model.cache 1,024 of 1,400 tokens of the second request".to_owned(),
        "ok model.context 131,072 tokens, as the server lists it".to_owned(),
        "ok model.asked 5 requests, 2,815 tokens".to_owned(),
        format!(
            "ok saved server = {{ bound = \"max_completion_tokens\", fill_reasoning = true }} in {}",
            file.display()
        ),
    ];
    assert_eq!(of_model(&output), expected);
    assert_eq!(
        place.read("rlm.toml"),
        "# mine\nmax_turns = 7 # few\n\nserver = { bound = \"max_completion_tokens\", fill_reasoning = true }\n\n# how it samples\n[sampling]\ntop_p = 1\n"
    );
    let args = ["run", "--max-completion-tokens", "64", "Why?"];
    assert_eq!(shown(&ask(&place, &model, &args)), ("42\n", "", Some(0)));
    let requests = model.finish();
    assert_eq!(requests.len(), 6);
    let bounds = requests.iter().map(|request| &request.body["max_completion_tokens"]);
    assert_eq!(
        bounds.collect::<Vec<_>>(),
        [&json!(null), &json!(16), &json!(16), &json!(16), &json!(16), &json!(64)]
    );
    assert!(requests[..5].iter().all(|request| request.body["tools"][0]["function"]["name"] == "ping"));
    assert_eq!(requests[2].body["messages"][2]["reasoning_content"], "hm");
    assert!(requests[3].body["messages"][2].get("reasoning_content").is_none());
    assert_eq!(requests[4].body["messages"][2]["reasoning_content"], " ");
}

#[test]
fn a_server_without_tools_and_streams_is_asked_no_more_than_needed() {
    let (place, model) = start([
        Rule::any().status(400, "this model does not support tools").once(),
        Rule::any().reply("pong"),
    ]);
    model.set_models(json!([{"id": "root"}]));
    let output = ask(&place, &model, &["doctor", "--ask"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let expected = [
        "ok model.tools no: code comes in fenced blocks; `tool_calls = false` saves a request",
        "ok model.stream no: replies come whole",
        "ok model.reasoning none came",
        "ok model.bound max_tokens",
        "ok model.cache no cached tokens told",
        "ok model.context not listed; `context_tokens` sets it",
        "ok model.asked 3 requests, 30 tokens",
    ];
    assert_eq!(of_model(&output), expected);
    assert!(!place.file("rlm.toml").exists());
    assert_eq!(model.finish().len(), 3);
    // So is one that does not list the model.
    let model = ScriptedModel::start([Rule::any().reply("pong")]);
    model.set_models(json!([{"id": "other"}]));
    let output = ask(&place, &model, &["doctor", "--ask"]);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    assert!(text(&output.stdout).contains("the server lists 1 model, but not this one"), "{output:?}");
    assert!(!of_model(&output).is_empty(), "{output:?}");
    assert!(!model.finish().is_empty());
    // What the model may think with is beyond the bound.
    let model = ScriptedModel::start([Rule::any().reply("pong")]);
    model.set_models(json!([{"id": "root"}]));
    place.write("rlm.toml", "[sampling]\nthinking = { type = \"enabled\", budget_tokens = 2048 }\n");
    assert_eq!(ask(&place, &model, &["doctor", "--ask"]).status.code(), Some(0));
    assert_eq!(model.finish()[0].body["max_tokens"], 2048 + 16);
    place.write("rlm.toml", "");
    // One that refuses is asked once.
    let model = ScriptedModel::start([Rule::any().status(401, "no such key")]);
    model.set_models(json!([{"id": "root"}]));
    let output = ask(&place, &model, &["doctor", "--save"]);
    let lines: Vec<_> = text(&output.stdout).lines().filter(|line| line.contains("model.")).collect();
    assert!(
        lines[0].starts_with("--  model.tools     the model's server answered 401: no such key"),
        "{lines:?}"
    );
    assert!(text(&output.stdout).contains("nothing: a request failed for a reason that no rule changes"));
    assert_eq!((output.status.code(), model.finish().len()), (Some(3), 1));
}
