//! The cost of confinement: each thing in a session that is confined, beside one that is not.
//!
//! `cargo bench -p rlm-tests --bench confinement`, after `cargo build --release --workspace`. The levels take turns; the table
//! has minimum and median. A missed limit is marked, but does not fail the bench.

#[path = "../shared/endpoint.rs"]
mod endpoint;

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::unistd::Pid;
use rlm_env::session::Confine;
use rlm_env::{Session, SessionConfig};
use rlm_tests::{Setup, Worker, children, program};

use self::endpoint::serve;

const ROUNDS: usize = 41;
const CALLS: usize = 200;
const TOOL_CALLS: usize = 500;
const AT_ONCE: usize = 50;

const LEVELS: [Confine; 3] = [Confine::Off, Confine::Full, Confine::Landlock];

fn main() {
    if !std::env::args_os().any(|argument| argument == "--bench") {
        // `cargo test --all-targets` gets here too, but would not measure anything.
        return;
    }
    let mut table =
        String::from("| what | off | full | landlock | limit for full |\n| --- | --- | --- | --- | --- |\n");
    let mut add = |what: &str, shown: [String; 3], limit: &str, is_met: bool| {
        let missed = if is_met { "" } else { ", **missed**" };
        table += &format!("| {what} | {} | {limit}{missed} |\n", shown.join(" | "));
    };
    let ms = |figures: [(f64, f64); 3]| figures.map(|(least, median)| format!("{least:.2} / {median:.2} ms"));
    let us = |figures: [(f64, f64); 3]| {
        figures.map(|(least, median)| format!("{:.0} / {:.0} µs", least * 1e3, median * 1e3))
    };

    let starts = in_turns(|level| {
        let began = Instant::now();
        let worker = Setup::bash().env("RLM_CONFINE", level).start();
        let took = began.elapsed();
        worker.end();
        took
    });
    let over = starts[1].0 - starts[0].0;
    add("spawn to ready", ms(starts), &format!("≤ 4 ms more: {over:.2}"), over <= 4.0);

    let mut workers = LEVELS.map(|level| Setup::bash().env("RLM_CONFINE", level).start());
    let calls = in_turns(|level| {
        let worker = &mut workers[at(level)];
        timed(CALLS, || drop(worker.call(":")))
    });
    add("round trip of `:`", us(calls), "unchanged", calls[1].0 <= calls[0].0 * 1.1);
    let memory = [0, 1, 2].map(|at| private_kib(workers[at].pid()));
    let more = memory[1].saturating_sub(memory[0]);
    add(
        "private memory of an idle session",
        memory.map(|kib| format!("{kib} KiB")),
        &format!("≤ 1,536 KiB more: {more}"),
        more <= 1536,
    );
    workers.into_iter().for_each(Worker::end);

    for (what, endpoint, limit) in [
        ("a root tool, over a Unix socket", serve(true), 1.1),
        ("the same, over `127.0.0.1`", serve(false), 2.5),
    ] {
        let mut workers = LEVELS.map(|level| {
            Setup::python()
                .env("RLM_CONFINE", level)
                .env("RLM_ROOT_TOOL_URL", &endpoint.0)
                .env("RLM_ROOT_TOOL_NAMES", r#"["noop"]"#)
                .env("RLM_INTERCEPTION_SECRET", &endpoint.1)
                .start()
        });
        let code = format!("for n in range({TOOL_CALLS}): noop()");
        let times = in_turns(|level| {
            let worker = &mut workers[at(level)];
            timed(1, || drop(worker.output(&code))) / u32::try_from(TOOL_CALLS).unwrap()
        });
        let ratio = times[1].0 / times[0].0;
        add(what, us(times), &format!("≤ {limit}: {ratio:.2}"), ratio <= limit);
        workers.into_iter().for_each(Worker::end);
    }

    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let at_once = in_turns(|level| runtime.block_on(start_at_once(level)));
    let rate = at_once.map(|(least, median)| [least, median].map(|ms| AT_ONCE as f64 / (ms / 1e3)));
    add(
        "50 starts at once",
        rate.map(|[best, median]| format!("{best:.0} / {median:.0} a second")),
        "≥ 300 a second",
        rate[1][0] >= 300.0,
    );
    std::io::stdout().lock().write_all(table.as_bytes()).unwrap();
}

fn at(level: Confine) -> usize {
    LEVELS.iter().position(|one| *one == level).unwrap()
}

/// Minimum and median, in milliseconds, of each level.
fn in_turns(mut measure: impl FnMut(Confine) -> Duration) -> [(f64, f64); 3] {
    let mut times = [const { Vec::new() }; 3];
    // The first round warms up.
    for round in 0..=ROUNDS {
        for level in LEVELS {
            let time = measure(level).as_secs_f64() * 1e3;
            if round > 0 {
                times[at(level)].push(time);
            }
        }
    }
    times.map(|mut times| {
        times.sort_by(f64::total_cmp);
        (times[0], times[times.len() / 2])
    })
}

/// The time of one.
fn timed(times: usize, mut work: impl FnMut()) -> Duration {
    let began = Instant::now();
    for _ in 0..times {
        work();
    }
    began.elapsed() / u32::try_from(times).unwrap()
}

async fn start_at_once(level: Confine) -> Duration {
    let directories: Vec<_> = (0..AT_ONCE).map(|_| tempfile::tempdir().unwrap()).collect();
    let began = Instant::now();
    let starts = directories.iter().map(|directory| {
        let config = SessionConfig::new(program("rlm-worker-bash"), directory.path());
        let config = SessionConfig { confine: Some(level), env: rlm_tests::variables(), ..config };
        tokio::spawn(Session::start(config))
    });
    let mut sessions = Vec::new();
    for start in starts.collect::<Vec<_>>() {
        sessions.push(start.await.unwrap().unwrap());
    }
    let took = began.elapsed();
    for session in sessions {
        session.close().await.unwrap();
    }
    took
}

/// The private memory of a worker's two processes and its interpreter.
fn private_kib(guard: Pid) -> u64 {
    let of_one = |pid: Pid| {
        let rollup =
            fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("smaps_rollup")).unwrap();
        let private = rollup.lines().filter(|line| line.starts_with("Private_"));
        private.map(|line| line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap()).sum::<u64>()
    };
    let below: u64 = children(guard).into_iter().map(private_kib).sum();
    of_one(guard) + below
}
