//! `rlm-worker-bash`: a persistent bash session behind two FIFOs.

use std::ffi::OsString;
use std::fs::File;
use std::io::Write;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::path::PathBuf;
use std::process::ExitCode;

use rlm_core::control::ControlDir;
use rlm_core::env;
use rlm_core::worker::guard::HandOver;
use rlm_core::worker::log::chain;
use rlm_core::worker::settings::Environment;
use rlm_core::worker::{Channel, Events, Log, Settings, Stop, guard, serve};
use rlm_worker_bash::{BashSession, SessionConfig};

const USAGE: &str = "\
A persistent bash session for one host, driven over two named pipes.

Usage: rlm-worker-bash --control-dir DIR

Options:
  --control-dir DIR  the directory with rlm_context.json; the FIFOs rlm_cmd and rlm_res are made there
  --ready-fd N       an inherited descriptor that gets `ready` and a newline when a call can be taken
  -h, --help         this text
  -V, --version      the version

Environment: RLM_EXEC_TIMEOUT, RLM_MAX_OUTPUT_BYTES, RLM_HOST_PID, RLM_TERM, RLM_COLUMNS, RLM_ROWS, RLM_PASS_ENV,
RLM_BASH, and the root-tool variables that are passed on to the session.

Exit status: 0 after a request to shut down, 2 usage, 3 the session cannot be started or served,
128 + N after signal N.

This is not a security sandbox: the session's code runs with the rights of this process.
";

/// Exit status when the session cannot be started or served.
const CANNOT_SERVE: u8 = 3;

struct Arguments {
    control_dir: PathBuf,
    ready_fd: Option<RawFd>,
}

fn main() -> ExitCode {
    let arguments = match parse_arguments() {
        Ok(Some(arguments)) => arguments,
        Ok(None) => return ExitCode::SUCCESS,
        Err(error) => {
            tell(format_args!("rlm-worker-bash: {error}\nTry `rlm-worker-bash --help`."));
            return ExitCode::from(2);
        }
    };
    let ready = arguments.ready_fd.map(take_descriptor);
    let control = ControlDir::new(arguments.control_dir);
    let environment = std::env::vars_os().collect::<Environment>();
    let guarded = guard::guarded(
        |hand_over| run(&control, &environment, ready, hand_over),
        || {
            // The server removes the flag itself, unless it was killed. A directory that is gone holds no flag.
            let _directory_gone = control.clear_ready();
        },
    );
    guarded.unwrap_or_else(|errno| {
        tell(format_args!("rlm-worker-bash: cannot start: {errno}"));
        ExitCode::from(CANNOT_SERVE)
    })
}

/// Serves until the end, and says in the log why it came.
fn run(
    control: &ControlDir,
    environment: &Environment,
    ready: Option<OwnedFd>,
    hand_over: HandOver,
) -> ExitCode {
    let mut log = match control.open_log() {
        Ok(file) => Log::new(Some(file)),
        Err(error) => {
            tell(format_args!("rlm-worker-bash: {}", chain(&error)));
            return ExitCode::from(CANNOT_SERVE);
        }
    };
    let stop = start_and_serve(control, environment, ready, hand_over, &mut log);
    let code = match &stop {
        Stop::Shutdown | Stop::HostGone => ExitCode::SUCCESS,
        Stop::Signalled(signal) => ExitCode::from(128 + *signal as u8),
        Stop::Failed(_) => ExitCode::from(CANNOT_SERVE),
    };
    log.line(chain(&stop));
    if matches!(stop, Stop::Failed(_)) {
        tell(format_args!("rlm-worker-bash: {}", chain(&stop)));
    }
    code
}

fn start_and_serve(
    control: &ControlDir,
    environment: &Environment,
    ready: Option<OwnedFd>,
    hand_over: HandOver,
    log: &mut Log,
) -> Stop {
    let prepared = prepare(control, environment, hand_over);
    let (config, events) = match prepared {
        Ok(prepared) => prepared,
        Err(stop) => return stop,
    };
    // The FIFOs come first: a host that restarts a worker may not wait for the ready flag.
    let mut channel = match Channel::open(control) {
        Ok(channel) => channel,
        Err(stop) => return stop,
    };
    let mut session = match BashSession::start(config, &events) {
        Ok(session) => session,
        Err(stop) => {
            rlm_core::worker::descendants::end_all();
            return stop;
        }
    };
    let on_ready = || {
        if let Some(ready) = ready {
            // A host that no longer listens is not waiting either.
            let _not_listening = File::from(ready).write_all(b"ready\n");
        }
    };
    let stop = serve(&mut session, control, &mut channel, &events, log, on_ready);
    if let Err(error) = control.clear_ready() {
        log.line(chain(&error));
    }
    if !session.close() {
        log.line("some processes of the session could not be ended");
    }
    stop
}

fn prepare(
    control: &ControlDir,
    environment: &Environment,
    hand_over: HandOver,
) -> Result<(SessionConfig, Events), Stop> {
    let settings = Settings::from_environment(environment).map_err(Stop::failed)?;
    let size = |text: &str| text.parse::<u16>().ok().filter(|size| *size > 0);
    let expected = "a number from 1 to 65535";
    let rows = environment.parse(env::ROWS, expected, size).map_err(Stop::failed)?;
    let columns = environment.parse(env::COLUMNS, expected, size).map_err(Stop::failed)?;
    let context = control.read_context().map_err(Stop::failed)?;
    let mut session_env = settings.session_env;
    let term = environment.get(env::TERM).map_or_else(|| OsString::from("dumb"), OsString::from);
    session_env.retain(|(name, _)| name != "TERM");
    session_env.push(("TERM".into(), term));
    let events = Events::new(settings.host_pid, hand_over)?;
    let config = SessionConfig {
        bash: environment.path(env::BASH).unwrap_or_else(|| find_bash(environment)),
        fs_root: context.fs_root,
        env: session_env,
        exec_timeout: settings.exec_timeout,
        max_output_bytes: settings.max_output_bytes,
        rows: rows.unwrap_or(24),
        columns: columns.unwrap_or(80),
    };
    Ok((config, events))
}

/// The bash on the worker's own `PATH`.
fn find_bash(environment: &Environment) -> PathBuf {
    let path = environment.get("PATH").unwrap_or_default();
    let found = std::env::split_paths(path).map(|dir| dir.join("bash")).find(|bash| bash.is_file());
    found.unwrap_or_else(|| PathBuf::from("/bin/bash"))
}

fn parse_arguments() -> Result<Option<Arguments>, lexopt::Error> {
    use lexopt::prelude::*;
    let (mut control_dir, mut ready_fd) = (None, None);
    let mut parser = lexopt::Parser::from_env();
    while let Some(argument) = parser.next()? {
        match argument {
            Long("control-dir") => control_dir = Some(PathBuf::from(parser.value()?)),
            Long("ready-fd") => ready_fd = Some(parser.value()?.parse::<RawFd>()?),
            Short('h') | Long("help") => {
                print(USAGE);
                return Ok(None);
            }
            Short('V') | Long("version") => {
                print(&format!("rlm-worker-bash {}\n", std::env!("CARGO_PKG_VERSION")));
                return Ok(None);
            }
            other => return Err(other.unexpected()),
        }
    }
    let control_dir = control_dir.ok_or("missing option '--control-dir DIR'")?;
    Ok(Some(Arguments { control_dir, ready_fd }))
}

/// Takes over the descriptor that the host named.
fn take_descriptor(fd: RawFd) -> OwnedFd {
    // SAFETY: the host named this descriptor as ours; nothing else in this process knows it.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// Writes for people. Where nobody listens, nothing is lost: a failure is in the log too.
fn print(text: &str) {
    let _nobody_listens = std::io::stdout().write_all(text.as_bytes());
}

fn tell(message: impl std::fmt::Display) {
    let _nobody_listens = writeln!(std::io::stderr(), "{message}");
}
