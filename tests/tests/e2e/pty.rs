//! Commands on a pseudo-terminal.

use std::process::Command;

use portable_pty::CommandBuilder;
use rlm_tests::Place;

/// A command in a place, for the terminal to start: with the same arguments and environment, and `TERM`.
pub(crate) fn at_pty(place: &Place, plain: &Command) -> CommandBuilder {
    let mut command = CommandBuilder::new(plain.get_program());
    command.args(plain.get_args());
    command.env_clear();
    for (name, value) in plain.get_envs() {
        command.env(name, value.unwrap());
    }
    command.env("TERM", "xterm");
    command.cwd(place.path("work"));
    command
}
