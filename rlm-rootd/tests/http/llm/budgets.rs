//! Budgets, and what is charged to them.

use std::collections::HashSet;
use std::sync::Arc;

use rlm_rootd::{Budget, Ledger, Models, Price, Prices, SubLlm, SubLlmOptions, Usage};
use rlm_tests::scripted_model::{Rule, ScriptedModel};
use serde_json::{Map, Value as Json, json};

use super::{ask, ask_one, echoes, prompts, setup, soon};

/// The bounds on completions of the requests so far.
fn bounds(model: &ScriptedModel) -> Vec<u64> {
    model.requests().iter().map(|request| request.body["max_tokens"].as_u64().unwrap()).collect()
}

#[tokio::test]
async fn no_more_calls_are_made_than_the_budget_has() {
    let model = ScriptedModel::start([Rule::any()]);
    let sub_llm = setup(&model)
        .with(|it| {
            it.options.parallelism = 64;
            it.budget.calls = Some(500);
        })
        .start();
    let answers = ask(&sub_llm, prompts(1000)).await;
    let exhausted = answers.iter().filter(|answer| *answer == "! budget exhausted: 0 of 500 calls are left");
    assert_eq!(exhausted.count(), 500);
    assert_eq!(answers.iter().filter(|answer| answer.starts_with("re: ")).count(), 500);
    assert_eq!(model.finish().len(), 500);
    let snapshot = sub_llm.ledger().snapshot();
    assert_eq!((snapshot.used.calls, snapshot.left.calls), (500, Some(0)));
}

#[tokio::test]
async fn tokens_are_never_overrun_however_many_calls_run_at_once() {
    // The worst case: each answer takes all the tokens that it may, and each prompt as many as estimated.
    let model = ScriptedModel::start([Rule::any().usage(37, 100)]);
    let sub_llm = setup(&model)
        .with(|it| {
            it.options.parallelism = 64;
            it.options.sampling = Map::from_iter([("max_tokens".to_owned(), 100.into())]);
            it.budget.tokens = Some(10_000);
        })
        .start();
    let answers = ask(&sub_llm, vec!["a".to_owned(); 500]).await;
    let used = sub_llm.ledger().snapshot().used;
    assert!(used.tokens <= 10_000, "{used:?}");
    let requests = model.finish();
    assert_eq!(requests.len(), 10_000 / 137);
    assert!(requests.iter().all(|request| request.body["max_tokens"] == 100));
    let error = "! budget exhausted: the call may need 137 tokens, 136 of 10000 are left";
    assert_eq!(answers.iter().filter(|answer| *answer == error).count(), 500 - requests.len(), "{answers:?}");
}

#[tokio::test]
async fn a_bound_that_a_budget_needs_is_above_the_tokens_to_think_with() {
    for sampling in [json!({"thinking": {"budget_tokens": 8000}}), json!({"thinking_budget": 8000})] {
        let model = ScriptedModel::start([Rule::any().usage(37, 9000)]);
        let sub_llm = setup(&model).with(|it| {
            it.options.parallelism = 1;
            it.options.default_max_tokens = 1000;
            it.options.sampling = sampling.as_object().unwrap().clone();
            it.budget.tokens = Some(18_000);
        });
        let answers = ask(&sub_llm.start(), vec!["a".to_owned(); 3]).await;
        assert!(answers[2].starts_with("! budget exhausted"), "{answers:?}");
        let requests = model.finish();
        let bounds: Vec<_> =
            requests.iter().map(|request| request.body["max_tokens"].as_u64().unwrap()).collect();
        // The second takes all that is left.
        assert!(matches!(bounds[..], [9000, 8256..9000]), "{bounds:?} with {sampling}");
    }
}

#[tokio::test]
async fn a_bound_that_the_budget_needs_grows_with_the_replies_that_it_cuts() {
    let cut = |content: Json| {
        let message = json!({"role": "assistant", "content": content});
        let body = json!({"choices": [{"message": message, "finish_reason": "length"}]});
        Rule::any().body(body.to_string()).once()
    };
    let model = ScriptedModel::start([cut(Json::Null), cut(json!("Let me")), Rule::any()]);
    let sub_llm = setup(&model).with(|it| it.budget.tokens = Some(100_000)).start();
    let error = "! the model returned no text: it reached the limit of 4096 tokens, chosen since there is a budget: \
                 `max_tokens` in `sub_sampling` sets another";
    for expected in [error, "Let me", "re: p", "re: p"] {
        assert_eq!(ask_one(&sub_llm, "p").await, expected);
    }
    assert_eq!(bounds(&model), [4096, 8192, 16_384, 16_384]);
    drop(model);
}

#[tokio::test]
async fn a_completion_may_be_as_long_as_the_server_lists_or_says() {
    let too_large = "max_tokens is too large: 9000. This model supports at most 7000 completion tokens";
    let model = ScriptedModel::start([Rule::on("first").status(400, too_large).once(), Rule::any()]);
    model.set_models(json!([{"id": "small", "max_completion_tokens": 9000}]));
    let setup = setup(&model);
    let models = Arc::new(Models::new(setup.config).unwrap());
    models.limits().await;
    let start = |tokens| {
        let budget = Budget { tokens: Some(tokens), ..Budget::default() };
        let ledger = Arc::new(Ledger::new(budget, Prices::default()));
        SubLlm::new(models.clone(), ledger, SubLlmOptions::default()).unwrap()
    };
    // Five requests run at once: one does not take what others need, but for what it would have without a list.
    for (tokens, prompt) in [(1_000_000, "p"), (30_100, "p"), (9000, "p"), (1_000_000, "first")] {
        let sub_llm = start(tokens);
        assert_eq!(ask_one(&sub_llm, prompt).await, format!("re: {prompt}"));
    }
    let sent = bounds(&model);
    assert_eq!((sent[0], &sent[2..]), (9000, &[4096, 9000, 7000][..]), "{sent:?}");
    assert!((5900..6100).contains(&sent[1]), "{sent:?}");
    assert_eq!(ask_one(&start(1_000_000), "p").await, "re: p");
    assert_eq!(bounds(&model).last(), Some(&7000));
    drop(model);
}

#[tokio::test]
async fn a_call_waits_for_what_others_hold_and_may_give_back() {
    // There is room for one reservation at a time, and for all that the calls really cost.
    let model = ScriptedModel::start([Rule::any().usage(10, 5)]);
    let sub_llm = setup(&model).with(|it| it.budget.completion_tokens = Some(5000)).start();
    assert_eq!(ask(&sub_llm, prompts(50)).await, echoes(50));
    assert_eq!(model.most_at_once(), 1);
    assert_eq!(sub_llm.ledger().snapshot().left.completion_tokens, Some(5000 - 250));
}

#[tokio::test]
async fn money_is_never_overrun() {
    let model = ScriptedModel::start([Rule::any().usage(28, 1000)]);
    let sub_llm = setup(&model)
        .with(|it| {
            it.prices = "[models.small]\nprompt = 0\ncompletion = 2.0\n";
            it.budget.cost_usd = Some(0.05);
            it.options.parallelism = 64;
            it.options.sampling.insert("max_completion_tokens".to_owned(), 1000.into());
        })
        .start();
    let answers = ask(&sub_llm, prompts(64)).await;
    let used = sub_llm.ledger().snapshot();
    assert_eq!((used.used.cost_usd, used.left.cost_usd), (Some(0.05), Some(0.0)));
    let requests = model.finish();
    assert_eq!(requests.len(), 25);
    assert!(requests.iter().all(|request| request.body.get("max_tokens").is_none()));
    let error = "! budget exhausted: the call may cost 0.002 USD, 0 of 0.05 USD are left";
    assert_eq!(answers.iter().filter(|answer| *answer == error).count(), 39, "{answers:?}");
}

#[test]
fn a_sub_llm_that_cannot_be_is_refused() {
    let model = ScriptedModel::start([]);
    let models = Arc::new(Models::new(setup(&model).config).unwrap());
    let prices = Prices::from_toml("[models.other]\nprompt = 1\ncompletion = 1\n").unwrap();
    assert_eq!(prices.get("other"), Some(Price::new(1.0, 1.0)));
    let budget = Budget { cost_usd: Some(1.0), ..Budget::default() };
    let ledger = Arc::new(Ledger::new(budget, prices));
    let error = SubLlm::new(Arc::clone(&models), Arc::clone(&ledger), SubLlmOptions::default()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the budget is in USD and the model \"small\" has no price: add it to the file of prices"
    );
    let mut options = SubLlmOptions { model: Some("other".to_owned()), ..SubLlmOptions::default() };
    options.sampling.insert("stream".to_owned(), true.into());
    let error = SubLlm::new(Arc::clone(&models), Arc::clone(&ledger), options.clone()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "sampling: `stream` is not a sampling parameter: each request sets its own"
    );
    options.sampling.clear();
    assert_eq!(SubLlm::new(models, ledger, options).unwrap().model(), "other");
}

#[tokio::test]
async fn usage_that_is_not_reported_is_estimated() {
    let model = ScriptedModel::start([Rule::on("p0").reply("some words").without_usage(), Rule::any()]);
    let sub_llm = setup(&model).start();
    let mut results = sub_llm.batch(prompts(2), soon()).await;
    let reported = results.pop().unwrap().unwrap().usage;
    assert_eq!(reported, Usage::new(10, 5));
    let estimated = results.pop().unwrap().unwrap().usage;
    assert!(estimated.is_estimated && estimated.prompt_tokens > 0 && estimated.completion_tokens > 3);
    let snapshot = sub_llm.ledger().snapshot();
    assert!(snapshot.usage_estimated);
    // No price is known.
    assert_eq!(snapshot.used.cost_usd, None);
}

#[tokio::test]
async fn a_bound_that_does_not_fit_the_window_is_lowered_once_by_the_numbers_of_the_error() {
    let error = |prompt: u64| {
        format!(
            "This model's maximum context length is 5000 tokens. However, you requested {} tokens ({prompt} in the \
             messages, 4096 in the completion). Please reduce the length of the messages or completion.",
            prompt + 4096
        )
    };
    for (prompt, bounds) in [(1000, vec![4096, 4000]), (4900, vec![4096])] {
        let model = ScriptedModel::start([Rule::any().status(400, &error(prompt)).once(), Rule::any()]);
        let sub_llm = setup(&model).with(|it| it.budget.tokens = Some(100_000)).start();
        let answer = ask(&sub_llm, prompts(1)).await.remove(0);
        assert_eq!(answer == "re: p0.", bounds.len() == 2, "{answer}");
        let requests = model.finish();
        let sent: Vec<_> =
            requests.iter().map(|request| request.body["max_tokens"].as_u64().unwrap()).collect();
        assert_eq!(sent, bounds);
        // It is one request, but another body.
        let names = |header| requests.iter().map(move |request| request.header(header).to_owned());
        assert!(names("x-request-id").all(|id| id == requests[0].header("x-request-id")));
        assert_eq!(names("idempotency-key").collect::<HashSet<_>>().len(), requests.len());
    }
    let model = ScriptedModel::start([Rule::any().status(400, &error(1000))]);
    let sub_llm = setup(&model).with(|it| it.budget.tokens = Some(100_000)).start();
    ask(&sub_llm, prompts(1)).await;
    assert_eq!(model.finish().len(), 2, "it is lowered once");
}
