//! Rollouts that take several questions.

use rlm_tests::scripted_model::Gate;

use super::*;

/// The roles of the messages in a request.
fn roles(request: &Value) -> Vec<&str> {
    request["messages"].as_array().unwrap().iter().map(|said| said["role"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn the_session_the_conversation_and_the_budget_go_on() {
    let bash = [
        "n=6; RLM_CONTENT=$n RLM_READY=1",
        "echo \"[$RLM_READY$RLM_CONTENT]\"",
        "RLM_CONTENT=$((n * 7)); RLM_READY=1",
    ];
    let python = [
        "n = 6; answer['content'] = str(n); answer['ready'] = True",
        "print([answer['content'], answer['ready']])",
        "answer['content'] = str(n * 7); answer['ready'] = True",
    ];
    for (language, codes) in in_each(bash, python) {
        let stage = Stage::new(codes.map(|code| call(language, code))).await;
        let (mut config, seen) = stage.rollout("one");
        config.language = language;
        config.limits.max_turns = 2;
        let control = Control::new();
        let mut rollout = stage.host.begin(&config, &control).await.unwrap();
        let one = rollout.answer(&control).await;
        assert_eq!((one.question.as_str(), one.answer.as_deref()), ("How many?", Some("6")));
        assert_eq!((one.stop_reason, one.answer_ready), (StopReason::Answered, true));
        let two = rollout.ask("And seven times?", &control).await;
        assert_eq!(
            (two.question.as_str(), two.answer.as_deref()),
            ("And seven times?", Some("42")),
            "{two:?}"
        );
        assert_eq!(two.stop_reason, StopReason::Answered);
        assert_eq!((one.metrics.root_llm_turns, two.metrics.root_llm_turns), (1, 3));
        let end = rollout.end().await;
        assert_eq!((end.answer.as_deref(), end.stop_reason), (Some("42"), StopReason::Answered));
        // The answer of the first question is not there any more.
        let cleared = if language == ReplLanguage::Bash { "[]" } else { "['', False]" };
        assert_eq!(seen.outputs()[1].trim_end(), cleared);
        let requests = stage.root_requests();
        let before = requests[0]["messages"].as_array().unwrap();
        let later = requests[2]["messages"].as_array().unwrap();
        assert_eq!(later[..before.len()], before[..], "earlier messages stay as they are");
        assert_eq!(
            roles(&requests[1]),
            ["system", "user", "assistant", "tool", "user"],
            "no message but the question"
        );
        let questions = seen.texts(MessageKind::Question);
        assert_eq!(questions, ["How many?", "And seven times?"]);
        let ends: Vec<_> = seen
            .events()
            .into_iter()
            .filter_map(|event| match event {
                Event::QuestionEnded(ended) => ended.answer,
                Event::RolloutEnded(_) => Some("end".to_owned()),
                _ => None,
            })
            .collect();
        assert_eq!(ends, ["6", "42", "end"]);
        stage.end().await;
    }
}

#[tokio::test]
async fn each_result_counts_the_calls_of_tools_so_far() {
    let stage = Stage::new([
        bash("budget >/dev/null; budget no; RLM_CONTENT=a RLM_READY=1"),
        bash("budget >/dev/null; RLM_CONTENT=b RLM_READY=1"),
    ])
    .await;
    let (config, _) = stage.rollout("one");
    let control = Control::new();
    let mut rollout = stage.host.begin(&config, &control).await.unwrap();
    let one = rollout.answer(&control).await;
    let two = rollout.ask("And now?", &control).await;
    let counts = [one, two, rollout.end().await].map(|result| {
        let metrics = result.metrics;
        (metrics.root_tool_call_count, metrics.root_tool_error_count, metrics.root_tool_calls["budget"])
    });
    assert_eq!(counts, [(2, 1, 2), (3, 1, 3), (3, 1, 3)]);
    stage.end().await;
}

#[tokio::test]
async fn a_cancelled_question_leaves_a_session_that_goes_on() {
    let gate = Gate::shut();
    let calls = json!({"role": "assistant", "content": null, "tool_calls": [
        {"id": "a", "type": "function", "function": {"name": "call_bash_repl", "arguments": "{\"code\": \"kept=1; : >begun; sleep 600\"}"}},
        {"id": "b", "type": "function", "function": {"name": "call_bash_repl", "arguments": "{\"code\": \"echo never\"}"}},
    ]});
    let rules = [
        Rule::any().message(calls).once(),
        bash("echo $kept"),
        answer("yes"),
        answer("late").after(&gate),
        answer("last"),
    ];
    let stage = Stage::new(rules).await;
    let (config, seen) = stage.rollout("one");
    let control = Control::new();
    let mut rollout = stage.host.begin(&config, &control).await.unwrap();
    let begun = rollout.context_dir().join("begun");
    let cancel = async {
        rlm_tests::until("the call has begun", || begun.exists()).await;
        control.cancel();
    };
    let (result, ()) = tokio::join!(rollout.answer(&control), cancel);
    assert_eq!(result.stop_reason, StopReason::Cancelled);
    let result = rollout.ask("Go on?", &Control::new()).await;
    assert_eq!(result.answer.as_deref(), Some("yes"), "{result:?}");
    assert_eq!(seen.outputs()[2], "1\n", "the session is the same");
    // Each call has an output, in the order of the calls.
    let messages = stage.root_requests()[1]["messages"].clone();
    let outputs: Vec<_> = messages
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|said| {
            Some((said["tool_call_id"].as_str()?.to_owned(), said["content"].as_str()?.to_owned()))
        })
        .collect();
    assert_eq!(outputs[0].0, "a");
    assert_eq!(outputs[1].0, "b");
    assert!(outputs[1].1.contains("the call was not run"), "{outputs:?}");
    // While the model is asked.
    let control = Control::new();
    let cancel = async {
        while stage.root_requests().len() < 4 {
            tokio::task::yield_now().await;
        }
        control.cancel();
    };
    let (result, ()) = tokio::join!(rollout.ask("Wait?", &control), cancel);
    assert_eq!(result.stop_reason, StopReason::Cancelled);
    gate.open();
    assert_eq!(rollout.ask("Now?", &Control::new()).await.answer.as_deref(), Some("last"));
    rollout.end().await;
    stage.end().await;
}

#[tokio::test]
async fn a_reply_without_a_call_can_be_an_answer() {
    let said = json!({"role": "assistant", "content": "Hello."});
    let stage = Stage::new([Rule::any().message(said).once(), answer("done")]).await;
    let (mut config, seen) = stage.rollout("one");
    config.plain_answers = true;
    let control = Control::new();
    let mut rollout = stage.host.begin(&config, &control).await.unwrap();
    let result = rollout.answer(&control).await;
    assert_eq!((result.answer.as_deref(), result.stop_reason), (Some("Hello."), StopReason::Answered));
    assert_eq!(rollout.ask("And?", &control).await.answer.as_deref(), Some("done"));
    assert!(seen.notices().is_empty());
    assert!(
        stage.root_requests()[0]["messages"][0]["content"].as_str().unwrap().contains("is an answer, too")
    );
    rollout.end().await;
    stage.end().await;
}

#[tokio::test]
async fn turns_and_time_are_those_of_a_question() {
    let stage = Stage::new([bash(":"), bash(":"), bash(":"), bash("echo $SECONDS"), answer("5")]).await;
    let (mut config, _seen) = stage.rollout("one");
    config.limits.max_turns = 2;
    let control = Control::new();
    let mut rollout = stage.host.begin(&config, &control).await.unwrap();
    assert_eq!(rollout.answer(&control).await.stop_reason, StopReason::MaxTurns);
    rollout.set_max_turns(0);
    let none = rollout.ask("None?", &control).await;
    assert_eq!((none.stop_reason, none.metrics.root_llm_turns), (StopReason::MaxTurns, 2));
    rollout.set_max_turns(3);
    let result = rollout.ask("Three?", &control).await;
    assert_eq!((result.answer.as_deref(), result.metrics.root_llm_turns), (Some("5"), 5), "{result:?}");
    rollout.end().await;
    stage.end().await;
}

#[tokio::test]
async fn a_directory_of_the_users_is_worked_in_and_stays() {
    let stage = Stage::new([bash("cat numbers.txt; echo new >made.txt"), answer("3")]).await;
    let (mut config, seen) = stage.rollout("one");
    let theirs = tempfile::tempdir().unwrap();
    std::fs::write(theirs.path().join("numbers.txt"), "one\n").unwrap();
    config.working_dir = Some(theirs.path().to_owned());
    config.context = Context::Text("more".to_owned());
    let result = stage.run(config).await;
    assert_eq!((result.answer.as_deref(), &*seen.outputs()[0]), (Some("3"), "one\n"));
    assert_eq!(std::fs::read_to_string(theirs.path().join("made.txt")).unwrap(), "new\n");
    let system = stage.root_requests()[0]["messages"][0]["content"].as_str().unwrap().to_owned();
    assert!(system.contains(&format!("The working directory is `{}`", theirs.path().display())), "{system}");
    assert!(system.contains("Further input lies in `") && system.contains("context.txt"), "{system}");
    stage.end().await;
}

#[tokio::test]
async fn a_session_that_ended_between_questions_is_replaced_and_the_model_is_told() {
    let crash = "kept=1; (sleep 0.2; kill -9 $$; : >killed) & RLM_CONTENT=one RLM_READY=1";
    let stage = Stage::new([bash(crash), bash("echo \"[$kept]\""), answer("two")]).await;
    let (mut config, seen) = stage.rollout("one");
    let dir = tempfile::tempdir().unwrap();
    config.working_dir = Some(dir.path().to_owned());
    let control = Control::new();
    let mut rollout = stage.host.begin(&config, &control).await.unwrap();
    assert_eq!(rollout.answer(&control).await.answer.as_deref(), Some("one"));
    while !dir.path().join("killed").exists() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(rollout.ask("And?", &control).await.answer.as_deref(), Some("two"));
    assert_eq!(seen.outputs()[1], "[]\n");
    let notices = seen.notices();
    assert!(notices.len() == 1 && notices[0].contains("status 137"), "{notices:?}");
    rollout.end().await;
    stage.end().await;
}

#[tokio::test]
async fn each_question_may_lose_the_worker_a_few_times() {
    let kill = "kill -9 $PPID";
    let stage = Stage::new([bash(kill), answer("one"), bash(kill), bash(kill), answer("two")]).await;
    let (config, _seen) = stage.rollout("one");
    let control = Control::new();
    let mut rollout = stage.host.begin(&config, &control).await.unwrap();
    assert_eq!(rollout.answer(&control).await.answer.as_deref(), Some("one"));
    let result = rollout.ask("And?", &control).await;
    assert_eq!(result.answer.as_deref(), Some("two"), "{result:?}");
    rollout.end().await;
    stage.end().await;
}
