//! `rlm script` and `rlm replay`: sessions of real workers, as scripts of their own, and once more.

mod intercepted;
mod recorded;
mod replays;
mod scripts;
mod ugly;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use rlm_core::protocol::Response;
use rlm_tests::{Setup, Worker, assert_no_marked_process, default_python, program};
use serde_json::json;
use tempfile::TempDir;

/// A place for commands: a working directory, and a directory for temporary files.
struct Place {
    dir: TempDir,
    mark: String,
}

impl Place {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        for name in ["work", "tmp", "home"] {
            fs::create_dir(dir.path().join(name)).unwrap();
        }
        let mark = format!("replay-{}", dir.path().display());
        Self { dir, mark }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join("work").join(name)
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        fs::write(self.path(name), text).unwrap();
        self.path(name)
    }

    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command
            .current_dir(self.dir.path().join("work"))
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.dir.path().join("home"))
            .env("TMPDIR", self.dir.path().join("tmp"))
            .env("LANG", "C.UTF-8")
            .env("RLM_PYTHON", default_python())
            .env("RLM_TEST_MARK", &self.mark)
            .env("RLM_PASS_ENV", "RLM_TEST_MARK")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    fn rlm(&self, args: &[&str]) -> Output {
        self.command(&program("rlm")).args(args).output().unwrap()
    }

    /// The script of a source, which must be written without a word.
    fn script(&self, source: &Path, more: &[&str]) -> String {
        let output = self.rlm(&[&["script", source.to_str().unwrap()], more].concat());
        assert_eq!((text(&output.stderr), output.status.code()), ("", Some(0)));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Replays a source.
    fn replay(&self, source: &Path, more: &[&str]) -> Output {
        self.rlm(&[&["replay", source.to_str().unwrap()], more].concat())
    }

    /// Runs a script in the working directory.
    fn run(&self, script: &str) -> Output {
        let python = default_python();
        let (interpreter, name) = match script.lines().next() {
            Some("#!/usr/bin/env bash") => (Path::new("bash"), "script.sh"),
            Some("#!/usr/bin/env python3") => (python.as_path(), "script.py"),
            other => panic!("{other:?}"),
        };
        let file = self.dir.path().join(name);
        fs::write(&file, script).unwrap();
        self.command(interpreter).arg(file).output().unwrap()
    }

    /// Checks that no process and no temporary file is left.
    fn assert_nothing_left(&self) {
        assert_no_marked_process(&self.mark);
        let left: Vec<_> = fs::read_dir(self.dir.path().join("tmp")).unwrap().collect();
        assert!(left.is_empty(), "{left:?}");
    }
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

fn shown(output: &Output) -> (&str, &str, Option<i32>) {
    (text(&output.stdout), text(&output.stderr), output.status.code())
}

/// What a person saw of calls and their answer: the same that a script prints.
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

/// A worker that is ended by its owner's death, of either language.
fn worker(language: &str) -> Worker {
    match language {
        "bash" => Worker::bash(),
        _ => Worker::python(),
    }
}

/// The directory that holds a worker's `rlm_fs` and `rlm_control`, as that of a kept rollout does.
fn rollout_dir(worker: &Worker) -> PathBuf {
    worker.control.path().parent().unwrap().to_owned()
}

/// Runs calls in a session whose directory holds these files, and leaves its directory in the place.
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

/// A copy of a session's control directory, as far as it is files.
fn keep(place: &Place, worker: &Worker) -> PathBuf {
    let kept = place.dir.path().join(format!("kept-{}", worker.pid()));
    fs::create_dir(&kept).unwrap();
    for file in [worker.control.history_file(), worker.control.answer_file(), worker.control.context_file()] {
        fs::copy(&file, kept.join(file.file_name().unwrap())).unwrap();
    }
    kept
}

/// A request of the host's beside calls.
fn ask(worker: &Worker, seq: i64, request: serde_json::Value) -> Response {
    let mut request = request;
    request["seq"] = json!(seq);
    worker.send(request.to_string().as_bytes());
    worker.receive()
}
