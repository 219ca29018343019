//! The cost of checkpoints and of branches.

use std::time::{Duration, Instant};

use nix::sys::resource::{UsageWho, getrusage};
use rlm_core::protocol::State;
use rlm_env::Session;
use rlm_env::session::BranchDirectory;
use rlm_tests::Setup;
use tokio::runtime::Runtime;

use crate::language::Language;
use crate::table::{Limit, Table, time};

/// Cells whose mean counts.
const CELLS: u32 = 300;

/// Names of a session, its code, and the most CPU time that a checkpoint of it may take, in milliseconds.
const SIZES: [(&str, &str, f64); 3] = [
    ("a small session", "x = 1", 1.5),
    ("100 MB in one array", "x = bytearray(100 << 20)", 4.0),
    ("100 MB of texts", "x = [str(number) for number in range(1_300_000)]", 4.0),
];

/// Rounds of a branch, of which the quickest counts.
const ROUNDS: usize = 9;

pub(crate) fn bench(table: &mut Table) {
    for (name, code, limit) in SIZES {
        let [without, with] = ["0", "1G"].map(|setting| processor_time(setting, code) / CELLS);
        let more = with.saturating_sub(without);
        let judged = Limit::AtMost(limit).judge(more.as_secs_f64() * 1000.0, " ms");
        table.row(
            &format!("a cell with a checkpoint of {name}, CPU"),
            &format!("without {}", time(without)),
            &format!("{} more", time(more)),
            "",
            &judged,
        );
    }
    let mut worker = Setup::python().env("RLM_CHECKPOINT", 1).start();
    let took = (0..ROUNDS).map(|_| {
        worker.call("x = 1");
        let begun = Instant::now();
        let response = worker.call("import os; os._exit(1)");
        assert_eq!(response.state, State::Restored);
        begun.elapsed()
    });
    let took = took.min().unwrap_or_default();
    let judged = Limit::AtMost(50.0).judge(took.as_secs_f64() * 1000.0, " ms");
    table.row("a cell that ends its interpreter, until the session goes on", "", &time(took), "", &judged);
    let texts = "x = [str(number) for number in range(150_000)]";
    let large = "x=$(head -c 10000000 /dev/zero | tr '\\0' a)";
    for (language, state, code, limit) in [
        (Language::bash(), "a small state", "x=1", 15.0),
        (Language::bash(), "10 MB in one variable", large, 15.0),
        (Language::python(), "a small state", "x = 1", 12.0),
        (Language::python(), "10 MB of texts", texts, 12.0),
    ] {
        let took = branch(&language, code);
        let judged = Limit::AtMost(limit).judge(took.as_secs_f64() * 1000.0, " ms");
        let what = format!("a branch in {} with {state}, to its first answer", language.name());
        table.row(&what, "", &time(took), "", &judged);
    }
}

/// Processor time of a session's processes, from their start to their end, without that of a session that only starts.
fn processor_time(checkpoint: &str, code: &str) -> Duration {
    let run = |cells: u32| {
        let before = children();
        let mut worker = Setup::python().env("RLM_CHECKPOINT", checkpoint).start();
        worker.call(code);
        for _ in 0..cells {
            worker.call("1");
        }
        worker.end();
        children() - before
    };
    run(CELLS).saturating_sub(run(0))
}

/// Processor time of processes that have ended.
fn children() -> Duration {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).unwrap();
    let [user, system] = [usage.user_time(), usage.system_time()]
        .map(|time| Duration::new(time.tv_sec() as u64, time.tv_usec() as u32 * 1000));
    user + system
}

fn branch(language: &Language, code: &str) -> Duration {
    let dir = tempfile::tempdir().unwrap();
    Runtime::new().unwrap().block_on(async {
        let mut session = Session::start(language.session_config(&dir)).await.unwrap();
        session.execute(code).await.unwrap();
        let mut least = Duration::MAX;
        for _ in 0..ROUNDS {
            let begun = Instant::now();
            let mut branch = session.branch(&BranchDirectory::Shared).await.unwrap().session;
            branch.execute("x=2").await.unwrap();
            least = least.min(begun.elapsed());
            branch.close().await.unwrap();
        }
        session.close().await.unwrap();
        least
    })
}
