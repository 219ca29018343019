//! Results of tools in both serializations.

use rlm_core::pickle::Value;
use rlm_core::root_tool::{Reply, ToolResult};
use rlm_rootd::ToolError;
use serde_json::json;

use crate::support::{Endpoint, echo, fn_tool, pickled_request, tool_request};

#[tokio::test(flavor = "multi_thread")]
async fn arguments_and_results_pass_in_both_serializations() {
    let (endpoint, r) = Endpoint::with_tools(vec![echo("echo", json!({"type": "object"}))]);
    let result = endpoint.call(&r, "echo", json!([1, "zwei", [3.5, null, {"b": 1, "a": 2}]])).await.result();
    assert_eq!(result.to_string(), r#"{"args":[1,"zwei",[3.5,null,{"b":1,"a":2}]],"kwargs":{}}"#);
    let values =
        vec![Value::Bytes(b"\xff".as_slice().into()), Value::tuple([Value::None]), Value::from(f64::NAN)];
    let reply = endpoint.client().await.exchange(&pickled_request(&r, "echo", values.clone())).await.value();
    let ToolResult::Value(Value::Dict(dict)) = reply.result else { panic!("{reply:?}") };
    assert_eq!(dict.get("args"), Some(&Value::tuple(values)));
}

#[tokio::test(flavor = "multi_thread")]
async fn values_that_json_cannot_hold_are_returned_as_their_repr_with_printed_lines() {
    let tool = fn_tool("give", json!({"type": "object"}), |_| {
        let result = ToolResult::Value(Value::Bytes(b"\x00".as_slice().into()));
        Ok(Reply { result, print_lines: vec!["one".to_owned(), "two".to_owned()] })
    });
    let (endpoint, r) = Endpoint::with_tools(vec![tool]);
    let json = endpoint.call(&r, "give", json!([])).await.json();
    assert_eq!(json, json!({"result_repr": "b'\\x00'", "print_lines": ["one", "two"]}));
    let reply = endpoint.client().await.exchange(&pickled_request(&r, "give", vec![])).await.value();
    assert_eq!(reply.print_lines, ["one", "two"]);
    assert_eq!(reply.result, ToolResult::Value(Value::Bytes(b"\x00".as_slice().into())));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_that_fails_is_an_error_and_the_next_call_runs() {
    let tool = fn_tool("fail", json!({"type": "object"}), |call| match call.args.len() {
        0 => Err(ToolError::Failed("the disk is full".to_owned())),
        1 => Err(ToolError::Arguments("fail: no".to_owned())),
        2 => Ok(Reply::of((0..300).fold(Value::None, |inner, _| Value::list([inner])))),
        _ => Ok(Reply::of("well")),
    });
    let (endpoint, r) = Endpoint::with_tools(vec![tool]);
    let mut client = endpoint.client().await;
    let mut call = async |args| client.exchange(&tool_request(&r, "fail", args)).await;
    assert_eq!(call(json!([])).await.error(), (500, "the disk is full".to_owned()));
    assert_eq!(call(json!([1])).await.error(), (400, "fail: no".to_owned()));
    let deep = "Tool 'fail': result cannot be sent: value is nested deeper than 200 levels";
    assert_eq!(call(json!([1, 2])).await.error(), (500, deep.to_owned()));
    assert_eq!(call(json!([1, 2, 3])).await.result(), json!("well"));
}

#[tokio::test(flavor = "multi_thread")]
async fn large_arguments_and_results_pass() {
    let (endpoint, r) = Endpoint::with_tools(vec![echo("echo", json!({"type": "object"}))]);
    let large = Value::from("x".repeat(8 << 20));
    let request = pickled_request(&r, "echo", vec![large.clone()]);
    let reply = endpoint.client().await.exchange(&request).await.value();
    let ToolResult::Value(Value::Dict(dict)) = reply.result else { panic!() };
    assert!(dict.get("args") == Some(&Value::tuple([large])));
}
