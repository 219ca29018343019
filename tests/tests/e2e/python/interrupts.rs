//! Time limits and interrupts: the namespace is kept wherever Python can be stopped, and the response comes in time.

use nix::sys::signal::Signal;
use rlm_core::protocol::{Outcome, Response, State};
use rlm_tests::{Setup, Worker, pythons, wait_until};
use serde_json::json;

use crate::limits;

/// Runs a cell into its time limit.
fn run_out_of_time(worker: &mut Worker, code: &str) -> Response {
    limits::run_out_of_time(worker, code, 0.2)
}

/// Checks that every cell is stopped at its time limit, and that the same interpreter goes on.
fn stopped_and_kept(worker: &mut Worker, cells: &[&str]) {
    worker.value("kept = 41");
    for code in cells {
        let response = run_out_of_time(worker, code);
        assert_eq!(response.state, State::Kept, "{code:?}: {response:?}");
        assert!(response.hint.is_some_and(|hint| hint.contains("time limit of 0.2 s")), "{code:?}");
        assert_eq!(worker.value("kept + 1"), "42", "after {code:?}");
    }
}

#[test]
fn whatever_a_cell_waits_for_ends_at_the_time_limit() {
    let mut worker = Worker::python();
    stopped_and_kept(
        &mut worker,
        &[
            "import threading; lock = threading.Lock(); lock.acquire(); lock.acquire()",
            "import socket; a, b = socket.socketpair(); a.recv(1)",
            "import os; r, w = os.pipe(); os.read(r, 1)",
            "import queue; queue.Queue().get()",
            "import select; select.select([], [], [])",
            "import subprocess; subprocess.run(['sleep', '1000'])",
            "import threading, time\nt = threading.Thread(target=time.sleep, args=(1000,), daemon=True)\nt.start(); t.join()",
            "import ctypes; ctypes.CDLL(None).sleep(1000)",
            "import multiprocessing, time\np = multiprocessing.Process(target=time.sleep, args=(1000,))\np.start(); p.join()",
        ],
    );
}

#[test]
fn long_computations_end_at_the_time_limit() {
    let mut worker = Worker::python();
    stopped_and_kept(
        &mut worker,
        &[
            "import re; re.match(r'(a*)*b', 'a' * 40)",
            "x = 10**10**8",
            "def g():\n    while True: yield 1\nmax(g())",
            "class R:\n    def __repr__(self):\n        while True: pass\nR()",
        ],
    );
}

#[test]
fn awaiting_ends_at_the_time_limit_and_leaves_nothing_behind() {
    let mut worker = Worker::python();
    let deaf = "import asyncio\nasync def deaf():\n    while True:\n        try: await asyncio.sleep(100)\n        except asyncio.CancelledError: print('deaf')\n";
    worker.value(deaf);
    stopped_and_kept(
        &mut worker,
        &[
            "await asyncio.sleep(100)",
            "asyncio.run(asyncio.sleep(100))",
            "asyncio.run(deaf())",
            "await deaf()",
        ],
    );
    assert_eq!(worker.output("await asyncio.sleep(0); print('on')"), "on\n", "the deaf task is left alone");
}

#[test]
fn cells_that_resist_an_interrupt_are_stopped_all_the_same() {
    let mut worker = Worker::python();
    worker.value("import os, signal, subprocess, time");
    stopped_and_kept(
        &mut worker,
        &[
            "while True:\n    try:\n        while True: pass\n    except BaseException: pass",
            "signal.signal(signal.SIGINT, lambda *_: None)\nwhile True: pass",
            "signal.signal(signal.SIGINT, signal.SIG_IGN)\ntime.sleep(1000)",
            "os.system('sleep 1000')",
            "os.system(\"trap '' INT TERM; sleep 1000\")",
        ],
    );
}

#[test]
fn asyncio_works_after_it_was_stopped_on_every_python() {
    for python in pythons() {
        let mut worker = Setup::python_at(&python).start();
        worker.value(
            "import asyncio, time
async def slow():
    try: await asyncio.sleep(100)
    finally: await asyncio.sleep(100)
async def deaf():
    while True:
        try: await asyncio.sleep(100)
        except BaseException: pass
async def block():
    while True:
        try: time.sleep(100)
        except BaseException: pass",
        );
        for code in [
            "asyncio.run(slow())",
            "await slow()",
            "asyncio.run(asyncio.to_thread(time.sleep, 1))",
            "await deaf()",
            "await block()",
        ] {
            let response = run_out_of_time(&mut worker, code);
            assert_eq!(response.state, State::Kept, "{code:?}: {response:?}");
            assert_eq!(
                worker.value("await asyncio.sleep(0, 'slept')"),
                "'slept'",
                "{python:?} after {code:?}"
            );
            assert_eq!(
                worker.value("asyncio.run(asyncio.sleep(0, 'ran'))"),
                "'ran'",
                "{python:?} after {code:?}"
            );
        }
    }
}

#[test]
fn every_python_is_stopped_by_the_same_ladder() {
    for python in pythons() {
        let mut worker = Setup::python_at(&python).start();
        stopped_and_kept(
            &mut worker,
            &[
                "while True: pass",
                "import time; time.sleep(1e6)",
                "while True:\n    try: time.sleep(100)\n    except BaseException: pass",
                "def deaf():\n    try: time.sleep(100)\n    except BaseException: pass\nwhile True:\n    try: deaf()\n    except BaseException: pass",
                "import asyncio\nawait asyncio.sleep(100)",
            ],
        );
    }
}

#[test]
fn a_cell_that_cannot_be_stopped_is_killed_and_the_hint_says_so() {
    let mut worker = Worker::python();
    worker.value("kept = 1; answer['content'] = 'so far'");
    for code in [
        "print('before', flush=True); sum(__import__('itertools').repeat(1))",
        "print('before'); import signal; signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())\nwhile True: pass",
    ] {
        let response = run_out_of_time(&mut worker, code);
        assert_eq!((response.state, response.stdout.as_str()), (State::Reset, "before\n"), "{response:?}");
        assert_eq!(response.answer.content, "so far");
        let hint = response.hint.unwrap();
        assert!(
            hint.contains("was killed because the call did not stop")
                && hint.contains("variables and imports are lost"),
            "{hint}"
        );
        assert_eq!(worker.value("'kept' in dir(), answer['content']"), "(False, 'so far')");
    }
}

#[test]
fn a_cell_that_ends_its_interpreter_when_stopped_is_not_reported_as_killed() {
    let mut worker = Worker::python();
    let response =
        run_out_of_time(&mut worker, "import os, time\ntry: time.sleep(1000)\nfinally: os._exit(4)");
    assert_eq!(response.state, State::Reset);
    assert!(response.hint.unwrap().starts_with("the interpreter ended with status 4; "));
}

#[test]
fn an_interrupt_ends_the_call_and_keeps_the_session() {
    let mut worker = Worker::python();
    worker.value("kept = 41");
    worker
        .send_call("print('so far')\nopen('running', 'w').close()\nimport time; time.sleep(1000)", json!({}));
    worker.wait_for_file("running");
    worker.signal(Signal::SIGINT);
    let response = worker.receive();
    assert_eq!((response.outcome, response.state), (Outcome::Interrupted, State::Kept));
    assert_eq!(response.stdout, "so far\n");
    assert_eq!(response.exception.unwrap().kind, "KeyboardInterrupt");
    assert!(response.result.unwrap().ends_with("\nKeyboardInterrupt"));
    assert_eq!(worker.value("kept + 1"), "42");
}

#[test]
fn handlers_of_other_signals_run_while_no_cell_does() {
    let mut worker = Worker::python();
    worker.value("import os, signal\nsignal.signal(signal.SIGUSR1, lambda *_: open('seen', 'w').close())");
    nix::sys::signal::kill(worker.interpreter(), Signal::SIGUSR1).unwrap();
    worker.wait_for_file("seen");
    worker.value("signal.signal(signal.SIGUSR1, lambda *_: 1 / 0)");
    nix::sys::signal::kill(worker.interpreter(), Signal::SIGUSR1).unwrap();
    let mut complaint = String::new();
    wait_until("the handler's exception is told", || {
        complaint.push_str(&worker.call("None").stderr);
        complaint.contains("ZeroDivisionError")
    });
    assert_eq!(worker.value("1 + 1"), "2");
}

#[test]
fn programs_of_earlier_cells_outlive_an_interrupt() {
    let mut worker = Worker::python();
    worker.value("import subprocess, time\nearlier = subprocess.Popen(['sleep', '1000'])");
    // Programs of a cell are recognised by the clock tick of their start.
    worker.value("time.sleep(0.05)");
    run_out_of_time(&mut worker, "import os; os.system('sleep 1000')");
    assert_eq!(worker.value("earlier.poll()"), "");
}
