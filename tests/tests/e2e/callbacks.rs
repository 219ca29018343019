//! `rlm exec --callbacks`: functions of the host, in a session that may have no way to it.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use rlm_core::protocol::{Outcome, Response, State};
use rlm_tests::scripted_model::{Rule, ScriptedModel};
use rlm_tests::{assert_no_marked_process, default_python, program};
use tempfile::TempDir;

/// A context, a place for other files, and what they are called with.
struct Place {
    context: TempDir,
    other: TempDir,
    mark: String,
}

impl Place {
    fn new(mark: &str) -> Self {
        let context = tempfile::tempdir().unwrap();
        std::fs::write(context.path().join("numbers.txt"), "one\ntwo\nthree\n").unwrap();
        std::fs::write(context.path().join("tool.py"), "class A:\n    def go(self):\n        return 1\n")
            .unwrap();
        let mark = format!("{mark}-{}", std::process::id());
        Self { context, other: tempfile::tempdir().unwrap(), mark }
    }

    /// `rlm exec` in the context.
    fn exec(&self, arguments: &[&str]) -> Output {
        let output = Command::new(program("rlm"))
            .args(["exec", "--context", self.context.path().to_str().unwrap()])
            .args(arguments)
            .current_dir(self.other.path())
            .env("RLM_TEST_MARK", &self.mark)
            .env("RLM_PASS_ENV", "RLM_TEST_MARK")
            .env("TMPDIR", self.other.path())
            // Those of another session.
            .env("RLM_ROOT_TOOL_URL", "http://127.0.0.1:9/")
            .env("RLM_ROOT_TOOL_NAMES", "[\"other\"]")
            .env("RLM_INTERCEPTION_SECRET", "secret")
            .stdin(Stdio::null())
            .output()
            .unwrap();
        assert_no_marked_process(&self.mark);
        output
    }

    fn python(&self, how: &str, more: &[&str]) -> Output {
        let python = format!("--python={}", default_python().display());
        self.exec(&[&[python.as_str(), "--callbacks", how][..], more].concat())
    }

    /// A file with one tool: it appends a line to the file `calls`, and gives its argument back.
    fn tools(&self) -> String {
        let script = self.path("say.sh");
        std::fs::write(&script, "#!/bin/sh\necho called >> \"${0%/*}/calls\"\ncat\n").unwrap();
        std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let file = self.path("tools.toml");
        let tool = "[[tool]]\nname = 'say'\ndescription = 'Gives it back.'\ncommand = ['./say.sh']\n";
        std::fs::write(&file, tool).unwrap();
        file
    }

    /// How often the tool was called.
    fn calls(&self) -> usize {
        std::fs::read_to_string(self.path("calls")).unwrap_or_default().lines().count()
    }

    fn path(&self, name: &str) -> String {
        self.other.path().join(name).to_str().unwrap().to_owned()
    }

    /// Nothing was left where temporary files are made.
    fn assert_nothing_left(&self, files: &[&str]) {
        let name =
            |entry: std::io::Result<std::fs::DirEntry>| entry.unwrap().file_name().into_string().unwrap();
        let mut left: Vec<_> = std::fs::read_dir(self.other.path()).unwrap().map(name).collect();
        left.sort();
        assert_eq!(left, files);
    }
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
fn values_of_the_host_are_there_in_a_session_without_a_way_to_it() {
    let place = Place::new("callbacks-values");
    let calls = [
        "info = nav_info()",
        "type(info).__name__, info['files'], info['languages']['python']['files']",
        "hits = nav_search('t[wh]', path='numbers.txt')\ninfo['files'] += 1",
        "[hit['line'] for hit in hits], info['files']",
        "part = nav_read('tool.py:A.go'); print(part)",
        ENVIRONMENT,
    ];
    let output = place.python("intercept", &calls);
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert_eq!((stderr, output.status.code()), ("", Some(0)));
    let lines: Vec<_> = stdout.lines().collect();
    assert_eq!(lines[..2], ["('dict', 2, 1)", "([2, 3], 3)"]);
    assert!(stdout.contains("    def go(self):\n        return 1\n"), "{stdout}");
    assert_eq!(lines.last(), Some(&"[]"));
    place.assert_nothing_left(&[]);
}

#[test]
fn the_same_functions_are_called_over_the_network() {
    let place = Place::new("callbacks-network");
    let output = place.python("network", &["[nav_ls()[0]['path'] for i in range(2)]", ENVIRONMENT]);
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert_eq!((stderr, output.status.code()), ("", Some(0)));
    assert!(stdout.starts_with("['numbers.txt', 'numbers.txt']\n"), "{stdout}");
    assert!(stdout.contains("RLM_ROOT_TOOL_URL"), "{stdout}");
    let output = place.exec(&["--callbacks", "network", "nav_search two | head -c 1; nav_info | wc -l"]);
    assert_eq!(text(&output.stderr), "");
    assert_eq!(output.status.code(), Some(0));
    place.assert_nothing_left(&[]);
}

#[test]
fn what_is_rejected_or_fails_runs_nothing_and_is_data() {
    let place = Place::new("callbacks-rejected");
    let tools = place.tools();
    let calls = [
        "x = say('a')\nprint(say('b'))",
        "'x' in globals()",
        "x = say('a')\ny = nav_read('none.py')",
        "'x' in globals()",
        "x = say('c'); 1 / 0",
        "x",
    ];
    let output = place.python("intercept", &[&["--json", "--tools", &tools][..], &calls].concat());
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
    assert_eq!(place.calls(), 2, "the rejected code called nothing");
    place.assert_nothing_left(&["calls", "say.sh", "tools.toml"]);
}

#[test]
fn models_are_asked_with_prompts_that_are_written_out() {
    let place = Place::new("callbacks-models");
    let model = ScriptedModel::start([Rule::on("first").reply("one"), Rule::on("second").reply("two")]);
    let base_url = model.base_url();
    let call = "replies = llm_batch(['first', 'second'])\nprint(replies)";
    let output =
        place.python("intercept", &["--model", "m", "--base-url", &base_url, "--api-key-env", "", call]);
    let printed = text(&output.stdout);
    assert!(
        printed.starts_with("llm_batch: 2 calls in ") && printed.ends_with("\n['one', 'two']\n"),
        "{printed}"
    );
    assert_eq!((text(&output.stderr), output.status.code()), ("", Some(0)));
    assert_eq!(model.finish().len(), 2);
    place.assert_nothing_left(&[]);
}

#[test]
fn what_is_not_understood_is_named() {
    let place = Place::new("callbacks-usage");
    for (arguments, words) in [
        (&["--callbacks", "magic", "x"][..], "unknown callbacks `magic`: expected `network` or `intercept`"),
        (
            &["--final-functions", "x"],
            "--final-functions: a bash session has no functions FINAL: add --python",
        ),
        (&["--tools", "/nonexistent.toml", "x"], "/nonexistent.toml"),
    ] {
        let output = place.exec(arguments);
        assert!(text(&output.stderr).contains(words), "{arguments:?}: {}", text(&output.stderr));
        assert_eq!((text(&output.stdout), output.status.code()), ("", Some(2)));
    }
    place.assert_nothing_left(&[]);
}

#[test]
fn an_answer_can_be_given_by_a_function() {
    let place = Place::new("callbacks-final");
    let calls = ["--final-functions", "found = {'a': 1}", "FINAL_VAR('found')"];
    let output = place.python("intercept", &calls);
    assert_eq!((text(&output.stdout), text(&output.stderr)), ("{'a': 1}\n", ""));
    let python = format!("--python={}", default_python().display());
    let output = place.exec(&[&python, "'FINAL' in globals()"]);
    assert_eq!(text(&output.stdout), "False\n");
    assert!(Path::new(place.other.path()).exists());
    place.assert_nothing_left(&[]);
}
