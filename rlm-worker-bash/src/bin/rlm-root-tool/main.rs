//! `rlm-root-tool`: calls a root tool from a shell. The session's shell functions run it.

mod arguments;
mod call;
mod query;

use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;

use nix::sys::signal::{SigHandler, Signal, signal};
use rlm_core::root_tool::print::Output;
use rlm_core::root_tool::{Call, is_query};
use rlm_core::worker::settings::Environment;

use self::arguments::{Parsed, UsageError};

/// Exit status of a call that failed.
const FAILED: u8 = 1;

/// Exit status for an invalid command line.
const USAGE_ERROR: u8 = 2;

fn main() -> ExitCode {
    // The reader of our output may stop reading, as with any other filter.
    // SAFETY: no handler is installed.
    let _default = unsafe { signal(Signal::SIGPIPE, SigHandler::SigDfl) };
    let mut arguments = std::env::args_os().skip(1);
    let tool = arguments.next().map(|tool| tool.to_string_lossy().into_owned());
    let Some(tool) = tool.filter(|tool| !tool.starts_with('-')) else {
        print_error(&format!("rlm-root-tool: expected the name of a tool\n{}", arguments::usage("TOOL")));
        return ExitCode::from(USAGE_ERROR);
    };
    match run(&tool, arguments.collect()) {
        Ok(status) => status,
        Err(Failure::Usage(usage)) => {
            print_error(&format!("{tool}: {}", usage.0));
            ExitCode::from(USAGE_ERROR)
        }
        Err(Failure::Call(message)) => {
            print_error(&format!("Error: {message}"));
            ExitCode::from(FAILED)
        }
    }
}

enum Failure {
    Usage(UsageError),
    Call(String),
}

fn run(tool: &str, arguments: Vec<OsString>) -> Result<ExitCode, Failure> {
    let Some((call, output)) = read(tool, arguments)? else {
        let text = if is_query(tool) { query::usage(tool) } else { arguments::usage(tool) };
        print(text.as_bytes()).map_err(|error| Failure::Call(error.to_string()))?;
        return Ok(ExitCode::SUCCESS);
    };
    #[expect(clippy::disallowed_methods, reason = "a main reads the environment")]
    let environment = std::env::vars_os().collect::<Environment>();
    let reply = call::send(&call, &environment).map_err(Failure::Call)?;
    let text = rlm_core::root_tool::print::reply(tool, &reply, output).map_err(Failure::Call)?;
    print(&text).map_err(|error| Failure::Call(format!("cannot write the result: {error}")))?;
    rlm_core::root_tool::print::remarks(tool, &reply).for_each(print_error);
    let lacks_answer = is_query(tool) && rlm_core::root_tool::print::lacks_answer(&reply);
    Ok(if lacks_answer { ExitCode::from(FAILED) } else { ExitCode::SUCCESS })
}

/// The call that a command line asks for; None: help is wanted.
fn read(tool: &str, arguments: Vec<OsString>) -> Result<Option<(Call, Output)>, Failure> {
    if is_query(tool) {
        return query::parse(tool, arguments).map_err(Failure::Usage);
    }
    match arguments::parse(tool, arguments).map_err(Failure::Usage)? {
        Parsed::Help => Ok(None),
        Parsed::Call(request, output) => {
            let call = request.into_call(tool).map_err(Failure::Call)?;
            Ok(Some((call, output)))
        }
    }
}

fn print(text: &[u8]) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text).and_then(|()| stdout.flush())
}

/// Prints a message on standard error.
fn print_error(line: &str) {
    // Without a standard error, the message has no reader.
    let _no_reader = writeln!(io::stderr(), "{}", line.trim_end());
}
