//! When a worker ends, so does all that its session started.

use std::io::Read as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rlm_core::protocol::Outcome;
use rlm_tests::{AT_ONCE, Setup, Worker, children, shell_status, wait_until};
use serde_json::json;

/// Starts a child of every kind and leaves a call running in the foreground.
fn start_children(worker: &mut Worker) {
    worker.call("sleep 1001 &\nnohup sleep 1002 >/dev/null 2>&1 &\nsetsid sleep 1003 &\n(setsid sh -c 'sleep 1004 & sleep 1005' &)");
    worker.call("trap '' HUP TERM; (trap '' HUP TERM INT; sleep 1006) & disown; trap - HUP TERM");
    worker.call("(sleep 1007 & kill -STOP $BASHPID) &");
    worker.send_call(": >started; sleep 1008", json!({}));
    worker.wait_for_file("started");
    let sleeps = |worker: &Worker| worker.processes().iter().filter(|(_, name)| name == "sleep").count();
    wait_until("every child runs", || sleeps(worker) == 8);
}

/// Waits until every process of the worker is gone, which happens at once.
pub(crate) fn assert_all_gone(worker: &Worker) {
    let begun = Instant::now();
    wait_until("every process is gone", || worker.processes().is_empty() || begun.elapsed() > AT_ONCE);
    worker.assert_nothing_left();
}

/// Interrupts the call of a worker, and shuts the worker down.
pub(crate) fn shut_down(mut worker: Worker) {
    worker.signal(Signal::SIGINT);
    assert_eq!(worker.receive().outcome, Outcome::Interrupted);
    let begun = Instant::now();
    worker.send(br#"{"shutdown": true}"#);
    assert_eq!(shell_status(worker.wait()), 0);
    assert!(begun.elapsed() < AT_ONCE, "{:?}", begun.elapsed());
    worker.assert_nothing_left();
    assert!(!worker.control.ready_flag().exists());
}

/// Lets the host of a worker die, whose session has been made to do something.
pub(crate) fn outlive_the_host(setup: Setup, do_something: impl FnOnce(&mut Worker)) {
    let mut host = Command::new("sleep").arg("1000").stdin(Stdio::null()).spawn().unwrap();
    let mut worker = setup.env("RLM_HOST_PID", host.id()).start();
    do_something(&mut worker);
    host.kill().unwrap();
    let begun = Instant::now();
    assert_eq!(shell_status(worker.wait()), 0);
    assert!(begun.elapsed() < AT_ONCE, "{:?}", begun.elapsed());
    host.wait().unwrap();
    worker.assert_nothing_left();
}

/// Checks that no process of a worker wakes while nothing is asked of it.
pub(crate) fn sleep_when_idle(worker: &Worker) {
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
fn shutdown_ends_every_child() {
    let mut worker = Worker::bash();
    start_children(&mut worker);
    shut_down(worker);
}

#[test]
fn sigterm_ends_every_child() {
    let mut worker = Worker::bash();
    start_children(&mut worker);
    worker.end();
}

#[test]
fn sigkill_ends_every_child() {
    let mut worker = Worker::bash();
    start_children(&mut worker);
    worker.signal(Signal::SIGKILL);
    assert_eq!(shell_status(worker.wait()), 137);
    assert_all_gone(&worker);
    assert!(!worker.control.ready_flag().exists());
}

#[test]
fn sigkill_of_the_serving_process_ends_every_child() {
    let mut worker = Worker::bash();
    start_children(&mut worker);
    kill(worker.server(), Signal::SIGKILL).unwrap();
    assert_eq!(shell_status(worker.wait()), 137);
    worker.assert_nothing_left();
    assert!(!worker.control.ready_flag().exists());
}

#[test]
fn a_session_that_kills_its_parent_leaves_nothing() {
    let mut worker = Worker::bash();
    worker.call("nohup sleep 1000 >/dev/null 2>&1 &");
    worker.send_call("kill -9 $PPID", json!({}));
    assert_eq!(shell_status(worker.wait()), 137);
    worker.assert_nothing_left();
}

#[test]
fn the_death_of_the_host_ends_every_child() {
    outlive_the_host(Setup::bash(), start_children);
}

#[test]
fn a_response_that_nobody_reads_does_not_keep_the_worker() {
    let mut worker = Worker::bash();
    worker.send_call(": >ran; echo unread", json!({}));
    worker.wait_for_file("ran");
    worker.end();
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
    worker.end();
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
    worker.end();
}

#[test]
fn signals_during_start_leave_nothing() {
    // The test does not wait for ready: the signal meets any stage of the start.
    for delay in [0, 300, 600, 1000, 1500, 2500] {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("rlm_context.json"), json!({"fs_root": dir.path()}).to_string())
            .unwrap();
        let mut child = Command::new(rlm_tests::program("rlm-worker-bash"))
            .arg("--control-dir")
            .arg(dir.path())
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let pid = Pid::from_raw(i32::try_from(child.id()).unwrap());
        // The time of the signal is under test.
        std::thread::sleep(Duration::from_micros(delay));
        let below = children(pid);
        kill(pid, Signal::SIGTERM).unwrap();
        let status = child.wait().unwrap();
        assert_eq!(shell_status(status), 143, "after {delay} µs");
        for pid in below {
            assert!(kill(pid, None).is_err(), "{pid} is left after {delay} µs");
        }
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
fn a_response_fifo_that_is_taken_away_ends_the_worker_with_the_path_in_its_log() {
    let mut worker = Worker::bash();
    std::fs::remove_file(worker.control.response_fifo()).unwrap();
    assert_eq!(shell_status(worker.wait()), 3);
    let log = std::fs::read_to_string(worker.control.log_file()).unwrap();
    let path = worker.control.response_fifo();
    assert!(log.contains(&format!("cannot serve {}", path.display())), "{log}");
    worker.assert_nothing_left();
}

#[test]
fn an_idle_worker_sleeps() {
    let mut worker = Worker::bash();
    worker.output(":");
    sleep_when_idle(&worker);
    worker.end();
}

#[test]
fn what_is_wrong_at_the_start_is_said_in_a_sentence() {
    let run = |args: &[&str], env: &[(&str, &str)]| {
        let output = Command::new(rlm_tests::program("rlm-worker-bash"))
            .args(args)
            .envs(env.iter().copied())
            .stdin(Stdio::null())
            .output()
            .unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_str().unwrap();
    let usage = "rlm-worker-bash: missing option '--control-dir DIR'\nTry `rlm-worker-bash --help`.\n";
    assert_eq!(run(&[], &[]), (Some(2), usage.to_owned()));
    let (code, message) = run(&["--control-dir", "/does/not/exist"], &[]);
    assert_eq!(code, Some(3));
    assert!(
        message.contains("cannot read the context file /does/not/exist/rlm_context.json: No such file"),
        "{message}"
    );
    let (code, message) = run(&["--control-dir", path], &[]);
    assert_eq!(code, Some(3));
    assert!(
        message.contains(&format!("cannot read the context file {path}/rlm_context.json: No such file")),
        "{message}"
    );
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "it is not the directory of a session");
    std::fs::write(dir.path().join("rlm_context.json"), "{}").unwrap();
    let (code, message) = run(&["--control-dir", path], &[]);
    assert_eq!(code, Some(3));
    assert!(message.contains("`fs_root` is missing, expected the path"), "{message}");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "a file is added");
    std::fs::write(dir.path().join("rlm_context.json"), r#"{"fs_root": "/does/not/exist"}"#).unwrap();
    let (code, message) = run(&["--control-dir", path], &[]);
    assert_eq!(code, Some(3));
    assert!(message.contains("in /does/not/exist: No such file"), "{message}");
    std::fs::write(dir.path().join("rlm_context.json"), json!({"fs_root": path}).to_string()).unwrap();
    let (code, message) = run(&["--control-dir", path], &[("RLM_BASH", "/bin/false")]);
    assert_eq!(code, Some(3));
    assert!(message.contains("/bin/false ended with status 1 before it was ready"), "{message}");
    let (code, message) = run(&["--control-dir", path], &[("RLM_EXEC_TIMEOUT", "soon")]);
    assert_eq!(code, Some(3));
    assert!(
        message.contains("RLM_EXEC_TIMEOUT is \"soon\", expected a number of seconds above 0"),
        "{message}"
    );
}
