//! The cost of sessions that come from a fork server.
//!
//! `RLM_BENCH_NUMPY` names a Python with NumPy and pandas, for the rows that need them.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::unistd::Pid;
use rlm_env::ForkServer;
use rlm_tests::{Setup, Worker, children, default_python, program, variable};

use crate::language::ENVIRONMENT;
use crate::table::{Limit, Table};

/// Rounds in which the two kinds of start take turns.
const ROUNDS: usize = 15;

/// Sessions that sit idle.
const IDLE: usize = 100;

pub(crate) fn bench(table: &mut Table) {
    compare(table, &default_python(), &[], None, "a start", 0.35, 2.0);
    if let Some(python) = variable("RLM_BENCH_NUMPY") {
        let preload = ["numpy", "pandas"];
        let what = "a start and the import of NumPy and pandas";
        compare(table, Path::new(&python), &preload, Some("import numpy, pandas"), what, 0.1, 4.0);
    }
}

/// Compares starts, with this first cell, by `ratio`, and measures sessions that sit idle, of at most so many MiB.
fn compare(
    table: &mut Table,
    python: &Path,
    preload: &[&str],
    code: Option<&str>,
    what: &str,
    ratio: f64,
    mib: f64,
) {
    let variables = ENVIRONMENT.iter().map(|(name, value)| (name.into(), value.into()));
    let variables: Vec<_> = variables.chain([("RLM_PYTHON".into(), python.into())]).collect();
    let server = ForkServer::start(&program("rlm-worker-python"), &variables, preload).unwrap();
    let (name, value) = server.variable();
    let forked = || Setup::python_at(python).env(&name.to_string_lossy(), value.to_string_lossy());
    let mut least = [Duration::MAX; 2];
    for _ in 0..ROUNDS {
        for (least, setup) in least.iter_mut().zip([Setup::python_at(python), forked()]) {
            let begun = Instant::now();
            let mut worker = setup.start();
            code.map(|code| worker.value(code));
            *least = begun.elapsed().min(*least);
            worker.end();
        }
    }
    let what = format!("{what} from a fork server, against one without");
    table.times(&what, least[0], least[1], Limit::AtMost(ratio));
    let workers: Vec<Worker> = (0..IDLE).map(|_| forked().start()).collect();
    let guards = workers.iter().map(Worker::pid);
    let below = children(Pid::from_raw(server.pid().cast_signed()));
    let below = below.into_iter().flat_map(|server| [vec![server], children(server)].concat());
    let bytes: u64 = guards.chain(below).map(share_of_memory).sum();
    let each = bytes as f64 / IDLE as f64 / f64::from(1 << 20);
    let what = format!("memory of each of {IDLE} idle sessions from it");
    table.row(&what, "", &format!("{each:.1} MiB"), "", &Limit::AtMost(mib).judge(each, " MiB"));
    for worker in workers {
        worker.end();
    }
}

/// Memory of a process in bytes, of which it has a share of what others have too.
fn share_of_memory(pid: Pid) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    let share = text
        .lines()
        .find_map(|line| line.strip_prefix("Pss:")?.strip_suffix("kB")?.trim().parse::<u64>().ok());
    share.unwrap_or(0) << 10
}
