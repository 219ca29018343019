//! The worker's ends of the two FIFOs.
//!
//! A reader of the command FIFO is open from before the ready flag until the end, without a gap: hosts open it
//! non-blocking and take "no reader" for a dead worker. After end of file a fresh reader is opened before the old one is
//! closed; a fresh one does not poll as hung up until a writer has come and gone, so an idle worker sleeps.
//!
//! Each response has a FIFO of its own: see the module `responses`. If nobody has it open for reading, a thread waits for the
//! host to open it, since the kernel offers no other event for that, while the worker still handles signals and the session's
//! output.
//!
//! A writer stays open until somebody has begun to read the response. Only then is it sure that the reader is the host's:
//! a process that the host forks has a copy of the host's last reader until it executes its program, and a host may close a
//! reader and open another. A response that only such readers had is delivered again, to whoever opens the path next.
//!
//! None of this uses inotify: the kernel takes up to 25 ms to remove a watch, and has 128 for each user.

mod delivery;

use std::fs::{self, OpenOptions};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::libc;
use nix::poll::{PollFd, PollFlags};
use nix::unistd::read;

use super::events::{self, Events, Wake};
use super::exit::Exit;
use super::interpreter::Interpreter;
use super::responses::{ResponseFifos, identity, identity_at};
use super::supervisor::Supervisor;
use crate::control::{ControlDir, make_fifo};
use crate::frame::{Decoder, Frame};
use crate::limits::MAX_REQUEST_BYTES;

/// Bytes read from the command FIFO at a time; also what a FIFO holds.
const READ_BYTES: usize = 64 << 10;

/// Time without a byte after which a host that has written something other than a document waits for the answer.
const QUIET_TIME: Duration = Duration::from_millis(100);

/// Quiet time after the FIFO was full: the host may be in the middle of a write, and only waits for a processor.
const FULL_FIFO_QUIET_TIME: Duration = Duration::from_secs(2);

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
    /// The host has the response, or the kernel has it for the host.
    Done,
    /// The host closed its end early. Nothing is left to do for this request.
    GivenUp,
}

/// The worker's ends of the FIFOs.
#[derive(Debug)]
pub struct Channel {
    commands: OwnedFd,
    command_path: PathBuf,
    /// Identity of the command FIFO.
    command_file: (u64, u64),
    responses: ResponseFifos,
    decoder: Decoder,
    buffer: Vec<u8>,
    /// The last read took as much as the FIFO holds.
    was_full: bool,
    /// A descriptor that signals changes in the control directory while it is open. None if the system has no dnotify.
    _directory: Option<OwnedFd>,
    /// Number of further responses for which the worker does not stay awake.
    drowsy: u32,
}

impl Channel {
    /// Makes the FIFOs and opens the reader.
    ///
    /// # Errors
    /// The control directory cannot be used.
    pub fn open(control: &ControlDir) -> Result<Self, Exit> {
        let (command_path, new_path) = (control.command_fifo(), control.new_command_fifo());
        make_fifo(&new_path).map_err(Exit::failed)?;
        // The FIFO is open before it can be found, so no host sees it without a reader.
        let commands = open_reader(&new_path)?;
        fs::rename(&new_path, &command_path).map_err(|source| failed("make", &command_path, source))?;
        let command_file = identity(&commands).map_err(Exit::failed)?;
        let responses = ResponseFifos::make(control)?;
        let directory = events::signal_changes(control.path()).ok();
        Ok(Self {
            commands,
            command_path,
            command_file,
            responses,
            decoder: Decoder::new(MAX_REQUEST_BYTES),
            buffer: vec![0; READ_BYTES],
            was_full: false,
            _directory: directory,
            drowsy: 0,
        })
    }

    /// Does slow work ahead of the next response.
    pub(super) fn prepare(&mut self) {
        self.responses.prepare();
    }

    /// True if another worker, or anything else, has taken the place of the command FIFO.
    #[must_use]
    pub fn is_replaced(&self) -> bool {
        identity_at(&self.command_path).is_ok_and(|found| found != self.command_file)
    }

    /// Waits for the next request document, or for a fault in its place.
    ///
    /// # Errors
    /// [`Exit`] as soon as the worker has to end.
    pub fn next_frame(
        &mut self,
        events: &Events,
        session: &mut Supervisor<impl Interpreter>,
    ) -> Result<Frame, Exit> {
        // The last call may have removed the FIFO: then a request that has come since is not read, and so not run.
        self.find_removal(events)?;
        loop {
            if let Some(frame) = self.decoder.next_frame() {
                return Ok(frame);
            }
            match self.read()? {
                Read::Some(count) => self.decoder.push(&self.buffer[..count]),
                Read::End => {
                    if let Some(frame) = self.decoder.end_of_stream() {
                        return Ok(frame);
                    }
                }
                Read::Nothing => {
                    let quiet = if self.was_full { FULL_FIFO_QUIET_TIME } else { QUIET_TIME };
                    let deadline = self.decoder.in_garbage().then(|| Instant::now() + quiet);
                    if !self.wait_for_bytes(deadline, events, session)?
                        && let Some(frame) = self.decoder.stalled_garbage()
                    {
                        return Ok(frame);
                    }
                }
            }
        }
    }

    /// Waits for bytes, or an end of file, in the command FIFO. False if the deadline has passed.
    fn wait_for_bytes(
        &mut self,
        deadline: Option<Instant>,
        events: &Events,
        session: &mut Supervisor<impl Interpreter>,
    ) -> Result<bool, Exit> {
        loop {
            let fds = vec![PollFd::new(self.commands.as_fd(), PollFlags::POLLIN)];
            // An interrupt without a call to interrupt is ignored.
            let Wake { interrupt: _, ready } = wait(fds, deadline, events, session)?;
            self.find_removal(events)?;
            if ready[0] || deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Ok(ready[0]);
            }
        }
    }

    /// Stops if a FIFO is gone from its path, as no host can reach the worker any more. The FIFOs are looked for only after
    /// something in their directory has changed.
    fn find_removal(&self, events: &Events) -> Result<(), Exit> {
        if !events.take_change() {
            return Ok(());
        }
        let commands = identity_at(&self.command_path).map(|found| found == self.command_file);
        for (path, is_in_place) in
            [(self.command_path.as_path(), commands), (self.responses.path(), self.responses.is_in_place())]
        {
            match is_in_place {
                Ok(true) => {}
                Ok(false) => return Err(replaced(path)),
                Err(source) => return Err(failed("serve", path, source)),
            }
        }
        Ok(())
    }

    /// Reads once without waiting.
    fn read(&mut self) -> Result<Read, Exit> {
        loop {
            match read(&self.commands, &mut self.buffer) {
                Ok(0) => {
                    // The order matters: the new reader is there before the old one goes.
                    self.commands = open_reader(&self.command_path)?;
                    if !identity(&self.commands).is_ok_and(|opened| opened == self.command_file) {
                        return Err(replaced(&self.command_path));
                    }
                    self.was_full = false;
                    return Ok(if self.decoder.is_between_documents() { Read::Nothing } else { Read::End });
                }
                Ok(count) => {
                    self.was_full = count > READ_BYTES - libc::PIPE_BUF;
                    return Ok(Read::Some(count));
                }
                Err(Errno::EAGAIN) => return Ok(Read::Nothing),
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(failed("read", &self.command_path, errno.into())),
            }
        }
    }

    /// Drops the rest of a piece that was answered before its end was known. Bytes that begin a document end the piece: a host
    /// that has its answer may have sent the next request.
    fn drop_rest_of_garbage(&mut self) -> Result<(), Exit> {
        while self.decoder.in_reported_garbage() {
            match self.read()? {
                Read::Some(count) => {
                    if matches!(self.buffer[0], b'{' | b'[') {
                        self.decoder.resync();
                    }
                    self.decoder.push(&self.buffer[..count]);
                    self.decoder.skip_garbage();
                }
                Read::End => self.decoder.resync(),
                Read::Nothing => break,
            }
        }
        Ok(())
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        // Otherwise the flag is that of the worker that took this one's place.
        if !self.is_replaced() {
            self.responses.remove_spare();
        }
    }
}

/// Waits until one of these descriptors is ready, a signal has come or the deadline has passed, and handles the session's
/// output.
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
    /// This many bytes are in the buffer.
    Some(usize),
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

fn replaced(path: &Path) -> Exit {
    failed("serve", path, io::Error::other("another file took its place"))
}

fn failed(operation: &'static str, path: &Path, source: io::Error) -> Exit {
    Exit::failed(ChannelError { operation, path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_channel_that_was_replaced_leaves_the_other_ones_files() {
        let dir = tempfile::tempdir().unwrap();
        let control = ControlDir::new(dir.path());
        let first = Channel::open(&control).unwrap();
        let second = Channel::open(&control).unwrap();
        drop(first);
        assert!(control.spare_response_fifo().exists());
        drop(second);
        assert!(!control.spare_response_fifo().exists());
    }
}
