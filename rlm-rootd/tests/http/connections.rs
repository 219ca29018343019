//! Many connections, and those that do nothing.

use std::time::Duration;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use rlm_core::pickle::Value;
use rlm_core::root_tool::Reply;
use rlm_rootd::{RootdConfig, Tool};
use rlm_tests::until;
use serde_json::json;

use crate::support::{Endpoint, Gate, echo, fn_tool, soon, tool_request};

fn echo_tool() -> Vec<Tool> {
    vec![echo("echo", json!({"type": "object"}))]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_idle_and_slow_connections_stop_nobody() {
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, most, most).unwrap();
    let (endpoint, r) = Endpoint::with_tools(echo_tool());
    let request = tool_request(&r, "echo", json!([1]));
    let head = request.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
    let mut waiting = Vec::new();
    for at in 0..1000 {
        let mut client = endpoint.client().await;
        // Nothing, a part of the head, a part of the body.
        client.send(&request[..[0, head / 2, head + 3][at % 3]]).await;
        waiting.push(client);
    }
    until("all are connected", || endpoint.metric("rlm_connections") >= 1000.0).await;
    for _ in 0..10 {
        assert_eq!(endpoint.call(&r, "echo", json!([1])).await.status, 200);
    }
    // Each of them can still be served.
    for (at, client) in waiting.iter_mut().enumerate().skip(990) {
        let rest = &request[[0, head / 2, head + 3][at % 3]..];
        assert_eq!(client.exchange(rest).await.status, 200);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_without_a_whole_head_ends_at_its_time_limit() {
    let config = RootdConfig { head_time_limit: Duration::from_millis(200), ..RootdConfig::default() };
    let endpoint = Endpoint::start(config);
    let r = endpoint.register("r", echo_tool());
    let (mut idle, mut slow, mut used) =
        (endpoint.client().await, endpoint.client().await, endpoint.client().await);
    slow.send(b"POST /rollout/r").await;
    assert_eq!(used.exchange(&tool_request(&r, "echo", json!([]))).await.status, 200);
    for client in [&mut idle, &mut slow, &mut used] {
        assert!(soon(client.try_receive()).await.is_none());
    }
    until("no connection is left", || endpoint.metric("rlm_connections") == 0.0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_that_does_not_read_its_response_loses_its_connection() {
    let config = RootdConfig { write_time_limit: Duration::from_millis(200), ..RootdConfig::default() };
    let endpoint = Endpoint::start(config);
    let large = Value::from("x".repeat(32 << 20));
    let give = fn_tool("give", json!({"type": "object"}), move |_| Ok(Reply::of(large.clone())));
    let r = endpoint.register("r", vec![give]);
    let mut client = endpoint.client().await;
    client.send(&tool_request(&r, "give", json!([]))).await;
    until("the call has ended", || endpoint.rootd.rollout_metrics("r").unwrap().tools["give"].ok == 1).await;
    until("no connection is left", || endpoint.metric("rlm_connections") == 0.0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_too_many_waits_until_one_ends() {
    let endpoint = Endpoint::start(RootdConfig { max_connections: 1, ..RootdConfig::default() });
    let (gate, mut keeper) = Gate::shut();
    let r = endpoint.register("r", [echo_tool(), vec![gate]].concat());
    let mut busy = keeper.caller(&endpoint, &r).await;
    let mut new = endpoint.client().await;
    new.send(&tool_request(&r, "echo", json!([]))).await;
    let early = tokio::time::timeout(Duration::from_millis(300), new.try_receive()).await;
    assert!(early.is_err(), "it waits");
    assert_eq!(endpoint.metric("rlm_connections"), 1.0);
    keeper.open();
    assert_eq!(busy.receive().await.result(), json!("through"));
    drop(busy);
    assert_eq!(new.receive().await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_that_are_not_http_end_only_their_own_connection() {
    let (endpoint, r) = Endpoint::with_tools(echo_tool());
    let long = format!("GET /{} HTTP/1.1\r\n\r\n", "x".repeat(1 << 20));
    for noise in ["\0\0\0\0\r\n\r\n", "GET / HTTP/9.9\r\n\r\n", &long] {
        let mut client = endpoint.client().await;
        // The server may have closed before all of it was sent.
        drop(tokio::io::AsyncWriteExt::write_all(&mut client.stream, noise.as_bytes()).await);
        if let Some(response) = soon(client.try_receive()).await {
            assert!((400..500).contains(&response.status), "{response:?}");
        }
    }
    assert_eq!(endpoint.call(&r, "echo", json!([])).await.status, 200);
}
