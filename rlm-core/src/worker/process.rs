//! The interpreter's process: one owner, who signals and reaps it.

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
use crate::sys;

/// A running interpreter. Dropping it leaves the process alone: the worker's end sweeps all descendants.
#[derive(Debug)]
pub struct Process {
    pid: Pid,
    pidfd: OwnedFd,
    /// Set once it was reaped.
    status: Cell<Option<i32>>,
}

impl Process {
    /// Starts a program at the head of a session of its own, with signals as a fresh program expects them, to die when
    /// this process does. `set_up` is the last thing that the child does before it executes the program.
    ///
    /// # Safety
    /// `set_up` runs between fork and exec: it may make system calls and nothing else.
    ///
    /// # Errors
    /// The program cannot be executed, or `set_up` failed.
    pub unsafe fn spawn(command: &mut Command, set_up: fn() -> io::Result<()>) -> io::Result<Self> {
        let parent = Pid::this();
        let prepare = move || {
            reset_signals();
            nix::unistd::setsid()?;
            sys::tie_to_parent(parent, Signal::SIGKILL)?;
            set_up()
        };
        // SAFETY: the closure makes system calls only, and the caller answers for `set_up`.
        unsafe { command.pre_exec(prepare) };
        let child = command.spawn()?;
        let pid = Pid::from_raw(i32::try_from(child.id()).unwrap_or(0));
        let pidfd = sys::pidfd(pid)?;
        Ok(Self { pid, pidfd, status: Cell::new(None) })
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

    /// The status of a process that is dead, as a shell shows it: its exit status, or 128 and the number of a signal.
    pub fn status(&self) -> Option<i32> {
        if self.status.get().is_none() {
            self.status.set(match descendants::try_reap(self.pid) {
                Ok(status) => status,
                Err(Errno::EINTR) => None,
                // Reaped by nobody but us; an error means that there is nothing to wait for.
                Err(_) => Some(-1),
            });
        }
        self.status.get()
    }

    /// Whether [`Self::status`] has found it dead.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.status.get().is_some()
    }

    /// Resumes a process that was stopped.
    pub fn resume(&self) {
        descendants::resume(self.pid);
    }

    /// Ends the process by SIGKILL, and returns once it is dead.
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

    /// Signals the process alone. A dead one is never signalled: its pid may be somebody else's.
    pub fn signal(&self, signal: Signal) {
        if self.status().is_none() {
            // It may be dying just now; it is still ours, being unreaped. A stopped one acts only when it goes on.
            let _dying = kill(self.pid, signal).and_then(|()| kill(self.pid, Signal::SIGCONT));
        }
    }

    /// Signals the process's first thread, whatever other threads would take the signal. Signals beyond the standard ones
    /// have numbers only.
    pub fn signal_main_thread(&self, signal: i32) {
        if self.status().is_none() {
            let pid = self.pid.as_raw();
            // SAFETY: plain integers. It fails where the process is dying just now: then there is nothing to signal.
            unsafe { libc::syscall(libc::SYS_tgkill, pid, pid, signal) };
            self.resume();
        }
    }
}

/// Default actions, and nothing blocked. Async-signal-safe.
fn reset_signals() {
    // The kernel's own struct sigaction, all zero: default action, no flags, empty mask. The C library's function would
    // refuse the two signals that it keeps for itself, and a host may have left those ignored too.
    let default = [0_u64; 4];
    for number in 1..=64 {
        // SAFETY: the pointer is to a live array that is as large as the kernel's struct; SIGKILL and SIGSTOP fail, and
        // nothing is written.
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
