//! Limits that end a rollout, and its result then.

use rlm_env::StopReason;

use super::*;

#[tokio::test]
async fn an_answer_in_the_last_turn_is_an_answer() {
    let stage = Stage::new([bash("echo one"), answer("two")]).await;
    let (mut config, seen) = stage.rollout("one");
    config.limits.max_turns = 2;
    let result = stage.run(config).await;
    assert_eq!((result.stop_reason, result.answer.as_deref()), (StopReason::Answered, Some("two")));
    assert_eq!(seen.notices().len(), 1, "the last turn is announced");
    stage.end().await;
}

#[tokio::test]
async fn without_a_final_answer_the_best_so_far_is_the_result() {
    let stage = Stage::new([bash("RLM_CONTENT=first"), bash("RLM_CONTENT=better")]).await;
    let (mut config, _) = stage.rollout("one");
    config.limits.max_turns = 2;
    let result = stage.run(config).await;
    assert_eq!(result.stop_reason, StopReason::MaxTurns);
    assert_eq!((result.answer.as_deref(), result.answer_ready), (Some("better"), false));
    assert_eq!(result.metrics.root_llm_turns, 2);
    stage.end().await;
}

#[tokio::test]
async fn a_call_that_times_out_keeps_its_state_and_the_rollout_goes_on() {
    for language in [ReplLanguage::Bash, ReplLanguage::Python] {
        let codes = match language {
            ReplLanguage::Bash => ["x=7; echo begun; sleep 600", "RLM_CONTENT=$x RLM_READY=1"],
            ReplLanguage::Python => [
                "import time; x = 7; print('begun', flush=True); time.sleep(600)",
                "answer['content'] = str(x); answer['ready'] = True",
            ],
        };
        let stage = Stage::new(codes.map(|code| call(language, code))).await;
        let (mut config, seen) = stage.rollout("one");
        config.language = language;
        config.limits.call_timeout = Duration::from_millis(700);
        let result = stage.run(config).await;
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
    let (mut config, seen) = stage.rollout("one");
    config.limits.timeout = Some(Duration::from_secs(3));
    let result = stage.run(config).await;
    assert_eq!(
        (result.stop_reason, result.answer.as_deref()),
        (StopReason::Answered, Some("all")),
        "{result:?}"
    );
    assert!(seen.outputs()[0].contains("timed out"));
    assert_eq!(seen.notices().len(), 1);
    stage.end().await;
}

#[tokio::test]
async fn a_model_that_is_too_slow_leaves_the_best_answer() {
    let gate = rlm_tests::scripted_model::Gate::shut();
    let stage = Stage::new([bash("RLM_CONTENT=some"), Rule::any().after(&gate)]).await;
    let (mut config, _) = stage.rollout("one");
    config.limits.timeout = Some(Duration::from_secs(2));
    let result = stage.run(config).await;
    assert_eq!(
        (result.stop_reason, result.answer.as_deref()),
        (StopReason::TimedOut, Some("some")),
        "{result:?}"
    );
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
    let (mut config, seen) = stage.rollout("one");
    config.limits.budget.tokens = Some(30_000);
    config.limits.max_completion_tokens = Some(1000);
    config.sub_llm.parallelism = 64;
    config.sub_llm.sampling.insert("max_tokens".to_owned(), json!(500));
    let result = stage.run(config).await;
    assert_eq!(
        (result.stop_reason, result.answer.as_deref()),
        (StopReason::Answered, Some("rest")),
        "{result:?}"
    );
    assert!(seen.outputs()[0].trim_end().parse::<u32>().unwrap() > 0, "{:?}", seen.outputs());
    let metrics = &result.metrics;
    let spent = metrics.root_llm_prompt_tokens
        + metrics.root_llm_completion_tokens
        + metrics.sub_llm_prompt_tokens
        + metrics.sub_llm_completion_tokens;
    assert!(spent <= 30_000 && spent > 20_000, "{metrics:?}");
    stage.end().await;
}

#[tokio::test]
async fn a_spent_budget_ends_the_rollout_with_the_best_answer() {
    let stage = Stage::new([bash("RLM_CONTENT=some").usage(9000, 900)]).await;
    let (mut config, _) = stage.rollout("one");
    config.limits.budget.tokens = Some(10_000);
    config.limits.max_completion_tokens = Some(900);
    let result = stage.run(config).await;
    assert_eq!(result.stop_reason, StopReason::BudgetExhausted);
    assert_eq!(result.answer.as_deref(), Some("some"));
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
    let (mut config, seen) = stage.rollout("one");
    config.limits.context_tokens = Some(10_000);
    let result = stage.run(config).await;
    assert_eq!(
        (result.stop_reason, result.answer.as_deref()),
        (StopReason::Answered, Some("all")),
        "{result:?}"
    );
    assert_eq!(seen.notices().len(), 2, "{:?}", seen.notices());
    stage.end().await;
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
    let (config, _) = stage.rollout("one");
    let result = stage.run(config).await;
    assert_eq!(
        (result.stop_reason, result.answer.as_deref()),
        (StopReason::Answered, Some("all")),
        "{result:?}"
    );
    let requests = stage.root_requests();
    let length = |at: usize| requests[at]["messages"].to_string().len();
    assert!(length(3) + 5000 < length(2), "{} {}", length(3), length(2));
    stage.end().await;
}

#[tokio::test]
async fn a_conversation_that_is_refused_twice_ends_with_the_best_answer() {
    let stage =
        Stage::new([bash("RLM_CONTENT=some"), Rule::any().status(413, "request too large").times(2)]).await;
    let (config, _) = stage.rollout("one");
    let result = stage.run(config).await;
    assert_eq!(
        (result.stop_reason, result.answer.as_deref()),
        (StopReason::ContextFull, Some("some")),
        "{result:?}"
    );
    stage.end().await;
}

#[tokio::test]
async fn a_budget_that_no_turn_fits_into_says_so() {
    let stage = Stage::new([]).await;
    let (mut config, _) = stage.rollout("one");
    config.limits.budget.tokens = Some(100);
    let result = stage.run(config).await;
    assert_eq!((result.stop_reason, &result.answer), (StopReason::BudgetExhausted, &None));
    assert!(result.error.as_ref().unwrap().contains("of 100 are left"), "{result:?}");
    stage.end().await;
}
