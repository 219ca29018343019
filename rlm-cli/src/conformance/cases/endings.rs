//! Signals, and the ends of workers.

use std::fs;
use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::json;

use super::super::check::{Check, fields, that};
use super::super::host::{Stand, Worker, or_fault, spawn};
use super::{Case, case, case_on_stand, plain, plain_on_stand};

pub(super) const SECTION: &str = "Signals and ends";

const SIGNALS: &str =
    "ends the worker and everything it started within 2 s, whatever it is doing; exit status 128 + N";

pub(super) const CASES: &[Case] = &[
    case(
        "signals/sigint-interrupts-the-call",
        "interrupts the running call (outcome `interrupted`)",
        sigint_interrupts,
    ),
    case("signals/sigint-while-idle", "while idle, nothing", sigint_while_idle),
    plain("endings/sigterm", SIGNALS, |worker| idle_end(worker, Signal::SIGTERM)),
    plain("endings/sighup", SIGNALS, |worker| idle_end(worker, Signal::SIGHUP)),
    plain("endings/sigquit", SIGNALS, |worker| idle_end(worker, Signal::SIGQUIT)),
    case("endings/sigterm-while-busy", SIGNALS, |worker| busy_end(worker, Signal::SIGTERM)),
    case("endings/sighup-while-busy", SIGNALS, |worker| busy_end(worker, Signal::SIGHUP)),
    case("endings/sigquit-while-busy", SIGNALS, |worker| busy_end(worker, Signal::SIGQUIT)),
    case("endings/sigterm-with-an-unread-response", SIGNALS, end_with_unread_response),
    plain("endings/shutdown", "the same; exit status 0", shutdown),
    case("endings/shutdown-leaves-nothing", "the same; exit status 0", shutdown_leaves_nothing),
    case_on_stand("endings/the-host-ends", "the end of the process `RLM_HOST_PID`", host_ends),
    plain_on_stand("endings/removed-fifo", "a FIFO or the directory is removed or replaced", removed_fifo),
    plain("endings/removed-directory", "a FIFO or the directory is removed or replaced", removed_directory),
    case(
        "endings/sigkill",
        "the second process of the worker ends everything it started, and removes the ready flag",
        sigkill,
    ),
];

/// Leaves a process in the background, and a call running.
fn keep_busy(worker: &mut Worker<'_>) -> Check<i64> {
    worker.call(worker.code.leaves_a_process)?;
    let seq = worker.send_call(worker.code.sleeps, json!({}))?;
    worker.wait_for_file("started")?;
    Ok(seq)
}

fn sigint_interrupts(worker: &mut Worker<'_>) -> Check {
    worker.call(worker.code.keeps)?;
    let seq = keep_busy(worker)?;
    let begun = Instant::now();
    worker.signal(Signal::SIGINT)?;
    let response = worker.response_to(seq)?;
    let took = begun.elapsed();
    fields(&json!({"status": "error", "outcome": "interrupted", "state": "kept"}), &response)?;
    that(
        took < Duration::from_secs(5),
        "a response soon after the interrupt",
        format_args!("it took {took:?}"),
    )?;
    fields(&json!({"stdout": "[value]"}), &worker.call(worker.code.shows_kept)?)
}

fn sigint_while_idle(worker: &mut Worker<'_>) -> Check {
    for _ in 0..10 {
        worker.signal(Signal::SIGINT)?;
        worker.request(json!({"op": "info"}))?;
    }
    worker.still_works()
}

fn idle_end(worker: &mut Worker<'_>, signal: Signal) -> Check {
    worker.signal(signal)?;
    worker.must_end(128 + signal as i32)
}

fn busy_end(worker: &mut Worker<'_>, signal: Signal) -> Check {
    keep_busy(worker)?;
    worker.signal(signal)?;
    worker.must_end(128 + signal as i32)
}

fn end_with_unread_response(worker: &mut Worker<'_>) -> Check {
    worker.send_call(&worker.code.print_and_mark("called"), json!({}))?;
    worker.wait_for_file("called")?;
    worker.signal(Signal::SIGTERM)?;
    worker.must_end(128 + Signal::SIGTERM as i32)
}

fn shutdown(worker: &mut Worker<'_>) -> Check {
    let fifo = worker.responses()?;
    worker.send(br#"{"shutdown": true}"#)?;
    worker.must_end(0)?;
    let mut bytes = Vec::new();
    // The FIFO is opened without waiting, and nobody writes any more.
    let read = std::io::Read::read_to_end(&mut &fifo, &mut bytes);
    that(
        bytes.is_empty(),
        "no response to `shutdown`",
        format_args!("{read:?}: {}", String::from_utf8_lossy(&bytes)),
    )
}

fn shutdown_leaves_nothing(worker: &mut Worker<'_>) -> Check {
    worker.call(worker.code.leaves_a_process)?;
    worker.send(br#"{"shutdown": true}"#)?;
    worker.must_end(0)
}

fn host_ends(stand: &Stand<'_>) -> Check {
    let spawned = spawn(Command::new("sleep").arg("1000").stdin(Stdio::null()));
    let mut host = or_fault("a process that plays the host", spawned)?;
    let checked = stand.start_with(&[("RLM_HOST_PID", &host.id().to_string())]).and_then(|mut worker| {
        keep_busy(&mut worker)?;
        or_fault("the end of the host", host.kill())?;
        worker.must_end(0)
    });
    // The case may have failed before the host was ended.
    let (_ended, _reaped) = (host.kill(), host.wait());
    checked
}

fn removed_fifo(stand: &Stand<'_>) -> Check {
    for name in ["rlm_cmd", "rlm_res"] {
        let mut worker = stand.start()?;
        let commands = worker.commands()?;
        or_fault(name, fs::remove_file(stand.control(name)))?;
        // A worker may notice the removal by itself, or only when it has to do with the FIFO.
        let _gone = (&commands).write(br#"{"op": "info", "seq": 1}"#);
        worker.must_end(3)?;
        let log = or_fault("rlm_worker.log", fs::read_to_string(stand.control("rlm_worker.log")))?;
        that(log.contains(name), format_args!("a line in the log with the path of {name}"), log)?;
    }
    Ok(())
}

fn removed_directory(worker: &mut Worker<'_>) -> Check {
    let commands = worker.commands()?;
    or_fault("the directory", fs::remove_dir_all(worker.stand.control("")))?;
    // A worker may notice the removal by itself, or by a request.
    let _gone = (&commands).write(br#"{"op": "info", "seq": 1}"#);
    worker.must_end(3)
}

fn sigkill(worker: &mut Worker<'_>) -> Check {
    keep_busy(worker)?;
    worker.signal(Signal::SIGKILL)?;
    worker.must_leave_nothing()
}
