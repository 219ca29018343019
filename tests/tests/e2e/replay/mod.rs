//! `rlm script` and `rlm replay`: sessions of real workers, as scripts and repeated.

mod intercepted;
mod recorded;
mod replays;
mod scripts;
mod ugly;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use rlm_core::protocol::Response;
use rlm_tests::{Place, Setup, Worker, default_python, program};
use serde_json::json;

/// A program in the place's working directory, in UTF-8.
fn command(place: &Place, program: &Path) -> Command {
    let mut command = place.at_work(program);
    command.env("LANG", "C.UTF-8");
    command
}

fn rlm(place: &Place, args: &[&str]) -> Output {
    command(place, &program("rlm")).args(args).output().unwrap()
}

/// The script of a source, which must be written without a warning.
fn script_of(place: &Place, source: &Path, more: &[&str]) -> String {
    let output = rlm(place, &[&["script", source.to_str().unwrap()], more].concat());
    assert_eq!((text(&output.stderr), output.status.code()), ("", Some(0)));
    String::from_utf8(output.stdout).unwrap()
}

/// Replays a source.
fn replay(place: &Place, source: &Path, more: &[&str]) -> Output {
    rlm(place, &[&["replay", source.to_str().unwrap()], more].concat())
}

/// Replays a source, all of whose calls must end as they did.
#[track_caller]
fn replays_alike(place: &Place, source: &Path, more: &[&str], calls: usize) {
    let noun = if calls == 1 { "call" } else { "calls" };
    let output = replay(place, source, more);
    assert_eq!(shown(&output), (&*format!("equal: {calls} {noun}\n"), "", Some(0)), "{}", source.display());
}

/// Runs a script in the working directory.
fn run(place: &Place, script: &str) -> Output {
    let python = default_python();
    let (interpreter, name) = match script.lines().next() {
        Some("#!/usr/bin/env bash") => (Path::new("bash"), "script.sh"),
        Some("#!/usr/bin/env python3") => (python.as_path(), "script.py"),
        other => panic!("{other:?}"),
    };
    let file = place.path(name);
    fs::write(&file, script).unwrap();
    command(place, interpreter).arg(file).output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

fn shown(output: &Output) -> (&str, &str, Option<i32>) {
    (text(&output.stdout), text(&output.stderr), output.status.code())
}

/// The output of the calls and their answer, which is also the output of a script.
fn seen(responses: &[Response]) -> String {
    let mut seen = String::new();
    for response in responses.iter().filter(|response| response.exception.is_none()) {
        seen.push_str(&response.stdout);
        if let Some(value) = &response.result {
            seen.push_str(&format!("{value}\n"));
        }
    }
    let answer = responses.last().map(|response| response.answer.content.clone()).unwrap_or_default();
    if !answer.is_empty() {
        seen.push_str(&format!("{}\n", answer.strip_suffix('\n').unwrap_or(&answer)));
    }
    seen
}

/// A worker of either language, which ends when its owner dies.
fn worker(language: &str) -> Worker {
    match language {
        "bash" => Worker::bash(),
        _ => Worker::python(),
    }
}

/// The directory with a worker's `rlm_fs` and `rlm_control`, like that of a kept rollout.
fn rollout_dir(worker: &Worker) -> PathBuf {
    worker.control.path().parent().unwrap().to_owned()
}

/// Runs calls in a session whose directory has these files, and keeps its directory in the place.
fn session(place: &Place, setup: Setup, files: &[(&str, &str)], codes: &[&str]) -> (PathBuf, Vec<Response>) {
    let mut worker = setup.start();
    for (name, content) in files {
        fs::write(worker.fs_root().join(name), content).unwrap();
    }
    let responses = codes.iter().map(|code| worker.call(code)).collect();
    let kept = keep(place, &worker);
    worker.end();
    (kept, responses)
}

/// Copies the files of a session's control directory.
fn keep(place: &Place, worker: &Worker) -> PathBuf {
    let kept = place.path(&format!("kept-{}", worker.pid()));
    fs::create_dir(&kept).unwrap();
    for file in [worker.control.history_file(), worker.control.answer_file(), worker.control.context_file()] {
        fs::copy(&file, kept.join(file.file_name().unwrap())).unwrap();
    }
    kept
}

/// A request of the host other than a call.
fn ask(worker: &Worker, seq: i64, request: serde_json::Value) -> Response {
    let mut request = request;
    request["seq"] = json!(seq);
    worker.send(request.to_string().as_bytes());
    worker.receive()
}
