//! The host's ends of the FIFOs.
//!
//! The command FIFO stays open for writing. The response FIFO is held open for reading *and* writing, so the worker
//! never blocks on a missing reader, and no response ends in end of file. The end of a response is found from its
//! brackets; the worker's death is noticed elsewhere.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;

use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rlm_core::control::ControlDir;
use rlm_core::frame::{Decoder, Frame};
use rlm_core::sys::waiting_bytes;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::error::{SessionError, io_error};
use super::process::watch_fd;

/// Largest response in bytes: room for twice 16 MiB of output with every byte escaped.
const MAX_RESPONSE_BYTES: usize = 1 << 30;

/// Bytes read from the response FIFO at a time.
const READ_BYTES: usize = 64 << 10;

#[derive(Debug)]
pub(super) struct Wire {
    commands: AsyncFd<File>,
    responses: AsyncFd<File>,
    unsent: Vec<u8>,
    decoder: Decoder,
    buffer: Vec<u8>,
}

impl Wire {
    pub(super) fn open(control: &ControlDir) -> Result<Self, SessionError> {
        let open = |path, read| {
            // Code may have put links there.
            let flags = libc::O_NONBLOCK | libc::O_NOFOLLOW;
            let file = OpenOptions::new().read(read).write(true).custom_flags(flags).open(path);
            let interest = if read { Interest::READABLE } else { Interest::WRITABLE };
            file.and_then(|file| watch_fd(file, interest)).map_err(io_error("open the worker's FIFOs"))
        };
        Ok(Self {
            commands: open(control.command_fifo(), false)?,
            responses: open(control.response_fifo(), true)?,
            unsent: Vec::new(),
            decoder: Decoder::new(MAX_RESPONSE_BYTES),
            buffer: vec![0; READ_BYTES],
        })
    }

    /// True if the worker has the command FIFO open. It always has while it is alive.
    pub(super) fn has_reader(&self) -> bool {
        let mut fds = [PollFd::new(self.commands.get_ref().as_fd(), PollFlags::empty())];
        let gone = PollFlags::POLLERR;
        // An error of poll shows up at the next write.
        poll(&mut fds, PollTimeout::ZERO).is_err()
            || !fds[0].revents().is_some_and(|events| events.contains(gone))
    }

    /// True if the worker has read everything queued: nothing waits here or in the FIFO.
    pub(super) fn was_read(&self) -> bool {
        self.unsent.is_empty() && waiting_bytes(self.commands.get_ref()).unwrap_or(0) == 0
    }

    /// Queues a request for sending.
    pub(super) fn queue(&mut self, request: &[u8]) {
        self.unsent.extend_from_slice(request);
        self.unsent.push(b'\n');
    }

    /// Sends the queued requests and waits for one response document. None if the worker has closed its end.
    /// Cancel-safe: bytes sent and received so far are kept.
    pub(super) async fn exchange(&mut self) -> Result<Option<Vec<u8>>, SessionError> {
        while !self.unsent.is_empty() {
            match self.commands.get_ref().write(&self.unsent) {
                Ok(count) => drop(self.unsent.drain(..count)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.commands.writable().await.map_err(io_error("wait for the worker"))?.clear_ready();
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::BrokenPipe => return Ok(None),
                Err(error) => return Err(io_error("send a request")(error)),
            }
        }
        loop {
            match self.decoder.next_frame() {
                Some(Frame::Document(document)) => return Ok(Some(document)),
                Some(other) => {
                    return Err(SessionError::Protocol(format!(
                        "the response is not a JSON object: {other:?}"
                    )));
                }
                None => {}
            }
            let mut guard = self.responses.readable().await.map_err(io_error("wait for the worker"))?;
            match guard.get_inner().read(&mut self.buffer) {
                Ok(count) => {
                    self.decoder.push(&self.buffer[..count]);
                    // After a full buffer there may be more to read; after a short read there is not.
                    if count < self.buffer.len() {
                        guard.clear_ready();
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => guard.clear_ready(),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(io_error("read a response")(error)),
            }
        }
    }
}
