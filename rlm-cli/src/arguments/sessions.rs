//! The commands that run code in a session: `exec`, `repl`, `script`, `replay`, `worker`, `conformance`.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use rlm_env::ReplLanguage;
use rlm_env::rollout::Callbacks;

use super::number::up_to;
use crate::config::{ToolFlags, seconds};

/// Options of `rlm exec` and `rlm repl`.
#[derive(Args, Clone, Debug)]
pub(crate) struct SessionOptions {
    /// The session's working directory, used in place.
    #[arg(long, alias = "context", value_name = "DIR", default_value = ".")]
    pub(crate) workdir: PathBuf,
    /// Language of the session: bash or python.
    #[arg(long, hide = true, alias = "repl-language", value_name = "LANGUAGE", default_value = "bash")]
    language: ReplLanguage,
    /// A Python session, of this program or virtual environment, or `builtin`; RLM_PYTHON, VIRTUAL_ENV, python3 on PATH, or the
    /// built-in one by default.
    #[arg(long, value_name = "PATH", num_args = 0..=1, require_equals = true, conflicts_with = "language")]
    python: Option<Option<PathBuf>>,
    /// Stop a call after this many seconds; the session keeps its state.
    #[arg(long, alias = "timeout", value_name = "SECONDS", value_parser = seconds)]
    pub(crate) call_timeout: Option<Duration>,
    /// Return at most this many bytes of a call's output: its beginning and its end.
    #[arg(long, hide = true, value_name = "BYTES")]
    pub(crate) max_output_bytes: Option<usize>,
    /// Give a Python session FINAL(value) and FINAL_VAR("name"), which set the answer.
    #[arg(long, hide = true)]
    pub(crate) final_functions: bool,
}

impl SessionOptions {
    /// The session's language.
    pub(crate) fn language(&self) -> ReplLanguage {
        if self.python.is_some() { ReplLanguage::Python } else { self.language }
    }

    /// The Python given by `--python=PATH`.
    pub(crate) fn python(&self) -> Option<&Path> {
        self.python.as_ref()?.as_deref()
    }
}

pub(super) const EXEC_HELP: &str = "\
A file of calls holds one call per block; a line `# %%` separates blocks. The output of the calls goes to standard output,
with the value of a Python cell's last expression, and the answer last if RLM_CONTENT or `answer` was set. Everything
else, tracebacks included, goes to standard error. All options: rlm help exec";

#[derive(Args, Debug)]
pub(crate) struct ExecOptions {
    #[command(flatten)]
    pub(crate) session: SessionOptions,
    /// A file of calls, one per block; `-` reads standard input.
    #[arg(long, value_name = "FILE", conflicts_with = "code")]
    pub(crate) file: Option<PathBuf>,
    /// Print raw responses, one JSON document per line.
    #[arg(long)]
    pub(crate) json: bool,
    /// Go on with the session in this file: what is in it runs.
    #[arg(long, value_name = "FILE")]
    pub(crate) load: Option<PathBuf>,
    /// Save the session to this file after the calls (docs/saved-sessions.md).
    #[arg(long, value_name = "FILE")]
    pub(crate) save: Option<PathBuf>,
    /// Save the session's directory, too; `--load` unpacks it into an empty one.
    #[arg(long, hide = true, requires = "save")]
    pub(crate) save_directory: bool,
    /// Give the code functions of the host: those of --tools and --mcp, a search of its directory, and llm_batch if a model is
    /// set; `network`, which --tools or --model alone mean, or `intercept` (docs/interception.md).
    #[arg(long, value_name = "HOW")]
    pub(crate) callbacks: Option<Callbacks>,
    /// The calls, one per argument.
    #[arg(value_name = "CODE", required_unless_present = "file")]
    pub(crate) code: Vec<String>,
    #[command(flatten)]
    pub(crate) settings: ToolFlags,
}

#[derive(Args, Debug)]
pub(crate) struct SavedOptions {
    /// A file of `rlm exec --save`.
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Print the file's own description, as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

pub(super) const REPL_HELP: &str = "\
Ctrl-C interrupts the running call, or clears the line. Ctrl-D ends the session. Incomplete code continues on the next
line; an empty line sends it as typed. Tab completes names of the session, and files in bash. With --tools, --mcp or --model the
code has the functions of `rlm exec --callbacks network`. All options: rlm help repl";

#[derive(Args, Debug)]
pub(crate) struct ReplOptions {
    #[command(flatten)]
    pub(crate) session: SessionOptions,
    #[command(flatten)]
    pub(crate) settings: ToolFlags,
}

/// The session to read.
#[derive(Args, Debug)]
pub(crate) struct SourceArguments {
    /// A control directory, the directory of a kept rollout, a history (rlm_history.jsonl) or a trajectory.
    #[arg(value_name = "SOURCE")]
    pub(crate) source: PathBuf,
    /// The rollout, in a trajectory with several.
    #[arg(long, value_name = "ID")]
    pub(crate) rollout: Option<String>,
    /// Language of the session, if the history does not name it: bash or python.
    #[arg(long, alias = "repl-language", value_name = "LANGUAGE")]
    pub(crate) language: Option<ReplLanguage>,
}

pub(super) const SCRIPT_HELP: &str = "\
Examples:
  rlm script kept/run-1 --output run.sh        a rollout kept by `rlm run --keep kept --id run-1`
  rlm script run.jsonl --rollout run-1         one rollout of a trajectory
  rlm script kept/run-1 --recorded answers.jsonl
                                               with root tools' answers from `rlm replay --record answers.jsonl`

Calls that failed, timed out or were interrupted become comments. If later calls depend on what those did before they
failed, give --all. docs/replay.md lists the differences between a script and its session.

Exit status: 0 written; 2 usage; 3 the source cannot be read or the script not written.";

#[derive(Args, Debug)]
pub(crate) struct ScriptOptions {
    #[command(flatten)]
    pub(crate) source: SourceArguments,
    /// Include calls that failed, timed out or were interrupted as code, not as comments.
    #[arg(long)]
    pub(crate) all: bool,
    /// Write the script to this file, as a program [default: standard output].
    #[arg(long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Answer calls of root tools from this recording. By default they fail.
    #[arg(long, value_name = "FILE")]
    pub(crate) recorded: Option<PathBuf>,
}

pub(super) const REPLAY_HELP: &str = "\
Examples:
  rlm replay kept/run-1 --context data         with the files that the session started with
  rlm replay run.jsonl --record answers.jsonl  keep the answers of root tools and llm_batch
  rlm replay run.jsonl --recorded answers.jsonl
                                               use those answers: no network, no cost

Root tools are set up as for `rlm run`: --tools, --model and --base-url, RLM_*, rlm.toml. With --recorded none is called.
All options: rlm help replay

Exit status: 0 all results are equal; 1 some differ; 2 usage; 3 the source cannot be read, or the session or another
requirement failed; 128 + N ended by signal N.

This is not a security sandbox: the session's calls run again, with your rights.";

#[derive(Args, Debug)]
pub(crate) struct ReplayOptions {
    #[command(flatten)]
    pub(crate) source: SourceArguments,
    /// The session's working directory, used in place; what the calls write stays there. A fresh one by default.
    #[arg(long, alias = "root", value_name = "DIR", conflicts_with = "context")]
    pub(crate) workdir: Option<PathBuf>,
    /// A file or directory to copy into the fresh working directory; may be given several times.
    #[arg(long, value_name = "PATH")]
    pub(crate) context: Vec<PathBuf>,
    /// The Python of a Python session: a program, a virtual environment, or `builtin`.
    #[arg(long, value_name = "PATH", num_args = 0..=1, require_equals = true)]
    pub(crate) python: Option<Option<PathBuf>>,
    /// Stop each call after this many seconds. Default: 120, or ten times what the call took, whichever is more.
    #[arg(long, alias = "timeout", value_name = "SECONDS", value_parser = seconds)]
    pub(crate) call_timeout: Option<Duration>,
    /// Return at most this many bytes of a call's output. Give the limit that the session had.
    #[arg(long, hide = true, value_name = "BYTES")]
    pub(crate) max_output_bytes: Option<usize>,
    /// Write the answers of root tools to this new file, as JSON lines.
    #[arg(long, value_name = "FILE", conflicts_with = "recorded")]
    pub(crate) record: Option<PathBuf>,
    /// Answer calls of root tools from this recording, and call no tool.
    #[arg(long, value_name = "FILE")]
    pub(crate) recorded: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) settings: ToolFlags,
}

#[derive(Args, Debug)]
pub(crate) struct WorkerOptions {
    /// Language of the session: bash or python.
    #[arg(long, alias = "repl-language", value_name = "LANGUAGE", default_value = "bash")]
    pub(crate) language: ReplLanguage,
    /// The directory that holds rlm_context.json; the FIFOs are made there.
    #[arg(long, value_name = "DIR")]
    pub(crate) control_dir: PathBuf,
    /// Further options of this language's worker, after `--`.
    #[arg(last = true, value_name = "OPTION")]
    pub(crate) rest: Vec<std::ffi::OsString>,
}

pub(super) const CONFORMANCE_HELP: &str = "\
Examples:
  rlm conformance -- rlm-worker-bash --control-dir {dir}
  rlm conformance --filter reading/ --language python -- my-worker --control-dir={dir}
  rlm conformance --list                       the cases, each with its promise (docs/conformance.md)

Each case starts a worker of its own, and ends everything that it leaves.

Exit status: 0 every case passed or was skipped; 1 a case failed; 2 usage; 3 the suite itself cannot run.";

#[derive(Args, Debug)]
pub(crate) struct ConformanceOptions {
    /// Language of the worker's sessions: bash or python; asked by op `info` by default.
    #[arg(long, value_name = "LANGUAGE")]
    pub(crate) language: Option<ReplLanguage>,
    /// Run only cases with this text in their names.
    #[arg(long, value_name = "TEXT")]
    pub(crate) filter: Option<String>,
    /// Print the cases and do not run them.
    #[arg(long)]
    pub(crate) list: bool,
    /// Print a line of JSON for each case.
    #[arg(long)]
    pub(crate) json: bool,
    /// Time limit of a case; its worker is killed then.
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = seconds)]
    pub(crate) timeout: Duration,
    /// Cases at once.
    #[arg(long, value_name = "N", default_value = "4", value_parser = up_to::<10_000>)]
    pub(crate) jobs: NonZeroUsize,
    /// The worker, after `--`; {dir} in it is replaced by the control directory.
    #[arg(last = true, required_unless_present = "list", value_name = "COMMAND")]
    pub(crate) command: Vec<std::ffi::OsString>,
}
