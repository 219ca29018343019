//! Copies of this process that are not its children.
//!
//! A copy must not be a child: `os.wait()` in a cell would wait for it. So it is forked by a process that ends at once, and becomes a
//! child of the supervisor, which is a subreaper. The fork is the C library's: others than Python (BLAS) have handlers there.

use std::fs;
use std::io::{self, PipeReader, PipeWriter, Read as _, Write as _};
use std::os::fd::{AsRawFd as _, RawFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::libc;
use nix::unistd::{Pid, getppid, setsid};
use pyo3::ffi;
use rlm_core::sys::errno_of;

use crate::{pipes, signals};

/// Longest wait for a copy to be in its place, in milliseconds: a program of the session may stop it.
const SETTLE_LIMIT: i32 = 1000;

/// Time for threads that end for a fork, in milliseconds.
const THREAD_LIMIT: i32 = 20;

/// A copy that is not in its place yet.
pub(crate) struct Leaving {
    settling: PipeWriter,
    original: Pid,
    supervisor: Pid,
    /// The mask of signals before the fork. All are blocked now.
    pub(crate) mask: libc::sigset_t,
}

/// Leaves a copy of this process. Returns None here, once the copy has [settled](Leaving::settle), and in the copy the value of
/// `go_on`, in which it stays for as long as it waits. Python does not know there that it is another process.
pub(crate) fn leave<T>(supervisor: Pid, go_on: impl FnOnce(Leaving) -> T) -> Result<Option<T>, Errno> {
    let (mut settled, settling) = io::pipe().map_err(|error| errno_of(&error))?;
    let mask = signals::block_all();
    // SAFETY: the interpreter's lock is held, and each of the two processes that go on calls the function for its side.
    unsafe { ffi::PyOS_BeforeFork() };
    let original = Pid::this();
    // SAFETY: this is the only thread that runs code of the session.
    let middle = unsafe { fork_by_another() };
    if middle == 0 {
        drop(settled);
        let value = go_on(Leaving { settling, original, supervisor, mask });
        signals::restore(&mask);
        return Ok(Some(value));
    }
    // A handler of the session may fork.
    drop(settling);
    // SAFETY: as above.
    unsafe { ffi::PyOS_AfterFork_Parent() };
    let forked =
        if middle < 0 { Err(Errno::from_raw(-middle)) } else { wait_for_middle(Pid::from_raw(middle)) };
    // The next cell may be the last of this process.
    let left = forked.and_then(|()| wait_until_settled(&mut settled));
    signals::restore(&mask);
    left.map(|()| None)
}

impl Leaving {
    /// True if the original has more threads than the one that forks: the handlers that libraries have for a fork have run, and have not
    /// ended them.
    pub(crate) fn original_has_threads(&self) -> bool {
        // A thread that has just ended is in the list for a moment.
        (0..THREAD_LIMIT).all(|_| {
            let has_threads = thread_count(self.original) > 1;
            if has_threads {
                std::thread::sleep(Duration::from_millis(1));
            }
            has_threads
        })
    }

    /// The descriptor that has to stay open until the copy has settled.
    pub(crate) fn descriptor(&self) -> RawFd {
        self.settling.as_raw_fd()
    }

    /// Leaves the session's process group, whose signals are not for the copy, and waits until the supervisor is the parent, since the
    /// process that forked this one has ended.
    pub(crate) fn become_child(&self) -> io::Result<()> {
        setsid()?;
        for _ in 0..SETTLE_LIMIT {
            match getppid() {
                parent if parent == self.supervisor => return Ok(()),
                // A cell has made its process a subreaper.
                parent if parent == self.original => break,
                _ => std::thread::sleep(Duration::from_millis(1)),
            }
        }
        Err(Errno::ECHILD.into())
    }

    /// Says that the copy is in its place.
    pub(crate) fn settle(mut self) -> io::Result<()> {
        self.settling.write_all(b"+")
    }
}

/// Number of threads of a process.
pub(crate) fn thread_count(pid: Pid) -> usize {
    fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count)
}

/// Tells Python that it runs in a child. It calls the functions that `os.register_at_fork` has for that.
pub(crate) fn begin_child() {
    // SAFETY: the process is a fork of one that called `PyOS_BeforeFork`, in the same thread.
    unsafe { ffi::PyOS_AfterFork_Child() };
}

/// Has another process fork the copy, and end. Returns the process id of that one, which is a child; in the copy, 0; or the number of an
/// error, below 0. No signal tells of the child's end, and only who asks
/// for all kinds of children sees it (`__WALL`).
///
/// The two forks copy the page tables once: like `vfork`, the first one shares this process's memory, and this process stands still
/// until the child ends. That one uses the stack below this frame, and does not return. Its child, the copy, has a stack of its own.
///
/// # Safety
/// As for `fork`.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
unsafe extern "C" fn fork_by_another() -> libc::pid_t {
    std::arch::naked_asm!(
        "sub rsp, 8",
        "mov edi, {flags}",
        "xor esi, esi",
        "xor edx, edx",
        "xor r10d, r10d",
        "xor r8d, r8d",
        "mov eax, {clone}",
        "syscall",
        "test eax, eax",
        "jnz 2f",
        "call {fork_and_end}",
        "2:",
        "add rsp, 8",
        "ret",
        flags = const libc::CLONE_VM | libc::CLONE_VFORK,
        clone = const libc::SYS_clone,
        fork_and_end = sym fork_and_end,
    )
}

/// The same with two forks.
#[cfg(not(target_arch = "x86_64"))]
unsafe fn fork_by_another() -> libc::pid_t {
    // SAFETY: the caller vouches for it. All arguments are zero.
    match unsafe { libc::syscall(libc::SYS_clone, 0, 0, 0, 0, 0) } {
        0 => fork_and_end(),
        -1 => -Errno::last_raw(),
        middle => middle as libc::pid_t,
    }
}

/// Forks. Returns only in the child.
extern "C" fn fork_and_end() -> libc::pid_t {
    // SAFETY: the caller of `fork_by_another` vouches for it.
    match unsafe { libc::fork() } {
        0 => 0,
        copy => pipes::end_process(if copy < 0 { Errno::last_raw() } else { 0 }),
    }
}

/// Waits until the process that forked the copy has ended.
fn wait_for_middle(middle: Pid) -> Result<(), Errno> {
    let mut status = 0;
    loop {
        // SAFETY: the pointer is to a live integer.
        match Errno::result(unsafe { libc::waitpid(middle.as_raw(), &raw mut status, libc::__WALL) }) {
            Err(Errno::EINTR) => {}
            waited => break waited.map(drop)?,
        }
    }
    let code = libc::WEXITSTATUS(status);
    if libc::WIFEXITED(status) && code != 0 { Err(Errno::from_raw(code)) } else { Ok(()) }
}

/// Waits until the copy says that it is in its place.
fn wait_until_settled(settled: &mut PipeReader) -> Result<(), Errno> {
    let mut fd = libc::pollfd { fd: settled.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: the pointer is to a live struct, of which there is one.
    match Errno::result(unsafe { libc::poll(&raw mut fd, 1, SETTLE_LIMIT) })? {
        0 => Err(Errno::ETIMEDOUT),
        _ => match settled.read(&mut [0]) {
            Ok(1) => Ok(()),
            // It has ended.
            _ => Err(Errno::ECHILD),
        },
    }
}
