//! The `main` of a worker: arguments, the two processes, the ready flag, and the exit status.

use std::cell::Cell;
use std::io::Write as _;
use std::os::fd::{BorrowedFd, FromRawFd as _, OwnedFd, RawFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::process::ExitCode;

use nix::fcntl::OFlag;
use nix::libc;
use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};
use nix::sys::signal::Signal;

use super::events::Events;
use super::fork_server::{self, Accepted, Entered, Request};
use super::guard::{self, Confining};
use super::interpreter::Program;
use super::log::{Log, print_error};
use super::responses;
use super::run::{CANNOT_SERVE, Origin, remove_cgroup, run};
use super::settings::{self, Environment, Settings};
use crate::control::ControlDir;
use crate::env;
use crate::memory::OUT_OF_MEMORY;
use crate::protocol::Confine;
use crate::sys::keep_variables;

/// Exit status for an invalid command line.
const USAGE_ERROR: u8 = 2;

/// Exit status of a Rust program that panicked.
const PANICKED: i32 = 101;

struct Arguments<P> {
    program: P,
    control_dir: PathBuf,
    ready_fd: Option<RawFd>,
}

/// Runs a worker from its command line to its end. Must be called while the process has one thread.
pub fn main<P: Program>() -> ExitCode {
    let arguments = match parse_arguments::<P>() {
        Ok(Some(arguments)) => arguments,
        Ok(None) => return ExitCode::SUCCESS,
        Err(error) => {
            print_error(format_args!("{}: {error}\nTry `{0} --help`.", P::NAME));
            return ExitCode::from(USAGE_ERROR);
        }
    };
    let Arguments { program, control_dir, ready_fd } = arguments;
    let ready = ready_fd.map(take_descriptor);
    // A confined server has another working directory.
    let control = ControlDir::new(std::path::absolute(&control_dir).unwrap_or(control_dir));
    #[expect(clippy::disallowed_methods, reason = "a main reads the environment")]
    let environment = {
        let passed = std::env::var_os(env::PASS_ENV).unwrap_or_default();
        let passed = passed.to_string_lossy();
        // SAFETY: this process has one thread, and has read no other variable.
        unsafe { keep_variables(|name| env::is_of_workers(&String::from_utf8_lossy(name), &passed)) };
        std::env::vars_os().collect::<Environment>()
    };
    // The server, which reads all variables, reports a value that cannot be used.
    let confine = settings::confine(&environment).unwrap_or_default();
    let control = if confine == Confine::Off { control } else { control.without_links() };
    let host = Settings::host(&environment).unwrap_or_default();
    let fork_server = program.fork_server(&environment);
    let why_not = Cell::new(None);
    let ask = |flag: BorrowedFd<'_>| {
        let (name, variables) = fork_server?;
        let asked = if confine == Confine::Off {
            let mut environment = environment.clone();
            for (variable, value) in variables {
                environment.set(variable, value);
            }
            let request = Request { control_dir: control.path(), environment: &environment };
            // SAFETY: it is open for as long as this process guards a server.
            let ready = ready_fd.map(|fd| unsafe { BorrowedFd::borrow_raw(fd) });
            fork_server::ask(&name, &request, flag, ready)
        } else {
            Err("the session is confined, and has namespaces or rules of its own".to_owned())
        };
        asked.map_err(|reason| why_not.set(Some(reason))).ok()
    };
    let guarded = guard::run_guarded(
        confine,
        host,
        ready_fd,
        ask,
        |above, confining| {
            let (confinement, why_not) = ((confine, confining), why_not.take());
            ExitCode::from(run(
                program,
                &control,
                &environment,
                ready,
                above,
                confinement,
                Origin::None(why_not),
            ))
        },
        |status| {
            // The server removes the flag itself, unless it was killed. A server that could not go on may have lost its place to
            // another worker, whose flag this is then. If the directory is gone, so is the flag.
            if status != i32::from(CANNOT_SERVE) {
                let _directory_gone = control.clear_ready();
                let _none = std::fs::remove_dir_all(control.tmp_dir());
            }
            // A host that waits at a FIFO to which the server could not open a writer sees end of file now.
            let _nobody_waits = responses::open_writer(&control.response_fifo(), OFlag::O_NONBLOCK);
            remove_cgroup(&environment);
            after_server(P::NAME, &control, status)
        },
    );
    guarded.unwrap_or_else(|errno| {
        print_error(format_args!("{}: cannot start: {errno}", P::NAME));
        ExitCode::from(CANNOT_SERVE)
    })
}

/// Serves a session in a process that a fork server has just forked, and ends it. `check` says why an interpreter like this process
/// cannot serve a session with these variables.
pub fn serve_forked<P: Program>(
    program: P,
    accepted: Accepted,
    check: impl FnOnce(&Environment) -> Option<String>,
) -> ! {
    // A panic must not go on in the interpreter whose process this is.
    let served = catch_unwind(AssertUnwindSafe(|| {
        let Some(Entered { control_dir, environment, ready, above, link, saved }) = accepted.enter(check)
        else {
            return 0;
        };
        let control = ControlDir::new(control_dir);
        let unconfined = (Confine::Off, Confining::No);
        let origin = saved.map_or(Origin::ForkServer, |saved| Origin::Session(saved.into()));
        let status = run(program, &control, &environment, ready, above, unconfined, origin);
        fork_server::tell_status(&link, status.into());
        status
    }));
    // SAFETY: a plain integer; nothing runs after it.
    unsafe { libc::_exit(served.map_or(PANICKED, i32::from)) }
}

/// Logs how the server ended if it could not do so itself. Returns the exit status of the worker.
fn after_server(program: &'static str, control: &ControlDir, status: i32) -> ExitCode {
    let status = u8::try_from(status).unwrap_or(u8::MAX);
    let killed_by = status.checked_sub(128).and_then(|signal| Signal::try_from(i32::from(signal)).ok());
    // Signals that the server handles are in its log.
    let killed_by = killed_by.filter(|signal| !Events::signals().contains(*signal));
    if status != OUT_OF_MEMORY && killed_by.is_none() {
        return ExitCode::from(status);
    }
    let mut log = control.open_log().map(|file| Log::new(program, file));
    let mut fail = |message: &str| match &mut log {
        Ok(log) => log.failure(message),
        Err(_directory_gone) => print_error(format_args!("{program}: {message}")),
    };
    match killed_by {
        Some(signal) => {
            fail(&format!("the serving process was ended by {signal}"));
            ExitCode::from(status)
        }
        None => {
            fail(&format!("cannot continue: out of memory; {}", address_space_limit()));
            ExitCode::from(CANNOT_SERVE)
        }
    }
}

/// The limit of this process's address space, in words.
fn address_space_limit() -> String {
    match getrlimit(Resource::RLIMIT_AS) {
        Ok((bytes, _)) if bytes != RLIM_INFINITY => {
            format!("the address space of a process is limited to {bytes} bytes (RLIMIT_AS)")
        }
        _ => "the address space of a process has no limit (RLIMIT_AS)".to_owned(),
    }
}

fn parse_arguments<P: Program>() -> Result<Option<Arguments<P>>, lexopt::Error> {
    use lexopt::prelude::*;
    let (mut program, mut control_dir, mut ready_fd) = (P::default(), None, None);
    let mut parser = lexopt::Parser::from_env();
    while let Some(argument) = parser.next()? {
        match argument {
            Long("control-dir") => control_dir = Some(PathBuf::from(parser.value()?)),
            Long("ready-fd") => ready_fd = Some(parser.value()?.parse::<RawFd>()?),
            Short('h') | Long("help") => {
                print(P::USAGE);
                return Ok(None);
            }
            Short('V') | Long("version") => {
                print(&format!("{} {}\n", P::NAME, std::env!("CARGO_PKG_VERSION")));
                return Ok(None);
            }
            Long(name) => {
                let name = name.to_owned();
                let mut missing = None;
                let value = || parser.value().map_err(|error| missing = Some(error)).ok();
                if !program.option(&name, value) {
                    return Err(lexopt::Error::UnexpectedOption(format!("--{name}")));
                }
                if let Some(error) = missing {
                    return Err(error);
                }
            }
            other => return Err(other.unexpected()),
        }
    }
    let control_dir = control_dir.ok_or("missing option '--control-dir DIR'")?;
    Ok(Some(Arguments { program, control_dir, ready_fd }))
}

/// Takes ownership of the descriptor that the host passed.
fn take_descriptor(fd: RawFd) -> OwnedFd {
    // SAFETY: the host passed us this descriptor; nothing else in this process knows it.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// Prints for people. If nobody reads, nothing is lost: failures are logged too.
fn print(text: &str) {
    let _nobody_listens = std::io::stdout().write_all(text.as_bytes());
}
