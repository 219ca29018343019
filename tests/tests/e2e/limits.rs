//! Time limits and interrupts: the call ends, its output so far is returned, and the state is kept.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use rlm_core::protocol::{Outcome, Response, State};
use rlm_tests::{AT_ONCE, Worker};
use serde_json::json;

use crate::languages::{Language, cases, in_both_languages};

in_both_languages!(
    an_interrupt_while_idle_does_nothing,
    interrupts_at_any_moment_never_lose_the_session_or_the_step,
);

/// Runs code that does not end, with a time limit in seconds, and checks that the response comes in time.
#[track_caller]
pub(crate) fn run_out_of_time(worker: &mut Worker, code: &str, limit: f64) -> Response {
    let begun = Instant::now();
    let response = worker.call_with(code, json!({"timeout": limit}));
    let took = begun.elapsed();
    assert!(took < Duration::from_secs_f64(limit) + AT_ONCE, "{code:?} took {took:?}");
    assert_eq!(response.outcome, Outcome::TimedOut, "{code:?}: {response:?}");
    assert!(response.hint.is_some(), "{code:?}: {response:?}");
    response
}

/// Stops a call at its time limit and checks that the session goes on as if nothing had happened.
#[track_caller]
fn is_stopped(code: &str, partial: &str) {
    let mut worker = Worker::bash();
    worker.output("kept=1; stty -a >before");
    let response = run_out_of_time(&mut worker, code, 0.3);
    assert_eq!(response.state, State::Kept, "{code:?}: {response:?}");
    assert!(response.stdout.starts_with(partial), "{code:?}: {response:?}");
    let kept = "echo $kept; stty -a | diff - before && echo sane; jobs -r";
    assert_eq!(worker.output(kept), "1\nsane\n", "after {code:?}");
}

cases! { is_stopped:
    a_loop_of_builtins("echo partial; while :; do :; done", "partial\n")
    a_sleep("echo partial; sleep 1000", "partial\n")
    a_pipeline("echo partial; sleep 1000 | cat | cat", "partial\n")
    a_command_substitution("x=$(sleep 1000)", "")
    a_command_substitution_that_ignores_the_interrupt("x=$(trap '' INT; sleep 1000)", "")
    a_loop_of_programs("while true; do sleep 1000; done", "")
    a_loop_of_programs_in_a_function("h() { while :; do /bin/true; done; }; h", "")
    a_loop_of_programs_that_ignore_the_interrupt("for i in 1 2 3; do sh -c 'trap \"\" INT; sleep 1000'; done", "")
    a_program_that_ignores_the_interrupt(
        "sh -c 'echo partial; trap \"\" INT; while :; do sleep 0.1; done'", "partial\n"
    )
    a_program_that_ignores_termination_too(
        "sh -c 'echo partial; trap \"\" INT TERM; while :; do sleep 0.1; done'", "partial\n"
    )
    a_terminal_in_raw_mode("stty raw -echo; echo partial; sleep 1000", "partial\n")
    a_program_in_raw_mode(
        "python3 -c 'import tty, time; tty.setraw(0); print(\"partial\", flush=True); time.sleep(1000)'", "partial"
    )
}

#[test]
fn a_wait_for_a_background_job() {
    let mut worker = Worker::bash();
    let response = worker.call_with("sleep 1000 & wait", json!({"timeout": 0.2}));
    assert_eq!((response.outcome, response.state), (Outcome::TimedOut, State::Kept));
    assert_eq!(
        worker.output("jobs"),
        "[1]+  Running                 sleep 1000 &\n",
        "the job was not the call's"
    );
}

#[test]
fn full_screen_programs() {
    for program in ["vim", "less /etc/passwd", "top"] {
        let name = program.split(' ').next().unwrap();
        if !std::env::split_paths("/usr/bin:/bin").any(|dir| dir.join(name).exists()) {
            // Some machines do not have these programs; raw mode itself is tested above.
            continue;
        }
        is_stopped(&format!("TERM=xterm {program}"), "");
    }
}

#[test]
fn a_shell_that_ignores_the_interrupt_is_replaced_and_its_state_restored() {
    let mut worker = Worker::bash();
    worker.output("ignore() { trap '' INT TERM; while :; do :; done; }; kept=1");
    let response = worker.call_with("echo partial; ignore", json!({"timeout": 0.2}));
    assert_eq!((response.outcome, response.state), (Outcome::TimedOut, State::Restored), "{response:?}");
    assert!(response.execution_time < 2.2);
    assert_eq!(response.stdout, "partial\n");
    assert_eq!(worker.output("echo $kept"), "1\n");
    let response = worker.call_with("trap '' INT HUP; while :; do :; done", json!({"timeout": 0.2}));
    assert_eq!((response.outcome, response.state), (Outcome::TimedOut, State::Restored), "{response:?}");
    assert!(response.execution_time < 2.2);
    assert_eq!(worker.output("echo on"), "on\n");
}

// Promise: A time-out or an interrupt keeps them all.
#[test]
fn an_interrupt_stops_the_call_and_keeps_the_session() {
    let mut worker = Worker::bash();
    worker.output("x=1");
    for code in [
        "echo partial; : >started; sleep 1000",
        "echo partial; : >started; while :; do :; done",
        "echo partial; : >started; cat <(sleep 1000)",
    ] {
        let started = worker.fs_root().join("started");
        worker.send_call(code, json!({}));
        worker.wait_for_file("started");
        // The program has to be running: one that is just being started loses the signal.
        let runs = |name: &str| worker.processes().iter().any(|(_, process)| process == name);
        rlm_tests::wait_until("the call is at work", || !code.contains("sleep") || runs("sleep"));
        worker.signal(Signal::SIGINT);
        let response = worker.receive();
        assert_eq!(
            (response.outcome, response.state),
            (Outcome::Interrupted, State::Kept),
            "{code}: {response:?}"
        );
        assert_eq!((response.stdout.as_str(), response.exit_code), ("partial\n\n", Some(130)), "{code}");
        assert_eq!(worker.output("echo $? $x"), "130 1\n");
        std::fs::remove_file(started).unwrap();
    }
}

/// The interrupt may come while the shell starts a program, and throw it back twice: once at once, and once when that program
/// ends. It then reads its commands from the terminal, where an end of file for readers may still lie.
#[test]
fn an_interrupt_between_two_programs_keeps_the_session() {
    let mut worker = Worker::bash();
    let begun = worker.fs_root().join("begun");
    for round in 0..40 {
        worker.send_call(&format!("x={round}; touch begun; sleep 1000; x=no"), json!({}));
        while !begun.exists() {
            std::hint::spin_loop();
        }
        worker.signal(Signal::SIGINT);
        let response = worker.receive();
        assert_eq!((response.outcome, response.state), (Outcome::Interrupted, State::Kept), "{response:?}");
        assert_eq!(worker.output("rm begun; echo $x"), format!("{round}\n"));
    }
}

/// A shell that an interrupt throws out of the driver's report would take its next commands from there.
#[test]
fn an_interrupt_runs_nothing_that_the_code_reads() {
    let mut worker = Worker::bash();
    worker.output("echo 'echo ran >ran' >data");
    for input in ["<data", "<&-"] {
        worker.output(&format!("exec {input}"));
        for round in 0..300 {
            worker.send_call("x=1", json!({}));
            let sent = Instant::now();
            while sent.elapsed() < Duration::from_micros(3 * round) {
                std::hint::spin_loop();
            }
            worker.signal(Signal::SIGINT);
            let response = worker.receive();
            assert_eq!(response.state, State::Kept, "{input}, {round}: {response:?}");
        }
    }
    assert_eq!(worker.output("ls ran 2>&1"), "ls: cannot access 'ran': No such file or directory\n");
}

/// The driver types at the terminal where a shell that was thrown back reads its commands, and nowhere else.
#[test]
fn code_that_reads_the_terminal_gets_end_of_file_and_no_line_of_the_driver() {
    let mut worker = Worker::bash();
    for reader in ["read -r line", "mapfile -n 1 line"] {
        let code =
            format!("trap '' INT; for i in 1 2 3; do {reader}; echo \"[${{line[*]}}]\"; done; trap - INT");
        let response = worker.call_with(&code, json!({"timeout": 0.06}));
        assert_eq!((response.outcome, response.state), (Outcome::TimedOut, State::Kept), "{response:?}");
        assert_eq!(response.stdout, "[]\n[]\n[]\n", "{reader}");
    }
}

/// The interrupt may hit the part of the driver that restores the traps. Before code that mentions traps, a part runs that
/// prints the state of the shell; many variables make it long.
#[test]
fn an_interrupt_just_before_the_code_loses_no_trap() {
    let mut worker = Worker::bash();
    worker.output("trap 'echo err' ERR; trap 'echo bye' EXIT; PS1=prompt; enable -n printf");
    let check = |worker: &mut Worker, round| {
        assert_eq!(worker.receive().state, State::Kept);
        let output = worker.output("trap -p ERR EXIT; echo $PS1; enable -n");
        assert_eq!(
            output.replace("\n\n", "\n"),
            "trap -- 'echo err' ERR\ntrap -- 'echo bye' EXIT\nprompt\nenable -n printf\n",
            "{round}"
        );
    };
    for round in 0..rlm_tests::scaled(200, 60) {
        worker.send_call("while :; do :; done", json!({"timeout": round as f64 / 100_000.0}));
        check(&mut worker, round);
    }
    worker.output("for i in {1..5000}; do declare v$i=x; done");
    for round in 0..rlm_tests::scaled(30, 10) {
        worker.send_call("trap : USR1; while :; do :; done", json!({"timeout": 5}));
        // No event tells how far the driver is.
        std::thread::sleep(Duration::from_millis(round as u64));
        worker.signal(Signal::SIGINT);
        check(&mut worker, round);
    }
}

#[test]
fn an_interrupt_trap_of_the_users_runs() {
    let mut worker = Worker::bash();
    worker.output("trap 'echo caught; caught=1' INT");
    worker.send_call("while [[ -z $caught ]]; do : >started; done; echo out", json!({}));
    worker.wait_for_file("started");
    worker.signal(Signal::SIGINT);
    let response = worker.receive();
    assert_eq!((response.stdout.as_str(), response.state), ("caught\nout\n", State::Kept));
}

/// Even right before a call: the interrupt passes through two processes.
fn an_interrupt_while_idle_does_nothing(language: Language) {
    let mut worker = language.start();
    worker.output("x=1");
    for _ in 0..300 {
        worker.signal(Signal::SIGINT);
        assert_eq!(worker.output(language.pick("echo $x", "print(x)")), "1\n");
    }
}

// Promise: A time-out or an interrupt keeps them all.
fn interrupts_at_any_moment_never_lose_the_session_or_the_step(language: Language) {
    let mut worker = language.start();
    worker.output("x=1");
    for round in 0..300 {
        let code = language.pick("y=?; :", "y = ?; sum(range(2000))").replace('?', &round.to_string());
        let seq = worker.send_call(&code, json!({}));
        // Spread over the whole call: opening, code, quieting, report.
        let until = Instant::now() + Duration::from_micros(round * 2);
        while Instant::now() < until {
            std::hint::spin_loop();
        }
        worker.signal(Signal::SIGINT);
        let response = worker.receive();
        assert_eq!((response.seq, response.state), (seq, State::Kept), "round {round}: {response:?}");
        assert!(matches!(response.outcome, Outcome::Ok | Outcome::Interrupted), "{response:?}");
        if language == Language::Python {
            // The interrupt has stopped its own call, or nothing.
            assert_eq!(worker.value("list(map(str, range(3)))"), "['0', '1', '2']", "after round {round}");
        }
    }
    assert!(worker.output(language.pick("y=300; echo $x $y", "y = 300; print(x, y)")).ends_with("1 300\n"));
}

// Promise: A time-out or an interrupt keeps them all.
#[test]
fn limits_that_meet_the_end_of_the_call_never_lose_the_session() {
    let mut worker = Worker::bash();
    worker.output("x=1");
    for _ in 0..60 {
        let response = worker.call_with("sleep 0.02", json!({"timeout": 0.021}));
        assert!(matches!(response.outcome, Outcome::Ok | Outcome::TimedOut), "{response:?}");
        assert_eq!(response.state, State::Kept, "{response:?}");
    }
    assert_eq!(worker.output("echo $x"), "1\n");
}

#[test]
fn interrupts_from_within_the_session_never_wedge_it() {
    let mut worker = Worker::bash();
    worker.call("true");
    let idle = worker.processes().len();
    for round in 0..60 {
        let delay = f64::from(round % 12) * 0.0004;
        let code = format!("(sleep {delay}; kill -INT $$; kill -INT $$; kill -INT $$) & disown");
        worker.call(&code);
        // The interrupts may hit this call anywhere, even in the driver.
        worker.call("true");
    }
    rlm_tests::wait_until("the interrupts are over", || worker.processes().len() <= idle);
    worker.call("true");
    assert_eq!(worker.output("echo on"), "on\n");
}

#[test]
fn a_large_answer_outlives_a_time_limit() {
    let mut worker = Worker::bash();
    worker.output("RLM_CONTENT=$(head -c 30000000 /dev/zero | tr '\\0' x)");
    let response = worker.call_with("sleep 1000", json!({"timeout": 0.2}));
    assert_eq!((response.outcome, response.state), (Outcome::TimedOut, State::Kept));
    assert_eq!(response.answer.content.len(), 30_000_000);
}
