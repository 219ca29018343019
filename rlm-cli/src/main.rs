//! `rlm`: the command that a person types.

mod arguments;
mod exec;
mod repl;
mod signals;
mod worker;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use crate::arguments::{Arguments, Command};

/// Exit status when the session cannot be started or served.
const ENVIRONMENT_ERROR: u8 = 3;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let ended = match arguments.command {
        Command::Exec(options) => exec::run(&options),
        Command::Repl(options) => repl::run(&options),
        Command::Worker(options) => worker::run(&options),
        Command::Completions { shell } => {
            clap_complete::generate(shell, &mut Arguments::command(), "rlm", &mut std::io::stdout());
            Ok(ExitCode::SUCCESS)
        }
    };
    ended.unwrap_or_else(|error| {
        tell(format_args!("rlm: {error:#}"));
        ExitCode::from(ENVIRONMENT_ERROR)
    })
}

/// Says something to the person, on standard error. Where nobody listens, nothing is lost.
pub(crate) fn tell(message: impl std::fmt::Display) {
    use std::io::Write;
    let _nobody_listens = writeln!(std::io::stderr(), "{message}");
}
