//! `rlm`: the command that a person types.

mod acp;
mod arguments;
mod batch;
mod completions;
mod config;
mod conformance;
mod demo;
mod display;
mod doctor;
mod environment;
mod evaluation;
mod exec;
mod files;
mod fork_server;
mod help;
mod live;
mod lock;
mod mcp;
mod mcp_servers;
mod prompts;
mod repl;
mod replay;
mod replies;
mod rollouts;
mod run;
mod runs;
mod saved;
mod script;
mod session_tools;
mod signals;
mod standard_output;
mod terminal;
mod text;
mod tokens;
mod usage;
mod versions;
mod view;
mod warnings;
mod worker;

use std::process::ExitCode;

use clap::Parser;

use crate::arguments::{Arguments, Command};
use crate::environment::Environment;
use crate::standard_output::is_broken_pipe;
use crate::usage::Usage;
use crate::warnings::Warnings;

/// Exit status for an error of usage.
const USAGE_ERROR: u8 = 2;

/// Exit status if the session, a server or another requirement fails.
pub(crate) const ENVIRONMENT_ERROR: u8 = 3;

fn main() -> ExitCode {
    rlm_rootd::free_large_values_at_once();
    #[expect(clippy::disallowed_methods, reason = "a main reads the environment")]
    let environment = Environment::new(std::env::vars_os());
    if versions::are_asked(std::env::args_os().skip(1)) {
        return ended(versions::show(&environment));
    }
    let arguments = Arguments::parse();
    let warnings = match arguments.command {
        // These commands have their own log.
        Command::Acp(_) | Command::Mcp(_) | Command::Rootd(_) => Warnings::default(),
        _ => Warnings::start(),
    };
    ended(match arguments.command {
        Command::Run(options) => run::run(&options, &environment, &warnings),
        Command::Demo(options) => demo::run(&options, &environment),
        Command::Config(options) => config::run(options.shape(), &options.settings, &environment),
        Command::Prompts(options) => prompts::run(&options, &environment),
        Command::Exec(options) => exec::run(&options, &environment),
        Command::Saved(options) => saved::run(&options),
        Command::Repl(options) => repl::run(&options, &environment),
        Command::Doctor(options) => doctor::run(&options, &environment),
        Command::Acp(options) => acp::run(&options, &environment),
        Command::Runs => runs::list(&environment),
        Command::View(options) => view::run(&options, &environment),
        Command::Script(options) => script::run(&options),
        Command::Replay(options) => replay::run(&options, &environment),
        Command::Mcp(options) => mcp::run(&options, &environment),
        Command::Rootd(options) => Ok(rlm_rootd::daemon::run(&options, environment.variables())),
        Command::Conformance(options) => conformance::run(&options),
        Command::Worker(options) => worker::run(&options, &environment),
        Command::Help(options) => help::show(options.topic.as_deref()),
        Command::Completions(options) => completions::run(&options, &environment),
    })
}

/// The exit status, after the message of an error.
fn ended(ended: anyhow::Result<ExitCode>) -> ExitCode {
    ended.unwrap_or_else(|error| {
        // `rlm … | head` is no reason for a message.
        if !is_broken_pipe(&error) {
            tell(format_args!("rlm: {error:#}"));
        }
        ExitCode::from(if error.is::<Usage>() { USAGE_ERROR } else { ENVIRONMENT_ERROR })
    })
}

/// Prints a message for the user on standard error. It may quote servers, files and programs, so control characters are
/// made visible.
pub(crate) fn tell(message: impl std::fmt::Display) {
    use std::io::Write;
    // A closed standard error has no reader to inform.
    let _closed = writeln!(std::io::stderr(), "{}", text::visible(&message.to_string()));
}
