//! `rlm exec --callbacks`: functions of the host for a session that may have no connection to it.

use std::fs;
use std::process::Output;

use rlm_core::protocol::{Outcome, Response, State};
use rlm_tests::Place;
use rlm_tests::scripted_model::{Rule, ScriptedModel};

/// `rlm exec` in a directory with two files, as another session's code might start it.
fn exec(place: &Place, arguments: &[&str]) -> Output {
    let context = place.path("context");
    fs::create_dir_all(&context).unwrap();
    fs::write(context.join("numbers.txt"), "one\ntwo\nthree\n").unwrap();
    fs::write(context.join("tool.py"), "class A:\n    def go(self):\n        return 1\n").unwrap();
    let mut command = place.rlm(&["exec", "--workdir", context.to_str().unwrap()]);
    command
        .args(arguments)
        .env("RLM_ROOT_TOOL_URL", "http://127.0.0.1:9/")
        .env("RLM_ROOT_TOOL_NAMES", "[\"other\"]")
        .env("RLM_INTERCEPTION_SECRET", "secret");
    let output = command.output().unwrap();
    place.assert_nothing_left();
    output
}

fn python(place: &Place, how: &str, more: &[&str]) -> Output {
    exec(place, &[&["--python", "--callbacks", how][..], more].concat())
}

/// Writes a file with one tool, which appends a line to the file `calls` and returns its input.
fn tools(place: &Place) -> String {
    let script = "#!/bin/sh\necho called >> \"${0%/*}/calls\"\ncat\n";
    rlm_tests::write_program(&place.file("say.sh"), script);
    let tool = "[[tool]]\nname = 'say'\ndescription = 'Gives it back.'\ncommand = ['./say.sh']\n";
    place.write("tools.toml", tool).to_str().unwrap().to_owned()
}

/// Number of calls to the tool.
fn times_called(place: &Place) -> usize {
    fs::read_to_string(place.file("calls")).unwrap_or_default().lines().count()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

fn responses(output: &Output) -> Vec<Response> {
    text(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

const ENVIRONMENT: &str =
    "import os; sorted(n for n in os.environ if n.startswith('RLM_') and n != 'RLM_TEST_MARK')";

#[test]
fn values_of_the_host_reach_a_session_without_a_connection_to_it() {
    let place = Place::new();
    let calls = [
        "info = nav_info()",
        "type(info).__name__, info['files'], info['languages']['python']['files']",
        "hits = nav_search('t[wh]', path='numbers.txt')\ninfo['files'] += 1",
        "[hit['line'] for hit in hits], info['files']",
        "part = nav_read('tool.py:A.go'); print(part)",
        ENVIRONMENT,
    ];
    let output = python(&place, "intercept", &calls);
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert_eq!((stderr, output.status.code()), ("", Some(0)));
    let lines: Vec<_> = stdout.lines().collect();
    assert_eq!(lines[..2], ["('dict', 2, 1)", "([2, 3], 3)"]);
    assert!(stdout.contains("    def go(self):\n        return 1\n"), "{stdout}");
    assert_eq!(lines.last(), Some(&"[]"));
}

#[test]
fn the_same_functions_are_called_over_the_network() {
    let place = Place::new();
    let output = python(&place, "network", &["[nav_ls()[0]['path'] for i in range(2)]", ENVIRONMENT]);
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert_eq!((stderr, output.status.code()), ("", Some(0)));
    assert!(stdout.starts_with("['numbers.txt', 'numbers.txt']\n"), "{stdout}");
    assert!(stdout.contains("RLM_ROOT_TOOL_URL"), "{stdout}");
    let output = exec(&place, &["--callbacks", "network", "nav_search two | head -c 1; nav_info | wc -l"]);
    assert_eq!(text(&output.stderr), "");
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn rejected_and_failed_calls_run_nothing_and_are_data() {
    let place = Place::new();
    let tools = tools(&place);
    let calls = [
        "x = say('a')\nprint(say('b'))",
        "'x' in globals()",
        "x = say('a')\ny = nav_read('none.py')",
        "'x' in globals()",
        "x = say('c'); 1 / 0",
        "x",
    ];
    let output = python(&place, "intercept", &[&["--json", "--tools", &tools][..], &calls].concat());
    assert_eq!((text(&output.stderr), output.status.code()), ("", Some(1)));
    let responses = responses(&output);
    let rejected = &responses[0];
    assert_eq!(
        (rejected.outcome, rejected.state, rejected.execution_count),
        (Outcome::Error, State::Kept, 0)
    );
    assert_eq!(rejected.exception.as_ref().unwrap().kind, "InterceptionError");
    let words = rejected.result.as_deref().unwrap();
    assert!(words.contains("line 2, column 7: say is called inside another expression"), "{words}");
    assert_eq!(responses[1].result.as_deref(), Some("False"));
    let failed = &responses[2];
    assert_eq!((failed.outcome, failed.execution_count), (Outcome::Error, 1));
    assert_eq!(failed.exception.as_ref().unwrap().kind, "RuntimeError");
    let words = failed.result.as_deref().unwrap();
    assert!(words.contains("line 2") && words.contains("`nav_read('none.py')`"), "{words}");
    assert_eq!(responses[3].result.as_deref(), Some("False"));
    let raised = responses[4].result.as_deref().unwrap();
    assert!(raised.contains("    x = say('c'); 1 / 0\n"), "{raised}");
    assert!(responses[5].result.as_deref().unwrap().contains('c'), "{:?}", responses[5].result);
    assert_eq!(times_called(&place), 2, "the rejected code called nothing");
}

#[test]
fn the_time_limit_covers_tools_and_code_together() {
    let place = Place::new();
    let tool = "[[tool]]\nname = 'wait'\ndescription = 'Waits.'\ncommand = ['sleep', '1000']\n";
    let tools = place.write("tools.toml", tool);
    let codes =
        ["x = wait()", "info = nav_info()\nwhile True: pass", "'x' in globals(), 'info' in globals()"];
    let flags = ["--json", "--call-timeout", "0.4", "--tools", tools.to_str().unwrap()];
    let output = python(&place, "intercept", &[&flags[..], &codes].concat());
    let responses = responses(&output);
    let outcome = |at: usize| (responses[at].outcome, responses[at].state);
    assert_eq!(outcome(0), (Outcome::TimedOut, State::Kept));
    let hint = responses[0].hint.as_deref().unwrap();
    assert!(hint.contains("its time limit of 0.4 s while `wait()` ran"), "{hint}");
    assert_eq!(outcome(1), (Outcome::TimedOut, State::Kept));
    let hint = responses[1].hint.as_deref().unwrap();
    assert_eq!(hint, "the call was stopped after its time limit of 0.4 s; the session's state is kept");
    assert_eq!(responses[2].result.as_deref(), Some("(False, True)"));
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn a_call_that_the_host_does_not_see_is_explained() {
    let place = Place::new();
    let output = python(&place, "intercept", &["--json", "exec('x = nav_info()')", "undefined"]);
    let responses = responses(&output);
    let hint = responses[0].hint.as_deref().unwrap();
    assert!(hint.contains("name = function(literals)"), "{hint}");
    assert_eq!(responses[1].hint, None);
}

#[test]
fn a_rejection_ends_its_line() {
    let place = Place::new();
    let output = exec(&place, &["--callbacks", "intercept", "echo \"$info$(nav_info)\""]);
    let printed = text(&output.stdout);
    assert!(printed.starts_with("Nothing was run") && printed.ends_with("${info_2}\"\n"), "{printed}");
    assert_eq!((text(&output.stderr), output.status.code()), ("rlm: call 1 failed\n", Some(1)));
}

#[test]
fn models_are_asked_with_prompts_that_are_written_out() {
    let place = Place::new();
    let model = ScriptedModel::start([Rule::on("first").reply("one"), Rule::on("second").reply("two")]);
    let base_url = model.base_url();
    let call = "replies = llm_batch(['first', 'second'])\nprint(replies)";
    let output =
        python(&place, "intercept", &["--model", "m", "--base-url", &base_url, "--api-key-env", "", call]);
    let printed = text(&output.stdout);
    assert!(
        printed.starts_with("llm_batch: 2 calls in ") && printed.ends_with("\n['one', 'two']\n"),
        "{printed}"
    );
    assert_eq!((text(&output.stderr), output.status.code()), ("", Some(0)));
    assert_eq!(model.finish().len(), 2);
}

#[test]
fn invalid_options_are_named() {
    let place = Place::new();
    for (arguments, words) in [
        (
            &["--callbacks", "magic", "x"][..],
            "unknown callback mode `magic`: expected `network` or `intercept`",
        ),
        (
            &["--final-functions", "x"],
            "--final-functions: a bash session has no function FINAL: add --python",
        ),
        (&["--tools", "/nonexistent.toml", "x"], "/nonexistent.toml"),
    ] {
        let output = exec(&place, arguments);
        assert!(text(&output.stderr).contains(words), "{arguments:?}: {}", text(&output.stderr));
        assert_eq!((text(&output.stdout), output.status.code()), ("", Some(2)));
    }
}

#[test]
fn an_answer_can_be_given_by_a_function() {
    let place = Place::new();
    let calls = ["--final-functions", "found = {'a': 1}", "FINAL_VAR('found')"];
    let output = python(&place, "intercept", &calls);
    assert_eq!((text(&output.stdout), text(&output.stderr)), ("{'a': 1}\n", ""));
    let output = exec(&place, &["--python", "'FINAL' in globals()"]);
    assert_eq!(text(&output.stdout), "False\n");
}
