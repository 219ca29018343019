//! Variables that last for one call.

use nix::sys::signal::Signal;
use rlm_core::protocol::{Outcome, State};
use rlm_tests::Worker;
use serde_json::json;

use super::{reset, set};

const LEFT: &str = "[name for name in globals() if name.startswith('__rlm')]";

#[test]
fn in_python_they_are_gone_however_the_call_ended() {
    let mut worker = Worker::python();
    for (code, outcome) in [
        ("x = __rlm_icpt_a_1", Outcome::Ok),
        ("", Outcome::Ok),
        ("__rlm_icpt_a_1 +", Outcome::Error),
        ("1 / 0", Outcome::Error),
        ("del __rlm_icpt_a_1; exit()", Outcome::Error),
        ("globals().clear()", Outcome::Ok),
        ("while True: pass", Outcome::TimedOut),
    ] {
        set(&worker, json!({"__rlm_icpt_a_1": "é", "__rlm_icpt_a_2": [1], "kept": 1}));
        let response = worker.call_with(code, json!({"timeout": 0.3}));
        assert_eq!((response.outcome, response.state), (outcome, State::Kept), "{code:?}: {response:?}");
        assert_eq!(worker.value(LEFT), "[]", "{code:?}");
    }
    set(&worker, json!({"__rlm_icpt_a_1": 1}));
    worker.send_call("open('on', 'w').close()\nwhile True: pass", json!({}));
    worker.wait_for_file("on");
    worker.signal(Signal::SIGINT);
    assert_eq!(worker.receive().outcome, Outcome::Interrupted);
    assert_eq!(worker.value(LEFT), "[]");
}

#[test]
fn they_wait_for_their_call() {
    for (mut worker, show, left) in [
        (
            Worker::python(),
            "print(__rlm_icpt_a_1, __rlm_icpt_a_2)",
            "print(*[n for n in globals() if 'icpt' in n])",
        ),
        (Worker::bash(), "echo $__rlm_icpt_a_1 $__rlm_icpt_a_2", "echo ${!__rlm_icpt*}"),
    ] {
        for value in ["1", "2"] {
            set(&worker, json!({"__rlm_icpt_a_1": value}));
            set(&worker, json!({"__rlm_icpt_a_2": "b"}));
            assert_eq!(worker.output(show), format!("{value} b\n"));
        }
        set(&worker, json!({"__rlm_icpt_a_2": "c"}));
        assert_eq!(worker.output(left), "__rlm_icpt_a_2\n");
        assert_eq!(worker.output(left), "\n");
        set(&worker, json!({"__rlm_icpt_a_2": "c"}));
        reset(&worker);
        assert_eq!(worker.output(left), "\n");
    }
}

/// A cell may have bound the names to other values: removing those runs code of the cell, and can be stopped.
#[test]
fn in_python_their_finalizers_run_in_the_call() {
    let mut worker = Worker::python();
    worker.output(
        "class Last:\n    def __init__(self, act): self.act = act\n    def __del__(self): self.act()",
    );
    set(&worker, json!({"__rlm_icpt_a_1": 1}));
    assert_eq!(worker.output("__rlm_icpt_a_1 = Last(lambda: print('gone'))"), "gone\n");
    worker.output("def forever():\n    while True: pass");
    set(&worker, json!({"__rlm_icpt_a_1": 1}));
    let response = worker.call_with("__rlm_icpt_a_1 = Last(forever); x = 1", json!({"timeout": 0.3}));
    assert_eq!((response.outcome, response.state), (Outcome::TimedOut, State::Kept), "{response:?}");
    assert_eq!(worker.value(&format!("(x, {LEFT})")), "(1, [])");
}

#[test]
fn in_bash_they_disappear_without_a_trace() {
    let mut worker = Worker::bash();
    worker.output("true");
    for code in [
        "false | true; false",
        "trap 'echo \"D $BASH_COMMAND\"' DEBUG; trap 'echo E' ERR",
        "trap - DEBUG ERR; set -x",
        "set +x; set -u",
        "declare -r __rlm_icpt_a_1; false",
        "exit 3",
    ] {
        let show = "echo \"$?\"; echo \"${!__rlm_icpt*}\"";
        let mut plain = Worker::bash();
        plain.output("true");
        plain.call(&format!("{code}\n"));
        let expected = plain.call(&format!("{show}\n")).stdout;
        plain.end();
        set(&worker, json!({"__rlm_icpt_a_1": "1"}));
        worker.call(&format!("{code}\n"));
        let left = worker.call(&format!("{show}\n")).stdout;
        if code.contains("declare -r") {
            assert_eq!(left, "1\n__rlm_icpt_a_1\n", "{code}");
            worker = Worker::bash();
        } else {
            assert_eq!(left, expected, "{code}");
        }
    }
}

/// The user's DEBUG trap runs before the user's commands, and never before the worker's.
#[test]
fn in_bash_a_debug_trap_sees_nothing_of_them() {
    for setup in [
        "trap 'echo dbg' DEBUG",
        "trap 'echo dbg' DEBUG; set -o functrace",
        "trap 'echo dbg; n=$((n + 1)); false' DEBUG; set -T",
        "n=0; trap 'n=$((n + 1))' DEBUG; trap 'echo err' ERR",
        "trap 'echo dbg >>\"$HOME/log\"' DEBUG; HOME=$PWD",
        "set -o posix; trap 'echo dbg' DEBUG",
        "builtin() { command builtin \"$@\"; }; trap 'echo dbg' DEBUG",
        "exec() { command exec \"$@\"; }; trap 'echo dbg' DEBUG",
        "PS1='p '; trap 'echo dbg' DEBUG; set -x",
    ] {
        let (mut plain, mut worker) = (Worker::bash(), Worker::bash());
        plain.output(setup);
        worker.output(setup);
        for code in ["echo a", "(exit 3)", "echo $?", "declare -r x=1", "(echo b)", "echo $n; cat log"] {
            set(
                &worker,
                json!({"__rlm_icpt_a_1": "1", "__rlm_icpt_a_2": ["2"], "__rlm_icpt_a_3": {"a": "b"}}),
            );
            let (found, expected) = (worker.call(code), plain.call(code));
            assert_eq!((found.stdout, found.stderr), (expected.stdout, expected.stderr), "{setup}: {code}");
        }
    }
}
