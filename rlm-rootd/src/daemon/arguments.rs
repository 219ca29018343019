//! The command line.

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::bail;
use clap::{Parser, ValueEnum};

use crate::{Api, ServerRules};

/// The endpoint that code in sessions calls back into: root tools, `llm_batch`, budgets.
///
/// Prints one JSON line once it listens: its URL, the admin token if it made one, and the rollouts of --rollout with their
/// secrets. Logs go to standard error.
#[derive(Debug, Parser)]
#[command(
    version,
    after_help = "\
Exit status: 0 after SIGTERM or SIGINT, 2 for a wrong argument or file, 3 if it cannot serve.

Environment: RUST_LOG (default info), RLM_HOST_PID (a process with which it ends), and the variables that options name.

This is not a sandbox: tools run with the rights of this process."
)]
pub struct Arguments {
    /// Address to listen on; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:0", conflicts_with = "socket")]
    listen: SocketAddr,
    /// Unix socket to listen on
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Listen on an address that other machines reach
    #[arg(long)]
    allow_remote: bool,
    /// File with the tools, TOML or JSON
    #[arg(long, value_name = "FILE")]
    pub(super) tools: Option<PathBuf>,
    /// The session's working directory, for the tools nav_info, nav_ls, nav_outline, nav_read and nav_search
    #[arg(long, alias = "context", value_name = "DIR")]
    pub(super) workdir: Option<PathBuf>,
    /// TOML file with the prices of models
    #[arg(long, value_name = "FILE")]
    pub(super) prices: Option<PathBuf>,
    /// Base URL of the models' server, with its version: https://host/v1
    #[arg(long, value_name = "URL", requires = "model")]
    pub(super) base_url: Option<String>,
    /// Model of sub-LLMs
    #[arg(long, value_name = "NAME", requires = "base_url")]
    pub(super) model: Option<String>,
    /// The server's interface: chat, responses or anthropic; by default that of a known address, or else chat
    #[arg(long, value_name = "API", requires = "base_url")]
    pub(super) api: Option<Api>,
    /// The kind of server, whose rules requests follow, or a table of rules; by default known by its address (docs/models.md)
    #[arg(long, value_name = "NAME|JSON", requires = "base_url")]
    pub(super) server: Option<ServerRules>,
    /// Variable that holds the key of the models
    #[arg(long, value_name = "VARIABLE", requires = "base_url")]
    pub(super) api_key_env: Option<String>,
    /// Parallel requests to the models' server [default: 64]
    #[arg(long, alias = "max-parallel", value_name = "N", requires = "base_url")]
    pub(super) server_parallelism: Option<usize>,
    /// Largest body of a request, in bytes [default: 67108864]
    #[arg(long, value_name = "N")]
    pub(super) max_body_bytes: Option<usize>,
    /// Variable that holds the admin token; a random one is made and printed otherwise
    #[arg(long, value_name = "VARIABLE")]
    pub(super) admin_token_env: Option<String>,
    /// Register a rollout with every tool; may be repeated
    #[arg(long = "rollout", value_name = "ID")]
    pub(super) rollouts: Vec<String>,
    /// Form of the log
    #[arg(long, value_enum, default_value_t = LogFormat::Text)]
    pub(super) log_format: LogFormat,
}

/// Form of the log.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum LogFormat {
    Text,
    Json,
}

/// An address to listen on.
#[derive(Debug)]
pub(super) enum ListenAddress {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

impl Arguments {
    /// The address to listen on. An address other than loopback needs `--allow-remote`.
    pub(super) fn listen_address(&self) -> anyhow::Result<ListenAddress> {
        if let Some(path) = &self.socket {
            return Ok(ListenAddress::Unix(path.clone()));
        }
        if !self.listen.ip().is_loopback() && !self.allow_remote {
            bail!("--listen {} is not a loopback address: other machines need --allow-remote", self.listen);
        }
        Ok(ListenAddress::Tcp(self.listen))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn former_names_of_options_mean_the_same_and_are_not_shown() {
        let parsed = |option: &str| {
            let server = ["--base-url", "http://host/v1", "--model", "m"];
            Arguments::try_parse_from(["rlm-rootd", option, "7"].iter().chain(&server)).unwrap()
        };
        let help = <Arguments as clap::CommandFactory>::command().render_long_help().to_string();
        for (former, name) in [("--context", "--workdir"), ("--max-parallel", "--server-parallelism")] {
            assert_eq!(format!("{:?}", parsed(former)), format!("{:?}", parsed(name)));
            assert!(help.contains(name) && !help.contains(former), "{help}");
        }
    }
}
