//! Differences between servers of models: they stream, refuse tools, ask to wait.

use rlm_env::trajectory::ModelCall;

use super::*;

/// The events without ids and times.
fn comparable(seen: &Seen) -> Vec<Value> {
    let without_time = |event: Event| {
        let mut event = serde_json::to_value(event).unwrap();
        for field in ["seconds", "request_id", "batch_id", "output", "metrics"] {
            event.as_object_mut().unwrap().remove(field);
        }
        event
    };
    seen.events().into_iter().map(without_time).collect()
}

#[tokio::test]
async fn a_trajectory_is_the_same_in_pieces_and_whole() {
    let mut trajectories = Vec::new();
    for streams in [true, false] {
        let as_sent = |rule: Rule| if streams { rule.in_pieces() } else { rule };
        let look = call(ReplLanguage::Bash, "llm_batch 'judge: a'; ls");
        let answer = call(ReplLanguage::Bash, "RLM_CONTENT=é3 RLM_READY=1");
        let rules = [Rule::on("judge").reply("yes, 5"), Rule::any().reply("Hm, 2.").once(), look, answer];
        let stage = Stage::new(rules.map(as_sent)).await;
        let (result, seen) = stage.run_as(|_| {}).await;
        ended(&result, StopReason::Answered, "é3");
        assert!(!result.metrics.usage_estimated);
        assert!(stage.root_requests().iter().all(|body| body["stream"] == true));
        trajectories.push((comparable(&seen), result.metrics.cost_usd, result.metrics.sub_llm_prompt_tokens));
        stage.end().await;
    }
    assert_eq!(trajectories[0], trajectories[1]);
}

#[tokio::test]
async fn a_server_that_refuses_tools_is_asked_for_code_in_text() {
    let refusals = [
        (400, "\"auto\" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set"),
        (400, "registry.ollama.ai/library/small does not support tools"),
        (404, "No endpoints found that support tool use"),
    ];
    for (status, refusal) in refusals {
        let refusal = Rule::any().status(status, refusal).once();
        let in_text = Rule::any().reply("So:\n```bash\nRLM_CONTENT=7 RLM_READY=1\n```");
        let stage = Stage::new([refusal, in_text]).await;
        let (result, seen) = stage.run_as(|_| {}).await;
        assert_eq!(result.stop_reason, StopReason::Answered, "{result:?}");
        assert_eq!((result.answer.as_deref(), result.metrics.root_llm_turns), (Some("7"), 1));
        let (prompts, form) = (seen.texts(MessageKind::System), "To run code, write one block");
        assert_eq!(prompts.len(), 2, "the second one replaces the first");
        assert!(!prompts[0].contains(form) && prompts[1].contains(form), "{}", prompts[1]);
        let errors: Vec<_> = seen
            .events()
            .into_iter()
            .filter_map(|event| {
                if let Event::ModelCall(ModelCall { error, .. }) = event { Some(error) } else { None }
            })
            .collect();
        assert!(errors[0].is_some() && errors[1].is_none(), "{errors:?}");
        // The next rollout begins with it.
        let (config, seen) = stage.rollout("two");
        assert_eq!(stage.run(config).await.answer.as_deref(), Some("7"));
        assert_eq!(seen.texts(MessageKind::System), [&prompts[1][..]]);
        let requests = stage.root_requests();
        let has_tools: Vec<_> = requests.iter().map(|body| body.get("tools").is_some()).collect();
        assert_eq!(has_tools, [true, false, false]);
        let begins: Vec<_> =
            requests.iter().map(|body| body["messages"][0]["content"] == prompts[1]).collect();
        assert_eq!(begins, [false, true, true]);
        stage.end().await;
    }
}

#[tokio::test]
async fn a_request_that_is_sent_again_is_logged_with_its_reason() {
    let busy = Rule::any().status(429, "slow down").header("retry-after", "0.05").times(2);
    let stage = Stage::new([busy, call(ReplLanguage::Bash, "RLM_READY=1 RLM_CONTENT=1")]).await;
    let (config, seen) = stage.rollout("one");
    assert_eq!(stage.run(config).await.stop_reason, StopReason::Answered);
    let retries: Vec<_> = seen
        .events()
        .into_iter()
        .filter_map(|event| if let Event::ModelRetry(retry) = event { Some(retry) } else { None })
        .collect();
    assert_eq!(retries.len(), 2);
    for retry in retries {
        assert_eq!((retry.turn, &retry.error[..]), (1, "the model's server answered 429: slow down"));
        assert!((0.05..1.0).contains(&retry.wait_seconds), "{retry:?}");
    }
    stage.end().await;
}
