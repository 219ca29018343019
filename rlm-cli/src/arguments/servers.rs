//! The commands that serve a client: `mcp`, `acp`.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::number::up_to;
use crate::config::{Flags, ToolFlags, seconds};

pub(super) const MCP_HELP: &str = "\
Examples:
  claude mcp add rlm -- rlm mcp --workdir ~/project  for Claude Code; docs/mcp.md has other clients
  rlm mcp --python=.venv --call-timeout 600          another Python, and more time for each call
  rlm mcp --base-url http://localhost:8000/v1 --model large-model
                                                     also the tool `ask_directory`: that model answers questions about files
  RLM_MCP_TOKEN=… rlm mcp --listen 127.0.0.1:8000    for clients that speak HTTP

The protocol runs over standard input and output, or with --listen over HTTP; the log goes to standard error. All sessions end
when the client closes standard input. All options: rlm help mcp

Exit status: 0 the client closed it; 2 usage; 3 the client cannot be served; 128 + N
ended by signal N.

This is not a security sandbox: the agent's code runs with your rights.";

#[derive(Args, Debug)]
pub(crate) struct McpOptions {
    /// The working directory of all sessions, used in place; its files are resources.
    #[arg(long, alias = "root", value_name = "DIR", default_value = ".")]
    pub(crate) workdir: PathBuf,
    /// The Python of Python sessions: a program, a virtual environment, or `builtin`.
    #[arg(long, value_name = "PATH", num_args = 0..=1, require_equals = true)]
    pub(crate) python: Option<Option<PathBuf>>,
    /// Stop a call without a limit of its own after this many seconds; the session keeps its state.
    #[arg(long, alias = "timeout", value_name = "SECONDS", value_parser = seconds, default_value = "120")]
    pub(crate) call_timeout: Duration,
    /// Refuse code larger than this many bytes.
    #[arg(hide = true, long, value_name = "BYTES", default_value_t = 1 << 20)]
    pub(crate) max_code_bytes: usize,
    /// Return at most this many bytes of a call's output: its beginning and its end. A file keeps the whole.
    #[arg(hide = true, long, value_name = "BYTES", default_value_t = 32 << 10)]
    pub(crate) max_output_bytes: usize,
    /// Refuse to read a file larger than this many bytes as a resource.
    #[arg(hide = true, long, value_name = "BYTES", default_value_t = 4 << 20)]
    pub(crate) max_resource_bytes: u64,
    /// Allow at most this many sessions, both languages together.
    #[arg(long, value_name = "N", default_value = "16", value_parser = up_to::<10_000>)]
    pub(crate) max_sessions: NonZeroUsize,
    /// The log's filter, as in RUST_LOG.
    #[arg(hide = true, long, value_name = "FILTER", default_value = "warn,rmcp=error")]
    pub(crate) log: String,
    /// Serve streamable HTTP at this loopback address, such as 127.0.0.1:8000, instead of standard input and output. Clients
    /// present the token in RLM_MCP_TOKEN.
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub(crate) listen: Option<SocketAddr>,
    /// Settings of `ask_directory`, which is offered if the model and its base URL are set.
    #[command(flatten)]
    pub(crate) settings: ToolFlags,
}

pub(super) const ACP_HELP: &str = "\
A client starts this command and speaks JSON-RPC with it, one message per line (docs/acp.md). Settings that the client does not
configure are those of `rlm run`: flags, RLM_* variables, rlm.toml. All options: rlm help acp

Examples:
  rlm acp --model large-model --base-url https://host/v1
  rlm acp --permissions allow                  calls run without a question to the user
  rlm --acp                                    the same command, as trainers spell it";

#[derive(Args, Debug)]
pub(crate) struct AcpOptions {
    /// Whether the client is asked before each call: ask, or allow [default: ask, and allow where a trainer configures the session].
    #[arg(long, value_name = "MODE", value_enum, hide_possible_values = true)]
    pub(crate) permissions: Option<Permissions>,
    #[command(flatten)]
    pub(crate) settings: Flags,
}

/// Whether the client is asked before a call runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Permissions {
    /// The client is asked before each call.
    Ask,
    /// Calls run.
    Allow,
}
