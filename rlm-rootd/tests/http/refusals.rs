//! Whatever is refused: status, text, and nothing executed.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use rlm_core::pickle::Value;
use rlm_core::root_tool::{Call, Reply};
use rlm_rootd::{Registration, Tool, ToolError};
use serde_json::json;

use crate::support::{Endpoint, echo, fn_tool, request, tool_request, tools_request};

/// `cos\nsystem\n(S'touch /tmp/x'\ntR.`, in base64: what runs a command where a pickle is believed.
const OS_SYSTEM: &str = "Y29zCnN5c3RlbQooUyd0b3VjaCAvdG1wL3JsbS1yb290ZC1wd25lZCcKdFIu";

/// A pickled list, a pickled dict whose key is an int, an empty tuple and an empty dict.
const LIST: &str = "gARdlC4=";
const INT_KEY: &str = "gAR9lEsBTnMu";
const NO_ARGS: &str = "gAQpLg==";
const NO_KWARGS: &str = "gAR9lC4=";

/// A tool, and how many times it was called.
fn counted(name: &str, function: fn(Call) -> Result<Reply, ToolError>) -> (Tool, Arc<AtomicUsize>) {
    let calls = Arc::new(AtomicUsize::new(0));
    let counter = calls.clone();
    let tool = fn_tool(name, json!({"type": "object"}), move |call| {
        counter.fetch_add(1, SeqCst);
        function(call)
    });
    (tool, calls)
}

#[tokio::test(flavor = "multi_thread")]
async fn each_refusal_says_why_in_json_and_executes_nothing() {
    let (tool, calls) = counted("count", |_| Ok(Reply::of(Value::None)));
    let (endpoint, r) = Endpoint::with_tools(vec![tool]);
    let other = endpoint.register("other", vec![]);
    let tools = "/rollout/r/v1/rlm/tools";
    let good = r#"{"tool_name": "count"}"#;
    let to = |body: &str| tools_request(&r, body.as_bytes());
    let with = |args: &str, kwargs: &str| {
        to(&json!({"tool_name": "count", "args": args, "kwargs": kwargs}).to_string())
    };
    let as_json = |name: &str, field: &str, value: &str| {
        to(&format!(r#"{{"tool_name": "count", "serialization": "{name}", "{field}": {value}}}"#))
    };
    let as_secret = |secret: &str| request("POST", tools, Some(secret), good.as_bytes());
    let basic = String::from_utf8(as_secret(r.secret.reveal())).unwrap().replace("Bearer", "Basic");
    let twice = format!("{0} {0}", r.secret.reveal());
    let refused = [
        (request("POST", "/rollout/none/v1/rlm/tools", None, b"{"), 404, "Rollout not found"),
        (request("POST", "/rollout/%FF/v1/rlm/tools", None, b"{"), 404, "Rollout not found"),
        (request("POST", tools, None, good.as_bytes()), 401, "Unauthorized"),
        (as_secret(""), 401, "Unauthorized"),
        (as_secret("wrong"), 401, "Unauthorized"),
        (as_secret(&twice), 401, "Unauthorized"),
        (as_secret(other.secret.reveal()), 401, "Unauthorized"),
        (basic.into_bytes(), 401, "Unauthorized"),
        (to(""), 400, "Invalid JSON: EOF while parsing a value at line 1 column 0"),
        (to("{"), 400, "Invalid JSON: EOF while parsing an object at line 1 column 1"),
        (to("\u{1}"), 400, "Invalid JSON: expected value at line 1 column 1"),
        (to(r#"["count", "json", [], {}]"#), 400, "Invalid JSON: the body must be a JSON object, not list"),
        (to("{}"), 400, "Tool name not provided"),
        (to(r#"{"tool_name": 7}"#), 400, "Tool name not provided"),
        (to(r#"{"tool_name": "x"}"#), 404, "Tool 'x' not found; tools: count"),
        (as_json("yaml", "args", "[]"), 400, "serialization is \"yaml\", expected \"pickle\" or \"json\""),
        (as_json("json", "args", "1"), 400, "args must be a list, not int"),
        (as_json("json", "kwargs", "[]"), 400, "kwargs must be a dict, not list"),
        (with("?", NO_KWARGS), 400, "args is not base64: Invalid symbol 63, offset 0."),
        (with(LIST, NO_KWARGS), 400, "args must be a tuple, not list"),
        (with(NO_ARGS, LIST), 400, "kwargs must be a dict, not list"),
        (with(NO_ARGS, INT_KEY), 400, "a key of kwargs must be a str, not int"),
        (request("GET", tools, Some(r.secret.reveal()), b""), 405, "Method not allowed"),
        (request("POST", "/", None, b""), 404, "Not found"),
        (request("POST", "/rollout/r/v1/rlm/tools/", None, b""), 404, "Not found"),
        (request("BREW", "/healthz", None, b""), 405, "Method not allowed"),
    ];
    for (request, status, message) in refused {
        let response = endpoint.client().await.exchange(&request).await;
        let shown = String::from_utf8_lossy(&request).into_owned();
        assert_eq!(response.error(), (status, message.to_owned()), "{shown}");
    }
    assert_eq!(calls.load(SeqCst), 0);
    assert_eq!(endpoint.call(&r, "count", json!([])).await.result(), json!(null));
    assert_eq!(calls.load(SeqCst), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hostile_pickle_is_refused_by_name_and_harms_nobody() {
    let (tool, calls) = counted("echo", |call| Ok(Reply::of(Value::tuple(call.args))));
    let (endpoint, r) = Endpoint::with_tools(vec![tool]);
    let post = async |args: &str| {
        let body = json!({"tool_name": "echo", "args": args}).to_string();
        endpoint.client().await.exchange(&tools_request(&r, body.as_bytes())).await.error()
    };
    let (status, message) = post(OS_SYSTEM).await;
    assert_eq!(status, 400);
    assert!(message.starts_with("args is refused: ") && message.contains("os.system"), "{message}");
    assert!(!std::path::Path::new("/tmp/rlm-rootd-pwned").exists());
    // `(` 100,000 times; a memo index of 2^28; a bytearray of 2^62 bytes; pairs of pairs, 2^60 of them.
    let mut pairs = b"\x80\x04)\x94".to_vec();
    (0..60u8).for_each(|at| pairs.extend([b'h', at, b'h', at, 0x86, 0x94]));
    pairs.extend(b".");
    let hostile = [
        b"(".repeat(100_000),
        b"]".repeat(100_000),
        b"\x80\x04Nr\x00\x00\x00\x10.".to_vec(),
        b"\x80\x05\x96\x00\x00\x00\x00\x00\x00\x00\x40.".to_vec(),
        pairs,
    ];
    for pickle in hostile {
        let (status, message) = post(&BASE64.encode(&pickle)).await;
        assert_eq!(status, 400, "{message}");
        assert!(message.starts_with("args is refused: ") || message.starts_with("args must be"), "{message}");
    }
    assert_eq!(calls.load(SeqCst), 0);
    assert_eq!(endpoint.call(&r, "echo", json!([1])).await.result(), json!([1]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_opens_its_own_rollout_alone() {
    let own = |name| vec![echo(name, json!({"type": "object"}))];
    let endpoint = Endpoint::start(rlm_rootd::RootdConfig::default());
    let (one, two) = (endpoint.register("one", own("first")), endpoint.register("two", own("second")));
    let crossed = Registration { secret: one.secret.clone(), ..two.clone() };
    let refused = endpoint.client().await.exchange(&tool_request(&crossed, "second", json!([]))).await;
    assert_eq!(refused.error(), (401, "Unauthorized".to_owned()));
    assert!(refused.head.contains("\r\nwww-authenticate: bearer\r\n"), "{refused:?}");
    assert_eq!(endpoint.call(&two, "second", json!([])).await.status, 200);
    assert_eq!(
        endpoint.call(&one, "second", json!([])).await.error(),
        (404, "Tool 'second' not found; tools: first".to_owned())
    );
    endpoint.rootd.unregister("one").unwrap();
    assert_eq!(endpoint.call(&one, "first", json!([])).await.error().0, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_is_checked_before_the_body_is_read() {
    let (endpoint, _) = Endpoint::with_tools(vec![]);
    for (path, status) in [("/rollout/r/v1/rlm/tools", 401), ("/rollout/no/v1/rlm/tools", 404)] {
        let mut client = endpoint.client().await;
        let head = format!("POST {path} HTTP/1.1\r\nHost: h\r\nContent-Length: 1000\r\n\r\n");
        // The server reads no byte of the body.
        assert_eq!(client.exchange(head.as_bytes()).await.error().0, status);
    }
}
