//! The answer is the worker's: any size, any bytes, and it outlives the shell.

use std::fs;

use rlm_core::protocol::{Answer, Outcome, State};
use rlm_tests::{Setup, Worker};
use serde_json::json;

fn file(worker: &Worker) -> Answer {
    serde_json::from_slice(&fs::read(worker.control.answer_file()).unwrap()).unwrap()
}

#[test]
fn an_answer_of_the_host_is_the_one_that_the_session_begins_with() {
    let host = || Answer { ready: true, content: "it's $5 é\n".to_owned() };
    let cases = [
        (
            Setup::bash(),
            "printf '%s' \"$RLM_READY $RLM_CONTENT\"",
            "1 it's $5 é\n",
            "RLM_CONTENT=new",
            "kill -9 $$",
        ),
        (
            Setup::python(),
            "print(*answer.values(), type(answer['ready']).__name__, end='')",
            "True it's $5 é\n bool",
            "answer['content'] = 'new'",
            "import os; os.abort()",
        ),
    ];
    for (setup, show, shown, change, end) in cases {
        let write = |control: &rlm_core::control::ControlDir| {
            fs::write(control.answer_file(), r#"{"ready": true, "content": "it's $5 é\n", "by": "host"}"#)
                .unwrap();
        };
        let mut worker = setup.prepare(write).start();
        assert_eq!(file(&worker), host());
        worker.send(br#"{"op": "info", "seq": 1}"#);
        assert_eq!(worker.receive().answer, host());
        let response = worker.call(show);
        assert_eq!((response.stdout.as_str(), response.answer), (shown, host()));
        let response = worker.call(end);
        assert_eq!((response.state, response.answer), (State::Reset, host()));
        assert_eq!(worker.output(show), shown);
        let changed = Answer { content: "new".to_owned(), ..host() };
        assert_eq!(worker.call(change).answer, changed);
        assert_eq!(file(&worker), changed);
        worker.send_call("", json!({"op": "reset"}));
        assert_eq!(worker.receive().answer, Answer::default());
        assert_eq!(worker.call("true = 1").answer, Answer::default());
        assert_eq!(file(&worker), Answer::default());
        worker.end();
    }
}

#[test]
fn a_session_begins_with_an_empty_answer_where_that_of_the_host_cannot_be_used() {
    for setup in [Setup::bash(), Setup::python()] {
        let mut worker =
            setup.prepare(|control| fs::write(control.answer_file(), r#"{"ready": 1}"#).unwrap()).start();
        assert_eq!(file(&worker), Answer::default());
        let response = worker.call("true = 1");
        assert_eq!((response.outcome, response.answer), (Outcome::Ok, Answer::default()));
        let log = fs::read_to_string(worker.control.log_file()).unwrap();
        let expected =
            format!("cannot understand the answer file {}", worker.control.answer_file().display());
        assert!(log.contains(&expected) && log.contains("the session begins with an empty answer"), "{log}");
        worker.end();
    }
}

#[test]
fn the_answer_is_read_after_every_call() {
    let mut worker = Worker::bash();
    assert_eq!(file(&worker), Answer::default());
    let cases = [
        ("RLM_CONTENT='first'", false, "first"),
        ("RLM_READY=1", true, "first"),
        ("RLM_READY=' Yes '; RLM_CONTENT=$'two\\nlines\\n'", true, "two\nlines\n"),
        ("export RLM_READY=no RLM_CONTENT=exported", false, "exported"),
        ("unset RLM_READY RLM_CONTENT", false, ""),
        ("RLM_CONTENT=$'\\xff bytes'; RLM_READY=ON", true, "\u{fffd} bytes"),
        ("f() { local RLM_CONTENT=inner; }; f; false", true, "\u{fffd} bytes"),
        ("echo \"open", true, "\u{fffd} bytes"),
    ];
    for (code, ready, content) in cases {
        let answer = Answer { ready, content: content.to_owned() };
        assert_eq!(worker.call(code).answer, answer, "{code}");
        assert_eq!(file(&worker), answer, "{code}");
    }
    worker.end();
}

#[test]
fn an_answer_of_ten_megabytes_arrives_whole_and_does_not_reach_commands() {
    let mut worker = Worker::bash();
    let response =
        worker.call("RLM_CONTENT=$(head -c 10000000 /dev/zero | tr '\\0' x); RLM_READY=1; /bin/echo on");
    assert_eq!((response.stdout.as_str(), response.answer.content.len()), ("on\n", 10_000_000));
    assert_eq!(worker.output("/bin/echo still; env | grep -c RLM_CONTENT"), "still\n0\n");
    assert_eq!(file(&worker).content.len(), 10_000_000);
    worker.end();
}

#[test]
fn history_holds_every_executed_call() {
    let mut worker = Worker::bash();
    worker.output("echo 'é\n'");
    worker.call("exit 3");
    worker.send(b"{}");
    worker.receive();
    let text = std::fs::read_to_string(worker.control.history_file()).unwrap();
    let entries: Vec<rlm_core::protocol::HistoryEntry> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let seen: Vec<_> =
        entries.iter().map(|entry| (entry.seq, entry.code.as_str(), entry.exit_code)).collect();
    assert_eq!(seen, [(1, "echo 'é\n'", Some(0)), (2, "exit 3", Some(3))]);
    assert!(entries.iter().all(|entry| entry.started_at > 1.7e9 && entry.execution_time > 0.0));
    worker.end();
}
