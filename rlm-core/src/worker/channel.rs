//! The worker's ends of the two FIFOs.
//!
//! A reader of the command FIFO is open from before the ready flag until the end, without a gap: hosts open it
//! non-blocking and take "no reader" for a dead worker. After end of file a fresh reader is opened before the old one is
//! closed; a fresh one does not poll as hung up until a writer has come and gone, so an idle worker sleeps.
//!
//! The response FIFO is opened for each response. A host that has not opened its end yet is waited for by a thread,
//! since the kernel offers no other event for it, while the worker goes on seeing signals and the session's output.
//!
//! A reader that is there already need not be the host: what a host with threads forks has a copy of the reader of the
//! response before, until it executes its program. A response to such a reader alone would be gone with it. So where
//! somebody has the FIFO open when the request comes, the writer is closed only once the response has been read, which the
//! kernel tells by a signal (`O_ASYNC`). Where nobody has, whoever opens it came for this response.
//!
//! Nothing of this is done with inotify: the kernel takes up to 25 ms to let go of a watch, and has 128 for each user.

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

use super::events::{self, Events, Stop, Wake};
use super::serve::Interpreter;
use super::wires::waiting_bytes;
use crate::control::ControlDir;
use crate::frame::{Decoder, Frame};
use crate::limits::MAX_REQUEST_BYTES;
use crate::protocol::Response;

/// Bytes read from the command FIFO at a time; also what a FIFO holds.
const READ_BYTES: usize = 64 << 10;

/// Size asked for the response FIFO when a response does not fit into the default 64 KiB.
const LARGE_PIPE_BYTES: i32 = 1 << 20;

/// How long a response that is being read is looked at before the worker sleeps: some times what it takes to wake a host.
const WAKEFUL_TIME: Duration = Duration::from_micros(100);

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

/// What became of a response.
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
    /// Tells of what is deleted in the control directory, as long as it is open. None where the system has no such thing.
    _directory: Option<OwnedFd>,
    /// The writer for the response, where somebody had the FIFO open when the request came.
    early_writer: Option<OwnedFd>,
}

impl Channel {
    /// Makes the FIFOs and opens the reader.
    ///
    /// # Errors
    /// The control directory cannot be used.
    pub fn open(control: &ControlDir) -> Result<Self, Stop> {
        control.make_fifos().map_err(Stop::failed)?;
        let command_path = control.command_fifo();
        let commands = open_reader(&command_path)?;
        let response_path = control.response_fifo();
        let directory = events::tell_of_deletions(control.path()).ok();
        Ok(Self {
            commands,
            command_path,
            response_path,
            decoder: Decoder::new(MAX_REQUEST_BYTES),
            buffer: vec![0; READ_BYTES],
            _directory: directory,
            early_writer: None,
        })
    }

    /// Waits for the next request document, or for what comes in its place.
    ///
    /// # Errors
    /// [`Stop`] as soon as the worker has to end.
    pub fn next_frame(&mut self, events: &Events, interpreter: &mut impl Interpreter) -> Result<Frame, Stop> {
        let frame = self.receive(events, interpreter)?;
        // What stands in the way of opening it stands there still when there is something to write.
        self.early_writer = open_writer(&self.response_path, OFlag::O_NONBLOCK).ok();
        Ok(frame)
    }

    fn receive(&mut self, events: &Events, interpreter: &mut impl Interpreter) -> Result<Frame, Stop> {
        // What removed it was the last call: a request that has come since is not read, and so not run.
        self.find_removal(events)?;
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
                    self.wait_for_bytes(events, interpreter)?;
                }
            }
        }
    }

    fn wait_for_bytes(&mut self, events: &Events, interpreter: &mut impl Interpreter) -> Result<(), Stop> {
        loop {
            let mut fds = vec![PollFd::new(self.commands.as_fd(), PollFlags::POLLIN)];
            interpreter.watch(&mut fds);
            // An interrupt without a call to interrupt is nothing.
            let Wake { interrupt: _, ready } = events.wait(fds, None)?;
            self.find_removal(events)?;
            interpreter.tend()?;
            if ready[0] {
                return Ok(());
            }
        }
    }

    /// Stops where the command FIFO is gone. It is looked for only after something in its directory was deleted.
    fn find_removal(&self, events: &Events) -> Result<(), Stop> {
        if events.take_deletion()
            && let Err(source) = self.command_path.symlink_metadata()
        {
            return Err(failed("serve", &self.command_path, source));
        }
        Ok(())
    }

    /// Reads once without waiting.
    fn read(&mut self) -> Result<Read, Stop> {
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

    /// Writes one response: open, write, close. Its text is never in memory as a whole.
    ///
    /// # Errors
    /// [`Stop`] as soon as the worker has to end.
    pub fn respond(
        &mut self,
        response: &Response,
        events: &Events,
        interpreter: &mut impl Interpreter,
    ) -> Result<Delivery, Stop> {
        let early = self.early_writer.take();
        let reader_came = early.is_none();
        let fifo = match early {
            Some(fifo) => fifo,
            None => self.open_for_response(events, interpreter)?,
        };
        // The host waits for this response now, so what it wrote is all readable: the rest of an unframed piece too.
        while self.decoder.in_reported_garbage() && matches!(self.read()?, Read::Some) {
            self.decoder.skip_garbage();
        }
        self.decoder.resync();
        let mut delivery = ResponseWriter {
            fifo,
            reader_came,
            channel: self,
            events,
            interpreter,
            writes: 0,
            written: 0,
            fault: None,
        };
        let mut writer = BufWriter::with_capacity(READ_BYTES, &mut delivery);
        let written = serde_json::to_writer(&mut writer, response).map_err(io::Error::from);
        let written = written.and_then(|()| writer.flush());
        // What is left in it has nobody to read it.
        drop(writer.into_parts());
        match (delivery.fault.take(), written) {
            (None, Ok(())) => delivery.until_it_is_safe_to_close(),
            (Some(Fault::Stop(stop)), _) => Err(stop),
            (Some(Fault::Errno(Errno::EPIPE)), _) => Ok(Delivery::GivenUp),
            (Some(Fault::Errno(errno)), _) => Err(failed("write to", &self.response_path, errno.into())),
            (None, Err(error)) => Err(Stop::failed(error)),
        }
    }

    fn open_for_response(
        &mut self,
        events: &Events,
        interpreter: &mut impl Interpreter,
    ) -> Result<OwnedFd, Stop> {
        match open_writer(&self.response_path, OFlag::O_NONBLOCK) {
            Ok(fifo) => Ok(fifo),
            Err(error) if error.raw_os_error() == Some(libc::ENXIO) => {
                self.wait_for_reader(events, interpreter)
            }
            Err(error) => Err(failed("open", &self.response_path, error)),
        }
    }

    /// Waits until the host opens the response FIFO for reading, where nobody has it open.
    fn wait_for_reader(
        &mut self,
        events: &Events,
        interpreter: &mut impl Interpreter,
    ) -> Result<OwnedFd, Stop> {
        let (opened, signal): (PipeReader, _) = io::pipe().map_err(Stop::failed)?;
        let path = self.response_path.clone();
        // Not joined where the worker stops first: the thread then ends with the process.
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
            .map_err(Stop::failed)?;
        loop {
            let mut fds = vec![PollFd::new(opened.as_fd(), PollFlags::POLLIN)];
            // A host that is still busy writing what nobody can understand has to get rid of it before it reads.
            if self.decoder.in_reported_garbage() {
                fds.push(PollFd::new(self.commands.as_fd(), PollFlags::POLLIN));
            }
            interpreter.watch(&mut fds);
            let wake = events.wait(fds, None)?;
            interpreter.tend()?;
            if wake.ready[0] {
                break;
            }
            if self.decoder.in_reported_garbage() {
                if let Read::End = self.read()? {
                    self.decoder.resync();
                }
                self.decoder.skip_garbage();
            }
        }
        let fifo = opener
            .join()
            .map_err(|_panic| Stop::failed("the thread that opens the response FIFO panicked"))?;
        let fifo = fifo.map_err(|source| failed("open", &self.response_path, source))?;
        fcntl(&fifo, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        Ok(fifo)
    }
}

/// Writes to the response FIFO, and waits where the host is slower.
struct ResponseWriter<'a, I> {
    fifo: OwnedFd,
    /// Whoever has it open came for this response.
    reader_came: bool,
    channel: &'a mut Channel,
    events: &'a Events,
    interpreter: &'a mut I,
    /// A response that takes a second one is larger than the FIFO is by default.
    writes: u64,
    /// Bytes written.
    written: usize,
    /// Why the last write failed.
    fault: Option<Fault>,
}

enum Fault {
    Stop(Stop),
    Errno(Errno),
}

impl<I: Interpreter> ResponseWriter<'_, I> {
    fn wait_for_room(&mut self) -> Result<(), Stop> {
        let mut fds = vec![PollFd::new(self.fifo.as_fd(), PollFlags::POLLOUT)];
        self.interpreter.watch(&mut fds);
        self.events.wait(fds, None)?;
        self.interpreter.tend()
    }

    /// The reader that has gone was not one that came for this response, and it has read nothing.
    fn may_be_read_yet(&self) -> bool {
        !self.reader_came && waiting_bytes(&self.fifo) == Ok(self.written)
    }

    /// Waits for another reader after one that has read nothing. What is written lies in the FIFO until we close it.
    fn wait_for_another_reader(&mut self) -> Result<(), Stop> {
        self.fifo = self.channel.wait_for_reader(self.events, self.interpreter)?;
        self.reader_came = true;
        Ok(())
    }

    /// Waits until the reader is known to be the host's: it came for this response, or has read it.
    fn until_it_is_safe_to_close(&mut self) -> Result<Delivery, Stop> {
        if self.reader_came {
            return Ok(Delivery::Done);
        }
        // Most hosts wait for it, and have read it before this process could sleep and be woken.
        let asleep_at = Instant::now() + WAKEFUL_TIME;
        while Instant::now() < asleep_at {
            if waiting_bytes(&self.fifo)? == 0 {
                return Ok(Delivery::Done);
            }
            thread::yield_now();
        }
        events::tell_of_reads(&self.fifo)?;
        while !self.reader_came && waiting_bytes(&self.fifo)? > 0 {
            // Without any reader the FIFO polls as broken.
            let mut fds = vec![PollFd::new(self.fifo.as_fd(), PollFlags::empty())];
            self.interpreter.watch(&mut fds);
            let wake = self.events.wait(fds, None)?;
            self.interpreter.tend()?;
            if wake.ready[0] && !self.may_be_read_yet() {
                // It was read in the meantime, or its reader has gone in the middle of it.
                return Ok(if waiting_bytes(&self.fifo)? > 0 { Delivery::GivenUp } else { Delivery::Done });
            }
            if wake.ready[0] {
                self.wait_for_another_reader()?;
            }
        }
        Ok(Delivery::Done)
    }
}

impl<I: Interpreter> Write for ResponseWriter<'_, I> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.writes += 1;
        if self.writes == 2 {
            // A smaller FIFO works as well, with more system calls.
            let _too_many_pipes = fcntl(&self.fifo, FcntlArg::F_SETPIPE_SZ(LARGE_PIPE_BYTES));
        }
        loop {
            let waited = match write(&self.fifo, bytes) {
                Ok(count) => {
                    self.written += count;
                    return Ok(count);
                }
                Err(Errno::EINTR) => Ok(()),
                Err(Errno::EAGAIN) => self.wait_for_room(),
                Err(Errno::EPIPE) if self.may_be_read_yet() => self.wait_for_another_reader(),
                Err(errno) => {
                    self.fault = Some(Fault::Errno(errno));
                    return Err(errno.into());
                }
            };
            if let Err(stop) = waited {
                self.fault = Some(Fault::Stop(stop));
                return Err(io::ErrorKind::Other.into());
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

enum Read {
    Some,
    Nothing,
    End,
}

fn open_reader(path: &Path) -> Result<OwnedFd, Stop> {
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

fn failed(operation: &'static str, path: &Path, source: io::Error) -> Stop {
    Stop::failed(ChannelError { operation, path: path.to_owned(), source })
}
