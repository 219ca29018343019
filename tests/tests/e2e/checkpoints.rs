//! Sessions that go on as they were before the call that ended their interpreter.

use std::fs;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rlm_core::protocol::{Outcome, Response, State};
use rlm_tests::{AT_ONCE, Setup, Worker, children, open_descriptors, pythons, scaled, wait_until};
use serde_json::json;

use rlm_tests::endpoint::ExistingEndpoint;

use crate::confine::can_have;
use crate::languages::{Language, in_both_languages};

in_both_languages!(
    the_state_from_before_the_call_comes_back,
    variables_that_the_host_set_come_back,
    a_confined_session_goes_on,
    values_that_mean_nothing_are_refused,
);

fn with_checkpoints(language: Language) -> Setup {
    language.setup().env("RLM_CHECKPOINT", 1)
}

fn python() -> Worker {
    with_checkpoints(Language::Python).start()
}

/// Returns once the copy of the last call is there: the interpreter answers only then.
fn settle(worker: &mut Worker) {
    worker.send_call("x", json!({"op": "complete"}));
    assert_eq!(worker.receive().outcome, Outcome::Ok);
}

/// Runs code that ends the interpreter. The session must be as before.
fn comes_back(worker: &mut Worker, code: &str) -> Response {
    let begun = std::time::Instant::now();
    let response = worker.call_with(code, json!({"timeout": 0.2}));
    assert_eq!(response.state, State::Restored, "{code:?}: {response:?}");
    let hint = response.hint.clone().unwrap_or_default();
    assert!(hint.contains("from before the call"), "{code:?}: {hint}");
    assert!(begun.elapsed() < AT_ONCE * 4, "{code:?} took {:?}", begun.elapsed());
    response
}

fn the_state_from_before_the_call_comes_back(language: Language) {
    let mut worker = with_checkpoints(language).start();
    let ends: &[&str] = match language {
        Language::Bash => &[
            "x=2; kill -9 $$",
            "x=2; exec true",
            "x=2; kill -9 0",
            "x=2; trap '' HUP INT TERM QUIT; while :; do :; done",
        ],
        Language::Python => &[
            "x = 2; import os; os._exit(3)",
            "x = 2; import ctypes; ctypes.string_at(0)",
            "x = 2; import os; os.kill(os.getpid(), 9)",
            "x = 2; import os; os.killpg(0, 9)",
            "x = 2; import os; os.abort()",
            "x = 2; import os; os.execv('/bin/true', ['true'])",
            "x = 2; import ctypes; ctypes.CDLL(None).sigfillset(m := ctypes.create_string_buffer(128)); \
             ctypes.CDLL(None).sigprocmask(0, m, None); ctypes.CDLL(None).pause()",
        ],
    };
    worker.call(language.pick("x=1; f() { echo \"f $x\"; }", "x = 1\ndef f(): print('f', x)"));
    let answer = language.pick("RLM_CONTENT=so; RLM_READY=0", "answer['content'] = 'so'");
    worker.call(answer);
    for end in ends {
        let response = comes_back(&mut worker, end);
        assert_eq!(response.answer.content, "so", "{end:?}");
        assert_eq!(worker.call(language.pick("f", "f()")).stdout, "f 1\n", "{end:?}");
    }
    worker.end();
}

fn variables_that_the_host_set_come_back(language: Language) {
    let mut worker = with_checkpoints(language).start();
    worker.send_call("", json!({"op": "set", "variables": {"x": "set"}}));
    assert_eq!(worker.receive().outcome, Outcome::Ok);
    // Code of bash takes its state with it.
    comes_back(&mut worker, language.pick("kill -9 $$", "import os; os._exit(1)"));
    assert_eq!(worker.call(language.pick("echo $x", "print(x)")).stdout, "set\n");
    worker.end();
}

fn a_confined_session_goes_on(language: Language) {
    for level in ["full", "landlock"] {
        if !can_have(level) {
            continue;
        }
        let mut worker = with_checkpoints(language).env("RLM_CONFINE", level).start();
        worker.call("x=1");
        comes_back(&mut worker, language.pick("kill -9 $$", "import os; os.kill(os.getpid(), 9)"));
        assert_eq!(worker.call(language.pick("echo $x", "print(x)")).stdout, "1\n", "{level}");
        worker.end();
    }
}

fn values_that_mean_nothing_are_refused(language: Language) {
    for value in ["yes", "1.5G", "-1", "256MB"] {
        let log = language.refuses_to_start(&[("RLM_CHECKPOINT", value)]);
        let fault =
            format!("environment variable RLM_CHECKPOINT is {value:?}, expected 1, true, 0, false, or most");
        assert!(log.contains(&fault), "{log}");
    }
}

#[test]
fn every_python_comes_back() {
    for python in pythons() {
        let mut worker = Setup::python_at(&python).env("RLM_CHECKPOINT", 1).start();
        worker.value("import random, asyncio, sqlite3; random.seed(7); first = random.random(); lines = (n for n in range(9))");
        worker.value("db = sqlite3.connect(':memory:'); db.execute('create table t (a)'); next(lines)");
        worker.value("await asyncio.sleep(0); lock = asyncio.Lock()");
        let state = worker.value("random.getstate()");
        comes_back(
            &mut worker,
            "next(lines); random.random(); db.execute('insert into t values (1)'); import os; os._exit(1)",
        );
        let names =
            "next(lines), db.execute('select count(*) from t').fetchone(), asyncio.run(asyncio.sleep(0, 5))";
        assert_eq!(worker.value(names), "(1, (0,), 5)", "{python:?}");
        assert_eq!(worker.value("random.getstate()"), state, "{python:?}");
        assert_eq!(worker.value("await asyncio.sleep(0, 6)"), "6", "{python:?}");
        assert_eq!(worker.value("t = asyncio.create_task(asyncio.sleep(0, 7)); await t"), "7", "{python:?}");
        worker.end();
    }
}

#[test]
fn a_state_whose_next_cell_dies_too_is_given_up() {
    let mut worker = python();
    worker.value("x = 1");
    comes_back(&mut worker, "import os; os._exit(1)");
    let response = worker.call("import os; os._exit(1)");
    assert_eq!((response.outcome, response.state), (Outcome::Crashed, State::Reset), "{response:?}");
    assert_eq!(worker.value("'x' in globals()"), "False");
    worker.value("x = 2");
    comes_back(&mut worker, "import os; os._exit(1)");
    assert_eq!(worker.value("x"), "2");
    worker.end();
}

#[test]
fn an_interpreter_that_dies_between_calls_comes_back() {
    let mut worker = python();
    worker.value("x = 1");
    for _ in 0..5 {
        settle(&mut worker);
        let pid = Pid::from_raw(worker.info().pid.unwrap());
        kill(pid, Signal::SIGKILL).unwrap();
        let response = worker.call("x");
        assert_eq!((response.outcome, response.state), (Outcome::Ok, State::Restored), "{response:?}");
        assert!(response.result.as_ref().unwrap().ends_with('1'), "{response:?}");
    }
    worker.end();
}

#[test]
fn code_does_not_see_the_copy() {
    let mut worker = python();
    worker.value(
        "import os, signal, resource; seen = []; signal.signal(signal.SIGCHLD, lambda *a: seen.append(a))",
    );
    let fds = "sorted(os.listdir('/proc/self/fd'))";
    let first = worker.value(fds);
    for _ in 0..20 {
        worker.value("1");
    }
    assert_eq!(worker.value(fds), first);
    let waited = worker.call("os.wait()");
    assert_eq!(waited.exception.unwrap().kind, "ChildProcessError");
    assert_eq!(worker.value("seen, open(f'/proc/self/task/{os.getpid()}/children').read()"), "([], '')");
    // The signal of a child of the cell's own still comes.
    worker.value("import subprocess; p = subprocess.Popen(['true'])");
    assert_eq!(worker.value("p.wait(), len(seen)"), "(0, 1)");
    worker.value("signal.signal(signal.SIGCHLD, signal.SIG_IGN); x = 1");
    comes_back(&mut worker, "os._exit(1)");
    assert_eq!(worker.value("x"), "1");
    worker.end();
}

#[test]
fn what_a_copy_would_keep_open_is_closed_in_it() {
    let mut worker = python();
    worker.value("import os, subprocess, socket; cat = subprocess.Popen(['cat'], stdin=subprocess.PIPE, stdout=subprocess.PIPE)");
    assert_eq!(worker.value("cat.communicate(b'x')"), "(b'x', None)");
    worker.value("r, w = os.pipe(); a, b = socket.socketpair(); f = open('file', 'w+'); m, s = os.openpty()");
    // Without its writer the pipe has an end.
    assert_eq!(worker.value("os.close(w); os.read(r, 1)"), "b''");
    worker.value("r, w = os.pipe()");
    comes_back(&mut worker, "f.write('from before'); f.flush(); os._exit(1)");
    let ended = "try:\n    os.write(w, b'x')\nexcept BrokenPipeError: print('ended')\na.recv(1), os.read(r, 1), f.seek(0), f.read()";
    let response = worker.call(ended);
    assert_eq!(
        (response.stdout.as_str(), response.result.unwrap().as_str()),
        ("ended\n", "(b'', b'', 0, 'from before')")
    );
    worker.end();
}

#[test]
fn the_response_says_once_why_there_is_no_checkpoint() {
    let mut worker = Setup::python().env("RLM_CHECKPOINT", "64M").start();
    let told = |response: Response| response.hint.unwrap_or_default();
    worker.value("import threading, asyncio; e = threading.Event()");
    let hint = told(worker.call("t = threading.Thread(target=e.wait); t.start()"));
    let why =
        "no checkpoint is taken now: a thread that a cell started is alive, and a copy would not have it";
    assert!(hint.contains(why), "{hint}");
    assert_eq!(told(worker.call("1")), "");
    let response = worker.call("import os; os._exit(1)");
    assert_eq!(response.state, State::Reset, "{response:?}");
    let hint =
        told(worker.call("import asyncio; ended = asyncio.Event(); t = asyncio.create_task(ended.wait())"));
    assert!(hint.contains("no checkpoint is taken now: a task that a cell started is not done"), "{hint}");
    assert_eq!(told(worker.call("ended.set(); await t")), "");
    let hint = told(worker.call("large = bytearray(80 << 20)"));
    assert!(hint.contains("the interpreter has more memory than checkpoints may have, 64 MiB"), "{hint}");
    assert_eq!(told(worker.call("del large; x = 1")), "");
    comes_back(&mut worker, "import os; os._exit(1)");
    assert_eq!(worker.value("x"), "1");
    worker.end();
}

#[test]
fn a_copy_that_is_killed_or_stopped_harms_nothing() {
    let mut worker = python();
    let copy = |worker: &Worker| {
        let interpreter = worker.info().pid.unwrap();
        let mut copy = None;
        wait_until("a copy", || {
            copy = children(worker.server()).into_iter().find(|pid| pid.as_raw() != interpreter);
            copy.is_some()
        });
        copy.unwrap()
    };
    worker.value("x = 1");
    kill(copy(&worker), Signal::SIGSTOP).unwrap();
    comes_back(&mut worker, "import os; os._exit(1)");
    assert_eq!(worker.value("x"), "1");
    kill(copy(&worker), Signal::SIGKILL).unwrap();
    assert_eq!(worker.call("import os; os._exit(1)").state, State::Reset);
    worker.value("x = 2");
    // The session's own programs end with the interpreter, and do not hold the copy up.
    worker.value("import subprocess; p = subprocess.Popen(['sleep', '100'])");
    comes_back(&mut worker, "import os; os._exit(1)");
    assert_eq!(worker.value("x"), "2");
    // A stopped copy does not outlive the worker.
    kill(copy(&worker), Signal::SIGSTOP).unwrap();
    worker.end();
}

#[test]
fn no_copy_outlives_a_worker_that_is_killed() {
    for victim in [Worker::server as fn(&Worker) -> Pid, Worker::pid] {
        let mut worker = python();
        worker.value("x = 1");
        let copies = worker.processes();
        assert!(copies.len() >= 3, "{copies:?}");
        kill(victim(&worker), Signal::SIGKILL).unwrap();
        worker.wait();
        wait_until("the end of all processes", || worker.processes().is_empty());
    }
}

#[test]
fn a_reset_and_a_load_end_the_copy() {
    let mut worker = python();
    worker.value("x = 1");
    let file = worker.control.path().join("saved");
    worker.send_call("", json!({"op": "save", "file": file}));
    assert_eq!(worker.receive().outcome, Outcome::Ok);
    worker.value("x = 2");
    worker.send_call("", json!({"op": "load", "file": file}));
    assert_eq!(worker.receive().state, State::Restored);
    comes_back(&mut worker, "import os; os._exit(1)");
    assert_eq!(worker.value("x"), "1");
    worker.send_call("", json!({"op": "reset"}));
    assert_eq!(worker.receive().state, State::Reset);
    comes_back(&mut worker, "import os; os._exit(1)");
    assert_eq!(worker.value("'x' in globals()"), "False");
    wait_until("only the last copies", || worker.processes().len() <= 4);
    worker.end();
}

#[test]
fn root_tools_are_called_from_a_copy() {
    let endpoint = ExistingEndpoint::start();
    let mut worker = endpoint.tools_for(with_checkpoints(Language::Python)).start();
    let before = worker.value("first = give('dict'); first");
    comes_back(&mut worker, "give('dict'); import os; os._exit(1)");
    assert_eq!(worker.value("give('dict')"), before);
    assert_eq!(worker.value("give('dict') == first"), "True");
    worker.end();
}

#[test]
fn many_cells_leave_no_descriptor_and_no_process() {
    let mut worker = python();
    worker.value("x = 0");
    let interpreter = Pid::from_raw(worker.info().pid.unwrap());
    let mut calls = 0;
    let mut descriptors = |worker: &mut Worker| {
        calls += 1;
        worker.call("x += 1");
        settle(worker);
        open_descriptors(worker.server()) + open_descriptors(interpreter)
    };
    // One that has ended is closed at the next call.
    let before = (0..20).map(|_| descriptors(&mut worker)).max().unwrap();
    for _ in 0..scaled(10_000, 300) {
        // A copy that was killed may take a moment to die.
        wait_until(&format!("no more than {before} descriptors"), || descriptors(&mut worker) <= before + 1);
    }
    wait_until("one copy", || children(worker.server()).len() == 2);
    let response = comes_back(&mut worker, "import os; os._exit(1)");
    assert_eq!(response.outcome, Outcome::Crashed);
    assert_eq!(worker.value("x"), calls.to_string());
    worker.end();
}

#[test]
fn a_session_at_a_limit_of_its_own_says_that_it_has_no_checkpoint() {
    let mut worker = python();
    worker.value(
        "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (4, 4)); held = open('/dev/null')",
    );
    let hint = worker.call("1").hint.unwrap_or_default();
    assert!(hint.contains("no checkpoint is taken now: the process could not be copied"), "{hint}");
    assert_eq!(worker.value("1 + 1"), "2");
    let log = fs::read_to_string(worker.control.log_file()).unwrap_or_default();
    assert_eq!(log.matches("panicked").count(), 0, "{log}");
    worker.end();
}

#[test]
fn files_of_the_session_are_closed_in_the_copy_and_opened_again() {
    let mut worker = python();
    worker.value("import os, subprocess, fcntl; f = open('lines', 'w+'); f.write('a\\nb\\nc\\n'); f.seek(0); g = open('script', 'w')");
    worker.value("next(lines) if (lines := iter(f.readline, '')) else 0; g.write('#!/bin/sh\\necho ran\\n'); g.close(); os.chmod('script', 0o755)");
    // The file is still open for writing in no other process.
    assert_eq!(worker.value("subprocess.run(['./script'], capture_output=True).stdout"), "b'ran\\n'");
    let hint = worker.call("h = open('lock', 'w'); fcntl.flock(h, fcntl.LOCK_EX)").hint.unwrap_or_default();
    assert!(hint.contains("a file is locked for writing"), "{hint}");
    assert_eq!(worker.value("h.close(); subprocess.run(['flock', '-n', 'lock', 'true']).returncode"), "0");
    worker.value("read = f.readline()");
    comes_back(&mut worker, "f.read(); f.close(); os._exit(1)");
    assert_eq!(worker.value("read, f.readline(), f.readline()"), "('b\\n', 'c\\n', '')");
    worker.end();
}

#[test]
fn an_open_transaction_is_no_checkpoint() {
    let mut worker = python();
    worker.value(
        "import sqlite3, os; db = sqlite3.connect('db'); db.execute('create table t (a)'); db.commit()",
    );
    let hint = worker.call("c = db.execute('insert into t values (1)')").hint.unwrap_or_default();
    assert!(hint.contains("as by an open transaction of a database"), "{hint}");
    assert_eq!(worker.call("db.commit()").hint, None);
    comes_back(&mut worker, "db.execute('insert into t values (2)'); db.commit(); os._exit(1)");
    assert_eq!(worker.value("db.execute('select a from t').fetchall()"), "[(1,), (2,)]");
    worker.end();
}

#[test]
fn pools_and_loops_begin_anew_in_the_copy() {
    for python in pythons() {
        let mut worker = Setup::python_at(&python).env("RLM_CHECKPOINT", 1).start();
        let run = "with mp.get_context('forkserver').Pool(1) as pool: print(pool.map(abs, [-1]))";
        worker.value("import multiprocessing as mp, asyncio, os\nasyncio.get_event_loop()");
        assert_eq!(worker.output(run), "[1]\n", "{python:?}");
        comes_back(&mut worker, "os._exit(1)");
        assert_eq!(worker.output(run), "[1]\n", "{python:?}");
        assert_eq!(worker.value("await asyncio.sleep(0, 3)"), "3", "{python:?}");
        worker.end();
    }
}

/// The copy dies at any moment around its call, too.
#[test]
fn an_interpreter_and_its_copy_that_die_together_leave_a_session_that_works() {
    let mut worker = python();
    for round in 0..40_u64 {
        worker.value("x = 1");
        settle(&mut worker);
        let interpreter = Pid::from_raw(worker.info().pid.unwrap());
        let copies: Vec<_> =
            children(worker.server()).into_iter().filter(|pid| *pid != interpreter).collect();
        kill(interpreter, Signal::SIGKILL).unwrap();
        let seq = worker.send_call("'x' in globals()", json!({}));
        // Each round hits another moment of the copy's call, of which nothing outside tells.
        std::thread::sleep(std::time::Duration::from_micros(round * 50));
        for copy in copies {
            let _gone = kill(copy, Signal::SIGKILL);
        }
        let response = worker.receive();
        assert_eq!(response.seq, seq);
        if response.outcome == Outcome::Ok {
            let is_there = if response.state == State::Restored { "True" } else { "False" };
            assert!(response.result.as_ref().unwrap().ends_with(is_there), "{round}: {response:?}");
        }
        // The copy may have been killed when it had taken over.
        let response = worker.call("1 + 1");
        assert!(response.result.as_ref().unwrap().ends_with('2'), "{round}: {response:?}");
    }
    wait_until("one interpreter and one copy", || children(worker.server()).len() <= 2);
    worker.end();
}

#[test]
fn a_hook_that_hangs_or_forks_costs_the_checkpoint_alone() {
    let mut worker = python();
    worker.value("import os, time; os.register_at_fork(after_in_child=lambda: time.sleep(60)); x = 1");
    let begun = std::time::Instant::now();
    assert_eq!(worker.call("os._exit(1)").state, State::Reset);
    assert!(begun.elapsed() < AT_ONCE * 8, "{:?}", begun.elapsed());
    worker.value("import os\ndef sleep():\n    if os.fork() == 0:\n        os.execvp('sleep', ['sleep', '60'])\nos.register_at_fork(after_in_parent=lambda: os.getppid() and sleep() if len(os.listdir('/proc/self/task')) else 0)");
    let begun = std::time::Instant::now();
    worker.value("2");
    worker.value("3");
    assert!(begun.elapsed() < AT_ONCE * 4, "{:?}", begun.elapsed());
    worker.end();
}
