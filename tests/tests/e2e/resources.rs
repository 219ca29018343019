//! Limits of a session's resources: what is in force, what happens at a limit, and that no cgroup is left.

use std::fs;
use std::path::PathBuf;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rlm_core::protocol::{Limit, Limits, Mechanism, Outcome, Response, State};
use rlm_tests::{Setup, Worker, shell_status, skipped, wait_until};

use crate::endings::assert_all_gone;
use crate::languages::Language;

fn hint(response: &Response) -> &str {
    response.hint.as_deref().unwrap_or_default()
}

#[test]
fn a_session_without_limits_has_none() {
    let mut worker = Worker::bash();
    worker.output("for ((i = 0; i < 100000; i++)); do :; done");
    let info = worker.info();
    assert_eq!((info.limits, cgroup(&worker)), (Limits::default(), None));
    assert!(info.usage.cpu_seconds > Some(0.0), "{info:?}");
}

#[test]
fn limits_are_in_force_and_told() {
    let mut worker = Setup::bash().env("RLM_LIMIT_FILE_SIZE", 1 << 20).env("RLM_LIMIT_CPU", 100).start();
    assert_eq!(worker.output("ulimit -f; ulimit -t; ulimit -Ht"), "1024\n100\n101\n");
    let limit = |value| Some(Limit { value, mechanism: Some(Mechanism::Rlimit) });
    let limits = Limits { file_size_bytes: limit(1 << 20), cpu_seconds: limit(100), ..Limits::default() };
    assert_eq!(worker.info().limits, limits);
    let limits = |pid: Pid| fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
    assert!(limits(worker.interpreter()).contains("1048576"));
    for pid in [worker.pid(), worker.server()] {
        assert!(!limits(pid).contains("1048576"), "the worker itself has no limit");
    }
}

#[test]
fn a_file_at_its_limit_is_an_error_of_the_program_that_writes_it() {
    let mut worker = Setup::bash().env("RLM_LIMIT_FILE_SIZE", 4096).start();
    assert_eq!(worker.output("kept=1; head -c 5000 /dev/zero >big"), "head: write error: File too large\n");
    // The shell's own writes end it.
    let response = worker.call("printf %05000d 7 >big");
    assert_eq!((response.outcome, response.state), (Outcome::Exited, State::Restored), "{response:?}");
    assert!(hint(&response).ends_with("a process reached the limit of 4096 bytes in a file (SIGXFSZ)"));
    assert_eq!(fs::metadata(worker.fs_root().join("big")).unwrap().len(), 4096);
    // The worker's own files have no limit.
    let response = worker.call("RLM_CONTENT=$(printf %010000d 7)");
    assert_eq!((response.answer.content.len(), &response.hint), (10_000, &None));
    assert_eq!(worker.output("echo $kept"), "1\n");
    worker.end();
    let mut worker = Setup::python().env("RLM_LIMIT_FILE_SIZE", 4096).start();
    let response = worker.call("kept = 1; open('big', 'wb').write(b'x' * 20000)");
    assert_eq!(response.exception.unwrap().kind, "OSError");
    assert_eq!(worker.value("kept"), "1");
}

#[test]
fn a_process_at_its_limit_of_cpu_time_ends_and_the_session_goes_on() {
    let mut worker = Setup::bash().env("RLM_LIMIT_CPU", 1).start();
    let reached = "a process reached the limit of 1 s of CPU time (SIGXCPU)";
    let response = worker.call("kept=1; sh -c 'while :; do :; done'");
    assert_eq!((response.state, response.exit_code), (State::Kept, Some(152)), "{response:?}");
    assert_eq!(hint(&response), reached);
    let response = worker.call("while :; do :; done");
    assert_eq!((response.outcome, response.exit_code), (Outcome::Exited, Some(152)), "{response:?}");
    assert!(hint(&response).ends_with(reached), "{response:?}");
    assert_eq!((response.state, worker.output("echo $kept").as_str()), (State::Restored, "1\n"));
    assert!(worker.info().usage.cpu_seconds > Some(1.5));
    worker.end();
    let mut worker = Setup::python().env("RLM_LIMIT_CPU", 1).start();
    let response = worker.call("while True: pass");
    assert_eq!(response.outcome, Outcome::Crashed);
    assert!(hint(&response).contains("SIGXCPU"), "{response:?}");
    assert_eq!(worker.value("1 + 1"), "2");
}

#[test]
fn memory_beyond_the_limit_is_refused_and_the_session_goes_on() {
    let mut worker = Setup::python().env("RLM_LIMIT_MEMORY", 512 << 20).start();
    let limit = worker.info().limits.memory_bytes.unwrap();
    assert_eq!(limit.value, 512 << 20);
    let response = worker.call("kept = bytearray(1 << 30)");
    if limit.mechanism == Some(Mechanism::Rlimit) {
        assert_eq!(response.exception.unwrap().kind, "MemoryError");
    } else {
        assert_eq!(response.outcome, Outcome::Crashed);
        assert!(hint(&response).contains("the kernel killed processes"), "{response:?}");
    }
    assert_eq!(worker.value("1 + 1"), "2");
}

#[test]
fn a_limit_of_processes_that_has_no_effect_is_told() {
    let worker = Setup::bash().env("RLM_LIMIT_PROCESSES", 100).start();
    let limit = worker.info().limits.processes.unwrap();
    let log = fs::read_to_string(worker.control.log_file()).unwrap_or_default();
    let told = log.contains("(RLM_LIMIT_PROCESSES) has no effect here");
    assert_eq!((limit.value, told), (100, limit.mechanism.is_none()), "{log}");
}

#[test]
fn out_of_memory_the_kernel_ends_a_session_before_its_host() {
    let score = |pid: Pid| fs::read_to_string(format!("/proc/{pid}/oom_score_adj")).unwrap();
    let hosts = score(Pid::this());
    let sessions = hosts.trim().parse::<i32>().unwrap().max(500);
    let worker = Worker::bash();
    assert_eq!(score(worker.pid()), hosts);
    assert_eq!(score(worker.interpreter()), format!("{sessions}\n"));
}

/// The session's cgroup, if the machine lets the worker create one.
fn cgroup(worker: &Worker) -> Option<PathBuf> {
    let read = |name| fs::read_to_string(format!("/proc/{}/{name}", worker.interpreter())).unwrap();
    let (cgroups, mounts) = (read("cgroup"), read("mountinfo"));
    let path = cgroups.lines().find_map(|line| line.strip_prefix("0::"))?;
    let mount = mounts.lines().find(|line| line.contains(" - cgroup2 "))?.split(' ').nth(4)?;
    path.contains("/rlm-session-").then(|| PathBuf::from(format!("{mount}{path}")))
}

#[test]
fn the_cgroup_of_a_session_goes_with_it_however_the_worker_ends() {
    for victim in [None, Some(Worker::server as fn(&Worker) -> Pid), Some(Worker::pid)] {
        let mut worker = Setup::bash().env("RLM_LIMIT_CPU", 1000).start();
        let Some(cgroup) = cgroup(&worker) else {
            skipped("no cgroup can be created here");
            return worker.end();
        };
        worker.output("nohup sleep 1000 >/dev/null 2>&1 &");
        let members = fs::read_to_string(cgroup.join("cgroup.procs")).unwrap();
        assert_eq!(members.lines().count(), 2, "the shell and its child, but not the worker: {members}");
        assert!(worker.info().usage.cpu_seconds > Some(0.0));
        match victim {
            None => worker.end(),
            Some(victim) => {
                kill(victim(&worker), Signal::SIGKILL).unwrap();
                assert_eq!(shell_status(worker.wait()), 137);
                assert_all_gone(&worker);
            }
        }
        wait_until("the cgroup is gone", || !cgroup.exists());
    }
}

#[test]
fn limits_that_cannot_be_set_are_named_at_the_start() {
    let said = |variable| Language::Bash.refuses_to_start(&[("RLM_LIMIT_CPU", "100"), variable]);
    let bad = "environment variable RLM_LIMIT_MEMORY is \"1G\", expected a whole number of bytes above 0\n";
    assert!(said(("RLM_LIMIT_MEMORY", "1G")).ends_with(bad));
    let error = said(("RLM_CGROUP", "/does/not/exist"));
    assert!(error.contains("cannot create the cgroup /does/not/exist/rlm-session-"), "{error}");
    assert!(error.ends_with(": No such file or directory (os error 2)\n"), "{error}");
}
