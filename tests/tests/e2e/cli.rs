//! `rlm` on the command line.

use std::process::{Command, Output, Stdio};

use nix::sys::signal::Signal;
use rlm_core::protocol::Response;
use rlm_tests::{Place, default_python, program, signal};

fn rlm(args: &[&str]) -> Output {
    Command::new(program("rlm")).args(args).stdin(Stdio::null()).output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[test]
fn a_reader_that_has_had_enough_gets_no_message() {
    let place = Place::new();
    for args in [&["exec", "seq 200000", "echo more"][..], &["exec", "--json", "seq 200000", "echo more"]] {
        let mut child = place.rlm(args).spawn().unwrap();
        let mut begin = [0; 10];
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut begin).unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert_eq!((text(&output.stderr), output.status.code()), ("", Some(3)));
    }
}

#[test]
fn exec_runs_calls_in_one_session() {
    let place = Place::new();
    place.write("data", "1\n2\n");
    let workdir = place.path("work").display().to_string();
    let codes = ["n=$(wc -l <data)", "echo $n lines", "RLM_CONTENT=$n; RLM_READY=1"];
    let output = rlm(&[&["exec", "--workdir", &workdir][..], &codes].concat());
    assert_eq!((text(&output.stdout), text(&output.stderr)), ("2 lines\n2\n", ""));
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn exec_runs_a_file_of_blocks_and_prints_raw_responses() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("calls.sh");
    std::fs::write(&file, "x=1\n# %%\ncat <<EOF\n$x\nEOF\n# %%\nexit 3\n").unwrap();
    let output = rlm(&["exec", "--json", "--file", file.to_str().unwrap()]);
    let responses: Vec<Response> =
        text(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let seen: Vec<_> = responses
        .iter()
        .map(|response| (response.seq, response.stdout.as_str(), response.exit_code))
        .collect();
    assert_eq!(seen, [(1, "", Some(0)), (2, "1\n", Some(0)), (3, "exit\n", Some(3))]);
    assert_eq!(output.status.code(), Some(1), "a call ended its shell");
}

#[test]
fn exec_stops_a_call_at_its_limit_and_says_so() {
    let output = rlm(&["exec", "--call-timeout", "0.2", "echo partial; sleep 1000", "echo next"]);
    assert_eq!(text(&output.stdout), "partial\n\nnext\n");
    let message = "rlm: call 1 timed out: the call was stopped after its time limit of 0.2 s; the session's state is kept\n";
    assert_eq!((text(&output.stderr), output.status.code()), (message, Some(1)));
}

/// `--python=PATH` for the Python that the tests use.
fn python() -> String {
    format!("--python={}", default_python().display())
}

#[test]
fn exec_runs_cells_in_one_session() {
    let cells = [
        "x = 2",
        "print('out'); x ** 10",
        "import sys; print('err', file=sys.stderr)",
        "answer['content'] = x",
    ];
    let output = rlm(&[&["exec", &python()][..], &cells].concat());
    assert_eq!((text(&output.stdout), text(&output.stderr)), ("out\n1024\n2\n", "err\n"));
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn exec_shows_a_traceback_and_goes_on() {
    let output = rlm(&["exec", &python(), "1 / 0", "'on'", "import os; os._exit(3)"]);
    let errors = "Traceback (most recent call last):\n  File \"<cell 1>\", line 1, in <module>\n";
    assert_eq!(text(&output.stdout), "'on'\n");
    assert!(text(&output.stderr).starts_with(errors), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("\nZeroDivisionError: division by zero\nrlm: call 1 failed\n"));
    let crashed = "rlm: call 3 ended its interpreter: the interpreter ended with status 3; ";
    assert!(text(&output.stderr).contains(crashed), "{}", text(&output.stderr));
    assert_eq!(output.status.code(), Some(1));
}

/// The output of `rlm repl` for lines from a pipe.
fn repl_from_pipe(arguments: &[&str], lines: &str) -> Output {
    let mut child = Command::new(program("rlm"))
        .arg("repl")
        .args(arguments)
        .env("HOME", "/nonexistent")
        .env_remove("XDG_STATE_HOME")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), lines.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

#[test]
fn repl_takes_cells_of_several_lines() {
    let cells =
        "def f(n):\n    m = n\n    return m\n\nf(41) + (\n1)\nfor i in range(2):\n    print(i)\n\nf(5)\n";
    let output = repl_from_pipe(&[&python()], cells);
    assert_eq!((text(&output.stdout), output.status.code()), ("42\n0\n1\n5\n", Some(0)));
}

#[test]
fn exec_reads_calls_from_standard_input() {
    let mut child = Command::new(program("rlm"))
        .args(["exec", "--file", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), b"x=5\n# %%\necho $x\n").unwrap();
    assert_eq!(text(&child.wait_with_output().unwrap().stdout), "5\n");
}

#[test]
fn an_interrupt_stops_the_running_call_and_ends_exec_in_order() {
    let place = Place::new();
    let code = "echo partial; sh -c ': >started; exec sleep 1000'";
    let child = place.rlm(&["exec", code, "echo never"]).spawn().unwrap();
    rlm_tests::wait_until("the call runs", || place.file("started").exists());
    signal(&child, Signal::SIGINT);
    let output = child.wait_with_output().unwrap();
    assert_eq!((text(&output.stdout), output.status.code()), ("partial\n\n", Some(1)));
    assert_eq!(text(&output.stderr), "rlm: call 1 was interrupted\n");
}

#[test]
fn errors_have_a_message_and_an_exit_status() {
    for (args, code, message) in [
        ("exec", 2, "required arguments were not provided"),
        ("exec --call-timeout soon :", 2, "expected a number of seconds above 0"),
        ("exec --language perl :", 2, "unknown REPL language `perl`: expected `bash` or `python`"),
        (
            "exec --python=/does/not/exist 1",
            3,
            "--python names the Python /does/not/exist, which does not exist",
        ),
        (
            "exec --workdir /does/not/exist :",
            3,
            "cannot use the working directory /does/not/exist: No such file",
        ),
        ("exec --workdir /etc/passwd :", 3, "the working directory /etc/passwd is not a directory"),
        ("exec --file /does/not/exist", 3, "cannot read /does/not/exist: No such file"),
    ] {
        let output = rlm(&args.split(' ').collect::<Vec<_>>());
        assert_eq!(output.status.code(), Some(code), "{args:?}");
        assert!(text(&output.stderr).contains(message), "{args:?}: {}", text(&output.stderr));
    }
}

#[test]
fn a_python_that_does_not_exist_is_called_by_the_option_that_names_it() {
    let place = Place::new();
    let server = ["--model", "m", "--base-url", "http://127.0.0.1:1/v1"];
    let python = "--python=/no/python3";
    place.write("rlm_context.json", "{\"fs_root\": \"/\"}");
    let worker = ["worker", "--language", "python", "--control-dir", ".", "--", "--python", "/no/python3"];
    for args in [
        &[&["run"], &server[..], &["--context", "", python, "Why?"]].concat()[..],
        &["exec", python, "1"],
        &["repl", python],
        &["demo", python],
        &["doctor", python],
        &worker,
    ] {
        let output = place.rlm(args).output().unwrap();
        let words = format!("{}{}", text(&output.stdout), text(&output.stderr));
        assert!(words.contains(": --python"), "{args:?}: {words}");
        assert!(words.contains("names the Python /no/python3, which does not exist"), "{args:?}: {words}");
    }
}

#[test]
fn code_over_a_mebibyte_is_refused_with_size_and_limit() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("calls.sh");
    std::fs::write(&file, "#".repeat((1 << 20) + 1)).unwrap();
    let output = rlm(&["exec", "--file", file.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(3));
    assert!(
        text(&output.stderr).contains("call 1: code of 1048577 bytes exceeds the limit of 1048576 bytes")
    );
}

#[test]
fn repl_serves_lines_from_a_pipe() {
    let output = repl_from_pipe(&[], "x=5\nprintf no-newline\necho $x\n");
    assert_eq!((text(&output.stdout), output.status.code()), ("no-newline\n5\n", Some(0)));
}

#[test]
fn worker_becomes_the_worker_of_the_language() {
    for (language, worker) in [("bash", "rlm-worker-bash"), ("python", "rlm-worker-python")] {
        let output = rlm(&["worker", "--language", language, "--control-dir", "/does/not/exist"]);
        assert_eq!(output.status.code(), Some(3));
        let words = text(&output.stderr);
        assert!(
            words.starts_with(&format!(
                "{worker}: cannot continue: cannot read the context file /does/not/exist"
            )),
            "{words}"
        );
    }
    let output = rlm(&["worker", "--control-dir", "/does/not/exist"]);
    assert!(text(&output.stderr).starts_with("rlm-worker-bash: "), "bash is the default");
}

#[test]
fn help_shows_examples_and_exit_statuses() {
    let output = rlm(&["--help"]);
    for part in ["rlm exec --file calls.sh --json", "Exit status:", "not a security sandbox"] {
        assert!(text(&output.stdout).contains(part), "{part}");
    }
    assert!(text(&rlm(&["completions", "bash"]).stdout).contains("_rlm()"));
}

/// Starts `rlm`, waits until its call runs, sends a signal, and checks that nothing is left.
fn end_by_signal(args: &[&str], input: &str, by: Signal) {
    let place = Place::new();
    let mut child = place.rlm(args).stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    std::io::Write::write_all(&mut stdin, input.as_bytes()).unwrap();
    rlm_tests::wait_until("the call runs", || place.file("started").exists());
    signal(&child, by);
    assert_eq!(child.wait().unwrap().code(), Some(128 + by as i32), "{args:?} {by}");
    drop(stdin);
}

#[test]
fn signals_that_end_the_command_end_its_session_too() {
    for signal in [Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT] {
        end_by_signal(&["exec", ": >started; sleep 1000"], "", signal);
    }
    end_by_signal(&["repl"], ": >started; sleep 1000\n", Signal::SIGTERM);
}
