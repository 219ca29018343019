//! Sub-LLMs: batches, retries, budgets, tools, the proxy.

use std::collections::HashSet;
use std::fmt::Debug;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::{Duration, Instant};

use rlm_core::pickle::{Dict, Value};
use rlm_core::root_tool::{Call, Reply, ToolResult};
use rlm_rootd::llm::Price;
use rlm_rootd::{
    Budget, BudgetTool, Key, Ledger, LlmBatch, Models, ModelsConfig, Prices, Proxy, Recorder, Retries,
    RootTool, SubCallError, SubCallRecord, SubLlm, SubLlmOptions, ToolError, ToolFuture, Usage,
};
use rlm_tests::scripted_model::{Gate, Rule, ScriptedModel};
use serde_json::{Value as Json, json};

/// A rollout's sub-LLM and what it is made of.
struct Setup {
    config: ModelsConfig,
    budget: Budget,
    prices: &'static str,
    options: SubLlmOptions,
}

/// A sub-LLM of this server, with pauses of a few milliseconds.
fn setup(model: &ScriptedModel) -> Setup {
    let mut config = ModelsConfig::new(model.base_url(), "small");
    config.retries = Retries { max: 2, base: Duration::from_millis(2), cap: Duration::from_millis(10) };
    Setup { config, budget: Budget::default(), prices: "", options: SubLlmOptions::default() }
}

impl Setup {
    fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    fn start(self) -> Arc<SubLlm> {
        let models = Arc::new(Models::new(self.config).unwrap());
        let ledger = Arc::new(Ledger::new(self.budget, Prices::from_toml(self.prices).unwrap()));
        Arc::new(SubLlm::new(models, ledger, self.options).unwrap())
    }
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

fn prompts(count: usize) -> Vec<String> {
    (0..count).map(|at| format!("p{at}.")).collect()
}

/// The texts of a batch, or of its errors.
async fn ask(sub_llm: &SubLlm, prompts: Vec<String>) -> Vec<String> {
    ask_until(sub_llm, prompts, soon()).await
}

async fn ask_until(sub_llm: &SubLlm, prompts: Vec<String>, deadline: Instant) -> Vec<String> {
    let results = sub_llm.batch(prompts, deadline).await;
    let text = |result: Result<rlm_rootd::Completion, SubCallError>| match result {
        Ok(completion) => completion.text,
        Err(error) => format!("! {error}"),
    };
    results.into_iter().map(text).collect()
}

async fn ask_one(sub_llm: &SubLlm, prompt: &str) -> String {
    ask(sub_llm, vec![prompt.to_owned()]).await.remove(0)
}

fn echoes(count: usize) -> Vec<String> {
    prompts(count).iter().map(|prompt| format!("re: {prompt}")).collect()
}

// Order and parallelism

#[tokio::test]
async fn answers_come_in_the_order_of_their_prompts() {
    for (count, parallelism) in [(0, 5), (1, 5), (10, 5), (1000, 64)] {
        let model = ScriptedModel::start([Rule::any()]);
        let sub_llm = setup(&model).with(|it| it.options.parallelism = parallelism).start();
        assert_eq!(ask(&sub_llm, prompts(count)).await, echoes(count));
        assert!(model.most_at_once() <= parallelism, "{} at once", model.most_at_once());
        assert_eq!(model.finish().len(), count);
    }
}

#[tokio::test]
async fn a_late_answer_keeps_its_place() {
    let gate = Gate::shut();
    let model = ScriptedModel::start([Rule::on("p0.").after(&gate), Rule::any()]);
    let sub_llm = setup(&model).start();
    let batch = tokio::spawn(async move { ask(&sub_llm, prompts(20)).await });
    // All others are asked while the first waits.
    model.wait_for_requests(20).await;
    gate.open();
    assert_eq!(batch.await.unwrap(), echoes(20));
}

#[tokio::test]
async fn a_rollout_runs_no_more_at_once_than_it_may_over_all_its_batches() {
    let gate = Gate::shut();
    let model = ScriptedModel::start([Rule::any().after(&gate)]);
    let sub_llm = setup(&model).start();
    let batches: Vec<_> = (0..3)
        .map(|_| {
            let sub_llm = Arc::clone(&sub_llm);
            tokio::spawn(async move { ask(&sub_llm, prompts(10)).await })
        })
        .collect();
    model.wait_for_requests(5).await;
    gate.open();
    for batch in batches {
        assert_eq!(batch.await.unwrap(), echoes(10));
    }
    assert_eq!(model.most_at_once(), 5);
}

#[tokio::test]
async fn a_process_runs_no_more_at_once_than_it_may_over_all_its_rollouts() {
    let gate = Gate::shut();
    let model = ScriptedModel::start([Rule::any().after(&gate)]);
    let config = setup(&model).with(|it| it.config.parallelism = 3).config;
    let models = Arc::new(Models::new(config).unwrap());
    let rollouts: Vec<_> = (0..4)
        .map(|_| {
            let ledger = Arc::new(Ledger::new(Budget::default(), Prices::default()));
            let sub_llm = SubLlm::new(Arc::clone(&models), ledger, SubLlmOptions::default()).unwrap();
            tokio::spawn(async move { ask(&sub_llm, prompts(10)).await })
        })
        .collect();
    model.wait_for_requests(3).await;
    gate.open();
    for rollout in rollouts {
        assert_eq!(rollout.await.unwrap(), echoes(10));
    }
    assert_eq!(model.most_at_once(), 3);
}

// Failures and retries

#[tokio::test]
async fn one_that_fails_leaves_the_others_alone() {
    let model = ScriptedModel::start([Rule::on("p3.").status(400, "bad  prompt"), Rule::any()]);
    let sub_llm = setup(&model).start();
    let mut expected = echoes(10);
    expected[3] = "! the model's server answered 400: bad prompt".to_owned();
    assert_eq!(ask(&sub_llm, prompts(10)).await, expected);
    // It was not asked again, and cost nothing.
    assert_eq!(model.finish().len(), 10);
    assert_eq!(sub_llm.ledger().snapshot().used.calls, 9);
}

#[tokio::test]
async fn all_may_fail() {
    let model = ScriptedModel::start([Rule::any().status(500, "no")]);
    let sub_llm = setup(&model).start();
    let answers = ask(&sub_llm, prompts(10)).await;
    assert_eq!(answers, vec!["! the model's server answered 500: no"; 10]);
    // Each was sent three times, under one name.
    let requests = model.finish();
    assert_eq!(requests.len(), 30);
    let ids: HashSet<_> = requests.iter().map(|request| request.header("x-request-id")).collect();
    assert_eq!(ids.len(), 10);
    assert_eq!(sub_llm.ledger().snapshot().used.calls, 0);
}

#[tokio::test]
async fn passing_failures_are_tried_again() {
    for rule in [
        Rule::any().status(429, "slow down"),
        Rule::any().status(408, "too slow"),
        Rule::any().status(503, "busy"),
        Rule::any().hang_up(),
        Rule::any().cut(),
        Rule::any().body("{\"choices\": ["),
        Rule::any().body("{\"choices\": []}"),
        Rule::any().message(json!({"role": "assistant", "content": null})),
        Rule::any().reply(" \n"),
    ] {
        let model = ScriptedModel::start([rule.clone().once(), Rule::any()]);
        let sub_llm = setup(&model).start();
        assert_eq!(ask_one(&sub_llm, "p").await, "re: p", "{rule:?}");
        assert_eq!(model.finish().len(), 2, "{rule:?}");
        let snapshot = sub_llm.ledger().snapshot();
        assert_eq!(snapshot.reserved.calls, 0);
    }
}

#[tokio::test]
async fn other_failures_are_not() {
    for (status, error) in
        [(400, "no"), (401, "who?"), (404, "no such model"), (422, "what?"), (307, "elsewhere")]
    {
        let rule = Rule::any().status(status, error).header("location", "http://127.0.0.1:9/");
        let model = ScriptedModel::start([rule]);
        let sub_llm = setup(&model).start();
        let expected = format!("! the model's server answered {status}: {error}");
        assert_eq!(ask_one(&sub_llm, "p").await, expected);
        assert_eq!(model.finish().len(), 1);
    }
}

#[tokio::test]
async fn a_reply_that_is_of_no_use_is_named() {
    let no_text = json!({"role": "assistant", "content": null});
    for (rule, error, count) in [
        (
            Rule::any().body("{"),
            "the model's reply is malformed: EOF while parsing an object at line 1 column 1 in \"{\"",
            2,
        ),
        (
            Rule::any().body("<html>"),
            "the model's reply is malformed: expected value at line 1 column 1 in \"<html>\"",
            2,
        ),
        (Rule::any().body("{}"), "the model's reply is malformed: it has no choices", 2),
        (Rule::any().body("{\"choices\": []}"), "the model's reply is malformed: its choices are empty", 2),
        (
            Rule::any().body("{\"choices\": [{}]}"),
            "the model's reply is malformed: its choice has no message",
            2,
        ),
        (Rule::any().body("{\"error\": {\"message\": \"no\"}}"), "the model's reply is malformed: no", 2),
        (Rule::any().message(no_text.clone()), "the model returned no text", 2),
        (Rule::any().reply(""), "the model returned no text", 2),
        (
            Rule::any().message(json!({"content": 5})),
            "the model's reply is malformed: its content is not text",
            2,
        ),
        (Rule::any().message(json!({"content": null, "refusal": "never"})), "the model refused: never", 1),
        (
            Rule::any()
                .body(json!({"choices": [{"message": no_text, "finish_reason": "length"}]}).to_string()),
            "the model returned no text: it reached the limit of its tokens",
            1,
        ),
    ] {
        let model = ScriptedModel::start([rule]);
        let sub_llm = setup(&model).start();
        assert_eq!(ask_one(&sub_llm, "p").await, format!("! {error}"));
        assert_eq!(model.finish().len(), count, "{error}");
    }
}

#[tokio::test]
async fn a_reply_with_half_a_surrogate_pair_is_read_and_paid_for_once() {
    let body = r#"{"choices": [{"message": {"role": "assistant", "content": "a\ud800b"}}]}"#;
    let model = ScriptedModel::start([Rule::any().body(body)]);
    let sub_llm = setup(&model).start();
    assert_eq!(ask_one(&sub_llm, "p").await, "a\u{fffd}b");
    assert_eq!(model.finish().len(), 1);
}

#[tokio::test]
async fn text_in_parts_is_joined() {
    let parts = json!([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]);
    let model = ScriptedModel::start([Rule::any().message(json!({"content": parts}))]);
    assert_eq!(ask_one(&setup(&model).start(), "p").await, "ab");
}

#[tokio::test]
async fn a_server_is_waited_for_as_long_as_it_asks() {
    let model = ScriptedModel::start([
        Rule::any().status(429, "wait").header("retry-after", "1").once(),
        Rule::any(),
    ]);
    let sub_llm = setup(&model).start();
    assert_eq!(ask_one(&sub_llm, "p").await, "re: p");
    let requests = model.finish();
    let pause = requests[1].at - requests[0].at;
    assert!(pause >= Duration::from_secs(1), "{pause:?}");
}

#[tokio::test]
async fn a_server_that_asks_for_longer_than_there_is_time_is_not_waited_for() {
    let model = ScriptedModel::start([Rule::any().status(429, "wait").header("retry-after", "3600")]);
    let sub_llm = setup(&model).start();
    let started = Instant::now();
    let results = sub_llm.batch(prompts(1), soon()).await;
    assert!(started.elapsed() < Duration::from_secs(30));
    let Err(SubCallError::MustWait { status: 429, message, wait, left }) = &results[0] else {
        panic!("{results:?}");
    };
    assert_eq!(message, "wait");
    assert!(*wait >= Duration::from_secs(3600) && *left <= Duration::from_secs(60));
    assert_eq!(
        SubCallError::MustWait {
            status: 429,
            message: "wait".to_owned(),
            wait: Duration::from_secs(3600),
            left: Duration::from_secs(59),
        }
        .to_string(),
        "the model's server answered 429 and asks to wait 3600 s, 59 s are left: wait"
    );
    assert_eq!(model.finish().len(), 1);
}

#[tokio::test]
async fn a_connection_that_breaks_each_time_is_an_error() {
    for (rule, error) in [
        (Rule::any().hang_up(), "! the connection to the model's server broke: "),
        (Rule::any().cut(), "! the connection to the model's server broke: "),
    ] {
        let model = ScriptedModel::start([rule]);
        let sub_llm = setup(&model).start();
        let answer = ask_one(&sub_llm, "p").await;
        assert!(answer.starts_with(error) && answer.len() > error.len(), "{answer}");
        assert!(!answer.contains("127.0.0.1"), "{answer}");
        // What was lost on the way may have been paid for.
        let used = sub_llm.ledger().snapshot();
        assert_eq!((used.used.calls, used.usage_estimated), (3, true));
        assert_eq!(model.finish().len(), 3);
    }
}

#[tokio::test]
async fn a_server_that_is_not_there_costs_nothing() {
    let model = ScriptedModel::start([]);
    let setup = setup(&model);
    assert!(model.finish().is_empty());
    let sub_llm = setup.start();
    let answer = ask_one(&sub_llm, "p").await;
    assert!(answer.starts_with("! the model's server cannot be reached: "), "{answer}");
    assert!(answer.contains("refused"), "{answer}");
    assert_eq!(sub_llm.ledger().snapshot().used.calls, 0);
}

#[tokio::test]
async fn a_slow_body_is_waited_for() {
    let gate = Gate::shut();
    let slow = Rule::on("slow").slowly(Duration::from_millis(1));
    let model = ScriptedModel::start([slow, Rule::any().in_halves(&gate)]);
    let sub_llm = setup(&model).start();
    assert_eq!(ask_one(&sub_llm, "slow").await, "re: slow");
    let asked = tokio::spawn(async move { ask_one(&sub_llm, "p").await });
    model.wait_for_requests(2).await;
    gate.open();
    assert_eq!(asked.await.unwrap(), "re: p");
}

#[tokio::test]
async fn an_attempt_that_takes_too_long_is_given_up_and_made_again() {
    let never = Gate::shut();
    for rule in [Rule::any().after(&never), Rule::any().in_halves(&never)] {
        let model = ScriptedModel::start([rule.once(), Rule::any()]);
        let sub_llm = setup(&model).with(|it| it.config.timeout = Duration::from_millis(500)).start();
        assert_eq!(ask_one(&sub_llm, "p").await, "re: p");
        assert_eq!(sub_llm.ledger().snapshot().used.calls, 2);
    }
    let model = ScriptedModel::start([Rule::any().after(&never)]);
    let sub_llm = setup(&model).with(|it| it.config.timeout = Duration::from_millis(100)).start();
    assert_eq!(ask_one(&sub_llm, "p").await, "! no answer within 0.1 s");
    assert_eq!(model.finish().len(), 3);
}

// Deadlines and cancellation

#[tokio::test]
async fn an_item_that_takes_too_long_leaves_the_others_alone() {
    let never = Gate::shut();
    let model = ScriptedModel::start([Rule::on("p3.").after(&never), Rule::any()]);
    let sub_llm = setup(&model).with(|it| it.options.item_deadline = Some(Duration::from_secs(1))).start();
    let mut answers = ask(&sub_llm, prompts(10)).await;
    assert!(answers[3].starts_with("! no answer within "), "{}", answers[3]);
    answers[3] = "re: p3.".to_owned();
    assert_eq!(answers, echoes(10));
    // It may have been paid for.
    assert_eq!(sub_llm.ledger().snapshot().used.calls, 10);
}

#[tokio::test]
async fn what_went_wrong_before_the_time_was_over_is_told() {
    let never = Gate::shut();
    let model = ScriptedModel::start([Rule::any().status(500, "oh").once(), Rule::any().after(&never)]);
    let sub_llm = setup(&model).with(|it| it.options.item_deadline = Some(Duration::from_secs(1))).start();
    let answer = ask_one(&sub_llm, "p").await;
    let before = ", and before that: the model's server answered 500: oh";
    assert!(answer.starts_with("! no answer within ") && answer.ends_with(before), "{answer}");
}

#[tokio::test]
async fn a_batch_ends_at_its_deadline_with_what_it_has() {
    let never = Gate::shut();
    let model =
        ScriptedModel::start([Rule::on("p0.").after(&never), Rule::on("p1.").after(&never), Rule::any()]);
    let sub_llm = setup(&model).with(|it| it.options.parallelism = 2).start();
    let deadline = Instant::now() + Duration::from_secs(1);
    let answers = ask_until(&sub_llm, prompts(1000), deadline).await;
    assert!(
        answers[..2].iter().all(|answer| answer.starts_with("! no answer within ")),
        "{:?}",
        &answers[..2]
    );
    assert!(answers[2..].iter().all(|answer| answer == "! its time was over before it was sent"));
    assert_eq!(model.finish().len(), 2);
}

#[tokio::test]
async fn nothing_is_sent_once_the_deadline_is_over() {
    let model = ScriptedModel::start([]);
    let sub_llm = setup(&model).start();
    let answers = ask_until(&sub_llm, prompts(3), Instant::now()).await;
    assert_eq!(answers, vec!["! its time was over before it was sent"; 3]);
    assert!(model.finish().is_empty());
}

#[tokio::test]
async fn a_batch_that_is_cancelled_sends_nothing_more() {
    let gate = Gate::shut();
    let model = ScriptedModel::start([Rule::on("p").after(&gate), Rule::any()]);
    let budget = Budget { tokens: Some(100_000), ..Budget::default() };
    let recorder = Arc::new(Memory::default());
    let sub_llm = setup(&model)
        .with(|it| {
            it.budget = budget;
            it.options.recorder = Some(Arc::clone(&recorder) as Arc<dyn Recorder>);
        })
        .start();
    let of_batch = Arc::clone(&sub_llm);
    let batch = tokio::spawn(async move { ask(&of_batch, prompts(100)).await });
    model.wait_for_requests(5).await;
    gate.let_through(10);
    model.wait_for_requests(15).await;
    batch.abort();
    assert!(batch.await.unwrap_err().is_cancelled());
    gate.open();
    model.wait_until_idle().await;
    assert_eq!(ask_one(&sub_llm, "last").await, "re: last");
    assert_eq!(model.finish().len(), 16);
    // Five were under way and may have cost all that was reserved: 4096 tokens each, and their prompts.
    let snapshot = sub_llm.ledger().snapshot();
    assert_eq!((snapshot.used.calls, snapshot.reserved.calls), (16, 0));
    assert_eq!(snapshot.used.completion_tokens, 11 * 5 + 5 * 4096);
    let records = recorder.0.lock().unwrap();
    assert_eq!(records.iter().filter(|record| record.error.as_deref() == Some("cancelled")).count(), 5);
    let charged: u64 = records.iter().map(|record| record.usage.completion_tokens).sum();
    assert_eq!(charged, snapshot.used.completion_tokens);
}

// Budgets

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
    let exhausted = answers.iter().filter(|answer| *answer == "! budget exhausted: no call of 500 is left");
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
            it.options.default_max_tokens = 100;
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
    assert_eq!(prices.get("other"), Some(Price { prompt: 1.0, completion: 1.0 }));
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
    assert_eq!(error.to_string(), "sampling: `stream` is no sampling parameter: each request has its own");
    options.sampling.clear();
    assert_eq!(SubLlm::new(models, ledger, options).unwrap().model(), "other");
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

#[tokio::test]
async fn usage_that_is_not_reported_is_estimated() {
    let model = ScriptedModel::start([Rule::on("p0").reply("some words").without_usage(), Rule::any()]);
    let sub_llm = setup(&model).start();
    let mut results = sub_llm.batch(prompts(2), soon()).await;
    let reported = results.pop().unwrap().unwrap().usage;
    assert_eq!(reported, Usage { prompt_tokens: 10, completion_tokens: 5, is_estimated: false });
    let estimated = results.pop().unwrap().unwrap().usage;
    assert!(estimated.is_estimated && estimated.prompt_tokens > 0 && estimated.completion_tokens > 3);
    let snapshot = sub_llm.ledger().snapshot();
    assert!(snapshot.usage_estimated);
    // No price is known.
    assert_eq!(snapshot.used.cost_usd, None);
}

// Requests

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
        })
    );
}

#[tokio::test]
async fn what_is_boxed_is_the_answer() {
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

#[test]
fn a_client_of_https_can_be_made() {
    Models::new(ModelsConfig::new("https://models.invalid/v1", "m")).unwrap();
}

// Records

#[derive(Debug, Default)]
struct Memory(Mutex<Vec<Record>>);

#[derive(Debug)]
struct Record {
    batch_id: String,
    index: usize,
    turn: u32,
    request_id: String,
    messages: usize,
    reply: Option<Json>,
    error: Option<String>,
    usage: Usage,
    attempts: u32,
}

impl Recorder for Memory {
    fn sub_call(&self, record: &SubCallRecord<'_>) {
        assert_eq!(record.model, "small");
        assert!(record.seconds >= 0.0);
        self.0.lock().unwrap().push(Record {
            batch_id: record.batch_id.to_owned(),
            index: record.index,
            turn: record.turn,
            request_id: record.request_id.to_owned(),
            messages: record.messages.len(),
            reply: record.reply.cloned(),
            error: record.error.map(ToString::to_string),
            usage: record.usage,
            attempts: record.attempts,
        });
    }
}

#[tokio::test]
async fn each_request_is_recorded() {
    let model = ScriptedModel::start([
        Rule::on("p0.").status(400, "no"),
        Rule::on("p1.").hang_up().once(),
        Rule::any().usage(7, 3),
    ]);
    let recorder = Arc::new(Memory::default());
    let sub_llm = setup(&model)
        .with(|it| it.options.recorder = Some(Arc::clone(&recorder) as Arc<dyn Recorder>))
        .start();
    ask(&sub_llm, prompts(3)).await;
    let ids: HashSet<_> =
        model.finish().iter().map(|request| request.header("x-request-id").to_owned()).collect();
    let mut records = recorder.0.lock().unwrap();
    records.sort_by_key(|record| record.index);
    assert_eq!(records.len(), 3);
    assert!(records.iter().all(|record| record.batch_id == records[0].batch_id && record.messages == 1));
    assert_eq!(records.iter().map(|record| record.request_id.clone()).collect::<HashSet<_>>(), ids);
    assert_eq!(records[0].error.as_deref(), Some("the model's server answered 400: no"));
    assert_eq!((&records[0].reply, records[0].usage, records[0].attempts), (&None, Usage::default(), 1));
    // The attempt that was lost is charged at its estimate: its prompt, since the completion has no bound.
    assert_eq!((records[1].attempts, records[1].usage.is_estimated), (2, true));
    assert!(records[1].usage.prompt_tokens > 7 && records[1].usage.completion_tokens == 3);
    assert_eq!(records[2].reply, Some(json!({"role": "assistant", "content": "re: p2."})));
    assert_eq!(records[2].usage, Usage { prompt_tokens: 7, completion_tokens: 3, is_estimated: false });
    let charged: u64 = records.iter().map(|record| record.usage.prompt_tokens).sum();
    assert_eq!(charged, sub_llm.ledger().snapshot().used.prompt_tokens);
}

// Tools of the sub-LLM

/// Adds two numbers, and refuses 13.
#[derive(Debug)]
struct Add;

static ADD: LazyLock<Json> = LazyLock::new(|| {
    json!({
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
    })
});

impl RootTool for Add {
    fn name(&self) -> &str {
        "add"
    }

    fn description(&self) -> &str {
        "Adds."
    }

    fn parameters(&self) -> &Json {
        &ADD
    }

    fn call(&self, call: Call, _deadline: Instant) -> ToolFuture<'_> {
        Box::pin(async move {
            let number = |name| call.kwargs.get(name).unwrap().to_json(100).unwrap().as_i64().unwrap();
            if number("a") == 13 {
                return Err(ToolError::Failed("13 is not added".to_owned()));
            }
            Ok(Reply::of(number("a") + number("b")))
        })
    }
}

fn calls(calls: &[(&str, &str)]) -> Rule {
    let calls: Vec<_> = calls
        .iter()
        .enumerate()
        .map(|(at, (name, arguments))| {
            json!({"id": format!("c{at}"), "type": "function", "function": {"name": name, "arguments": arguments}})
        })
        .collect();
    Rule::any().message(json!({"role": "assistant", "content": null, "tool_calls": calls}))
}

#[tokio::test]
async fn a_sub_llm_calls_tools_until_it_answers() {
    let model = ScriptedModel::start([
        calls(&[
            ("add", r#"{"a": 2, "b": 3}"#),
            ("add", r#"{"a": 13, "b": 0}"#),
            ("add", r#"{"a": "2", "b": 1}"#),
            ("add", "{"),
            ("sub", "{}"),
        ])
        .once(),
        Rule::any().reply("five"),
    ]);
    let recorder = Arc::new(Memory::default());
    let sub_llm = setup(&model)
        .with(|it| {
            it.options.tools = vec![Arc::new(Add)];
            it.options.recorder = Some(Arc::clone(&recorder) as Arc<dyn Recorder>);
        })
        .start();
    let completion = sub_llm.batch(vec!["2 + 3?".to_owned()], soon()).await.remove(0).unwrap();
    assert_eq!((completion.text.as_str(), completion.requests), ("five", 2));
    assert_eq!(completion.usage, Usage { prompt_tokens: 20, completion_tokens: 10, is_estimated: false });
    let requests = model.finish();
    assert_eq!(
        requests[0].body["tools"],
        json!([{"type": "function", "function": {"name": "add", "description": "Adds.", "parameters": *ADD}}])
    );
    assert_eq!(requests[0].body["tool_choice"], "auto");
    let messages = requests[1].body["messages"].as_array().unwrap();
    assert_eq!(messages[0], json!({"role": "user", "content": "2 + 3?"}));
    assert_eq!(messages[1]["tool_calls"].as_array().unwrap().len(), 5);
    let answers: Vec<_> = messages[2..]
        .iter()
        .map(|message| {
            assert_eq!(message["role"], "tool");
            (message["tool_call_id"].as_str().unwrap(), message["content"].as_str().unwrap())
        })
        .collect();
    assert_eq!(
        answers,
        [
            ("c0", "5"),
            ("c1", "Error: 13 is not added"),
            ("c2", "Error: \"2\" is not of type \"integer\""),
            ("c3", "Error: the arguments are not JSON: EOF while parsing an object at line 1 column 1"),
            ("c4", "Error: there is no tool \"sub\", there are add"),
        ]
    );
    let records = recorder.0.lock().unwrap();
    assert_eq!(
        records.iter().map(|record| (record.index, record.turn)).collect::<Vec<_>>(),
        [(0, 0), (0, 1)]
    );
}

#[tokio::test]
async fn a_sub_llm_that_only_calls_tools_must_answer_in_the_end() {
    let model = ScriptedModel::start([
        calls(&[("add", r#"{"a": 1, "b": 1}"#)]).times(3),
        Rule::any().reply("enough"),
    ]);
    let with_tools = |it: &mut Setup| {
        it.options.tools = vec![Arc::new(Add)];
        it.options.max_tool_turns = 3;
    };
    let sub_llm = setup(&model).with(with_tools).start();
    assert_eq!(ask_one(&sub_llm, "p").await, "enough");
    let choices: Vec<_> = model.finish().iter().map(|request| request.body["tool_choice"].clone()).collect();
    assert_eq!(choices, ["auto", "auto", "auto", "none"]);
    // Text counts beside a call that it may not make.
    let both = json!({"content": "so be it", "tool_calls": [{"id": "c0"}]});
    let model = ScriptedModel::start([Rule::any().message(both)]);
    let sub_llm = setup(&model).with(with_tools).with(|it| it.options.max_tool_turns = 0).start();
    assert_eq!(ask_one(&sub_llm, "p").await, "so be it");
    // One that will not is an error; each turn is within the budget.
    let model = ScriptedModel::start([calls(&[("add", r#"{"a": 1, "b": 1}"#)])]);
    let sub_llm = setup(&model).with(with_tools).start();
    assert_eq!(ask_one(&sub_llm, "p").await, "! the model returned no text");
    let sub_llm = setup(&model).with(with_tools).with(|it| it.budget.calls = Some(2)).start();
    assert_eq!(ask_one(&sub_llm, "p").await, "! budget exhausted: no call of 2 is left");
}

#[tokio::test]
async fn a_sub_llm_may_ask_sub_llms() {
    let model = ScriptedModel::start([
        Rule::on("re: inner").reply("done"),
        Rule::on("inner"),
        calls(&[("llm_batch", r#"{"prompts": ["inner"]}"#)]).times(2),
    ]);
    // One request at a time, and still the inner ones get through: a place is held by a request, not by an item.
    let config = setup(&model).with(|it| it.config.parallelism = 1).config;
    let models = Arc::new(Models::new(config).unwrap());
    let ledger = Arc::new(Ledger::new(Budget::default(), Prices::default()));
    let options = SubLlmOptions { parallelism: 1, ..SubLlmOptions::default() };
    let inner = SubLlm::new(Arc::clone(&models), Arc::clone(&ledger), options.clone()).unwrap();
    let tools: Vec<Arc<dyn RootTool>> = vec![Arc::new(LlmBatch::new(Arc::new(inner)))];
    let sub_llm = SubLlm::new(models, ledger, SubLlmOptions { tools, ..options }).unwrap();
    assert_eq!(ask(&sub_llm, prompts(2)).await, ["done", "done"]);
}

// The tools of the session

fn call(tool: &str, args: Vec<Value>, kwargs: &[(&str, Value)]) -> Call {
    let pairs = kwargs.iter().map(|(name, value)| (Value::from(*name), value.clone()));
    Call { tool: tool.to_owned(), args, kwargs: Dict::from_pairs(pairs).unwrap() }
}

fn texts(reply: &Reply) -> Vec<String> {
    let ToolResult::Value(Value::List(items)) = &reply.result else { panic!("{reply:?}") };
    let text = |item: &Value| match item {
        Value::Str(text) => text.to_string(),
        other => panic!("{other:?}"),
    };
    items.iter().map(text).collect()
}

#[tokio::test]
async fn llm_batch_answers_each_prompt_in_its_place() {
    let model = ScriptedModel::start([Rule::on("p1.").status(400, "no"), Rule::any()]);
    let tool = LlmBatch::new(setup(&model).start());
    let items = [
        Value::from("p0."),
        Value::from("p1."),
        Value::from(3),
        Value::from(Dict::default()),
        Value::from("p4."),
    ];
    let expected = [
        "re: p0.",
        "Error in sub-LLM call: the model's server answered 400: no",
        "Error in sub-LLM call: prompt 2 is int, expected str",
        "Error in sub-LLM call: prompt 3 is dict, expected str",
        "re: p4.",
    ];
    for call in [
        call("llm_batch", vec![Value::list(items.clone())], &[]),
        call("llm_batch", vec![Value::tuple(items.clone())], &[]),
        call("llm_batch", vec![], &[("prompts", Value::list(items.clone()))]),
    ] {
        let reply = tool.call(call, soon()).await.unwrap();
        assert_eq!(texts(&reply), expected);
        let [line] = reply.print_lines.as_slice() else { panic!("{reply:?}") };
        assert!(line.starts_with("llm_batch: 5 calls in 0.") && line.ends_with("s, 3 failed"), "{line}");
    }
    let reply = tool.call(call("llm_batch", vec![Value::list([])], &[]), soon()).await.unwrap();
    assert_eq!(texts(&reply), Vec::<String>::new());
    assert_eq!(reply.print_lines, ["llm_batch: 0 calls in 0.00s"]);
    let reply =
        tool.call(call("llm_batch", vec![Value::list([Value::from("p")])], &[]), soon()).await.unwrap();
    assert!(reply.print_lines[0].starts_with("llm_batch: 1 call in 0."), "{:?}", reply.print_lines);
}

#[tokio::test]
async fn llm_batch_says_what_is_wrong_with_its_arguments() {
    let model = ScriptedModel::start([]);
    let tool = LlmBatch::new(setup(&model).start());
    let empty = || Value::list([]);
    for (call, error) in [
        (
            call("llm_batch", vec![Value::from(Dict::default())], &[]),
            "llm_batch: prompts must be a list of str, not dict",
        ),
        (call("llm_batch", vec![Value::None], &[]), "llm_batch: prompts must be a list of str, not NoneType"),
        (
            call("llm_batch", vec![Value::from("p")], &[]),
            "llm_batch: prompts must be a list of str, not str: wrap it in a list",
        ),
        (call("llm_batch", vec![], &[]), "llm_batch: prompts is missing, a list of str"),
        (
            call("llm_batch", vec![empty(), empty()], &[]),
            "llm_batch: takes one argument, prompts, a list of str; 2 were given",
        ),
        (
            call("llm_batch", vec![empty()], &[("prompts", empty())]),
            "llm_batch: takes one argument, prompts, a list of str; 2 were given",
        ),
        (
            call("llm_batch", vec![empty()], &[("model", Value::from("big"))]),
            "llm_batch: there is no argument 'model', only prompts",
        ),
    ] {
        assert_eq!(tool.call(call, soon()).await, Err(ToolError::Arguments(error.to_owned())));
    }
}

#[tokio::test]
async fn llm_batch_answers_before_its_own_deadline() {
    let never = Gate::shut();
    let model = ScriptedModel::start([Rule::any().after(&never)]);
    let tool = LlmBatch::new(setup(&model).start());
    let deadline = Instant::now() + Duration::from_secs(2);
    let reply =
        tool.call(call("llm_batch", vec![Value::list([Value::from("p")])], &[]), deadline).await.unwrap();
    assert!(Instant::now() < deadline);
    assert!(texts(&reply)[0].starts_with("Error in sub-LLM call: no answer within "), "{reply:?}");
}

#[tokio::test]
async fn llm_batch_tells_when_the_budget_is_exhausted() {
    let model = ScriptedModel::start([Rule::any()]);
    let sub_llm = setup(&model).with(|it| it.budget.calls = Some(1)).start();
    let budget = BudgetTool::new(Arc::clone(sub_llm.ledger()));
    let tool = LlmBatch::new(sub_llm);
    let items = Value::list([Value::from("p0."), Value::from("p1.")]);
    let reply = tool.call(call("llm_batch", vec![items], &[]), soon()).await.unwrap();
    assert_eq!(texts(&reply), ["re: p0.", "Error in sub-LLM call: budget exhausted: no call of 1 is left"]);
    let reply = budget.call(call("budget", vec![], &[]), soon()).await.unwrap();
    let ToolResult::Value(value) = reply.result else { panic!("{reply:?}") };
    assert_eq!(
        value.to_json(10_000).unwrap(),
        json!({
            "used": {"calls": 1, "prompt_tokens": 10, "completion_tokens": 5, "tokens": 15, "cost_usd": null},
            "reserved": {"calls": 0, "prompt_tokens": 0, "completion_tokens": 0, "tokens": 0, "cost_usd": 0.0},
            "left": {"calls": 0, "tokens": null, "completion_tokens": null, "cost_usd": null},
            "usage_estimated": false,
        })
    );
    let error = budget.call(call("budget", vec![Value::None], &[]), soon()).await.unwrap_err();
    assert_eq!(error, ToolError::Arguments("budget: takes no arguments".to_owned()));
}

// The proxy

#[tokio::test]
async fn a_chat_request_is_forwarded_to_the_model() {
    let recorder = Arc::new(Memory::default());
    let tool_calls = json!({"role": "assistant", "content": null, "tool_calls": [{"id": "c0"}]});
    let model = ScriptedModel::start([Rule::any().message(tool_calls.clone())]);
    let sub_llm = setup(&model)
        .with(|it| {
            it.options.sampling.insert("temperature".to_owned(), json!(0.5));
            it.options.sampling.insert("top_p".to_owned(), json!(0.9));
            it.options.system_prompt = Some("Not for the proxy.".to_owned());
            it.options.recorder = Some(Arc::clone(&recorder) as Arc<dyn Recorder>);
        })
        .start();
    let request = json!({
        "model": "huge",
        "messages": [{"role": "user", "content": "hi"}],
        "temperature": 0,
        "stream": false,
        "tools": [{"type": "function", "function": {"name": "f"}}],
        "_batch_id": "b1",
        "_request_id": "r1",
    });
    let answer = sub_llm.chat(request, soon()).await.unwrap();
    assert_eq!(answer["choices"][0]["message"], tool_calls);
    assert_eq!(answer["usage"]["total_tokens"], 15);
    let request = model.finish().remove(0);
    assert_eq!(request.header("x-request-id"), "r1");
    assert_eq!(
        request.body,
        json!({
            "model": "small",
            "messages": [{"role": "user", "content": "hi"}],
            "temperature": 0,
            "top_p": 0.9,
            "stream": false,
            "tools": [{"type": "function", "function": {"name": "f"}}],
        })
    );
    assert_eq!(sub_llm.ledger().snapshot().used.tokens, 15);
    let records = recorder.0.lock().unwrap();
    assert_eq!((records[0].batch_id.as_str(), records[0].request_id.as_str()), ("b1", "r1"));
}

#[tokio::test]
async fn a_chat_request_that_fails_has_a_status() {
    let messages = json!([{"role": "user", "content": "hi"}]);
    let model = ScriptedModel::start([
        Rule::on("400").status(400, "too long"),
        Rule::on("401").status(401, "bad key"),
        Rule::on("429").status(429, "slow down"),
        Rule::on("500").status(500, "oh"),
        Rule::on("html").body("<html>"),
        Rule::on("hang up").hang_up(),
        Rule::any(),
    ]);
    let sub_llm = setup(&model).start();
    let chat = async |prompt: &str| {
        let request = json!({"messages": [{"role": "user", "content": prompt}]});
        let error = sub_llm.chat(request, soon()).await.unwrap_err();
        (error.status(), error.to_string())
    };
    assert_eq!(chat("400").await, (400, "the model's server answered 400: too long".to_owned()));
    assert_eq!(chat("401").await, (502, "the model's server answered 401: bad key".to_owned()));
    assert_eq!(chat("429").await, (429, "the model's server answered 429: slow down".to_owned()));
    assert_eq!(chat("500").await, (502, "the model's server answered 500: oh".to_owned()));
    assert_eq!(chat("html").await.0, 502);
    assert_eq!(chat("hang up").await.0, 502);
    for (request, error) in [
        (json!([]), "the request must be a JSON object"),
        (json!({}), "messages are missing"),
        (json!({"messages": "hi"}), "messages must be a list"),
        (json!({"messages": []}), "messages must not be empty"),
        (
            json!({"messages": messages, "stream": true}),
            "stream is not supported: leave it out, or set it to false",
        ),
        (
            json!({"messages": messages, "_request_id": "a b"}),
            "_request_id must be a str of 1 to 128 printable ASCII characters without blanks",
        ),
    ] {
        let refused = sub_llm.chat(request, soon()).await.unwrap_err();
        assert_eq!((refused.status(), refused.to_string().as_str()), (400, error));
    }
    let late = sub_llm.chat(json!({"messages": messages}), Instant::now()).await.unwrap_err();
    assert_eq!(late.status(), 504);
    let sub_llm = setup(&model).with(|it| it.budget.calls = Some(0)).start();
    let poor = sub_llm.chat(json!({"messages": messages}), soon()).await.unwrap_err();
    assert_eq!((poor.status(), poor.to_string().as_str()), (402, "budget exhausted: no call of 0 is left"));
}

#[tokio::test]
async fn the_choices_that_a_chat_request_asks_for_are_all_within_the_budget() {
    let model = ScriptedModel::start([Rule::any()]);
    let sub_llm = setup(&model).with(|it| it.budget.completion_tokens = Some(1000)).start();
    let request = |choices: u64| json!({"messages": [{"content": "hi"}], "max_tokens": 400, "n": choices});
    sub_llm.chat(request(2), soon()).await.unwrap();
    let error = sub_llm.chat(request(3), soon()).await.unwrap_err().to_string();
    assert_eq!(error, "budget exhausted: the call may need 1200 completion tokens, 995 of 1000 are left");
    assert_eq!(model.finish().len(), 1);
}
