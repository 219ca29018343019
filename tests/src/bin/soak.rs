//! Runs sessions and rollouts of random code against the built workers, and compares every response with what the
//! documentation promises. Exit status 1 means that a promise was broken.
//!
//! ```sh
//! cargo build --release --workspace
//! cargo run --release -p rlm-tests --bin soak -- --calls 100000 --jobs 2
//! cargo run --release -p rlm-tests --bin soak -- --replay calls.jsonl
//! ```

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use rlm_tests::default_python;
use rlm_tests::soak::{Bounds, Language, Means, Plan, lines, parse};

/// Runs sessions of random code with a model of what the documentation promises beside each.
#[derive(Parser)]
struct Arguments {
    /// Least number of calls.
    #[arg(long, default_value_t = 10_000)]
    calls: usize,
    /// Seed of everything that is random.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Language of the sessions.
    #[arg(long, value_enum, default_value_t = Languages::Both)]
    language: Languages,
    /// Sends no signals at random moments, sets no time limits that code may or may not reach.
    #[arg(long)]
    undisturbed: bool,
    /// Percentage of requests that save or load the session.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(..=90))]
    saves: u32,
    /// Number of sessions at once.
    #[arg(long, default_value_t = 2)]
    jobs: usize,
    /// Number of rollouts, after the sessions.
    #[arg(long, default_value_t = 0)]
    rollouts: usize,
    /// Seconds that a response may take beyond the time limit of its call.
    #[arg(long, default_value_t = 20)]
    patience: u64,
    /// Python of the Python sessions.
    #[arg(long)]
    python: Option<PathBuf>,
    /// Runs the calls in this file instead: a line for the session, and one for each call.
    #[arg(long)]
    replay: Option<PathBuf>,
    /// Directory for a replay file of each defect.
    #[arg(long)]
    save: Option<PathBuf>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Languages {
    Bash,
    Python,
    Both,
}

fn main() -> io::Result<ExitCode> {
    let arguments = Arguments::parse();
    let python = arguments.python.unwrap_or_else(default_python);
    let means = Means { python, patience: Duration::from_secs(arguments.patience) };
    if let Some(file) = arguments.replay {
        return replay(&means, &file);
    }
    let languages = match arguments.language {
        Languages::Bash => vec![Language::Bash],
        Languages::Python => vec![Language::Python],
        Languages::Both => vec![Language::Bash, Language::Python],
    };
    let plan = Plan {
        calls: arguments.calls,
        seed: arguments.seed,
        languages,
        disturbs: !arguments.undisturbed,
        saves: arguments.saves,
        jobs: arguments.jobs,
        rollouts: arguments.rollouts,
        means,
        bounds: Bounds::default(),
    };
    let report = plan.run(|finding| {
        print(&format!("{finding}\n"));
        let (Some(dir), Some((number, frame))) = (&arguments.save, &finding.session) else { return };
        let saved = std::fs::write(dir.join(format!("{number}.jsonl")), lines(frame, &finding.steps));
        if let Err(error) = saved {
            print(&format!("the calls of session {number} cannot be saved: {error}\n"));
        }
    });
    print(&report.to_string());
    Ok(exit_code(report.findings.is_empty()))
}

fn replay(means: &Means, file: &Path) -> io::Result<ExitCode> {
    let (frame, steps) = parse(&std::fs::read_to_string(file)?)?;
    let run = means.replay(&frame, &steps);
    match &run.defect {
        Some(defect) => print(&format!("call {}: {defect}\n", run.steps.len())),
        None => print("no defect\n"),
    }
    Ok(exit_code(run.defect.is_none()))
}

fn exit_code(is_good: bool) -> ExitCode {
    if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn print(text: &str) {
    // Without a reader the exit status still tells.
    let _unread = io::stdout().write_all(text.as_bytes());
}
