//! The contents and the recipient of requests to models.

use std::fmt::Debug;
use std::sync::Arc;

use rlm_rootd::{Budget, Key, Ledger, Models, Prices, Proxy, SubLlm, SubLlmOptions};
use rlm_tests::scripted_model::{Rule, ScriptedModel};
use serde_json::json;

use super::{ask, ask_one, prompts, setup, soon};

#[tokio::test]
async fn a_request_has_what_the_options_say() {
    let model = ScriptedModel::start([Rule::any()]);
    let sub_llm = setup(&model)
        .with(|it| {
            it.config.key = Some(Key::new(" sesame\n"));
            it.options.model = Some("tiny".to_owned());
            it.options.system_prompt = Some("Be short.".to_owned());
            it.options.sampling.insert("temperature".to_owned(), json!(0.5));
        })
        .start();
    assert_eq!(ask_one(&sub_llm, "p").await, "re: p");
    let request = model.finish().remove(0);
    assert_eq!(request.header("authorization"), "Bearer sesame");
    assert_eq!(request.header("content-type"), "application/json");
    assert_eq!(
        request.body,
        json!({
            "messages": [{"role": "system", "content": "Be short."}, {"role": "user", "content": "p"}],
            "temperature": 0.5,
            "model": "tiny",
            "stream": true,
            "stream_options": {"include_usage": true},
        })
    );
}

#[tokio::test]
async fn the_boxed_text_is_the_answer() {
    let model = ScriptedModel::start([
        Rule::on("boxed").reply(r"First \boxed{1}, then \boxed{\frac{1}{2}}."),
        Rule::any().reply("plain"),
    ]);
    let sub_llm = setup(&model).with(|it| it.options.boxed = true).start();
    assert_eq!(ask(&sub_llm, vec!["boxed".to_owned(), "other".to_owned()]).await, [r"\frac{1}{2}", "plain"]);
    let sub_llm = setup(&model).start();
    assert_eq!(ask_one(&sub_llm, "boxed").await, r"First \boxed{1}, then \boxed{\frac{1}{2}}.");
}

#[tokio::test]
async fn the_key_is_shown_nowhere() {
    let key = "sk-very-secret";
    let model = ScriptedModel::start([
        Rule::on("p0.").status(401, &format!("the key {key} is wrong")),
        Rule::on("p1.").body(format!("key {key}")),
        Rule::on("p2.").body(json!({"error": format!("not with {key}")}).to_string()),
        Rule::on("p3.").status(400, &format!("{}{key}", "x".repeat(290))),
        Rule::any().hang_up(),
    ]);
    let config = setup(&model).with(|it| it.config.key = Some(Key::new(key))).config;
    let shows = |what: &dyn Debug| format!("{what:?} {what:#?}").contains("very-secret");
    assert!(!shows(&config));
    let models = Arc::new(Models::new(config).unwrap());
    assert!(!shows(&models));
    let ledger = Arc::new(Ledger::new(Budget::default(), Prices::default()));
    let sub_llm = SubLlm::new(models, ledger, SubLlmOptions::default()).unwrap();
    assert!(!shows(&sub_llm));
    let results = sub_llm.batch(prompts(5), soon()).await;
    assert!(!shows(&results));
    let texts: Vec<_> = results.into_iter().map(|result| result.unwrap_err().to_string()).collect();
    assert!(texts.iter().all(|text| !text.contains("sk-")), "{texts:?}");
    assert_eq!(texts[0], "the model's server answered 401: the key [key] is wrong");
    assert_eq!(model.finish()[0].header("authorization"), format!("Bearer {key}"));
}

#[tokio::test]
async fn requests_go_over_the_proxy_that_is_named_and_errors_name_it() {
    let model = ScriptedModel::start([Rule::on("p0").status(400, "no way"), Rule::any().reply("yes")]);
    let place = model.base_url().trim_end_matches("/v1").to_owned();
    let over = |model: &ScriptedModel, proxy: &str| {
        let base_url = "http://host.invalid/v1".to_owned();
        let proxy = Proxy::of_variables(&base_url, |name| (name == "HTTP_PROXY").then(|| proxy.to_owned()));
        setup(model).with(|it| (it.config.base_url, it.config.proxy) = (base_url, proxy)).start()
    };
    let answers = ask(&over(&model, &place), prompts(2)).await;
    let refused = format!("! the model's server answered 400: no way (over the proxy {place})");
    assert_eq!(answers, [refused.as_str(), "yes"]);
    let gone = over(&model, &place);
    assert_eq!(model.finish().len(), 2);
    let answer = ask(&gone, prompts(1)).await.remove(0);
    assert!(answer.starts_with("! the model's server cannot be reached: "), "{answer}");
    assert!(answer.ends_with(&format!(" (over the proxy {place})")), "{answer}");
}
