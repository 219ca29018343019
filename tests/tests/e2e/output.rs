//! The output of a call: all of it, in order, and nothing else.

use rlm_core::protocol::Truncated;
use rlm_tests::Worker;
use serde_json::json;

use crate::languages::{Language, in_both_languages};

in_both_languages!(
    much_output_is_kept_whole_where_the_host_allows,
    output_over_the_limit_keeps_head_and_tail,
    what_is_printed_between_calls_is_the_next_ones,
);

fn much_output_is_kept_whole_where_the_host_allows(language: Language) {
    let mut worker = language.start();
    for (mebibytes, code) in language.pick(
        &[(64, "head -c $((64<<20)) /dev/zero | tr '\\0' x")][..],
        &[(32, "for i in range(512): print('x' * ((64 << 10) - 1))"), (64, "print('x' * ((64 << 20) - 1))")],
    ) {
        let response = worker.call_with(code, json!({"max_output_bytes": 64 << 20}));
        assert_eq!((response.stdout.len(), response.truncated), (mebibytes << 20, None));
        assert!(response.stdout.bytes().all(|byte| byte == b'x' || byte == b'\n'));
        assert_eq!(worker.output(language.pick("echo next", "print('next')")), "next\n");
    }
}

// Promise: Every byte in order; how the call ended, which state survived, what was dropped.
fn output_over_the_limit_keeps_head_and_tail(language: Language) {
    let mut worker = language.start();
    let code = language.pick(
        "for i in {1000..9999}; do echo $i; done",
        "import sys\nfor i in range(1000, 10_000):\n    print(i)\n    print(i, file=sys.stderr)",
    );
    let response = worker.call_with(code, json!({"max_output_bytes": 1000}));
    let dropped = 9000 * 5 - 1000;
    let truncated = Truncated { stdout: dropped, stderr: language.pick(0, dropped), result: 0 };
    assert_eq!(response.truncated, Some(truncated));
    for stream in [&response.stdout, language.pick(&response.stdout, &response.stderr)] {
        assert!(stream.starts_with("1000\n1001\n") && stream.ends_with("9998\n9999\n"), "{stream}");
        assert!(stream.contains(&format!("\n[{dropped} bytes of output dropped here]\n")), "{stream}");
    }
}

fn what_is_printed_between_calls_is_the_next_ones(language: Language) {
    for code in language.pick(
        &["mkfifo gate; { read x <gate; echo late; : >printed; } &"][..],
        &[
            "import os, threading
os.mkfifo('gate')
def late():
    open('gate').read()
    print('late', flush=True)
    open('printed', 'w').close()
threading.Thread(target=late).start()",
            "import os, subprocess\nos.mkfifo('gate')
child = subprocess.Popen('read x <gate; echo late; : >printed; exec sleep 1000', shell=True)",
        ],
    ) {
        let mut worker = language.start();
        // A shell tells of its job when it starts, and when the shell learns of its end.
        let no_notices = |printed: String| {
            printed
                .lines()
                .filter(|line| !line.starts_with("[1]"))
                .map(|line| format!("{line}\n"))
                .collect::<String>()
        };
        assert_eq!(no_notices(worker.output(code)), "");
        std::fs::write(worker.fs_root().join("gate"), "go\n").unwrap();
        worker.wait_for_file("printed");
        let printed = worker.output(language.pick("echo now; wait", "print('now')"));
        assert_eq!(no_notices(printed), "late\nnow\n");
    }
}

#[test]
fn output_comes_as_it_was_written() {
    let mut worker = Worker::bash();
    let cases = [
        ("printf 'no newline'", "no newline"),
        ("printf 'a\\r\\nb\\n'", "a\r\nb\n"),
        ("printf '\\n\\n x \\n\\n'", "\n\n x \n\n"),
        ("printf 'a\\0b\\a\\e[31m\\t'", "a\0b\x07\x1b[31m\t"),
        ("printf '\\xff\\xfe ok \\xc3'", "\u{fffd}\u{fffd} ok \u{fffd}"),
        (
            "echo out; echo err >&2; echo out2; ls /none 2>&1 >/dev/null",
            "out\nerr\nout2\nls: cannot access '/none': No such file or directory\n",
        ),
        ("nothing_here", "bash: nothing_here: command not found\n"),
        ("printf '\\x04\\x03\\x1a after'", "\u{4}\u{3}\u{1a} after"),
    ];
    for (code, output) in cases {
        let response = worker.call(code);
        assert_eq!(
            (response.stdout.as_str(), response.stderr.as_str(), &response.result),
            (output, "", &None),
            "{code}"
        );
    }
}

#[test]
fn a_character_split_across_writes_stays_whole() {
    let mut worker = Worker::bash();
    let code = "for i in {1..200}; do printf '\\xf0\\x9f'; printf '\\x8e'; printf '\\x89'; done";
    assert_eq!(worker.output(code), "🎉".repeat(200));
}

// Promise: Every byte in order; how the call ended, which state survived, what was dropped.
#[test]
fn streams_stay_in_order() {
    let mut worker = Worker::bash();
    let code = "for i in {1..2000}; do echo o$i; echo e$i >&2; done";
    let expected: String = (1..=2000).map(|i| format!("o{i}\ne{i}\n")).collect();
    assert_eq!(worker.output(code), expected);
}

// Promise: Every byte in order; how the call ended, which state survived, what was dropped.
#[test]
fn no_byte_is_lost_at_the_end_of_a_call() {
    let mut worker = Worker::bash();
    for size in (1..200_000).step_by(4099) {
        let printed = worker.output(&format!("head -c {size} /dev/zero | tr '\\0' x; printf END"));
        assert_eq!(printed.len(), size + 3);
        assert!(printed.ends_with("xEND"));
    }
}

#[test]
fn a_job_that_never_stops_printing_delays_nothing() {
    let mut worker = Worker::bash();
    worker.call("yes & disown");
    for call in 0..rlm_tests::scaled(6, 2) {
        let response = worker.call_with(&format!("echo call-{call}"), json!({"max_output_bytes": 1 << 30}));
        assert!(response.stdout.contains(&format!("call-{call}\n")), "call {call}");
        assert!(response.execution_time < 1.0, "{}", response.execution_time);
    }
    worker.call("kill $!; wait $! 2>/dev/null");
    worker.output("sleep 0.01");
    assert_eq!(worker.output("echo clean"), "clean\n");
}

#[test]
fn a_job_that_holds_the_terminal_open_delays_nothing() {
    let mut worker = Worker::bash();
    let response = worker
        .call("sleep 1000 & (sleep 1000 &) ; nohup sleep 1000 >/dev/null 2>&1 & setsid sleep 1000; echo on");
    assert!(response.stdout.ends_with("on\n"), "{response:?}");
    assert!(response.execution_time < 5.0);
}

#[test]
fn job_notices_are_where_a_person_would_see_them() {
    let mut worker = Worker::bash();
    let started = worker.output("true & wait $!; echo end");
    let lines: Vec<&str> = started.lines().collect();
    assert!(lines[0].starts_with("[1] "), "{started}");
    assert_eq!(lines[1..], ["[1]+  Done                    true", "end"]);
}

#[test]
fn a_thousand_lines_of_one_call_do_not_slow_the_next() {
    let mut worker = Worker::bash();
    worker.call_with("yes | head -c 20000000", json!({"max_output_bytes": 300}));
    assert_eq!(worker.output("seq 3"), "1\n2\n3\n");
}

#[test]
fn lines_are_those_of_the_call() {
    let here = |line| {
        format!("bash: warning: here-document at line {line} delimited by end-of-file (wanted `EOF')\ntext\n")
    };
    // In each of these states, the driver writes other lines before the code.
    for state in [
        ":",
        "trap : ERR",
        "set -u; false",
        "trap : DEBUG; exec 3>&1",
        "builtin() { command builtin \"$@\"; }",
    ] {
        let mut worker = Worker::bash();
        worker.output("f() {\n  caller\n  echo $LINENO ${BASH_LINENO[0]}\n}\n\n\n");
        worker.call(state);
        for (code, expected) in [
            ("\necho $LINENO", "2\n".to_owned()),
            ("cat <<EOF\ntext", here(1)),
            (":\n\ncat <<-EOF\ntext", here(3)),
            ("for i in 1; do\n:\ndone; cat <<EOF\ntext", here(3)),
            ("\n\nf", "3 NULL\n3 3\n".to_owned()),
            ("\n(trap 'echo at $LINENO' ERR\nfalse)", "at 3\n".to_owned()),
            ("\n(trap 'echo at $LINENO' DEBUG\n:)", "at 3\n".to_owned()),
            ("\n(PS4='+$LINENO '; set -x\n: a) 2>&1", "+++3 : a\n".to_owned()),
            ("unset LINENO; LINENO=7", String::new()),
            ("readonly LINENO; echo on", "on\n".to_owned()),
            ("echo on; echo $?", "on\n0\n".to_owned()),
        ] {
            let response = worker.call(code);
            let shown = [response.stdout, response.stderr].concat();
            assert_eq!(shown, expected, "{code} after {state}");
        }
    }
}
