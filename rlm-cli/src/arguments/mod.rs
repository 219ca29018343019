//! The command line.

mod number;
mod rollouts;
mod servers;
mod sessions;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

pub(crate) use self::rollouts::{
    BatchOptions, DemoOptions, Format, ProgressLevel, Resume, RunOptions, SortKey, ViewOptions,
};
use self::rollouts::{DEMO_HELP, RUN_HELP, VIEW_HELP};
use self::servers::{ACP_HELP, MCP_HELP};
pub(crate) use self::servers::{AcpOptions, McpOptions, Permissions};
use self::sessions::{CONFORMANCE_HELP, EXEC_HELP, REPL_HELP, REPLAY_HELP, SCRIPT_HELP};
pub(crate) use self::sessions::{
    ConformanceOptions, ExecOptions, ReplOptions, ReplayOptions, SavedOptions, ScriptOptions, SessionOptions,
    SourceArguments, WorkerOptions,
};
use crate::config::{Flags, Shape};

/// A persistent REPL for language models.
#[derive(Debug, Parser)]
#[command(name = "rlm", version, arg_required_else_help = true, disable_help_subcommand = true, after_help = AFTER_HELP)]
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
  rlm help run                                 all options of a command; `rlm help max_turns` explains a setting
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
    #[command(after_help = "All options: rlm help doctor")]
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
    /// Describe a saved session, without running anything of it.
    Saved(SavedOptions),
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
    /// Explain a command with all its options, or a setting.
    Help(HelpOptions),
}

const CONFIG_HELP: &str = "\
Examples:
  rlm config                                   all settings, with the flag, variable or line that each came from
  rlm config --max-turns 7 --json              the same for programs, as `rlm run --max-turns 7` would have it
  rlm config --example >rlm.toml               a file to start from

Settings come from flags, then RLM_* variables, then the file, then defaults (docs/rlm-run.md). Keys are not shown.
All flags: rlm help config";

const PROMPTS_HELP: &str = "\
Examples:
  rlm prompts --show                                  what a model in a bash session is told
  rlm prompts --show --python --verbosity heavy --context data
  rlm prompts --show --prompts mine                   with prompts of one's own (prompts/README.md)

The session is started, as for a rollout; no model is asked. All options: rlm help prompts";

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
pub(crate) struct DoctorOptions {
    /// Ask the model, too, by a few small requests: tools, streams, bounds, reasoning, cache.
    #[arg(long)]
    pub(crate) ask: bool,
    /// Ask, and write the rules that the server's errors taught into the file of the settings.
    #[arg(long)]
    pub(crate) save: bool,
    #[command(flatten)]
    pub(crate) settings: Flags,
}

#[derive(Args, Debug)]
pub(crate) struct ConfigOptions {
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Print a configuration file with all settings, commented out.
    #[arg(long, conflicts_with = "json")]
    example: bool,
    #[command(flatten)]
    pub(crate) settings: Flags,
}

impl ConfigOptions {
    /// The form to print.
    pub(crate) fn shape(&self) -> Shape {
        match (self.json, self.example) {
            (true, _) => Shape::Json,
            (_, true) => Shape::Example,
            _ => Shape::Text,
        }
    }
}

#[derive(Args, Debug)]
pub(crate) struct HelpOptions {
    /// The command, or the setting by its name, flag or variable [default: the list of commands].
    #[arg(value_name = "COMMAND|SETTING")]
    pub(crate) topic: Option<String>,
}

#[derive(Args, Debug)]
pub(crate) struct CompletionsOptions {
    /// The shell [default: that of SHELL].
    pub(crate) shell: Option<clap_complete::Shell>,
    /// Write them to where the shell reads them for this user: bash, zsh and fish.
    #[arg(long)]
    pub(crate) install: bool,
}

#[cfg(test)]
mod tests;
