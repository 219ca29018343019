//! `rlm-rootd`: the endpoint as a process of its own.

use std::process::ExitCode;

use clap::Parser as _;
use rlm_rootd::daemon;

fn main() -> ExitCode {
    rlm_rootd::free_large_values_at_once();
    #[expect(clippy::disallowed_methods, reason = "a main reads the environment")]
    let environment = std::env::vars_os().collect();
    daemon::run(&daemon::Arguments::parse(), &environment)
}
