//! Copies of this process, made by fork, of which the last one waits to take its place.
//!
//! The copy must not be a child of this process: `os.wait()` in a cell would wait for it. So it is forked by a process that ends at
//! once, and becomes a child of the supervisor, which is a subreaper. The fork is the C library's: others than Python (BLAS) have
//! handlers there.

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd, RawFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::libc;
use nix::sys::signal::Signal;
use nix::unistd::{Pid, getppid, setsid};
use pyo3::ffi;
use pyo3::prelude::*;
use rlm_core::sys::tie_to_parent;
use rlm_worker_python::wire::{Announcement, Command, CopySettings, LOST_STATUS};

use crate::{pipes, signals};

/// Longest wait for the process that forked a copy to end, in milliseconds.
const MIDDLE_LIMIT: u32 = 1000;

/// The means to copy this process.
pub(crate) struct Copies {
    settings: CopySettings,
    count_threads: Py<PyAny>,
    supervisor: Pid,
    /// The error of the last fork.
    failure: Option<Errno>,
}

impl Copies {
    pub(crate) fn new(py: Python<'_>, settings: CopySettings) -> PyResult<Self> {
        let count_threads = py.import("_thread")?.getattr("_count")?.unbind();
        Ok(Self { settings, count_threads, supervisor: getppid(), failure: None })
    }

    /// The reason why there is no copy after this cell.
    pub(crate) fn obstacle(&mut self, py: Python<'_>) -> Option<String> {
        if let Some(errno) = self.failure.take() {
            return Some(format!("the process could not be copied after the call before ({})", errno.desc()));
        }
        let threads = self.count_threads.call0(py).and_then(|count| count.extract::<u64>(py)).unwrap_or(0);
        if threads > 0 {
            return Some(format!(
                "threads that cells started are alive ({threads}), and a copy would not have them"
            ));
        }
        let (bytes, max_bytes) = (own_memory(), self.settings.max_bytes);
        (bytes > max_bytes).then(|| {
            format!(
                "the interpreter has {} MiB of memory, and the limit of checkpoints is {} MiB",
                bytes >> 20,
                max_bytes >> 20
            )
        })
    }

    /// Leaves a copy of this process. Returns None here, and in the copy, which waits in this function, the command by which it takes
    /// over. Python does not know that yet.
    pub(crate) fn take(&mut self, number: u64) -> Option<Command> {
        let (settled, settling) = match pipe() {
            Ok(ends) => ends,
            Err(errno) => {
                self.failure = Some(errno);
                return None;
            }
        };
        let mask = signals::block_all();
        // SAFETY: the interpreter's lock is held, and each of the two processes that go on calls the function for its side.
        unsafe { ffi::PyOS_BeforeFork() };
        // SAFETY: this is the only thread that runs code of the session.
        let middle = unsafe { fork_by_another() };
        if middle == 0 {
            drop(settled);
            let command = self.wait(number, settling);
            signals::restore(&mask);
            return Some(command);
        }
        let forked = Errno::result(middle).map(Pid::from_raw);
        // SAFETY: as above.
        unsafe { ffi::PyOS_AfterFork_Parent() };
        drop(settling);
        self.failure = forked.and_then(wait_for_middle).err();
        // Until the copy is in its place, or has ended: the next cell may be the last of this process.
        let _ended = File::from(settled).read(&mut [0]);
        signals::restore(&mask);
        None
    }

    /// Waits, in the copy, until it has to take over.
    fn wait(&self, number: u64, settling: OwnedFd) -> Command {
        let prepare = || -> io::Result<File> {
            // A signal to the session's process group does not end its copy.
            setsid()?;
            let gate = pipes::open(&self.settings.gate, libc::O_RDONLY)?;
            disconnect(&[gate.as_raw_fd(), settling.as_raw_fd()])?;
            let pid = Pid::this().as_raw();
            let announcement = Announcement { number, pid }.encode();
            pipes::open(&self.settings.announcements, libc::O_WRONLY)?.write_all(&announcement)?;
            Ok(gate)
        };
        let Ok(gate) = prepare() else { pipes::end_process(LOST_STATUS) };
        drop(settling);
        let hang_up = signals::end_by(Signal::SIGHUP);
        let mut bytes = [0; Command::BYTES];
        if pipes::read_command(&gate, &mut bytes).is_err() {
            // The supervisor has ended.
            pipes::end_process(0);
        }
        hang_up.restore();
        for _ in 0..MIDDLE_LIMIT {
            if getppid() == self.supervisor {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        if tie_to_parent(self.supervisor, Signal::SIGKILL).is_err() {
            pipes::end_process(LOST_STATUS);
        }
        Command::decode(&bytes)
    }
}

/// Tells Python that it runs in a child. It calls the functions that `os.register_at_fork` has for that.
pub(crate) fn begin_child() {
    // SAFETY: the process is a fork of one that called `PyOS_BeforeFork`, in the same thread.
    unsafe { ffi::PyOS_AfterFork_Child() };
}

fn pipe() -> Result<(OwnedFd, OwnedFd), Errno> {
    let mut ends = [0; 2];
    // SAFETY: the pointer is to two live integers, and nothing else owns the descriptors that the kernel makes.
    unsafe {
        Errno::result(libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC))?;
        Ok((OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])))
    }
}

/// Has another process fork the copy, and end. Returns the process id of that one, which is a child; in the copy, 0. No signal tells of
/// the child's end, and only who asks for all kinds of children sees it (`__WALL`).
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
    // SAFETY: the pointer is to a live integer.
    while let Err(errno) =
        Errno::result(unsafe { libc::waitpid(middle.as_raw(), &raw mut status, libc::__WALL) })
    {
        if errno != Errno::EINTR {
            return Err(errno);
        }
    }
    let code = libc::WEXITSTATUS(status);
    if libc::WIFEXITED(status) && code != 0 { Err(Errno::from_raw(code)) } else { Ok(()) }
}

/// Replaces what leads to other processes by a connection whose other side has closed it: otherwise the copy would keep
/// pipes open that the session has closed, and a reader would wait for ever.
fn disconnect(kept: &[RawFd]) -> io::Result<()> {
    let (closed, other_side) = std::os::unix::net::UnixStream::pair()?;
    drop(other_side);
    let descriptors: Vec<RawFd> = fs::read_dir("/proc/self/fd")?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect();
    for fd in descriptors {
        if fd > 2 && fd != closed.as_raw_fd() && !kept.contains(&fd) && is_connection(fd) {
            // SAFETY: plain integers.
            let flags = unsafe { libc::fcntl(fd, libc::F_GETFD) };
            let flags = if flags & libc::FD_CLOEXEC == 0 { 0 } else { libc::O_CLOEXEC };
            // SAFETY: plain integers. What the session had there goes on in the process that was copied.
            Errno::result(unsafe { libc::dup3(closed.as_raw_fd(), fd, flags) })?;
        }
    }
    Ok(())
}

/// True for a pipe, a socket, a terminal, and for what the kernel has behind a descriptor without a file, such as an epoll set.
fn is_connection(fd: RawFd) -> bool {
    // SAFETY: the struct is plain numbers, and the pointer is to a live struct.
    let mode = unsafe {
        let mut stat = std::mem::zeroed::<libc::stat>();
        if libc::fstat(fd, &raw mut stat) != 0 {
            return false;
        }
        stat.st_mode
    };
    match mode & libc::S_IFMT {
        libc::S_IFIFO | libc::S_IFSOCK | 0 => true,
        // SAFETY: a plain integer.
        libc::S_IFCHR => unsafe { libc::isatty(fd) == 1 },
        _ => false,
    }
}

/// Memory of this process that is not a file's, in bytes; 0 if the kernel does not tell.
fn own_memory() -> u64 {
    let statm = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let mut fields = statm.split_ascii_whitespace().skip(1).filter_map(|field| field.parse::<u64>().ok());
    let (resident, shared) = (fields.next().unwrap_or(0), fields.next().unwrap_or(0));
    // SAFETY: a plain integer.
    let page = u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(0);
    resident.saturating_sub(shared) * page
}
