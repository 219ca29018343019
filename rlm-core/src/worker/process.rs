//! The interpreter's process, with one owner that signals and reaps it.

use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

use nix::errno::Errno;
use nix::libc;
use nix::poll::{PollFd, PollFlags};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::descendants;
use super::events::Events;
use super::exit::Exit;
use super::resources::ResourceLimits;
use crate::sys;

/// A running interpreter. Dropping it leaves the process alone: the worker's end sweeps all descendants.
#[derive(Debug)]
pub struct Process {
    pid: Pid,
    pidfd: OwnedFd,
    /// Set once the process was reaped.
    status: Cell<Option<i32>>,
}

impl Process {
    /// Starts a program as the leader of a new session, with default signal handling, under the session's limits, to die
    /// when this process dies. The child calls `set_up` right before it executes the program.
    ///
    /// # Safety
    /// `set_up` runs between fork and exec: it may only make system calls.
    ///
    /// # Errors
    /// The program cannot be executed, or `set_up` failed.
    pub unsafe fn spawn(
        command: &mut Command,
        resource_limits: &ResourceLimits,
        set_up: fn() -> io::Result<()>,
    ) -> io::Result<Self> {
        let parent = Pid::this();
        let entry = resource_limits.entry()?;
        let prepare = move || {
            reset_signals();
            nix::unistd::setsid()?;
            sys::tie_to_parent(parent, Signal::SIGKILL)?;
            set_up()?;
            entry.enter()
        };
        // SAFETY: the closure only makes system calls, and the caller vouches for `set_up`.
        unsafe { command.pre_exec(prepare) };
        let child = command.spawn()?;
        let pid = Pid::from_raw(i32::try_from(child.id()).unwrap_or(0));
        let pidfd = sys::pidfd(pid)?;
        Ok(Self { pid, pidfd, status: Cell::new(None) })
    }

    /// A process that has become a child of this one when its parent ended.
    ///
    /// # Errors
    /// No process has this id.
    pub fn adopt(pid: Pid) -> io::Result<Self> {
        Ok(Self { pid, pidfd: sys::pidfd(pid)?, status: Cell::new(None) })
    }

    /// The process id.
    #[must_use]
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Polls readable once the process is dead.
    #[must_use]
    pub fn pidfd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }

    /// Status of a dead process as a shell shows it: its exit status, or 128 plus the number of a signal.
    pub fn status(&self) -> Option<i32> {
        if self.status.get().is_none() {
            self.status.set(match descendants::try_reap(self.pid) {
                Ok(status) => status,
                Err(Errno::EINTR) => None,
                // Only we reap it; an error means that there is nothing to wait for.
                Err(_) => Some(-1),
            });
        }
        self.status.get()
    }

    /// True once [`Self::status`] has found it dead.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.status.get().is_some()
    }

    /// Resumes a process that was stopped.
    pub fn resume(&self) {
        descendants::resume(self.pid);
    }

    /// Ends the process by SIGKILL, and waits until it is dead.
    ///
    /// # Errors
    /// [`Exit`] as soon as the worker has to end.
    pub fn kill(&self, events: &Events) -> Result<(), Exit> {
        self.signal(Signal::SIGKILL);
        while self.status().is_none() {
            events.wait(vec![PollFd::new(self.pidfd(), PollFlags::POLLIN)], None)?;
        }
        Ok(())
    }

    /// Signals this process only. A dead one is never signalled: its pid may have been reused.
    pub fn signal(&self, signal: Signal) {
        if self.status().is_none() {
            // The process may be dying right now, but it has not been reaped, so the pid is its own. A stopped process acts
            // only when resumed.
            let _dying = kill(self.pid, signal).and_then(|()| kill(self.pid, Signal::SIGCONT));
        }
    }

    /// Signals the main thread, whichever other threads would take the signal. Real-time signals have only a number.
    pub fn signal_main_thread(&self, signal: i32) {
        if self.status().is_none() {
            let pid = self.pid.as_raw();
            // SAFETY: plain integers. The call fails if the process is dying right now: then there is nothing to
            // signal.
            unsafe { libc::syscall(libc::SYS_tgkill, pid, pid, signal) };
            self.resume();
        }
    }
}

/// Default actions, and nothing blocked. Async-signal-safe.
pub fn reset_signals() {
    // The kernel's own struct sigaction, all zero: default action, no flags, empty mask. The C library's function
    // refuses the two signals that it reserves, and a host may have left those ignored too.
    let default = [0_u64; 4];
    for number in 1..=64 {
        // SAFETY: the pointer is to a live array as large as the kernel's struct. SIGKILL and SIGSTOP fail, and nothing
        // is written.
        unsafe {
            libc::syscall(libc::SYS_rt_sigaction, number, default.as_ptr(), std::ptr::null_mut::<u64>(), 8)
        };
    }
    // SAFETY: an empty set is initialised by sigemptyset before it is used.
    unsafe {
        let mut none = std::mem::zeroed::<libc::sigset_t>();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
    }
}
