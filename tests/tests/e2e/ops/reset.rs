//! A reset: whatever the old session was, the next call runs in a fresh one.

use std::fs;
use std::os::unix::fs::symlink;
use std::time::Instant;

use nix::sys::signal::{Signal, kill};
use rlm_core::protocol::{Outcome, Response, State};
use rlm_tests::endpoint::ExistingEndpoint;
use rlm_tests::{AT_ONCE, Setup, Worker, default_python, open_descriptors, pythons, wait_until};
use serde_json::json;

use super::{ask, programs, reset};
use crate::endings::start_programs;
use crate::languages::{Language, in_both_languages};

in_both_languages!(programs_of_every_kind_are_ended, pending_output_is_in_the_response);

#[test]
fn nothing_of_a_shell_is_left() {
    let mut worker = Worker::bash();
    let fresh = "echo \"${x-} $# $- $(umask) $(stty size) ${PWD##*/} ${RLM_CONTENT-}${RLM_READY-}\"; \
                 trap -p; alias; declare -F; [[ -e /proc/self/fd/7 ]] || echo $?";
    let expected = worker.output(fresh);
    worker.output(
        "x=1; readonly r=2; f() { :; }; alias a=b; set -u -o pipefail; trap 'echo t' DEBUG EXIT USR1; umask 077; mkdir d; \
         cd d; set -- 1 2; exec 7>file; stty rows 5 columns 10; PS1='$ '; RLM_CONTENT=answer; RLM_READY=1",
    );
    let before = worker.interpreter();
    let response = reset(&worker);
    assert_eq!((response.stdout.as_str(), response.execution_count), ("", 2));
    assert_ne!(worker.interpreter(), before);
    assert_eq!(fs::read_to_string(worker.control.answer_file()).unwrap(), r#"{"ready":false,"content":""}"#);
    let response = worker.call(fresh);
    assert_eq!(
        (response.stdout.as_str(), response.state, response.execution_count),
        (&*expected, State::Kept, 3)
    );
    assert_eq!((response.answer.ready, response.answer.content.as_str()), (false, ""));
}

#[test]
fn nothing_of_a_namespace_is_left() {
    for python in pythons() {
        let mut worker = Setup::python_at(&python).start();
        let fresh = "import os; print(sorted(dir()), os.getcwd() == extra_data, answer, os.environ.get('x'))";
        let expected = worker.output(fresh);
        worker.value(
            "import sys, os; x = 1; os.chdir('/'); os.environ['x'] = '1'; sys.stdout = None; \
             answer['content'] = 'answer'; answer['ready'] = True",
        );
        let response = reset(&worker);
        assert_eq!((response.stdout.as_str(), response.execution_count), ("", 2));
        let response = worker.call(fresh);
        assert_eq!((response.stdout.as_str(), response.execution_count), (&*expected, 3), "{response:?}");
        assert_eq!(response.answer.content, "");
        // Cells are numbered by call, across interpreters.
        let traceback = worker.call("1 / 0").result.unwrap();
        assert!(traceback.contains("File \"<cell 4>\", line 1"), "{traceback}");
    }
}

fn programs_of_every_kind_are_ended(language: Language) {
    let mut worker = language.start();
    start_programs(&mut worker, language);
    reset(&worker);
    assert_eq!(programs(&worker), [""; 0]);
    assert_eq!(worker.output(language.pick("jobs; echo on", "print('on')")), "on\n");
}

/// Resets a session right after code has brought it into a state.
fn reset_from(worker: &mut Worker, state: &str) {
    worker.call(state);
    if state.contains("call_over") {
        fs::write(worker.fs_root().join("call_over"), "").unwrap();
        worker.wait_for_file("busy");
    }
    let begun = Instant::now();
    reset(worker);
    assert!(begun.elapsed() < AT_ONCE, "{state:?} took {:?}", begun.elapsed());
}

#[test]
fn no_state_of_a_shell_keeps_it_from_ending() {
    let states = [
        "trap '' HUP INT TERM QUIT CHLD; trap 'sleep 1000' EXIT",
        "exec <&- >&- 2>&-",
        "set -e; PROMPT_COMMAND='exit 1'; readonly PS1='$ '",
        "sleep 1000 & kill -STOP $!; suspend() { :; }; (kill -STOP $$) &",
        "builtin() { :; }; export -f builtin; exit() { :; }",
        "trap 'while :; do :; done' USR1; (until [[ -e call_over ]]; do sleep 0.01; done; kill -USR1 $$; touch busy) &",
        "ulimit -n 5; ulimit -u 1 2>/dev/null; ulimit -f 0",
        "stty -echo raw; printf '\\033c'; stty -F /dev/tty -onlcr; exec 3<>/dev/tty",
        "rm -rf ~/nothing; (yes & )",
    ];
    let mut worker = Worker::bash();
    for state in states {
        reset_from(&mut worker, state);
        assert_eq!(programs(&worker), [""; 0], "{state:?}");
        assert_eq!(worker.output("echo on; [ -t 0 ] && stty -a | grep -o ' echo '"), "on\n", "{state:?}");
    }
}

#[test]
fn no_state_of_an_interpreter_keeps_it_from_ending() {
    let states = [
        "import signal\nfor s in (1, 2, 15): signal.signal(s, signal.SIG_IGN)\nimport atexit, time; atexit.register(time.sleep, 1000)",
        "import os\nfor fd in (0, 1, 2): os.close(fd)",
        "import threading, time\nthreading.Thread(target=time.sleep, args=(1000,)).start()",
        "import signal\ndef spin(*_):\n    while True: pass\nsignal.signal(signal.SIGUSR1, spin); import os, threading, time\n\
         def disturb():\n    while not os.path.exists('call_over'): time.sleep(0.01)\n    os.kill(os.getpid(), 10); open('busy', 'w')\n\
         threading.Thread(target=disturb).start()",
        "import builtins\nfor name in list(vars(builtins)):\n    if name != 'Exception': delattr(builtins, name)",
        "import os, threading\nthreading.Timer(0, lambda: os.kill(os.getpid(), 19)).start()",
        "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))",
    ];
    let mut worker = Worker::python();
    for state in states {
        reset_from(&mut worker, state);
        assert_eq!(worker.value("1 + 1"), "2", "{state:?}");
    }
}

fn pending_output_is_in_the_response(language: Language) {
    let mut worker = language.start();
    worker.output(language.pick(
        "(until [ -e go ]; do sleep 0.01; done; echo late; touch done) 2>/dev/null & disown",
        "import subprocess
program = subprocess.Popen(['sh', '-c', 'until [ -e go ]; do sleep 0.01; done; echo late >&2; touch done'])",
    ));
    fs::write(worker.fs_root().join("go"), "").unwrap();
    worker.wait_for_file("done");
    let response = reset(&worker);
    let late = language.pick(("late\n", ""), ("", "late\n"));
    assert_eq!((response.stdout.as_str(), response.stderr.as_str()), late);
    assert_eq!(worker.output(language.pick("echo on", "print('on')")), "on\n");
}

#[test]
fn a_dead_interpreter_is_replaced_without_a_hint() {
    for mut worker in [Worker::bash(), Worker::python()] {
        worker.call("x=1");
        let interpreter = worker.interpreter();
        kill(interpreter, Signal::SIGKILL).unwrap();
        reset(&worker);
        let response = worker.call("");
        assert_eq!((response.outcome, response.state, response.hint), (Outcome::Ok, State::Kept, None));
    }
}

#[test]
fn a_reset_after_every_way_a_call_can_end() {
    for (mut worker, slow, end) in [
        (Worker::bash(), "sleep 1000", "exit 3"),
        (Worker::python(), "import time; time.sleep(1000)", "import os; os._exit(3)"),
    ] {
        let response = worker.call_with(slow, json!({"timeout": 0.1}));
        assert_eq!(response.outcome, Outcome::TimedOut);
        reset(&worker);
        assert_eq!(worker.call(end).status, rlm_core::protocol::Status::Error);
        reset(&worker);
        reset(&worker);
        assert_eq!(worker.call("").outcome, Outcome::Ok);
    }
}

#[test]
fn tools_limits_and_the_environment_stay() {
    let endpoint = ExistingEndpoint::start();
    for (setup, code, printed, slow) in [
        (Setup::bash(), "give str", "text\n", "sleep 1000"),
        (Setup::python(), "print(give('str'), fs_metadata)", "text None\n", "import time; time.sleep(1000)"),
    ] {
        let mut worker =
            endpoint.tools_for(setup).env("RLM_EXEC_TIMEOUT", 5).env("RLM_MAX_OUTPUT_BYTES", 300).start();
        for _ in 0..2 {
            assert_eq!(worker.output(code), printed);
            reset(&worker);
        }
        assert_eq!(worker.output(code), printed);
        let response = worker.call_with(slow, json!({"timeout": null}));
        assert_eq!(response.outcome, Outcome::TimedOut);
        assert_eq!(
            response.hint.unwrap(),
            "the call was stopped after its time limit of 5 s; the session's state is kept"
        );
    }
}

#[test]
fn a_session_is_reset_as_often_as_its_host_likes() {
    for worker in [Worker::bash(), Worker::python()] {
        reset(&worker);
        let before = [worker.pid(), worker.server()].map(open_descriptors);
        for _ in 0..20 {
            reset(&worker);
        }
        assert_eq!([worker.pid(), worker.server()].map(open_descriptors), before);
    }
}

/// A worker whose interpreter is a link that can be removed.
fn on_a_link(language: Language, link: &std::path::Path) -> Worker {
    symlink(language.pick("/bin/bash".into(), default_python()), link).unwrap();
    language.pick(Setup::bash().env("RLM_BASH", link.display()), Setup::python_at(link)).start()
}

/// Resets a session whose interpreter is missing.
#[track_caller]
fn reset_fails(worker: &Worker, link: &std::path::Path) -> Response {
    let response = ask(worker, json!({"op": "reset"}));
    assert_eq!((response.outcome, response.state), (Outcome::Error, State::Reset), "{response:?}");
    let hint = response.hint.as_deref().unwrap_or_default();
    assert!(hint.starts_with("the session was ended, and no new "), "{hint}");
    assert!(hint.contains(&format!("could be started: cannot start {}", link.display())), "{hint}");
    assert!(hint.ends_with("(os error 2); the next call tries again"), "{hint}");
    assert_eq!((response.answer.ready, response.answer.content.as_str()), (false, ""));
    response
}

#[test]
fn an_interpreter_that_cannot_be_started_is_an_error_and_the_next_call_tries_again() {
    for language in [Language::Bash, Language::Python] {
        let dir = tempfile::tempdir().unwrap();
        let link = dir.path().join("interpreter");
        let mut worker = on_a_link(language, &link);
        worker.call(language.pick("x=1; RLM_CONTENT=answer", "x=1; answer['content'] = 'answer'"));
        let target = fs::read_link(&link).unwrap();
        fs::remove_file(&link).unwrap();
        reset_fails(&worker, &link);
        reset_fails(&worker, &link);
        assert_eq!(worker.processes().len(), 2, "the worker alone is left");
        let info = ask(&worker, json!({"op": "info"}));
        assert!(info.result.unwrap().contains("\"pid\":null"));
        symlink(target, &link).unwrap();
        let response = worker.call("");
        assert_eq!((response.outcome, response.state), (Outcome::Ok, State::Reset), "{response:?}");
        assert!(response.hint.unwrap().starts_with("the session was reset before"));
        assert_eq!(response.answer.content, "");
    }
}

#[test]
fn a_worker_whose_interpreter_stays_away_ends_with_the_next_call() {
    for language in [Language::Bash, Language::Python] {
        let dir = tempfile::tempdir().unwrap();
        let link = dir.path().join("interpreter");
        let mut worker = on_a_link(language, &link);
        fs::remove_file(&link).unwrap();
        reset_fails(&worker, &link);
        worker.send_call("", json!({}));
        assert_eq!(worker.wait().code(), Some(3));
        let log = fs::read_to_string(worker.control.log_file()).unwrap();
        assert!(log.contains(&format!("cannot continue: cannot start {}", link.display())), "{log}");
        worker.assert_nothing_left();
    }
}

#[test]
fn a_worker_can_be_ended_while_it_resets() {
    // The second start hangs until the worker is told to end.
    let dir = tempfile::tempdir().unwrap();
    let (script, started) = (dir.path().join("bash"), dir.path().join("started"));
    let text = format!(
        "#!/bin/bash\n[ ! -e {0} ] || {{ touch {0}.again; exec sleep 1000; }}\ntouch {0}\nexec -a bash /bin/bash \"$@\"\n",
        started.display()
    );
    rlm_tests::write_program(&script, &text);
    let mut worker = Setup::bash().env("RLM_BASH", script.display()).start();
    worker.send(json!({"op": "reset", "seq": 1}).to_string().as_bytes());
    let again = started.with_extension("again");
    wait_until("the second start", || again.exists());
    let begun = Instant::now();
    // An interrupt only affects calls.
    worker.signal(Signal::SIGINT);
    worker.signal(Signal::SIGTERM);
    assert_eq!(worker.wait().code(), Some(128 + 15));
    assert!(begun.elapsed() < AT_ONCE, "{:?}", begun.elapsed());
    worker.assert_nothing_left();
}
