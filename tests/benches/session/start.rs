//! From the start of a worker until it says that it can take a call.

use std::io::Read;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use criterion::Criterion;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rlm_core::control::ControlDir;
use rlm_core::protocol::Context;
use rlm_tests::program;

use crate::host::ENVIRONMENT;
use crate::subject::{Effort, Subject, measure};
use crate::table::{Limit, Table};

const EFFORT: Effort =
    Effort { criterion: Duration::from_millis(1000), rounds: 10, runs: 20, throughput: None };

pub(crate) fn bench(criterion: &mut Criterion, table: &mut Table) {
    let worker = program("rlm-worker-bash");
    let bash = find_bash();
    let subjects = [
        Subject::timed("bash -c :", || start_bash(&bash)),
        Subject::repeated("worker until ready", || start_worker(&worker)),
    ];
    let [floor, ready] = measure(criterion, "start", &EFFORT, subjects);
    table.times("spawn to ready, against `bash --noprofile --norc -c :`", floor, ready, Limit::AtMost(4.0));
}

fn start_bash(bash: &PathBuf) {
    let mut command = Command::new(bash);
    command.args(["--noprofile", "--norc", "-c", ":"]).env_clear().envs(ENVIRONMENT);
    assert!(command.stdin(Stdio::null()).stdout(Stdio::null()).status().unwrap().success());
}

/// Says how long the worker took to be ready. That it is made and ended properly does not count.
fn start_worker(program: &PathBuf) -> Duration {
    let dir = tempfile::tempdir().unwrap();
    let control = ControlDir::new(dir.path());
    let context = Context {
        fs_root: dir.path().to_owned(),
        fs_metadata: serde_json::Value::Null,
        allowed_paths: Vec::new(),
    };
    control.write_context(&context).unwrap();

    let begun = Instant::now();
    let mut command = Command::new(program);
    command.arg("--control-dir").arg(dir.path()).args(["--ready-fd", "1"]).env_clear().envs(ENVIRONMENT);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    let mut ready = [0; 6];
    let read = child.stdout.take().unwrap().read_exact(&mut ready);
    let took = begun.elapsed();

    kill(Pid::from_raw(i32::try_from(child.id()).unwrap()), Signal::SIGTERM).unwrap();
    child.wait().unwrap();
    read.unwrap();
    assert_eq!(&ready, b"ready\n");
    took
}

/// The bash that the worker finds. A path, since a name on another `PATH` than ours would cost the floor a slower spawn.
fn find_bash() -> PathBuf {
    let found =
        std::env::split_paths(ENVIRONMENT[0].1).map(|dir| dir.join("bash")).find(|bash| bash.is_file());
    found.expect("the workers need a bash as well")
}
