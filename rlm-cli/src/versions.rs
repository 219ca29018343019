//! `rlm --version --verbose`.

use std::ffi::OsString;
use std::process::ExitCode;

use crate::environment::Environment;
use crate::standard_output::print;
use crate::worker;

/// The file beside the programs that says what an `rlm` of one file was made of.
const VERSIONS: &str = "versions";

/// Reports whether the arguments ask for all versions.
pub(crate) fn are_asked(arguments: impl Iterator<Item = OsString>) -> bool {
    let mut arguments: Vec<_> = arguments.collect();
    arguments.sort();
    arguments == ["--verbose", "--version"] || arguments == ["--verbose", "-V"]
}

/// Prints the version, where the programs are, and what they were made of.
pub(crate) fn show(environment: &Environment) -> anyhow::Result<ExitCode> {
    let programs = worker::programs(environment)?;
    let made_of = std::fs::read_to_string(programs.join(VERSIONS)).unwrap_or_default();
    let version = env!("CARGO_PKG_VERSION");
    let text = format!("rlm {version}\nprograms in {}\n{made_of}", programs.display());
    print(text).map(|()| ExitCode::SUCCESS)
}
