//! The command line.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::builder::{OsStringValueParser, TypedValueParser as _};
use clap::{Args, Parser, Subcommand, ValueEnum};
use rlm_env::ReplLanguage;
use rlm_env::rollout::Callbacks;

use crate::config::{Flags, ToolFlags, seconds, usd};
use crate::evaluation::ScoreMode;

/// A persistent REPL for language models.
#[derive(Debug, Parser)]
#[command(name = "rlm", version, arg_required_else_help = true, after_help = AFTER_HELP)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

const AFTER_HELP: &str = "\
Examples:
  rlm demo                                     a sample rollout: no model, no network, no key
  rlm run --context data 'How many orders were late in May?'
                                               ask a model about files (docs/rlm-run.md)
  rlm exec 'wc -l *.md'                        one call in the current directory
  rlm exec --workdir src 'x=1' 'echo $x'       two calls in one session
  rlm exec --file calls.sh --json              a file of calls, raw responses
  rlm exec --python 'x = 2' 'x ** 10'          the same in Python
  rlm exec --python --callbacks intercept 'info = nav_info()' 'info'
                                               functions of the host, in a session without a network
  rlm repl --workdir data                      a session to type into
  rlm view run.jsonl                           show rollouts
  rlm script kept/ID --output run.sh           a session's calls as a stand-alone script (docs/replay.md)
  rlm replay kept/ID --context data            run it again and compare
  rlm mcp --workdir src                        sessions for an agent that speaks MCP (docs/mcp.md)
  rlm conformance -- my-worker --control-dir {dir}
                                               check a worker against the protocol (docs/conformance.md)
  rlm --version --verbose                      the versions of all that it is made of

Exit status: 0 answered, every call ran to its end; 1 no final answer, a call was stopped, raised, or ended its
interpreter; 2 usage; 3 the session, the model's server or another requirement failed; 128 + N ended by signal N.

This is not a security sandbox: code runs with your rights.";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Answer a question about files, or many questions.
    #[command(after_help = RUN_HELP)]
    Run(Box<RunOptions>),
    /// Show a rollout with scripted models over bundled text: no model, no network, no key.
    #[command(after_help = DEMO_HELP)]
    Demo(DemoOptions),
    /// Check what is found: programs, bash, Python, settings, the model's server.
    Doctor(DoctorOptions),
    /// Show the settings in force, and where each came from.
    #[command(after_help = CONFIG_HELP)]
    Config(ConfigOptions),
    /// List the prompts, which `--prompts DIR` can replace, or show that of a rollout.
    #[command(after_help = PROMPTS_HELP)]
    Prompts(Box<PromptsOptions>),
    /// Run calls in one session and print their output.
    #[command(after_help = EXEC_HELP)]
    Exec(Box<ExecOptions>),
    /// Type into a session.
    #[command(after_help = REPL_HELP)]
    Repl(Box<ReplOptions>),
    /// Be an agent of the Agent Client Protocol on standard input and output, for trainers, evaluators and editors.
    #[command(long_flag = "acp", after_help = ACP_HELP)]
    Acp(Box<AcpOptions>),
    /// List the recorded runs of `rlm run`, the latest first.
    Runs,
    /// Show the rollouts of a trajectory: of a file, or of a recorded run.
    #[command(after_help = VIEW_HELP)]
    View(ViewOptions),
    /// Write the calls of a session as a stand-alone script.
    #[command(after_help = SCRIPT_HELP)]
    Script(ScriptOptions),
    /// Run the calls of a session again, in a fresh session, and compare call by call.
    #[command(after_help = REPLAY_HELP)]
    Replay(Box<ReplayOptions>),
    /// Serve persistent bash and Python sessions to an agent, over the Model Context Protocol.
    #[command(after_help = MCP_HELP)]
    Mcp(Box<McpOptions>),
    /// Serve root tools, `llm_batch` and budgets to sessions of other programs.
    Rootd(Box<rlm_rootd::daemon::Arguments>),
    /// Serve a session over two FIFOs, for an RLM environment.
    Worker(WorkerOptions),
    /// Check any worker against the promises of the FIFO protocol.
    #[command(after_help = CONFORMANCE_HELP)]
    Conformance(ConformanceOptions),
    /// Print shell completions, or install them.
    Completions(CompletionsOptions),
}

const CONFORMANCE_HELP: &str = "\
Examples:
  rlm conformance -- rlm-worker-bash --control-dir {dir}
  rlm conformance --filter reading/ --language python -- my-worker --control-dir={dir}
  rlm conformance --list                       the cases, each with its promise (docs/conformance.md)

Each case starts a worker of its own, and ends everything that it leaves.

Exit status: 0 every case passed or was skipped; 1 a case failed; 2 usage; 3 the suite itself cannot run.";

const RUN_HELP: &str = "\
Examples:
  export RLM_BASE_URL=https://host/v1 RLM_MODEL=large-model RLM_API_KEY=…
  rlm run --context logs/ 'Which host failed first, and why?'
  git log | rlm run --context - --python 'Who changed the parser most often?'
  rlm run --questions questions.jsonl --attempts 4 --jobs 8 --results results.jsonl
  rlm run --questions questions.jsonl --attempts 4 --jobs 8 --results results.jsonl --resume
  rlm run --questions questions.jsonl --attempts 4 --score number
                                               accuracy and pass@k, where questions have `expected`

The answer goes to standard output and nothing else does. Ctrl-C stops after the running call and prints the answer so far;
a second one ends at once.

Exit status: 0 answered; 1 no final answer; 2 usage; 3 the session, the context or the model's server fails; 128 + N ended
by signal N. For a batch: 0 all answered; 1 not all answered; 3 every rollout failed in such a way.

This is not a security sandbox: the model's code runs with your rights.";

const DEMO_HELP: &str = "\
A script plays the root model and a keyword search plays the sub-LLM. The session, its calls of llm_batch over HTTP, limits
and counts are real. Only the loopback device is used.

Exit status: 0 the answer is right; 1 it is wrong; 2 usage; 3 the session cannot be started; 128 + N ended by
signal N.";

const CONFIG_HELP: &str = "\
Examples:
  rlm config                                   all settings, with the flag, variable or line that each came from
  rlm config --max-turns 7 --json              the same for programs, as `rlm run --max-turns 7` would have it
  rlm config --example >rlm.toml               a file to start from

Settings come from flags, then RLM_* variables, then the file, then defaults (docs/rlm-run.md). Keys are not shown.";

const PROMPTS_HELP: &str = "\
Examples:
  rlm prompts --show                                  what a model in a bash session is told
  rlm prompts --show --python --verbosity heavy --context data
  rlm prompts --show --prompts mine                   with prompts of one's own (prompts/README.md)

The session is started, as for a rollout; no model is asked.";

const EXEC_HELP: &str = "\
A file of calls holds one call per block; a line `# %%` separates blocks. The output of the calls goes to standard output,
with the value of a Python cell's last expression, and the answer last if RLM_CONTENT or `answer` was set. Everything
else, tracebacks included, goes to standard error.";

const REPL_HELP: &str = "\
Ctrl-C interrupts the running call, or clears the line. Ctrl-D ends the session. Incomplete code continues on the next
line; an empty line sends it as typed. Tab completes names of the session, and files in bash. With --tools, --mcp or --model the
code has the functions of `rlm exec --callbacks network`.";

const VIEW_HELP: &str = "\
Examples:
  rlm view run.jsonl                           every rollout of the file, as a tree
  rlm view run.jsonl --rollout 17 --full       one of them, in full
  rlm view run.jsonl --html run.html           one page, for a browser
  ssh host cat run.jsonl | rlm view -          from standard input
  rlm view rlm_2026-05-01_12-00-00_1a2b.jsonl  a log of rlms (RLMLogger)
  rlm view run.jsonl --to rlms >log.jsonl      one rollout for the visualizer of rlms

A file that is still being written can be shown. On a terminal the tree goes through $PAGER, `less -R` by default, and has
colours unless NO_COLOR is set. Exit status: 0 shown; 2 usage; 3 the file cannot be read or the page not written.";

const SCRIPT_HELP: &str = "\
Examples:
  rlm script kept/run-1 --output run.sh        a rollout kept by `rlm run --keep kept --id run-1`
  rlm script run.jsonl --rollout run-1         one rollout of a trajectory
  rlm script kept/run-1 --recorded answers.jsonl
                                               with root tools' answers from `rlm replay --record answers.jsonl`

Calls that failed, timed out or were interrupted become comments. If later calls depend on what those did before they
failed, give --all. docs/replay.md lists the differences between a script and its session.

Exit status: 0 written; 2 usage; 3 the source cannot be read or the script not written.";

const REPLAY_HELP: &str = "\
Examples:
  rlm replay kept/run-1 --context data         with the files that the session started with
  rlm replay run.jsonl --record answers.jsonl  keep the answers of root tools and llm_batch
  rlm replay run.jsonl --recorded answers.jsonl
                                               use those answers: no network, no cost

Root tools are set up as for `rlm run`: --tools, --model and --base-url, RLM_*, rlm.toml. With --recorded none is called.

Exit status: 0 all results are equal; 1 some differ; 2 usage; 3 the source cannot be read, or the session or another
requirement failed; 128 + N ended by signal N.

This is not a security sandbox: the session's calls run again, with your rights.";

const MCP_HELP: &str = "\
Examples:
  claude mcp add rlm -- rlm mcp --workdir ~/project  for Claude Code; docs/mcp.md has other clients
  rlm mcp --python=.venv --call-timeout 600          another Python, and more time for each call
  rlm mcp --base-url http://localhost:8000/v1 --model large-model
                                                     also the tool `ask_directory`: that model answers questions about files
  RLM_MCP_TOKEN=… rlm mcp --listen 127.0.0.1:8000    for clients that speak HTTP

The protocol runs over standard input and output, or with --listen over HTTP; the log goes to standard error. All sessions end
when the client closes standard input. Exit status: 0 the client closed it; 2 usage; 3 the client cannot be served; 128 + N
ended by signal N.

This is not a security sandbox: the agent's code runs with your rights.";

/// Options of `rlm exec` and `rlm repl`.
#[derive(Args, Clone, Debug)]
pub(crate) struct SessionOptions {
    /// The session's working directory, used in place.
    #[arg(long, alias = "context", value_name = "DIR", default_value = ".")]
    pub(crate) workdir: PathBuf,
    /// Language of the session: bash or python.
    #[arg(long, alias = "repl-language", value_name = "LANGUAGE", default_value = "bash")]
    language: ReplLanguage,
    /// The same as `--language python`. PATH is the Python to use, CPython 3.10 or newer: a program, its name on PATH,
    /// the directory of a virtual environment, or `builtin`. Default: RLM_PYTHON, VIRTUAL_ENV, python3 on PATH, or the one
    /// in an rlm of one file, in this order.
    #[arg(long, value_name = "PATH", num_args = 0..=1, require_equals = true, conflicts_with = "language")]
    python: Option<Option<PathBuf>>,
    /// Stop a call after this many seconds; the session keeps its state.
    #[arg(long, alias = "timeout", value_name = "SECONDS", value_parser = seconds)]
    pub(crate) call_timeout: Option<Duration>,
    /// Return at most this many bytes of a call's output: its beginning and its end.
    #[arg(long, value_name = "BYTES")]
    pub(crate) max_output_bytes: Option<usize>,
    /// Give a Python session FINAL(value) and FINAL_VAR("name"), which set the answer.
    #[arg(long)]
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

#[derive(Args, Debug)]
pub(crate) struct PromptsOptions {
    /// Print the system prompt and the tools of the root model, as `rlm run` with these settings would send them.
    #[arg(long)]
    pub(crate) show: bool,
    /// A file or directory of the rollout's context, which the prompt describes; may be given several times.
    #[arg(long, value_name = "PATH", requires = "show")]
    pub(crate) context: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) settings: Flags,
}

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
    /// Give the code functions that run outside the session: nav_info, nav_ls, nav_outline, nav_read and nav_search for its
    /// directory, those of --tools and --mcp, and llm_batch if a model is set. network: it calls them over HTTP; --tools,
    /// --model or another setting alone means the same. intercept: the host finds the calls in the code and makes them before it runs;
    /// see docs/interception.md.
    #[arg(long, value_name = "HOW")]
    pub(crate) callbacks: Option<Callbacks>,
    /// The calls, one per argument.
    #[arg(value_name = "CODE", required_unless_present = "file")]
    pub(crate) code: Vec<String>,
    #[command(flatten)]
    pub(crate) settings: ToolFlags,
}

#[derive(Args, Debug)]
pub(crate) struct ReplOptions {
    #[command(flatten)]
    pub(crate) session: SessionOptions,
    #[command(flatten)]
    pub(crate) settings: ToolFlags,
}

#[derive(Args, Debug)]
pub(crate) struct DoctorOptions {
    #[command(flatten)]
    pub(crate) settings: Flags,
}

#[derive(Args, Debug)]
pub(crate) struct RunOptions {
    /// The question; or give --questions.
    #[arg(value_name = "QUESTION")]
    pub(crate) question: Option<String>,
    /// A file or directory to copy into the rollout's working directory; `-` reads standard input as context.txt, and an
    /// empty value, '', is an empty directory. May be given several times. Required, unless each question has its own.
    #[arg(long, value_name = "PATH", value_parser = OsStringValueParser::new().map(PathBuf::from))]
    pub(crate) context: Vec<PathBuf>,
    /// Go on after the answer: each line of standard input is a further question to the same session. Ctrl-D ends it.
    #[arg(long, conflicts_with_all = ["json", "events", "questions", "attempts", "results", "dry_run"])]
    pub(crate) chat: bool,
    /// Print the whole result as one line of JSON.
    #[arg(long)]
    pub(crate) json: bool,
    /// Print everything that happens as JSON lines: the entries of the trajectory, and a line for each result.
    #[arg(long, conflicts_with = "json")]
    pub(crate) events: bool,
    /// How much to show on standard error [default: full at a terminal, otherwise none].
    #[arg(long, value_name = "HOW", value_enum)]
    pub(crate) progress: Option<ProgressLevel>,
    /// Show no progress: `--progress none`.
    #[arg(long, short, conflicts_with = "progress")]
    pub(crate) quiet: bool,
    /// The rollout's id, and of what is recorded and kept of it [default: run-TIME-RANDOM].
    #[arg(long, value_name = "ID", conflicts_with_all = ["questions", "attempts"])]
    pub(crate) id: Option<String>,
    /// Check everything that can be checked without a request, and print what would run and what it may cost, from recorded runs
    /// of the same model. Nothing is written.
    #[arg(long, conflicts_with_all = ["json", "events"])]
    pub(crate) dry_run: bool,
    /// Do not record the run for `rlm runs` and `rlm view`.
    #[arg(long)]
    pub(crate) no_record: bool,
    /// Serve a page at a loopback address that shows the run as it goes on: the address is printed. At a terminal, it stays until
    /// Ctrl-C; `rlm view --serve` serves it again.
    #[arg(long, value_name = "PORT", num_args = 0..=1, require_equals = true, default_missing_value = "0",
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
    /// Questions, one JSON object per line: `question`, and optionally `id`, `context` (a path or several), `context_text`,
    /// `context_json`, `expected`, `metadata`; `-` reads standard input.
    #[arg(long, value_name = "FILE", conflicts_with = "question")]
    pub(crate) questions: Option<PathBuf>,
    /// Read attempts from standard input while others run, one JSON object per line: a question, and `attempt`, its number [default: 1].
    /// Results are events in the order of their ends. It ends with standard input.
    #[arg(long, requires = "events",
          conflicts_with_all = ["question", "questions", "attempts", "results", "max_cost", "dry_run"])]
    pub(crate) feed: bool,
    /// With --feed: the address of the program that keeps the ledger of all rollouts, `http://…` or `http+unix://…`. `RLM_LEDGER_SECRET`
    /// goes with each request.
    #[arg(long, value_name = "URL", requires = "feed")]
    pub(crate) ledger: Option<String>,
    /// Attempts at each question [default: 1].
    #[arg(long, alias = "rollouts", value_name = "N", value_parser = up_to::<1_000_000>)]
    pub(crate) attempts: Option<NonZeroUsize>,
    /// Rollouts at once [default: 4].
    #[arg(long, alias = "parallel", value_name = "N", value_parser = up_to::<10_000>)]
    pub(crate) jobs: Option<NonZeroUsize>,
    /// Append each result to this file as a line of JSON [default: standard output].
    #[arg(long, value_name = "FILE")]
    pub(crate) results: Option<PathBuf>,
    /// Skip rollouts that the file of results has; those that were stopped or cancelled are run again. Results of another
    /// model or of other settings are refused; --resume=any takes them.
    #[arg(long, value_name = "WHICH", num_args = 0..=1, require_equals = true, default_missing_value = "same",
          hide_possible_values = true, requires = "results")]
    pub(crate) resume: Option<Resume>,
    /// With --resume: also run rollouts again that failed with an error, had too small a budget, or could not be scored.
    #[arg(long, requires = "resume")]
    pub(crate) retry_failed: bool,
    /// Most that all rollouts together may spend on models, with those whose results --resume keeps. Rollouts that it has no
    /// room for are not started.
    #[arg(long, value_name = "USD", value_parser = usd)]
    pub(crate) max_cost: Option<f64>,
    /// Score each answer by the question's `expected`: exact, contains, number; or by command:PROGRAM, which reads a JSON object
    /// and prints a number from 0 to 1 [default: exact, of questions with `expected`].
    #[arg(long, value_name = "HOW")]
    pub(crate) score: Option<ScoreMode>,
}

/// The results that a batch can go on from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Resume {
    /// Those of the same models and settings.
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

#[derive(Args, Debug)]
pub(crate) struct ConfigOptions {
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
    /// Print a configuration file with all settings, commented out.
    #[arg(long, conflicts_with = "json")]
    pub(crate) example: bool,
    #[command(flatten)]
    pub(crate) settings: Flags,
}

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
    /// The Python of a Python session, CPython 3.10 or newer: a program, its name on PATH, or the directory of a virtual
    /// environment, or `builtin`. Default: RLM_PYTHON, VIRTUAL_ENV, python3 on PATH, or the one in an rlm of one file, in
    /// this order.
    #[arg(long, value_name = "PATH", num_args = 0..=1, require_equals = true)]
    pub(crate) python: Option<Option<PathBuf>>,
    /// Stop each call after this many seconds. Default: 120, or ten times what the call took, whichever is more.
    #[arg(long, alias = "timeout", value_name = "SECONDS", value_parser = seconds)]
    pub(crate) call_timeout: Option<Duration>,
    /// Return at most this many bytes of a call's output. Give the limit that the session had.
    #[arg(long, value_name = "BYTES")]
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
pub(crate) struct McpOptions {
    /// The working directory of all sessions, used in place; its files are resources.
    #[arg(long, alias = "root", value_name = "DIR", default_value = ".")]
    pub(crate) workdir: PathBuf,
    /// The Python of Python sessions, CPython 3.10 or newer: a program, its name on PATH, or the directory of a virtual
    /// environment, or `builtin`. Default: RLM_PYTHON, VIRTUAL_ENV, python3 on PATH, or the one in an rlm of one file, in
    /// this order.
    #[arg(long, value_name = "PATH", num_args = 0..=1, require_equals = true)]
    pub(crate) python: Option<Option<PathBuf>>,
    /// Stop a call without a limit of its own after this many seconds; the session keeps its state.
    #[arg(long, alias = "timeout", value_name = "SECONDS", value_parser = seconds, default_value = "120")]
    pub(crate) call_timeout: Duration,
    /// Refuse code larger than this many bytes.
    #[arg(long, value_name = "BYTES", default_value_t = 1 << 20)]
    pub(crate) max_code_bytes: usize,
    /// Return at most this many bytes of a call's output: its beginning and its end. A file keeps the whole.
    #[arg(long, value_name = "BYTES", default_value_t = 32 << 10)]
    pub(crate) max_output_bytes: usize,
    /// Refuse to read a file larger than this many bytes as a resource.
    #[arg(long, value_name = "BYTES", default_value_t = 4 << 20)]
    pub(crate) max_resource_bytes: u64,
    /// Allow at most this many sessions, both languages together.
    #[arg(long, value_name = "N", default_value = "16", value_parser = up_to::<10_000>)]
    pub(crate) max_sessions: NonZeroUsize,
    /// The log's filter, as in RUST_LOG.
    #[arg(long, value_name = "FILTER", default_value = "warn,rmcp=error")]
    pub(crate) log: String,
    /// Serve streamable HTTP at this loopback address, such as 127.0.0.1:8000, instead of standard input and output. Clients
    /// present the token in RLM_MCP_TOKEN.
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub(crate) listen: Option<SocketAddr>,
    /// Settings of `ask_directory`, which is offered if the model and its base URL are set.
    #[command(flatten)]
    pub(crate) settings: ToolFlags,
}

const ACP_HELP: &str = "\
A client starts this command and speaks JSON-RPC with it, one message per line (docs/acp.md). Settings that the client does not
configure are those of `rlm run`: flags, RLM_* variables, rlm.toml.

Examples:
  rlm acp --model large-model --base-url https://host/v1
  rlm acp --permissions allow                  calls run without a question to the user
  rlm --acp                                    the same command, as trainers spell it";

#[derive(Args, Debug)]
pub(crate) struct AcpOptions {
    /// Whether the client is asked before each call: ask, or allow [default: ask, and allow where a trainer configures the session].
    #[arg(long, value_name = "MODE", value_enum)]
    pub(crate) permissions: Option<Permissions>,
    #[command(flatten)]
    pub(crate) settings: Flags,
}

/// Whether calls run without asking.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Permissions {
    /// The client is asked before each call.
    Ask,
    /// Calls run.
    Allow,
}

#[derive(Args, Debug)]
pub(crate) struct CompletionsOptions {
    /// The shell [default: that of SHELL].
    pub(crate) shell: Option<clap_complete::Shell>,
    /// Write them to where the shell reads them for this user: bash, zsh and fish.
    #[arg(long)]
    pub(crate) install: bool,
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

fn up_to<const MOST: usize>(text: &str) -> Result<NonZeroUsize, String> {
    let number = text.parse().ok().filter(|number: &NonZeroUsize| number.get() <= MOST);
    number.ok_or_else(|| format!("expected a whole number from 1 to {MOST}"))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn an_unknown_language_is_named_with_both_that_exist() {
        let error = Arguments::try_parse_from(["rlm", "exec", "--language", "perl", ":"]).unwrap_err();
        assert!(
            error.to_string().contains("unknown REPL language `perl`: expected `bash` or `python`"),
            "{error}"
        );
    }

    /// Subcommand, what else its command line needs, former name, name, value.
    const FORMER_NAMES: &[(&str, &[&str], &str, &str, &str)] = &[
        ("exec", &[":"], "--context", "--workdir", "dir"),
        ("exec", &[":"], "--repl-language", "--language", "python"),
        ("exec", &[":"], "--timeout", "--call-timeout", "7"),
        ("exec", &[":"], "--max-parallel", "--server-parallelism", "7"),
        ("repl", &[], "--context", "--workdir", "dir"),
        ("repl", &[], "--repl-language", "--language", "python"),
        ("repl", &[], "--timeout", "--call-timeout", "7"),
        ("repl", &[], "--max-parallel", "--server-parallelism", "7"),
        ("run", &["Why?"], "--rollouts", "--attempts", "7"),
        ("run", &["Why?"], "--parallel", "--jobs", "7"),
        ("run", &["Why?"], "--max-output-length", "--max-output-chars", "7"),
        ("run", &["Why?"], "--max-parallel", "--server-parallelism", "7"),
        ("config", &[], "--max-output-length", "--max-output-chars", "7"),
        ("config", &[], "--max-parallel", "--server-parallelism", "7"),
        ("script", &["kept"], "--repl-language", "--language", "python"),
        ("replay", &["kept"], "--repl-language", "--language", "python"),
        ("replay", &["kept"], "--root", "--workdir", "dir"),
        ("replay", &["kept"], "--timeout", "--call-timeout", "7"),
        ("replay", &["kept"], "--max-parallel", "--server-parallelism", "7"),
        ("mcp", &[], "--root", "--workdir", "dir"),
        ("mcp", &[], "--timeout", "--call-timeout", "7"),
        ("worker", &["--control-dir", "c"], "--repl-language", "--language", "python"),
    ];

    #[test]
    fn former_names_of_options_mean_the_same() {
        for (subcommand, needed, former, name, value) in FORMER_NAMES {
            let parsed = |option| {
                let arguments = ["rlm", subcommand, option, value];
                let parsed = Arguments::try_parse_from(arguments.iter().chain(*needed));
                format!("{:?}", parsed.unwrap_or_else(|error| panic!("{subcommand} {option}: {error}")))
            };
            assert_eq!(parsed(former), parsed(name), "{subcommand} {former}");
        }
    }

    #[test]
    fn help_and_completions_show_the_names_in_use_alone() {
        let mut command = Arguments::command();
        let mut completions = Vec::new();
        clap_complete::generate(clap_complete::Shell::Bash, &mut command, "rlm", &mut completions);
        for (subcommand, _, former, name, _) in FORMER_NAMES {
            let subcommand = command.find_subcommand_mut(subcommand).unwrap();
            let help = [subcommand.render_help(), subcommand.render_long_help()].map(|help| help.to_string());
            let shows = |option: &str| {
                let is_part = |c: char| c.is_ascii_alphanumeric() || c == '-';
                help.iter().any(|help| help.split(|c| !is_part(c)).any(|word| word == option))
            };
            assert!(shows(name) && !shows(former), "{}", help[1]);
        }
        let completions = String::from_utf8(completions).unwrap();
        for former in ["--repl-language", "--root ", "--rollouts", "--parallel", "--max-parallel"] {
            assert!(!completions.contains(former), "{former}");
        }
    }

    #[test]
    fn each_option_has_one_value_in_all_subcommands() {
        let mut values = std::collections::BTreeMap::new();
        for subcommand in Arguments::command().get_subcommands() {
            for option in subcommand.get_opts().filter(|option| option.get_action().takes_values()) {
                let name = option.get_long().unwrap().to_owned();
                let value = option.get_value_names().map(|names| names[0].to_string());
                let known = values.entry(name.clone()).or_insert_with(|| value.clone());
                assert_eq!(*known, value, "{} --{name}", subcommand.get_name());
            }
        }
    }

    #[test]
    fn python_is_a_language_and_may_name_an_interpreter() {
        let session = |arguments: &[&str]| {
            let arguments = ["rlm", "exec"].iter().chain(arguments).chain(&["code"]);
            match Arguments::try_parse_from(arguments).unwrap().command {
                Command::Exec(options) => options.session,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(session(&[]).language(), ReplLanguage::Bash);
        for arguments in [&["--python"][..], &["--language", "python"]] {
            assert_eq!(
                (session(arguments).language(), session(arguments).python()),
                (ReplLanguage::Python, None)
            );
        }
        let named = session(&["--python=/venv"]);
        assert_eq!((named.language(), named.python()), (ReplLanguage::Python, Some(Path::new("/venv"))));
    }
}
