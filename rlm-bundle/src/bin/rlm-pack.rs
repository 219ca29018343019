//! `rlm-pack`: makes the bundle, at build time.

use std::path::PathBuf;
use std::process::ExitCode;

use lexopt::prelude::*;

const USAGE: &str = "\
Usage: rlm-pack [--level N] CARRIER DIRECTORY OUT

Writes OUT: the program CARRIER, and all below DIRECTORY, packed by zstd at a level from 1 to 22 (19 by default).
";

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            #[expect(clippy::print_stderr, reason = "a main says why it fails")]
            {
                eprint!("rlm-pack: {error}\n\n{USAGE}");
            }
            ExitCode::from(2)
        }
    }
}

fn run() -> Result<(), lexopt::Error> {
    let mut arguments = lexopt::Parser::from_env();
    let (mut level, mut paths) = (19, Vec::<PathBuf>::new());
    while let Some(argument) = arguments.next()? {
        match argument {
            Long("level") => level = arguments.value()?.parse()?,
            Value(path) => paths.push(path.into()),
            other => return Err(other.unexpected()),
        }
    }
    let [carrier, directory, out] = &paths[..] else { return Err("expected three paths".into()) };
    rlm_bundle::pack(carrier, directory, out, level)
        .map_err(|error| format!("cannot make the bundle: {error}").into())
}
