//! The worker's ends of the two FIFOs.
//!
//! A reader of the command FIFO is open from before the ready flag until the end, without a gap: hosts open it
//! non-blocking and take "no reader" for a dead worker. After end of file a fresh reader is opened before the old one is
//! closed; a fresh one does not poll as hung up until a writer has come and gone, so an idle worker sleeps.
//!
//! The response FIFO is opened when there is something to write. If nobody has it open for reading, a thread waits for the
//! host to open it, since the kernel offers no other event for that, while the worker still handles signals and the session's
//! output.
//!
//! The writer stays open until somebody has begun to read the response. Only then is it sure that the reader is the host's:
//! a process that the host forks has a copy of the host's last reader until it executes its program, and a host may close a
//! reader and open another. A response that such a reader leaves behind lies in the FIFO as long as the writer is open, and
//! the next reader finds it. Without a writer it would be lost with its last reader; or, where another reader is there, the
//! host could open the FIFO and get the text, but the kernel would never tell it of the end of the file.
//!
//! None of this uses inotify: the kernel takes up to 25 ms to remove a watch, and has 128 for each user.

use std::fs::OpenOptions;
use std::io::{self, BufWriter, PipeReader, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::libc;
use nix::poll::{PollFd, PollFlags};
use nix::unistd::{read, write};

use super::events::{self, Events, Wake};
use super::exit::Exit;
use super::interpreter::Interpreter;
use super::supervisor::Supervisor;
use crate::control::ControlDir;
use crate::frame::{Decoder, Frame};
use crate::limits::MAX_REQUEST_BYTES;
use crate::protocol::Response;
use crate::sys::waiting_bytes;

/// Bytes read from the command FIFO at a time; also what a FIFO holds.
const READ_BYTES: usize = 64 << 10;

/// Size asked for the response FIFO when a response does not fit into the default 64 KiB.
const LARGE_PIPE_BYTES: i32 = 1 << 20;

/// Time for which the worker stays awake for the host to read a response: several times the time to wake a host.
const WAKEFUL_TIME: Duration = Duration::from_micros(100);

/// Number of responses for which it does not stay awake after one that was not read in that time.
const DROWSY_RESPONSES: u32 = 50;

/// Stack of the thread that waits for a host to open the response FIFO; it makes one system call.
const OPENER_STACK_BYTES: usize = 64 << 10;

/// A FIFO that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("cannot {operation} {}", path.display())]
pub struct ChannelError {
    operation: &'static str,
    path: PathBuf,
    #[source]
    source: io::Error,
}

/// The result of a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// The host has it, or the kernel has it for the host.
    Done,
    /// The host closed its end early. Nothing is left to do for this request.
    GivenUp,
}

/// The worker's ends of the FIFOs.
#[derive(Debug)]
pub struct Channel {
    commands: OwnedFd,
    command_path: PathBuf,
    response_path: PathBuf,
    decoder: Decoder,
    buffer: Vec<u8>,
    /// Signals deletions in the control directory as long as it is open. None if the system has no dnotify.
    _directory: Option<OwnedFd>,
    /// Responses for which the worker does not stay awake.
    drowsy: u32,
}

impl Channel {
    /// Makes the FIFOs and opens the reader.
    ///
    /// # Errors
    /// The control directory cannot be used.
    pub fn open(control: &ControlDir) -> Result<Self, Exit> {
        control.make_fifos().map_err(Exit::failed)?;
        let command_path = control.command_fifo();
        let commands = open_reader(&command_path)?;
        let response_path = control.response_fifo();
        let directory = events::signal_deletions(control.path()).ok();
        Ok(Self {
            commands,
            command_path,
            response_path,
            decoder: Decoder::new(MAX_REQUEST_BYTES),
            buffer: vec![0; READ_BYTES],
            _directory: directory,
            drowsy: 0,
        })
    }

    /// Waits for the next request document, or for what comes in its place.
    ///
    /// # Errors
    /// [`Exit`] as soon as the worker has to end.
    pub fn next_frame(
        &mut self,
        events: &Events,
        session: &mut Supervisor<impl Interpreter>,
    ) -> Result<Frame, Exit> {
        // The last call may have removed it: then a request that has come since is not read, and so not run.
        Self::find_removal(&[&self.command_path], events)?;
        loop {
            if let Some(frame) = self.decoder.next_frame() {
                return Ok(frame);
            }
            match self.read()? {
                Read::Some => continue,
                Read::End => {
                    if let Some(frame) = self.decoder.end_of_stream() {
                        return Ok(frame);
                    }
                }
                Read::Nothing => {
                    if let Some(frame) = self.decoder.stalled_garbage() {
                        return Ok(frame);
                    }
                    self.wait_for_bytes(events, session)?;
                }
            }
        }
    }

    fn wait_for_bytes(
        &mut self,
        events: &Events,
        session: &mut Supervisor<impl Interpreter>,
    ) -> Result<(), Exit> {
        loop {
            let fds = vec![PollFd::new(self.commands.as_fd(), PollFlags::POLLIN)];
            // An interrupt without a call to interrupt is nothing.
            let Wake { interrupt: _, ready } = wait(fds, events, session)?;
            Self::find_removal(&[&self.command_path], events)?;
            if ready[0] {
                return Ok(());
            }
        }
    }

    /// Stops if one of these FIFOs is gone. They are looked for only after something in their directory was deleted.
    fn find_removal(paths: &[&Path], events: &Events) -> Result<(), Exit> {
        if events.take_deletion() {
            for path in paths {
                path.symlink_metadata().map_err(|source| failed("serve", path, source))?;
            }
        }
        Ok(())
    }

    /// Stops if no host can read the response any more.
    fn find_removal_before_response(&self, events: &Events) -> Result<(), Exit> {
        Self::find_removal(&[&self.command_path, &self.response_path], events)
    }

    /// Reads once without waiting.
    fn read(&mut self) -> Result<Read, Exit> {
        match read(&self.commands, &mut self.buffer) {
            Ok(0) => {
                // The order matters: the new reader is there before the old one goes.
                self.commands = open_reader(&self.command_path)?;
                Ok(if self.decoder.is_between_documents() { Read::Nothing } else { Read::End })
            }
            Ok(count) => {
                self.decoder.push(&self.buffer[..count]);
                Ok(Read::Some)
            }
            Err(Errno::EAGAIN) => Ok(Read::Nothing),
            Err(Errno::EINTR) => Ok(Read::Some),
            Err(errno) => Err(failed("read", &self.command_path, errno.into())),
        }
    }

    /// Delivers one response: open, write, close. Its text is never in memory as a whole.
    ///
    /// # Errors
    /// [`Exit`] as soon as the worker has to end.
    pub fn respond(
        &mut self,
        response: &Response,
        events: &Events,
        session: &mut Supervisor<impl Interpreter>,
    ) -> Result<Delivery, Exit> {
        let mut delivery =
            ResponseWriter { fifo: None, channel: self, events, session, writes: 0, written: 0, fault: None };
        let mut writer = BufWriter::with_capacity(READ_BYTES, &mut delivery);
        let written = serde_json::to_writer(&mut writer, response).map_err(io::Error::from);
        let written = written.and_then(|()| writer.flush());
        // After an error its rest has no reader.
        drop(writer.into_parts());
        match (delivery.fault.take(), written) {
            (None, Ok(())) => delivery.wait_until_begun().map(|()| Delivery::Done),
            (Some(Fault::Exit(exit)), _) => Err(exit),
            (Some(Fault::Errno(Errno::EPIPE)), _) => Ok(Delivery::GivenUp),
            (Some(Fault::Errno(errno)), _) => Err(failed("write to", &self.response_path, errno.into())),
            (None, Err(error)) => Err(Exit::failed(error)),
        }
    }

    fn open_for_response(
        &mut self,
        events: &Events,
        session: &mut Supervisor<impl Interpreter>,
    ) -> Result<OwnedFd, Exit> {
        let fifo = match open_writer(&self.response_path, OFlag::O_NONBLOCK) {
            Ok(fifo) => fifo,
            Err(error) if error.raw_os_error() == Some(libc::ENXIO) => {
                self.wait_for_reader(events, session)?
            }
            Err(error) => return Err(failed("open", &self.response_path, error)),
        };
        // The host waits for this response now, so everything that it wrote is there: the rest of an unframed piece too.
        while self.decoder.in_reported_garbage() && matches!(self.read()?, Read::Some) {
            self.decoder.skip_garbage();
        }
        self.decoder.resync();
        Ok(fifo)
    }

    /// Waits until the host opens the response FIFO for reading. Nobody has it open.
    fn wait_for_reader(
        &mut self,
        events: &Events,
        session: &mut Supervisor<impl Interpreter>,
    ) -> Result<OwnedFd, Exit> {
        let (opened, signal): (PipeReader, _) = io::pipe().map_err(Exit::failed)?;
        let path = self.response_path.clone();
        // Not joined if the worker stops first: the thread then ends with the process.
        let opener = thread::Builder::new()
            .stack_size(OPENER_STACK_BYTES)
            .spawn(move || {
                let fifo = loop {
                    match open_writer(&path, OFlag::empty()) {
                        Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                        result => break result,
                    }
                };
                drop(signal);
                fifo
            })
            .map_err(Exit::failed)?;
        loop {
            let mut fds = vec![PollFd::new(opened.as_fd(), PollFlags::POLLIN)];
            // A host that is still writing an unreadable request has to finish that before it reads.
            if self.decoder.in_reported_garbage() {
                fds.push(PollFd::new(self.commands.as_fd(), PollFlags::POLLIN));
            }
            if wait(fds, events, session)?.ready[0] {
                break;
            }
            self.find_removal_before_response(events)?;
            if self.decoder.in_reported_garbage() {
                if let Read::End = self.read()? {
                    self.decoder.resync();
                }
                self.decoder.skip_garbage();
            }
        }
        let fifo = opener
            .join()
            .map_err(|_panic| Exit::failed("the thread that opens the response FIFO panicked"))?;
        let fifo = fifo.map_err(|source| failed("open", &self.response_path, source))?;
        fcntl(&fifo, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        Ok(fifo)
    }
}

/// Writes to the response FIFO, which is opened at the first write, and waits for a slower host.
struct ResponseWriter<'a, I> {
    fifo: Option<OwnedFd>,
    channel: &'a mut Channel,
    events: &'a Events,
    session: &'a mut Supervisor<I>,
    /// A response that takes a second write is larger than the default FIFO.
    writes: u64,
    /// Bytes written.
    written: usize,
    /// The error of the last write.
    fault: Option<Fault>,
}

enum Fault {
    Exit(Exit),
    Errno(Errno),
}

impl From<Exit> for Fault {
    fn from(exit: Exit) -> Self {
        Self::Exit(exit)
    }
}

impl<I: Interpreter> ResponseWriter<'_, I> {
    fn write_some(&mut self, bytes: &[u8]) -> Result<usize, Fault> {
        let mut fifo = match self.fifo.take() {
            Some(fifo) => fifo,
            None => self.channel.open_for_response(self.events, self.session)?,
        };
        self.writes += 1;
        if self.writes == 2 {
            // A smaller FIFO works as well, with more system calls.
            let _too_many_pipes = fcntl(&fifo, FcntlArg::F_SETPIPE_SZ(LARGE_PIPE_BYTES));
        }
        let count = loop {
            match write(&fifo, bytes) {
                Ok(count) => break count,
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => {
                    wait(vec![PollFd::new(fifo.as_fd(), PollFlags::POLLOUT)], self.events, self.session)?;
                }
                Err(Errno::EPIPE) if self.is_unread(&fifo)? => {
                    fifo = self.channel.wait_for_reader(self.events, self.session)?;
                }
                Err(errno) => return Err(Fault::Errno(errno)),
            }
        };
        self.written += count;
        self.fifo = Some(fifo);
        Ok(count)
    }

    /// True if nobody has read any of the bytes written.
    fn is_unread(&self, fifo: &OwnedFd) -> Result<bool, Exit> {
        Ok(waiting_bytes(fifo)? >= self.written)
    }

    /// Waits until somebody has begun to read the response.
    fn wait_until_begun(&mut self) -> Result<(), Exit> {
        let Some(mut fifo) = self.fifo.take() else { return Ok(()) };
        if self.is_read_soon(&fifo)? {
            return Ok(());
        }
        loop {
            events::signal_reads(&fifo)?;
            // Checked after the signal is set up: the response may have been read before.
            if !self.is_unread(&fifo)? {
                return Ok(());
            }
            // Without any reader the FIFO polls as broken.
            let fds = vec![PollFd::new(fifo.as_fd(), PollFlags::empty())];
            let has_no_reader = wait(fds, self.events, self.session)?.ready[0];
            self.channel.find_removal_before_response(self.events)?;
            if has_no_reader && self.is_unread(&fifo)? {
                fifo = self.channel.wait_for_reader(self.events, self.session)?;
            }
        }
    }

    /// Stays awake for the moment in which most hosts begin to read: they get the end of the file sooner. If one does not, the
    /// next responses go without, for the processors are busy.
    fn is_read_soon(&mut self, fifo: &OwnedFd) -> Result<bool, Exit> {
        if let Some(left) = self.channel.drowsy.checked_sub(1) {
            self.channel.drowsy = left;
            return Ok(false);
        }
        let asleep_at = Instant::now() + WAKEFUL_TIME;
        while self.is_unread(fifo)? {
            if Instant::now() >= asleep_at {
                self.channel.drowsy = DROWSY_RESPONSES;
                return Ok(false);
            }
            thread::yield_now();
        }
        Ok(true)
    }
}

impl<I: Interpreter> Write for ResponseWriter<'_, I> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_some(bytes).map_err(|fault| {
            self.fault = Some(fault);
            io::ErrorKind::Other.into()
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Waits until one of these descriptors is ready, or a signal has come, and handles the session's output.
fn wait(
    fds: Vec<PollFd<'_>>,
    events: &Events,
    session: &mut Supervisor<impl Interpreter>,
) -> Result<Wake, Exit> {
    let given = fds.len();
    let mut fds = fds;
    session.poll_fds(&mut fds);
    let wake = events.wait(fds, None)?;
    session.maintain(&wake.ready[given..])?;
    Ok(wake)
}

enum Read {
    Some,
    Nothing,
    End,
}

fn open_reader(path: &Path) -> Result<OwnedFd, Exit> {
    OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC)
        .open(path)
        .map(OwnedFd::from)
        .map_err(|source| failed("open", path, source))
}

fn open_writer(path: &Path, flags: OFlag) -> io::Result<OwnedFd> {
    OpenOptions::new().write(true).custom_flags(flags.bits() | libc::O_CLOEXEC).open(path).map(OwnedFd::from)
}

fn failed(operation: &'static str, path: &Path, source: io::Error) -> Exit {
    Exit::failed(ChannelError { operation, path: path.to_owned(), source })
}
