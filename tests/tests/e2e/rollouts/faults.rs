//! Failures around a rollout.

use rlm_rootd::Budget;

use super::*;

#[tokio::test]
async fn a_worker_that_dies_is_replaced_and_the_model_is_told() {
    let stage = Stage::new([bash("x=1; kill -9 $PPID; sleep 600"), answer("${x:-lost}")]).await;
    let (result, seen) = stage.run_as(|_| {}).await;
    assert_eq!(result.answer.as_deref(), Some("lost"), "{result:?}");
    assert!(
        seen.outputs()[0].contains("reset") || seen.outputs()[0].contains("lost"),
        "{:?}",
        seen.outputs()
    );
    stage.end().await;
}

#[tokio::test]
async fn a_worker_that_dies_again_and_again_ends_the_rollout_with_the_best_answer() {
    let stage = Stage::new([bash("RLM_CONTENT=some"), bash("kill -9 $PPID; sleep 600").times(2)]).await;
    let (result, _) = stage.run_as(|config| config.limits.max_restarts = 1).await;
    assert_eq!(result.stop_reason, StopReason::WorkerFailed);
    assert_eq!(result.answer.as_deref(), Some("some"));
    assert!(result.error.unwrap().contains("died"));
    stage.end().await;
}

#[tokio::test]
async fn a_worker_that_cannot_be_started_is_named() {
    let stage = Stage::new([]).await;
    let (result, _) = stage
        .run_as(|config| {
            config.language = ReplLanguage::Python;
            config.env.push(("RLM_PYTHON".into(), "/nowhere/python".into()));
        })
        .await;
    assert_eq!(result.stop_reason, StopReason::SetupFailed);
    assert!(result.error.as_ref().unwrap().contains("/nowhere/python"), "{result:?}");
    stage.end().await;
}

#[tokio::test]
async fn without_an_endpoint_for_root_tools_the_model_is_told_and_goes_on() {
    let bash = ["llm_batch 'judge: a'", "RLM_CONTENT=alone RLM_READY=1"];
    let python = ["llm_batch(['judge: a'])", "answer['content'] = 'alone'; answer['ready'] = True"];
    for (language, codes) in in_each(bash, python) {
        let stage = Stage::new(codes.map(|code| call(language, code))).await;
        let (mut config, seen) = stage.rollout("one");
        config.language = language;
        let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        config.env.push(("RLM_ROOT_TOOL_URL".into(), format!("http://{closed}/tools").into()));
        let result = stage.run(config).await;
        assert_eq!(result.answer.as_deref(), Some("alone"), "{result:?}");
        assert!(seen.outputs()[0].contains(&closed.to_string()), "{:?}", seen.outputs());
        assert_eq!(result.metrics.sub_llm_call_count, 0);
        stage.end().await;
    }
}

#[tokio::test]
async fn passing_faults_of_the_models_server_are_retried() {
    let stage = Stage::new([
        Rule::any().status(429, "slow down").once(),
        Rule::any().status(500, "oops").once(),
        Rule::any().hang_up().once(),
        Rule::any().body("garbage").once(),
        answer("fine"),
    ])
    .await;
    let (result, _) = stage.run_as(|_| {}).await;
    assert_eq!(result.answer.as_deref(), Some("fine"), "{result:?}");
    assert_eq!(result.metrics.root_llm_turns, 1);
    stage.end().await;
}

#[tokio::test]
async fn lasting_faults_of_the_models_server_end_the_rollout_and_are_named() {
    for (fault, words) in [
        (Rule::any().status(500, "out of order"), "out of order"),
        (Rule::any().status(401, "who are you"), "who are you"),
        (Rule::any().body("{\"choices\": []}"), "choices are empty"),
        (Rule::any().body("garbage"), "garbage"),
        (Rule::any().hang_up(), "broke"),
    ] {
        let stage = Stage::new([bash("RLM_CONTENT=some"), fault]).await;
        let (result, _) = stage.run_as(|_| {}).await;
        assert_eq!(result.stop_reason, StopReason::ModelFailed, "{words}");
        assert_eq!(result.answer.as_deref(), Some("some"));
        assert!(result.error.as_ref().unwrap().contains(words), "{result:?}");
        stage.end().await;
    }
}

#[tokio::test]
async fn a_budget_that_broken_requests_use_up_names_the_fault_and_is_an_estimate() {
    let stage = Stage::new([Rule::any().hang_up()]).await;
    let (result, _) =
        stage.run_as(|config| config.limits.budget = Budget { calls: Some(2), ..Budget::default() }).await;
    assert_eq!(result.stop_reason, StopReason::ModelFailed, "{result:?}");
    assert!(result.error.as_ref().unwrap().contains("broke"), "{result:?}");
    assert!(result.metrics.usage_estimated && result.metrics.root_llm_prompt_tokens > 0, "{result:?}");
    stage.end().await;
}

#[tokio::test]
async fn a_model_with_an_empty_reply_is_reminded() {
    let stage = Stage::new([Rule::any().reply("").once(), answer("well")]).await;
    let (result, seen) = stage.run_as(|_| {}).await;
    assert_eq!(result.answer.as_deref(), Some("well"));
    assert_eq!(seen.notices().len(), 1);
    stage.end().await;
}

#[tokio::test]
async fn a_taken_or_invalid_id_is_refused() {
    let stage = Stage::new([answer("a")]).await;
    let (config, _) = stage.rollout("../one");
    let result = stage.run(config).await;
    assert_eq!(result.stop_reason, StopReason::SetupFailed);
    let (mut config, _) = stage.rollout("one");
    let kept = tempfile::tempdir().unwrap();
    config.keep = Some(kept.path().to_owned());
    assert_eq!(stage.run(config.clone()).await.stop_reason, StopReason::Answered);
    let again = stage.run(config).await;
    assert_eq!(again.stop_reason, StopReason::SetupFailed);
    assert!(again.error.unwrap().contains("one"));
    assert!(kept.path().join("one/rlm_fs").is_dir());
    stage.end().await;
}

#[tokio::test]
async fn a_control_directory_that_code_destroys_is_repaired() {
    for destroy in [
        "rm -rf ../rlm_control",
        "cd ../rlm_control; for file in *; do rm -f $file; mkdir -p $file/in; done",
        "cd ../rlm_control; for file in *; do mv $file $file.old; mkfifo $file; mkfifo $file.new; done",
        "cd ../rlm_control; rm rlm_worker.log; mkfifo rlm_worker.log",
        "chmod 000 ../rlm_control",
    ] {
        let stage = Stage::new([
            bash(&format!("RLM_CONTENT=some; {destroy}; kill -9 $PPID; sleep 600")),
            answer("more"),
        ])
        .await;
        let (result, _) = stage.run_as(|_| {}).await;
        let found = (result.stop_reason, result.answer.as_deref());
        assert_eq!(found, (StopReason::Answered, Some("more")), "{destroy}: {result:?}");
        stage.end().await;
    }
}

#[tokio::test]
async fn workers_that_do_not_start_any_more_are_not_waited_for_beyond_the_rollouts_time() {
    // A bash that never reports that it is ready.
    let stage = Stage::new([bash("RLM_CONTENT=some"), bash("kill -9 $PPID; sleep 600")]).await;
    let (mut config, _) = stage.rollout("one");
    let dir = tempfile::tempdir().unwrap();
    let slow = dir.path().join("bash");
    std::os::unix::fs::symlink("/bin/bash", &slow).unwrap();
    config.env.push(("RLM_BASH".into(), slow.clone().into()));
    config.limits.timeout = Some(Duration::from_secs(4));
    let swap = {
        let seen = Arc::new(Swap(slow));
        config.sinks.push(seen.clone());
        seen
    };
    let result = stage.run(config).await;
    assert_eq!(result.answer.as_deref(), Some("some"), "{result:?}");
    assert_eq!(result.stop_reason, StopReason::TimedOut, "{result:?}");
    drop(swap);
    stage.end().await;
}

/// Replaces bash by a program that does nothing, once a call has started.
#[derive(Debug)]
struct Swap(std::path::PathBuf);

impl Sink for Swap {
    fn entry(&self, entry: &Entry) {
        if matches!(entry.event, Event::CallStarted(_)) {
            std::fs::remove_file(&self.0).unwrap();
            rlm_tests::write_program(&self.0, "#!/bin/sh\nexec sleep 600\n");
        }
    }
}

#[tokio::test]
async fn a_rate_limit_is_not_taken_for_a_conversation_that_is_too_long() {
    for (status, words) in [(429, "40,000 input tokens per minute"), (401, "the key is too long")] {
        let stage = Stage::new([Rule::any().status(status, words)]).await;
        let (result, _) = stage.run_as(|_| {}).await;
        assert_eq!(result.stop_reason, StopReason::ModelFailed, "{result:?}");
        stage.end().await;
    }
}

#[tokio::test]
async fn absurd_numbers_of_tokens_do_no_harm() {
    for tokens in [1 << 62, u64::MAX] {
        let stage = Stage::new([
            bash("RLM_CONTENT=some").usage(tokens, tokens),
            bash("RLM_CONTENT=more").usage(tokens, tokens),
        ])
        .await;
        let (result, _) = stage
            .run_as(|config| {
                config.limits.context_tokens = Some(400_000_000_000_000_000);
                config.limits.call_timeout = Duration::from_secs(1 << 60);
                config.limits.max_turns = 2;
            })
            .await;
        assert_eq!(result.answer.as_deref(), Some("more"), "{result:?}");
        stage.end().await;
    }
}
