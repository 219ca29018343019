//! The answer is the worker's: any size, any bytes, and it outlives the shell.

use std::fs;

use rlm_core::protocol::{Answer, Outcome, State};
use rlm_tests::Setup;
use serde_json::json;

use crate::languages::{Language, answer_file, draft, in_both_languages, ready, sessions};

in_both_languages!(an_answer_of_ten_megabytes_arrives_whole);

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
        assert_eq!(answer_file(&worker), host());
        worker.send(br#"{"op": "info", "seq": 1}"#);
        assert_eq!(worker.receive().answer, host());
        let response = worker.call(show);
        assert_eq!((response.stdout.as_str(), response.answer), (shown, host()));
        let response = worker.call(end);
        assert_eq!((response.state, response.answer), (State::Reset, host()));
        assert_eq!(worker.output(show), shown);
        let changed = Answer { content: "new".to_owned(), ..host() };
        assert_eq!(worker.call(change).answer, changed);
        assert_eq!(answer_file(&worker), changed);
        worker.send_call("", json!({"op": "reset"}));
        assert_eq!(worker.receive().answer, Answer::default());
        assert_eq!(worker.call("true = 1").answer, Answer::default());
        assert_eq!(answer_file(&worker), Answer::default());
    }
}

#[test]
fn a_session_begins_with_an_empty_answer_where_that_of_the_host_cannot_be_used() {
    for setup in [Setup::bash(), Setup::python()] {
        let mut worker =
            setup.prepare(|control| fs::write(control.answer_file(), r#"{"ready": 1}"#).unwrap()).start();
        assert_eq!(answer_file(&worker), Answer::default());
        let response = worker.call("true = 1");
        assert_eq!((response.outcome, response.answer), (Outcome::Ok, Answer::default()));
        let log = fs::read_to_string(worker.control.log_file()).unwrap();
        let expected =
            format!("cannot understand the answer file {}", worker.control.answer_file().display());
        assert!(log.contains(&expected) && log.contains("the session begins with an empty answer"), "{log}");
    }
}

sessions! { Bash:
    the_answer_is_read_after_every_call {
        "RLM_CONTENT='first'" => draft("first"),
        "RLM_READY=1" => ready("first"),
        "RLM_READY=' Yes '; RLM_CONTENT=$'two\\nlines\\n'" => ready("two\nlines\n"),
        "export RLM_READY=no RLM_CONTENT=exported" => draft("exported"),
        "unset RLM_READY RLM_CONTENT" => draft(""),
        "RLM_CONTENT=$'\\xff bytes'; RLM_READY=ON" => ready("\u{fffd} bytes"),
        "f() { local RLM_CONTENT=inner; }; f; false" => ready("\u{fffd} bytes"),
        "echo \"open" => ready("\u{fffd} bytes"),
    }
}

// Promise: An answer has no size limit.
fn an_answer_of_ten_megabytes_arrives_whole(language: Language) {
    let mut worker = language.start();
    let response = worker.call(language.pick(
        "RLM_CONTENT=$(head -c 10000000 /dev/zero | tr '\\0' x); RLM_READY=1; /bin/echo on",
        "answer['content'] = 'é' * 5_000_000; answer['ready'] = True; print('on')",
    ));
    assert_eq!((response.stdout.as_str(), response.answer.content.len()), ("on\n", 10_000_000));
    let response = worker.call(language.pick("RLM_CONTENT+=x", "answer['content'] += 'x'"));
    assert_eq!((response.answer.ready, response.answer.content.len()), (true, 10_000_001));
    assert_eq!(answer_file(&worker), response.answer);
    if language == Language::Bash {
        assert_eq!(worker.output("/bin/echo still; env | grep -c RLM_CONTENT"), "still\n0\n");
    }
}
