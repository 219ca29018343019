//! Limits on a rollout's concurrent requests and on the memory they hold.

use std::time::Duration;

use rlm_rootd::{Registration, RolloutConfig, RootdConfig};
use serde_json::json;

use crate::support::{Endpoint, Event, Gate, Keeper, echo, tool_request};

/// A rollout of one place and one that may wait, and a rollout beside it.
fn narrow() -> (Endpoint, Registration, Registration, Keeper) {
    let endpoint = Endpoint::start(RootdConfig::default());
    let (gate, keeper) = Gate::shut();
    let config =
        RolloutConfig { tools: vec![gate], max_running: 1, max_waiting: 1, ..RolloutConfig::default() };
    let r = endpoint.rootd.register("narrow", config).unwrap();
    let beside = endpoint.register("beside", vec![echo("echo", json!({"type": "object"}))]);
    (endpoint, r, beside, keeper)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_waits_for_a_place_and_one_too_many_is_refused() {
    let (endpoint, r, beside, mut keeper) = narrow();
    let request = tool_request(&r, "gate", json!([]));
    let (mut first, mut second, mut third) =
        (endpoint.client().await, endpoint.client().await, endpoint.client().await);
    first.send(&request).await;
    keeper.began().await;
    // One of these two waits and the other is refused.
    second.send(&request).await;
    third.send(&request).await;
    let (waiting, refused) = tokio::select! {
        refused = second.try_receive() => (&mut third, refused.unwrap()),
        refused = third.try_receive() => (&mut second, refused.unwrap()),
    };
    assert_eq!(refused.error(), (429, "too many calls of this rollout are waiting".to_owned()));
    assert_eq!(endpoint.call(&beside, "echo", json!([])).await.status, 200, "another rollout has its own");
    assert_eq!(endpoint.rootd.rollout_metrics("narrow").unwrap().running, 1);
    for client in [&mut first, waiting] {
        keeper.open();
        assert_eq!(client.receive().await.result(), json!("through"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_requests_end_with_the_rollout_and_can_be_dropped() {
    let (endpoint, r, _, mut keeper) = narrow();
    let request = tool_request(&r, "gate", json!([]));
    let (mut first, mut second) = (endpoint.client().await, endpoint.client().await);
    first.send(&request).await;
    keeper.began().await;
    second.send(&request).await;
    // The second request gives up its place in the queue, which the next one takes.
    drop(second);
    let mut third = endpoint.client().await;
    loop {
        third.send(&request).await;
        match tokio::time::timeout(Duration::from_millis(100), third.try_receive()).await {
            Ok(refused) => assert_eq!(refused.unwrap().status, 429),
            Err(_waits) => break,
        }
        third = endpoint.client().await;
    }
    endpoint.rootd.unregister("narrow").unwrap();
    for client in [&mut first, &mut third] {
        assert_eq!(client.receive().await.error(), (410, "Rollout has ended".to_owned()));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rollout_holds_two_of_the_largest_bodies_and_small_ones_besides() {
    const LARGEST: usize = 1 << 20;
    let endpoint = Endpoint::start(RootdConfig { max_body_bytes: LARGEST, ..RootdConfig::default() });
    let (gate, mut keeper) = Gate::shut();
    let r = endpoint.register("r", vec![gate]);
    let large = tool_request(&r, "gate", json!(["x".repeat(LARGEST - 1000)]));
    let mut clients = Vec::new();
    for _ in 0..3 {
        let mut client = endpoint.client().await;
        client.send(&large).await;
        clients.push(client);
    }
    keeper.began().await;
    keeper.began().await;
    // The third waits; a small one does not.
    let mut small = endpoint.client().await;
    small.send(&tool_request(&r, "gate", json!([]))).await;
    keeper.began().await;
    assert_eq!(endpoint.rootd.rollout_metrics("r").unwrap().running, 3);
    // The first ends, and the third begins.
    keeper.open();
    assert_eq!(keeper.next().await, Event::Ended);
    keeper.began().await;
    (0..3).for_each(|_| keeper.open());
    for client in &mut clients {
        assert_eq!(client.receive().await.result(), json!("through"));
    }
    assert_eq!(small.receive().await.result(), json!("through"));
}
