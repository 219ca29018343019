//! The worker's ends of the two FIFOs.
//!
//! A reader of the command FIFO is open from before the ready flag until the end, without a gap: hosts open it
//! non-blocking and take "no reader" for a dead worker. After end of file a fresh reader is opened before the old one is
//! closed; a fresh one does not poll as hung up until a writer has come and gone, so an idle worker sleeps.
//!
//! The response FIFO is opened when a response is ready, written and closed at once: the host gets all of it, the end of
//! file included, in one wake. Where nobody has the FIFO open for reading, a thread waits for the host to open it, since
//! the kernel offers no other event for that, while the worker goes on seeing signals and the session's output.
//!
//! A reader that is there already need not be the host's. A process that a host with threads forks has a copy of the
//! reader of the response before, until it executes its program, and a response to that copy alone would be gone with it.
//! So the worker keeps a reader of its own, which holds the response in the FIFO until somebody has begun to read it
//! ([`Unread`]). A response that does not fit into the FIFO needs no such care: it has been read in part before its writer
//! is closed.
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

/// How long the worker stays awake for the host to read a response: several times what it takes to wake a host.
const WAKEFUL_TIME: Duration = Duration::from_micros(100);

/// How many responses it does not stay awake for after one that was not read in that time.
const DROWSY_RESPONSES: u32 = 50;

/// How long a response may lie unread before its writer is opened again.
const REOPEN_PAUSE: Duration = Duration::from_millis(10);

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
    /// The last response, until somebody has begun to read it.
    unread: Option<Unread>,
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
        let directory = events::tell_of_deletions(control.path()).ok();
        Ok(Self {
            commands,
            command_path,
            response_path,
            decoder: Decoder::new(MAX_REQUEST_BYTES),
            buffer: vec![0; READ_BYTES],
            _directory: directory,
            unread: None,
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
        let frame = self.receive(events, session)?;
        // A host that has sent a request without reading the last response gets that one first.
        while self.has_unread()? {
            wait(Vec::new(), self.reopen_at(), events, session)?;
        }
        Ok(frame)
    }

    fn receive(
        &mut self,
        events: &Events,
        session: &mut Supervisor<impl Interpreter>,
    ) -> Result<Frame, Exit> {
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
            let Wake { interrupt: _, ready } = wait(fds, self.reopen_at(), events, session)?;
            self.find_removal(events)?;
            self.has_unread()?;
            if ready[0] {
                return Ok(());
            }
        }
    }

    /// Whether nobody has begun to read the last response.
    fn has_unread(&mut self) -> Result<bool, Exit> {
        if let Some(unread) = &mut self.unread
            && !unread.keep(&self.response_path)?
        {
            self.unread = None;
        }
        Ok(self.unread.is_some())
    }

    /// Gives the host a moment to read the response: the next request then finds the worker awake. Not for a while after a
    /// moment in vain, for the processors have other work then.
    fn stay_awake(&mut self) -> Result<(), Exit> {
        if let Some(left) = self.drowsy.checked_sub(1) {
            self.drowsy = left;
            return Ok(());
        }
        let asleep_at = Instant::now() + WAKEFUL_TIME;
        while self.has_unread()? {
            if Instant::now() >= asleep_at {
                self.drowsy = DROWSY_RESPONSES;
                break;
            }
            thread::yield_now();
        }
        Ok(())
    }

    /// When to look again whether the last response is read.
    fn reopen_at(&self) -> Option<Instant> {
        self.unread.as_ref().and_then(Unread::reopen_at)
    }

    /// Stops where the command FIFO is gone. It is looked for only after something in its directory was deleted.
    fn find_removal(&self, events: &Events) -> Result<(), Exit> {
        if events.take_deletion()
            && let Err(source) = self.command_path.symlink_metadata()
        {
            return Err(failed("serve", &self.command_path, source));
        }
        Ok(())
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
        let (fifo, reader_came) = match open_writer(&self.response_path, OFlag::O_NONBLOCK) {
            Ok(fifo) => (fifo, false),
            Err(error) if error.raw_os_error() == Some(libc::ENXIO) => {
                (self.wait_for_reader(events, session)?, true)
            }
            Err(error) => return Err(failed("open", &self.response_path, error)),
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
            session,
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
            (None, Ok(())) => delivery.close().map(|()| Delivery::Done),
            (Some(Fault::Exit(stop)), _) => Err(stop),
            (Some(Fault::Errno(Errno::EPIPE)), _) => Ok(Delivery::GivenUp),
            (Some(Fault::Errno(errno)), _) => Err(failed("write to", &self.response_path, errno.into())),
            (None, Err(error)) => Err(Exit::failed(error)),
        }
    }

    /// Waits until the host opens the response FIFO for reading, where nobody has it open.
    fn wait_for_reader(
        &mut self,
        events: &Events,
        session: &mut Supervisor<impl Interpreter>,
    ) -> Result<OwnedFd, Exit> {
        let (opened, signal): (PipeReader, _) = io::pipe().map_err(Exit::failed)?;
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
            .map_err(Exit::failed)?;
        loop {
            let mut fds = vec![PollFd::new(opened.as_fd(), PollFlags::POLLIN)];
            // A host that is still busy writing what nobody can understand has to get rid of it before it reads.
            if self.decoder.in_reported_garbage() {
                fds.push(PollFd::new(self.commands.as_fd(), PollFlags::POLLIN));
            }
            if wait(fds, None, events, session)?.ready[0] {
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
            .map_err(|_panic| Exit::failed("the thread that opens the response FIFO panicked"))?;
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
    session: &'a mut Supervisor<I>,
    /// A response that takes a second one is larger than the FIFO is by default.
    writes: u64,
    /// Bytes written.
    written: usize,
    /// Why the last write failed.
    fault: Option<Fault>,
}

enum Fault {
    Exit(Exit),
    Errno(Errno),
}

impl<I: Interpreter> ResponseWriter<'_, I> {
    fn wait_for_room(&mut self) -> Result<(), Exit> {
        let fds = vec![PollFd::new(self.fifo.as_fd(), PollFlags::POLLOUT)];
        wait(fds, None, self.events, self.session).map(drop)
    }

    /// The reader that has gone was not one that came for this response, and it has read nothing.
    fn may_be_read_yet(&self) -> bool {
        !self.reader_came && waiting_bytes(&self.fifo) == Ok(self.written)
    }

    /// Waits for another reader after one that has read nothing. What is written lies in the FIFO until we close it.
    fn wait_for_another_reader(&mut self) -> Result<(), Exit> {
        self.fifo = self.channel.wait_for_reader(self.events, self.session)?;
        self.reader_came = true;
        Ok(())
    }

    /// Closes the writer, and keeps the response where nobody has begun to read it.
    fn close(self) -> Result<(), Exit> {
        let Self { fifo, reader_came, channel, written, .. } = self;
        let bytes = waiting_bytes(&fifo)?;
        if reader_came || bytes < written {
            return Ok(());
        }
        let keeper = open_reader(&channel.response_path)?;
        drop(fifo);
        let reopen_at = Instant::now() + REOPEN_PAUSE;
        channel.unread = Some(Unread { keeper, bytes, reopen_at, writer: None });
        channel.stay_awake()?;
        Ok(())
    }
}

/// A response that lies in the FIFO, closed, until somebody has begun to read it: its reader is then the host's, and the
/// rest stays in the FIFO for it.
///
/// A host that opens the FIFO without O_NONBLOCK waits there for a writer, so after a while there is one again.
#[derive(Debug)]
struct Unread {
    /// Keeps the response in the FIFO.
    keeper: OwnedFd,
    /// Bytes that lie there as long as nobody has read any.
    bytes: usize,
    /// When the writer is opened again.
    reopen_at: Instant,
    /// The writer, opened again.
    writer: Option<OwnedFd>,
}

impl Unread {
    /// Whether the response still has to be kept.
    fn keep(&mut self, path: &Path) -> Result<bool, Exit> {
        if waiting_bytes(&self.keeper)? < self.bytes {
            return Ok(false);
        }
        if self.writer.is_none() && Instant::now() >= self.reopen_at {
            let writer =
                open_writer(path, OFlag::O_NONBLOCK).map_err(|source| failed("open", path, source))?;
            events::tell_of_reads(&writer)?;
            self.writer = Some(writer);
            // It may have been read before the worker was to be told of it.
            return self.keep(path);
        }
        Ok(true)
    }

    /// When the writer has to be opened again.
    fn reopen_at(&self) -> Option<Instant> {
        self.writer.is_none().then_some(self.reopen_at)
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
                self.fault = Some(Fault::Exit(stop));
                return Err(io::ErrorKind::Other.into());
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Waits until one of these descriptors is ready or the deadline has passed. Takes what the session produces meanwhile.
fn wait(
    fds: Vec<PollFd<'_>>,
    deadline: Option<Instant>,
    events: &Events,
    session: &mut Supervisor<impl Interpreter>,
) -> Result<Wake, Exit> {
    let given = fds.len();
    let mut fds = fds;
    session.poll_fds(&mut fds);
    let wake = events.wait(fds, deadline)?;
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
