//! Calls from the process that serves: as those over HTTP.

use std::time::Duration;

use rlm_core::pickle::{Dict, Value};
use rlm_core::root_tool::{Call, Reply};
use rlm_rootd::{CallError, RolloutConfig, Rootd, RootdConfig, ToolError};
use rlm_tests::until;
use serde_json::json;

use crate::support::{Endpoint, Event, Gate, fn_tool, soon};

/// The reply alone.
async fn reply(rootd: &Rootd, id: &str, call: Call) -> Result<Reply, CallError> {
    rootd.call(id, call).await.map(|(reply, _receipt)| reply)
}

fn call(tool: &str, args: &[i64]) -> Call {
    let args = args.iter().copied().map(Value::from).collect();
    Call { tool: tool.to_owned(), args, kwargs: Dict::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn they_come_to_the_same_as_over_http_and_are_counted_with_them() {
    let tool =
        fn_tool("t", json!({"properties": {"a": {"type": "integer", "minimum": 1}}}), |call| {
            match call.args.len() {
                0 => Err(ToolError::Failed("oops".to_owned())),
                _ => Ok(Reply::of("fine")),
            }
        });
    let (endpoint, r) = Endpoint::with_tools(vec![tool]);
    assert_eq!(reply(&endpoint.rootd, "r", call("t", &[1])).await, Ok(Reply::of("fine")));
    assert_eq!(endpoint.call(&r, "t", json!([1])).await.result(), json!("fine"));
    for (tool, args) in [("t", &[0][..]), ("t", &[]), ("t", &[1, 2]), ("none", &[])] {
        let (_, over_http) = endpoint.call(&r, tool, json!(args)).await.error();
        let here = reply(&endpoint.rootd, "r", call(tool, args)).await.unwrap_err();
        assert_eq!(here.to_string(), over_http);
    }
    let counts = endpoint.rootd.rollout_metrics("r").unwrap().tools["t"];
    assert_eq!((counts.ok, counts.arguments, counts.failed), (2, 4, 2));
    assert_eq!(reply(&endpoint.rootd, "q", call("t", &[1])).await, Err(CallError::NoRollout));
}

#[tokio::test(flavor = "multi_thread")]
async fn they_end_at_the_time_limit_with_the_rollout_and_when_nobody_waits() {
    let (gate, mut keeper) = Gate::shut();
    let rootd = Rootd::new(RootdConfig::default());
    let tool_time_limit = Duration::from_millis(250);
    let register = |id: &str, tool_time_limit| {
        let tools = vec![gate.clone()];
        rootd.register(id, RolloutConfig { tools, tool_time_limit, ..RolloutConfig::default() }).unwrap();
    };
    register("short", tool_time_limit);
    register("long", Duration::from_secs(300));
    let late = reply(&rootd, "short", call("gate", &[])).await.unwrap_err();
    assert_eq!(late.to_string(), "Tool 'gate' timed out after 0.25 s");
    keeper.began().await;
    assert_eq!(keeper.next().await, Event::Dropped);

    let mut waiting = Box::pin(reply(&rootd, "long", call("gate", &[])));
    tokio::select! {
        _ = &mut waiting => panic!("the gate is shut"),
        _ = keeper.began() => {}
    }
    drop(waiting);
    assert_eq!(keeper.next().await, Event::Dropped);
    until("no call runs", || rootd.rollout_metrics("long").unwrap().running == 0).await;
    assert_eq!(rootd.rollout_metrics("long").unwrap().tools["gate"].cancelled, 1);

    let calling = tokio::spawn({
        let rootd = rootd.clone();
        async move { reply(&rootd, "long", call("gate", &[])).await }
    });
    keeper.began().await;
    rootd.unregister("long").unwrap();
    assert_eq!(soon(calling).await.unwrap(), Err(CallError::Ended));
    assert_eq!(keeper.next().await, Event::Dropped);
}

#[tokio::test(flavor = "multi_thread")]
async fn they_wait_for_a_place_and_not_in_a_queue_that_is_full() {
    let (gate, mut keeper) = Gate::shut();
    let rootd = Rootd::new(RootdConfig::default());
    let config =
        RolloutConfig { tools: vec![gate], max_running: 1, max_waiting: 0, ..RolloutConfig::default() };
    rootd.register("r", config).unwrap();
    let calling = tokio::spawn({
        let rootd = rootd.clone();
        async move { reply(&rootd, "r", call("gate", &[])).await }
    });
    keeper.began().await;
    assert_eq!(reply(&rootd, "r", call("gate", &[])).await, Err(CallError::Busy));
    keeper.open();
    assert_eq!(soon(calling).await.unwrap(), Ok(Reply::of("through")));
}
