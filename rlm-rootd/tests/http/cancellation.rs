//! Calls that end before their tool does.

use std::time::{Duration, Instant};

use rlm_rootd::{RolloutConfig, RootdConfig};
use rlm_tests::until;
use serde_json::json;

use crate::support::{Endpoint, Event, Gate, soon, tool_request};

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_that_goes_away_cancels_its_call() {
    let (gate, mut keeper) = Gate::shut();
    let (endpoint, r) = Endpoint::with_tools(vec![gate]);
    let client = keeper.caller(&endpoint, &r).await;
    assert_eq!(endpoint.rootd.rollout_metrics("r").unwrap().running, 1);
    drop(client);
    assert_eq!(keeper.next().await, Event::Dropped);
    until("no call runs", || endpoint.rootd.rollout_metrics("r").unwrap().running == 0).await;
    assert_eq!(endpoint.rootd.rollout_metrics("r").unwrap().tools["gate"].cancelled, 1);
    let line = "{route=\"tools\",status=\"499\"} 1";
    until("the request is counted", || endpoint.rootd.metrics_text().contains(line)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_ends_at_the_rollouts_time_limit() {
    let (gate, mut keeper) = Gate::shut();
    let endpoint = Endpoint::start(RootdConfig::default());
    let limit = Duration::from_millis(250);
    let config = RolloutConfig { tools: vec![gate], tool_time_limit: limit, ..RolloutConfig::default() };
    let r = endpoint.rootd.register("r", config).unwrap();
    let began = Instant::now();
    let response = endpoint.call(&r, "gate", json!([])).await;
    assert_eq!(response.error(), (500, "Tool 'gate' timed out after 0.25 s".to_owned()));
    assert!(began.elapsed() >= limit);
    let deadline = keeper.began().await;
    assert!(deadline >= began + limit && deadline <= Instant::now(), "the tool knows its deadline");
    assert_eq!(keeper.next().await, Event::Dropped);
    let timed_out = || endpoint.rootd.rollout_metrics("r").unwrap().tools["gate"].timed_out;
    until("the call is counted", || timed_out() == 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_a_rollout_cancels_its_calls_and_no_others() {
    let ((gate, mut keeper), (other_gate, mut other_keeper)) = (Gate::shut(), Gate::shut());
    let endpoint = Endpoint::start(RootdConfig::default());
    let (r, other) = (endpoint.register("r", vec![gate]), endpoint.register("other", vec![other_gate]));
    let mut client = keeper.caller(&endpoint, &r).await;
    let mut other_client = other_keeper.caller(&endpoint, &other).await;
    endpoint.rootd.unregister("r").unwrap();
    assert_eq!(client.receive().await.error(), (410, "Rollout has ended".to_owned()));
    assert_eq!(keeper.next().await, Event::Dropped);
    other_keeper.open();
    assert_eq!(other_client.receive().await.result(), json!("through"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shutdown_lets_running_calls_end() {
    let (gate, mut keeper) = Gate::shut();
    let (endpoint, r) = Endpoint::with_tools(vec![gate]);
    let address = endpoint.address;
    let mut idle = endpoint.client().await;
    assert_eq!(
        idle.exchange(b"GET /healthz HTTP/1.1\r\nHost: h\r\n\r\n").await.json(),
        json!({"status": "ok"})
    );
    let mut client = keeper.caller(&endpoint, &r).await;
    let served = endpoint.stop();
    // An idle connection ends, which also tells that the shutdown has begun.
    assert!(soon(idle.try_receive()).await.is_none());
    assert!(tokio::net::TcpStream::connect(address).await.is_err(), "nothing more is accepted");
    assert!(!served.is_finished());
    keeper.open();
    assert_eq!(client.receive().await.result(), json!("through"));
    soon(served).await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shutdown_drops_calls_that_run_too_long() {
    let (gate, mut keeper) = Gate::shut();
    let config = RootdConfig { shutdown_time_limit: Duration::from_millis(100), ..RootdConfig::default() };
    let endpoint = Endpoint::start(config);
    let r = endpoint.register("r", vec![gate]);
    let mut client = keeper.caller(&endpoint, &r).await;
    soon(endpoint.stop()).await.unwrap().unwrap();
    assert_eq!(keeper.next().await, Event::Dropped);
    assert!(soon(client.try_receive()).await.is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn dropping_the_server_drops_its_calls() {
    let (gate, mut keeper) = Gate::shut();
    let (endpoint, r) = Endpoint::with_tools(vec![gate]);
    let mut client = keeper.caller(&endpoint, &r).await;
    endpoint.abort();
    assert_eq!(keeper.next().await, Event::Dropped);
    assert!(soon(client.try_receive()).await.is_none());
}

/// hyper does not look for the end of a connection while bytes of it wait to be read.
#[tokio::test(flavor = "multi_thread")]
async fn the_call_of_a_caller_that_sent_more_and_went_away_ends_at_the_time_limit() {
    let (gate, mut keeper) = Gate::shut();
    let endpoint = Endpoint::start(RootdConfig::default());
    let tool_time_limit = Duration::from_millis(250);
    let config = RolloutConfig { tools: vec![gate], tool_time_limit, ..RolloutConfig::default() };
    let r = endpoint.rootd.register("r", config).unwrap();
    let mut client = endpoint.client().await;
    client.send(&[&tool_request(&r, "gate", json!([]))[..], b"GET"].concat()).await;
    keeper.began().await;
    drop(client);
    assert_eq!(keeper.next().await, Event::Dropped);
    let timed_out = || endpoint.rootd.rollout_metrics("r").unwrap().tools["gate"].timed_out;
    until("the call is counted", || timed_out() == 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_that_are_sent_at_once_are_answered_in_order() {
    let (gate, mut keeper) = Gate::shut();
    let (endpoint, r) = Endpoint::with_tools(vec![gate]);
    let mut client = endpoint.client().await;
    let request = tool_request(&r, "gate", json!([]));
    client.send(&[&request[..], b"GET /healthz HTTP/1.1\r\nHost: h\r\n\r\n"].concat()).await;
    keeper.began().await;
    keeper.open();
    assert_eq!(client.receive().await.result(), json!("through"));
    assert_eq!(client.receive().await.json(), json!({"status": "ok"}));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shutdown_waits_for_the_rest_of_a_head_no_longer_than_its_limit() {
    let config = RootdConfig {
        shutdown_time_limit: Duration::from_millis(100),
        head_time_limit: Duration::from_secs(1000),
        ..RootdConfig::default()
    };
    let endpoint = Endpoint::start(config);
    let (mut slow, mut idle) = (endpoint.client().await, endpoint.client().await);
    slow.send(b"POST /rollout/r HT").await;
    until("both are connected", || endpoint.metric("rlm_connections") == 2.0).await;
    soon(endpoint.stop()).await.unwrap().unwrap();
    for client in [&mut slow, &mut idle] {
        assert!(soon(client.try_receive()).await.is_none());
    }
}
