//! Sub-LLMs behind the endpoint: the proxy, `llm_batch`, `budget`, and what they add up to.

use std::sync::Arc;

use rlm_rootd::{
    Budget, Models, ModelsConfig, Prices, Registration, RolloutConfig, RootdConfig, Secret, SubLlmOptions,
};
use rlm_tests::scripted_model::{Gate, Rule, ScriptedModel};
use serde_json::{Value as Json, json};

use crate::support::{Endpoint, Response, request, soon, tool_request};

const PRICES: &str = "[models.small]\nprompt = 1.0\ncompletion = 2.0\n";

fn endpoint(model: &ScriptedModel) -> Endpoint {
    let models = Models::new(ModelsConfig::new(model.base_url(), "small")).unwrap();
    Endpoint::start(RootdConfig {
        models: Some(Arc::new(models)),
        prices: Prices::from_toml(PRICES).unwrap(),
        admin_token: Some(Secret::new("admin")),
        ..RootdConfig::default()
    })
}

async fn chat(endpoint: &Endpoint, r: &Registration, body: Json) -> Response {
    let request = request("POST", &r.chat_url(""), Some(r.secret.reveal()), body.to_string().as_bytes());
    endpoint.client().await.exchange(&request).await
}

fn ask(text: &str) -> Json {
    json!({"model": "whatever", "messages": [{"role": "user", "content": text}]})
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_asks_through_the_proxy_and_in_batches_and_the_endpoint_counts() {
    let model = ScriptedModel::start([
        Rule::on("one").reply("1").usage(10, 5),
        Rule::on("two").reply("2").usage(10, 5),
        Rule::on("three").reply("3").usage(10, 5),
    ]);
    let endpoint = endpoint(&model);
    let r = endpoint.register("r", vec![]);
    assert_eq!(r.tools, ["llm_batch", "llm_query", "budget"]);
    let answer = chat(&endpoint, &r, ask("one")).await;
    assert_eq!(answer.status, 200);
    assert_eq!(answer.json()["choices"][0]["message"]["content"], "1");
    let batch = endpoint.call(&r, "llm_batch", json!([["two", "three"]])).await;
    assert_eq!(batch.result(), json!(["2", "3"]));
    let budget = endpoint.call(&r, "budget", json!([])).await.result();
    assert_eq!(budget["used"]["calls"], 3);
    assert_eq!(budget["used"]["tokens"], 45);
    let spent = endpoint.rootd.rollout_metrics("r").unwrap().spent;
    assert_eq!(spent.used.cost_usd, Some(60e-6));
    assert_eq!(endpoint.metric("rlm_sub_llm_calls_total{outcome=\"ok\"}"), 3.0);
    assert_eq!(endpoint.metric("rlm_sub_llm_tokens_total{kind=\"prompt\"}"), 30.0);
    assert_eq!(endpoint.metric("rlm_sub_llm_tokens_total{kind=\"completion\"}"), 15.0);
    assert_eq!(endpoint.metric("rlm_sub_llm_cost_usd_total"), 60e-6);
    let requests = model.finish();
    assert!(
        requests.iter().all(|request| request.body["model"] == "small"),
        "the rollout's model, not the caller's"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_proxy_refuses_as_the_tools_do() {
    let model = ScriptedModel::start([Rule::any().status(400, "no such field")]);
    let endpoint = endpoint(&model);
    let r = endpoint.register("r", vec![]);
    let other = endpoint.register("other", vec![]);
    let path = "/rollout/r/v1/chat/completions";
    let body = ask("x").to_string();
    for (path, secret, status, message) in [
        ("/rollout/none/v1/chat/completions", None, 404, "Rollout not found"),
        (path, None, 401, "Unauthorized"),
        (path, Some(other.secret.reveal()), 401, "Unauthorized"),
    ] {
        let refused = endpoint.client().await.exchange(&request("POST", path, secret, body.as_bytes())).await;
        assert_eq!(refused.error(), (status, message.to_owned()));
    }
    let no_json = request("POST", path, Some(r.secret.reveal()), b"{");
    let (status, message) = endpoint.client().await.exchange(&no_json).await.error();
    assert_eq!((status, message.starts_with("Invalid JSON: ")), (400, true), "{message}");
    assert_eq!(chat(&endpoint, &r, json!([])).await.error().0, 400);
    assert_eq!(model.requests().len(), 0, "nothing was asked so far");
    let (status, message) = chat(&endpoint, &r, ask("x")).await.error();
    assert_eq!(status, 400, "{message}");
    let without = Endpoint::start(RootdConfig::default());
    let r = without.register("r", vec![]);
    assert!(r.tools.is_empty());
    assert_eq!(chat(&without, &r, ask("x")).await.error(), (404, "no model is configured".to_owned()));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_proxy_refuses_bounds_that_a_server_may_read_differently() {
    let model = ScriptedModel::start([Rule::any().reply("fine").usage(1, 1)]);
    let endpoint = endpoint(&model);
    let r = endpoint.register("r", vec![]);
    let budget = Budget { tokens: Some(1_000_000), ..Budget::default() };
    let bounded = endpoint.rootd.register("b", RolloutConfig { budget, ..RolloutConfig::default() }).unwrap();
    let with = |field: &str, value: &Json| {
        let mut request = ask("x");
        request[field] = value.clone();
        request
    };
    for (field, most) in [("max_tokens", 1u64 << 31), ("max_completion_tokens", 1 << 31), ("n", 1 << 10)] {
        let message = format!("{field} must be an int from 1 to {most}, or null");
        for bad in
            [json!(1000.0), json!("1000"), json!(-1), json!(0), json!(most + 1), json!(true), json!([1])]
        {
            for rollout in [&r, &bounded] {
                let refused = chat(&endpoint, rollout, with(field, &bad)).await.error();
                assert_eq!(refused, (400, message.clone()), "{bad}");
            }
            let sampling = [(field.to_owned(), bad.clone())].into_iter().collect();
            let sub_llm = SubLlmOptions { sampling, ..SubLlmOptions::default() };
            let config = RolloutConfig { sub_llm, ..RolloutConfig::default() };
            let refused = endpoint.rootd.register("new", config).unwrap_err().to_string();
            assert_eq!(refused, format!("sampling: {message}"), "{bad}");
        }
    }
    for field in ["best_of", "min_tokens", "max_new_tokens", "n_predict"] {
        let message = format!("{field} cannot be used with a budget of tokens or cost: leave it out");
        assert_eq!(chat(&endpoint, &bounded, with(field, &json!(5))).await.error(), (400, message));
    }
    assert_eq!(model.requests().len(), 0);
    assert_eq!(chat(&endpoint, &r, with("best_of", &json!(5))).await.status, 200);
    for good in [json!(1), json!(null)] {
        assert_eq!(chat(&endpoint, &bounded, with("n", &good)).await.status, 200);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn counters_do_not_wrap_whatever_a_server_says_that_it_counted() {
    let body = json!({
        "choices": [{"message": {"content": "fine"}}],
        "usage": {"prompt_tokens": u64::MAX, "completion_tokens": 1u64 << 63},
    });
    let model = ScriptedModel::start([Rule::any().body(body.to_string())]);
    let endpoint = endpoint(&model);
    let r = endpoint.register("r", vec![]);
    for count in [1.0, 2.0] {
        assert_eq!(chat(&endpoint, &r, ask("x")).await.status, 200);
        for kind in ["prompt", "completion"] {
            let counted = endpoint.metric(&format!("rlm_sub_llm_tokens_total{{kind=\"{kind}\"}}"));
            assert_eq!(counted, count * 2f64.powi(31));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_budget_of_a_registration_holds() {
    let model = ScriptedModel::start([Rule::any().reply("fine").usage(1, 1)]);
    let endpoint = endpoint(&model);
    let budget = Budget { calls: Some(2), ..Budget::default() };
    let r = endpoint.rootd.register("r", RolloutConfig { budget, ..RolloutConfig::default() }).unwrap();
    let batch = endpoint.call(&r, "llm_batch", json!([["a", "b", "c"]])).await.result();
    let answers: Vec<_> = batch.as_array().unwrap().iter().map(|answer| answer.as_str().unwrap()).collect();
    assert_eq!(answers.iter().filter(|answer| **answer == "fine").count(), 2, "{answers:?}");
    assert!(answers.iter().any(|answer| answer.contains("budget exhausted")), "{answers:?}");
    assert_eq!(chat(&endpoint, &r, ask("x")).await.error().0, 402);
    let put = request(
        "PUT",
        "/rollout/other",
        Some("admin"),
        json!({"budget": {"calls": 1}, "sub_model": "small", "parallelism": 1, "sampling": {"temperature": 0}})
            .to_string()
            .as_bytes(),
    );
    let answer = endpoint.client().await.exchange(&put).await.json();
    let secret = Secret::new(answer["secret"].as_str().unwrap());
    let other = Registration { id: "other".to_owned(), secret, tools: vec![] };
    assert_eq!(chat(&endpoint, &other, ask("y")).await.status, 200);
    assert_eq!(chat(&endpoint, &other, ask("y")).await.error().0, 402);
    assert_eq!(model.requests().last().unwrap().body["temperature"], 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_that_goes_away_ends_its_requests_to_the_model() {
    let gate = Gate::shut();
    let model = ScriptedModel::start([Rule::any().after(&gate).reply("late")]);
    let endpoint = endpoint(&model);
    let r = endpoint.register("r", vec![]);
    let chat = request("POST", &r.chat_url(""), Some(r.secret.reveal()), ask("x").to_string().as_bytes());
    for request in [chat, tool_request(&r, "llm_batch", json!([["y", "z"]]))] {
        let before = model.requests().len();
        let mut client = endpoint.client().await;
        client.send(&request).await;
        soon(model.wait_for_requests(before + 1)).await;
        drop(client);
        soon(model.wait_until_idle()).await;
    }
}
