//! `rlm completions`: completions of a shell, printed or installed for the user.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{CommandFactory as _, ValueEnum as _};
use clap_complete::Shell;

use crate::arguments::{Arguments, CompletionsOptions};
use crate::environment::Environment;
use crate::standard_output::print;
use crate::tell;
use crate::usage::{Usage, refuse};

pub(crate) fn run(options: &CompletionsOptions, environment: &Environment) -> anyhow::Result<ExitCode> {
    let shell = match options.shell {
        Some(shell) => shell,
        None => users_shell(environment)
            .ok_or_else(|| Usage::new("SHELL names no known shell: give one, such as bash, zsh or fish"))?,
    };
    let mut completions = Vec::new();
    clap_complete::generate(shell, &mut Arguments::command(), "rlm", &mut completions);
    if !options.install {
        return print(completions).map(|()| ExitCode::SUCCESS);
    }
    let file = place(shell, environment)?;
    let dir = file.parent().unwrap_or(Path::new("/"));
    std::fs::create_dir_all(dir)
        .and_then(|()| std::fs::write(&file, completions))
        .with_context(|| format!("cannot write {}", file.display()))?;
    tell(format_args!("rlm: the completions for {shell} are in {}; a new shell has them", file.display()));
    if shell == Shell::Zsh {
        let dir = dir.display();
        tell(format_args!("rlm: if it has not, add to ~/.zshrc, before compinit: fpath=('{dir}' $fpath)"));
    }
    Ok(ExitCode::SUCCESS)
}

fn users_shell(environment: &Environment) -> Option<Shell> {
    let path = environment.non_empty("SHELL")?;
    Shell::from_str(Path::new(path).file_name()?.to_str()?, false).ok()
}

/// The file in which a shell of this user looks for the completions.
fn place(shell: Shell, environment: &Environment) -> Result<PathBuf, Usage> {
    let (variable, default, file) = match shell {
        Shell::Bash => ("XDG_DATA_HOME", ".local/share", "bash-completion/completions/rlm"),
        Shell::Zsh => ("XDG_DATA_HOME", ".local/share", "zsh/site-functions/_rlm"),
        Shell::Fish => ("XDG_CONFIG_HOME", ".config", "fish/completions/rlm.fish"),
        other => {
            refuse!(
                "--install is for bash, zsh and fish: write the output of `rlm completions {other}` to where {other} reads it"
            );
        }
    };
    let dir = environment.user_directory(variable, default);
    let dir = dir.ok_or_else(|| Usage::new(format!("neither HOME nor {variable} is an absolute path")))?;
    Ok(dir.join(file))
}
