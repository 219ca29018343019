//! Limits that end a rollout, and its result then.

use rlm_rootd::Budget;

use super::*;

#[tokio::test]
async fn an_answer_in_the_last_turn_is_an_answer() {
    let stage = Stage::new([bash("echo one"), answer("two")]).await;
    let (result, seen) = stage.run_as(|config| config.limits.max_turns = 2).await;
    ended(&result, StopReason::Answered, "two");
    assert_eq!(seen.notices().len(), 1, "the last turn is announced");
    stage.end().await;
}

#[tokio::test]
async fn without_a_final_answer_the_best_so_far_is_the_result() {
    let stage = Stage::new([bash("RLM_CONTENT=first"), bash("RLM_CONTENT=better")]).await;
    let (result, _) = stage.run_as(|config| config.limits.max_turns = 2).await;
    assert_eq!(result.stop_reason, StopReason::MaxTurns);
    assert_eq!((result.answer.as_deref(), result.answer_ready), (Some("better"), false));
    assert_eq!(result.metrics.root_llm_turns, 2);
    stage.end().await;
}

#[tokio::test]
async fn a_call_that_times_out_keeps_its_state_and_the_rollout_goes_on() {
    let bash = ["x=7; echo begun; sleep 600", "RLM_CONTENT=$x RLM_READY=1"];
    let python = [
        "import time; x = 7; print('begun', flush=True); time.sleep(600)",
        "answer['content'] = str(x); answer['ready'] = True",
    ];
    for (language, codes) in in_each(bash, python) {
        let stage = Stage::new(codes.map(|code| call(language, code))).await;
        let (result, seen) = stage
            .run_as(|config| {
                config.language = language;
                config.limits.call_timeout = Duration::from_millis(700);
            })
            .await;
        assert_eq!(result.answer.as_deref(), Some("7"), "{result:?}");
        assert_eq!(result.metrics.repl_timeout_count, 1);
        let output = &seen.outputs()[0];
        assert!(output.contains("begun") && output.contains("timed out"), "{output}");
        stage.end().await;
    }
}

#[tokio::test]
async fn the_time_of_a_rollout_ends_with_a_last_turn() {
    let stage = Stage::new([bash("RLM_CONTENT=some; sleep 600"), answer("all")]).await;
    let (result, seen) = stage.run_as(|config| config.limits.timeout = Some(Duration::from_secs(3))).await;
    ended(&result, StopReason::Answered, "all");
    assert!(seen.outputs()[0].contains("timed out"));
    assert_eq!(seen.notices().len(), 1);
    stage.end().await;
}

#[tokio::test]
async fn a_model_that_is_too_slow_leaves_the_best_answer() {
    let gate = rlm_tests::scripted_model::Gate::shut();
    let stage = Stage::new([bash("RLM_CONTENT=some"), Rule::any().after(&gate)]).await;
    let (result, _) = stage.run_as(|config| config.limits.timeout = Some(Duration::from_secs(2))).await;
    ended(&result, StopReason::TimedOut, "some");
    gate.open();
    stage.end().await;
}

#[tokio::test]
async fn sub_llms_cannot_use_the_tokens_of_the_last_turn() {
    // The sub-LLM would use up everything.
    let work =
        "for i in $(seq 80); do echo judge $i; done | llm_batch --lines > replies; grep -c Error replies";
    let stage = Stage::new([
        Rule::on("judge").reply("yes").usage(10, 450),
        bash(work).usage(2000, 50),
        answer("rest").usage(2000, 50),
    ])
    .await;
    let (result, seen) = stage
        .run_as(|config| {
            config.limits.budget.tokens = Some(30_000);
            config.limits.max_completion_tokens = Some(1000);
            config.sub_llm.parallelism = 64;
            config.sub_llm.sampling.insert("max_tokens".to_owned(), json!(500));
        })
        .await;
    ended(&result, StopReason::Answered, "rest");
    assert!(seen.outputs()[0].trim_end().parse::<u32>().unwrap() > 0, "{:?}", seen.outputs());
    let metrics = &result.metrics;
    let spent = metrics.root_llm_prompt_tokens
        + metrics.root_llm_completion_tokens
        + metrics.sub_llm_prompt_tokens
        + metrics.sub_llm_completion_tokens;
    assert!(spent <= 30_000 && spent > 20_000, "{metrics:?}");
    stage.end().await;
}

/// The amount kept for it is what it may cost after the reply, not what was expected before.
#[tokio::test]
async fn long_replies_and_outputs_leave_a_last_turn() {
    let spends = "for i in $(seq 80); do echo judge $i; done | llm_batch --lines > replies; seq 1 900";
    for code in [spends.to_owned(), format!("{spends}; : {}", "word ".repeat(900))] {
        let stage = Stage::new([
            Rule::on("judge").reply("yes").usage(10, 450),
            bash(&code).usage(2000, code.len() as u64 / 5),
            answer("rest").usage(4000, 50),
        ])
        .await;
        let (result, seen) = stage
            .run_as(|config| {
                config.limits.budget.tokens = Some(20_000);
                config.limits.max_completion_tokens = Some(1000);
                config.sub_llm.sampling.insert("max_tokens".to_owned(), json!(500));
            })
            .await;
        let ended = (result.stop_reason, result.answer.as_deref());
        assert_eq!(ended, (StopReason::Answered, Some("rest")), "{result:?}");
        assert_eq!(seen.notices().len(), 1, "the code has spent the rest");
        stage.end().await;
    }
}

#[tokio::test]
async fn a_spent_budget_ends_the_rollout_with_the_best_answer() {
    let stage = Stage::new([bash("RLM_CONTENT=some").usage(9000, 899)]).await;
    let (result, seen) = stage
        .run_as(|config| {
            config.limits.budget.tokens = Some(10_000);
            config.limits.max_completion_tokens = Some(900);
        })
        .await;
    assert_eq!(result.stop_reason, StopReason::BudgetExhausted);
    assert_eq!(result.answer.as_deref(), Some("some"));
    assert_eq!(seen.notices(), [""; 0], "a last turn that cannot be is not announced");
    stage.end().await;
}

#[tokio::test]
async fn a_growing_conversation_gets_one_warning_and_then_ends() {
    let stage = Stage::new([
        bash("echo 1").usage(7000, 500),
        bash("RLM_CONTENT=some").usage(7700, 100),
        bash("echo 3").usage(9200, 100),
        answer("all"),
    ])
    .await;
    let bounded = |config: &mut RolloutConfig| {
        config.limits.context_tokens = Some(10_000);
        config.limits.max_completion_tokens = Some(4096);
    };
    let (result, seen) = stage.run_as(bounded).await;
    ended(&result, StopReason::Answered, "all");
    assert_eq!(seen.notices().len(), 2, "{:?}", seen.notices());
    // A completion is no longer than what the window has room for, until the conversation is cut for the last turn.
    let requests = stage.root_requests();
    let bounds: Vec<_> = requests.iter().map(|request| request["max_tokens"].as_u64().unwrap()).collect();
    assert_eq!(bounds[0], 4096);
    for (bound, taken) in bounds[1..].iter().zip([7500, 7800]) {
        assert!((256..=10_000 - taken).contains(bound), "{bounds:?}");
    }
    stage.end().await;
}

/// A completion that would have less room than the thinking has reached the limit.
#[tokio::test]
async fn a_bound_is_above_the_tokens_that_a_model_may_think_with_or_it_does_not_think() {
    let thinking = |config: &mut RolloutConfig| {
        let thinking = json!({"type": "enabled", "budget_tokens": 3000});
        config.sampling.insert("thinking".to_owned(), thinking);
        config.limits.max_completion_tokens = Some(6000);
    };
    for (context_tokens, budget) in [(Some(10_000), None), (None, Some(12_000))] {
        let stage = Stage::new([bash("RLM_CONTENT=some").usage(6500, 400).once(), answer("all")]).await;
        let (result, seen) = stage
            .run_as(|config| {
                thinking(config);
                config.limits.context_tokens = context_tokens;
                config.limits.budget.tokens = budget;
            })
            .await;
        ended(&result, StopReason::Answered, "all");
        assert_eq!(seen.notices().len(), 1, "{result:?}");
        for request in stage.root_requests() {
            let bound = request["max_tokens"].as_u64().unwrap();
            assert!(bound > 3000 || request.get("thinking").is_none(), "{bound}");
        }
        stage.end().await;
    }
}

#[tokio::test]
async fn a_conversation_that_the_model_refuses_is_shortened_for_a_last_turn() {
    let too_long = "This model's maximum context length is 4096 tokens";
    let stage = Stage::new([
        bash("seq 3000"),
        bash("RLM_CONTENT=some"),
        Rule::any().status(400, too_long).once(),
        answer("all"),
    ])
    .await;
    let (result, _) = stage.run_as(|_| {}).await;
    ended(&result, StopReason::Answered, "all");
    let requests = stage.root_requests();
    let length = |at: usize| requests[at]["messages"].to_string().len();
    assert!(length(3) + 5000 < length(2), "{} {}", length(3), length(2));
    stage.end().await;
}

#[tokio::test]
async fn a_conversation_that_is_refused_twice_ends_with_the_best_answer() {
    let stage =
        Stage::new([bash("RLM_CONTENT=some"), Rule::any().status(413, "request too large").times(2)]).await;
    let (result, _) = stage.run_as(|_| {}).await;
    ended(&result, StopReason::ContextFull, "some");
    stage.end().await;
}

#[tokio::test]
async fn a_budget_that_no_turn_fits_into_says_so_and_what_would_do() {
    for (budget, words) in [
        (
            Budget { tokens: Some(100), ..Budget::default() },
            "tokens, 100 of 100 are left; a few turns may need ",
        ),
        (
            Budget { cost_usd: Some(0.01), ..Budget::default() },
            "USD, 0.01 of 0.01 USD are left; a few turns may need ",
        ),
    ] {
        let stage = Stage::new([]).await;
        let (result, _) = stage.run_as(|config| config.limits.budget = budget).await;
        assert_eq!((result.stop_reason, &result.answer), (StopReason::BudgetExhausted, &None));
        let error = result.error.unwrap();
        assert!(
            error.starts_with("the budget is too small to begin with: ") && error.contains(words),
            "{error}"
        );
        assert!(error.ends_with(" USD"), "{error}");
        stage.end().await;
    }
}

/// A rollout of three turns and two sub-calls, whose tokens are these.
fn three_turns() -> [Rule; 4] {
    [
        Rule::on("judge").reply("yes").usage(60, 10),
        bash("RLM_CONTENT=some; seq 100").usage(1500, 100),
        bash("llm_batch 'judge: a' 'judge: b'").usage(1900, 150),
        answer("all").usage(2200, 60),
    ]
}

const PROMPTS: f64 = 1500.0 + 1900.0 + 2200.0 + 2.0 * 60.0;
const COMPLETIONS: f64 = 100.0 + 150.0 + 60.0 + 2.0 * 10.0;

#[tokio::test]
async fn a_rollout_that_needs_half_of_its_budget_finishes_and_none_overspends() {
    for (prompt, completion) in [(10.0, 30.0), (3.0, 15.0), (0.15, 0.6)] {
        let prices = format!(
            "[models.root]\nprompt = {prompt}\ncompletion = {completion}\n\
             [models.sub]\nprompt = {prompt}\ncompletion = {completion}\n"
        );
        let cost = (prompt * PROMPTS + completion * COMPLETIONS) / 1e6;
        for (times, limit) in
            [0.5, 1.0, 2.0, 4.0, 10.0].into_iter().flat_map(|times| [(times, None), (times, Some(500))])
        {
            let stage = Stage::with_prices(&prices, three_turns()).await;
            let (result, seen) = stage
                .run_as(|config| {
                    config.limits.budget.cost_usd = Some(cost * times);
                    config.limits.max_completion_tokens = limit;
                })
                .await;
            let case = format!("{prompt} {completion} {times} {limit:?}: {result:?}\n{:?}", seen.outputs());
            assert!(result.metrics.cost_usd.unwrap() <= cost * times, "{case}");
            if times >= 2.0 {
                assert_eq!(result.stop_reason, StopReason::Answered, "{case}");
                assert_eq!(seen.outputs()[1], "yes\nyes\n", "{case}");
                // With a budget of twice the cost, the third turn may be announced as the last one.
                assert!(seen.notices().is_empty() || times < 4.0, "{case}");
            } else if result.stop_reason != StopReason::Answered {
                assert_eq!(result.stop_reason, StopReason::BudgetExhausted, "{case}");
                assert!(result.error.unwrap().contains("USD are left"), "{case}");
            }
            stage.end().await;
        }
    }
}

#[tokio::test]
async fn a_budget_counts_what_a_cache_saves() {
    const PRICE: f64 = 10.0;
    let price = |model: &str| format!("[models.{model}]\nprompt = {PRICE}\ncompletion = 30\ncached = 1\n");
    // Each turn's prompt has that of the turn before, which the cache has.
    let cost = (PRICE * (3000.0 + 300.0 + 300.0) + (3000.0 + 3300.0) + 30.0 * (100.0 + 100.0 + 60.0)) / 1e6;
    for times in [0.5, 1.0, 2.0, 4.0] {
        let rules = [
            bash("RLM_CONTENT=some; echo one").usage(3000, 100).cached(0),
            bash("echo two").usage(3300, 100).cached(3000),
            answer("all").usage(3600, 60).cached(3300),
        ];
        let stage = Stage::with_prices(&(price("root") + &price("sub")), rules).await;
        let (result, seen) = stage.run_as(|config| config.limits.budget.cost_usd = Some(cost * times)).await;
        let case = format!("{times}: {result:?}\n{:?}", seen.outputs());
        assert!(result.metrics.cost_usd.unwrap() <= cost * times + 1e-9, "{case}");
        if times >= 2.0 {
            assert_eq!(result.stop_reason, StopReason::Answered, "{case}");
            assert!((result.metrics.cost_usd.unwrap() - cost).abs() < 1e-9, "{case}");
            assert_eq!(
                (result.metrics.root_llm_turns, result.metrics.root_llm_cached_tokens),
                (3, 6300),
                "{case}"
            );
        }
        stage.end().await;
    }
}

#[tokio::test]
async fn a_short_rollout_may_use_most_of_its_budget() {
    for tokens in [4500, 5400, 9000] {
        let rules = [bash("echo one").usage(1300, 40), answer("all").usage(1400, 40)];
        let stage = Stage::new(rules).await;
        let (result, seen) = stage.run_as(|config| config.limits.budget.tokens = Some(tokens)).await;
        assert_eq!(result.answer.as_deref(), Some("all"), "{tokens}: {result:?}\n{:?}", seen.notices());
        stage.end().await;
    }
}

#[tokio::test]
async fn a_completion_is_bounded_by_what_is_left() {
    let stage = Stage::new(three_turns()).await;
    let (result, _) = stage.run_as(|config| config.limits.budget.completion_tokens = Some(2000)).await;
    assert_eq!(result.stop_reason, StopReason::Answered, "{result:?}");
    // All but what the last turn may need; then all but that and the first completion.
    let bounds: Vec<_> =
        stage.root_requests().iter().map(|body| body["max_tokens"].as_u64().unwrap()).collect();
    assert_eq!(bounds, [2000 - 256, 2000 - 100 - 256, 2000 - 250 - 20 - 300]);
    stage.end().await;
}
