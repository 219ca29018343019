//! One bash process, and the pipes and files by which the worker speaks with it.

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
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::{Pid, pipe2, read};
use rlm_core::worker::descendants;

use crate::driver::{Call, Paths, SCRIPT_COUNT, Scripts, path_of, quote};
use crate::terminal::{self, Terminal, TerminalError};

/// A code file larger than this is given back to the system after the call.
const KEEP_CODE_BYTES: usize = 256 << 10;

/// Why there is no shell.
#[derive(Debug, thiserror::Error)]
pub enum ShellError {
    /// The terminal cannot be used.
    #[error(transparent)]
    Terminal(#[from] TerminalError),
    /// Bash cannot be started.
    #[error("cannot start {} in {}", bash.display(), cwd.display())]
    Start {
        /// The program.
        bash: PathBuf,
        /// Where it should have started.
        cwd: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Pipes and files cannot be made.
    #[error("cannot make the pipes to the shell")]
    Pipes(#[source] io::Error),
    /// Bash started and ended before it was set up.
    #[error("{} ended with status {status} before it was ready; its last words: {words:?}", bash.display())]
    EndedEarly {
        /// The program.
        bash: PathBuf,
        /// Its exit status, as a shell shows it.
        status: i32,
        /// What it printed.
        words: String,
    },
    /// Bash does not understand the driver.
    #[error("{} is older than 4.4, the first that will do", bash.display())]
    TooOld {
        /// The program.
        bash: PathBuf,
    },
    /// Bash started and did not report.
    #[error("{} did not report within {} s; its last words: {words:?}", bash.display(), limit.as_secs())]
    Mute {
        /// The program.
        bash: PathBuf,
        /// How long it was waited for.
        limit: std::time::Duration,
        /// What it printed.
        words: String,
    },
}

/// How a shell is started.
#[derive(Clone, Debug)]
pub(crate) struct ShellConfig {
    pub(crate) bash: PathBuf,
    pub(crate) env: Vec<(OsString, OsString)>,
}

/// The pipes and files, one set for the life of the worker: their paths stand in the driver's texts.
#[derive(Debug)]
pub(crate) struct Wires {
    commands: Option<OwnedFd>,
    commands_writer: OwnedFd,
    report: Pipe,
    quiet: Pipe,
    code: File,
    code_bytes: usize,
    state: File,
    /// Held open for the shell to read.
    _script_files: Vec<File>,
    pub(crate) scripts: Scripts,
    pub(crate) paths: Paths,
}

/// A pipe that the shell writes to. We hold both ends, so that it never reports end of file.
#[derive(Debug)]
struct Pipe {
    reader: OwnedFd,
    writer: OwnedFd,
}

impl Pipe {
    fn new() -> io::Result<Self> {
        let (reader, writer) = pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK)?;
        Ok(Self { reader, writer })
    }

    /// Appends what has arrived, without waiting.
    fn read_available(&self, bytes: &mut Vec<u8>) -> Result<(), Errno> {
        let mut buffer = [0; 8192];
        loop {
            match read(&self.reader, &mut buffer) {
                Ok(count) => {
                    bytes.extend_from_slice(&buffer[..count]);
                    if count < buffer.len() {
                        return Ok(());
                    }
                }
                Err(Errno::EAGAIN) => return Ok(()),
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(errno),
            }
        }
    }
}

impl Wires {
    pub(crate) fn new(terminal: &Terminal) -> io::Result<Self> {
        let (commands, commands_writer) = pipe2(OFlag::O_CLOEXEC)?;
        let (report, quiet) = (Pipe::new()?, Pipe::new()?);
        let (code, state) = (memory_file()?, memory_file()?);
        let script_files = (0..SCRIPT_COUNT).map(|_| memory_file()).collect::<io::Result<Vec<File>>>()?;
        let paths = Paths {
            commands: path_of(commands.as_raw_fd()),
            report: path_of(report.writer.as_raw_fd()),
            quiet: path_of(quiet.writer.as_raw_fd()),
            code: path_of(code.as_raw_fd()),
            state: path_of(state.as_raw_fd()),
            terminal: quote(&terminal.name().to_string_lossy()),
            scripts: std::array::from_fn(|at| path_of(script_files[at].as_raw_fd())),
        };
        let scripts = Scripts::new(paths.clone());
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
            paths,
        })
    }

    /// Whether the shell waits for commands that were not sent: its standard input is our pipe, and that is empty.
    pub(crate) fn is_waited_for(&self, shell: Pid) -> bool {
        let Some(commands) = &self.commands else { return false };
        let mut fds = [PollFd::new(commands.as_fd(), PollFlags::POLLIN)];
        let is_empty = poll(&mut fds, PollTimeout::ZERO) == Ok(0);
        let pipe = |path: String| std::fs::read_link(path).ok();
        let ours = pipe(format!("/proc/self/fd/{}", commands.as_raw_fd()));
        is_empty && ours.is_some() && ours == pipe(format!("/proc/{shell}/fd/0"))
    }

    /// Where the shell's reports arrive.
    pub(crate) fn report(&self) -> BorrowedFd<'_> {
        self.report.reader.as_fd()
    }

    /// Hands a call to the shell.
    pub(crate) fn send(&mut self, call: &Call) -> io::Result<()> {
        if self.code_bytes > KEEP_CODE_BYTES {
            self.code.set_len(0)?;
        }
        self.code.write_all_at(&call.file, 0)?;
        self.code_bytes = call.file.len();
        self.send_lines(&call.lines)
    }

    /// Hands lines to the shell, in one write: it reads them in one piece.
    pub(crate) fn send_lines(&self, lines: &str) -> io::Result<()> {
        nix::unistd::write(&self.commands_writer, lines.as_bytes())?;
        Ok(())
    }

    /// Writes the text that a new shell sources to become like the old one.
    pub(crate) fn write_state(&self, state: &[u8]) -> io::Result<()> {
        self.state.set_len(0)?;
        self.state.write_all_at(state, 0)
    }

    /// Appends what has arrived of the report, without waiting.
    pub(crate) fn read_report(&self, report: &mut Vec<u8>) -> Result<(), Errno> {
        self.report.read_available(report)
    }

    /// Appends what has arrived on the quiet pipe, without waiting.
    pub(crate) fn read_quiet(&self, quiet: &mut Vec<u8>) -> Result<(), Errno> {
        self.quiet.read_available(quiet)
    }

    /// Throws away what an old shell left unread or unsaid.
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

/// A file in memory: no disk can be full, and nothing is left behind.
fn memory_file() -> io::Result<File> {
    Ok(File::from(memfd_create(c"rlm", MFdFlags::MFD_CLOEXEC)?))
}

/// A running bash. Dropping it leaves the process alone: the worker's end sweeps all descendants.
#[derive(Debug)]
pub(crate) struct Shell {
    pid: Pid,
    pidfd: OwnedFd,
    status: Option<i32>,
}

impl Shell {
    /// Starts bash on the terminal, its commands coming from the command pipe.
    pub(crate) fn start(
        config: &ShellConfig,
        terminal: &Terminal,
        wires: &mut Wires,
        cwd: &Path,
    ) -> Result<Self, ShellError> {
        wires.renew().map_err(ShellError::Pipes)?;
        let worker = Pid::this();
        let commands = wires.commands.as_ref().map(OwnedFd::try_clone).transpose();
        let commands = commands
            .map_err(ShellError::Pipes)?
            .ok_or(ShellError::Pipes(io::ErrorKind::NotConnected.into()))?;
        let output = terminal.slave_for_child()?;
        let errors = output.try_clone().map_err(ShellError::Pipes)?;
        let mut command = Command::new(&config.bash);
        command
            .arg0("bash")
            .args(["--noprofile", "--norc", "--noediting", "-i"])
            .env_clear()
            .envs(config.env.iter().map(|(name, value)| (name, value)))
            // Nothing to print and nothing to load before the set-up unsets them.
            .env("PS1", "")
            .env("HISTFILE", "")
            .env("PWD", cwd)
            .current_dir(cwd)
            .stdin(Stdio::from(commands))
            .stdout(output)
            .stderr(errors);
        // SAFETY: between fork and exec the closure makes system calls only.
        unsafe { command.pre_exec(move || prepare_child(worker)) };
        let child = command.spawn().map_err(|source| ShellError::Start {
            bash: config.bash.clone(),
            cwd: cwd.to_owned(),
            source,
        })?;
        let pid = Pid::from_raw(i32::try_from(child.id()).unwrap_or(0));
        let pidfd = descendants::pidfd(pid).map_err(|errno| ShellError::Pipes(errno.into()))?;
        Ok(Self { pid, pidfd, status: None })
    }

    pub(crate) fn pid(&self) -> Pid {
        self.pid
    }

    /// Polls readable once the shell is dead.
    pub(crate) fn pidfd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }

    /// The status of a shell that is dead, as a shell shows it. May be asked again.
    pub(crate) fn status(&mut self) -> Option<i32> {
        if self.status.is_none() {
            self.status = match descendants::try_reap(self.pid) {
                Ok(status) => status,
                Err(Errno::EINTR) => None,
                // Reaped by nobody but us; an error means that there is nothing to wait for.
                Err(_) => Some(-1),
            };
        }
        self.status
    }

    /// Lets a stopped shell go on.
    pub(crate) fn let_go_on(&self) {
        let flags = WaitPidFlag::WSTOPPED | WaitPidFlag::WNOHANG;
        if let Ok(WaitStatus::Stopped(..)) = waitid(Id::Pid(self.pid), flags) {
            // It may be dying just now; it is still ours, being unreaped.
            let _dying = kill(self.pid, Signal::SIGCONT);
        }
    }

    /// Signals the shell alone. A dead shell is never signalled: its pid may be somebody else's.
    pub(crate) fn signal(&mut self, signal: Signal) {
        if self.status().is_none() {
            // It may be dying just now; it is still ours, being unreaped. A stopped one acts only when it goes on.
            let _dying = kill(self.pid, signal).and_then(|()| kill(self.pid, Signal::SIGCONT));
        }
    }
}

/// What a child needs before it becomes bash: a session with our terminal, signals as a fresh program expects them, and
/// death with its worker. Async-signal-safe.
fn prepare_child(worker: Pid) -> io::Result<()> {
    // The kernel's own struct sigaction, all zero: default action, no flags, empty mask. The C library's function would
    // refuse the two signals that it keeps for itself, and a host may have left those ignored too.
    let default = [0_u64; 4];
    for number in 1..=64 {
        // SAFETY: the pointer is to a live array that is as large as the kernel's struct; SIGKILL and SIGSTOP fail, and
        // nothing is written.
        unsafe {
            libc::syscall(libc::SYS_rt_sigaction, number, default.as_ptr(), std::ptr::null_mut::<u64>(), 8)
        };
    }
    // SAFETY: an empty set is initialised by sigemptyset before it is used.
    unsafe {
        let mut none = std::mem::zeroed::<libc::sigset_t>();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
    }
    nix::unistd::setsid()?;
    terminal::take_terminal(1)?;
    descendants::tie_to_parent(worker, Signal::SIGKILL)?;
    Ok(())
}
