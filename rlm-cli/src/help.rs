//! `rlm help`: a command with all its options, or one setting.

use std::io::Write as _;
use std::process::ExitCode;

use clap::CommandFactory as _;

use crate::arguments::Arguments;
use crate::config::explained;
use crate::config::table::ALL;
use crate::usage::{Usage, nearest};

/// Prints the help of a command, of a setting, or of `rlm` itself.
pub(crate) fn show(topic: Option<&str>) -> anyhow::Result<ExitCode> {
    let text = match topic {
        None => Arguments::command().render_long_help().to_string(),
        Some(topic) => of_command(topic).or_else(|| explained(topic)).ok_or_else(|| unknown(topic))?,
    };
    std::io::stdout().write_all(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

/// The help of a command, with the options that its `--help` leaves out.
pub(crate) fn of_command(name: &str) -> Option<String> {
    let mut command = Arguments::command();
    // Usages have the whole name from then on.
    command.build();
    let found = command.find_subcommand(name)?.clone();
    Some(found.mut_args(|option| option.hide(false)).render_help().to_string())
}

fn unknown(topic: &str) -> Usage {
    let command = Arguments::command();
    let commands = command.get_subcommands().map(clap::Command::get_name);
    let names = commands.chain(ALL.iter().map(|setting| setting.name));
    let hint = nearest(topic, names).map(|name| format!("did you mean `{name}`? ")).unwrap_or_default();
    Usage::new(format!(
        "no command and no setting is named `{topic}`: {hint}`rlm help` lists the commands, `rlm config` the settings"
    ))
}
