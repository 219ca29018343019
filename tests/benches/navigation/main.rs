//! The time of `nav_search`, compared with `grep -rn` over the same tree.
//!
//! `cargo bench -p rlm-tests --bench navigation`. The tree has 10,000 generated files; floor and measurement take
//! turns, so that both find it in the cache. `grep` writes to a pipe that is read, as in a session. The table has the
//! median of each and their ratio. A missed limit is marked, but does not fail the bench.

use std::ffi::OsStr;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rlm_core::pickle::{Dict, Value};
use rlm_core::root_tool::{Call, Reply};
use rlm_rootd::Tool;
use rlm_rootd::nav::{NAV_SEARCH, Navigation};
use rlm_tests::tree;
use tokio::runtime::Runtime;

const FILES: usize = 10_000;
const ROUNDS: usize = 15;
const MAX_RESULTS: i64 = 1000;

fn main() {
    if !std::env::args_os().any(|argument| argument == OsStr::new("--bench")) {
        // `cargo test --all-targets` gets here too, but would not measure anything.
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let made = tree::make(directory.path(), FILES);
    let tools = Navigation::new(directory.path()).unwrap().tools();
    let search = tools.iter().find(|tool| tool.name() == NAV_SEARCH).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let mut rows = format!("{FILES} files, {} lines, {} KiB\n\n", made.lines, made.bytes >> 10);
    rows += "| what | floor | measured | ratio | limit |\n| --- | --- | --- | --- | --- |\n";
    for (what, pattern) in [
        ("a pattern of few matches", "needle_[0-9]+"),
        ("one without any", "no_such_text"),
        ("one without any, and without a literal", "[0-9]{9}[a-z]{3}"),
        ("one that matches everywhere", "total"),
    ] {
        rows += &line(what, compare(&runtime, directory.path(), search, pattern));
    }
    std::io::stdout().lock().write_all(rows.as_bytes()).unwrap();
}

/// Medians in seconds: the floor, and the tool.
fn compare(runtime: &Runtime, root: &Path, search: &Tool, pattern: &str) -> (f64, f64) {
    let (mut floors, mut times) = (Vec::new(), Vec::new());
    // The first round warms up.
    for round in 0..=ROUNDS {
        let started = Instant::now();
        let output = Command::new("grep")
            .args(["-rnE", "-e", pattern, "."])
            .current_dir(root)
            .stderr(Stdio::inherit())
            .output()
            .unwrap();
        let floor = started.elapsed();
        let lines = output.stdout.iter().filter(|byte| **byte == b'\n').count();
        let started = Instant::now();
        let found = runtime.block_on(call(search, pattern));
        let time = started.elapsed();
        // A further entry says that there are more.
        assert_eq!(found, lines.min(1001), "{pattern}");
        if round > 0 {
            floors.push(floor.as_secs_f64());
            times.push(time.as_secs_f64());
        }
    }
    (median(floors), median(times))
}

/// Number of entries that the tool returns.
async fn call(search: &Tool, pattern: &str) -> usize {
    let args = vec![Value::from(pattern), Value::from(MAX_RESULTS)];
    let call = Call { tool: search.name().to_owned(), args, kwargs: Dict::default() };
    let Reply { result, .. } = search.run(call, Instant::now() + Duration::from_secs(60)).await.unwrap();
    match result {
        rlm_core::root_tool::ToolResult::Value(Value::List(found)) => found.len(),
        other => panic!("{other:?}"),
    }
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn line(what: &str, (floor, time): (f64, f64)) -> String {
    let ratio = time / floor;
    let missed = if ratio > 1.5 { ", **missed**" } else { "" };
    format!(
        "| `nav_search`, {what} | `grep -rn` {:.1} ms | {:.1} ms | {ratio:.2} | ≤ 1.5{missed} |\n",
        floor * 1e3,
        time * 1e3
    )
}
