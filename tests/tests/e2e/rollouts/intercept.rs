//! Rollouts whose sessions have no connection to the host: it makes the calls in their code.

use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use rlm_core::pickle::Value as Pickled;
use rlm_core::root_tool::Reply;
use rlm_env::rollout::Callbacks;
use rlm_env::trajectory::{CallEnded, RolloutStarted};
use rlm_rootd::Tool;
use tokio::sync::mpsc;

use super::*;

/// A tool that returns its argument, except that `fail` fails, `large` is repeated two million times, and `wait` never
/// returns. Also its number of calls, and a message when a waiting call begins and when it is dropped.
fn echo() -> (Tool, Arc<AtomicU32>, mpsc::UnboundedReceiver<&'static str>) {
    let (words, heard) = mpsc::unbounded_channel();
    let calls = Arc::new(AtomicU32::new(0));
    let counter = calls.clone();
    let parameters = json!({"type": "object", "properties": {"value": {}}, "required": ["value"]});
    let tool = Tool::from_async_fn("echo_value", "Gives a value back.", parameters, move |call| {
        counter.fetch_add(1, SeqCst);
        let words = words.clone();
        async move {
            let value = call.argument(0, "value").cloned().unwrap();
            let Pickled::Str(text) = &value else { return Ok(Reply::of(value)) };
            match &**text {
                "fail" => Err("it was to fail".into()),
                "large" => Ok(Reply::of("é".repeat(1 << 20))),
                "wait" => {
                    let _dropped = SendOnDrop(words.clone());
                    words.send("waiting").unwrap();
                    std::future::pending().await
                }
                _ => Ok(Reply { print_lines: vec!["said".to_owned()], ..Reply::of(value) }),
            }
        }
    });
    (tool.unwrap(), calls, heard)
}

/// Sends `dropped` on drop.
struct SendOnDrop(mpsc::UnboundedSender<&'static str>);

impl Drop for SendOnDrop {
    fn drop(&mut self) {
        self.0.send("dropped").unwrap();
    }
}

fn python(code: &str) -> Rule {
    call(ReplLanguage::Python, code)
}

const ANSWER: &str = "answer['content'] = 'done'; answer['ready'] = True";

/// A Python rollout with intercepted calls, and the number of calls to its tool.
fn intercepted(stage: &Stage) -> (RolloutConfig, Arc<Seen>, Arc<AtomicU32>) {
    let (tool, calls, _) = echo();
    let (mut config, seen) = stage.rollout("one");
    config.language = ReplLanguage::Python;
    config.callbacks = Callbacks::Intercept;
    config.root_tools = vec![tool];
    (config, seen, calls)
}

/// The outputs of these pieces of code; the last one gives an answer.
async fn outputs(codes: &[&str]) -> (Vec<String>, u32) {
    let stage = Stage::new(codes.iter().copied().chain([ANSWER]).map(python)).await;
    let (config, seen, calls) = intercepted(&stage);
    let result = stage.run(config).await;
    assert_eq!((result.stop_reason, result.error), (StopReason::Answered, None));
    stage.end().await;
    (seen.outputs(), calls.load(SeqCst))
}

#[tokio::test]
async fn the_values_of_calls_are_set_when_the_code_runs() {
    let codes = [
        "info = nav_info()",
        "print(info['files'], type(info).__name__)",
        "echoed = echo_value({'a': [1, -2.5, None, True], 'b': 'x' \"y\"})  # and more\nfor key in echoed: print(key, echoed[key])",
        "a, b = 1, 2; c = echo_value(3); print(a + b + c)",
        "replies = llm_batch(['judge: a', 'judge: b'])\nprint(*replies)",
        "import os\nprint([name for name in os.environ if name.startswith('RLM_') and name != 'RLM_TEST_MARK'])",
        "print(sorted(name for name in globals() if not name.startswith('__')), [name for name in globals() if 'icpt' in name])",
        "answer['content'] = str(info['files']); answer['ready'] = True",
    ];
    let mut rules = vec![Rule::on("judge: a").reply("yes"), Rule::on("judge: b").reply("no")];
    rules.extend(codes.map(python));
    let stage = Stage::new(rules).await;
    let (mut config, seen, calls) = intercepted(&stage);
    let files = tempfile::tempdir().unwrap();
    config.context = a_file(files.path());
    let result = stage.run(config).await;
    ended(&result, StopReason::Answered, "1");
    let mut outputs = seen.outputs();
    // This output contains a duration.
    let replies = outputs.remove(4);
    assert!(replies.starts_with("llm_batch: 2 calls in ") && replies.ends_with("s\nyes no\n"), "{replies}");
    assert_eq!(
        outputs,
        [
            "(no output)",
            "1 dict\n",
            "a [1, -2.5, None, True]\nb xy\n",
            "6\n",
            "['RLM_MESSAGES']\n",
            "['a', 'answer', 'b', 'c', 'echoed', 'extra_data', 'fs_metadata', 'info', 'key', 'os', 'replies'] []\n",
            "(no output)",
        ]
    );
    assert_eq!(calls.load(SeqCst), 2);
    assert_eq!(result.metrics.root_tool_call_count, 4);
    assert_eq!(stage.sub_requests().len(), 2);
    let prompt = &seen.texts(MessageKind::System)[0];
    for taught in
        ["info = nav_info()", "`echo_value(value", "`nav_search(", "replies = llm_batch([\"first prompt\""]
    {
        assert!(prompt.contains(taught), "{taught} is not in {prompt}");
    }
    assert!(!prompt.contains("llm_batch(prompts)"), "{prompt}");
    let started = seen.events().into_iter().find_map(|event| match event {
        Event::RolloutStarted(RolloutStarted { callbacks, .. }) => Some(callbacks),
        _ => None,
    });
    assert_eq!(started, Some(Callbacks::Intercept));
    stage.end().await;
}

#[tokio::test]
async fn in_bash_a_value_is_what_the_command_would_print() {
    let codes = [
        "info=$(nav_info)",
        "echo \"$info\" | tr ',' '\\n' | head -n 1; echo $?",
        "n=$(echo_value 5)\necho $((n + 1))\nlist=$(echo_value '[1, \"a b\"]') # and more\necho \"$list\"",
        "said=$(echo_value 'two words'); echo never",
        "said=$(echo_value 'two words')\necho \"$said\"\nreplies=$(llm_batch 'judge: a' 'judge: b')\necho \"$replies\"",
        "before=1\nx=$(echo_value fail)",
        "echo ${before-unset} ${x-unset} $n; env | grep -c ^RLM_ROOT; compgen -v | grep -c __rlm_icpt",
        "type echo_value",
        "RLM_CONTENT=$said RLM_READY=1",
    ];
    let mut rules = vec![Rule::on("judge: a").reply("yes"), Rule::on("judge: b").reply("no")];
    rules.extend(codes.map(bash));
    let stage = Stage::new(rules).await;
    let (mut config, seen, calls) = intercepted(&stage);
    config.language = ReplLanguage::Bash;
    let result = stage.run(config).await;
    ended(&result, StopReason::Answered, "said\ntwo words");
    let outputs = seen.outputs();
    assert_eq!(outputs[..3], ["(no output)", "{\"files\": 0\n0\n", "6\n[1, \"a b\"]\n"]);
    assert!(outputs[3].starts_with("Nothing was run and no function was called."), "{}", outputs[3]);
    assert_eq!(outputs[4], "said\ntwo words\nyes\nno\n");
    assert!(outputs[5].contains("`echo_value fail`") && outputs[5].contains("line 2"), "{}", outputs[5]);
    assert_eq!(outputs[6], "unset unset 5\n0\n0\n[exit status 1]");
    assert!(outputs[7].contains("type: echo_value: not found"), "{}", outputs[7]);
    assert_eq!(calls.load(SeqCst), 4);
    let prompt = &seen.texts(MessageKind::System)[0];
    for taught in ["info=$(nav_info)", "`echo_value ", "replies=$(llm_batch 'first prompt'"] {
        assert!(prompt.contains(taught), "{taught} is not in {prompt}");
    }
    stage.end().await;
}

#[tokio::test]
async fn code_that_is_rejected_changes_nothing() {
    let rejected =
        "before = 1\nkept = echo_value(1)\nprint(echo_value(2))\nfor i in range(3):\n    echo_value(i)";
    let (outputs, calls) = outputs(&[rejected, "'before' in globals(), 'kept' in globals()"]).await;
    assert_eq!(calls, 0);
    assert!(outputs[0].starts_with("Nothing was run"), "{}", outputs[0]);
    for told in ["line 3, column 7: echo_value", "line 5, column 5: echo_value", " = echo_value(2)\n"] {
        assert!(outputs[0].contains(told), "{told} is not in {}", outputs[0]);
    }
    assert_eq!(outputs[1], "Out[1]: (False, False)");
}

#[tokio::test]
async fn if_a_tool_fails_nothing_runs_and_the_reply_says_why() {
    let failing = "ran = True\nfirst = echo_value(1)\nsecond = echo_value('fail')\nthird = echo_value(3)";
    let refused = "x = echo_value(1, 2)";
    let (outputs, calls) = outputs(&[failing, "'ran' in globals(), 'first' in globals()", refused]).await;
    assert_eq!(calls, 2, "the third is not made, and the last has too many arguments");
    for told in ["line 3", "`echo_value('fail')`", "it was to fail", "The call before it was made"] {
        assert!(outputs[0].contains(told), "{told} is not in {}", outputs[0]);
    }
    assert_eq!(outputs[1], "Out[1]: (False, False)");
    assert!(outputs[2].contains("line 1") && outputs[2].contains("echo_value(1, 2)"), "{}", outputs[2]);
}

#[tokio::test]
async fn variable_names_are_never_reused_not_even_in_another_interpreter() {
    let look = "x = echo_value(1); y = echo_value(2); print([n for n in globals() if n.startswith('__rlm_' 'icpt_')])";
    let (outputs, _) = outputs(&[look, look, "import os; os._exit(1)", look]).await;
    let mut names = Vec::new();
    for output in [&outputs[0], &outputs[1], &outputs[3]] {
        let listed: Vec<_> = output.split('\'').skip(1).step_by(2).map(str::to_owned).collect();
        assert_eq!(listed.len(), 2, "{output}");
        names.extend(listed);
    }
    let session = &names[0][..names[0].rfind('_').unwrap()];
    let hex = session.strip_prefix("__rlm_icpt_").unwrap();
    assert!(hex.len() == 8 && hex.bytes().all(|digit| b"0123456789abcdef".contains(&digit)), "{hex}");
    assert!(names.iter().all(|name| name.starts_with(session)), "{names:?}");
    names.sort();
    names.dedup();
    assert_eq!(names.len(), 6, "{names:?}");
}

#[tokio::test]
async fn tracebacks_and_sources_show_the_code_as_written() {
    let codes = [
        "a = echo_value(\n    1,\n)\nb = a; c = echo_value(2); 1 / 0",
        "def f(): return 1\nd = echo_value(1)\nimport inspect; print(inspect.getsource(f))",
        "x = echo_value(1)\nif True print(x)",
    ];
    let (outputs, calls) = outputs(&codes).await;
    assert_eq!(calls, 3, "code with a syntax error is Python's to refuse");
    assert!(
        outputs[0].contains(", line 4, in <module>\n    b = a; c = echo_value(2); 1 / 0\n"),
        "{}",
        outputs[0]
    );
    assert!(!outputs[0].contains("icpt"), "{}", outputs[0]);
    assert_eq!(outputs[1], "def f(): return 1\n\n");
    assert!(outputs[2].contains("if True print(x)") && outputs[2].contains("SyntaxError"), "{}", outputs[2]);
}

#[tokio::test]
async fn syntax_that_the_sessions_python_does_not_have_calls_nothing() {
    // Only the newest Python accepts the first, and none accepts the second.
    let newer = "d = {'k': 1}\nx = echo_value(1); print(f'{d['k']}')";
    let (outputs, calls) = outputs(&[newer, "import sys; sys.version_info >= (3, 12)"]).await;
    match outputs[1].as_str() {
        "Out[2]: True" => assert_eq!((outputs[0].as_str(), calls), ("said\n1\n", 1)),
        _ => {
            assert_eq!(calls, 0);
            assert!(outputs[0].contains("    x = echo_value(1); print(f'{d['k']}')\n"), "{}", outputs[0]);
            assert!(outputs[0].contains("SyntaxError"), "{}", outputs[0]);
        }
    }
}

#[tokio::test]
async fn values_that_are_too_large_are_cut_with_a_warning() {
    let (outputs, _) = outputs(&["x = echo_value('large')\nprint(len(x.encode()))", "len(x)"]).await;
    let (bytes, warning) = outputs[0].split_once('\n').unwrap();
    let bytes: usize = bytes.parse().unwrap();
    assert!((1 << 20) - 16 < bytes && bytes <= 1 << 20, "{bytes}");
    assert!(warning.contains("echo_value('large')") && warning.contains("first MiB"), "{warning}");
    assert!(outputs[1].starts_with("Out[2]: 524"), "{}", outputs[1]);
}

#[tokio::test]
async fn the_lines_a_tool_prints_come_first() {
    let (outputs, _) = outputs(&["x = echo_value('text')\nprint(x)"]).await;
    assert_eq!(outputs[0], "said\ntext\n");
}

#[tokio::test]
async fn a_call_that_hangs_ends_at_the_limit_and_the_session_goes_on() {
    let stage = Stage::new(["x = echo_value('wait')", "1 + 1", ANSWER].map(python)).await;
    let (tool, _, mut told) = echo();
    let (mut config, seen, _) = intercepted(&stage);
    config.root_tools = vec![tool];
    config.limits.call_timeout = Duration::from_secs(2);
    let result = stage.run(config).await;
    assert_eq!(result.stop_reason, StopReason::Answered);
    let outputs = seen.outputs();
    assert!(outputs[0].contains("timed out after 1.9 s"), "{}", outputs[0]);
    assert_eq!(outputs[1], "Out[1]: 2");
    assert_eq!([told.recv().await, told.recv().await], [Some("waiting"), Some("dropped")]);
    stage.end().await;
}

#[tokio::test]
async fn cancelling_a_rollout_ends_the_running_call() {
    let stage = Stage::new([python("x = echo_value('wait')")]).await;
    let (tool, _, mut told) = echo();
    let (mut config, seen, _) = intercepted(&stage);
    config.root_tools = vec![tool];
    let control = Control::new();
    let (result, ()) = tokio::join!(stage.run_with(config, &control), async {
        assert_eq!(told.recv().await, Some("waiting"));
        control.cancel();
    });
    assert_eq!(result.stop_reason, StopReason::Cancelled);
    assert_eq!(told.recv().await, Some("dropped"));
    let ended = seen.events().into_iter().filter(|event| matches!(event, Event::CallEnded(CallEnded { .. })));
    assert_eq!(ended.count(), 1);
    stage.end().await;
}
