//! The bash process, and the pipes and files between it and the worker.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::{Pid, pipe2, read};
use rlm_core::shell::quoted;
use rlm_core::sys::waiting_bytes;
use rlm_core::worker::pipes::{Pipe, memory_file, path_of};
use rlm_core::worker::{Process, ResourceLimits};

use crate::driver::{Call, Paths, SCRIPT_COUNT, Scripts};
use crate::terminal::{self, Terminal, TerminalError, random};

/// A code file larger than this is truncated after the call to free its memory.
const KEEP_CODE_BYTES: usize = 256 << 10;

/// A shell that could not be started.
#[derive(Debug, thiserror::Error)]
pub enum ShellError {
    /// The terminal cannot be used.
    #[error(transparent)]
    Terminal(#[from] TerminalError),
    /// Bash cannot be started.
    #[error("cannot start {} in {}", bash.display(), cwd.display())]
    Start {
        /// Path of the program.
        bash: PathBuf,
        /// Working directory.
        cwd: PathBuf,
        /// Error of the system.
        #[source]
        source: io::Error,
    },
    /// The pipes and files cannot be created.
    #[error("cannot create the pipes to the shell")]
    Pipes(#[source] io::Error),
    /// Bash is too old for the driver.
    #[error("{} is older than bash 4.4, the oldest supported version", bash.display())]
    TooOld {
        /// Path of the program.
        bash: PathBuf,
    },
}

/// The pipes and files, one set for the life of the worker: the driver's texts contain their paths.
#[derive(Debug)]
pub(crate) struct Pipes {
    commands: Option<OwnedFd>,
    commands_writer: OwnedFd,
    report: Pipe,
    quiet: Pipe,
    code: File,
    code_bytes: usize,
    state: File,
    /// Kept open for the shell to read.
    _script_files: Vec<File>,
    pub(crate) scripts: Scripts,
}

impl Pipes {
    pub(crate) fn new(terminal: &Terminal) -> io::Result<Self> {
        let (commands, commands_writer) = pipe2(OFlag::O_CLOEXEC)?;
        let (report, quiet) = (Pipe::new()?, Pipe::new()?);
        let (code, state) = (memory_file()?, memory_file()?);
        let script_files = (0..SCRIPT_COUNT).map(|_| memory_file()).collect::<io::Result<Vec<File>>>()?;
        let paths = Paths {
            commands: path_of(commands.as_raw_fd()),
            report: report.path(),
            quiet: quiet.path(),
            code: path_of(code.as_raw_fd()),
            state: path_of(state.as_raw_fd()),
            terminal: quoted(&terminal.name().to_string_lossy()),
            scripts: std::array::from_fn(|at| path_of(script_files[at].as_raw_fd())),
            key: format!("{:016x}", random()),
        };
        let scripts = Scripts::new(paths);
        for (file, text) in script_files.iter().zip(&scripts.files) {
            file.write_all_at(text.as_bytes(), 0)?;
        }
        Ok(Self {
            commands: Some(commands),
            commands_writer,
            report,
            quiet,
            code,
            code_bytes: 0,
            state,
            _script_files: script_files,
            scripts,
        })
    }

    /// True if the shell waits for more commands, and has not reported: its standard input is our pipe, which is empty and which it reads.
    pub(crate) fn is_waited_for(&self, shell: Pid) -> bool {
        let Some(commands) = &self.commands else { return false };
        let mut fds = [PollFd::new(commands.as_fd(), PollFlags::POLLIN)];
        let is_empty = poll(&mut fds, PollTimeout::ZERO) == Ok(0);
        let pipe = |path: String| std::fs::read_link(path).ok();
        let ours = pipe(format!("/proc/self/fd/{}", commands.as_raw_fd()));
        let reads_it = is_empty && ours.is_some() && ours == pipe(format!("/proc/{shell}/fd/0"));
        // Whatever it has reported is here by then.
        reads_it && reads_standard_input(shell) && matches!(waiting_bytes(self.report()), Ok(0))
    }

    /// True if commands were sent that no shell has read.
    pub(crate) fn has_unread_commands(&self) -> Result<bool, Errno> {
        self.commands.as_ref().map_or(Ok(false), |commands| Ok(waiting_bytes(commands)? > 0))
    }

    /// Polls readable when part of a report has arrived.
    pub(crate) fn report(&self) -> BorrowedFd<'_> {
        self.report.reader()
    }

    /// Writes the file of a call, which the shell reads when the call's lines are sent.
    pub(crate) fn write_file(&mut self, call: &Call) -> io::Result<()> {
        if self.code_bytes > KEEP_CODE_BYTES {
            self.code.set_len(0)?;
        }
        self.code.write_all_at(&call.file, 0)?;
        self.code_bytes = call.file.len();
        Ok(())
    }

    /// Sends lines to the shell in one write, so that it reads them in one piece.
    pub(crate) fn send_lines(&self, lines: &str) -> io::Result<()> {
        nix::unistd::write(&self.commands_writer, lines.as_bytes())?;
        Ok(())
    }

    /// Writes the state that a new shell sources to take over from the old one.
    pub(crate) fn write_state(&self, state: &[u8]) -> io::Result<()> {
        self.state.set_len(0)?;
        self.state.write_all_at(state, 0)
    }

    /// The beginning of the file with the state.
    pub(crate) fn read_state(&self, bytes: u64) -> io::Result<Vec<u8>> {
        let mut state = vec![0; usize::try_from(bytes).map_err(io::Error::other)?];
        self.state.read_exact_at(&mut state, 0)?;
        Ok(state)
    }

    pub(crate) fn state_file(&self) -> &File {
        &self.state
    }

    /// Appends new data from the report pipe, without waiting.
    pub(crate) fn read_report(&self, report: &mut Vec<u8>) -> Result<(), Errno> {
        self.report.read_available(report)
    }

    /// Appends new data from the quiet pipe, without waiting.
    pub(crate) fn read_quiet(&self, quiet: &mut Vec<u8>) -> Result<(), Errno> {
        self.quiet.read_available(quiet)
    }

    /// Discards commands that an old shell did not read and reports that it did not finish.
    fn renew(&mut self) -> io::Result<()> {
        let mut stale = Vec::new();
        self.read_report(&mut stale)?;
        self.read_quiet(&mut stale)?;
        let commands = self.commands.take().ok_or(io::ErrorKind::NotConnected)?;
        let flags = OFlag::from_bits_truncate(nix::fcntl::fcntl(&commands, nix::fcntl::FcntlArg::F_GETFL)?);
        nix::fcntl::fcntl(&commands, nix::fcntl::FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK))?;
        let mut buffer = [0; 4096];
        while matches!(read(&commands, &mut buffer), Ok(count) if count > 0) {}
        nix::fcntl::fcntl(&commands, nix::fcntl::FcntlArg::F_SETFL(flags))?;
        self.commands = Some(commands);
        Ok(())
    }
}

/// Starts bash on the terminal, reading its commands from the command pipe.
pub(crate) fn start(
    bash: &Path,
    env: &[(OsString, OsString)],
    resource_limits: &ResourceLimits,
    terminal: &Terminal,
    pipes: &mut Pipes,
    cwd: &Path,
) -> Result<Process, ShellError> {
    pipes.renew().map_err(ShellError::Pipes)?;
    let commands = pipes.commands.as_ref().map(OwnedFd::try_clone).transpose();
    let commands =
        commands.map_err(ShellError::Pipes)?.ok_or(ShellError::Pipes(io::ErrorKind::NotConnected.into()))?;
    let output = terminal.slave_for_child()?;
    let errors = output.try_clone().map_err(ShellError::Pipes)?;
    let mut command = Command::new(bash);
    command
        .arg0("bash")
        .args(["--noprofile", "--norc", "--noediting", "-i"])
        .env_clear()
        .envs(env.iter().map(|(name, value)| (name, value)))
        // Nothing to print or load until the set-up unsets them.
        .env("PS1", "")
        .env("HISTFILE", "")
        .env("PWD", cwd)
        .current_dir(cwd)
        .stdin(Stdio::from(commands))
        .stdout(output)
        .stderr(errors);
    // SAFETY: taking the terminal is one system call.
    let started = unsafe { Process::spawn(&mut command, resource_limits, || terminal::take_terminal(1)) };
    started.map_err(|source| ShellError::Start { bash: bash.to_owned(), cwd: cwd.to_owned(), source })
}

/// The reader for which a shell reads its standard input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reads {
    /// The shell itself, for commands.
    Commands,
    /// The code, such as the builtin `read`.
    Input,
}

/// The reader for which a shell waits for input. Bash 5.2 reads commands 1,024 bytes at a time, and input of its builtins from
/// a terminal 4,096 or one. Where the two cannot be told apart, in an older bash or on some systems, it may be commands.
pub(crate) fn reads(shell: Pid) -> Option<Reads> {
    let Ok(call) = system_call(shell) else { return Some(Reads::Commands) };
    let mut words = call.split(' ');
    (words.next()? == libc::SYS_read.to_string()).then_some(())?;
    Some(if ["0x1", "0x1000"].contains(&words.nth(2)?) { Reads::Input } else { Reads::Commands })
}

/// False if the shell is at something else than a read of its standard input.
fn reads_standard_input(shell: Pid) -> bool {
    system_call(shell).map_or(true, |call| call.starts_with(&format!("{} 0x0 ", libc::SYS_read)))
}

/// Number and arguments of the system call in which a shell waits: of a read the descriptor, the buffer and its size.
fn system_call(shell: Pid) -> io::Result<String> {
    std::fs::read_to_string(format!("/proc/{shell}/syscall"))
}

/// Asks another bash whether code is complete. False if it cannot be asked.
pub(crate) fn is_complete(code: &str, bash: &Path) -> bool {
    let ask = || -> io::Result<bool> {
        let file = memory_file()?;
        file.write_all_at(code.as_bytes(), 0)?;
        let checked = Command::new(bash)
            .args(["--noprofile", "--norc", "-n", "-O", "extglob"])
            .arg(path_of(file.as_raw_fd()))
            .env_clear()
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .output()?;
        Ok(checked.status.success() && checked.stderr.is_empty())
    };
    !code.trim_end().ends_with('\\') && ask().unwrap_or(false)
}
