//! The terminal that the session runs on: made, read, and typed at by nobody but us.
//!
//! The worker holds both sides. Its own handle of the slave side keeps the master from ever reporting end of file, so
//! that the shell's death is learned from the process and never from the terminal. Output is raw: `ONLCR` is off, so a
//! newline stays one byte, and so is `ECHO`.

use std::fs::{File, OpenOptions};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::termios::{
    FlowArg, FlushArg, LocalFlags, OutputFlags, SetArg, SpecialCharacterIndices, Termios, tcflow, tcflush,
    tcgetattr, tcsetattr,
};
use nix::unistd::{Pid, read, write};
use portable_pty::{PtySize, native_pty_system};
use rlm_core::sys;
use rlm_core::worker::HeadTail;

/// Bytes read from the terminal at a time; Linux hands out at most 4 KiB of them.
const READ_BYTES: usize = 16 << 10;

/// How long the fence may take. It takes microseconds, unless a program stopped the terminal's output.
const FENCE_LIMIT: Duration = Duration::from_millis(500);

/// After this time in a call, and then at this pace, whoever reads the terminal gets end of file.
pub(crate) const EOF_INTERVAL: Duration = Duration::from_millis(50);

/// How many end-of-file characters a program in raw mode gets: enough for a line editor to leave, not enough to scroll a
/// full-screen program for ever.
const MAX_RAW_EOFS: u32 = 4;

/// A terminal that cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum TerminalError {
    /// The system has no terminal left, or none at all.
    #[error("cannot make a terminal: {0}")]
    Make(String),
    /// The terminal was made and cannot be set up.
    #[error("cannot {operation} the terminal")]
    Use {
        /// What failed.
        operation: &'static str,
        /// Why.
        #[source]
        source: std::io::Error,
    },
}

/// Both sides of a pseudo-terminal.
#[derive(Debug)]
pub(crate) struct Terminal {
    master: OwnedFd,
    slave: OwnedFd,
    name: PathBuf,
    sane: Termios,
    feed: Feed,
    buffer: Box<[u8]>,
    fences: u64,
}

/// What is known of the programs that read the terminal during a call.
#[derive(Debug, Default)]
struct Feed {
    foreground: Option<Pid>,
    raw_eofs: u32,
    ticks_to_skip: u32,
}

impl Terminal {
    pub(crate) fn new(rows: u16, columns: u16) -> Result<Self, TerminalError> {
        let size = PtySize { rows, cols: columns, pixel_width: 0, pixel_height: 0 };
        let pair =
            native_pty_system().openpty(size).map_err(|error| TerminalError::Make(format!("{error:#}")))?;
        let raw = pair
            .master
            .as_raw_fd()
            .ok_or_else(|| TerminalError::Make("the terminal has no descriptor".into()))?;
        // SAFETY: `pair` owns the descriptor and outlives this borrow.
        let master = unsafe { BorrowedFd::borrow_raw(raw) }.try_clone_to_owned().map_err(failed("keep"))?;
        let name =
            pair.master.tty_name().ok_or_else(|| TerminalError::Make("the terminal has no name".into()))?;
        let slave = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NOCTTY | libc::O_NONBLOCK | libc::O_CLOEXEC)
            .open(&name)
            .map_err(failed("open"))?;
        let slave = OwnedFd::from(slave);
        fcntl(&master, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).map_err(failed_errno("set up"))?;
        let mut sane = tcgetattr(&slave).map_err(failed_errno("read the settings of"))?;
        sane.local_flags.remove(LocalFlags::ECHO);
        sane.output_flags.remove(OutputFlags::ONLCR);
        tcsetattr(&slave, SetArg::TCSANOW, &sane).map_err(failed_errno("set up"))?;
        Ok(Self {
            master,
            slave,
            name,
            sane,
            feed: Feed::default(),
            buffer: vec![0; READ_BYTES].into_boxed_slice(),
            fences: 0,
        })
    }

    /// The path of the slave side.
    pub(crate) fn name(&self) -> &Path {
        &self.name
    }

    /// The side that output arrives at.
    pub(crate) fn master(&self) -> BorrowedFd<'_> {
        self.master.as_fd()
    }

    /// A new handle of the slave side, blocking, for a child's standard output and error.
    pub(crate) fn slave_for_child(&self) -> Result<File, TerminalError> {
        // By path, for a new open file description: our own is non-blocking, and that flag would be shared.
        OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NOCTTY | libc::O_CLOEXEC)
            .open(&self.name)
            .map_err(failed("open"))
    }

    /// The process group in the foreground, where there is one.
    pub(crate) fn foreground(&self) -> Option<Pid> {
        nix::unistd::tcgetpgrp(&self.master).ok().filter(|group| group.as_raw() > 1)
    }

    /// Takes what has been printed, without waiting, up to about a megabyte. Returns whether everything was taken: the
    /// kernel says so only after it has passed on all that was written to the slave side before.
    pub(crate) fn read_available(&mut self, output: &mut HeadTail) -> Result<bool, Errno> {
        for _ in 0..256 {
            match read(&self.master, &mut self.buffer) {
                Ok(count) => output.push(&self.buffer[..count]),
                Err(Errno::EAGAIN) => return Ok(true),
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(false)
    }

    /// Takes all that was printed until now, exactly: nothing of it stays behind, and where a background job prints
    /// without pause, nothing is waited for either. `output` gets what came before this moment, `later` what came after.
    pub(crate) fn drain(&mut self, output: &mut HeadTail, later: &mut HeadTail) -> Result<(), Errno> {
        for _ in 0..2 {
            match read(&self.master, &mut self.buffer) {
                Ok(count) => output.push(&self.buffer[..count]),
                Err(Errno::EAGAIN) => return Ok(()),
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        self.fence(output, later)
    }

    /// Writes a token to our own handle of the slave side and reads up to it: the kernel keeps the order.
    fn fence(&mut self, output: &mut HeadTail, later: &mut HeadTail) -> Result<(), Errno> {
        let deadline = Instant::now() + FENCE_LIMIT;
        let mut pending: Vec<u8> = Vec::new();
        let mut token = self.next_token();
        let mut is_written = false;
        loop {
            if !is_written {
                match write(&self.slave, &token) {
                    Ok(count) if count == token.len() => is_written = true,
                    Ok(count) => {
                        // No room for all of it. What went out is taken off the output when it arrives.
                        let torn = token[..count].to_vec();
                        self.read_past(&torn, &mut pending, deadline)?;
                        token = self.next_token();
                    }
                    Err(Errno::EAGAIN | Errno::EINTR) => {}
                    Err(errno) => return Err(errno),
                }
            }
            match read(&self.master, &mut self.buffer) {
                Ok(count) => pending.extend_from_slice(&self.buffer[..count]),
                Err(Errno::EAGAIN) if Instant::now() >= deadline => break,
                Err(Errno::EAGAIN) => self.wait_readable(deadline),
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(errno),
            }
            if is_written && let Some(at) = memchr::memmem::rfind(&pending, &token) {
                output.push(&pending[..at]);
                later.push(&pending[at + token.len()..]);
                return Ok(());
            }
        }
        // Output was stopped (`tcflow`, Ctrl-S): let it flow, and take what there is.
        tcflow(&self.slave, FlowArg::TCOON)?;
        output.push(&pending);
        Ok(())
    }

    /// Reads until `torn`, the written part of a token, has come back, and removes it.
    fn read_past(&mut self, torn: &[u8], pending: &mut Vec<u8>, deadline: Instant) -> Result<(), Errno> {
        while !torn.is_empty() && Instant::now() < deadline {
            if let Some(at) = memchr::memmem::rfind(pending, torn) {
                pending.drain(at..at + torn.len());
                break;
            }
            match read(&self.master, &mut self.buffer) {
                Ok(count) => pending.extend_from_slice(&self.buffer[..count]),
                Err(Errno::EAGAIN) => self.wait_readable(deadline),
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }

    fn wait_readable(&self, deadline: Instant) {
        let mut fds = [PollFd::new(self.master.as_fd(), PollFlags::POLLIN)];
        // Whatever ends the wait, the caller reads and looks at the clock.
        let _interrupted = poll(&mut fds, sys::timeout_until(Some(deadline)));
    }

    /// Upper-case characters only: `stty olcuc` would change others.
    fn next_token(&mut self) -> Vec<u8> {
        self.fences += 1;
        let mut random = [0u8; 8];
        // SAFETY: the pointer and length are those of a live local array.
        unsafe { libc::getrandom(random.as_mut_ptr().cast(), random.len(), libc::GRND_NONBLOCK) };
        format!("\x1e{:016X}{:X}\x1e", u64::from_ne_bytes(random), self.fences).into_bytes()
    }

    /// Begins a call: whoever reads from now on is a new reader.
    pub(crate) fn begin_call(&mut self) {
        self.feed = Feed::default();
    }

    /// Keeps exactly one end of file waiting at the terminal, so that whoever reads it reads that.
    pub(crate) fn send_eof(&mut self) -> Result<(), Errno> {
        // Nobody is there to press Ctrl-Q, should a program have stopped the terminal's output.
        tcflow(&self.slave, FlowArg::TCOON)?;
        let mut fds = [PollFd::new(self.slave.as_fd(), PollFlags::POLLIN)];
        if poll(&mut fds, PollTimeout::ZERO)? > 0 {
            return Ok(());
        }
        let settings = tcgetattr(&self.slave)?;
        let end_of_file = settings.control_chars[SpecialCharacterIndices::VEOF as usize];
        let foreground = self.foreground();
        if settings.local_flags.contains(LocalFlags::ICANON) || self.feed.foreground != foreground {
            self.feed = Feed { foreground, ..Feed::default() };
        }
        if !settings.local_flags.contains(LocalFlags::ICANON) {
            if self.feed.raw_eofs == MAX_RAW_EOFS {
                return Ok(());
            }
            if self.feed.ticks_to_skip > 0 {
                self.feed.ticks_to_skip -= 1;
                return Ok(());
            }
            self.feed.raw_eofs += 1;
            self.feed.ticks_to_skip = 1 << self.feed.raw_eofs;
        }
        // In raw mode the character has no meaning to the terminal; programs know it as Ctrl-D.
        let character = if end_of_file == 0 { 0x04 } else { end_of_file };
        match write(&self.master, &[character]) {
            Ok(_) | Err(Errno::EAGAIN | Errno::EINTR) => Ok(()),
            Err(errno) => Err(errno),
        }
    }

    /// Types at the terminal.
    pub(crate) fn type_text(&self, text: &str) -> Result<(), Errno> {
        match write(&self.master, text.as_bytes()) {
            Ok(_) | Err(Errno::EAGAIN | Errno::EINTR) => Ok(()),
            Err(errno) => Err(errno),
        }
    }

    /// Ends a call: an end of file that nobody read is not for a background job.
    pub(crate) fn flush_input(&self) {
        // Nothing is lost with what nobody typed.
        let _nothing_to_flush = tcflush(&self.slave, FlushArg::TCIFLUSH);
    }

    /// The current settings, to be put back by [`Self::restore`].
    pub(crate) fn settings(&self) -> Option<Termios> {
        tcgetattr(&self.slave).ok()
    }

    /// Puts settings back, those that the session began with where there are none, and lets output flow: a program may
    /// have died without cleaning up.
    pub(crate) fn restore(&self, settings: Option<&Termios>) {
        // A terminal that refuses is no worse than before.
        let _refused = tcflow(&self.slave, FlowArg::TCOON);
        let _refused = tcsetattr(&self.slave, SetArg::TCSANOW, settings.unwrap_or(&self.sane));
    }
}

/// Makes the terminal on `fd` the controlling one of the calling process, which leads a new session. Async-signal-safe.
pub(crate) fn take_terminal(fd: i32) -> std::io::Result<()> {
    // SAFETY: the ioctl takes a plain integer.
    Errno::result(unsafe { libc::ioctl(fd, libc::TIOCSCTTY, 0) })?;
    Ok(())
}

fn failed(operation: &'static str) -> impl FnOnce(std::io::Error) -> TerminalError {
    move |source| TerminalError::Use { operation, source }
}

fn failed_errno(operation: &'static str) -> impl FnOnce(Errno) -> TerminalError {
    move |errno| TerminalError::Use { operation, source: errno.into() }
}
