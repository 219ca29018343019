//! The ends of children, and what their parents hear of them.

use std::time::Instant;

use rlm_rootd::{ChatRequest, ModelFuture, RootModel};
use rlm_tests::scripted_model::Gate;
use rlm_tests::until;

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn a_child_without_an_answer_gives_the_reason_and_the_others_theirs() {
    let bash = "rlm_query_batch 'crash' 'fine' 'idle' > out; status=$?; rlm_query --json idle > json; rlm_query_batch -0 fine fine > nul
        RLM_CONTENT=\"$(cat out; echo $status; grep -o '\"stop_reason\": \"[a-z_]*\"' json; tr '\\0' '|' < nul
            echo; rlm_query idle 2>&1 >/dev/null | grep -o 'a draft: .*')\" RLM_READY=1";
    let python = "out = rlm_query_batch(['crash', 'fine', 'idle']); result = rlm_query('idle', json=True)
answer['content'] = '\\n'.join([*out, '1', '\"stop_reason\": \"' + result['stop_reason'] + '\"', '|'.join(rlm_query_batch(['fine', {'question': 'fine'}])) + '|', rlm_query_batch([{'question': 'fine', 'json': True}])[0]['answer'], rlm_query_batch([{'question': 'fine', 'json': None}], json=True)[0]['answer']])
answer['ready'] = True";
    for (language, code) in in_each(bash, python) {
        let crash = if language == ReplLanguage::Bash {
            "kill -9 $PPID"
        } else {
            "import os; os.kill(os.getppid(), 9)"
        };
        let fine = saying(language, "fine");
        let stage = Stage::new([
            asked("How many?", language, code),
            asked("fine", language, &fine),
            asked("crash", language, crash),
            asked("was replaced", language, crash),
            Rule::on("idle").reply("I do not know."),
            Rule::any().reply("I still do not know."),
        ])
        .await;
        let (mut config, _) = recursive(&stage, "a", language, 1);
        config.limits.max_restarts = 0;
        let answer = stage.run(config).await.answer.unwrap();
        let lines: Vec<_> = answer.lines().collect();
        assert!(lines[0].starts_with("Error in rlm_query: no final answer (worker_failed): "), "{answer}");
        assert_eq!(lines[1..3], ["fine", "I still do not know."], "a draft is an answer");
        let last = match language {
            ReplLanguage::Bash => &["a draft: no final answer (no_tool_call)"][..],
            ReplLanguage::Python => &["fine", "fine"],
        };
        assert_eq!(lines[3..], [&["1", "\"stop_reason\": \"no_tool_call\"", "fine|fine|"], last].concat());
        stage.end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_clock_of_a_call_stands_still_while_it_waits_for_a_child_only() {
    for (language, code) in
        in_each("rlm_query slow; sleep 0.2", "print(rlm_query('slow')); import time; time.sleep(0.2)")
    {
        let compute = if language == ReplLanguage::Bash { "while :; do :; done" } else { "while True: pass" };
        let fine = saying(language, "fine");
        let stage = Stage::new([
            asked("How many?", language, code).once(),
            asked("slow", language, &fine).delay(Duration::from_secs(2)),
            asked("fine", language, compute).once(),
            asked("time limit", language, &fine),
        ])
        .await;
        let (mut config, seen) = recursive(&stage, "a", language, 1);
        config.limits.call_timeout = Duration::from_secs(1);
        let result = stage.run(config).await;
        assert_eq!(
            (result.stop_reason, result.metrics.repl_timeout_count),
            (StopReason::Answered, 1),
            "{result:?}"
        );
        let outputs = seen.outputs();
        assert!(outputs[1].contains("fine") || outputs[0].contains("fine"), "{outputs:?}");
        stage.end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_a_parent_is_that_of_its_children() {
    for (language, code) in in_each("rlm_query_batch slow slow slow", "rlm_query_batch(['slow'] * 3)") {
        for end in [Control::cancel, Control::stop] {
            let gate = Gate::shut();
            let stage =
                Stage::new([asked("How many?", language, code), asked("slow", language, "1").after(&gate)])
                    .await;
            let (config, seen) = recursive(&stage, "a", language, 1);
            let control = Control::new();
            let running = stage.run_with(config, &control);
            let ended = async {
                until("the children ask", || stage.root_requests().len() == 4).await;
                end(&control);
            };
            let began = Instant::now();
            let (result, ()) = tokio::join!(running, ended);
            assert!(matches!(result.stop_reason, StopReason::Cancelled | StopReason::Stopped), "{result:?}");
            assert!(began.elapsed() < Duration::from_secs(20));
            // Each child says how it ended, before its parent does.
            let ends = ends(&seen);
            assert_eq!(ends.len(), 4, "{ends:?}");
            let is_given_up =
                |reason: &StopReason| matches!(reason, StopReason::Cancelled | StopReason::Stopped);
            assert!(ends[..3].iter().all(is_given_up));
            assert_eq!(ends[3], result.stop_reason);
            let below = &result.metrics.depths[&1];
            assert_eq!((below.rollouts, below.answered), (3, 0), "{result:?}");
            gate.open();
            stage.end().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_death_of_a_models_server_ends_the_child_and_the_parent_hears_of_it() {
    for (language, code) in in_each(
        "out=$(rlm_query dead); status=$?; RLM_CONTENT=\"$status $out\" RLM_READY=1",
        "answer['content'] = '1 ' + rlm_query('dead'); answer['ready'] = True",
    ) {
        let stage =
            Stage::new([asked("How many?", language, code), Rule::on("dead").hang_up().times(100)]).await;
        let (config, _) = recursive(&stage, "a", language, 1);
        let answer = stage.run(config).await.answer.unwrap();
        assert!(answer.starts_with("1 Error in rlm_query: no final answer (model_failed): "), "{answer}");
        stage.end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_child_whose_call_is_given_up_ends_while_its_parent_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let asks = dir.path().join("asks");
    let bash = format!(
        "question=slow; rlm_query $question & until [ -e {asks:?} ]; do sleep 0.01; done; kill %1; wait"
    );
    let python = format!("{}rlm_query('sl' + 'ow')", interrupted_when(&asks));
    for (language, code) in in_each(&bash, &python) {
        let (never, ended) = (Gate::shut(), Gate::shut());
        let fine = saying(language, "1");
        let stage = Stage::new([
            asked("How many?", language, code),
            Rule::on("slow").reply("never").after(&never),
            otherwise(language, &fine).after(&ended),
        ])
        .await;
        let (config, seen) = recursive(&stage, "a", language, 1);
        let child_ends = async {
            until("the child asks", || stage.root_requests().len() == 2).await;
            std::fs::write(&asks, "").unwrap();
            until("the child ends", || ends(&seen).len() == 1).await;
            ended.open();
        };
        let (result, ()) = tokio::join!(stage.run(config), child_ends);
        let ends = ends(&seen);
        assert_eq!(ends, [StopReason::Cancelled, StopReason::Answered], "{result:?}");
        std::fs::remove_file(&asks).unwrap();
        never.open();
        stage.end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_time_no_child_is_started() {
    for (language, code) in in_each(
        "rlm_query fine 2>&1",
        "try: rlm_query('fine')
except RuntimeError as error: print(error)",
    ) {
        let fine = saying(language, "1");
        let stage = Stage::new([asked("How many?", language, code).once(), otherwise(language, &fine)]).await;
        let (mut config, seen) = recursive(&stage, "a", language, 1);
        // Without the part for the last turn, the time is less than a child gets at least.
        config.limits.timeout = Some(Duration::from_millis(1400));
        let result = stage.run(config).await;
        assert_eq!(result.metrics.depths.get(&1), None, "{result:?}");
        let output = &seen.outputs()[0];
        assert!(
            output.contains("there is no time for a child: the question's limit is reached in "),
            "{output}"
        );
        stage.end().await;
    }
}

/// Notes how much time is left for each reply of another model.
#[derive(Debug)]
struct Timed {
    model: Arc<dyn RootModel>,
    left: Mutex<Vec<Duration>>,
}

impl RootModel for Timed {
    fn name(&self) -> &str {
        self.model.name()
    }

    fn complete<'a>(&'a self, request: ChatRequest<'a>) -> ModelFuture<'a> {
        self.left.lock().unwrap().push(request.deadline.saturating_duration_since(Instant::now()));
        self.model.complete(request)
    }
}

/// Otherwise the call that waits for a child could end before the child does.
#[tokio::test(flavor = "multi_thread")]
async fn the_start_of_a_child_counts_for_its_time_limit() {
    let language = ReplLanguage::Python;
    let stage = Stage::new([
        asked(
            "How many?",
            language,
            &answering(language, "[rlm_query('level 1', timeout=5), rlm_query('late', timeout=0.4)]"),
        ),
        asked("level 1", language, &answering(language, "'three'")),
    ])
    .await;
    let python = stage.dir.path().join("python");
    rlm_tests::write_program(
        &python,
        &format!("#!/bin/sh\nsleep 0.5; exec {} \"$@\"\n", default_python().display()),
    );
    let (mut config, seen) = recursive(&stage, "a", language, 1);
    config.env.push(("RLM_PYTHON".into(), python.clone().into()));
    let model = Arc::new(HttpModel::new(stage.model.models("root")));
    let timed = Arc::new(Timed { model, left: Mutex::default() });
    config.model = Some(timed.clone());
    let late = "Error in rlm_query: no final answer (timed_out)";
    assert_eq!(stage.run(config).await.answer, Some(format!("['three', '{late}']")));
    assert_eq!(seen.notices(), [""; 0], "a last turn for which there is no time is not announced");
    let left = timed.left.lock().unwrap().clone();
    // Half a second is kept for the last turn.
    assert!(left[1] <= Duration::from_secs(4), "{left:?}");
    std::fs::remove_file(&python).unwrap();
    stage.end().await;
}
