//! One run of a program: its input, its output within a bound, and its end.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::pin::pin;
use std::process::{Child, Command, ExitStatus, Stdio};

use nix::errno::Errno;
use nix::sys::signal::Signal;
use nix::unistd::Pid;
use rlm_core::sys::pidfd;
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncWriteExt, Interest};
use tokio::net::unix::pipe::{Receiver, Sender};

use super::spawner::Spawner;

/// Bytes that are kept of the end of stderr.
const ERROR_TAIL_BYTES: usize = 4 << 10;

/// Most bytes that are read of a stream after its program has ended: the most that a pipe holds.
const PIPE_BYTES: usize = 1 << 20;

/// The output of a program that ended by itself.
#[derive(Debug)]
pub struct ProgramOutput {
    /// The exit status of the program.
    pub status: ExitStatus,
    /// The standard output of the program.
    pub output: Vec<u8>,
    /// The end of the program's standard error.
    pub error_tail: String,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum RunError {
    #[error("cannot be started: {0}")]
    Start(#[source] io::Error),
    #[error("wrote more than {0} bytes")]
    TooMuch(usize),
    #[error("lost its connection: {0}")]
    Io(#[from] io::Error),
}

/// Runs a program to its end. Its process group is killed when it has ended, when it writes more than `max_output` bytes,
/// and when the future is dropped.
pub(super) async fn run(
    spawner: &Spawner,
    mut command: Command,
    input: Vec<u8>,
    max_output: usize,
) -> Result<ProgramOutput, RunError> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut program = spawner.spawn(command).await.map_err(RunError::Start)?;
    let ended = exit_of(program.child())?;
    let (stdin, stdout, stderr) = pipes(program.child())?;
    let mut output = Output::new(stdout, Retention::Start(max_output));
    let mut errors = Output::new(stderr, Retention::End);
    let mut writing = pin!(write_input(stdin, input));
    let mut fed = false;
    loop {
        tokio::select! {
            exited = ended.readable() => { exited?.retain_ready(); break }
            () = &mut writing, if !fed => fed = true,
            read = output.wait(), if !output.is_over => {
                read?;
                output.take()?;
            }
            read = errors.wait(), if !errors.is_over => { read?; errors.take()?; }
        }
    }
    let status = program.end()?;
    output.rest()?;
    errors.rest()?;
    let error_tail = String::from_utf8_lossy(&errors.bytes).into_owned();
    Ok(ProgramOutput { status, output: output.bytes, error_tail })
}

/// A sentence without its subject, the program.
pub(super) fn how_it_ended(status: ExitStatus) -> String {
    let signal =
        |number| Signal::try_from(number).map_or_else(|_| format!("signal {number}"), |it| it.to_string());
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exited with status {code}"),
        (None, number) => format!("was killed by {}", signal(number.unwrap_or_default())),
    }
}

/// Readable once the program has exited, before it is reaped.
pub(super) fn exit_of(child: &Child) -> io::Result<AsyncFd<OwnedFd>> {
    let descriptor = pidfd(Pid::from_raw(i32::try_from(child.id()).map_err(io::Error::other)?))?;
    // SAFETY: an `OwnedFd` is the same open descriptor until it is dropped, and the `AsyncFd` lets go of it first.
    Ok(unsafe { AsyncFd::register_with_interest(descriptor, Interest::READABLE) }?)
}

/// Standard input, output and error.
pub(super) fn pipes(child: &mut Child) -> io::Result<(Sender, Receiver, Receiver)> {
    let missing = || io::Error::other("a stream is not a pipe");
    let stdin = child.stdin.take().ok_or_else(missing)?;
    let stdout = child.stdout.take().ok_or_else(missing)?;
    let stderr = child.stderr.take().ok_or_else(missing)?;
    Ok((
        Sender::from_owned_fd(stdin.into())?,
        Receiver::from_owned_fd(stdout.into())?,
        Receiver::from_owned_fd(stderr.into())?,
    ))
}

/// Writes the input and closes the pipe.
async fn write_input(mut stdin: Sender, input: Vec<u8>) {
    // A program may end without having read its input.
    let _closed_early = stdin.write_all(&input).await;
}

enum Retention {
    Start(usize),
    End,
}

/// The output of a program on one stream.
struct Output {
    pipe: Receiver,
    keep: Retention,
    bytes: Vec<u8>,
    is_over: bool,
}

impl Output {
    fn new(pipe: Receiver, keep: Retention) -> Self {
        Self { pipe, keep, bytes: Vec::new(), is_over: false }
    }

    async fn wait(&self) -> io::Result<()> {
        self.pipe.readable().await
    }

    /// Reads a piece.
    fn take(&mut self) -> Result<(), RunError> {
        let mut piece = [0; 16 << 10];
        match self.pipe.try_read(&mut piece) {
            Ok(count) => self.add(&piece[..count]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Keeps a piece; an empty one is the end.
    fn add(&mut self, piece: &[u8]) -> Result<(), RunError> {
        self.is_over = piece.is_empty();
        self.bytes.extend_from_slice(piece);
        match self.keep {
            Retention::Start(most) if self.bytes.len() > most => return Err(RunError::TooMuch(most)),
            Retention::End if self.bytes.len() > 2 * ERROR_TAIL_BYTES => self.cut(),
            Retention::Start(_) | Retention::End => {}
        }
        Ok(())
    }

    /// Reads the rest of the pipe of a program that has ended. Another process may still hold the pipe.
    ///
    /// It reads without the runtime, which may not know yet of the last bytes.
    fn rest(&mut self) -> Result<(), RunError> {
        let mut left = PIPE_BYTES;
        let mut piece = [0; 16 << 10];
        while !self.is_over && left > 0 {
            match nix::unistd::read(&self.pipe, &mut piece) {
                Ok(count) => {
                    left = left.saturating_sub(count);
                    self.add(&piece[..count])?;
                }
                Err(Errno::EAGAIN) => break,
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(io::Error::from(errno).into()),
            }
        }
        if matches!(self.keep, Retention::End) {
            self.cut();
        }
        Ok(())
    }

    fn cut(&mut self) {
        let surplus = self.bytes.len().saturating_sub(ERROR_TAIL_BYTES);
        self.bytes.drain(..surplus);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    /// Nothing is awaited after the runtime gets the pipe.
    #[tokio::test]
    async fn the_rest_is_read_before_the_runtime_is_notified() {
        let (reader, mut writer) = io::pipe().unwrap();
        writer.write_all(b"last words").unwrap();
        let mut output = Output::new(Receiver::from_owned_fd(reader.into()).unwrap(), Retention::Start(100));
        output.rest().unwrap();
        assert_eq!((output.bytes.as_slice(), output.is_over), (&b"last words"[..], false));
    }
}
