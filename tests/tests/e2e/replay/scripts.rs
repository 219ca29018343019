//! Scripts that run on their own.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use rlm_core::protocol::Outcome;
use rlm_tests::{Place, Setup};
use serde_json::json;

use super::{ask, command, keep, rlm, rollout_dir, run, script_of, seen, session, shown, text, worker};

const NUMBERS: &str = "3\n1\n2\n";

const BASH: [&str; 15] = [
    "sort -n numbers.txt > sorted.txt; x=1",
    "total() { awk '{ s += $1 } END { print s }' \"$1\"; } # a comment at the end",
    "cat <<EOF > note.txt\nx is $x\n'quoted\" \\ text\nEOF",
    "cat note.txt; cat <<'X' | tr a-z A-Z\nabc\nX",
    "alias greet='echo hello'",
    "greet there",
    "read line; echo \"read: [$line] $?\"; cat",
    "false",
    "echo \"status $?\"",
    "echo a \\",
    "cat <<OPEN\nno end",
    "echo 'open",
    "sleep 1000 &",
    "cd / && pwd && cd - >/dev/null && shopt -s extglob && set -u\n: @(a|b)",
    "RLM_CONTENT=\"total $(total sorted.txt) of $x\n\" RLM_READY=1",
];

#[test]
fn a_bash_script_prints_what_the_session_printed() {
    let place = Place::new();
    let (kept, responses) = session(&place, Setup::bash(), &[("numbers.txt", NUMBERS)], &BASH);
    let script = script_of(&place, &kept, &[]);
    place.write("numbers.txt", NUMBERS);
    let output = run(&place, &script);
    let without_errors = |text: &str| -> Vec<String> {
        // A syntax error names another file and line, and a background job is announced at a terminal.
        let is_ours = |line: &&str| {
            !line.contains("unexpected EOF")
                && !line.contains("here-document")
                && !line.starts_with("[1]")
                && !line.contains("syntax error")
        };
        text.lines().filter(is_ours).map(str::to_owned).collect()
    };
    let expected = seen(&responses).replace(responses[0].stdout.as_str(), "");
    assert_eq!(without_errors(text(&output.stdout)), without_errors(&expected), "{script}\n{output:?}");
    assert!(text(&output.stdout).ends_with("\ntotal 6 of 1\n"), "{output:?}");
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(fs::read_to_string(place.file("note.txt")).unwrap(), "x is 1\n'quoted\" \\ text\n");
    // An alias may stand for anything.
    for plain in [
        "\n# Call 4\ncat note.txt; cat <<'X' | tr a-z A-Z\nabc\nX\n",
        "\n# Call 6\n\\builtin eval 'greet there'\n",
    ] {
        assert!(script.contains(plain), "{plain:?} is not in {script}");
    }
}

/// The end of a here-document, or input that the script itself reads, may be hidden in many ways; the session is not
/// affected.
#[test]
fn no_call_breaks_the_rest_of_the_script() {
    let answer = "RLM_CONTENT=hello RLM_READY=1";
    for calls in [
        &["echo '\ncat <<A\n'\ncat <<B\nA\n", "echo second", answer][..],
        &["cat <\\\n<EOF\nfoo", "echo second", answer],
        &["alias h='cat <<EOF'", "h", "echo second", answer],
        &["eval() { echo hijacked; }", "false", "echo $?", answer],
        &["alias eval='echo hijacked'", "echo second", answer],
        &["exit() { echo mine; }; printf() { echo mine; }; trap() { echo mine; }", answer],
        &["IFS=:", "sleep 1000 & sleep 1001 &", answer],
    ] {
        let place = Place::new();
        let (kept, responses) = session(&place, Setup::bash(), &[], calls);
        let output = run(&place, &script_of(&place, &kept, &[]));
        let is_output = |line: &&str| !line.starts_with('[') && !line.contains("here-document");
        let printed: Vec<_> = text(&output.stdout).lines().filter(is_output).collect();
        let expected = seen(&responses);
        assert_eq!(printed, expected.lines().filter(is_output).collect::<Vec<_>>(), "{calls:?} {output:?}");
        assert_eq!((printed.last(), output.status.code()), (Some(&"hello"), Some(0)), "{calls:?}");
    }
    for (calls, last) in [
        (&["x = 1", "if 1: global x; x = 2", "print(x)", "answer['content'] = 'hello'"][..], "hello"),
        (
            &[
                "import asyncio; lock = asyncio.Lock()",
                "async  with lock: print(1)",
                "answer['content'] = 'hello'",
            ],
            "hello",
        ),
        (&["class Odd:\n    def __str__(self): 1/0\nanswer['content'] = Odd()"], " object at 0x"),
    ] {
        let place = Place::new();
        let (kept, _) = session(&place, Setup::python(), &[], calls);
        let output = run(&place, &script_of(&place, &kept, &[]));
        let printed = text(&output.stdout);
        assert!(printed.lines().last().is_some_and(|line| line.contains(last)), "{calls:?} {output:?}");
        assert_eq!((text(&output.stderr), output.status.code()), ("", Some(0)), "{calls:?}");
    }
}

const PYTHON: [&str; 15] = [
    "from __future__ import annotations",
    "import asyncio, os, sys\nnumbers = [int(line) for line in open('numbers.txt')]",
    "sum(numbers)",
    "async def double(x):\n    await asyncio.sleep(0)\n    return 2 * x",
    "await double(21)",
    "text = '''a\\n'quoted\" \\\\\n'''  # a comment at the end",
    "text",
    "display(__); len(_)",
    "def show(x: Undefined):\n    print('shown', x)\nshow(1)",
    "print('é\\ud800'); os.system('echo from a program'); print('after')",
    "import io; sys.stdout = io.StringIO(); print('lost')",
    "print(sys.argv, os.path.basename(extra_data) == os.path.basename(os.getcwd()), sys.stdin.read() == '')",
    "task = asyncio.Lock() is not None\nif task:\n    x = 5",
    "for number in sorted(numbers):\n    print(number)",
    "answer['content'] = f'total {sum(numbers)} of {x}'\nanswer['ready'] = True",
];

#[test]
fn a_python_script_prints_what_the_session_printed() {
    let place = Place::new();
    let (kept, responses) = session(&place, Setup::python(), &[("numbers.txt", NUMBERS)], &PYTHON);
    for response in &responses {
        assert_eq!(response.outcome, Outcome::Ok, "{response:?}");
    }
    let script = script_of(&place, &kept, &[]);
    place.write("numbers.txt", NUMBERS);
    let output = run(&place, &script);
    assert_eq!(shown(&output), (seen(&responses).as_str(), "", Some(0)), "{script}");
    assert!(text(&output.stdout).ends_with("total 6 of 5\n"));
}

#[test]
fn python_calls_are_unchanged_if_they_mean_the_same_in_a_file() {
    let place = Place::new();
    let codes = ["x = 1", "print(x)", "x", "global x\nx = 2", "if x == 2:\n    answer = 'two'"];
    let (kept, responses) = session(&place, Setup::python(), &[], &codes);
    let script = script_of(&place, &kept, &[]);
    for part in [
        "\n# %% Call 1\nx = 1\n",
        "\n# %% Call 2\nprint(x)\n",
        "\n# %% Call 3\n__rlm_cell(3, r'''\nx\n''')\n",
        "\n# %% Call 4\n__rlm_cell(4, r'''\nglobal x\nx = 2\n''')\n",
        "\n# %% Call 5\nif x == 2:\n    answer = 'two'\n",
    ] {
        assert!(script.contains(part), "{part:?} is not in {script}");
    }
    assert_eq!(shown(&run(&place, &script)), ("1\n1\ntwo\n", "", Some(0)));
    assert_eq!(seen(&responses), "1\n1\ntwo\n");
}

#[test]
fn calls_that_did_not_finish_are_comments_with_the_reason() {
    let place = Place::new();
    for (language, codes, reasons) in [
        (
            "bash",
            [
                ("x=1; sleep 1000", "timed out"),
                ("set -e; false", "ended the shell"),
                ("exit 3", "ended the shell"),
            ],
            ["timed out", "ended the shell", "ended the shell"],
        ),
        (
            "python",
            [
                ("import time\ntime.sleep(1000)", "timed out"),
                ("y = 1\n1/0", "raised an exception"),
                ("import os\ros._exit(3)", "ended the interpreter"),
            ],
            ["timed out", "raised an exception", "ended the interpreter"],
        ),
    ] {
        let mut worker = worker(language);
        for (code, _) in codes {
            worker.call_with(code, json!({"timeout": 0.3}));
        }
        let print = if language == "bash" { "false || echo still here" } else { "print('still here')" };
        worker.call(print);
        worker.send_call(
            if language == "bash" {
                "touch on; sleep 1000"
            } else {
                "open('on', 'w'); import time; time.sleep(1000)"
            },
            json!({}),
        );
        worker.wait_for_file("on");
        worker.signal(nix::sys::signal::Signal::SIGINT);
        assert_eq!(worker.receive().outcome, Outcome::Interrupted);
        let script = script_of(&place, &rollout_dir(&worker), &[]);
        for (at, ((code, _), reason)) in codes.iter().zip(reasons).enumerate() {
            let number = at + 1;
            let comment: String = code.split(['\n', '\r']).map(|line| format!("# {line}\n")).collect();
            let title = format!("Call {number}. Left out: it {reason}\n{comment}");
            assert!(script.contains(&title), "{title:?} is not in {script}");
            assert!(script.contains(&format!("# Left out: call {number}, which {reason}\n")), "{script}");
        }
        assert!(script.contains("Call 5. Left out: it was interrupted\n"), "{script}");
        assert_eq!(shown(&run(&place, &script)), ("still here\n", "", Some(0)), "{script}");
        worker.end();
    }
}

#[test]
fn all_keeps_failed_calls_and_their_effects() {
    let place = Place::new();
    let codes = ["x = 1\n1/0", "print(x)", "y = ("];
    let (kept, _) = session(&place, Setup::python(), &[], &codes);
    let output = run(&place, &script_of(&place, &kept, &[]));
    assert!(text(&output.stderr).ends_with("NameError: name 'x' is not defined\n"), "{output:?}");
    let output = run(&place, &script_of(&place, &kept, &["--all"]));
    assert_eq!((text(&output.stdout), output.status.code()), ("1\n", Some(0)), "{output:?}");
    assert!(text(&output.stderr).contains("ZeroDivisionError"), "{output:?}");
    assert!(text(&output.stderr).contains("SyntaxError"), "{output:?}");

    let (kept, _) = session(&place, Setup::bash(), &[], &["x=1", "echo before; exit 3", "echo \"$x\""]);
    let output = run(&place, &script_of(&place, &kept, &["--all"]));
    assert_eq!(shown(&output), ("before\n1\n", "", Some(0)));
}

#[test]
fn variables_from_the_host_are_assignments() {
    let place = Place::new();
    let variables = json!({
        "text": "a 'b' \"c\" \\ $x `y`\n é\u{1F600}",
        "number": 1e16, "yes": true, "list": ["a b", 2, false], "named": {"k 1": "v'", "k2": 2},
        "gone": null,
    });
    let deep = json!({"big": 1, "nested": {"a": [null, true, {"b": "\u{1}\u{7f}"}]}});
    for (language, set, code) in [
        (
            "bash",
            variables,
            "declare -p text number yes list; echo \"${named[k 1]} ${named[k2]} ${gone-unset}\"",
        ),
        ("python", deep, "print(big, nested, really_big % 97)"),
    ] {
        let mut worker = worker(language);
        let mut request = json!({"op": "set", "variables": set});
        if language == "python" {
            request["variables"]["name"] = json!("x");
            let digits = "7".repeat(5000);
            let text = request.to_string().replace(r#""name":"x""#, &format!(r#""really_big":{digits}"#));
            worker.send(text.replacen('{', r#"{"seq":900,"#, 1).as_bytes());
            assert_eq!(worker.receive().outcome, Outcome::Ok);
        } else {
            assert_eq!(ask(&worker, 900, request).outcome, Outcome::Ok);
            let list = json!({"op": "set", "variables": {"text": ["x"]}});
            assert_eq!(ask(&worker, 901, list).outcome, Outcome::Ok);
            let again = json!({"op": "set", "variables": {"text": "again 'x'"}});
            assert_eq!(ask(&worker, 902, again).outcome, Outcome::Ok);
        }
        let refused = ask(&worker, 903, json!({"op": "set", "variables": {"1x": 1}}));
        assert_eq!(refused.outcome, Outcome::Error);
        let response = worker.call(code);
        let script = script_of(&place, &keep(&place, &worker), &[]);
        assert!(script.contains("variables from the host. Left out: it was refused\n"), "{script}");
        let output = run(&place, &script);
        assert_eq!(shown(&output), (response.stdout.as_str(), "", Some(0)), "{script}");
        worker.end();
    }
}

#[test]
fn only_files_outlive_a_reset() {
    let place = Place::new();
    for (language, before, after, answer) in [
        (
            "bash",
            "x=1; f() { :; }; RLM_CONTENT=old; echo kept > file; cd /",
            "echo \"${x-unset} $(cat file)\"; declare -F",
            "RLM_CONTENT=new",
        ),
        (
            "python",
            "x = 1\nanswer['content'] = 'old'\nimport os\nopen('file', 'w').write('kept') and None\nos.chdir('/')",
            "print('x' in globals(), open('file').read(), answer)",
            "answer['content'] = 'new'",
        ),
    ] {
        let mut worker = worker(language);
        let mut stdout = String::new();
        for seq in [900, 901, 902] {
            stdout += &worker.call(before).stdout;
            assert_eq!(ask(&worker, seq, json!({"op": "reset"})).outcome, Outcome::Ok);
            stdout += &worker.call(after).stdout;
        }
        let script = script_of(&place, &keep(&place, &worker), &[]);
        assert_eq!(shown(&run(&place, &script)), (stdout.as_str(), "", Some(0)), "{script}");
        assert_eq!(script.matches(": a fresh session, with only the files\n").count(), 3);
        worker.call(answer);
        let output = run(&place, &script_of(&place, &keep_again(&place, &worker), &[]));
        assert_eq!(text(&output.stdout), format!("{stdout}new\n"));
        worker.end();
    }
}

fn keep_again(place: &Place, worker: &rlm_tests::Worker) -> std::path::PathBuf {
    fs::remove_dir_all(place.path(&format!("kept-{}", worker.pid()))).unwrap();
    keep(place, worker)
}

#[test]
fn the_script_is_executable_and_states_its_requirements() {
    let place = Place::new();
    let (kept, _) = session(&place, Setup::bash(), &[], &["echo one"]);
    place.write("run.sh", "old");
    let written = rlm(&place, &["script", kept.to_str().unwrap(), "--output", "run.sh"]);
    assert_eq!(shown(&written), ("", "", Some(0)));
    let path = place.file("run.sh");
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o111, 0o111);
    assert_eq!(shown(&command(&place, &path).output().unwrap()), ("one\n", "", Some(0)));
    let script = fs::read_to_string(&path).unwrap();
    assert!(script.contains("\n# Needs bash 4.4 or newer (the session's was "), "{script}");
    let context = fs::read_to_string(kept.join("rlm_context.json")).unwrap();
    let fs_root = serde_json::from_str::<serde_json::Value>(&context).unwrap()["fs_root"].clone();
    assert!(
        script.contains(&format!("\n# The session's directory was {}\n", fs_root.as_str().unwrap())),
        "{script}"
    );
    assert_eq!(script_of(&place, &kept.join("rlm_history.jsonl"), &[]), script);
    let failed = rlm(&place, &["script", kept.to_str().unwrap(), "--output", "missing/run.sh"]);
    assert_eq!(failed.status.code(), Some(3));
    assert!(text(&failed.stderr).starts_with("rlm: cannot write missing/run.sh: "), "{failed:?}");
}
