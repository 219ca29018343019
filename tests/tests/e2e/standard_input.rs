//! Standard input is a terminal at which nobody types: a program that reads it gets end of file.

use rlm_core::protocol::{Outcome, State};
use rlm_tests::Worker;
use serde_json::json;

/// Runs a program that reads, and checks that it ends by itself, in good time.
#[track_caller]
fn ends(worker: &mut Worker, code: &str) -> String {
    let response = worker.call_with(code, json!({"timeout": 20}));
    assert_eq!((response.outcome, response.state), (Outcome::Ok, State::Kept), "{code:?}: {response:?}");
    assert!(response.execution_time < 1.0, "{code:?} took {} s", response.execution_time);
    response.stdout
}

#[test]
fn readers_get_end_of_file() {
    let mut worker = Worker::bash();
    assert_eq!(ends(&mut worker, "cat; echo $?"), "0\n");
    assert_eq!(ends(&mut worker, "read x; echo $? [$x]"), "1 []\n");
    assert_eq!(ends(&mut worker, "cat; cat; read x; cat /dev/tty; echo after"), "after\n");
    assert_eq!(ends(&mut worker, "while read line; do echo $line; done; echo done"), "done\n");
    assert_eq!(ends(&mut worker, "bash -c 'cat; echo inner'; sh -c 'read x; echo $?'"), "inner\n1\n");
    assert_eq!(ends(&mut worker, "select x in a b; do echo $x; done; echo out"), "1) a\n2) b\n#? \nout\n");
    worker.end();
}

#[test]
fn a_prompt_on_the_terminal_ends() {
    let mut worker = Worker::bash();
    let code = "read -s -p 'password: ' x </dev/tty; echo \"[$?]\"";
    assert_eq!(ends(&mut worker, code), "password: [1]\n");
    assert_eq!(ends(&mut worker, "stty -a | grep -o ' icanon'"), " icanon\n");
    worker.end();
}

#[test]
fn an_interactive_interpreter_ends() {
    let mut worker = Worker::bash();
    let printed = ends(&mut worker, "command -v python3 >/dev/null && python3 -q; bash --norc -i; echo out");
    assert!(printed.ends_with("out\n"), "{printed}");
    worker.end();
}

#[test]
fn it_is_a_real_terminal() {
    let mut worker = Worker::bash();
    let code = "[ -t 0 ] && [ -t 1 ] && [ -t 2 ] && echo all; tty | grep -c /dev/pts/; stty size; echo $TERM";
    assert_eq!(worker.output(code), "all\n1\n24 80\ndumb\n");
    worker.end();
}

#[test]
fn an_unread_end_of_file_is_not_left_for_later() {
    let mut worker = Worker::bash();
    // Long enough for an end of file to be pending.
    worker.output("sleep 0.12");
    assert_eq!(worker.output("read -t 0; echo $?"), "1\n");
    worker.end();
}

#[test]
fn a_background_reader_is_stopped_as_at_a_terminal() {
    let mut worker = Worker::bash();
    worker.output("cat & pid=$!; until [[ $(ps -o state= $pid) == T ]]; do sleep 0.01; done");
    let jobs = worker.output("jobs");
    assert!(jobs.contains("Stopped"), "{jobs}");
    worker.end();
}
