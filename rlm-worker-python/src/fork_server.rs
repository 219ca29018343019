//! The start of a fork server: this program becomes the interpreter from which others are forked.
//!
//! The rest is in the cell engine, which [`Arguments`] tell what to do. See [`rlm_core::worker::fork_server`].

use std::ffi::OsString;
use std::fs;
use std::io::{self, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, FromRawFd as _, IntoRawFd as _, OwnedFd, RawFd};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, ExitCode};

use nix::libc;
use nix::sys::socket::{AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, listen, socket};
use rlm_core::error::with_causes;
use rlm_core::worker::process::reset_signals;
use rlm_core::worker::settings::{Environment, Settings};
use rlm_core::{env, programs};

use crate::process::{BOOT, ENGINE};
use crate::python::Python;

/// The option, and the engine's first argument.
pub const OPTION: &str = "--fork-server";

/// Exit status for an invalid command line.
const USAGE_ERROR: u8 = 2;

/// Exit status if the fork server cannot be started.
const CANNOT_SERVE: u8 = 3;

/// Most bytes that preloads may print.
const PRINTED_BYTES: i32 = 1 << 20;

/// Sessions that wait for their turn.
const BACKLOG: i32 = 4096;

/// The arguments of the engine of a fork server: descriptors by number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arguments {
    /// The socket that listens.
    pub listener: RawFd,
    /// Its end of file ends the fork server.
    pub owner: RawFd,
    /// Standard error of whoever started it. The standard streams are pipes like those of a session.
    pub errors: RawFd,
    /// Gets `ready` and a newline. -1: nobody waits.
    pub ready: RawFd,
    /// The output of preloads can be read here.
    pub printed: RawFd,
    /// True if the process has started anew.
    pub is_renewed: bool,
    /// Path of the program that runs.
    pub python: String,
    /// Servers that the program before this one has forked: process ids, and connections to guards.
    pub servers: Vec<(i32, RawFd)>,
    /// Modules to import.
    pub preload: Vec<String>,
}

impl Arguments {
    fn into_arguments(self) -> Vec<String> {
        let Self { listener, owner, errors, ready, printed, is_renewed, python, servers, preload } = self;
        let numbers = [listener, owner, errors, ready, printed, is_renewed.into()].map(|fd| fd.to_string());
        let servers = servers.iter().map(|(pid, link)| format!("{pid} {link} ")).collect::<String>();
        let words = [OPTION.to_owned()].into_iter().chain(numbers).chain([python, servers]);
        words.chain(preload).collect()
    }

    /// The inverse: None if these are the arguments of a session's interpreter.
    #[must_use]
    pub fn from_arguments(arguments: &[String]) -> Option<Self> {
        let [option, listener, owner, errors, ready, printed, is_renewed, python, servers, preload @ ..] =
            arguments
        else {
            return None;
        };
        if option != OPTION {
            return None;
        }
        let fd = |text: &String| text.parse::<RawFd>().ok();
        let numbers: Vec<i32> = servers.split_whitespace().filter_map(|number| number.parse().ok()).collect();
        Some(Self {
            listener: fd(listener)?,
            owner: fd(owner)?,
            errors: fd(errors)?,
            ready: fd(ready)?,
            printed: fd(printed)?,
            is_renewed: is_renewed == "1",
            python: python.clone(),
            servers: numbers.as_chunks().0.iter().map(|[pid, link]| (*pid, *link)).collect(),
            preload: preload.to_vec(),
        })
    }

    /// Has this process become the interpreter of a fork server, in this environment. Returns why it cannot.
    ///
    /// The streams are pipes, as those of a session: Python looks at them once, when it starts.
    #[must_use]
    pub fn execute(
        mut self,
        engine: &Path,
        variables: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> io::Error {
        let place = |arguments: &mut Self| -> io::Result<()> {
            let (printed, output) = io::pipe()?;
            // A smaller pipe works too, for modules that print less.
            let _too_many_pipes =
                nix::fcntl::fcntl(&output, nix::fcntl::FcntlArg::F_SETPIPE_SZ(PRINTED_BYTES));
            arguments.printed = keep(printed.into())?;
            let nothing = fs::File::open("/dev/null")?;
            for (fd, stream) in [(nothing.as_raw_fd(), 0), (output.as_raw_fd(), 1), (output.as_raw_fd(), 2)] {
                // SAFETY: plain integers; this process uses its streams no more.
                nix::errno::Errno::result(unsafe { libc::dup2(fd, stream) })?;
            }
            Ok(())
        };
        if let Err(error) = place(&mut self) {
            return error;
        }
        let python = self.python.clone();
        let mut command = Command::new(python);
        command.args(["-I", "-i", "-c", BOOT]).arg(engine).args(self.into_arguments());
        command.env_clear().envs(variables).exec()
    }
}

/// Runs the fork server, if the command line asks for one. None: it asks for a session.
#[must_use]
pub fn main() -> Option<ExitCode> {
    let has = |option: &str| std::env::args_os().any(|argument| argument == option);
    if !has(OPTION) || has("--help") || has("-h") {
        return None;
    }
    let (status, error) = match parse_arguments() {
        Ok((name, python, ready)) => {
            // SAFETY: it was passed for this, and stays open until Python is executed.
            let ready = ready.map(|fd| unsafe { BorrowedFd::borrow_raw(fd) });
            match execute(&name, python, ready) {
                Ok(never) => match never {},
                Err(error) => (CANNOT_SERVE, error),
            }
        }
        Err(error) => (USAGE_ERROR, format!("{error}\nTry `rlm-worker-python --help`.")),
    };
    let _nobody_listens = writeln!(io::stderr(), "rlm-worker-python: {error}");
    Some(ExitCode::from(status))
}

fn parse_arguments() -> Result<(String, Option<OsString>, Option<RawFd>), lexopt::Error> {
    use lexopt::prelude::*;
    let (mut name, mut python, mut ready) = (None, None, None);
    let mut parser = lexopt::Parser::from_env();
    while let Some(argument) = parser.next()? {
        match argument {
            Long("fork-server") => name = Some(parser.value()?.string()?),
            Long("python") => python = Some(parser.value()?),
            Long("ready-fd") => ready = Some(parser.value()?.parse::<u16>()?.into()),
            other => return Err(other.unexpected()),
        }
    }
    Ok((name.ok_or("missing option '--fork-server NAME'")?, python, ready))
}

/// Executes Python, as a session's interpreter is executed.
fn execute(
    name: &str,
    python: Option<OsString>,
    ready: Option<BorrowedFd<'_>>,
) -> Result<std::convert::Infallible, String> {
    #[expect(clippy::disallowed_methods, reason = "a main reads the environment")]
    let environment = std::env::vars_os().collect::<Environment>();
    let in_words = |error: &dyn std::error::Error| with_causes(error);
    let settings = Settings::from_environment(&environment).map_err(|error| in_words(&error))?;
    let programs = programs::directory(environment.path(env::BIN_DIR).as_deref());
    let programs = programs.map_err(|error| in_words(&error))?;
    let engine = programs.join(ENGINE);
    let python = Python::find(python, &environment, &programs).map_err(|error| in_words(&error))?;
    let mut session_env = settings.session_env;
    python.activate(&mut session_env);
    let listener = open_listener(name).map_err(|error| match error.kind() {
        io::ErrorKind::AddrInUse => format!("there is a fork server of the name {name} already"),
        _ => format!("cannot listen at the name {name}: {error}"),
    })?;
    let arguments = || -> io::Result<Arguments> {
        Ok(Arguments {
            listener: keep(listener)?,
            owner: keep(io::stdin().as_fd().try_clone_to_owned()?)?,
            errors: keep(io::stderr().as_fd().try_clone_to_owned()?)?,
            ready: ready.map_or(Ok(-1), |fd| keep(fd.try_clone_to_owned()?))?,
            printed: -1,
            is_renewed: false,
            python: python.program.to_string_lossy().into_owned(),
            servers: Vec::new(),
            preload: environment.names(env::PYTHON_PRELOAD),
        })
    };
    let arguments = arguments().map_err(|error| in_words(&error))?;
    if let Some(ready) = ready.filter(|fd| fd.as_raw_fd() > 2) {
        let _closed_when_executed =
            nix::fcntl::fcntl(ready, nix::fcntl::FcntlArg::F_SETFD(nix::fcntl::FdFlag::FD_CLOEXEC));
    }
    let errors = arguments.errors;
    reset_signals();
    // A terminal's signals are for the owner.
    let _leads_a_group_already = nix::unistd::setsid();
    let error = arguments.execute(&engine, session_env);
    // SAFETY: plain integers.
    unsafe { libc::dup2(errors, 2) };
    Err(format!("cannot execute {}: {error}", python.program.display()))
}

/// A socket that listens at a name, for processes of this machine.
///
/// # Errors
/// [`io::ErrorKind::AddrInUse`]: there is another one of that name.
pub fn open_listener(name: &str) -> io::Result<OwnedFd> {
    let listener = socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::SOCK_CLOEXEC, None)?;
    bind(listener.as_raw_fd(), &UnixAddr::new_abstract(name.as_bytes())?)?;
    listen(&listener, Backlog::new(BACKLOG)?)?;
    Ok(listener)
}

/// The number of a descriptor that stays open when this process executes another program.
///
/// # Errors
/// The process is out of descriptors.
pub fn keep(fd: OwnedFd) -> io::Result<RawFd> {
    // Above the standard streams, which are replaced.
    // SAFETY: plain integers.
    let kept = nix::errno::Errno::result(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_DUPFD, 10) })?;
    drop(fd);
    // SAFETY: the kernel has just made this descriptor, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(kept) }.into_raw_fd())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_survive_the_round_trip() {
        let python = "/usr/bin/python3".to_owned();
        let (servers, preload) = (vec![(70, 14), (80, 15)], vec!["numpy".to_owned(), "pandas".to_owned()]);
        let arguments = Arguments {
            listener: 10,
            owner: 11,
            errors: 12,
            ready: -1,
            printed: 13,
            is_renewed: true,
            python,
            servers,
            preload,
        };
        assert_eq!(Arguments::from_arguments(&arguments.clone().into_arguments()), Some(arguments));
        assert_eq!(Arguments::from_arguments(&["/proc/1/fd/3".to_owned()]), None);
    }
}
