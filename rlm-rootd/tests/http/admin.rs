//! Rollouts of hosts in other processes.

use rlm_rootd::{Registration, RootdConfig, Secret, Tool};
use serde_json::{Value as Json, json};

use crate::support::{Endpoint, Event, Gate, Response, echo, request, tool_request};

const TOKEN: &str = "admin-token";

fn endpoint(tools: Vec<Tool>) -> Endpoint {
    Endpoint::start(RootdConfig { tools, admin_token: Some(Secret::new(TOKEN)), ..RootdConfig::default() })
}

fn echoes() -> Vec<Tool> {
    let parameters = json!({"type": "object", "properties": {"a": {}, "b": {}}});
    ["first", "second"].map(|name| echo(name, parameters.clone())).into()
}

async fn admin(endpoint: &Endpoint, method: &str, id: &str, body: &str) -> Response {
    let path = format!("/rollout/{id}");
    endpoint.client().await.exchange(&request(method, &path, Some(TOKEN), body.as_bytes())).await
}

fn registration(answer: &Json) -> Registration {
    let text = |key: &str| answer[key].as_str().unwrap().to_owned();
    Registration { id: text("id"), secret: Secret::new(&text("secret")), tools: vec![] }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rollout_is_registered_called_measured_and_removed() {
    let endpoint = endpoint(echoes());
    let put = admin(&endpoint, "PUT", "a.b-c_1", r#"{"tools": ["second"], "tool_time_limit": 2.5}"#).await;
    assert_eq!(put.status, 201);
    let answer = put.json();
    let base = &endpoint.base_url;
    let secret = answer["secret"].as_str().unwrap();
    assert_eq!(secret.len(), 64);
    assert_eq!(
        answer,
        json!({
            "id": "a.b-c_1",
            "secret": secret,
            "tools_url": format!("{base}/rollout/a.b-c_1/v1/rlm/tools"),
            "chat_url": format!("{base}/rollout/a.b-c_1/v1/chat/completions"),
            "tools": [{
                "name": "second",
                "description": "A function.",
                "parameters": {"type": "object", "properties": {"a": {}, "b": {}}},
            }],
        })
    );
    let r = registration(&answer);
    assert_eq!(endpoint.call(&r, "second", json!([1])).await.status, 200);
    assert_eq!(endpoint.call(&r, "second", json!([1, 2, 3])).await.status, 400);
    assert_eq!(endpoint.call(&r, "first", json!([])).await.status, 404);
    let mut metrics = admin(&endpoint, "GET", "a.b-c_1", "").await.json();
    assert!(metrics["age"].as_f64().unwrap() > 0.0);
    metrics["age"] = json!(0);
    let none = json!({
        "calls": 0, "prompt_tokens": 0, "completion_tokens": 0, "cached_tokens": 0, "tokens": 0, "cost_usd": 0.0,
    });
    assert_eq!(
        metrics,
        json!({
            "id": "a.b-c_1",
            "age": 0,
            "running": 0,
            "tools": {"second": {"ok": 1, "arguments": 1, "failed": 0, "timed_out": 0, "cancelled": 0}},
            "spent": {
                "used": none,
                "reserved": none,
                "left": {"calls": null, "tokens": null, "completion_tokens": null, "cost_usd": null},
                "usage_estimated": false,
            },
        })
    );
    let removed = admin(&endpoint, "DELETE", "a.b-c_1", "").await;
    assert_eq!(removed.json()["tools"], metrics["tools"]);
    for method in ["GET", "DELETE"] {
        assert_eq!(
            admin(&endpoint, method, "a.b-c_1", "").await.error(),
            (404, "Rollout not found".to_owned())
        );
    }
    assert_eq!(endpoint.call(&r, "second", json!([1])).await.error().0, 404);
    let again = admin(&endpoint, "PUT", "a.b-c_1", "").await.json();
    assert_ne!(again["secret"], answer["secret"]);
    assert_eq!(again["tools"].as_array().unwrap().len(), 2, "all tools without a body");
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_admin_token_opens_the_door() {
    let endpoint = endpoint(vec![]);
    let r = registration(&admin(&endpoint, "PUT", "r", "").await.json());
    let closed = Endpoint::start(RootdConfig::default());
    for method in ["PUT", "GET", "DELETE"] {
        for secret in [None, Some(""), Some("admin-toke"), Some(r.secret.reveal())] {
            for id in ["r", "unknown"] {
                let path = format!("/rollout/{id}");
                let refused = endpoint.client().await.exchange(&request(method, &path, secret, b"{}")).await;
                assert_eq!(refused.error(), (401, "Unauthorized".to_owned()), "{method} {id} {secret:?}");
            }
        }
        // Without a token nobody is the admin.
        let refused = closed.client().await.exchange(&request(method, "/rollout/r", Some(""), b"{}")).await;
        assert_eq!(refused.error(), (401, "Unauthorized".to_owned()));
    }
    // The admin token is not a rollout's secret.
    let crossed = Registration { secret: Secret::new(TOKEN), ..r.clone() };
    let refused = endpoint.client().await.exchange(&tool_request(&crossed, "x", json!([]))).await;
    assert_eq!(refused.error(), (401, "Unauthorized".to_owned()));
    assert_eq!(endpoint.rootd.rollout_metrics("r").unwrap().id, "r");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_registration_that_is_wrong_says_what_and_changes_nothing() {
    let endpoint = endpoint(echoes());
    assert_eq!(admin(&endpoint, "PUT", "taken", "").await.status, 201);
    let id =
        "the rollout's id must be 1 to 128 of the characters a-z, A-Z, 0-9, '_', '-' and '.', not all dots";
    let limit = "tool_time_limit must be above 0 and at most 604800 s";
    let long = "x".repeat(129);
    let cases = [
        ("taken", "", 409, "rollout 'taken' is registered already"),
        ("a%20b", "", 400, id),
        ("a%2Fb", "", 400, id),
        ("..", "", 400, id),
        (&long, "", 400, id),
        ("new", " [[]]", 400, "Invalid JSON: the body must be a JSON object, not list"),
        ("new", r#"{"budget": {"cost_usd": -5}}"#, 400, "budget.cost_usd must be 0 or more"),
        ("new", r#"{"max_running": 0}"#, 400, "max_running must be 1 or more"),
        ("new", r#"{"sub_model": ""}"#, 400, "sub_model must not be empty"),
        ("new", "{", 400, "Invalid JSON: EOF while parsing an object at line 1 column 1"),
        ("new", r#"{"tools": ["third"]}"#, 400, "tools: no tool 'third' is configured"),
        ("new", r#"{"sub_tools": ["third"]}"#, 400, "sub_tools: no tool 'third' is configured"),
        ("new", r#"{"tools": ["first", "first"]}"#, 400, "two tools have the name 'first'"),
        ("new", r#"{"tool_time_limit": 0}"#, 400, limit),
        ("new", r#"{"tool_time_limit": -1}"#, 400, limit),
        ("new", r#"{"tool_time_limit": 1e300}"#, 400, limit),
        ("new", r#"{"item_time_limit": 0}"#, 400, "item_time_limit must be above 0 and at most 604800 s"),
    ];
    for (path, body, status, message) in cases {
        assert_eq!(admin(&endpoint, "PUT", path, body).await.error(), (status, message.to_owned()), "{body}");
    }
    for (body, beginning) in [
        (r#"{"tol": 1}"#, "Invalid JSON: unknown field `tol`, expected one of `tools`"),
        (r#"{"budget": {"call": 1}}"#, "Invalid JSON: unknown field `call`, expected one of `calls`"),
    ] {
        let (status, message) = admin(&endpoint, "PUT", "new", body).await.error();
        assert_eq!(status, 400);
        assert!(message.starts_with(beginning), "{message}");
    }
    assert!(endpoint.rootd.rollout_metrics("new").is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn removing_a_rollout_cancels_what_runs_for_it() {
    let (gate, mut keeper) = Gate::shut();
    let endpoint = endpoint(vec![gate]);
    let r = registration(&admin(&endpoint, "PUT", "r", "").await.json());
    let mut client = keeper.caller(&endpoint, &r).await;
    assert_eq!(admin(&endpoint, "GET", "r", "").await.json()["running"], 1);
    assert_eq!(admin(&endpoint, "DELETE", "r", "").await.status, 200);
    assert_eq!(client.receive().await.error(), (410, "Rollout has ended".to_owned()));
    assert_eq!(keeper.next().await, Event::Dropped);
}
