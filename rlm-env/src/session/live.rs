//! Output of calls as it comes.
//!
//! The session holds each FIFO open for reading and writing, so that it sees no end of file between calls.

use std::convert::Infallible;
use std::fmt;
use std::fs::{File, OpenOptions};
use std::future::pending;
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;
use rlm_core::control::{ControlDir, make_fifo};
use rlm_core::sys::waiting_bytes;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::task::yield_now;

use super::error::{SessionError, io_error};
use super::process::watch_fd;

/// Wanted size of a FIFO in bytes: a call may print this much while nobody reads.
const FIFO_BYTES: i32 = 1 << 20;

/// Bytes read at a time.
const READ_BYTES: usize = 64 << 10;

/// A stream of a call's output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputStream {
    /// Standard output; in bash, all that the terminal shows.
    Stdout,
    /// Standard error.
    Stderr,
}

/// Watches the output of a session's calls as it comes.
pub trait OutputObserver: fmt::Debug + Send + Sync {
    /// Gets a piece of the running call's output, in order within its stream. Must not block for long: output that comes faster
    /// than it is taken is left out until the call has ended. The response has all output.
    fn output(&self, stream: OutputStream, text: &str);
}

/// The FIFOs of a session whose output is watched.
#[derive(Debug)]
pub(super) struct Live {
    stdout: Fifo,
    stderr: Fifo,
    observer: Arc<dyn OutputObserver>,
}

#[derive(Debug)]
struct Fifo {
    stream: OutputStream,
    path: PathBuf,
    file: AsyncFd<File>,
    text: Undecoded,
}

impl Live {
    /// Makes the FIFOs, before the worker starts.
    pub(super) fn make(
        control: &ControlDir,
        observer: Arc<dyn OutputObserver>,
    ) -> Result<Self, SessionError> {
        Ok(Self {
            stdout: Fifo::make(control.stdout_fifo(), OutputStream::Stdout)?,
            stderr: Fifo::make(control.stderr_fifo(), OutputStream::Stderr)?,
            observer,
        })
    }

    /// Passes on output as it comes, for as long as the future is polled. Cancel-safe.
    pub(super) async fn watch(live: &mut Option<Self>) -> Infallible {
        let Some(Self { stdout, stderr, observer }) = live else { return pending().await };
        loop {
            tokio::select! {
                () = stdout.next(&**observer) => {}
                () = stderr.next(&**observer) => {}
            }
            // A call may print without end.
            yield_now().await;
        }
    }

    /// Passes on the rest of the output of a call that has ended.
    pub(super) fn finish(&mut self) {
        self.stdout.finish(&*self.observer);
        self.stderr.finish(&*self.observer);
    }
}

impl Fifo {
    fn make(path: PathBuf, stream: OutputStream) -> Result<Self, SessionError> {
        make_fifo(&path)?;
        let file = open(&path).and_then(|file| watch_fd(file, Interest::READABLE));
        let file = file.map_err(io_error("open the FIFOs for output"))?;
        Ok(Self { stream, path, file, text: Undecoded::default() })
    }

    /// Passes on the next piece.
    async fn next(&mut self, observer: &dyn OutputObserver) {
        let Self { stream, file, text, .. } = self;
        // An error means that the runtime is shutting down.
        let Ok(mut guard) = file.readable().await else { return pending().await };
        if text.read(guard.get_inner(), READ_BYTES, |text| observer.output(*stream, text)) < READ_BYTES {
            guard.clear_ready();
        }
    }

    /// Passes on the output that is there now, and an incomplete character at its end.
    fn finish(&mut self, observer: &dyn OutputObserver) {
        let pass_on = |text: &str| observer.output(self.stream, text);
        // Output that comes after this moment does not belong to the call.
        let mut left = waiting_bytes(self.file.get_ref()).unwrap_or(0);
        while left > 0 {
            match self.text.read(self.file.get_ref(), left, pass_on) {
                0 => break,
                count => left -= count,
            }
        }
        let rest = std::mem::take(&mut self.text.0);
        if !rest.is_empty() {
            pass_on(&String::from_utf8_lossy(&rest));
        }
    }
}

/// Bytes on the way to a text: between two reads, the beginning of a character.
#[derive(Debug, Default)]
struct Undecoded(Vec<u8>);

impl Undecoded {
    /// Reads once, and passes on the text. Returns the number of bytes.
    fn read(&mut self, mut file: &File, most: usize, pass_on: impl FnOnce(&str)) -> usize {
        let begun = self.0.len();
        self.0.resize(begun + most.min(READ_BYTES), 0);
        let read = file.read(&mut self.0[begun..]).unwrap_or(0);
        self.0.truncate(begun + read);
        let whole = whole_characters(&self.0);
        if whole > 0 {
            pass_on(&String::from_utf8_lossy(&self.0[..whole]));
            self.0.drain(..whole);
        }
        read
    }
}

impl Drop for Fifo {
    fn drop(&mut self) {
        // The directory may be gone.
        let _gone = std::fs::remove_file(&self.path);
    }
}

fn open(path: &Path) -> io::Result<File> {
    let flags = libc::O_NONBLOCK | libc::O_NOFOLLOW;
    let file = OpenOptions::new().read(true).write(true).custom_flags(flags).open(path)?;
    // A smaller FIFO works as well, but is full sooner.
    let _smaller = fcntl(&file, FcntlArg::F_SETPIPE_SZ(FIFO_BYTES));
    Ok(file)
}

/// The length without an incomplete character at the end.
fn whole_characters(bytes: &[u8]) -> usize {
    let mut last = (bytes.len().saturating_sub(3)..bytes.len()).rev();
    let Some(lead) = last.find(|at| bytes[*at] & 0xc0 != 0x80) else { return bytes.len() };
    let length = match bytes[lead] {
        0xc2..=0xdf => 2,
        0xe0..=0xef => 3,
        0xf0..=0xf4 => 4,
        _ => 1,
    };
    if bytes.len() - lead < length { lead } else { bytes.len() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_character_that_has_not_come_whole_waits() {
        for (text, whole) in [("", 0), ("ab", 2), ("aé", 3), ("€", 3), ("a😀", 5)] {
            assert_eq!(whole_characters(text.as_bytes()), whole);
        }
        for (text, cut, whole) in [("aé", 1, 1), ("€", 1, 0), ("€", 2, 0), ("a😀", 1, 1), ("a😀", 3, 1)]
        {
            assert_eq!(whole_characters(&text.as_bytes()[..text.len() - cut]), whole, "{text} {cut}");
        }
        assert_eq!(whole_characters(b"a\xff"), 2);
        assert_eq!(whole_characters(b"\x80\x80\x80\x80"), 4);
    }
}
