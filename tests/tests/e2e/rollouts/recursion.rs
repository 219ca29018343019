//! Rollouts that code in a session starts: `rlm_query`, `rlm_query_batch`.

use std::time::{Duration, Instant};

use rlm_env::rollout::{Level, Recursion};
use rlm_env::trajectory::{Event, RolloutStarted};
use rlm_env::{Control, ReplLanguage, RolloutConfig, StopReason};
use rlm_rootd::{Budget, ChatRequest, Ledger, ModelFuture, RootModel};
use rlm_tests::scripted_model::{Gate, Rule};
use rlm_tests::until;

use super::*;

const LANGUAGES: [ReplLanguage; 2] = [ReplLanguage::Bash, ReplLanguage::Python];

/// The codes for both languages.
fn in_each(bash: &str, python: &str) -> [(ReplLanguage, String); 2] {
    [(ReplLanguage::Bash, bash.to_owned()), (ReplLanguage::Python, python.to_owned())]
}

/// Code that makes this the answer: a command, or an expression.
fn answering(language: ReplLanguage, value: &str) -> String {
    match language {
        ReplLanguage::Bash => format!("RLM_CONTENT=\"$({value})\"; RLM_READY=1"),
        ReplLanguage::Python => format!("answer[\"content\"] = str({value}); answer[\"ready\"] = True"),
    }
}

/// Whoever is asked this runs this code.
fn asked(prompt: &str, language: ReplLanguage, code: &str) -> Rule {
    Rule::on(prompt).message(calling(language, code))
}

/// Python code that is interrupted when this file appears.
fn interrupted_when(path: &Path) -> String {
    format!(
        "import os, signal, threading, time
def interrupt():
    while not os.path.exists({path:?}): time.sleep(0.01)
    signal.raise_signal(signal.SIGINT)
threading.Thread(target=interrupt).start()
"
    )
}

/// The stop reason of a rollout that has ended.
fn end_of(event: Event) -> Option<StopReason> {
    match event {
        Event::RolloutEnded(ended) => Some(ended.stop_reason),
        _ => None,
    }
}

/// A rollout with children.
fn recursive(stage: &Stage, id: &str, language: ReplLanguage, depth: u32) -> (RolloutConfig, Arc<Seen>) {
    let (config, seen) = stage.rollout(id);
    let config = RolloutConfig { language, recursion: Some(Recursion::new(depth)), ..config };
    (config, seen)
}

#[tokio::test(flavor = "multi_thread")]
async fn children_have_children_within_any_bound_and_nothing_is_left() {
    for language in LANGUAGES {
        for max_running in [8, 1] {
            let batch = |level: u32| {
                let questions: Vec<_> =
                    (1..=4).map(|number| format!("'level {level} number {number}'")).collect();
                answering(
                    language,
                    &match language {
                        ReplLanguage::Bash => format!("rlm_query_batch {} | paste -sd,", questions.join(" ")),
                        ReplLanguage::Python => {
                            format!("','.join(rlm_query_batch([{}]))", questions.join(","))
                        }
                    },
                )
            };
            let leaf = |number: u32| match language {
                ReplLanguage::Bash => answering(language, &format!("echo leaf {number}")),
                ReplLanguage::Python => answering(language, &format!("'leaf {number}'")),
            };
            let mut rules = vec![
                asked("How many?", language, &batch(1)),
                asked("level 1", language, &batch(2)),
                asked("level 2", language, &batch(3)),
            ];
            rules.extend(
                (1..=4).map(|number| asked(&format!("level 3 number {number}"), language, &leaf(number))),
            );
            let stage = Stage::new(rules).await;
            let (mut config, seen) = recursive(&stage, "root", language, 3);
            config.recursion.as_mut().unwrap().max_running = max_running;
            let result = stage.run(config).await;
            let leaves = "leaf 1,leaf 2,leaf 3,leaf 4";
            assert_eq!(result.answer, Some([leaves; 16].join(",")), "{result:?}");
            let depths: Vec<_> = result
                .metrics
                .depths
                .iter()
                .map(|(depth, of)| (*depth, of.rollouts, of.answered, of.turns))
                .collect();
            assert_eq!(depths, [(1, 4, 4, 4), (2, 16, 16, 16), (3, 64, 64, 64)]);
            assert!(result.metrics.cost_usd.unwrap() > 84.0 * 10.0 * 10.0 / 1e6);
            assert!(stage.model.most_at_once() <= max_running);
            let entries = seen.0.lock().unwrap().clone();
            let started: Vec<_> = entries
                .iter()
                .filter_map(|entry| match &entry.event {
                    Event::RolloutStarted(RolloutStarted { parent, parent_call_id, .. }) => {
                        Some((entry.depth, parent.as_deref(), parent_call_id.is_some()))
                    }
                    _ => None,
                })
                .collect();
            assert_eq!((started.len(), started[0]), (85, (0, None, false)));
            assert_eq!(started.iter().filter(|start| **start == (1, Some("root"), true)).count(), 4);
            stage.end().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn only_as_many_levels_have_the_tools_as_are_allowed_and_prompts_say_so() {
    for (language, code) in in_each("rlm_query 'level 1' | cat", "rlm_query('level 1')") {
        let leaf = match language {
            ReplLanguage::Bash => answering(language, "type -t rlm_query || echo none"),
            ReplLanguage::Python => answering(language, "'rlm_query' in globals()"),
        };
        let stage = Stage::new([
            asked("How many?", language, &answering(language, &code)),
            asked("level 1", language, &leaf),
            Rule::any().message(calling(language, &leaf)),
        ])
        .await;
        let (config, _) = recursive(&stage, "a", language, 1);
        let answer = stage.run(config).await.answer;
        assert_eq!(answer.as_deref(), Some(if language == ReplLanguage::Bash { "none" } else { "False" }));
        let systems: Vec<_> = stage
            .root_requests()
            .iter()
            .map(|body| body["messages"][0]["content"].as_str().unwrap().to_owned())
            .collect();
        assert!(
            systems[0].contains("## rlm_query")
                && !systems[0].contains("The code of another agent has asked you")
        );
        assert!(
            !systems[1].contains("rlm_query")
                && systems[1].contains("The code of another agent has asked you")
        );
        // Without recursion no text mentions it.
        let (config, _) = stage.rollout("b");
        let result = stage.run(RolloutConfig { language, ..config }).await;
        assert_eq!(result.answer, answer);
        assert!(!stage.root_requests().last().unwrap()["messages"][0].to_string().contains("rlm_query"));
        stage.end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_child_gets_copies_of_files_texts_and_values_and_nothing_from_outside() {
    let bash = "mkdir sub; echo inner > sub/file; echo top > $'new\\nline'; ln -s /etc/passwd out; cd sub
        a=$(rlm_query 'show' file); b=$(rlm_query 'show' .); c=$(echo piped | rlm_query 'show' -); d=$(rlm_query show --data '[1]' --text t ../$'new\\nline')
        e=$(rlm_query show ../missing 2>&1); f=$(rlm_query show /etc/passwd 2>&1); g=$(rlm_query show ../out 2>&1); h=$?
        RLM_CONTENT=\"$a;$b;$c;$d;$e;$f;$g;$h\" RLM_READY=1";
    let python = "import os; os.mkdir('sub'); open('sub/file', 'w').write('inner'); open('new\\nline', 'w').write('top'); os.symlink('/etc/passwd', 'out')
def ask(*args, **kwargs):
    try: return rlm_query('show', *args, **kwargs)
    except RuntimeError as error: return f'Error: {error}'
parts = [ask(['sub/file']), ask('sub'), ask(text='piped'), ask(['new\\nline'], data=[1], text='t'), ask('missing'), ask('/etc/passwd'), ask('out'), 1]
answer['content'] = ';'.join(map(str, parts)); answer['ready'] = True";
    for (language, code) in in_each(bash, python) {
        let show = match language {
            ReplLanguage::Bash => answering(language, "find . -type f | sort | tr '\\n' ' '"),
            ReplLanguage::Python => answering(language, "' '.join(sorted(os.path.join(d, f) for d, _, fs in __import__('os').walk('.') for f in fs)) + ' '").replace("answer[", "import os; answer["),
        };
        let stage = Stage::new([asked("How many?", language, &code), asked("show", language, &show)]).await;
        let (config, _) = recursive(&stage, "a", language, 1);
        let answer = stage.run(config).await.answer.unwrap();
        let parts: Vec<_> = answer.split(';').collect();
        assert_eq!(parts[0], "./file ", "{answer}");
        assert_eq!(parts[1], "./file ");
        assert_eq!(parts[2], "./context.txt ");
        assert!(parts[3].contains("./context.json ./context.txt ./new"), "{answer}");
        assert!(
            parts[4].contains("cannot give the file") && parts[4].contains("No such file or directory"),
            "{answer}"
        );
        for outside in [5, 6] {
            assert!(parts[outside].ends_with("it is not in the session's directory"), "{answer}");
        }
        assert_eq!(parts[7], "1", "the exit status");
        stage.end().await;
    }
}

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
        let fine = answering(language, if language == ReplLanguage::Bash { "echo fine" } else { "'fine'" });
        let stage = Stage::new([
            asked("How many?", language, &code),
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
        let fine = answering(language, if language == ReplLanguage::Bash { "echo fine" } else { "'fine'" });
        let stage = Stage::new([
            asked("How many?", language, &code).once(),
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
        for ends in [Control::cancel, Control::stop] {
            let gate = Gate::shut();
            let stage =
                Stage::new([asked("How many?", language, &code), asked("slow", language, "1").after(&gate)])
                    .await;
            let (config, seen) = recursive(&stage, "a", language, 1);
            let control = Control::new();
            let running = stage.run_with(config, &control);
            let end = async {
                until("the children ask", || stage.root_requests().len() == 4).await;
                ends(&control);
            };
            let began = Instant::now();
            let (result, ()) = tokio::join!(running, end);
            assert!(matches!(result.stop_reason, StopReason::Cancelled | StopReason::Stopped), "{result:?}");
            assert!(began.elapsed() < Duration::from_secs(20));
            // Each child says how it ended, before its parent does.
            let ends: Vec<_> = seen.events().into_iter().filter_map(end_of).collect();
            assert_eq!(ends.len(), 4, "{ends:?}");
            assert!(
                ends[..3]
                    .iter()
                    .all(|reason| *reason == StopReason::Cancelled || *reason == StopReason::Stopped)
            );
            assert_eq!(ends[3], result.stop_reason);
            let below = &result.metrics.depths[&1];
            assert_eq!((below.rollouts, below.answered), (3, 0), "{result:?}");
            gate.open();
            stage.end().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tree_has_one_budget_and_a_share_is_given_back() {
    let bash = "rlm_query --share 0.5 'spend' > a; budget | grep -o '\"left\": {[^}]*}' > left; RLM_CONTENT=\"$(cat a left)\" RLM_READY=1";
    let python = "a = rlm_query('spend', share=0.5); answer['content'] = a + '\\n\"left\": ' + __import__('json').dumps(budget()['left']); answer['ready'] = True";
    for (language, code) in in_each(bash, python) {
        let spend = match language {
            ReplLanguage::Bash => {
                "n=0; while llm_batch x | grep -q ^reply; do n=$((n+1)); done; RLM_CONTENT=\"$n $(llm_batch x)\" RLM_READY=1"
            }
            ReplLanguage::Python => {
                "n = 0\nwhile llm_query('x').startswith('reply'): n += 1\nanswer['content'] = f\"{n} {llm_query('x')}\"; answer['ready'] = True"
            }
        };
        let stage = Stage::new([
            asked("How many?", language, &code),
            asked("spend", language, spend),
            Rule::on("x").reply("reply"),
        ])
        .await;
        let (mut config, _) = recursive(&stage, "a", language, 1);
        config.limits.budget = Budget { calls: Some(21), ..Budget::default() };
        let result = stage.run(config).await;
        // One call is the parent's turn, and one is reserved for its last turn: 19 are left, and 9 are the share. Of these, one
        // is the child's turn, and one is for its last turn.
        let answer = result.answer.unwrap();
        assert!(
            answer.starts_with("7 Error in sub-LLM call: budget exhausted: 0 of 9 calls are left"),
            "{answer}"
        );
        assert!(
            answer.ends_with(
                "\"left\": {\"calls\": 11, \"tokens\": null, \"completion_tokens\": null, \"cost_usd\": null}"
            ),
            "{answer}"
        );
        assert_eq!(stage.root_requests().len() + stage.sub_requests().len(), 1 + 1 + 7);
        stage.end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_share_of_one_rollout_stops_no_other_rollout_of_a_batch() {
    let language = ReplLanguage::Bash;
    let gate = Gate::shut();
    let stage = Stage::new([
        asked("hog?", language, &answering(language, "rlm_query --share 1 slow")),
        asked("slow", language, &answering(language, "echo at last")).after(&gate),
        asked("simple?", language, "echo first").once(),
        asked("first", language, &answering(language, "echo second")),
    ])
    .await;
    let budget = Budget { cost_usd: Some(1.0), ..Budget::default() };
    let batch = Arc::new(Ledger::new(budget, Prices::from_toml(PRICES).unwrap()));
    let rollout = |question: &str| {
        let (config, _) = recursive(&stage, question.trim_end_matches('?'), language, 1);
        RolloutConfig { question: question.to_owned(), shared_ledger: Some(batch.clone()), ..config }
    };
    let other = async {
        until("the child asks", || stage.root_requests().len() == 2).await;
        let result = stage.run(rollout("simple?")).await;
        gate.open();
        result
    };
    let (hog, simple) = tokio::join!(stage.run(rollout("hog?")), other);
    assert_eq!(simple.answer.as_deref(), Some("second"), "{simple:?}");
    assert_eq!(hog.answer.as_deref(), Some("at last"), "{hog:?}");
    assert_eq!(batch.snapshot().used.calls, 4);
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn children_without_a_share_never_exceed_the_parents_budget() {
    for (language, code) in
        in_each("rlm_query_batch spend spend spend spend", "rlm_query_batch(['spend'] * 4)")
    {
        let spend = if language == ReplLanguage::Bash {
            "while llm_batch x | grep -q ^reply; do :; done"
        } else {
            "while llm_query('x').startswith('reply'): pass"
        };
        let stage = Stage::new([
            asked("How many?", language, &code).once(),
            asked("spend", language, spend),
            Rule::on("x").reply("reply"),
            Rule::any().reply("no more"),
        ])
        .await;
        let (mut config, _) = recursive(&stage, "a", language, 1);
        config.limits.budget = Budget { calls: Some(30), ..Budget::default() };
        let result = stage.run(config).await;
        assert_eq!(result.stop_reason, StopReason::BudgetExhausted, "{result:?}");
        assert!(stage.root_requests().len() + stage.sub_requests().len() <= 30);
        assert_eq!(result.metrics.depths[&1].rollouts, 4);
        stage.end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_paid_for_and_lost_is_not_paid_again() {
    let prompts: Vec<_> = (0..20).map(|number| format!("prompt {number}.")).collect();
    let quoted = prompts.iter().map(|prompt| format!("'{prompt}'")).collect::<Vec<_>>();
    for (language, code) in in_each(
        &format!("sleep 1; llm_batch {}", quoted.join(" ")),
        &format!("import time; time.sleep(1); print('\\n'.join(llm_batch([{}])))", quoted.join(",")),
    ) {
        let gate = Gate::shut();
        let done = answering(language, if language == ReplLanguage::Bash { "echo done" } else { "'done'" });
        let of_root = [
            asked("How many?", language, &code).once(),
            asked("time limit", language, &code).once(),
            asked("early", language, &code).once(),
            asked("late", language, &done),
        ];
        let early = (0..12).map(|number| Rule::on(format!("prompt {number}.")).reply("early").once());
        let late = Rule::on("prompt").reply("late").after(&gate);
        let stage = Stage::new(of_root.into_iter().chain(early).chain([late])).await;
        let (mut config, seen) = stage.rollout("a");
        config.language = language;
        config.sub_llm.parallelism = 20;
        // All are sent before it, also on a busy machine.
        config.limits.call_timeout = Duration::from_secs(5);
        let opens = async {
            until("it is asked again", || stage.root_requests().len() == 2).await;
            until("the rest is asked again", || stage.sub_requests().len() == 28).await;
            gate.open();
        };
        let (result, ()) = tokio::join!(stage.run(config), opens);
        assert_eq!(result.answer.as_deref(), Some("done"), "{result:?} {:?}", seen.outputs());
        let outputs = seen.outputs();
        let count = |text: &str, word: &str| text.matches(word).count();
        assert_eq!((count(&outputs[1], "early"), count(&outputs[1], "late")), (12, 8), "{outputs:?}");
        assert!(outputs[1].contains("12 paid for before"), "{outputs:?}");
        // Those answers reached the code: asked for a third time, they are paid for again.
        assert_eq!(stage.sub_requests().len(), 48);
        stage.end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_meets_an_interrupt_is_not_paid_again() {
    let code = "import threading, _thread
got = []
for number in range(4):
    timer = threading.Timer(0.22, _thread.interrupt_main); timer.start()
    try: got.append(llm_query('ask')); timer.join()
    except KeyboardInterrupt: pass
    if len(got) == number: got.append(llm_query('ask'))
answer['content'] = str(len(got)); answer['ready'] = True";
    let stage = Stage::new([
        asked("How many?", ReplLanguage::Python, code),
        Rule::on("ask").reply("it").delay(Duration::from_millis(250)),
    ])
    .await;
    let (mut config, seen) = stage.rollout("a");
    config.language = ReplLanguage::Python;
    let result = stage.run(config).await;
    assert_eq!(result.answer.as_deref(), Some("4"), "{result:?} {:?}", seen.outputs());
    let is_paid = |event: &Event| matches!(event, Event::SubCall(call) if call.reply.is_some());
    assert_eq!(seen.events().iter().filter(|event| is_paid(event)).count(), 4, "{:?}", seen.outputs());
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reply_that_is_being_read_when_an_interrupt_comes_is_not_paid_again() {
    // The code acts as if the interrupt came at the first line of Python that reads the reply.
    let code = "import sys
def interrupt(frame, event, argument):
    if frame.f_code.co_name == 'loads': raise KeyboardInterrupt
sys.settrace(interrupt)
try: llm_query('ask')
except KeyboardInterrupt: stopped = True
sys.settrace(None)
answer['content'] = f\"{stopped} {llm_query('ask')} {llm_query('ask')}\"; answer['ready'] = True";
    let stage =
        Stage::new([asked("How many?", ReplLanguage::Python, code), Rule::on("ask").reply("it")]).await;
    let (mut config, seen) = stage.rollout("a");
    config.language = ReplLanguage::Python;
    let result = stage.run(config).await;
    assert_eq!(result.answer.as_deref(), Some("True it it"), "{result:?} {:?}", seen.outputs());
    assert_eq!(stage.sub_requests().len(), 2);
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn levels_have_models_and_tools_of_their_own() {
    let language = ReplLanguage::Bash;
    let stage = Stage::new([
        asked("How many?", language, &answering(language, "rlm_query one; rlm_query --model other one 2>&1")),
        asked("one", language, &answering(language, "type -t first second")),
    ])
    .await;
    let (mut config, _) = recursive(&stage, "a", language, 2);
    let tool = |name: &str| {
        rlm_rootd::Tool::from_fn(name, "Nothing.", json!({"type": "object", "properties": {}}), |_| Ok(""))
            .unwrap()
    };
    config.root_tools = vec![tool("first"), tool("second")];
    let sub = Arc::new(Models::new(ModelsConfig::new(stage.model.base_url(), "sub")).unwrap());
    config.recursion.as_mut().unwrap().levels = vec![Level {
        model: Some(Arc::new(HttpModel::new(sub))),
        root_tools: Some(vec!["second".to_owned()]),
    }];
    let result = stage.run(config).await;
    let answer = result.answer.unwrap();
    assert!(
        answer.starts_with("function\nError: there is no model other: the models are root, sub"),
        "{answer}"
    );
    assert_eq!((stage.root_requests().len(), stage.sub_requests().len()), (1, 1));
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn intercepted_calls_start_children_too() {
    for (language, code) in in_each(
        "a=$(rlm_query --max-turns 5 'slow' numbers.txt)\nRLM_CONTENT=$a RLM_READY=1",
        "a = rlm_query('slow', files=['numbers.txt'])\nanswer['content'] = a; answer['ready'] = True",
    ) {
        let show = answering(
            language,
            if language == ReplLanguage::Bash { "ls" } else { "__import__('os').listdir()" },
        );
        let stage = Stage::new([
            asked("How many?", language, &code),
            asked("slow", language, &show).delay(Duration::from_secs(2)),
        ])
        .await;
        let (mut config, _) = recursive(&stage, "a", language, 1);
        config.callbacks = rlm_env::rollout::Callbacks::Intercept;
        config.limits.call_timeout = Duration::from_secs(1);
        let files = tempfile::tempdir().unwrap();
        config.context = a_file(files.path());
        let result = stage.run(config).await;
        assert!(result.answer.as_deref().is_some_and(|answer| answer.contains("numbers.txt")), "{result:?}");
        stage.end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_killed_interpreter_took_along_is_not_paid_again_where_calls_are_intercepted() {
    for (language, code) in in_each(
        "[ -e once ] || { touch once; kill -9 $$; }\na=$(rlm_query asked)\nRLM_CONTENT=$a RLM_READY=1",
        "import os\nif not os.path.exists('once'):\n    open('once', 'w').close(); os.kill(os.getpid(), 9)\n\
         a = rlm_query('asked')\nanswer['content'] = a; answer['ready'] = True",
    ) {
        let leaf = answering(language, if language == ReplLanguage::Bash { "echo leaf" } else { "'leaf'" });
        let again = Rule::any().message(calling(language, &code));
        let stage = Stage::new([asked("asked", language, &leaf).once(), again]).await;
        let (mut config, seen) = recursive(&stage, "a", language, 1);
        config.callbacks = rlm_env::rollout::Callbacks::Intercept;
        let result = stage.run(config).await;
        assert_eq!(result.answer.as_deref(), Some("leaf"), "{result:?}");
        assert!(seen.outputs().last().unwrap().contains("1 paid for before"), "{:?}", seen.outputs());
        assert_eq!(stage.root_requests().len(), 3, "two turns and a child");
        stage.end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_of_a_child_has_no_size_limit() {
    for (language, code) in in_each(
        "RLM_CONTENT=\"$(rlm_query big | wc -c)\" RLM_READY=1",
        "answer['content'] = str(len(rlm_query('big')) + 1); answer['ready'] = True",
    ) {
        let big = match language {
            ReplLanguage::Bash => "head -c 10000000 /dev/zero | tr '\\0' x",
            ReplLanguage::Python => "'x' * 10_000_000",
        };
        let stage = Stage::new([
            asked("How many?", language, &code),
            asked("big", language, &answering(language, big)),
        ])
        .await;
        let (config, _) = recursive(&stage, "a", language, 1);
        assert_eq!(stage.run(config).await.answer.as_deref(), Some("10000001"));
        stage.end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_death_of_a_models_server_ends_the_child_and_the_parent_hears_of_it() {
    for (language, code) in in_each(
        "out=$(rlm_query dead); status=$?; RLM_CONTENT=\"$status $out\" RLM_READY=1",
        "answer['content'] = '1 ' + rlm_query('dead'); answer['ready'] = True",
    ) {
        let stage =
            Stage::new([asked("How many?", language, &code), Rule::on("dead").hang_up().times(100)]).await;
        let (config, _) = recursive(&stage, "a", language, 1);
        let answer = stage.run(config).await.answer.unwrap();
        assert!(answer.starts_with("1 Error in rlm_query: no final answer (model_failed): "), "{answer}");
        stage.end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_child_that_a_crash_has_lost_is_not_run_again() {
    // The content is the same, in a file that is written anew.
    for (language, query) in in_each(
        "echo data > file; rlm_query_batch early late --file file",
        "_ = open('file', 'w').write('data'); print('\\n'.join(rlm_query_batch(['early', 'late'], files='file')))",
    ) {
        let gate = Gate::shut();
        let place = tempfile::tempdir().unwrap();
        let flag = place.path().join("flag");
        let crash = match language {
            ReplLanguage::Bash => {
                format!("( until [ -e {0} ]; do sleep 0.05; done; kill -9 $$ ) & {query}", flag.display())
            }
            ReplLanguage::Python => format!(
                "import os, threading, time\ndef crash():\n    while not os.path.exists({:?}): time.sleep(0.05)\n    \
                 os.kill(os.getpid(), 9)\nthreading.Thread(target=crash).start()\n{query}",
                flag.display().to_string()
            ),
        };
        let word = |word: &str| match language {
            ReplLanguage::Bash => answering(language, &format!("echo {word}")),
            ReplLanguage::Python => answering(language, &format!("'{word}'")),
        };
        let stage = Stage::new([
            asked("How many?", language, &crash).once(),
            asked("early", language, &word("first")),
            asked("late", language, &word("second")).after(&gate),
            asked("first", language, &word("done")),
            Rule::any().message(calling(language, &query)).once(),
        ])
        .await;
        let (config, seen) = recursive(&stage, "a", language, 1);
        let crashes = async {
            let is_ended = |event: &Event| matches!(event, Event::RolloutEnded(_));
            until("the first child ends, and the second asks", || {
                seen.events().iter().any(is_ended) && stage.model.requests().len() == 3
            })
            .await;
            std::fs::write(&flag, "").unwrap();
            until("the second is asked again", || {
                seen.outputs().len() == 1 + 1 && stage.model.requests().len() >= 5
            })
            .await;
            gate.open();
        };
        let (result, ()) = tokio::join!(stage.run(config), crashes);
        let outputs = seen.outputs();
        assert_eq!(result.answer.as_deref(), Some("done"), "{result:?} {outputs:?}");
        assert!(outputs.iter().any(|output| output.contains("first\nsecond")), "{outputs:?}");
        let children = |depth| {
            seen.0
                .lock()
                .unwrap()
                .iter()
                .filter(|entry| entry.depth == depth && matches!(entry.event, Event::RolloutStarted(_)))
                .count()
        };
        assert_eq!(children(1), 3, "the first child has run once, the second twice");
        stage.end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_asked_is_said_and_costs_nothing() {
    let bash = "rlm_query ''; echo $?; rlm_query --share 2 x; rlm_query --json idle >/dev/null; echo $?; rlm_query_batch fine ' ' 2>&1";
    let python = "try: rlm_query('')
except RuntimeError as error: print(error)
for line in rlm_query_batch([{'question': 'x', 'share': 3}, {'question': 'x', 'timeout': -1}, {'question': 'x', 'max_turns': 0}, '', 5, {'question': None}, 'fine']): print(line)";
    for (language, code) in in_each(&format!("{{ {bash}; }} 2>&1; RLM_READY=1"), python) {
        let fine = answering(language, if language == ReplLanguage::Bash { "echo fine" } else { "'fine'" });
        let stage = Stage::new([
            asked("How many?", language, &code).once(),
            asked("fine", language, &fine),
            Rule::on("idle").status(400, "no"),
            Rule::any().message(calling(language, &answering(language, "1"))),
        ])
        .await;
        let (config, seen) = recursive(&stage, "a", language, 1);
        stage.run(config).await;
        // The outputs of the rollout's children are there, too.
        let output = seen.outputs().into_iter().find(|output| output.contains("not empty")).unwrap();
        let expected: &[&str] = match language {
            ReplLanguage::Bash => &[
                "question is \"\", expected a text that is not empty\n1\n",
                "share",
                "\n1\nfine\nError in rlm_query: question 1: question is \" \", expected a text that is not empty",
            ],
            ReplLanguage::Python => &[
                "question is \"\", expected a text that is not empty\n",
                "question 0: share is 3, expected a number above 0, at most 1\n",
                "question 1: timeout is -1, expected a number of seconds above 0\n",
                "question 2: max_turns is 0, expected a whole number from 1\n",
                "question 3: question is \"\", expected a text that is not empty\n",
                "question 4: question is 5, expected a text that is not empty\n",
                "question 5: question is null, expected a text that is not empty\nfine\n",
            ],
        };
        for words in expected {
            assert!(output.contains(words), "{words} in {output}");
        }
        stage.end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_request_of_a_child_that_was_cut_off_is_in_the_cost() {
    for (language, code) in in_each(
        "rlm_query slow & disown",
        "import threading; threading.Thread(target=rlm_query, args=('slow',), daemon=True).start()",
    ) {
        let (gate, never) = (Gate::shut(), Gate::shut());
        let fine = answering(language, if language == ReplLanguage::Bash { "echo 1" } else { "1" });
        let stage = Stage::new([
            asked("How many?", language, &code),
            Rule::on("slow").reply("never").after(&never),
            Rule::any().message(calling(language, &fine)).after(&gate),
        ])
        .await;
        let (mut config, seen) = recursive(&stage, "a", language, 1);
        config.limits.budget = Budget { cost_usd: Some(5.0), ..Budget::default() };
        let child_asks = async {
            until("the child asks", || stage.root_requests().len() == 3).await;
            // The parent's second turn is answered; the child's first one is cut off by that.
            gate.open();
        };
        let (result, ()) = tokio::join!(stage.run(config), child_asks);
        let ends: Vec<_> = seen.events().into_iter().filter_map(end_of).collect();
        assert_eq!(ends, [StopReason::Cancelled, StopReason::Answered]);
        let own = 2.0 * (10.0 * 10.0 + 5.0 * 20.0) / 1e6;
        let cost = result.metrics.cost_usd.unwrap();
        assert!(cost > own + 1e-6 && result.metrics.usage_estimated, "{own} of {result:?}");
        let below = result.metrics.depths[&1].cost_usd.unwrap();
        assert!((own + below - cost).abs() < 1e-9, "{own} and {below} of {result:?}");
        never.open();
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
        let fine = answering(language, if language == ReplLanguage::Bash { "echo 1" } else { "1" });
        let stage = Stage::new([
            asked("How many?", language, &code),
            Rule::on("slow").reply("never").after(&never),
            Rule::any().message(calling(language, &fine)).after(&ended),
        ])
        .await;
        let (config, seen) = recursive(&stage, "a", language, 1);
        let child_ends = async {
            until("the child asks", || stage.root_requests().len() == 2).await;
            std::fs::write(&asks, "").unwrap();
            until("the child ends", || seen.events().into_iter().filter_map(end_of).count() == 1).await;
            ended.open();
        };
        let (result, ()) = tokio::join!(stage.run(config), child_ends);
        let ends: Vec<_> = seen.events().into_iter().filter_map(end_of).collect();
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
        let fine = answering(language, if language == ReplLanguage::Bash { "echo 1" } else { "1" });
        let stage = Stage::new([
            asked("How many?", language, &code).once(),
            Rule::any().message(calling(language, &fine)),
        ])
        .await;
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

#[tokio::test(flavor = "multi_thread")]
async fn answers_behind_one_that_was_given_up_are_not_paid_for_again() {
    let dir = tempfile::tempdir().unwrap();
    let ended = dir.path().join("ended");
    let bash = format!(
        "question=slow; rlm_query_batch $question first second & until [ -e {ended:?} ]; do sleep 0.01; done; kill %1; wait
rlm_query_batch first second"
    );
    let python = format!(
        "{}try: rlm_query_batch(['sl' + 'ow', 'first', 'second'])
except KeyboardInterrupt: pass
print(*rlm_query_batch(['first', 'second']), sep='\\n')",
        interrupted_when(&ended)
    );
    for (language, code) in in_each(&bash, &python) {
        let never = Gate::shut();
        let word = |word: &str| match language {
            ReplLanguage::Bash => answering(language, &format!("echo {word}")),
            ReplLanguage::Python => answering(language, &format!("'{word}'")),
        };
        let stage = Stage::new([
            asked("How many?", language, &code).once(),
            Rule::on("slow").reply("never").after(&never),
            asked("first", language, &word("one")).once(),
            asked("second", language, &word("two")).once(),
            Rule::any().message(calling(language, &word("done"))),
        ])
        .await;
        let (config, seen) = recursive(&stage, "a", language, 1);
        let both_end = async {
            until("two children end", || seen.events().into_iter().filter_map(end_of).count() == 2).await;
            std::fs::write(&ended, "").unwrap();
        };
        let (result, ()) = tokio::join!(stage.run(config), both_end);
        let outputs = seen.outputs();
        assert!(outputs.iter().any(|output| output.contains("one\ntwo")), "{outputs:?}");
        assert!(outputs.iter().any(|output| output.contains("2 paid for before")), "{outputs:?}");
        assert_eq!(result.metrics.depths[&1].rollouts, 3, "{result:?}");
        std::fs::remove_file(&ended).unwrap();
        never.open();
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
    let models = Models::new(ModelsConfig::new(stage.model.base_url(), "root")).unwrap();
    let timed = Arc::new(Timed { model: Arc::new(HttpModel::new(Arc::new(models))), left: Mutex::default() });
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
