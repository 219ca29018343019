//! What breaks around a rollout.

use rlm_env::StopReason;

use super::*;

#[tokio::test]
async fn a_worker_that_dies_is_replaced_and_the_model_is_told() {
    let stage = Stage::new([bash("x=1; kill -9 $PPID; sleep 600"), answer("${x:-lost}")]).await;
    let (config, seen) = stage.rollout("one");
    let result = stage.run(config).await;
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
    let (mut config, _) = stage.rollout("one");
    config.limits.max_restarts = 1;
    let result = stage.run(config).await;
    assert_eq!(result.stop_reason, StopReason::WorkerFailed);
    assert_eq!(result.answer.as_deref(), Some("some"));
    assert!(result.error.unwrap().contains("died"));
    stage.end().await;
}

#[tokio::test]
async fn a_worker_that_cannot_be_started_is_named() {
    let stage = Stage::new([]).await;
    let (mut config, _) = stage.rollout("one");
    config.language = ReplLanguage::Python;
    config.env.push(("RLM_PYTHON".into(), "/nowhere/python".into()));
    let result = stage.run(config).await;
    assert_eq!(result.stop_reason, StopReason::SetupFailed);
    assert!(result.error.as_ref().unwrap().contains("/nowhere/python"), "{result:?}");
    stage.end().await;
}

#[tokio::test]
async fn without_an_endpoint_for_root_tools_the_model_is_told_and_goes_on() {
    for language in [ReplLanguage::Bash, ReplLanguage::Python] {
        let codes = match language {
            ReplLanguage::Bash => ["llm_batch 'judge: a'", "RLM_CONTENT=alone RLM_READY=1"],
            ReplLanguage::Python => {
                ["llm_batch(['judge: a'])", "answer['content'] = 'alone'; answer['ready'] = True"]
            }
        };
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
    let (config, _) = stage.rollout("one");
    let result = stage.run(config).await;
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
        let (config, _) = stage.rollout("one");
        let result = stage.run(config).await;
        assert_eq!(result.stop_reason, StopReason::ModelFailed, "{words}");
        assert_eq!(result.answer.as_deref(), Some("some"));
        assert!(result.error.as_ref().unwrap().contains(words), "{result:?}");
        stage.end().await;
    }
}

#[tokio::test]
async fn a_model_that_says_nothing_is_reminded() {
    let stage = Stage::new([Rule::any().reply("").once(), answer("well")]).await;
    let (config, seen) = stage.rollout("one");
    let result = stage.run(config).await;
    assert_eq!(result.answer.as_deref(), Some("well"));
    assert_eq!(seen.notices().len(), 1);
    stage.end().await;
}

#[tokio::test]
async fn an_id_that_is_taken_or_no_name_is_refused() {
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
