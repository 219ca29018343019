//! The contents of `/metrics`, and what it must not contain.

use rlm_core::root_tool::Reply;
use rlm_rootd::{RootdConfig, ToolError};
use serde_json::json;

use crate::support::{Endpoint, fn_tool, request};

#[tokio::test(flavor = "multi_thread")]
async fn metrics_count_what_happened_and_name_nothing_of_a_callers() {
    let endpoint = Endpoint::start(RootdConfig::default());
    let tool = fn_tool("visible_tool", json!({"properties": {"a": {"type": "integer"}}}), |call| match call
        .args
        .len()
    {
        0 => Err(ToolError::Failed("oops".to_owned())),
        _ => Ok(Reply::of("fine")),
    });
    let r = endpoint.register("visible_rollout", vec![tool]);
    endpoint.register("another", vec![]);
    for args in [json!([1]), json!([2]), json!(["x"]), json!([])] {
        endpoint.call(&r, "visible_tool", args).await;
    }
    endpoint.call(&r, "unknown_tool", json!([])).await;
    endpoint.client().await.exchange(&request("GET", "/unknown_route", None, b"")).await;
    let response = endpoint.client().await.exchange(&request("GET", "/metrics", None, b"")).await;
    assert!(response.head.contains("\r\ncontent-type: text/plain; version=0.0.4; charset=utf-8\r\n"));
    let text = String::from_utf8(response.body).unwrap();
    for line in [
        "rlm_requests_total{route=\"tools\",status=\"200\"} 2",
        "rlm_requests_total{route=\"tools\",status=\"400\"} 1",
        "rlm_requests_total{route=\"tools\",status=\"404\"} 1",
        "rlm_requests_total{route=\"tools\",status=\"500\"} 1",
        "rlm_requests_total{route=\"unknown\",status=\"404\"} 1",
        "rlm_request_seconds_count 6",
        "rlm_tool_calls_total{outcome=\"ok\"} 2",
        "rlm_tool_calls_total{outcome=\"arguments\"} 1",
        "rlm_tool_calls_total{outcome=\"failed\"} 1",
        "rlm_tool_calls_total{outcome=\"timed_out\"} 0",
        "rlm_tool_calls_total{outcome=\"cancelled\"} 0",
        "rlm_tool_call_seconds_count 4",
        "rlm_tool_call_seconds_bucket{le=\"+Inf\"} 4",
        "rlm_sub_llm_calls_total{outcome=\"ok\"} 0",
        "rlm_rollouts 2",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is not in {text}");
    }
    for name in ["visible", "unknown_", r.secret.reveal()] {
        assert!(!text.contains(name), "{text}");
    }
    // Each line is a comment or `name{labels} number`.
    for line in text.lines().filter(|line| !line.starts_with("# ")) {
        let (name, value) = line.rsplit_once(' ').unwrap();
        assert!(name.starts_with("rlm_") && value.parse::<f64>().is_ok(), "{line}");
    }
}
