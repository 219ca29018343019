//! The time from the start of a worker until it can take a call.

use std::io::Read;
use std::process::Stdio;
use std::time::{Duration, Instant};

use criterion::Criterion;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rlm_core::control::ControlDir;
use rlm_core::protocol::Context;
use rlm_tests::pythons;

use crate::language::Language;
use crate::subject::{Effort, Subject, measure};
use crate::table::{Limit, Table};

pub(crate) fn bench(criterion: &mut Criterion, table: &mut Table) {
    bench_language(criterion, table, &Language::bash(), ":", 20, Limit::AtMost(4.0));
    for python in pythons() {
        bench_language(criterion, table, &Language::Python(python), "pass", 10, Limit::Aim(1.5, 2.0));
    }
}

fn bench_language(
    criterion: &mut Criterion,
    table: &mut Table,
    language: &Language,
    nothing: &str,
    runs: u64,
    limit: Limit,
) {
    let effort = Effort { criterion: Duration::from_millis(1000), rounds: 10, runs, throughput: None };
    let subjects = [
        Subject::timed("bare interpreter", || start_bare(language, nothing)),
        Subject::repeated("worker until ready", || start_worker(language)),
    ];
    let interpreter = language.interpreter().display();
    let group = format!("start of {interpreter}").replace('/', " ");
    let [floor, ready] = measure(criterion, &group, &effort, subjects);
    let bare = language.bare_command(nothing);
    let options: Vec<_> = bare.get_args().map(|option| option.to_string_lossy()).collect();
    let what = format!("{}: spawn to ready, against `{interpreter} {}`", language.name(), options.join(" "));
    table.times(&what, floor, ready, limit);
}

fn start_bare(language: &Language, nothing: &str) {
    let mut command = language.bare_command(nothing);
    assert!(command.stdin(Stdio::null()).stdout(Stdio::null()).status().unwrap().success());
}

/// The time until the worker was ready, without that of creating its directories and ending it.
fn start_worker(language: &Language) -> Duration {
    let dir = tempfile::tempdir().unwrap();
    let control = ControlDir::new(dir.path());
    let context = Context {
        fs_root: dir.path().to_owned(),
        fs_metadata: serde_json::Value::Null,
        allowed_paths: Vec::new(),
    };
    control.write_context(&context).unwrap();

    let begun = Instant::now();
    let mut command = language.worker_command();
    command.arg("--control-dir").arg(dir.path()).args(["--ready-fd", "1"]);
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
