//! Tools that live in another program.

use std::collections::BTreeMap;
use std::ffi::OsString;

use rlm_core::pickle::Value;
use rlm_core::root_tool::{Reply, ToolResult};
use rlm_rootd::{Listener, Registration, RolloutConfig, Rootd, RootdConfig, Tool, load_tools};
use serde_json::json;

use crate::support::{Endpoint, Event, Gate, echo, fn_tool, pickled_request, serve, soon};

/// An endpoint whose tools are those of another, in a file of JSON.
fn of(
    server: &Endpoint,
    held: &Registration,
    names: &[&str],
    lines: serde_json::Value,
) -> (Endpoint, Registration) {
    with_url(&held.tools_url(&server.base_url), held, names, lines)
}

fn with_url(
    url: &str,
    held: &Registration,
    names: &[&str],
    lines: serde_json::Value,
) -> (Endpoint, Registration) {
    let declaration = |name: &&str| {
        let mut tool = json!({"name": name, "description": "d", "url": url, "secret_env": "CALLBACK_SECRET"});
        tool.as_object_mut().unwrap().extend(lines.as_object().unwrap().clone());
        tool
    };
    let file = json!({"tool": names.iter().map(declaration).collect::<Vec<_>>()});
    Endpoint::with_tools(load(&file.to_string(), held.secret.reveal()).unwrap())
}

fn load(text: &str, secret: &str) -> Result<Vec<Tool>, String> {
    let environment: BTreeMap<OsString, OsString> = [("CALLBACK_SECRET".into(), secret.into())].into();
    load_tools(text, "/".as_ref(), &environment).map_err(|error| error.to_string())
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_reach_the_other_program_as_they_are() {
    let print = fn_tool("print", json!({"type": "object"}), |_| {
        Ok(Reply { print_lines: vec!["a line".to_owned()], ..Reply::of("told") })
    });
    let (server, held) = Endpoint::with_tools(vec![echo("echo", json!({"type": "object"})), print]);
    let parameters = json!({"parameters": {"type": "object", "properties": {"a": {"type": "string"}}}});
    let (endpoint, r) = of(&server, &held, &["echo", "print"], parameters);
    // The schema describes: the other program checks its arguments.
    let result = endpoint.call(&r, "echo", json!([1, null])).await.result();
    assert_eq!(result, json!({"args": [1, null], "kwargs": {}}));
    assert_eq!(
        endpoint.call(&r, "echo", json!({"b": 2})).await.result(),
        json!({"args": [], "kwargs": {"b": 2}})
    );
    // Values that JSON does not have.
    let bytes = Value::Bytes(b"\xff".as_slice().into());
    let reply = endpoint.client().await.exchange(&pickled_request(&r, "echo", vec![bytes])).await.value();
    let ToolResult::Value(value) = reply.result else { panic!() };
    assert_eq!(value.repr(100).unwrap(), "{'args': (b'\\xff',), 'kwargs': {}}");
    let reply = endpoint.client().await.exchange(&pickled_request(&r, "print", vec![])).await.value();
    assert_eq!(
        (reply.result, reply.print_lines),
        (ToolResult::Value("told".into()), vec!["a line".to_owned()])
    );
    let large = "x".repeat(4 << 20);
    assert!(soon(endpoint.call(&r, "echo", json!([large]))).await.result()["args"][0] == json!(large));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_socket_is_an_address() {
    let dir = tempfile::tempdir().unwrap();
    let rootd = Rootd::new(RootdConfig::default());
    let listener = Listener::unix(&dir.path().join("a socket")).unwrap();
    let base_url = listener.base_url().to_owned();
    let config = RolloutConfig { tools: vec![echo("echo", json!({"type": "object"}))], ..Default::default() };
    let held = rootd.register("h", config).unwrap();
    let _serving = serve(&rootd, listener);
    let (endpoint, r) = with_url(&held.tools_url(&base_url), &held, &["echo"], json!({}));
    for number in 0..3 {
        assert_eq!(endpoint.call(&r, "echo", json!([number])).await.result()["args"], json!([number]));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_are_those_of_the_other_program() {
    let fails = fn_tool("fails", json!({"type": "object"}), |_| Err("ValueError: no".into()));
    let picky = echo("picky", json!({"type": "object", "properties": {}}));
    let (server, held) = Endpoint::with_tools(vec![fails, picky]);
    let (endpoint, r) = of(&server, &held, &["fails", "picky", "missing"], json!({}));
    let error = async |tool, args| endpoint.call(&r, tool, args).await.error();
    assert_eq!(error("fails", json!([])).await, (500, "ValueError: no".to_owned()));
    let (status, message) = error("picky", json!({"b": 1})).await;
    assert!(status == 400 && message.contains("picky"), "{status} {message}");
    assert_eq!(
        error("missing", json!([])).await,
        (500, "Tool 'missing' not found; tools: fails, picky".to_owned())
    );
    let wrong = Registration { secret: rlm_rootd::Secret::new("wrong"), ..held };
    let (denied, d) = of(&server, &wrong, &["fails"], json!({}));
    assert_eq!(denied.call(&d, "fails", json!([])).await.error(), (500, "Unauthorized".to_owned()));
    let address = server.address;
    drop(server.stop().await);
    let (status, message) = error("fails", json!([])).await;
    assert_eq!(status, 500);
    assert!(
        message.starts_with(&format!("fails: the program with this tool, at http://{address}: ")),
        "{message}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_is_cancelled_or_late_ends_there_too() {
    let (gate, mut keeper) = Gate::shut();
    let (server, held) = Endpoint::with_tools(vec![gate]);
    let (endpoint, r) = of(&server, &held, &["gate"], json!({"timeout": 0.2}));
    let error = endpoint.call(&r, "gate", json!([])).await.error();
    assert_eq!(error, (500, "gate timed out after 0.2 s".to_owned()));
    keeper.began().await;
    assert_eq!(keeper.next().await, Event::Dropped);
    let (endpoint, r) = of(&server, &held, &["gate"], json!({}));
    let client = keeper.caller(&endpoint, &r).await;
    drop(client);
    assert_eq!(keeper.next().await, Event::Dropped);
}

#[test]
fn a_declaration_that_is_wrong_names_tool_and_key() {
    let refuse = |more: serde_json::Value| {
        let mut tool = json!({"name": "t", "description": "d"});
        tool.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        load(&json!({"tool": [tool]}).to_string(), "s").unwrap_err()
    };
    let url = "http://127.0.0.1:1/tools";
    for (more, message) in [
        (json!({}), "expected `command`, or `url` of the program that has it"),
        (json!({"url": url, "command": ["sh"]}), "expected `command` or `url`, not both"),
        (json!({"url": url, "output": "json"}), "output: it belongs to a tool with `command`"),
        (json!({"url": url, "env": []}), "env: it belongs to a tool with `command`"),
        (json!({"url": url, "max_output_bytes": 1}), "max_output_bytes: it belongs to a tool with `command`"),
        (json!({"command": ["/bin/sh"], "secret_env": "A"}), "secret_env: it belongs to a tool with `url`"),
        (json!({"url": url, "secret_env": "UNSET"}), "secret_env: the variable UNSET is not set"),
        (json!({"url": url, "timeout": -1}), "timeout: -1 is not above 0"),
        (
            json!({"url": "https://h/"}),
            "url: root-tool URL \"https://h/\" cannot be used: https is not supported",
        ),
    ] {
        let found = refuse(more);
        assert!(found.starts_with(&format!("tool 't': {message}")), "{found}");
    }
    assert!(load("{\"tools\": []}", "s").unwrap_err().starts_with("unknown field `tools`"));
    assert!(load(" {", "s").unwrap_err().contains("line 1"));
}
