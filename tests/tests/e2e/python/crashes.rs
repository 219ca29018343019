//! The end of the interpreter is reported at once, and the next cell runs in a fresh namespace.

use std::time::Instant;

use nix::sys::signal::{Signal, kill};
use rlm_core::protocol::{HistoryEntry, Outcome, State};
use rlm_tests::{AT_ONCE, Setup, Worker, open_descriptors, pythons};
use serde_json::json;

use crate::languages::Expected::Raises;
use crate::languages::sessions;

/// Runs a cell that ends its interpreter; the hint of the response must say `why`.
fn crashes(worker: &mut Worker, code: &str, why: &str) {
    worker.value("kept = 1; answer['content'] = 'so far'; answer['ready'] = True");
    let begun = Instant::now();
    let response = worker.call(code);
    assert!(begun.elapsed() < AT_ONCE, "{code:?} took {:?}", begun.elapsed());
    assert_eq!(
        (response.outcome, response.state),
        (Outcome::Crashed, State::Reset),
        "{code:?}: {response:?}"
    );
    let hint = response.hint.unwrap_or_default();
    assert!(hint.contains(why) && hint.contains("variables and imports are lost"), "{code:?}: {hint}");
    assert_eq!(response.result.as_ref(), Some(&hint), "{code:?}");
    assert!(response.answer.ready && response.answer.content == "so far", "{:?}", response.answer);
    assert_eq!(worker.value("'kept' in dir(), answer"), "(False, {'ready': True, 'content': 'so far'})");
}

#[test]
fn the_end_of_the_process_is_answered_at_once() {
    let mut worker = Worker::python();
    crashes(&mut worker, "import os; os._exit(3)", "the interpreter ended with status 3");
    crashes(&mut worker, "import os; os.kill(os.getpid(), 9)", "was ended by SIGKILL");
    crashes(&mut worker, "import ctypes; ctypes.string_at(0)", "was ended by SIGSEGV");
    crashes(&mut worker, "import os; os.abort()", "was ended by SIGABRT");
    crashes(&mut worker, "import signal; signal.alarm(1)\nwhile True: pass", "was ended by SIGALRM");
}

/// The kernel has not reported its death when the request arrives, so it goes to the dead interpreter.
#[test]
fn an_interpreter_that_is_killed_right_before_a_request_is_replaced_and_nothing_of_the_request_is_lost() {
    let mut worker = Worker::python();
    for round in 0..20 {
        worker.value("kept = 1");
        kill(worker.interpreter(), Signal::SIGKILL).unwrap();
        let response = if round % 2 == 0 {
            worker.call("'kept' in dir()")
        } else {
            let seq = worker.send_call("", json!({"op": "set", "variables": {"x": 1}}));
            let response = worker.receive();
            assert_eq!(response.seq, seq);
            assert_eq!(worker.value("x, 'kept' in dir()"), "(1, False)");
            response
        };
        assert_eq!((response.outcome, response.state), (Outcome::Ok, State::Reset), "{response:?}");
        assert!(response.hint.as_ref().unwrap().contains("was ended by SIGKILL"), "{response:?}");
    }
}

#[test]
fn exhausting_the_stack_in_c_is_answered_at_once() {
    for python in pythons() {
        let mut worker = Setup::python_at(&python).start();
        worker.value("import sys; sys.setrecursionlimit(10**9)");
        let response = worker.call("x = []\nfor _ in range(10**6): x = [x]\nrepr(x)");
        // Newer Pythons detect it themselves, and raise.
        match response.outcome {
            Outcome::Crashed => assert_eq!(response.state, State::Reset),
            outcome => assert_eq!((outcome, response.state), (Outcome::Error, State::Kept), "{response:?}"),
        }
        assert_eq!(worker.value("1 + 1"), "2", "{}", python.display());
    }
}

// Promise: A segmentation fault of Python becomes a response that says so.
#[test]
fn output_before_the_end_is_returned() {
    let mut worker = Worker::python();
    let response = worker.call("import os, sys\nprint('out'); print('err', file=sys.stderr); os._exit(0)");
    assert_eq!((response.stdout.as_str(), response.stderr.as_str()), ("out\n", "err\n"));
}

#[test]
fn another_program_in_its_place_is_noticed() {
    for python in pythons() {
        let mut worker = Setup::python_at(&python).start();
        crashes(
            &mut worker,
            "import os; os.execv('/bin/sleep', ['sleep', '1000'])",
            "executed another program",
        );
        let same = "import os, sys; os.execv(sys.executable, [sys.executable, '-c', 'import time; time.sleep(1000)'])";
        crashes(&mut worker, same, "executed another program");
        // The other program is killed as soon as it is noticed, so its own output may be lost.
        let response = worker.call("import os; print('before', flush=True); os.execv('/bin/true', ['true'])");
        assert_eq!((response.outcome, response.stdout.as_str()), (Outcome::Crashed, "before\n"));
    }
}

#[test]
fn a_forked_child_never_answers() {
    let mut worker = Worker::python();
    worker.value("import os, sys");
    let forked = "pid = os.fork()\nprint('parent' if pid else 'child', flush=True)\n";
    let response = worker.call(&format!("{forked}if pid: os.waitpid(pid, 0)\npid > 0"));
    let mut lines: Vec<&str> = response.stdout.lines().collect();
    lines.sort_unstable();
    assert_eq!((lines, response.result.as_deref()), (vec!["child", "parent"], Some("True")));
    for (end, status) in
        [("sys.exit(7)", 7), ("raise ValueError('of the child')", 1), ("pass", 0), ("sys.exit()", 0)]
    {
        let code =
            format!("pid = os.fork()\nif pid == 0: {end}\nelse: status = os.waitpid(pid, 0)[1] >> 8\nstatus");
        let response = worker.call(&code);
        assert_eq!(response.result, Some(status.to_string()), "{response:?}");
        assert_eq!(
            response.stderr.contains("ValueError: of the child"),
            end.contains("Value"),
            "{response:?}"
        );
    }
    // A child that lives on does not block the session.
    assert_eq!(worker.value("import time\nif os.fork() == 0: time.sleep(1000)\n5"), "5");
    assert_eq!(worker.value("1 + 1"), "2");
}

#[test]
fn a_child_that_is_forked_where_no_cell_runs_never_answers() {
    let mut worker = Worker::python();
    worker.value("import os, signal\nclass E(Exception):\n    def __str__(self): os.fork(); return 'x'");
    let response = worker.call("raise E");
    assert_eq!(response.exception.unwrap().message, "x");
    worker.value("class A:\n    def __str__(self): os.fork(); return 'answer'");
    assert_eq!(worker.call("answer['content'] = A()").answer.content, "answer");
    worker.value("answer['content'] = ''");
    worker.value("def forking(*_):\n    if os.fork(): open('forked', 'w').close()\nsignal.signal(signal.SIGUSR1, forking)");
    kill(worker.interpreter(), Signal::SIGUSR1).unwrap();
    worker.wait_for_file("forked");
    for number in 0..20 {
        assert_eq!(worker.value(&format!("{number} + 1")), (number + 1).to_string());
    }
}

sessions! { Python:
    a_worker_or_an_interpreter_that_the_session_stops_goes_on {
        "import os, signal; os.kill(os.getppid(), signal.SIGSTOP); 5" => "5",
        "os.kill(os.getpid(), signal.SIGSTOP); 6" => "6",
    }
    a_cell_that_uses_up_all_descriptors_loses_nothing {
        "import os, resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))\nheld = []\ntry:\n    while True: held.append(os.open('/dev/null', 0))\nexcept OSError as error: print(error.strerror)" =>
            "Too many open files\n",
        "len(held) > 50" => "True",
        "input.__name__, os.read(0, 1)" => "('input', b'')",
    }
    memory_that_runs_out_is_an_exception {
        "import resource; resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30)); kept = 1" => "",
        "x = 'a' * 10**10" => Raises("MemoryError"),
        "kept" => "1",
    }
}

#[test]
fn an_interpreter_that_loses_its_connection_says_how() {
    let mut worker = Worker::python();
    let response = worker.call("import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))");
    assert_eq!((response.outcome, response.state), (Outcome::Crashed, State::Reset));
    assert!(response.hint.unwrap().contains("lost its connection to the worker"));
    assert_eq!(worker.value("1 + 1"), "2");
}

#[test]
fn closed_descriptors_are_restored() {
    let mut worker = Worker::python();
    assert_eq!(worker.value("kept = 1; import os; os.closerange(0, 1024); 5"), "5");
    assert_eq!(worker.output("print('on'); os.write(1, b'raw\\n')"), "on\nraw\n");
    assert_eq!(worker.call("os.write(2, b'err\\n')").stderr, "err\n");
    assert_eq!(
        worker.value("os.read(0, 1), sorted(os.listdir('/proc/self/fd')), kept"),
        "(b'', ['0', '1', '2', '3'], 1)"
    );
}

#[test]
fn a_lost_state_is_told_in_the_result_of_calls_only_and_not_in_the_history() {
    let mut worker = Worker::python();
    worker.value("'kept whole'");
    let mut lost = Vec::new();
    for (code, rest) in [("None", None), ("1 / 0", Some("Traceback (most recent call last):"))] {
        kill(worker.interpreter(), Signal::SIGKILL).unwrap();
        let response = worker.call(code);
        let (hint, result) = (response.hint.unwrap(), response.result.unwrap());
        let told = result.strip_prefix(&hint).expect("the result begins with the hint");
        assert_eq!(told.lines().nth(1), rest, "{result}");
        lost.push(rest.is_some());
    }
    lost.push(false);
    worker.call("import os; os._exit(1)");
    kill(worker.interpreter(), Signal::SIGKILL).unwrap();
    worker.send_call("", json!({"op": "set", "variables": {"x": 1}}));
    let response = worker.receive();
    assert_eq!((response.state, response.result), (State::Reset, None));
    worker.send_call("", json!({"op": "reset"}));
    let response = worker.receive();
    assert_eq!((response.state, response.result), (State::Reset, None));
    let history = std::fs::read_to_string(worker.control.history_file()).unwrap();
    let entries: Vec<HistoryEntry> =
        history.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let has_result: Vec<bool> = entries.iter().map(|entry| entry.has_result).collect();
    assert_eq!(has_result, [&[true], &lost[..], &[false, false]].concat());
}

#[test]
fn programs_of_a_dead_interpreter_are_ended() {
    let mut worker = Worker::python();
    let code = "import os, subprocess\nsubprocess.Popen(['setsid', 'nohup', 'sleep', '1000'], stderr=subprocess.DEVNULL)\nos._exit(1)";
    assert_eq!(worker.call(code).outcome, Outcome::Crashed);
    let left = worker.processes();
    assert!(left.iter().all(|(_, name)| name != "sleep"), "{left:?}");
}

// Promise: A segmentation fault of Python becomes a response that says so.
#[test]
fn a_session_crashes_as_often_as_it_likes() {
    let mut worker = Worker::python();
    worker.call("import os; os._exit(1)");
    let before = [worker.pid(), worker.server()].map(open_descriptors);
    for _ in 0..20 {
        assert_eq!(worker.call("import os; os._exit(1)").outcome, Outcome::Crashed);
    }
    assert_eq!([worker.pid(), worker.server()].map(open_descriptors), before);
}

#[test]
fn a_crash_while_the_host_sends_much_code_is_one_answer() {
    let mut worker = Worker::python();
    let code = format!("x = '{}'; import os; os._exit(1)", "x".repeat(1 << 20));
    for _ in 0..3 {
        assert_eq!(worker.call_with(&code, json!({})).outcome, Outcome::Crashed);
        assert_eq!(worker.value("1 + 1"), "2");
    }
}
