//! The session's terminal, which only the worker creates, reads and types at.
//!
//! The worker holds both sides. Its own handle of the slave side keeps the master from ever reporting end of file, so
//! that the shell's death is detected from the process and never from the terminal. Output is raw: `ONLCR` is off, so
//! that a newline stays one byte, and so is `ECHO`.

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

/// Bytes read from the terminal at a time; Linux returns at most 4 KiB.
const READ_BYTES: usize = 16 << 10;

/// Longest wait for the fence. It takes microseconds, unless a program stopped the terminal's output.
const FENCE_LIMIT: Duration = Duration::from_millis(500);

/// Interval, during a call, at which programs that read the terminal get end of file.
pub(crate) const EOF_INTERVAL: Duration = Duration::from_millis(50);

/// Most end-of-file characters that a program in raw mode gets: enough to leave a line editor, not enough to scroll a
/// full-screen program for ever.
const MAX_RAW_EOFS: u32 = 4;

/// A terminal that cannot be created or used.
#[derive(Debug, thiserror::Error)]
pub enum TerminalError {
    /// The system has no terminal left, or none at all.
    #[error("cannot create a terminal: {0}")]
    Create(String),
    /// The terminal was created but cannot be set up.
    #[error("cannot {operation} the terminal")]
    Use {
        /// The operation that failed.
        operation: &'static str,
        /// Error of the system.
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
    eof_pacing: EofPacing,
    buffer: Box<[u8]>,
    fences: u64,
}

/// The pacing of end-of-file characters to the programs that read the terminal during a call.
#[derive(Debug, Default)]
struct EofPacing {
    foreground: Option<Pid>,
    raw_eofs: u32,
    ticks_to_skip: u32,
}

impl Terminal {
    pub(crate) fn new(rows: u16, columns: u16) -> Result<Self, TerminalError> {
        let size = PtySize { rows, cols: columns, pixel_width: 0, pixel_height: 0 };
        let pair =
            native_pty_system().openpty(size).map_err(|error| TerminalError::Create(format!("{error:#}")))?;
        let raw = pair
            .master
            .as_raw_fd()
            .ok_or_else(|| TerminalError::Create("the terminal has no descriptor".into()))?;
        // SAFETY: `pair` owns the descriptor and outlives this borrow.
        let master = unsafe { BorrowedFd::borrow_raw(raw) }.try_clone_to_owned().map_err(failed("keep"))?;
        let name =
            pair.master.tty_name().ok_or_else(|| TerminalError::Create("the terminal has no name".into()))?;
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
            eof_pacing: EofPacing::default(),
            buffer: vec![0; READ_BYTES].into_boxed_slice(),
            fences: 0,
        })
    }

    /// Path of the slave side.
    pub(crate) fn name(&self) -> &Path {
        &self.name
    }

    /// The side from which output is read.
    pub(crate) fn master(&self) -> BorrowedFd<'_> {
        self.master.as_fd()
    }

    /// A new, blocking handle of the slave side, for a child's standard output and error.
    pub(crate) fn slave_for_child(&self) -> Result<File, TerminalError> {
        // Opened by path for a new open file description: ours is non-blocking, and would share that flag.
        OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NOCTTY | libc::O_CLOEXEC)
            .open(&self.name)
            .map_err(failed("open"))
    }

    /// The foreground process group, if there is one.
    pub(crate) fn foreground(&self) -> Option<Pid> {
        nix::unistd::tcgetpgrp(&self.master).ok().filter(|group| group.as_raw() > 1)
    }

    /// Reads the available output, without waiting, up to about a megabyte. Returns true if nothing was left: the
    /// kernel reports that only after it has delivered everything written to the slave side before.
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

    /// Reads exactly the output printed until now: none of it is left behind, and a background job that prints without
    /// pause does not delay it. `output` gets the bytes from before this moment, `later` those from after it.
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
                        // There was no room for all of it. The part that was written is removed from the output when it
                        // arrives.
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
        // Output was stopped (`tcflow`, Ctrl-S): resume it, and take what is available.
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
        // Whatever ends the wait, the caller reads again and checks the time.
        let _interrupted = poll(&mut fds, sys::timeout_until(Some(deadline)));
    }

    /// Upper-case characters only: `stty olcuc` would change lower-case ones.
    fn next_token(&mut self) -> Vec<u8> {
        self.fences += 1;
        format!("\x1e{:016X}{:X}\x1e", random(), self.fences).into_bytes()
    }

    /// Starts a call: any program that reads from now on counts as a new reader. A terminal that a program has left raw is as at first,
    /// since nothing that reads lines would see an end of file there. Returns the settings, for [`Self::restore`].
    pub(crate) fn begin_call(&mut self) -> Option<Termios> {
        self.eof_pacing = EofPacing::default();
        let settings = tcgetattr(&self.slave).ok()?;
        if settings.local_flags.contains(LocalFlags::ICANON) {
            return Some(settings);
        }
        self.restore(None);
        Some(self.sane.clone())
    }

    /// Keeps exactly one end of file pending at the terminal, for whichever program reads it.
    pub(crate) fn send_eof(&mut self) -> Result<(), Errno> {
        // A program may have stopped the terminal's output, and nobody can press Ctrl-Q.
        tcflow(&self.slave, FlowArg::TCOON)?;
        if self.has_input()? {
            return Ok(());
        }
        let settings = tcgetattr(&self.slave)?;
        let end_of_file = settings.control_chars[SpecialCharacterIndices::VEOF as usize];
        let foreground = self.foreground();
        if settings.local_flags.contains(LocalFlags::ICANON) || self.eof_pacing.foreground != foreground {
            self.eof_pacing = EofPacing { foreground, ..EofPacing::default() };
        }
        if !settings.local_flags.contains(LocalFlags::ICANON) {
            if self.eof_pacing.raw_eofs == MAX_RAW_EOFS {
                return Ok(());
            }
            if self.eof_pacing.ticks_to_skip > 0 {
                self.eof_pacing.ticks_to_skip -= 1;
                return Ok(());
            }
            self.eof_pacing.raw_eofs += 1;
            self.eof_pacing.ticks_to_skip = 1 << self.eof_pacing.raw_eofs;
        }
        // In raw mode the character means nothing to the terminal; programs know it as Ctrl-D.
        let character = if end_of_file == 0 { 0x04 } else { end_of_file };
        match write(&self.master, &[character]) {
            Ok(_) | Err(Errno::EAGAIN | Errno::EINTR) => Ok(()),
            Err(errno) => Err(errno),
        }
    }

    /// True if something was typed that nobody has read.
    pub(crate) fn has_input(&self) -> Result<bool, Errno> {
        let mut fds = [PollFd::new(self.slave.as_fd(), PollFlags::POLLIN)];
        Ok(poll(&mut fds, PollTimeout::ZERO)? > 0)
    }

    /// Types at the terminal.
    pub(crate) fn type_text(&self, text: &str) -> Result<(), Errno> {
        match write(&self.master, text.as_bytes()) {
            Ok(_) | Err(Errno::EAGAIN | Errno::EINTR) => Ok(()),
            Err(errno) => Err(errno),
        }
    }

    /// Discards what nobody has read: at the end of a call, an end of file must not reach a background job.
    pub(crate) fn flush_input(&self) {
        // Nobody typed this input, so nothing is lost.
        let _nothing_to_flush = tcflush(&self.slave, FlushArg::TCIFLUSH);
    }

    /// Restores settings, by default those that the session started with, and lets output flow: a program may have died
    /// without cleaning up.
    pub(crate) fn restore(&self, settings: Option<&Termios>) {
        // If the terminal refuses, it is no worse than before.
        let _refused = tcflow(&self.slave, FlowArg::TCOON);
        let _refused = tcsetattr(&self.slave, SetArg::TCSANOW, settings.unwrap_or(&self.sane));
    }
}

/// A random number, for tokens that no text has by chance.
pub(crate) fn random() -> u64 {
    let mut random = [0u8; 8];
    // SAFETY: the pointer and length are those of a live local array.
    unsafe { libc::getrandom(random.as_mut_ptr().cast(), random.len(), libc::GRND_NONBLOCK) };
    u64::from_ne_bytes(random)
}

/// Makes the terminal on `fd` the controlling terminal of the calling process, which leads a new session.
/// Async-signal-safe.
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
