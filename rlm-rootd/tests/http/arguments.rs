//! Arguments against a tool's schema.

use rlm_core::pickle::{Set, Value};
use rlm_core::root_tool::ToolResult;
use rlm_rootd::Tool;
use serde_json::json;

use crate::support::{Endpoint, echo, pickled_request};

fn search() -> Tool {
    let parameters = json!({
        "type": "object",
        "properties": {
            "query": {"type": "string", "minLength": 1, "pattern": "^[a-z ]*$"},
            "limit": {"type": "integer", "minimum": 1, "default": 10},
            "filter": {"type": "object", "properties": {"tags": {"type": "array", "items": {"type": "string"}}}},
            "extra": {"description": "Anything."},
        },
        "required": ["query"],
    });
    echo("search", parameters)
}

#[tokio::test(flavor = "multi_thread")]
async fn arguments_that_do_not_fit_are_named() {
    let (endpoint, r) = Endpoint::with_tools(vec![search()]);
    let long = "A".repeat(1000);
    let cases = [
        (json!(["a", "x"]), "argument 'limit' of search: \"x\" is not of type \"integer\""),
        (json!({"query": "a", "limit": true}), "argument 'limit' of search: true is not of type \"integer\""),
        (json!(["a", 0]), "argument 'limit' of search: 0 is less than the minimum of 1"),
        (json!([null]), "argument 'query' of search: null is not of type \"string\""),
        (json!([long]), "argument 'query' of search: value does not match \"^[a-z ]*$\""),
        (
            json!(["a", 1, {"tags": ["b", 7]}]),
            "argument 'filter' of search at /tags/1: 7 is not of type \"string\"",
        ),
        (json!([]), "argument 'query' of search is missing"),
        (json!({"limit": 1}), "argument 'query' of search is missing"),
        (
            json!(["a", 1, {}, 4, 5]),
            "search takes at most 4 by position (query, limit, filter, extra), not 5",
        ),
        (
            json!({"query": "a", "limt": 3}),
            "search has no argument 'limt'; it takes query, limit, filter, extra",
        ),
    ];
    for (args, message) in cases {
        let error = endpoint.call(&r, "search", args.clone()).await.error();
        assert_eq!(error, (400, message.to_owned()), "{args}");
    }
    let body =
        json!({"tool_name": "search", "serialization": "json", "args": ["a"], "kwargs": {"query": "b"}});
    let request = crate::support::tools_request(&r, body.to_string().as_bytes());
    let error = endpoint.client().await.exchange(&request).await.error();
    assert_eq!(error, (400, "argument 'query' of search is given twice".to_owned()));
}

#[tokio::test(flavor = "multi_thread")]
async fn arguments_that_fit_reach_the_tool_as_they_are() {
    let (endpoint, r) = Endpoint::with_tools(vec![search()]);
    let given = json!(["a b", 3, {"tags": ["x"]}, [1, {"any": "thing"}]]);
    assert_eq!(endpoint.call(&r, "search", given.clone()).await.result()["args"], given);
    let named = json!({"limit": 2, "query": "a"});
    assert_eq!(endpoint.call(&r, "search", named.clone()).await.result()["kwargs"], named);
}

#[tokio::test(flavor = "multi_thread")]
async fn values_that_json_cannot_hold_pass_if_the_schema_says_nothing() {
    let (endpoint, r) = Endpoint::with_tools(vec![search()]);
    let call = async |args| endpoint.client().await.exchange(&pickled_request(&r, "search", args)).await;
    let filter = || Value::from(rlm_core::pickle::Dict::default());
    let set = Value::Set(Set::from_items([Value::from(1)]).unwrap().into());
    for odd in [Value::Bytes(b"\xff".as_slice().into()), set, Value::from(f64::NAN)] {
        let args = vec![Value::from("a"), Value::from(1), filter(), odd.clone()];
        let ToolResult::Value(Value::Dict(dict)) = call(args.clone()).await.value().result else { panic!() };
        assert_eq!(dict.get("args"), Some(&Value::tuple(args)));
    }
    let error = call(vec![Value::from("a"), Value::from(f64::NAN)]).await.error();
    assert_eq!(error, (400, "argument 'limit' of search: JSON cannot hold the float nan".to_owned()));
    let nested =
        rlm_core::pickle::Dict::from_pairs([(Value::from("x"), Value::Bytes(b"y".as_slice().into()))]);
    let error = call(vec![Value::from("a"), Value::from(1), Value::from(nested.unwrap())]).await.error();
    assert_eq!(error, (400, "argument 'filter'['x'] of search: JSON cannot hold the bytes b'y'".to_owned()));
}

#[tokio::test(flavor = "multi_thread")]
async fn further_names_pass_where_the_schema_allows_them() {
    let open = json!({
        "properties": {"a": {"type": "integer"}},
        "additionalProperties": {"type": "string"},
    });
    let (endpoint, r) = Endpoint::with_tools(vec![echo("open", open)]);
    let named = json!({"a": 1, "b": "c"});
    assert_eq!(endpoint.call(&r, "open", named.clone()).await.result()["kwargs"], named);
    let error = endpoint.call(&r, "open", json!({"b": 2})).await.error();
    assert_eq!(error, (400, "argument 'b' of open: 2 is not of type \"string\"".to_owned()));
}

#[test]
fn a_tool_that_cannot_be_called_is_refused() {
    let refuse = |name: &str, parameters| {
        let tool = Tool::from_fn(name, "A function.", parameters, |_| Ok("fine"));
        tool.unwrap_err().to_string()
    };
    let identifier = "the name must be an identifier: letters, digits and _, no digit first";
    for name in ["", "a-b", "1a", "a b", "é"] {
        assert_eq!(refuse(name, json!({})), format!("tool '{name}': {identifier}"));
    }
    let object = "tool 't': parameters must be a JSON schema of type object";
    assert_eq!(refuse("t", json!([])), object);
    assert_eq!(refuse("t", json!({"type": "array"})), object);
    let invalid = refuse("t", json!({"properties": {"a": {"type": "strin"}}}));
    assert!(invalid.starts_with("tool 't': parameters are not a valid JSON schema: "), "{invalid}");
    // Nothing is fetched.
    let remote = refuse("t", json!({"properties": {"a": {"$ref": "http://127.0.0.1:9/schema"}}}));
    assert!(remote.starts_with("tool 't': parameters are not a valid JSON schema: "), "{remote}");
}
