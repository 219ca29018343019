//! The output of a call: all of it, in order, and nothing else.

use rlm_core::protocol::Truncated;
use rlm_tests::Worker;
use serde_json::json;

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
    worker.end();
}

#[test]
fn a_character_split_across_writes_stays_whole() {
    let mut worker = Worker::bash();
    let code = "for i in {1..200}; do printf '\\xf0\\x9f'; printf '\\x8e'; printf '\\x89'; done";
    assert_eq!(worker.output(code), "🎉".repeat(200));
    worker.end();
}

#[test]
fn sixty_four_mebibytes_are_kept_whole_where_the_host_allows() {
    let mut worker = Worker::bash();
    let size = 64 << 20;
    let response =
        worker.call_with("head -c $((64<<20)) /dev/zero | tr '\\0' x", json!({"max_output_bytes": size}));
    assert_eq!((response.stdout.len(), response.truncated), (size, None));
    assert!(response.stdout.bytes().all(|byte| byte == b'x'));
    assert_eq!(worker.output("echo next"), "next\n");
    worker.end();
}

#[test]
fn output_over_the_limit_keeps_head_and_tail() {
    let mut worker = Worker::bash();
    let response =
        worker.call_with("for i in {1000..9999}; do echo $i; done", json!({"max_output_bytes": 1000}));
    let dropped = 9000 * 5 - 1000;
    assert_eq!(response.truncated, Some(Truncated { stdout: dropped, ..Truncated::default() }));
    assert!(response.stdout.starts_with("1000\n1001\n"), "{}", response.stdout);
    assert!(response.stdout.ends_with("9998\n9999\n"), "{}", response.stdout);
    assert!(response.stdout.contains(&format!("\n[{dropped} bytes of output dropped here]\n")));
    worker.end();
}

#[test]
fn streams_stay_in_order() {
    let mut worker = Worker::bash();
    let code = "for i in {1..2000}; do echo o$i; echo e$i >&2; done";
    let expected: String = (1..=2000).map(|i| format!("o{i}\ne{i}\n")).collect();
    assert_eq!(worker.output(code), expected);
    worker.end();
}

#[test]
fn no_byte_is_lost_at_the_end_of_a_call() {
    let mut worker = Worker::bash();
    for size in (1..200_000).step_by(4099) {
        let printed = worker.output(&format!("head -c {size} /dev/zero | tr '\\0' x; printf END"));
        assert_eq!(printed.len(), size + 3);
        assert!(printed.ends_with("xEND"));
    }
    worker.end();
}

#[test]
fn a_background_job_prints_into_the_next_call() {
    let mut worker = Worker::bash();
    let started = worker.output("mkfifo gate; { read x <gate; echo late; : >printed; } &");
    assert!(started.starts_with("[1] "), "{started}");
    std::fs::write(worker.fs_root().join("gate"), "go\n").unwrap();
    worker.wait_for_file("printed");
    let printed = worker.output("echo now; wait");
    // The position of the job's notice depends on when the shell learns of its end.
    let lines: Vec<&str> = printed.lines().filter(|line| !line.starts_with("[1]+")).collect();
    assert_eq!(lines, ["late", "now"]);
    worker.end();
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
    worker.end();
}

#[test]
fn a_job_that_holds_the_terminal_open_delays_nothing() {
    let mut worker = Worker::bash();
    let response = worker
        .call("sleep 1000 & (sleep 1000 &) ; nohup sleep 1000 >/dev/null 2>&1 & setsid sleep 1000; echo on");
    assert!(response.stdout.ends_with("on\n"), "{response:?}");
    assert!(response.execution_time < 5.0);
    worker.end();
}

#[test]
fn job_notices_are_where_a_person_would_see_them() {
    let mut worker = Worker::bash();
    let started = worker.output("true & wait $!; echo end");
    let lines: Vec<&str> = started.lines().collect();
    assert!(lines[0].starts_with("[1] "), "{started}");
    assert_eq!(lines[1..], ["[1]+  Done                    true", "end"]);
    worker.end();
}

#[test]
fn a_thousand_lines_of_one_call_do_not_slow_the_next() {
    let mut worker = Worker::bash();
    worker.call_with("yes | head -c 20000000", json!({"max_output_bytes": 300}));
    assert_eq!(worker.output("seq 3"), "1\n2\n3\n");
    worker.end();
}
