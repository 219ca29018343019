//! When a worker ends, so do its interpreter and everything that cells have started; while it runs, nothing grows.

use std::fs;
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rlm_tests::{Setup, Worker, default_python, open_descriptors, shell_status, wait_until};
use serde_json::json;

use crate::endings::{assert_all_gone, outlive_the_host, shut_down, sleep_when_idle};

/// Starts programs of every kind, and leaves a cell running that only SIGKILL stops.
fn start_programs(worker: &mut Worker) {
    worker.value(
        "import multiprocessing, os, signal, subprocess, threading, time
quiet = {'stdout': subprocess.DEVNULL, 'stderr': subprocess.DEVNULL}
subprocess.Popen(['sleep', '1001'])
subprocess.Popen(['setsid', 'nohup', 'sleep', '1002'], **quiet)
subprocess.Popen(['sh', '-c', \"(trap '' HUP TERM INT; sleep 1003) &\"])
multiprocessing.Process(target=os.execlp, args=('sleep', 'sleep', '1004')).start()
threading.Thread(target=subprocess.run, args=(['sleep', '1005'],), daemon=True).start()
if os.fork() == 0: os.setsid(); os.execlp('sleep', 'sleep', '1006')",
    );
    worker.send_call(
        "for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT): signal.signal(number, signal.SIG_IGN)
open('started', 'w').close()
while True: time.sleep(1000)",
        json!({}),
    );
    worker.wait_for_file("started");
    let sleeps = |worker: &Worker| worker.processes().iter().filter(|(_, name)| name == "sleep").count();
    wait_until("every program runs", || sleeps(worker) == 6);
}

#[test]
fn sigterm_ends_everything() {
    let mut worker = Worker::python();
    start_programs(&mut worker);
    worker.end();
}

#[test]
fn shutdown_ends_everything() {
    let mut worker = Worker::python();
    start_programs(&mut worker);
    shut_down(worker);
}

#[test]
fn sigkill_of_either_process_ends_everything() {
    for of_server in [false, true] {
        let mut worker = Worker::python();
        start_programs(&mut worker);
        kill(if of_server { worker.server() } else { worker.pid() }, Signal::SIGKILL).unwrap();
        assert_eq!(shell_status(worker.wait()), 137);
        assert_all_gone(&worker);
        assert!(!worker.control.ready_flag().exists());
    }
}

#[test]
fn the_death_of_the_host_ends_everything() {
    outlive_the_host(Setup::python(), start_programs);
}

#[test]
fn a_session_that_kills_its_parent_leaves_nothing() {
    let mut worker = Worker::python();
    worker.send_call("import os; os.kill(os.getppid(), 9)", json!({}));
    assert_eq!(shell_status(worker.wait()), 137);
    wait_until("nothing is left", || worker.processes().is_empty());
}

#[test]
fn a_response_that_nobody_reads_does_not_keep_the_worker() {
    let mut worker = Worker::python();
    worker.send_call("open('ran', 'w').close(); print('x' * 5_000_000)", json!({}));
    worker.wait_for_file("ran");
    worker.end();
}

#[test]
fn signals_during_the_start_leave_nothing() {
    let python = default_python();
    // The test does not wait for the ready flag: the signal arrives at any stage of the start.
    for delay in [0, 500, 1500, 4000, 8000, 15_000, 25_000] {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("rlm_context.json"), json!({"fs_root": dir.path()}).to_string()).unwrap();
        let mut child = Command::new(rlm_tests::program("rlm-worker-python"))
            .arg("--control-dir")
            .arg(dir.path())
            .arg("--python")
            .arg(&python)
            .env("RLM_TEST_MARK", dir.path())
            .env("RLM_PASS_ENV", "RLM_TEST_MARK")
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        // The time of the signal is what is tested.
        std::thread::sleep(Duration::from_micros(delay));
        kill(Pid::from_raw(i32::try_from(child.id()).unwrap()), Signal::SIGTERM).unwrap();
        assert_eq!(shell_status(child.wait().unwrap()), 143, "after {delay} µs");
        let mark = format!("RLM_TEST_MARK={}", dir.path().display());
        for entry in fs::read_dir("/proc").unwrap().flatten() {
            let environment = fs::read(entry.path().join("environ")).unwrap_or_default();
            let is_left = environment.split(|byte| *byte == 0).any(|variable| variable == mark.as_bytes());
            assert!(!is_left, "{} is left after {delay} µs", entry.path().display());
        }
    }
}

/// Anonymous memory of a process, in KiB: pages of files would count for the only process that maps them at the moment.
fn anonymous_kib(pid: Pid) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap();
    let line = text.lines().find(|line| line.starts_with("Anonymous:")).unwrap();
    line.split_ascii_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn ten_thousand_cells_leave_nothing_behind() {
    let mut worker = Worker::python();
    // Cells of every kind: values, functions that replace each other, errors, output, answers, tasks.
    let round = |worker: &mut Worker, count: usize| {
        for at in 0..count {
            let number = worker.call(match at % 6 {
                0 => "1 + 1",
                1 => "def f(n):\n    return [n for _ in range(3)]\nf(2)",
                2 => "1 / 0",
                3 => "print('x' * 100); import sys; print('y', file=sys.stderr)",
                4 => "answer['content'] = 'text' * 100",
                _ => "import asyncio\nawait asyncio.sleep(0)",
            });
            assert!(number.hint.is_none(), "{number:?}");
        }
    };
    round(&mut worker, 600);
    let pids = [worker.server(), worker.interpreter()];
    let before = (pids.map(anonymous_kib), pids.map(open_descriptors));
    round(&mut worker, rlm_tests::scaled(10_000, 2_000));
    let after = (pids.map(anonymous_kib), pids.map(open_descriptors));
    assert_eq!(after.1, before.1, "descriptors");
    for (before, after) in before.0.into_iter().zip(after.0) {
        // Five percent, and the memory that the allocator may hold back at one moment and not at the other.
        assert!(after <= before + before / 20 + 128, "{before} KiB before, {after} KiB after");
    }
    worker.end();
}

#[test]
fn an_idle_session_sleeps() {
    let mut worker = Worker::python();
    worker.value("1 + 1");
    sleep_when_idle(&worker);
    worker.end();
}
