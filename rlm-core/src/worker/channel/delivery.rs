//! The delivery of a response: it waits for a host, and until somebody has begun to read.

use std::io::{self, BufWriter, PipeReader, Write};
use std::os::fd::AsFd as _;
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags};

use super::{Channel, Delivery, READ_BYTES, failed, wait};
use crate::protocol::Response;
use crate::worker::events::{self, Events};
use crate::worker::exit::Exit;
use crate::worker::interpreter::Interpreter;
use crate::worker::responses::{Fate, Target, open_writer};
use crate::worker::supervisor::Supervisor;

/// Size asked for the response FIFO when a response does not fit into the default 64 KiB.
const LARGE_PIPE_BYTES: i32 = 1 << 20;

/// Time for which the worker stays awake for the host to read a response: several times the time to wake a host.
const WAKEFUL_TIME: Duration = Duration::from_micros(100);

/// Number of responses for which the worker does not stay awake after one that was not read in this time.
const DROWSY_RESPONSES: u32 = 50;

/// Stack of the thread that waits for a host to open the response FIFO; it makes one system call.
const OPENER_STACK_BYTES: usize = 64 << 10;

/// Pauses between two looks at whether a host waits elsewhere for a response that nobody reads: the first and the longest.
const FIRST_LOOK: Duration = Duration::from_millis(10);
const LONGEST_LOOK: Duration = Duration::from_secs(1);

impl Channel {
    /// Delivers one response through a FIFO of its own. Its text is never in memory as a whole.
    ///
    /// # Errors
    /// [`Exit`] as soon as the worker has to end.
    pub fn respond(
        &mut self,
        response: &Response,
        events: &Events,
        session: &mut Supervisor<impl Interpreter>,
    ) -> Result<Delivery, Exit> {
        loop {
            let mut delivery = ResponseWriter {
                target: None,
                channel: self,
                events,
                session,
                look: Look::new(),
                writes: 0,
                fault: None,
            };
            let mut writer = BufWriter::with_capacity(READ_BYTES, &mut delivery);
            let written = serde_json::to_writer(&mut writer, response).map_err(io::Error::from);
            // JSON text has no newline of its own: so this one ends the document.
            let written = written.and_then(|()| writer.write_all(b"\n")).and_then(|()| writer.flush());
            // After an error the rest of the response has no reader.
            drop(writer.into_parts());
            let ended = match (delivery.fault.take(), written) {
                (None, Ok(())) => delivery.wait_until_begun(),
                (Some(fault), _) => Err(fault),
                (None, Err(error)) => return Err(Exit::failed(error)),
            };
            let Some(target) = delivery.target.take() else {
                return ended.map(|()| Delivery::Done).map_err(|fault| self.exit(fault));
            };
            match ended {
                Err(Fault::Unread) => self.responses.abandon(target),
                Err(Fault::Errno(Errno::EPIPE)) => {
                    self.responses.finish(target);
                    return Ok(Delivery::GivenUp);
                }
                Err(fault) => return Err(self.exit(fault)),
                Ok(()) => {
                    self.responses.finish(target);
                    return Ok(Delivery::Done);
                }
            }
        }
    }

    fn exit(&self, fault: Fault) -> Exit {
        match fault {
            Fault::Exit(exit) => exit,
            Fault::Errno(errno) => failed("write to", self.responses.path(), errno.into()),
            Fault::Unread => Exit::failed("a response without a FIFO"),
        }
    }

    /// Waits until a host is there to read a response, and returns the FIFO for it.
    fn find_target(
        &mut self,
        events: &Events,
        session: &mut Supervisor<impl Interpreter>,
    ) -> Result<Target, Exit> {
        self.find_removal(events)?;
        let mut look = Look::new();
        let target = loop {
            match self.responses.target() {
                Some(target) => break target,
                None if self.responses.may_be_held() => {
                    wait(Vec::new(), Some(look.next()), events, session)?;
                    self.find_removal(events)?;
                }
                None => match self.wait_for_reader(events, session) {
                    // The session has left no thread to wait in.
                    Err(exit) if exit.is_for_want_of_a_process() => {
                        wait(Vec::new(), Some(Instant::now() + FIRST_LOOK), events, session)?;
                        self.find_removal(events)?;
                    }
                    waited => waited?,
                },
            }
        };
        // The host waits for this response now, so everything that it wrote is there: the rest of an unframed piece too.
        self.drop_rest_of_garbage()?;
        self.decoder.resync();
        Ok(target)
    }

    /// Waits until a host opens the path of the response FIFO for reading.
    fn wait_for_reader(
        &mut self,
        events: &Events,
        session: &mut Supervisor<impl Interpreter>,
    ) -> Result<(), Exit> {
        let (opened, signal): (PipeReader, _) = io::pipe().map_err(Exit::failed)?;
        let path = self.responses.path().to_owned();
        // The thread is not joined if the worker stops first: it then ends with the process.
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
            if wait(fds, None, events, session)?.ready[0] {
                break;
            }
            self.find_removal(events)?;
            self.drop_rest_of_garbage()?;
        }
        let fifo = opener
            .join()
            .map_err(|_panic| Exit::failed("the thread that opens the response FIFO panicked"))?;
        let fifo = fifo.map_err(|source| failed("open", self.responses.path(), source))?;
        fcntl(&fifo, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        self.responses.opened(fifo).map_err(|source| failed("open", self.responses.path(), source))
    }
}

/// Writes one response, to a FIFO that is chosen at the first write, and waits for a slower host.
struct ResponseWriter<'a, I> {
    target: Option<Target>,
    channel: &'a mut Channel,
    events: &'a Events,
    session: &'a mut Supervisor<I>,
    look: Look,
    /// A response that takes a second write is larger than the default FIFO.
    writes: u64,
    /// The error of the last write.
    fault: Option<Fault>,
}

/// The reason why a response could not be delivered.
enum Fault {
    Exit(Exit),
    Errno(Errno),
    /// Nobody has read any of the response, and nobody will: it has to be delivered again.
    Unread,
}

impl From<Exit> for Fault {
    fn from(exit: Exit) -> Self {
        Self::Exit(exit)
    }
}

impl From<Errno> for Fault {
    fn from(errno: Errno) -> Self {
        Self::Errno(errno)
    }
}

impl<I: Interpreter> ResponseWriter<'_, I> {
    fn write_some(&mut self, bytes: &[u8]) -> Result<usize, Fault> {
        let mut target = match self.target.take() {
            Some(target) => target,
            None => self.channel.find_target(self.events, self.session)?,
        };
        self.writes += 1;
        if self.writes == 2 {
            // A smaller FIFO works as well, with more system calls.
            let _too_many_pipes = fcntl(target.writer(), FcntlArg::F_SETPIPE_SZ(LARGE_PIPE_BYTES));
        }
        let written = loop {
            match target.write(bytes) {
                Ok(count) => break Ok(count),
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => {
                    if let Err(fault) = self.wait_for_host(&target, PollFlags::POLLOUT) {
                        break Err(fault);
                    }
                }
                Err(Errno::EPIPE) if target.is_unread()? => break Err(Fault::Unread),
                Err(errno) => break Err(Fault::Errno(errno)),
            }
        };
        self.target = Some(target);
        written
    }

    /// Waits until somebody has begun to read the response.
    fn wait_until_begun(&mut self) -> Result<(), Fault> {
        let Some(target) = self.target.take() else { return Ok(()) };
        let begun = self.wait_until(&target);
        self.target = Some(target);
        begun
    }

    fn wait_until(&mut self, target: &Target) -> Result<(), Fault> {
        if self.is_read_soon(target)? {
            return Ok(());
        }
        loop {
            events::signal_reads(target.writer())?;
            // Checked after the signal is set up: the response may have been read before.
            if !target.is_unread()? {
                return Ok(());
            }
            self.wait_for_host(target, PollFlags::empty())?;
        }
    }

    /// Waits until the FIFO polls, a signal has come, or it is time to look for a host elsewhere.
    fn wait_for_host(&mut self, target: &Target, flags: PollFlags) -> Result<(), Fault> {
        let fds = vec![PollFd::new(target.writer(), flags)];
        wait(fds, Some(self.look.next()), self.events, self.session)?;
        self.channel.find_removal(self.events)?;
        if self.channel.responses.fate(target)? == Fate::Lost { Err(Fault::Unread) } else { Ok(()) }
    }

    /// Stays awake for the moment in which most hosts begin to read: they get the end of the file sooner. If a host does not, the
    /// worker sleeps for the next responses, since the processors are busy.
    fn is_read_soon(&mut self, target: &Target) -> Result<bool, Errno> {
        if let Some(left) = self.channel.drowsy.checked_sub(1) {
            self.channel.drowsy = left;
            return Ok(false);
        }
        let asleep_at = Instant::now() + WAKEFUL_TIME;
        while target.is_unread()? {
            if Instant::now() >= asleep_at {
                self.channel.drowsy = DROWSY_RESPONSES;
                return Ok(false);
            }
            thread::yield_now();
        }
        Ok(true)
    }
}

/// The times of looks at a response that nobody reads: they become ever less frequent.
struct Look {
    pause: Duration,
}

impl Look {
    fn new() -> Self {
        Self { pause: FIRST_LOOK }
    }

    /// The time of the next look.
    fn next(&mut self) -> Instant {
        let at = Instant::now() + self.pause;
        self.pause = (self.pause * 2).min(LONGEST_LOOK);
        at
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
