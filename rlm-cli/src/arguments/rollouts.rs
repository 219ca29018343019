//! The commands that run rollouts, and show them: `run`, `demo`, `view`.

use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;

use clap::builder::{OsStringValueParser, TypedValueParser as _};
use clap::{Args, ValueEnum};

use super::number::up_to;
use crate::config::{Flags, usd};
use crate::evaluation::ScoreMode;

pub(super) const RUN_HELP: &str = "\
Examples:
  export RLM_BASE_URL=https://host/v1 RLM_MODEL=large-model RLM_API_KEY=…
  rlm run --context logs/ 'Which host failed first, and why?'
  git log | rlm run --context - --python 'Who changed the parser most often?'
  rlm run --questions questions.jsonl --attempts 4 --jobs 8 --results results.jsonl --resume

The answer goes to standard output and nothing else does. Ctrl-C stops after the running call and prints the answer so far;
a second one ends at once. All options: rlm help run

Exit status: 0 answered; 1 no final answer; 2 usage; 3 the session, the context or the model's server fails; 128 + N ended
by signal N. For a batch: 0 all answered; 1 not all answered; 3 every rollout failed in such a way.

This is not a security sandbox: the model's code runs with your rights.";

#[derive(Args, Debug)]
pub(crate) struct RunOptions {
    /// The question; or give --questions.
    #[arg(value_name = "QUESTION")]
    pub(crate) question: Option<String>,
    /// A file or directory to copy into the working directory, or several; `-`: standard input; '': nothing.
    #[arg(long, value_name = "PATH", value_parser = OsStringValueParser::new().map(PathBuf::from))]
    pub(crate) context: Vec<PathBuf>,
    /// An image behind the question, for a root model that takes them: PNG, JPEG, GIF or WebP, at most 3.9 MB. May be given
    /// several times.
    #[arg(hide = true, long, value_name = "FILE")]
    pub(crate) image: Vec<PathBuf>,
    /// Go on after the answer: each line of standard input is a further question.
    #[arg(long, conflicts_with_all = ["json", "events", "questions", "attempts", "results", "dry_run"])]
    pub(crate) chat: bool,
    /// Print the whole result as one line of JSON.
    #[arg(long)]
    pub(crate) json: bool,
    /// Print everything that happens as JSON lines: the entries of the trajectory, and a line for each result.
    #[arg(hide = true, long, conflicts_with = "json")]
    pub(crate) events: bool,
    /// How much to show on standard error [default: full at a terminal, otherwise none].
    #[arg(hide = true, long, value_name = "HOW", value_enum)]
    pub(crate) progress: Option<ProgressLevel>,
    /// Show no progress: `--progress none`.
    #[arg(hide = true, long, short, conflicts_with = "progress")]
    pub(crate) quiet: bool,
    /// The rollout's id, and of what is recorded and kept of it [default: run-TIME-RANDOM].
    #[arg(hide = true, long, value_name = "ID", conflicts_with_all = ["questions", "attempts"])]
    pub(crate) id: Option<String>,
    /// Check everything that can be checked without a request, and print what would run and what it may cost, from recorded runs
    /// of the same model. Nothing is written.
    #[arg(hide = true, long, conflicts_with_all = ["json", "events"])]
    pub(crate) dry_run: bool,
    /// Do not record the run for `rlm runs` and `rlm view`.
    #[arg(hide = true, long)]
    pub(crate) no_record: bool,
    /// Serve a page at a loopback address that shows the run as it goes on: the address is printed. At a terminal, it stays until
    /// Ctrl-C; `rlm view --serve` serves it again.
    #[arg(hide = true, long, value_name = "PORT", num_args = 0..=1, require_equals = true, default_missing_value = "0",
        conflicts_with = "dry_run")]
    pub(crate) serve: Option<u16>,
    #[command(flatten)]
    pub(crate) batch: BatchOptions,
    #[command(flatten)]
    pub(crate) settings: Flags,
}

/// Levels of progress on standard error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ProgressLevel {
    /// Everything as it happens: what the model says, its code, the output, sub-calls; of a batch, its line.
    Full,
    /// A line with counts, and the running code.
    Line,
    /// Nothing.
    None,
}

/// Options of a batch.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Batch")]
pub(crate) struct BatchOptions {
    /// Questions, one JSON object per line: `question`, and optionally `id`, `context`, `expected` and others; `-`: standard
    /// input.
    #[arg(long, value_name = "FILE", conflicts_with = "question")]
    pub(crate) questions: Option<PathBuf>,
    /// Read attempts from standard input while others run, one JSON object per line: a question, and `attempt`, its number [default: 1].
    /// Results are events in the order of their ends. It ends with standard input.
    #[arg(hide = true, long, requires = "events",
          conflicts_with_all = ["question", "questions", "attempts", "results", "max_cost", "dry_run"])]
    pub(crate) feed: bool,
    /// With --feed: the address of the program that keeps the ledger of all rollouts, `http://…` or `http+unix://…`. `RLM_LEDGER_SECRET`
    /// goes with each request.
    #[arg(hide = true, long, value_name = "URL", requires = "feed")]
    pub(crate) ledger: Option<String>,
    /// Attempts at each question [default: 1].
    #[arg(long, alias = "rollouts", value_name = "N", value_parser = up_to::<1_000_000>)]
    pub(crate) attempts: Option<NonZeroUsize>,
    /// Run the first turns once for all attempts at a question, which go on from there.
    #[arg(hide = true, long, value_name = "TURNS", requires = "attempts", conflicts_with = "feed")]
    pub(crate) branch_at: Option<NonZeroU32>,
    /// Rollouts at once [default: 4].
    #[arg(hide = true, long, alias = "parallel", value_name = "N", value_parser = up_to::<10_000>)]
    pub(crate) jobs: Option<NonZeroUsize>,
    /// Append each result to this file as a line of JSON [default: standard output].
    #[arg(long, value_name = "FILE")]
    pub(crate) results: Option<PathBuf>,
    /// Skip rollouts that the file of results has. Results of other settings are refused; --resume=any takes them.
    #[arg(long, value_name = "WHICH", num_args = 0..=1, require_equals = true, default_missing_value = "same",
          hide_possible_values = true, requires = "results")]
    pub(crate) resume: Option<Resume>,
    /// With --resume: also run rollouts again that failed with an error, had too small a budget, or could not be scored.
    #[arg(hide = true, long, requires = "resume")]
    pub(crate) retry_failed: bool,
    /// Most that all rollouts together may spend on models, with those whose results --resume keeps. Rollouts that it has no
    /// room for are not started.
    #[arg(hide = true, long, value_name = "USD", value_parser = usd)]
    pub(crate) max_cost: Option<f64>,
    /// Score each answer by the question's `expected`: exact, contains, number; or by command:PROGRAM, which reads a JSON object
    /// and prints a number from 0 to 1 [default: exact, of questions with `expected`].
    #[arg(hide = true, long, value_name = "HOW")]
    pub(crate) score: Option<ScoreMode>,
}

/// The results that a batch can go on from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Resume {
    /// Results of the same models and settings.
    Same,
    /// All.
    Any,
}

impl BatchOptions {
    /// Reports whether any option of a batch is given.
    pub(crate) fn is_batch(&self) -> bool {
        self.questions.is_some()
            || self.attempts.is_some()
            || self.jobs.is_some()
            || self.results.is_some()
            || self.score.is_some()
    }
}

pub(super) const DEMO_HELP: &str = "\
A script plays the root model and a keyword search plays the sub-LLM. The session, its calls of llm_batch over HTTP, limits
and counts are real. Only the loopback device is used.

Exit status: 0 the answer is right; 1 it is wrong; 2 usage; 3 the session cannot be started; 128 + N ended by
signal N.";

#[derive(Args, Debug)]
pub(crate) struct DemoOptions {
    /// Divide the work: code starts rollouts of its own, by `rlm_query`, two levels deep.
    #[arg(long)]
    pub(crate) recursive: bool,
    /// Use a Python session instead of bash. PATH is the Python to use.
    #[arg(long, value_name = "PATH", num_args = 0..=1, require_equals = true)]
    pub(crate) python: Option<Option<PathBuf>>,
    /// Append the trajectory to this file, as JSON lines.
    #[arg(long, value_name = "FILE")]
    pub(crate) trajectory: Option<PathBuf>,
    /// Make the rollout's directory in this one, and keep it.
    #[arg(long, value_name = "DIR")]
    pub(crate) keep: Option<PathBuf>,
}

pub(super) const VIEW_HELP: &str = "\
Examples:
  rlm view run.jsonl                           every rollout of the file, as a tree
  rlm view run.jsonl --rollout 17 --full       one of them, in full
  rlm view run.jsonl --html run.html           one page, for a browser
  ssh host cat run.jsonl | rlm view -          from standard input
  rlm view rlm_2026-05-01_12-00-00_1a2b.jsonl  a log of rlms (RLMLogger)
  rlm view run.jsonl --to rlms >log.jsonl      one rollout for the visualizer of rlms
  rlm view run.jsonl --check-prefixes          whether each prompt begins with the one before, for a trainer

A file that is still being written can be shown. On a terminal the tree goes through $PAGER, `less -R` by default, and has
colours unless NO_COLOR is set. Exit status: 0 shown; 1 a prompt does not begin with the one before
(--check-prefixes); 2 usage; 3 the file cannot be read or the page not written.";

#[derive(Args, Debug)]
pub(crate) struct ViewOptions {
    /// The trajectory, or a file of RLMLogger, JSON lines; `-` reads standard input; or the id of a run that `rlm runs` lists
    /// [default: the latest run].
    #[arg(value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// Show only this rollout.
    #[arg(long, value_name = "ID")]
    pub(crate) rollout: Option<String>,
    /// Show only rollouts without a final answer.
    #[arg(long, conflicts_with = "to")]
    pub(crate) failed: bool,
    /// Show the rollouts with most of this first.
    #[arg(long, value_name = "KEY", value_enum, conflicts_with = "to")]
    pub(crate) sort: Option<SortKey>,
    /// Show every text in full.
    #[arg(long)]
    pub(crate) full: bool,
    /// Write one self-contained HTML page instead; `-` is standard output.
    #[arg(long, value_name = "OUT")]
    pub(crate) html: Option<PathBuf>,
    /// Serve the page at a loopback address instead, and show the rollouts as they go on: the address is printed. Until Ctrl-C.
    #[arg(long, value_name = "PORT", num_args = 0..=1, require_equals = true, default_missing_value = "0",
        conflicts_with_all = ["html", "to", "rollout", "failed", "sort", "follow"])]
    pub(crate) serve: Option<u16>,
    /// Print the turns as they are done, until a recorded run has ended; of any other file, until Ctrl-C.
    #[arg(long, conflicts_with_all = ["html", "to", "failed", "sort"])]
    pub(crate) follow: bool,
    /// Print one rollout in another form instead: rlms is that of RLMLogger, for its visualizer.
    #[arg(long, value_name = "FORMAT", value_enum, conflicts_with_all = ["html", "full"])]
    pub(crate) to: Option<Format>,
    /// Check instead that each prompt of a rollout begins with the one before and its reply, by tokens if the server gave their ids,
    /// or else by messages. With --full, print each turn, not only those whose prompts do not.
    #[arg(long, conflicts_with_all = ["html", "serve", "follow", "to", "failed", "sort"])]
    pub(crate) check_prefixes: bool,
    /// Do not start a pager.
    #[arg(long)]
    pub(crate) no_pager: bool,
}

/// The value that orders rollouts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SortKey {
    Cost,
    Time,
    Tokens,
    Turns,
}

/// The form of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    Rlms,
}
