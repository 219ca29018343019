//! The response FIFO: a new one for each response.
//!
//! A host opens `rlm_res`, reads to end of file and closes it. If all responses passed through one FIFO, three things
//! could go wrong, and only where processes meet at a bad moment:
//!
//! * Linux may report a hang-up to a host that polls in the instant in which the FIFO gets its first writer
//!   (`fifo_open` counts `w_counter` up before `writers`, and `pipe_poll` reads both without a lock). The host's read
//!   then fails with EAGAIN.
//! * A host that closes in the middle of a response and opens again at once would read the rest of it.
//! * A host that gave up on a response would read it together with the next one.
//!
//! So a FIFO is used once. Its writer is open before it can be found at its path, it is replaced at its path before the
//! first byte of its response is written, and its writer is closed only after somebody has begun to read. Hence each
//! reader sees one response and then end of file, and everybody who opens the path afterwards sees a later response.
//!
//! A host that holds the FIFO open for reading *and* writing sees no end of file. It is recognised by that: the FIFO of
//! the last response still has a writer although ours is closed. All further responses go there.

#[cfg(test)]
mod tests;

use std::fs::{self, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::stat::fstat;
use nix::unistd::{read, write};

use super::exit::Exit;
use crate::control::{ControlDir, make_fifo};
use crate::sys::waiting_bytes;

/// The FIFOs of past, present and future responses.
#[derive(Debug)]
pub(super) struct ResponseFifos {
    path: PathBuf,
    spare_path: PathBuf,
    /// The FIFO at the path. None: no spare could be made, so it is opened when a host is there.
    current: Option<Fifo>,
    /// The FIFO that replaces the current one.
    spare: Option<Fifo>,
    /// The handles of the last response's FIFO, and of the one before, which is closed when there is time.
    last: Option<OwnedFd>,
    retired: Option<OwnedFd>,
    /// A FIFO that a host holds open.
    held: Option<Fifo>,
}

/// A FIFO that is open for writing.
#[derive(Debug)]
struct Fifo {
    writer: OwnedFd,
    /// Opened neither for reading nor for writing.
    handle: OwnedFd,
}

/// The FIFO for one response.
#[derive(Debug)]
pub(super) struct Target {
    fifo: Fifo,
    /// A host holds it open for all responses.
    is_held: bool,
    /// Bytes of the response that were written.
    written: usize,
}

/// The fate of a response so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// Nobody has read any of it yet.
    Waiting,
    /// Somebody has begun to read it.
    Begun,
    /// Nobody has read any of it, and nobody will: it has to be delivered again.
    Lost,
}

impl ResponseFifos {
    /// Makes the first FIFO, in place of any file at its path.
    ///
    /// # Errors
    /// The directory cannot be written.
    pub(super) fn make(control: &ControlDir) -> Result<Self, Exit> {
        let (path, spare_path) = (control.response_fifo(), control.spare_response_fifo());
        let current = make(&spare_path)?;
        fs::rename(&spare_path, &path).map_err(Exit::failed)?;
        let mut fifos = Self {
            path,
            spare_path,
            current: Some(current),
            spare: None,
            last: None,
            retired: None,
            held: None,
        };
        fifos.prepare();
        Ok(fifos)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// True unless the FIFO at the path was replaced by something else.
    ///
    /// # Errors
    /// There is nothing at the path.
    pub(super) fn is_in_place(&self) -> io::Result<bool> {
        match &self.current {
            Some(current) => Ok(identity(&current.handle)? == identity_at(&self.path)?),
            None => identity_at(&self.path).map(|_found| true),
        }
    }

    /// The FIFO for the next response, if a host is there to read it.
    pub(super) fn target(&mut self) -> Option<Target> {
        if self.current.is_none() {
            self.current = open_writer(&self.path, OFlag::O_NONBLOCK).and_then(Fifo::of).ok();
        }
        if self.has_new_reader() {
            return self.replace().map(|fifo| Target { fifo, is_held: false, written: 0 });
        }
        self.held.take_if(|held| !has_reader(held));
        if self.held.is_none() && self.is_last_held() {
            let last = self.last.take()?;
            let writer = open_writer(&by_descriptor(&last), OFlag::O_NONBLOCK).ok();
            self.held = writer.map(|writer| Fifo { writer, handle: last });
            self.remove_spare();
        }
        self.held.take().map(|fifo| Target { fifo, is_held: true, written: 0 })
    }

    /// The fate of the response that was written to this FIFO.
    ///
    /// # Errors
    /// None that a FIFO gives.
    pub(super) fn fate(&self, target: &Target) -> Result<Fate, Errno> {
        // A reader may be a copy in a process that the host has forked, while the host itself waits at the path. The readers come
        // first, then what was read: a host may read and close in between.
        let is_left = !has_reader(&target.fifo) || self.has_new_reader();
        Ok(if !target.is_unread()? {
            Fate::Begun
        } else if is_left {
            Fate::Lost
        } else {
            Fate::Waiting
        })
    }

    /// True while a host that holds the last FIFO may still be found.
    pub(super) fn may_be_held(&self) -> bool {
        self.last.is_some()
    }

    /// Takes a writer that was opened at the path when a host came.
    ///
    /// # Errors
    /// No descriptor is left.
    pub(super) fn opened(&mut self, writer: OwnedFd) -> io::Result<()> {
        if self.current.is_none() {
            self.current = Some(Fifo::of(writer)?);
        }
        Ok(())
    }

    /// Ends the reading of a response that was delivered.
    pub(super) fn finish(&mut self, target: Target) {
        if target.is_held {
            self.held = Some(target.fifo);
        } else {
            self.abandon(target);
        }
    }

    /// Lets go of the FIFO of a response that has to be delivered again.
    pub(super) fn abandon(&mut self, target: Target) {
        drop(target.fifo.writer);
        self.retired = self.last.replace(target.fifo.handle);
    }

    /// True if a host has opened the path.
    fn has_new_reader(&self) -> bool {
        self.current.as_ref().is_some_and(has_reader)
    }

    /// Puts the spare FIFO at the path, and returns the one that was there.
    fn replace(&mut self) -> Option<Fifo> {
        self.make_spare();
        let spare = self.spare.take().filter(|_| fs::rename(&self.spare_path, &self.path).is_ok());
        std::mem::replace(&mut self.current, spare)
    }

    /// Does slow work ahead of the next response.
    pub(super) fn prepare(&mut self) {
        self.retired = None;
        if self.held.is_none() {
            self.make_spare();
        }
    }

    /// Makes the next FIFO, unless there is one. If the disk is full, the one at the path serves for another response: the
    /// host may then meet one of the faults above.
    fn make_spare(&mut self) {
        if self.spare.is_none() {
            self.spare = make(&self.spare_path).ok();
        }
    }

    /// True if the FIFO of the last response has a writer that is not ours. Without one, the FIFO is dropped.
    fn is_last_held(&mut self) -> bool {
        let Some(last) = &self.last else { return false };
        let probe = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(by_descriptor(last));
        let Ok(probe) = probe else { return false };
        // A slow host still reads: it must get all of it.
        if waiting_bytes(&probe).unwrap_or(0) > 0 {
            return false;
        }
        let is_held = read(&probe, &mut [0]) == Err(Errno::EAGAIN);
        if !is_held {
            self.last = None;
        }
        is_held
    }

    /// Removes the FIFO that was made for the next response.
    pub(super) fn remove_spare(&mut self) {
        if self.spare.take().is_some() {
            // If the directory is gone, so is the FIFO.
            let _gone = fs::remove_file(&self.spare_path);
        }
    }
}

impl Target {
    /// Writes without waiting, and returns the number of bytes that were taken.
    ///
    /// # Errors
    /// `EAGAIN` if the FIFO is full, `EPIPE` if it has no reader.
    pub(super) fn write(&mut self, bytes: &[u8]) -> Result<usize, Errno> {
        let count = write(&self.fifo.writer, bytes)?;
        self.written += count;
        Ok(count)
    }

    /// True if nobody has read any of the bytes written.
    pub(super) fn is_unread(&self) -> Result<bool, Errno> {
        Ok(waiting_bytes(&self.fifo.writer)? >= self.written)
    }

    pub(super) fn writer(&self) -> BorrowedFd<'_> {
        self.fifo.writer.as_fd()
    }
}

impl Fifo {
    fn of(writer: OwnedFd) -> io::Result<Self> {
        let path = by_descriptor(&writer);
        let handle = OpenOptions::new().read(true).custom_flags(libc::O_PATH).open(path)?.into();
        Ok(Self { writer, handle })
    }
}

/// Makes a FIFO and opens its writer. No reader is needed, because for a moment it is open for both.
fn make(path: &Path) -> Result<Fifo, Exit> {
    make_fifo(path).map_err(Exit::failed)?;
    let _both = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(path)
        .map_err(Exit::failed)?;
    open_writer(path, OFlag::O_NONBLOCK).and_then(Fifo::of).map_err(Exit::failed)
}

pub(super) fn open_writer(path: &Path, flags: OFlag) -> io::Result<OwnedFd> {
    OpenOptions::new().write(true).custom_flags(flags.bits()).open(path).map(OwnedFd::from)
}

/// The identity of an open file.
pub(super) fn identity(fd: impl AsFd) -> io::Result<(u64, u64)> {
    let found = fstat(fd)?;
    Ok((found.st_dev, found.st_ino))
}

/// The identity of the file at a path. A link is not followed.
pub(super) fn identity_at(path: &Path) -> io::Result<(u64, u64)> {
    let found = path.symlink_metadata()?;
    Ok((found.dev(), found.ino()))
}

/// A pipe without a reader polls as broken for its writer.
fn has_reader(fifo: &Fifo) -> bool {
    let mut fds = [PollFd::new(fifo.writer.as_fd(), PollFlags::empty())];
    poll(&mut fds, PollTimeout::ZERO) == Ok(0)
}

fn by_descriptor(fd: &OwnedFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", fd.as_raw_fd()))
}
