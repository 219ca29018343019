//! A worker under faults of the system: its files cannot grow, its log cannot be written, it gets no memory.

use std::fs;
use std::io::{self, Read as _, Write as _};

use nix::libc;
use nix::sys::signal::{Signal, kill};
use rlm_core::protocol::{Answer, HistoryEntry, Outcome, State};
use rlm_tests::{Setup, Worker, set_soft_limit, shell_status, wait_until};
use serde_json::json;

use crate::languages::answer_file;

/// Reads the standard error of a worker that has ended.
fn said(mut stderr: io::PipeReader) -> String {
    let mut text = String::new();
    stderr.read_to_string(&mut text).unwrap();
    text
}

fn log(worker: &Worker) -> String {
    fs::read_to_string(worker.control.log_file()).unwrap()
}

#[test]
fn a_call_on_a_full_disk_is_answered_with_the_fault_in_its_hint() {
    let setup = Setup::bash()
        .prepare(|control| std::os::unix::fs::symlink("/dev/full", control.history_file()).unwrap());
    let mut worker = setup.start();
    for _ in 0..2 {
        let response = worker.call("echo ran");
        assert_eq!((response.outcome, response.state), (Outcome::Ok, State::Kept), "{response:?}");
        assert_eq!(response.stdout, "ran\n");
        let path = worker.control.history_file();
        let fault = format!(
            "the history lacks this request: cannot append to the history {}: No space left on device (os error 28)",
            path.display()
        );
        assert_eq!(response.hint, Some(fault));
    }
    assert_eq!(log(&worker).matches("No space left").count(), 1, "it is logged once");
}

/// Lets a call of a worker set a large answer while no file of the worker may grow beyond a limit.
fn write_beyond_the_limit(mut worker: Worker, set_answer: &str) {
    set_soft_limit(worker.server(), libc::RLIMIT_FSIZE, 15_000);
    // In the history a line break takes two bytes, so this answer is beyond the limit there, but not on its way to the session.
    let response = worker.call(&format!("{}{set_answer}", "\n".repeat(10_000)));
    assert_eq!((response.outcome, response.answer.content.len()), (Outcome::Ok, 20_000), "{response:?}");
    let answer = response.answer;
    let hint = response.hint.unwrap();
    for fault in ["the answer is only in this response: ", "the history lacks this request: "] {
        assert!(hint.contains(fault), "{hint}");
    }
    assert_eq!(hint.matches(": File too large").count(), 2, "{hint}");
    let response = worker.call("pass=1");
    assert!(response.hint.is_some_and(|hint| !hint.contains("history")), "the answer is tried again");
    assert_eq!(answer_file(&worker), Answer::default());
    set_soft_limit(worker.server(), libc::RLIMIT_FSIZE, libc::RLIM_INFINITY);
    assert_eq!(worker.call("pass=2").hint, None);
    assert_eq!(answer_file(&worker), answer);
    let history = fs::read_to_string(worker.control.history_file()).unwrap();
    let lines: Vec<HistoryEntry> = history.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let told: Vec<_> = lines.iter().map(|line| (line.seq, line.session.is_some())).collect();
    assert_eq!(told, [(2, true), (3, false)]);
    assert_eq!(log(&worker).matches("File too large").count(), 2, "one line of two faults");
}

#[test]
fn a_file_size_limit_loses_no_answer_and_no_worker() {
    write_beyond_the_limit(Worker::bash(), "RLM_CONTENT=$(printf %020000d 7)");
    write_beyond_the_limit(Worker::python(), "answer['content'] = '7' * 20000");
}

#[test]
fn code_beyond_a_file_size_limit_is_refused_and_the_session_goes_on() {
    for (mut worker, noun) in [(Worker::bash(), "shell"), (Worker::python(), "interpreter")] {
        worker.call("kept=1");
        set_soft_limit(worker.server(), libc::RLIMIT_FSIZE, 15_000);
        let response = worker.call(&format!("kept=2{}", "\n".repeat(20_000)));
        assert_eq!((response.outcome, response.state), (Outcome::Error, State::Kept), "{response:?}");
        let hint = response.hint.unwrap();
        let fault = format!("the request cannot be passed to the {noun}: File too large (os error 27)");
        assert!(hint.starts_with(&fault), "{hint}");
        let code = if noun == "shell" { "echo $kept" } else { "print(kept)" };
        assert_eq!(worker.output(code), "1\n");
    }
}

#[test]
fn a_file_size_limit_of_the_host_is_the_sessions_too() {
    let mut worker = Worker::bash();
    assert_eq!(worker.call("(ulimit -f 1; head -c 5000 /dev/zero >big)").exit_code, Some(153));
}

#[test]
fn lines_that_the_log_cannot_take_go_to_standard_error() {
    let (stderr, writer) = io::pipe().unwrap();
    let setup = Setup::bash()
        .prepare(|control| std::os::unix::fs::symlink("/dev/full", control.log_file()).unwrap())
        .stderr(writer);
    let mut worker = setup.start();
    worker.send(b"{}");
    assert_eq!(worker.receive().outcome, Outcome::Error);
    worker.signal(Signal::SIGTERM);
    assert_eq!(shell_status(worker.wait()), 143);
    let said = said(stderr);
    for line in ["rlm-worker-bash: refused a request: ", "rlm-worker-bash: ended by SIGTERM\n"] {
        assert!(said.contains(line), "{said}");
    }
    worker.assert_nothing_left();
}

#[test]
fn a_full_standard_error_does_not_keep_a_worker() {
    let (_stderr, writer) = io::pipe().unwrap();
    let set_blocking = |flag| nix::fcntl::fcntl(&writer, nix::fcntl::FcntlArg::F_SETFL(flag)).unwrap();
    set_blocking(nix::fcntl::OFlag::O_NONBLOCK);
    while (&writer).write(&[0; 4096]).is_ok() {}
    set_blocking(nix::fcntl::OFlag::empty());
    let setup = Setup::bash()
        .prepare(|control| std::os::unix::fs::symlink("/dev/full", control.log_file()).unwrap())
        .stderr(writer);
    let mut worker = setup.start();
    worker.send(b"{}");
    assert_eq!(worker.receive().outcome, Outcome::Error);
    assert_eq!(worker.output("echo on"), "on\n");
    fs::remove_dir_all(worker.control.path()).unwrap();
    assert_eq!(shell_status(worker.wait()), 3);
    worker.assert_nothing_left();
}

#[test]
fn the_reason_of_a_failure_is_on_standard_error_once_where_the_log_is_gone() {
    let (stderr, writer) = io::pipe().unwrap();
    let mut worker = Setup::bash().stderr(writer).start();
    fs::remove_dir_all(worker.control.path()).unwrap();
    assert_eq!(shell_status(worker.wait()), 3);
    let said = said(stderr);
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.starts_with("rlm-worker-bash: cannot continue: "), "{said}");
    worker.assert_nothing_left();
}

#[test]
fn a_worker_without_memory_says_so() {
    for (setup, code) in [
        (Setup::bash(), "head -c 12000000 /dev/zero | tr '\\0' x"),
        (Setup::python(), "print('x' * 12_000_000)"),
    ] {
        let (stderr, writer) = io::pipe().unwrap();
        // A thread that waits for the host's end of the FIFO would set memory aside, which does for the call.
        let mut worker = setup.env("MALLOC_ARENA_MAX", 1).stderr(writer).start();
        worker.call("pass=1");
        let threads = format!("/proc/{}/task", worker.server());
        wait_until("it has one thread", || fs::read_dir(&threads).unwrap().count() == 1);
        let statm = fs::read_to_string(format!("/proc/{}/statm", worker.server())).unwrap();
        let pages: u64 = statm.split(' ').next().unwrap().parse().unwrap();
        set_soft_limit(worker.server(), libc::RLIMIT_AS, pages * 4096 + (1 << 20));
        worker.send_call(code, json!({}));
        assert_eq!(shell_status(worker.wait()), 3);
        let (said, log) = (said(stderr), log(&worker));
        for text in [&said, &log] {
            assert!(text.contains("cannot continue: out of memory"), "said: {said}\nlogged: {log}");
        }
        worker.assert_nothing_left();
        assert!(!worker.control.ready_flag().exists());
    }
}

#[test]
fn the_log_says_which_signal_ended_the_serving_process() {
    let mut worker = Worker::bash();
    kill(worker.server(), Signal::SIGKILL).unwrap();
    assert_eq!(shell_status(worker.wait()), 137);
    assert!(log(&worker).contains("the serving process was ended by SIGKILL"), "{}", log(&worker));
    worker.assert_nothing_left();
}
