//! The one place where a worker waits.
//!
//! A worker waits for everything, be it a request, the shell, or a host that opens the response FIFO, in [`Events::wait`],
//! which also sees signals and the death of the host. So nothing can keep a worker from ending, and nothing wakes an
//! idle one.

use std::cell::Cell;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{SigSet, SigmaskHow, Signal, sigprocmask};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::Pid;

use super::ForwardFlag;
use super::exit::Exit;
use crate::sys;

/// Longest wait for a guard that still holds a signal. It passes signals on as soon as it runs, which takes a while on busy processors.
const GUARD_LIMIT: Duration = Duration::from_millis(500);

/// The server's access to the processes above it, which namespaces may hide from it.
#[derive(Debug)]
pub struct Above {
    /// The guard.
    pub guard: Pid,
    /// Set while the guard passes a signal on.
    pub forwarding: ForwardFlag,
    /// `/proc/PID/status` of the guard.
    status: Option<File>,
    /// The host, if its process id is known.
    host: Option<Result<OwnedFd, Errno>>,
    /// The guard itself.
    guard_fd: Result<OwnedFd, Errno>,
    /// The server is the first process of new namespaces.
    pub is_in_namespaces: bool,
    /// The server is a child of a fork server.
    is_forked: bool,
}

impl Above {
    /// The processes above a server that this process, the guard, is about to start.
    #[must_use]
    pub fn new(host: Option<Pid>, forwarding: ForwardFlag) -> Self {
        Self {
            guard: Pid::this(),
            forwarding,
            status: File::open("/proc/self/status").ok(),
            host: host.map(sys::pidfd),
            guard_fd: sys::pidfd(Pid::this()),
            is_in_namespaces: false,
            is_forked: false,
        }
    }

    /// The processes above this one, a server that a fork server has forked.
    pub(super) fn of_forked(guard: Pid, host: Option<Pid>, forwarding: ForwardFlag) -> Self {
        Self {
            guard,
            forwarding,
            status: File::open(format!("/proc/{guard}/status")).ok(),
            host: host.map(sys::pidfd),
            guard_fd: sys::pidfd(guard),
            is_in_namespaces: false,
            is_forked: true,
        }
    }

    /// Has the kernel kill this process when the guard dies, and checks that it has not died already.
    pub(super) fn end_with_guard(&self) -> Result<(), Errno> {
        set_pdeathsig(Signal::SIGKILL)?;
        let guard = self.guard_fd.as_ref().map_err(|errno| *errno)?;
        match poll(&mut [PollFd::new(guard.as_fd(), PollFlags::POLLIN)], PollTimeout::ZERO)? {
            0 => Ok(()),
            _ => Err(Errno::ESRCH),
        }
    }
}

/// The end of a wait.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wake {
    /// SIGINT came: the host interrupts the running call.
    pub interrupt: bool,
    /// True for each descriptor that is ready, in the order given.
    pub ready: Vec<bool>,
}

/// Signal that a response was read.
const READ_SIGNAL: Signal = Signal::SIGIO;

/// Signal that an entry of the control directory has changed.
const CHANGE_SIGNAL: Signal = Signal::SIGURG;

/// Constant of `asm-generic/fcntl.h`.
const F_SETSIG: libc::c_int = 10;

/// `DN_CREATE | DN_DELETE | DN_RENAME | DN_MULTISHOT` from `linux/fcntl.h`.
const EACH_CHANGE: libc::c_uint = 0x8000_001c;

/// Descriptors for signals and for the host's death.
#[derive(Debug)]
pub struct Events {
    signals: SignalFd,
    host: Option<OwnedFd>,
    /// The guard, where it is not the parent of this process: readable once it is dead.
    guard_fd: Option<OwnedFd>,
    /// `/proc/PID/status` of the guard, which passes signals on.
    guard: Option<File>,
    forwarding: ForwardFlag,
    /// This process is the first one of its namespaces.
    is_in_namespaces: bool,
    /// An entry of the control directory has changed.
    change: Cell<bool>,
}

impl Events {
    /// The signals that a worker handles. They must be blocked from the start of the process: see [`block_signals`].
    pub(crate) fn signals() -> SigSet {
        let mut set = SigSet::empty();
        for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGQUIT, Signal::SIGCHLD] {
            set.add(signal);
        }
        set
    }

    /// Watches signals, and the host if its process id is known.
    ///
    /// # Errors
    /// [`Exit::HostGone`] if the host is dead already; a failure if the kernel has no descriptor left.
    pub fn new(above: Above) -> Result<Self, Exit> {
        let mut signals = Self::signals();
        signals.add(READ_SIGNAL);
        signals.add(CHANGE_SIGNAL);
        sigprocmask(SigmaskHow::SIG_BLOCK, Some(&signals), None)?;
        let signals = SignalFd::with_flags(&signals, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
        let host = match above.host.transpose() {
            Ok(host) => host,
            Err(Errno::ESRCH) => return Err(Exit::HostGone),
            Err(errno) => return Err(errno.into()),
        };
        let Above { status, forwarding, is_in_namespaces, is_forked, guard_fd, .. } = above;
        let guard_fd = match guard_fd {
            Ok(guard) if is_forked => Some(guard),
            Err(_gone) if is_forked => return Err(Exit::Signalled(Signal::SIGTERM)),
            _ => None,
        };
        let change = Cell::new(false);
        Ok(Self { signals, host, guard_fd, guard: status, forwarding, is_in_namespaces, change })
    }

    /// Waits until one of `fds` is ready or the deadline has passed.
    ///
    /// # Errors
    /// [`Exit`] as soon as the worker has to end.
    pub fn wait<'fds>(
        &'fds self,
        mut fds: Vec<PollFd<'fds>>,
        deadline: Option<Instant>,
    ) -> Result<Wake, Exit> {
        let given = fds.len();
        fds.push(PollFd::new(self.signals.as_fd(), PollFlags::POLLIN));
        let above = [&self.host, &self.guard_fd].into_iter().flatten();
        fds.extend(above.map(|fd| PollFd::new(fd.as_fd(), PollFlags::POLLIN)));
        match poll(&mut fds, sys::timeout_until(deadline)) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        let is_ready = |fd: &PollFd<'_>| fd.any().unwrap_or(false);
        let (given, own) = fds.split_at(given);
        let mut above = own[1..].iter();
        if self.host.is_some() && above.next().is_some_and(is_ready) {
            return Err(Exit::HostGone);
        }
        if above.next().is_some_and(is_ready) {
            return Err(Exit::Signalled(Signal::SIGTERM));
        }
        let signalled = is_ready(&own[0]);
        let ready = given.iter().map(is_ready).collect();
        let interrupt = signalled && self.read_signals()?;
        Ok(Wake { interrupt, ready })
    }

    /// True if an entry of the control directory was made, removed or renamed since the last call.
    pub(super) fn take_change(&self) -> bool {
        self.change.take()
    }

    /// Discards the interrupts that came before a call: they were for an earlier call. Includes those that the guard has not
    /// passed on yet, or a late interrupt would hit the next call.
    ///
    /// # Errors
    /// [`Exit`] if the worker has to end.
    pub fn discard_earlier_interrupts(&self) -> Result<(), Exit> {
        let deadline = Instant::now() + GUARD_LIMIT;
        while self.guard_holds_interrupt() && Instant::now() < deadline {
            std::thread::yield_now();
        }
        self.read_signals().map(|_late| ())
    }

    fn guard_holds_interrupt(&self) -> bool {
        let mut status = [0; 4096];
        let count = self.guard.as_ref().and_then(|guard| guard.read_at(&mut status, 0).ok()).unwrap_or(0);
        // In this order: a signal that is no longer pending in the kernel is held by the guard until it is passed on.
        pending_signals(&status[..count]) & (1 << (Signal::SIGINT as u32 - 1)) != 0
            || self.forwarding.is_set()
    }

    /// Reads the pending signals; true if SIGINT was among them.
    fn read_signals(&self) -> Result<bool, Exit> {
        let mut interrupt = false;
        while let Some(info) = self.signals.read_signal()? {
            match Signal::try_from(i32::try_from(info.ssi_signo).unwrap_or(0)) {
                Ok(Signal::SIGINT) if !self.is_in_namespaces || info.ssi_pid == 0 => interrupt = true,
                // Children have descriptors of their own, and orphans are reaped elsewhere. A wait for a reader checks again
                // after each wake.
                Ok(Signal::SIGCHLD | READ_SIGNAL) | Err(_) => {}
                Ok(CHANGE_SIGNAL) => self.change.set(true),
                // A signal from the session. A sender outside of the namespaces has no number here.
                Ok(_) if self.is_in_namespaces && info.ssi_pid != 0 => {}
                Ok(signal) => return Err(Exit::Signalled(signal)),
            }
        }
        Ok(interrupt)
    }
}

/// Asks for a wake whenever somebody reads from a pipe, or the last reader closes it.
///
/// # Errors
/// The descriptor is not a pipe.
pub(super) fn signal_reads(writer: BorrowedFd<'_>) -> Result<(), Errno> {
    let (fd, this) = (writer.as_raw_fd(), Pid::this().as_raw());
    // SAFETY: both calls take plain integers and an open descriptor.
    Errno::result(unsafe { libc::fcntl(fd, libc::F_SETOWN, this) })?;
    // SAFETY: as above.
    Errno::result(unsafe { libc::fcntl(fd, libc::F_SETFL, libc::O_NONBLOCK | libc::O_ASYNC) }).map(drop)
}

/// Asks for a wake when an entry of a directory is made, removed or renamed, as long as the descriptor is open (`dnotify`).
///
/// # Errors
/// It cannot be opened, or the system has no dnotify.
pub(super) fn signal_changes(directory: &Path) -> io::Result<OwnedFd> {
    let directory = File::open(directory)?;
    let fd = directory.as_raw_fd();
    // SAFETY: both calls take plain integers and an open descriptor.
    Errno::result(unsafe { libc::fcntl(fd, F_SETSIG, CHANGE_SIGNAL as libc::c_int) })?;
    // SAFETY: as above.
    Errno::result(unsafe { libc::fcntl(fd, libc::F_NOTIFY, EACH_CHANGE) })?;
    Ok(directory.into())
}

/// The pending signals of a process, from its `/proc/PID/status`.
fn pending_signals(status: &[u8]) -> u64 {
    let pending = status.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(b"ShdPnd:"));
    let digits = pending.and_then(|digits| std::str::from_utf8(digits).ok()).unwrap_or_default();
    u64::from_str_radix(digits.trim(), 16).unwrap_or(0)
}

/// Blocks the signals that [`Events`] reads. Children must have their mask emptied before they execute.
///
/// # Errors
/// The kernel refuses, which it does not for valid arguments.
pub fn block_signals() -> Result<(), Errno> {
    sigprocmask(SigmaskHow::SIG_BLOCK, Some(&Events::signals()), None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pending_signals_are_read_from_the_status_file() {
        assert_eq!(
            pending_signals(b"Name:\tx\nSigPnd:\t0000000000000001\nShdPnd:\t0000000000004002\n"),
            0x4002
        );
        assert_eq!(pending_signals(b""), 0);
    }
}
