//! Rollouts that go on from one beginning.

use rlm_env::rollout::Prefix;

use super::*;

/// Runs the first turns of a rollout.
async fn begin(stage: &Stage, config: RolloutConfig, turns: u32) -> (RolloutResult, Option<Arc<Prefix>>) {
    tokio::time::timeout(PATIENCE, stage.host.run_prefix(config, turns, &Control::new())).await.unwrap()
}

/// A search in a tree: eight ways at each of two turns, one of which is right.
#[tokio::test]
async fn a_search_runs_each_beginning_once_and_finds_what_whole_rollouts_find() {
    let bash = [
        "secret=57; echo tried > log; f() { echo $((secret / 10)); }",
        "a=@; echo @ >> log; [[ $a == $(f) ]] && echo warm || echo cold",
        "[[ $((secret % 10)) == @ ]] && right=yes; RLM_CONTENT=\"${a}@ $right $(tr '\\n' ' ' < log)\"; RLM_READY=1",
    ];
    let python = [
        "secret = 57; log = open('log', 'w'); print('tried', file=log); log.close()\ndef f(): return secret // 10",
        "a = @; print(a, file=open('log', 'a')); print('warm' if a == f() else 'cold')",
        "right = 'yes' if secret % 10 == @ else ''\nanswer['content'] = f\"{a}@ {right} {open('log').read()}\".replace('\\n', ' ')\nanswer['ready'] = True",
    ];
    for (language, [first, second, third]) in in_each(bash, python) {
        let ways = |code: &str| {
            (1..=8).map(|way| call(language, &code.replace('@', &way.to_string()))).collect::<Vec<_>>()
        };
        let whole = [first.to_owned(), second.replace('@', "5"), third.replace('@', "7")];
        let rules = [call(language, first)].into_iter().chain(ways(second)).chain(ways(third));
        let stage = Stage::new(rules.chain(whole.iter().map(|code| call(language, code)))).await;
        let config = |id: &str, prefix: Option<&Arc<Prefix>>| {
            let (config, seen) = stage.rollout(id);
            (RolloutConfig { language, prefix: prefix.cloned(), ..config }, seen)
        };
        let (root, prefix) = begin(&stage, config("root", None).0, 1).await;
        assert_eq!((root.stop_reason, root.metrics.root_llm_turns), (StopReason::Branched, 1), "{root:?}");
        let prefix = prefix.unwrap();
        let mut warm = Vec::new();
        for way in 1..=8 {
            let (config, seen) = config(&format!("way-{way}"), Some(&prefix));
            let (result, prefix) = begin(&stage, config, 2).await;
            assert_eq!(
                (result.stop_reason, result.metrics.root_llm_turns),
                (StopReason::Branched, 1),
                "{result:?}"
            );
            let started = seen.events().into_iter().find_map(|event| match event {
                Event::RolloutStarted(started) => Some((started.parent, started.branched_at)),
                _ => None,
            });
            assert_eq!(started, Some((Some("root".to_owned()), Some(1))));
            if seen.outputs() == ["warm\n"] {
                warm.push(prefix.unwrap());
            }
        }
        let [prefix_of_five] = &warm[..] else { panic!("{} are warm", warm.len()) };
        assert_eq!((prefix_of_five.id(), prefix_of_five.turns()), ("way-5", 2));
        let mut found = Vec::new();
        for way in 1..=8 {
            let result = stage.run(config(&format!("end-{way}"), Some(prefix_of_five)).0).await;
            assert_eq!(
                (result.stop_reason, result.metrics.root_llm_turns),
                (StopReason::Answered, 1),
                "{result:?}"
            );
            found.extend(result.answer.filter(|answer| answer.contains("yes")));
        }
        assert_eq!(stage.root_requests().len(), 1 + 8 + 8);
        let (request, before) = (&stage.root_requests()[10], &stage.root_requests()[0]);
        let (messages, before) =
            (request["messages"].as_array().unwrap(), before["messages"].as_array().unwrap());
        assert_eq!(messages[..before.len()], before[..], "the beginning of the conversation is the same");
        let whole = stage.run(config("whole", None).0).await;
        assert_eq!(found, [whole.answer.unwrap()]);
        assert_eq!(found[0].split_whitespace().collect::<Vec<_>>(), ["57", "yes", "tried", "5"]);
        drop((prefix, warm));
        stage.end().await;
    }
}

#[tokio::test]
async fn attempts_in_python_have_all_that_is_in_memory() {
    let python = |code: &str| call(ReplLanguage::Python, code);
    let end =
        python("answer['content'] = f'{next(lines)} {lock.locked()} {f.read()}'; answer['ready'] = True");
    let first = "import threading; lock = threading.Lock(); lock.acquire(); lines = (n for n in range(9)); next(lines)\n\
        _ = open('file', 'w').write('abc'); f = open('file'); f.read(1); llm_query";
    let stage = Stage::new([python(first), end.clone(), end]).await;
    let config = |id: &str, prefix: Option<Arc<Prefix>>| RolloutConfig {
        language: ReplLanguage::Python,
        prefix,
        ..stage.rollout(id).0
    };
    let (_, prefix) = begin(&stage, config("root", None), 1).await;
    for id in ["one", "other"] {
        ended(&stage.run(config(id, prefix.clone())).await, StopReason::Answered, "1 True bc");
    }
    drop(prefix);
    stage.end().await;
}

#[tokio::test]
async fn a_budget_goes_on_and_a_new_directory_is_told() {
    let stage = Stage::new([
        bash("pwd -P").usage(100, 10),
        bash("cat numbers.txt | wc -l; echo $x").usage(200, 10),
        answer("done"),
    ])
    .await;
    let (mut config, seen) = stage.rollout("root");
    config.context = a_file(stage.dir.path());
    std::fs::write(stage.dir.path().join("other"), "").unwrap();
    config.limits.budget.tokens = Some(10_000);
    let (_, prefix) = begin(&stage, config.clone(), 1).await;
    let (old, prefix) = (seen.outputs()[0].trim_end().to_owned(), prefix.unwrap());
    let seen = Arc::new(Seen::default());
    let sinks: Vec<Arc<dyn Sink>> = vec![seen.clone()];
    let config = RolloutConfig { id: "branch".to_owned(), prefix: Some(prefix.clone()), sinks, ..config };
    let result = stage.run(config.clone()).await;
    ended(&result, StopReason::Answered, "done");
    assert_eq!(seen.outputs()[0], "3\n\n");
    let [notice] = &seen.notices()[..] else { panic!("{:?}", seen.notices()) };
    assert!(notice.ends_with(&format!("{old} is gone.")), "{notice}");
    // The beginning has spent its part: a budget that it would have used up has no room for another turn.
    let small = |tokens| {
        let mut config = RolloutConfig { prefix: None, id: format!("small-{tokens}"), ..config.clone() };
        config.limits.budget.tokens = Some(tokens);
        config
    };
    drop((prefix, config.clone()));
    let result = stage.run(small(50)).await;
    assert_eq!(result.stop_reason, StopReason::BudgetExhausted, "{result:?}");
    std::fs::remove_file(stage.dir.path().join("numbers.txt")).unwrap();
    std::fs::remove_file(stage.dir.path().join("other")).unwrap();
    stage.end().await;
}

#[tokio::test]
async fn a_beginning_that_ends_by_itself_or_cannot_be_kept_is_a_result() {
    let stage = Stage::new([answer("at-once"), bash(":"), bash(":")]).await;
    let (result, prefix) = begin(&stage, stage.rollout("one").0, 3).await;
    ended(&result, StopReason::Answered, "at-once");
    assert!(prefix.is_none());
    let (mut config, _) = stage.rollout("two");
    config.messages_in_context = true;
    let (result, prefix) = begin(&stage, config, 1).await;
    assert!(prefix.is_none());
    assert_eq!(result.stop_reason, StopReason::SetupFailed);
    assert!(result.error.unwrap().contains("with its conversation in the working directory cannot branch"));
    // The turn before the limit is announced as the last one all the same.
    let (mut config, _) = stage.rollout("three");
    config.limits.max_turns = 2;
    let (result, prefix) = begin(&stage, config, 1).await;
    assert_eq!((result.stop_reason, prefix.is_some()), (StopReason::Branched, true), "{result:?}");
    drop(prefix);
    stage.end().await;
}
