//! Completions of code that is being typed.

use nix::sys::signal::Signal;
use rlm_core::protocol::{Completions, Outcome, State};
use rlm_tests::Worker;
use serde_json::json;

use super::ask;
use crate::languages::end_interpreter;

#[track_caller]
fn complete(worker: &Worker, code: &str) -> Completions {
    let response = ask(worker, json!({"op": "complete", "code": code}));
    assert_eq!((response.outcome, response.state), (Outcome::Ok, State::Kept), "{response:?}");
    assert_eq!((response.stdout.as_str(), response.exception), ("", None));
    serde_json::from_str(&response.result.unwrap()).unwrap()
}

fn found(start: usize, candidates: &[&str]) -> Completions {
    Completions { start, candidates: candidates.iter().map(|&name| name.to_owned()).collect() }
}

#[test]
fn a_shell_completes_its_names_and_is_not_changed() {
    let mut worker = Worker::bash();
    worker.output("my_function() { :; }; alias my_alias=:; my_variable=1; mkdir 'd d'; touch 'd d/f'");
    worker.output("trap 'echo debug' DEBUG; set -e; sleep 0.01 &");
    assert_eq!(complete(&worker, "echo; my_"), found(6, &["my_alias", "my_function"]));
    assert_eq!(complete(&worker, "echo \"${my_v"), found(8, &["my_variable"]));
    assert_eq!(complete(&worker, "ls d"), found(3, &["d\\ d/"]));
    assert_eq!(complete(&worker, "ls d\\ d/"), found(3, &["d\\ d/f"]));
    assert_eq!(complete(&worker, "no_such_command_at_all"), found(0, &[]));
    let response = worker.call("trap - DEBUG; wait; (exit 7) | true; my_alias");
    assert_eq!((response.outcome, response.execution_count), (Outcome::Ok, 3), "{response:?}");
    worker.call("false | (exit 3); set +e");
    complete(&worker, "ec");
    assert_eq!(worker.output("echo ${PIPESTATUS[*]}; compgen -v __rlm"), "0\n");
    worker.call("(exit 5)");
    complete(&worker, "ec");
    assert_eq!(worker.output("echo $?"), "5\n");
}

#[test]
fn an_interpreter_completes_its_names_and_is_not_changed() {
    let mut worker = Worker::python();
    worker.value("class A:\n    attribute = 1\n    @property\n    def trap(self): print('sprung')\n    def __getattr__(self, name): print('asked')");
    worker.value("my_value = A(); my_value.inner = [1]; answer['content'] = 'kept'; ä_name = 1");
    assert_eq!(complete(&worker, "x = my_"), found(4, &["my_value"]));
    assert_eq!(complete(&worker, "print(my_value.a"), found(15, &["attribute"]));
    assert_eq!(complete(&worker, "my_value.inner.app"), found(15, &["append"]));
    assert_eq!(complete(&worker, "my_value.trap.").candidates, [""; 0]);
    assert_eq!(complete(&worker, "my_value.missing.").candidates, [""; 0]);
    assert_eq!(complete(&worker, "f().app").candidates, [""; 0]);
    assert_eq!(complete(&worker, "whi"), found(0, &["while"]));
    assert_eq!(complete(&worker, "é = ä_"), found(5, &["ä_name"]));
    let response = worker.call("1 / 0");
    assert!(response.result.unwrap().contains("<cell 3>"));
    assert_eq!((response.stdout.as_str(), response.answer.content.as_str()), ("", "kept"));
}

#[test]
fn an_interpreter_that_has_ended_knows_nothing_and_the_next_call_says_so() {
    let mut worker = Worker::bash();
    worker.output(":");
    end_interpreter(&worker, Signal::SIGKILL);
    let response = ask(&worker, json!({"op": "complete", "code": "ec"}));
    assert_eq!((response.outcome, response.state, response.result), (Outcome::Error, State::Kept, None));
    assert_eq!(worker.call("echo on").state, State::Reset);
}
