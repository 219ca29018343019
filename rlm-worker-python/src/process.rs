//! The interpreter process, and the pipes and files between it and the worker.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command as Program, Stdio};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::unistd::{Pid, pipe2, read, write};
use rlm_core::sys::waiting_bytes;
use rlm_core::worker::pipes::{Pipe, memory_file, path_of};
use rlm_core::worker::resources::Entry;
use rlm_core::worker::{HeadTail, LiveOutput, Process, ResourceLimits, descendants};

use crate::wire::{Command, PipePaths};

/// File name of the engine, which is in the worker's directory.
pub const ENGINE: &str = "librlm_cell_engine.so";

/// The interpreter's first lines of code.
pub(crate) const BOOT: &str = include_str!("boot.py");

/// A payload file larger than this is truncated after the call to free its memory.
const KEEP_PAYLOAD_BYTES: usize = 256 << 10;

/// Requested size of the session's output pipes: the larger, the less often a printing cell has to wait for us.
const OUTPUT_PIPE_BYTES: i32 = 1 << 20;

/// Bytes of an output that are read at a time.
const READ_BYTES: usize = 64 << 10;

/// Bytes of one output that are read before others get their turn.
const READ_TURN_BYTES: usize = 4 << 20;

/// An interpreter that could not be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The engine is missing.
    #[error(
        "cannot find the cell engine {}: it must be next to the worker program, where `cargo build --workspace` puts it",
        engine.display()
    )]
    NoEngine {
        /// Expected path.
        engine: PathBuf,
    },
    /// Python cannot be executed.
    #[error("cannot start {} in {}", python.display(), cwd.display())]
    Start {
        /// Path of the program.
        python: PathBuf,
        /// Working directory.
        cwd: PathBuf,
        /// Error of the system.
        #[source]
        source: io::Error,
    },
    /// The process cannot be forked.
    #[error("cannot fork an interpreter in {}", cwd.display())]
    Fork {
        /// Working directory.
        cwd: PathBuf,
        /// Error of the system.
        #[source]
        source: io::Error,
    },
    /// The pipes and files cannot be created or used.
    #[error("cannot create the pipes to the interpreter")]
    Pipes(#[source] io::Error),
}

/// The pipes and files, one set for the life of the worker.
#[derive(Debug)]
pub(crate) struct Pipes {
    commands: OwnedFd,
    commands_writer: OwnedFd,
    payload: File,
    payload_bytes: usize,
    pub(crate) report: Pipe,
    pub(crate) stdout: Pipe,
    pub(crate) stderr: Pipe,
    buffer: Vec<u8>,
}

impl Pipes {
    pub(crate) fn new() -> io::Result<Self> {
        let (commands, commands_writer) = pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK)?;
        let [report, stdout, stderr] = [Pipe::new()?, Pipe::new()?, Pipe::new()?];
        // A smaller pipe works too, with more waiting.
        let _too_many_pipes = fcntl(stdout.reader(), FcntlArg::F_SETPIPE_SZ(OUTPUT_PIPE_BYTES));
        Ok(Self {
            commands,
            commands_writer,
            payload: memory_file()?,
            payload_bytes: 0,
            report,
            stdout,
            stderr,
            buffer: vec![0; READ_BYTES],
        })
    }

    pub(crate) fn paths(&self) -> PipePaths {
        PipePaths {
            commands: path_of(self.commands.as_raw_fd()),
            payload: path_of(self.payload.as_raw_fd()),
            report: self.report.path(),
            stdout: self.stdout.path(),
            stderr: self.stderr.path(),
        }
    }

    /// Writes the payload of a command, which the engine reads when the command is sent.
    pub(crate) fn write_payload(&mut self, payload: &[u8]) -> io::Result<()> {
        if self.payload_bytes > KEEP_PAYLOAD_BYTES {
            self.payload.set_len(0)?;
        }
        self.payload.write_all_at(payload, 0)?;
        self.payload_bytes = payload.len();
        Ok(())
    }

    /// The file of the payload, for a state: its memory is freed before the next payload.
    pub(crate) fn lend_payload(&mut self) {
        self.payload_bytes = usize::MAX;
    }

    pub(crate) fn payload(&self) -> &File {
        &self.payload
    }

    /// Sends a command to the engine.
    pub(crate) fn send(&self, command: Command) -> io::Result<()> {
        write(&self.commands_writer, &command.encode())?;
        Ok(())
    }

    /// True if the engine has not read the command yet.
    pub(crate) fn has_unread_command(&self) -> Result<bool, Errno> {
        Ok(waiting_bytes(&self.commands)? > 0)
    }

    /// Appends new data of a report, without waiting.
    pub(crate) fn read_report(&self, report: &mut Vec<u8>) -> Result<(), Errno> {
        self.report.read_available(report)
    }

    /// Reads the session's output: at most one turn's worth, as it may print without end.
    pub(crate) fn read_outputs(&mut self, outputs: &mut Outputs) -> Result<(), Errno> {
        read_at_most(&self.stdout, READ_TURN_BYTES, &mut self.buffer, &mut outputs.stdout)?;
        read_at_most(&self.stderr, READ_TURN_BYTES, &mut self.buffer, &mut outputs.stderr)
    }

    /// Reads the data that is in the pipes now, and nothing that arrives later.
    pub(crate) fn drain_outputs(&mut self, outputs: &mut Outputs) -> Result<(), Errno> {
        let waiting = [waiting_bytes(self.stdout.reader())?, waiting_bytes(self.stderr.reader())?];
        read_at_most(&self.stdout, waiting[0], &mut self.buffer, &mut outputs.stdout)?;
        read_at_most(&self.stderr, waiting[1], &mut self.buffer, &mut outputs.stderr)
    }

    /// Discards commands that an old interpreter did not read and reports that it did not finish.
    pub(crate) fn renew(&self) -> Result<(), Errno> {
        self.read_report(&mut Vec::new())?;
        let mut buffer = [0; 256];
        loop {
            match read(&self.commands, &mut buffer) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => return Ok(()),
                Err(errno) => return Err(errno),
            }
        }
    }
}

/// The session's output.
#[derive(Debug)]
pub(crate) struct Outputs {
    pub(crate) stdout: HeadTail,
    pub(crate) stderr: HeadTail,
}

impl Outputs {
    pub(crate) fn new(limit: usize) -> Self {
        Self { stdout: HeadTail::new(limit), stderr: HeadTail::new(limit) }
    }

    pub(crate) fn watch(&mut self, live: &LiveOutput) {
        self.stdout.watch(live.stdout());
        self.stderr.watch(live.stderr());
    }

    pub(crate) fn set_limit(&mut self, limit: usize) {
        self.stdout.set_limit(limit);
        self.stderr.set_limit(limit);
    }
}

fn read_at_most(
    pipe: &Pipe,
    mut limit: usize,
    buffer: &mut [u8],
    output: &mut HeadTail,
) -> Result<(), Errno> {
    while limit > 0 {
        let most = limit.min(buffer.len());
        match read(pipe.reader(), &mut buffer[..most]) {
            Ok(count) => {
                output.push(&buffer[..count]);
                limit -= count;
                if count < most {
                    return Ok(());
                }
            }
            Err(Errno::EAGAIN) => return Ok(()),
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// Starts Python with the engine in a directory.
pub(crate) fn start(
    python: &Path,
    engine: &Path,
    env: &[(OsString, OsString)],
    resource_limits: &ResourceLimits,
    paths: PipePaths,
    cwd: &Path,
) -> Result<Process, StartError> {
    if !engine.is_file() {
        return Err(StartError::NoEngine { engine: engine.to_owned() });
    }
    let open = |path: &str| File::options().write(true).open(path).map_err(StartError::Pipes);
    let (stdout, stderr) = (open(&paths.stdout)?, open(&paths.stderr)?);
    let mut command = Program::new(python);
    command
        .args(["-I", "-i", "-c", BOOT])
        .arg(engine)
        .args(paths.into_arguments())
        .env_clear()
        .envs(env.iter().map(|(name, value)| (name, value)))
        .env("PWD", cwd)
        .current_dir(cwd)
        .stdin(Stdio::null())
        .stdout(stdout)
        .stderr(stderr);
    // SAFETY: nothing runs between fork and exec.
    let started = unsafe { Process::spawn(&mut command, resource_limits, || Ok(())) };
    started.map_err(|source| StartError::Start { python: python.to_owned(), cwd: cwd.to_owned(), source })
}

/// A function that forks an interpreter from this process, and returns its process id. It never returns in the new one.
pub type Fork = fn(&Place<'_>) -> io::Result<Pid>;

/// The forking of interpreters in place of starting them.
#[derive(Clone, Copy, Debug)]
pub struct Forking {
    /// Forks one.
    pub fork: Fork,
    /// True if only the first interpreter is forked, which has the state of another session. Those after it begin anew.
    pub is_for_the_first: bool,
}

/// The place of an interpreter that is forked.
#[derive(Debug)]
pub struct Place<'a> {
    /// The pipes to this process.
    pub paths: &'a PipePaths,
    /// Environment of the session, complete.
    pub env: &'a [(OsString, OsString)],
    /// Working directory.
    pub cwd: &'a Path,
    /// The way to the session's limits.
    pub entry: Entry,
}

/// Forks an interpreter in a directory.
pub(crate) fn fork(
    fork: Fork,
    env: &[(OsString, OsString)],
    resource_limits: &ResourceLimits,
    paths: &PipePaths,
    cwd: &Path,
) -> Result<Process, StartError> {
    let start = || Process::adopt(fork(&Place { paths, env, cwd, entry: resource_limits.entry()? })?);
    start().map_err(|source| StartError::Fork { cwd: cwd.to_owned(), source })
}

/// An identity of the program that a process runs: its addresses, which change when it executes another one. None if
/// the kernel does not reveal them.
pub(crate) fn image(pid: Pid) -> Option<[u64; 3]> {
    const START_OF_CODE: usize = 26;
    const END_OF_CODE: usize = 27;
    const START_OF_STACK: usize = 28;
    let image = descendants::stat_fields(pid, [START_OF_CODE, END_OF_CODE, START_OF_STACK])?;
    (image[2] != 0).then_some(image)
}
