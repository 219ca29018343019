//! The cost of `rlm` as one file: its first start, the later ones beside the program that it unpacked, and a Python session on
//! the Python in it beside the same version that is installed.
//!
//! Runs take turns; the table has medians. Build first: `dist/build`, and `cargo build --release --workspace`.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rlm_tests::{Setup, repository};

const ROUNDS: usize = 21;

const FIRST_LIMIT: Duration = Duration::from_millis(600);
const LATER_LIMIT: Duration = Duration::from_millis(3);
const READY_LIMIT: f64 = 1.2;

/// The installed Python of the version that is in the bundle.
const INSTALLED: &str = "/usr/bin/python3.11";

fn main() {
    if !std::env::args_os().any(|argument| argument == "--bench") {
        // `cargo test --all-targets` gets here too, but would not measure anything.
        return;
    }
    let bundle = repository().join("target/bundle/rlm");
    assert!(bundle.is_file(), "build it first, by dist/build");
    let (mut first, mut later, mut plain) = (Vec::new(), Vec::new(), Vec::new());
    let cache = tempfile::tempdir().unwrap();
    for _ in 0..ROUNDS {
        let fresh = tempfile::tempdir().unwrap();
        first.push(start(&bundle, fresh.path()));
        start(&bundle, cache.path());
        later.push(start(&bundle, cache.path()));
        plain.push(start(&unpacked(cache.path()).join("rlm"), cache.path()));
    }
    let inner = unpacked(cache.path()).join("python/bin/python3");
    let (mut ready, mut memory) = ([Vec::new(), Vec::new()], [0, 0]);
    for _ in 0..ROUNDS {
        for (which, python) in [Path::new(INSTALLED), &inner].into_iter().enumerate() {
            let began = Instant::now();
            let mut worker = Setup::python_at(python).start();
            ready[which].push(began.elapsed());
            worker.value("1 + 1");
            memory[which] = private_kib(worker.interpreter().as_raw());
            worker.end();
        }
    }
    let ms = |time: Duration| format!("{:.1} ms", time.as_secs_f64() * 1e3);
    let (first, later, plain) = (median(first), median(later), median(plain));
    let [installed, inner] = ready.map(median);
    let table = format!(
        "| what | floor | measured | | limit |\n| --- | --- | --- | --- | --- |\n\
         | first start, `rlm --version` | {plain} | {first} | | ≤ {first_limit} |\n\
         | later ones | {plain} | {later} | {over} over it | ≤ {later_limit} |\n\
         | a Python session is ready, beside the installed 3.11 | {installed} | {inner} | {ratio:.2} | ≤ {READY_LIMIT} |\n\
         | private memory of its interpreter | {} KiB | {} KiB | {:.2} | |\n",
        memory[0],
        memory[1],
        memory[1] as f64 / memory[0] as f64,
        over = ms(later.saturating_sub(plain)),
        plain = ms(plain),
        first = ms(first),
        first_limit = ms(FIRST_LIMIT),
        later = ms(later),
        later_limit = ms(LATER_LIMIT),
        ratio = inner.as_secs_f64() / installed.as_secs_f64(),
        installed = ms(installed),
        inner = ms(inner),
    );
    std::io::stdout().lock().write_all(table.as_bytes()).unwrap();
}

fn start(program: &Path, cache: &Path) -> Duration {
    let mut command = Command::new(program);
    command.arg("--version").env("RLM_CACHE_DIR", cache).stdout(Stdio::null());
    let began = Instant::now();
    assert!(command.status().unwrap().success());
    began.elapsed()
}

/// The directory of the programs in a cache.
fn unpacked(cache: &Path) -> PathBuf {
    let entries = fs::read_dir(cache).unwrap().map(|entry| entry.unwrap().path());
    entries.into_iter().find(|path| path.join("rlm").is_file()).unwrap()
}

fn private_kib(pid: i32) -> u64 {
    let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap();
    let private = rollup.lines().filter(|line| line.starts_with("Private_"));
    private.map(|line| line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap()).sum()
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}
