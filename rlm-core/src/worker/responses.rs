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

use std::fs::{self, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::stat::fstat;
use nix::unistd::read;

use super::exit::Exit;
use crate::control::{ControlDir, make_fifo};
use crate::sys::waiting_bytes;

/// The FIFOs of past, present and future responses.
#[derive(Debug)]
pub(super) struct ResponseFifos {
    path: PathBuf,
    spare_path: PathBuf,
    /// Writer of the FIFO at the path. None: no spare could be made, so it is opened when a host is there.
    current: Option<OwnedFd>,
    /// Writer of the FIFO that takes its place.
    spare: Option<OwnedFd>,
    /// The FIFO of the last response, opened neither for reading nor for writing.
    last: Option<OwnedFd>,
    /// Writer of a FIFO that a host holds open.
    held: Option<OwnedFd>,
}

/// The FIFO for one response.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) writer: OwnedFd,
    /// A host holds it open for all responses.
    is_held: bool,
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
        let mut fifos =
            Self { path, spare_path, current: Some(current), spare: None, last: None, held: None };
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
            Some(current) => Ok(identity(current)? == identity_at(&self.path)?),
            None => identity_at(&self.path).map(|_found| true),
        }
    }

    /// True if a host has opened the path.
    pub(super) fn has_new_reader(&self) -> bool {
        self.current.as_ref().is_some_and(has_reader)
    }

    /// The FIFO for the next response, if a host is there to read it.
    pub(super) fn target(&mut self) -> Option<Target> {
        if self.current.is_none() {
            self.current = open_writer(&self.path, OFlag::O_NONBLOCK).ok();
        }
        if self.has_new_reader() {
            return self.replace().map(|writer| Target { writer, is_held: false });
        }
        self.held.take_if(|held| !has_reader(held));
        if self.held.is_none() && self.is_last_held() {
            let last = self.last.take()?;
            self.held = open_writer(&by_descriptor(&last), OFlag::O_NONBLOCK).ok();
            self.remove_spare();
        }
        self.held.take().map(|writer| Target { writer, is_held: true })
    }

    /// True while a host that holds the last FIFO may still be found.
    pub(super) fn may_be_held(&self) -> bool {
        self.last.is_some()
    }

    /// Takes a writer that was opened at the path when a host came.
    pub(super) fn opened(&mut self, writer: OwnedFd) {
        self.current.get_or_insert(writer);
    }

    /// Ends the reading of a response that was delivered.
    pub(super) fn finish(&mut self, target: Target) {
        if target.is_held {
            self.held = Some(target.writer);
        } else {
            self.abandon(target);
            self.prepare();
        }
    }

    /// Lets go of the FIFO of a response that has to be delivered again.
    pub(super) fn abandon(&mut self, target: Target) {
        let handle =
            OpenOptions::new().read(true).custom_flags(libc::O_PATH).open(by_descriptor(&target.writer));
        self.last = handle.ok().map(OwnedFd::from);
    }

    /// Puts the spare FIFO at the path, and returns the writer of the one that was there.
    fn replace(&mut self) -> Option<OwnedFd> {
        if self.spare.is_none() {
            self.prepare();
        }
        let spare = self.spare.take().filter(|_| fs::rename(&self.spare_path, &self.path).is_ok());
        std::mem::replace(&mut self.current, spare)
    }

    /// Makes the next FIFO. If the disk is full, the one at the path serves for another response: the host may then meet one
    /// of the faults above.
    fn prepare(&mut self) {
        self.spare = make(&self.spare_path).ok();
    }

    /// True if the FIFO of the last response has a writer, which is not ours. Once it has none, it is of no use.
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

    fn remove_spare(&mut self) {
        if self.spare.take().is_some() {
            // With the directory, it is gone too.
            let _gone = fs::remove_file(&self.spare_path);
        }
    }
}

impl Drop for ResponseFifos {
    fn drop(&mut self) {
        self.remove_spare();
    }
}

/// Makes a FIFO and opens its writer. No reader is needed, because for a moment it is open for both.
fn make(path: &Path) -> Result<OwnedFd, Exit> {
    make_fifo(path).map_err(Exit::failed)?;
    let _both = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(path)
        .map_err(Exit::failed)?;
    open_writer(path, OFlag::O_NONBLOCK).map_err(Exit::failed)
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
pub(super) fn has_reader(writer: impl AsFd) -> bool {
    let mut fds = [PollFd::new(writer.as_fd(), PollFlags::empty())];
    poll(&mut fds, PollTimeout::ZERO) == Ok(0)
}

fn by_descriptor(fd: &OwnedFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", fd.as_raw_fd()))
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{Read as _, Write as _};

    use super::*;

    fn fifos() -> (tempfile::TempDir, ResponseFifos) {
        let dir = tempfile::tempdir().unwrap();
        let fifos = ResponseFifos::make(&ControlDir::new(dir.path())).unwrap();
        (dir, fifos)
    }

    fn open(fifos: &ResponseFifos) -> File {
        File::options().read(true).custom_flags(libc::O_NONBLOCK).open(fifos.path()).unwrap()
    }

    fn write(target: &Target, text: &[u8]) {
        File::from(target.writer.try_clone().unwrap()).write_all(text).unwrap();
    }

    /// Everything up to end of file; an error if that does not come.
    fn read_to_end(mut reader: &File) -> io::Result<Vec<u8>> {
        let mut text = Vec::new();
        reader.read_to_end(&mut text).map(|_length| text)
    }

    #[test]
    fn a_target_needs_a_reader_and_is_no_longer_at_the_path() {
        let (_dir, mut fifos) = fifos();
        assert!(fifos.target().is_none());
        let (first, target) = (open(&fifos), fifos.target().unwrap());
        assert!(fifos.is_in_place().unwrap() && !fifos.has_new_reader());
        let second = open(&fifos);
        write(&target, b"first");
        assert_eq!((&second).read(&mut [0]).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        fifos.finish(target);
        assert_eq!(read_to_end(&first).unwrap(), b"first");
        let target = fifos.target().unwrap();
        write(&target, b"second");
        fifos.finish(target);
        assert_eq!(read_to_end(&second).unwrap(), b"second");
    }

    #[test]
    fn a_fifo_that_is_held_for_writing_too_is_found_once_it_was_read() {
        let (_dir, mut fifos) = fifos();
        let holder = File::options().read(true).write(true).open(fifos.path()).unwrap();
        let first = fifos.target().unwrap();
        write(&first, b"first");
        fifos.finish(first);
        // It may be a slow reader's, and must not be read.
        assert!(fifos.target().is_none() && fifos.may_be_held());
        (&holder).read_exact(&mut [0; 5]).unwrap();
        for _ in 0..3 {
            let target = fifos.target().unwrap();
            assert!(target.is_held && !fifos.spare_path.exists());
            fifos.finish(target);
        }
        let reader = open(&fifos);
        let target = fifos.target().unwrap();
        assert!(!target.is_held);
        drop(reader);
        fifos.abandon(target);
        assert!(fifos.target().unwrap().is_held);
        drop(holder);
        assert!(fifos.target().is_none() && !fifos.may_be_held());
    }

    #[test]
    fn without_a_next_fifo_one_serves_again() {
        let (dir, mut fifos) = fifos();
        fifos.remove_spare();
        let planted = dir.path().join("rlm_res.new");
        fs::create_dir(&planted).unwrap();
        for text in [b"first", b"other"] {
            let reader = open(&fifos);
            let target = fifos.target().unwrap();
            write(&target, text);
            fifos.finish(target);
            assert_eq!(read_to_end(&reader).unwrap(), text);
        }
        fs::remove_dir(&planted).unwrap();
        let reader = open(&fifos);
        let target = fifos.target().unwrap();
        assert!(fifos.current.is_some());
        fifos.finish(target);
        assert_eq!(read_to_end(&reader).unwrap(), b"");
    }
}
