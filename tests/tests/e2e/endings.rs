//! When a worker ends, so does all that its session started.

use std::io::Read as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rlm_core::protocol::Outcome;
use rlm_tests::{AT_ONCE, Place, Worker, program, shell_status, wait_until};
use serde_json::json;

use crate::languages::{Language, in_both_languages};

in_both_languages!(
    sigterm_ends_everything,
    shutdown_ends_everything,
    sigkill_of_either_process_ends_everything,
    the_death_of_the_host_ends_everything,
    a_session_that_kills_its_parent_leaves_nothing,
    signals_during_the_start_leave_nothing,
    an_idle_worker_sleeps,
);

/// Starts programs of every kind.
pub(crate) fn start_programs(worker: &mut Worker, language: Language) {
    let programs = language.pick(
        &[
            "sleep 1001 &\nnohup sleep 1002 >/dev/null 2>&1 &\nsetsid sleep 1003 &\n\
             (setsid sh -c 'sleep 1004 & sleep 1005' &)",
            "trap '' HUP TERM; (trap '' HUP TERM INT; sleep 1006) & disown; trap - HUP TERM",
            "(sleep 1007 & kill -STOP $BASHPID) &",
        ][..],
        &["import multiprocessing, os, signal, subprocess, threading, time
quiet = {'stdout': subprocess.DEVNULL, 'stderr': subprocess.DEVNULL}
subprocess.Popen(['sleep', '1001'])
subprocess.Popen(['setsid', 'nohup', 'sleep', '1002'], **quiet)
subprocess.Popen(['sh', '-c', \"(trap '' HUP TERM INT; sleep 1003) &\"])
multiprocessing.Process(target=os.execlp, args=('sleep', 'sleep', '1004')).start()
threading.Thread(target=subprocess.run, args=(['sleep', '1005'],), daemon=True).start()
if os.fork() == 0: os.setsid(); os.execlp('sleep', 'sleep', '1006')"],
    );
    for code in programs {
        assert_eq!(worker.call(code).outcome, Outcome::Ok);
    }
    wait_for_sleeps(worker, language.pick(7, 6));
}

fn wait_for_sleeps(worker: &Worker, count: usize) {
    let sleeps = || worker.processes().iter().filter(|(_, name)| name == "sleep").count();
    wait_until("every program runs", || sleeps() == count);
}

/// Starts programs of every kind, and leaves a call running: a cell that only SIGKILL stops.
fn keep_busy(worker: &mut Worker, language: Language) {
    start_programs(worker, language);
    let last = language.pick(
        ": >started; sleep 1008",
        "for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT): signal.signal(number, signal.SIG_IGN)
open('started', 'w').close()
while True: time.sleep(1000)",
    );
    worker.send_call(last, json!({}));
    worker.wait_for_file("started");
    wait_for_sleeps(worker, language.pick(8, 6));
}

fn busy(language: Language) -> Worker {
    let mut worker = language.start();
    keep_busy(&mut worker, language);
    worker
}

/// Waits until every process of the worker is gone, which happens at once.
pub(crate) fn assert_all_gone(worker: &Worker) {
    let begun = Instant::now();
    wait_until("every process is gone", || worker.processes().is_empty() || begun.elapsed() > AT_ONCE);
    worker.assert_nothing_left();
}

fn sigterm_ends_everything(language: Language) {
    busy(language).end();
}

fn shutdown_ends_everything(language: Language) {
    let mut worker = busy(language);
    worker.signal(Signal::SIGINT);
    assert_eq!(worker.receive().outcome, Outcome::Interrupted);
    let begun = Instant::now();
    worker.send(br#"{"shutdown": true}"#);
    assert_eq!(shell_status(worker.wait()), 0);
    assert!(begun.elapsed() < AT_ONCE, "{:?}", begun.elapsed());
    worker.assert_nothing_left();
    assert!(!worker.control.ready_flag().exists());
}

// Promise: Background, `nohup`, `setsid`, double-forked: when the worker ends, every process ends, no matter which one was killed.
fn sigkill_of_either_process_ends_everything(language: Language) {
    for of_server in [false, true] {
        let mut worker = busy(language);
        kill(if of_server { worker.server() } else { worker.pid() }, Signal::SIGKILL).unwrap();
        assert_eq!(shell_status(worker.wait()), 137);
        assert_all_gone(&worker);
        assert!(!worker.control.ready_flag().exists());
    }
}

// Promise: Background, `nohup`, `setsid`, double-forked: when the worker ends, every process ends, no matter which one was killed.
fn the_death_of_the_host_ends_everything(language: Language) {
    let mut host = Command::new("sleep").arg("1000").stdin(Stdio::null()).spawn().unwrap();
    let mut worker = language.setup().env("RLM_HOST_PID", host.id()).start();
    keep_busy(&mut worker, language);
    host.kill().unwrap();
    let begun = Instant::now();
    assert_eq!(shell_status(worker.wait()), 0);
    assert!(begun.elapsed() < AT_ONCE, "{:?}", begun.elapsed());
    host.wait().unwrap();
    worker.assert_nothing_left();
}

fn a_session_that_kills_its_parent_leaves_nothing(language: Language) {
    let mut worker = language.start();
    let leave = "nohup sleep 1000 >/dev/null 2>&1 &";
    worker.call(language.pick(leave, &format!("import os; os.system({leave:?})")));
    worker.send_call(language.pick("kill -9 $PPID", "os.kill(os.getppid(), 9)"), json!({}));
    assert_eq!(shell_status(worker.wait()), 137);
    assert_all_gone(&worker);
}

fn signals_during_the_start_leave_nothing(language: Language) {
    // The test does not wait for the ready flag: the signal arrives at any stage of the start.
    for delay in language.pick([0, 300, 600, 1000, 1500, 2500], [0, 500, 1500, 4000, 8000, 20_000]) {
        let place = Place::new();
        let mut child = language.worker_in(&place).spawn().unwrap();
        // The time of the signal is what is tested.
        std::thread::sleep(Duration::from_micros(delay));
        kill(Pid::from_raw(i32::try_from(child.id()).unwrap()), Signal::SIGTERM).unwrap();
        assert_eq!(shell_status(child.wait().unwrap()), 143, "after {delay} µs");
        place.assert_nothing_left();
    }
}

/// No process of a worker wakes while nothing is asked of it.
fn an_idle_worker_sleeps(language: Language) {
    let mut worker = language.start();
    worker.call("");
    let field = |pid: Pid, name: &str| {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.split_ascii_whitespace().next().unwrap().to_owned()
    };
    let wake_ups = |pid| field(pid, "voluntary_ctxt_switches:");
    let pids = [worker.pid(), worker.server(), worker.interpreter()];
    // The last call may have a tail: what follows the response.
    let mut last = None;
    wait_until("all of them sleep", || {
        let now = pids.map(wake_ups);
        pids.iter().all(|pid| field(*pid, "State:") == "S") && last.replace(now.clone()) == Some(now)
    });
    let before = pids.map(wake_ups);
    // This time is what is tested: nothing should happen in it.
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(pids.map(wake_ups), before);
}

#[test]
fn a_large_response_that_is_read_half_does_not_keep_the_worker() {
    let mut worker = Worker::bash();
    worker.send_call("head -c 5000000 /dev/zero | tr '\\0' x", json!({}));
    let fifo = std::fs::File::open(worker.control.response_fifo()).unwrap();
    rlm_tests::wait_readable(&fifo, rlm_tests::PATIENCE);
    worker.end();
    drop(fifo);
}

#[test]
fn a_host_that_gives_up_on_a_response_is_survived() {
    let mut worker = Worker::bash();
    worker.send_call("until [ -e go ]; do :; done; head -c 5000000 /dev/zero | tr '\\0' x", json!({}));
    let fifo = worker.open_responses();
    std::fs::write(worker.fs_root().join("go"), "").unwrap();
    rlm_tests::wait_readable(&fifo, rlm_tests::PATIENCE);
    assert_eq!((&fifo).read(&mut [0; 1]).unwrap(), 1);
    drop(fifo);
    let log = worker.control.log_file();
    rlm_tests::wait_until("the worker noticed", || {
        std::fs::read_to_string(&log).is_ok_and(|text| text.contains("the host closed the response FIFO"))
    });
    assert_eq!(worker.output("echo on"), "on\n");
}

#[test]
fn a_response_of_which_nothing_was_read_is_there_for_the_next_reader() {
    let mut worker = Worker::bash();
    for code in ["echo late", "head -c 5000000 /dev/zero | tr '\\0' x"] {
        // The reader is there before the request, so it may be a copy of the reader before: the worker cannot tell.
        let fifo = worker.open_responses();
        let seq = worker.send_call(code, json!({}));
        rlm_tests::wait_readable(&fifo, rlm_tests::PATIENCE);
        drop(fifo);
        assert_eq!(worker.receive().seq, seq);
        assert_eq!(worker.output("echo on"), "on\n");
    }
}

#[test]
fn a_control_directory_that_is_taken_away_ends_the_worker() {
    let mut worker = Worker::bash();
    worker.call("nohup sleep 1000 >/dev/null 2>&1 &");
    std::fs::remove_dir_all(worker.control.path()).unwrap();
    assert_eq!(shell_status(worker.wait()), 3);
    worker.assert_nothing_left();
}

#[test]
fn a_control_directory_that_is_taken_away_before_a_response_is_read_ends_the_worker() {
    for has_reader in [false, true] {
        let mut worker = Worker::bash();
        let reader = has_reader.then(|| worker.open_responses());
        worker.send_call("echo begun", json!({}));
        // The history has the call right before the response is written.
        let history = worker.control.history_file();
        let is_in_history = || std::fs::read_to_string(&history).is_ok_and(|text| text.contains("begun"));
        wait_until("the response is about to be written", is_in_history);
        if let Some(reader) = &reader {
            rlm_tests::wait_readable(reader, rlm_tests::PATIENCE);
        }
        std::fs::remove_dir_all(worker.control.path()).unwrap();
        assert_eq!(shell_status(worker.wait()), 3);
        drop(reader);
        worker.assert_nothing_left();
    }
}

#[test]
fn what_is_wrong_at_the_start_is_said_in_a_sentence() {
    let output = Command::new(program("rlm-worker-bash")).output().unwrap();
    let usage = "rlm-worker-bash: missing option '--control-dir DIR'\nTry `rlm-worker-bash --help`.\n";
    assert_eq!((String::from_utf8(output.stderr).unwrap().as_str(), output.status.code()), (usage, Some(2)));
    let place = Place::new();
    let dir = place.file("").display().to_string();
    let rooted = json!({"fs_root": dir}).to_string();
    let context_file = format!("cannot read the context file {dir}rlm_context.json: No such file");
    let shell = "/bin/false ended with status 1 before it was ready";
    let timeout = "RLM_EXEC_TIMEOUT is \"soon\", expected a number of seconds above 0";
    for (context, env, sentence) in [
        (None, &[][..], context_file.as_str()),
        (Some("{}"), &[], "`fs_root` is missing, expected the path"),
        (Some(r#"{"fs_root": "/does/not/exist"}"#), &[], "in /does/not/exist: No such file"),
        (Some(&rooted), &[("RLM_BASH", "/bin/false")], shell),
        (Some(&rooted), &[("RLM_EXEC_TIMEOUT", "soon")], timeout),
    ] {
        let mut worker = Language::Bash.worker_in(&place);
        match context {
            Some(context) => drop(place.write("rlm_context.json", context)),
            None => std::fs::remove_file(place.file("rlm_context.json")).unwrap(),
        }
        let output = worker.envs(env.iter().copied()).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(3) && said.contains(sentence), "{said}");
        let is_of_a_session = context.is_some_and(|context| context.contains("fs_root"));
        let files = std::fs::read_dir(&dir).unwrap().count();
        assert!(is_of_a_session || files == usize::from(context.is_some()), "a file is added");
    }
}
