//! The description of a session, given without asking its interpreter.

use std::fs;
use std::process::Command;
use std::time::Instant;

use nix::sys::signal::Signal;
use rlm_core::protocol::{Info, Outcome, State};
use rlm_tests::{AT_ONCE, Setup, Worker, pythons};
use serde_json::json;

use super::{ask, reset};
use crate::languages::end_interpreter;

#[track_caller]
fn info(worker: &Worker) -> Info {
    let response = ask(worker, json!({"op": "info"}));
    assert_eq!((response.outcome, response.state), (Outcome::Ok, State::Kept), "{response:?}");
    assert_eq!((response.stdout.as_str(), response.exception, response.truncated), ("", None, None));
    serde_json::from_str(&response.result.unwrap()).unwrap()
}

fn said_by(program: &std::path::Path, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

#[test]
fn a_shell_is_described() {
    let mut worker = Worker::bash();
    worker.output("mkdir -p real; ln -s real link; cd link; false; RLM_READY=1");
    let told = info(&worker);
    let version = said_by("/bin/bash".as_ref(), &["-c", "echo \"$BASH_VERSION\""]);
    assert_eq!(
        (told.language.as_str(), told.version.as_str(), told.worker_version.as_str(), told.protocol),
        ("bash", version.as_str(), env!("CARGO_PKG_VERSION"), 1)
    );
    assert_eq!((told.calls, told.answer_ready, told.pid), (1, true, Some(worker.interpreter().as_raw())));
    let real = fs::canonicalize(worker.fs_root().join("real")).unwrap();
    assert_eq!(told.cwd.as_deref(), real.to_str());
    assert!(told.uptime > 0.0 && told.uptime < 3600.0, "{}", told.uptime);
    let again = info(&worker);
    assert!(again.uptime > told.uptime);
    assert!(again.usage.cpu_seconds >= told.usage.cpu_seconds);
    let Info { uptime, memory_bytes, usage, .. } = told;
    assert_eq!(Info { uptime, memory_bytes, usage, ..again }, told);
    reset(&worker);
    let fresh = info(&worker);
    assert_eq!(fs::canonicalize(fresh.cwd.unwrap()).unwrap(), fs::canonicalize(worker.fs_root()).unwrap());
    assert_eq!((fresh.calls, fresh.answer_ready), (1, false));
}

#[test]
fn every_python_is_described() {
    for python in pythons() {
        let mut worker = Setup::python_at(&python).start();
        worker.value("import os; os.mkdir('d'); os.chdir('d')");
        let told = info(&worker);
        let version = said_by(&python, &["-c", "import platform; print(platform.python_version())"]);
        assert_eq!((told.language.as_str(), told.version), ("python", version));
        assert_eq!(told.pid, Some(worker.interpreter().as_raw()));
        assert!(told.cwd.unwrap().ends_with("/rlm_fs/d"));
    }
}

#[test]
fn asking_changes_nothing_in_a_shell() {
    let mut worker = Worker::bash();
    worker.output("x=1; sleep 1000 & job=$!; set -u; trap 'echo d' USR1");
    let look =
        "echo $? ${PIPESTATUS[*]} $x $-; [[ $! == $job ]] && trap -p; history; compgen -v | grep -c rlm";
    worker.output("(exit 3) | (exit 4)");
    let expected = worker.output(look);
    worker.output("(exit 3) | (exit 4)");
    for _ in 0..3 {
        info(&worker);
    }
    assert_eq!(worker.output(look), expected);
    assert!(expected.starts_with("4 3 4 1 "), "{expected}");
}

#[test]
fn memory_is_that_of_all_processes() {
    for (mut worker, start) in [
        (
            Worker::bash(),
            "python3 -c 'x = bytearray(100 << 20); open(\"full\", \"w\"); import time; time.sleep(1000)' >/dev/null 2>&1 &",
        ),
        (
            Worker::python(),
            "import subprocess, sys; subprocess.Popen([sys.executable, '-c', 'x = bytearray(100 << 20); open(\"full\", \"w\"); import time; time.sleep(1000)'])",
        ),
    ] {
        let before = info(&worker).memory_bytes;
        assert!(before > 1 << 20, "{before}");
        worker.call(start);
        worker.wait_for_file("full");
        let after = info(&worker).memory_bytes;
        assert!(after > before + (100 << 20), "{before} {after}");
        assert!(after < before + (200 << 20), "{before} {after}");
    }
}

#[test]
fn an_answer_costs_no_time() {
    for worker in [Worker::bash(), Worker::python()] {
        let fastest =
            (0..50).map(|_| ask(&worker, json!({"op": "info"})).execution_time).fold(f64::MAX, f64::min);
        // On an idle machine a tenth of that, in a release build.
        assert!(fastest < 0.001, "{fastest}");
    }
}

#[test]
fn info_does_not_start_a_new_interpreter() {
    for mut worker in [Worker::bash(), Worker::python()] {
        worker.call("x=1");
        end_interpreter(&worker, Signal::SIGKILL);
        let response = ask(&worker, json!({"op": "info"}));
        assert_eq!(
            response.hint.as_deref(),
            Some("the interpreter has ended; the next call runs in a new one")
        );
        let told: Info = serde_json::from_str(&response.result.unwrap()).unwrap();
        assert_eq!((told.pid, told.calls), (None, 1));
        assert!(!told.version.is_empty() && told.memory_bytes > 0);
        assert_eq!(told.cwd.is_some(), told.language == "bash");
        assert_eq!(worker.processes().len(), 2);
        let response = worker.call("");
        assert_eq!((response.outcome, response.state), (Outcome::Ok, State::Reset));
        assert!(info(&worker).pid.is_some());
    }
}

#[test]
fn a_session_at_work_in_the_background_answers_at_once() {
    let mut worker = Worker::bash();
    // The signal is sent between calls: during one it would be held back.
    worker.output(
        "trap 'while :; do :; done' USR1
        (until [ -e ended ]; do sleep 0.01; done; kill -USR1 $$; touch busy) &",
    );
    std::fs::write(worker.fs_root().join("ended"), "").unwrap();
    worker.wait_for_file("busy");
    let begun = Instant::now();
    info(&worker);
    assert!(begun.elapsed() < AT_ONCE);
    reset(&worker);
}
