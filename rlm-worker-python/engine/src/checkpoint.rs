//! Copies of this process, made by fork, of which the last one waits to take its place.
//!
//! The copy must not be a child of this process: `os.wait()` in a cell would wait for it. So it is forked by a process that ends at
//! once, and becomes a child of the supervisor, which is a subreaper. The fork is the C library's: others than Python (BLAS) have
//! handlers there.

use std::ffi::CString;
use std::fs::{self, File};
use std::io::{self, PipeReader, PipeWriter, Read as _, Write as _};
use std::os::fd::{AsRawFd as _, RawFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::libc;
use nix::sys::signal::Signal;
use nix::unistd::{Pid, getppid, setsid};
use pyo3::ffi;
use pyo3::prelude::*;
use rlm_core::sys::{errno_of, tie_to_parent};
use rlm_core::worker::descendants::own_bytes;
use rlm_worker_python::wire::{Announcement, Command, CopySettings, LOST_STATUS};

use crate::{pipes, signals};

/// Longest wait for a copy to be in its place, in milliseconds: a program of the session may stop it.
const SETTLE_LIMIT: i32 = 1000;

/// The score by which the kernel takes a copy before all else when memory runs out.
const FIRST_TO_GO: &str = "1000";

const OWN_SCORE: &str = "/proc/self/oom_score_adj";

/// The means to copy this process.
pub(crate) struct Copies {
    settings: CopySettings,
    count_threads: Py<PyAny>,
    supervisor: Pid,
    /// The error of the last try.
    failure: Option<Errno>,
}

impl Copies {
    pub(crate) fn new(py: Python<'_>, settings: CopySettings) -> PyResult<Self> {
        let count_threads = py.import("_thread")?.getattr("_count")?.unbind();
        Ok(Self { settings, count_threads, supervisor: getppid(), failure: None })
    }

    /// The reason why no copy can be taken now, in the same words for as long as it lasts.
    pub(crate) fn obstacle(&self, py: Python<'_>) -> Option<String> {
        if let Some(errno) = self.failure {
            return Some(format!("the process could not be copied after the call before ({})", errno.desc()));
        }
        let threads = self.count_threads.call0(py).and_then(|count| count.extract::<u64>(py)).unwrap_or(0);
        if threads > 0 {
            return Some("a thread that a cell started is alive, and a copy would not have it".to_owned());
        }
        if own_bytes(Pid::this()) > self.settings.max_bytes {
            let limit = self.settings.max_bytes >> 20;
            return Some(format!("the interpreter has more memory than checkpoints may have, {limit} MiB"));
        }
        holds_lock()
            .then(|| "a file is locked for writing, as by an open transaction of a database".to_owned())
    }

    /// True if a copy is to be tried although the last one failed.
    pub(crate) fn is_retried(&self) -> bool {
        self.failure.is_some()
    }

    /// Leaves a copy of this process. Returns None here, and in the copy, which waits in this function, the command by which it takes
    /// over. Python does not know that yet.
    pub(crate) fn take(&mut self, number: u64) -> Option<Command> {
        let (mut settled, settling) = match io::pipe() {
            Ok(ends) => ends,
            Err(error) => {
                self.failure = Some(errno_of(&error));
                return None;
            }
        };
        let mask = signals::block_all();
        // SAFETY: the interpreter's lock is held, and each of the two processes that go on calls the function for its side.
        unsafe { ffi::PyOS_BeforeFork() };
        let original = Pid::this();
        // SAFETY: this is the only thread that runs code of the session.
        let middle = unsafe { fork_by_another() };
        if middle == 0 {
            drop(settled);
            let command = self.wait(number, settling, original);
            signals::restore(&mask);
            return Some(command);
        }
        // A handler of the session may fork.
        drop(settling);
        // SAFETY: as above.
        unsafe { ffi::PyOS_AfterFork_Parent() };
        let forked =
            if middle < 0 { Err(Errno::from_raw(-middle)) } else { wait_for_middle(Pid::from_raw(middle)) };
        // The next cell may be the last of this process.
        self.failure = forked.and_then(|()| wait_until_settled(&mut settled)).err();
        signals::restore(&mask);
        None
    }

    /// Waits, in the copy, until it has to take over.
    fn wait(&self, number: u64, settling: PipeWriter, original: Pid) -> Command {
        let mut files = Vec::new();
        let mut prepare = || -> io::Result<File> {
            // A signal to the session's process group does not end its copy.
            setsid()?;
            self.become_child(original)?;
            let gate = pipes::open(&self.settings.gate, libc::O_RDONLY)?;
            files = disconnect(&[gate.as_raw_fd(), settling.as_raw_fd()])?;
            let pid = Pid::this().as_raw();
            let announcement = Announcement { number, pid }.encode();
            pipes::open(&self.settings.announcements, libc::O_WRONLY)?.write_all(&announcement)?;
            (&settling).write_all(b"+")?;
            Ok(gate)
        };
        let Ok(gate) = prepare() else { pipes::end_process(LOST_STATUS) };
        drop(settling);
        // A confined session does not reach it.
        let score =
            fs::read_to_string(OWN_SCORE).and_then(|score| fs::write(OWN_SCORE, FIRST_TO_GO).map(|()| score));
        let hang_up = signals::end_by(Signal::SIGHUP);
        let mut bytes = [0; Command::BYTES];
        if pipes::read_command(&gate, &mut bytes).is_err() {
            // The supervisor has ended.
            pipes::end_process(0);
        }
        hang_up.restore();
        if tie_to_parent(self.supervisor, Signal::SIGKILL).is_err() {
            pipes::end_process(LOST_STATUS);
        }
        if let Ok(score) = score {
            // A copy that the kernel takes before others is better than none.
            let _refused = fs::write(OWN_SCORE, score.trim());
        }
        files.iter().for_each(ClosedFile::reopen);
        Command::decode(&bytes)
    }

    /// Waits until the supervisor is the parent, since the process that forked this one has ended.
    fn become_child(&self, original: Pid) -> io::Result<()> {
        for _ in 0..SETTLE_LIMIT {
            match getppid() {
                parent if parent == self.supervisor => return Ok(()),
                // A cell has made its process a subreaper.
                parent if parent == original => break,
                _ => std::thread::sleep(Duration::from_millis(1)),
            }
        }
        Err(Errno::ECHILD.into())
    }
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

/// A file that a copy has closed while it waits, so that the session can lock, run or remove it.
struct ClosedFile {
    fd: RawFd,
    path: CString,
    /// Device and inode.
    file: (u64, u64),
    /// Flags of the file, and of the descriptor.
    flags: (i32, i32),
    offset: libc::off_t,
}

impl ClosedFile {
    /// The file behind a descriptor. None if no path leads to it.
    fn of(fd: RawFd, stat: &libc::stat) -> Option<Self> {
        let path = fs::read_link(format!("/proc/self/fd/{fd}")).ok()?;
        let path = CString::new(path.into_os_string().into_encoded_bytes()).ok()?;
        let file = (stat.st_dev, stat.st_ino);
        // SAFETY: the struct is plain numbers, and the pointers are to live values.
        let is_there = unsafe {
            let mut found = std::mem::zeroed::<libc::stat>();
            libc::stat(path.as_ptr(), &raw mut found) == 0 && (found.st_dev, found.st_ino) == file
        };
        // SAFETY: plain integers.
        let (flags, offset) = unsafe {
            (
                (libc::fcntl(fd, libc::F_GETFL), libc::fcntl(fd, libc::F_GETFD)),
                libc::lseek(fd, 0, libc::SEEK_CUR),
            )
        };
        is_there.then_some(Self { fd, path, file, flags, offset })
    }

    /// Opens the file again. If another one is at its path now, the descriptor stays closed by its other side.
    fn reopen(&self) {
        let close_on_exec = if self.flags.1 & libc::FD_CLOEXEC == 0 { 0 } else { libc::O_CLOEXEC };
        // SAFETY: the path is a live string, the struct plain numbers, and the descriptor that is closed was made here.
        unsafe {
            let new = libc::open(self.path.as_ptr(), self.flags.0 | libc::O_CLOEXEC | libc::O_NOCTTY);
            if new < 0 {
                return;
            }
            let mut found = std::mem::zeroed::<libc::stat>();
            if libc::fstat(new, &raw mut found) == 0 && (found.st_dev, found.st_ino) == self.file {
                libc::lseek(new, self.offset, libc::SEEK_SET);
                libc::dup3(new, self.fd, close_on_exec);
            }
            libc::close(new);
        }
    }
}

/// Replaces what leads to other processes, and files, by a connection whose other side has closed it. Otherwise the copy would keep
/// pipes and files open that the session has closed: a reader would wait for ever, and a lock would stay. Returns the files.
fn disconnect(kept: &[RawFd]) -> io::Result<Vec<ClosedFile>> {
    let (closed, other_side) = std::os::unix::net::UnixStream::pair()?;
    drop(other_side);
    let descriptors: Vec<RawFd> = fs::read_dir("/proc/self/fd")?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect();
    let mut files = Vec::new();
    for fd in descriptors {
        // SAFETY: the struct is plain numbers, and the pointer is to a live struct.
        let mut stat = unsafe { std::mem::zeroed::<libc::stat>() };
        // SAFETY: as above.
        let is_open = unsafe { libc::fstat(fd, &raw mut stat) } == 0;
        if fd <= 2 || fd == closed.as_raw_fd() || kept.contains(&fd) || !is_open {
            continue;
        }
        let file =
            if stat.st_mode & libc::S_IFMT == libc::S_IFREG { ClosedFile::of(fd, &stat) } else { None };
        if file.is_some() || is_connection(fd, &stat) {
            // SAFETY: plain integers.
            let flags = unsafe { libc::fcntl(fd, libc::F_GETFD) };
            let flags = if flags & libc::FD_CLOEXEC == 0 { 0 } else { libc::O_CLOEXEC };
            // SAFETY: plain integers. What the session had there goes on in the process that was copied.
            Errno::result(unsafe { libc::dup3(closed.as_raw_fd(), fd, flags) })?;
        }
        files.extend(file);
    }
    Ok(files)
}

/// True for a pipe, a socket, a terminal, and for what the kernel has behind a descriptor without a file, such as an epoll set.
fn is_connection(fd: RawFd, stat: &libc::stat) -> bool {
    match stat.st_mode & libc::S_IFMT {
        libc::S_IFIFO | libc::S_IFSOCK | 0 => true,
        // SAFETY: a plain integer.
        libc::S_IFCHR => unsafe { libc::isatty(fd) == 1 },
        _ => false,
    }
}

/// True if this process has locked a file for writing: its memory alone does not come back without the file.
fn holds_lock() -> bool {
    let has_files = fs::read_dir("/proc/self/fd").is_ok_and(|entries| entries.count() > 4);
    let locks = if has_files { fs::read_to_string("/proc/locks").unwrap_or_default() } else { String::new() };
    let pid = Pid::this().to_string();
    locks.lines().any(|lock| {
        let mut fields = lock.split_ascii_whitespace().skip_while(|field| *field != "WRITE");
        fields.next().is_some() && fields.next() == Some(&pid)
    })
}
