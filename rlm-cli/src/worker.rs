//! The workers' programs, and `rlm worker`.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Once;

use anyhow::{Context, bail};
use rlm_core::env;
use rlm_env::{ReplLanguage, SessionConfig};

use crate::arguments::{SessionOptions, WorkerOptions};
use crate::environment::Environment;
use crate::tell;
use crate::usage::refuse;

/// Replaces this process by the worker of the language.
pub(crate) fn run(options: &WorkerOptions, environment: &Environment) -> anyhow::Result<ExitCode> {
    let names_python = options.rest.iter().any(|option| option.as_encoded_bytes().starts_with(b"--python"));
    let program = find(options.language, names_python, environment)?;
    let failed =
        Command::new(&program).arg("--control-dir").arg(&options.control_dir).args(&options.rest).exec();
    Err(failed).with_context(|| format!("cannot start {}", program.display()))
}

/// The worker program of a language: next to this one, or on `PATH`. `names_python`: an option or a setting names the Python of its sessions.
pub(crate) fn find(
    language: ReplLanguage,
    names_python: bool,
    environment: &Environment,
) -> anyhow::Result<PathBuf> {
    let name = language.worker_name();
    let here = programs(environment)?;
    if language == ReplLanguage::Python && !names_python {
        tell_of_builtin(&here, environment);
    }
    let beside = here.join(name);
    if beside.is_file() {
        return Ok(beside);
    }
    match on_path(name, environment) {
        Some(program) => Ok(program),
        None => bail!(
            "cannot find {name} at {} or on PATH: build the workspace, or install it there",
            beside.display()
        ),
    }
}

/// The directory of the programs.
pub(crate) fn programs(environment: &Environment) -> anyhow::Result<PathBuf> {
    let given = environment.non_empty(env::BIN_DIR).map(Path::new);
    rlm_core::programs::directory(given).context("cannot find the path of this program")
}

/// Says, once, that the built-in Python stands in for one that is missing.
fn tell_of_builtin(programs: &Path, environment: &Environment) {
    static TOLD: Once = Once::new();
    let is_named = [env::PYTHON, "VIRTUAL_ENV"].iter().any(|name| environment.non_empty(name).is_some());
    let on_path = on_path("python3", environment);
    if !is_named && rlm_core::programs::needed_builtin(programs, on_path.as_deref()).is_some() {
        TOLD.call_once(|| {
            tell("rlm: no CPython 3.10 or newer on PATH: the built-in one is used unless one is named")
        });
    }
}

fn on_path(name: &str, environment: &Environment) -> Option<PathBuf> {
    let path = environment.get("PATH").unwrap_or_default();
    std::env::split_paths(path).map(|dir| dir.join(name)).find(|program| program.is_file())
}

/// The absolute path of `--workdir`.
pub(crate) fn working_directory(workdir: &Path) -> anyhow::Result<PathBuf> {
    let path = workdir
        .canonicalize()
        .with_context(|| format!("cannot use the working directory {}", workdir.display()))?;
    anyhow::ensure!(path.is_dir(), "the working directory {} is not a directory", workdir.display());
    Ok(path)
}

/// The configuration of the session that the options describe.
pub(crate) fn session_config(
    options: &SessionOptions,
    environment: &Environment,
) -> anyhow::Result<SessionConfig> {
    let fs_root = working_directory(&options.workdir)?;
    let mut variables = environment.to_list();
    let python = options.python().map(|python| [OsString::from("--python"), python.into()]);
    if options.final_functions {
        if options.language() == ReplLanguage::Bash {
            refuse!("--final-functions: a bash session has no function FINAL: add --python");
        }
        env::set(&mut variables, env::FINAL_FUNCTIONS, "1");
    }
    Ok(SessionConfig {
        arguments: python.into_iter().flatten().collect(),
        env: variables,
        exec_timeout: options.call_timeout,
        max_output_bytes: options.max_output_bytes,
        ..SessionConfig::new(find(options.language(), options.python().is_some(), environment)?, fs_root)
    })
}
