//! The cost of children, and what is not paid for twice.

use rlm_rootd::{Budget, Ledger};
use rlm_tests::scripted_model::Gate;
use rlm_tests::until;

use super::*;

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
            asked("How many?", language, code),
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
            asked("How many?", language, code).once(),
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
        let done = saying(language, "done");
        let of_root = [
            asked("How many?", language, code).once(),
            asked("time limit", language, code).once(),
            asked("early", language, code).once(),
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
async fn what_a_killed_interpreter_took_along_is_not_paid_again_where_calls_are_intercepted() {
    for (language, code) in in_each(
        "[ -e once ] || { touch once; kill -9 $$; }\na=$(rlm_query asked)\nRLM_CONTENT=$a RLM_READY=1",
        "import os\nif not os.path.exists('once'):\n    open('once', 'w').close(); os.kill(os.getpid(), 9)\n\
         a = rlm_query('asked')\nanswer['content'] = a; answer['ready'] = True",
    ) {
        let leaf = saying(language, "leaf");
        let again = otherwise(language, code);
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
        let stage = Stage::new([
            asked("How many?", language, &crash).once(),
            asked("early", language, &saying(language, "first")),
            asked("late", language, &saying(language, "second")).after(&gate),
            asked("first", language, &saying(language, "done")),
            otherwise(language, query).once(),
        ])
        .await;
        let (config, seen) = recursive(&stage, "a", language, 1);
        let crashes = async {
            until("the first child ends, and the second asks", || {
                ends(&seen).len() == 1 && stage.model.requests().len() == 3
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
async fn the_request_of_a_child_that_was_cut_off_is_in_the_cost() {
    for (language, code) in in_each(
        "rlm_query slow & disown",
        "import threading; threading.Thread(target=rlm_query, args=('slow',), daemon=True).start()",
    ) {
        let (gate, never) = (Gate::shut(), Gate::shut());
        let fine = saying(language, "1");
        let stage = Stage::new([
            asked("How many?", language, code),
            Rule::on("slow").reply("never").after(&never),
            otherwise(language, &fine).after(&gate),
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
        let ends = ends(&seen);
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
        let stage = Stage::new([
            asked("How many?", language, code).once(),
            Rule::on("slow").reply("never").after(&never),
            asked("first", language, &saying(language, "one")).once(),
            asked("second", language, &saying(language, "two")).once(),
            otherwise(language, &saying(language, "done")),
        ])
        .await;
        let (config, seen) = recursive(&stage, "a", language, 1);
        let both_end = async {
            until("two children end", || ends(&seen).len() == 2).await;
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
