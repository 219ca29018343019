//! The process that the host started, which guards the server process.
//!
//! The host may end a worker with SIGKILL, and the session may kill the worker too (`kill -9 $PPID`). Neither may leave
//! processes behind, but a killed process cannot clean up after itself. So a worker is two processes that watch each
//! other:
//!
//! * The *guard*, whose process id the host knows, forwards signals and waits. It is a subreaper above the server. When
//!   the server dies, the guard ends everything that the session started, and removes the ready flag.
//! * The *server*, in a session of its own, gets SIGTERM when the guard dies, and then ends as it would for a SIGTERM
//!   from the host.
//!
//! A confined server is the first process of its own namespaces: whatever ends it, the kernel ends all that it started. So it
//! gets SIGKILL when the guard dies.
//!
//! Where a [fork server](super::fork_server) forks the server, it is the subreaper above it, and cleans up after it.
//!
//! Without confinement, only a SIGKILL to both at once leaves the cleanup to the kernel: the shell dies by its parent-death
//! signal, jobs on the terminal get SIGHUP, and jobs that ignore SIGHUP (`nohup`, `setsid`) survive.

use std::fs;
use std::os::fd::{AsFd as _, BorrowedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::libc;
use nix::poll::{PollFd, PollFlags, poll};
use nix::sys::prctl::set_child_subreaper;
use nix::sys::signal::{SigHandler, Signal, kill, signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, Gid, Pid, Uid, fork, getgid, getuid, setsid};

use super::confine::{self, Failed, Relay};
use super::events::{self, Above};
use super::fork_server::Forked;
use super::{ForwardFlag, descendants};
use crate::memory;
use crate::protocol::{Confine, ConfinementLevel};
use crate::sys;

/// Time that the server has to end after it was told to; then it is killed. It is shorter than
/// [`crate::limits::SHUTDOWN_LIMIT`] by the time that the guard's own sweep takes.
const SERVER_GRACE: Duration = Duration::from_millis(1700);

/// Forks, and runs `serve` in the child, unless `ask` gets a server elsewhere. The parent guards the server: once that has ended for
/// any reason, it passes its status, as a shell shows it, to `clean_up`, which returns its own. `passed` is a descriptor that the
/// host means for the server; a confined one has no others of the host's.
///
/// Must be called while the process has one thread.
///
/// # Errors
/// The fork fails.
pub(super) fn run_guarded(
    confine: Confine,
    host: Option<Pid>,
    passed: Option<RawFd>,
    ask: impl FnOnce(BorrowedFd<'_>) -> Option<Forked>,
    serve: impl FnOnce(Above, Confining) -> ExitCode,
    clean_up: impl FnOnce(i32) -> ExitCode,
) -> Result<ExitCode, Errno> {
    events::block_signals()?;
    set_dispositions()?;
    seal_descriptors();
    let left_open = if confine == Confine::Off { Vec::new() } else { left_open(passed) };
    // A call may print 16 MiB before the worker sits idle for hours.
    memory::free_blocks_at_once(128 << 10);
    set_child_subreaper(true)?;
    let (forwarding, memory) = ForwardFlag::new()?;
    if let Some(forked) = ask(memory.as_fd()) {
        return Ok(clean_up(guard_server(Guarded::Forked(forked), forwarding)?));
    }
    drop(memory);
    let mut above = Above::new(host, forwarding);
    let child = match start(confine)? {
        Started::Server(confining) => {
            setsid()?;
            if let Confining::In { .. } = confining {
                for descriptor in left_open {
                    // SAFETY: nothing in this process knows it. Code could open it again by way of /proc.
                    unsafe { libc::close(descriptor) };
                }
            }
            match confining {
                Confining::In { level: ConfinementLevel::Full, .. } => {
                    above.is_in_namespaces = true;
                    above.end_with_guard()?;
                }
                _ => sys::tie_to_parent(above.guard, Signal::SIGTERM)?,
            }
            set_child_subreaper(true)?;
            return Ok(serve(above, confining));
        }
        Started::Guard(child) => child,
    };
    drop(above);
    let status = guard_server(Guarded::Child(child), forwarding);
    descendants::end_all();
    Ok(clean_up(status?))
}

/// The server of a guard.
enum Guarded {
    Child(Pid),
    /// A fork server is its parent.
    Forked(Forked),
}

impl Guarded {
    /// The status, once it has ended. A session may stop its server (SIGSTOP), and only the parent can resume it.
    fn status(&mut self) -> Result<Option<i32>, Errno> {
        match self {
            Self::Child(server) => {
                let status = descendants::try_reap(*server)?;
                if status.is_none() {
                    descendants::resume(*server);
                }
                Ok(status)
            }
            Self::Forked(forked) => Ok(forked.status()),
        }
    }

    fn signal(&self, signal: Signal) {
        match self {
            // It has not been reaped, so the pid is its own: failure means that it is already dead.
            Self::Child(server) => drop(kill(*server, signal)),
            Self::Forked(forked) => forked.signal(signal),
        }
    }

    /// The descriptors of which one can be read when there is news that no signal tells, and the time at which to look in any case.
    fn news(&self) -> (Vec<BorrowedFd<'_>>, Option<Instant>) {
        match self {
            Self::Child(_) => (Vec::new(), None),
            Self::Forked(forked) => forked.news(),
        }
    }
}

/// The confinement of a server.
#[derive(Debug)]
pub enum Confining {
    /// No confinement.
    No,
    /// Confinement at this level. The guard waits for a word.
    In {
        /// Full: the server is the first process of new namespaces.
        level: ConfinementLevel,
        /// The reasons why no stricter level could be had.
        before: Vec<Failed>,
        /// The socket to the guard.
        link: UnixStream,
        /// The user outside of the namespaces.
        user: (Uid, Gid),
    },
    /// The host does not allow the confinement, for these reasons.
    Cannot(Vec<Failed>),
}

/// The two processes after the fork.
enum Started {
    Server(Confining),
    /// The guard of that server.
    Guard(Pid),
}

/// Starts the server, confined as far as wanted and possible.
fn start(confine: Confine) -> Result<Started, Errno> {
    let mut failures = Vec::new();
    for level in confine.levels() {
        match start_in(*level, &failures)? {
            Ok(started) => return Ok(started),
            Err(failed) => failures.push(failed),
        }
    }
    let confining = if failures.is_empty() { Confining::No } else { Confining::Cannot(failures) };
    Ok(match fork_plainly()? {
        0 => Started::Server(confining),
        child => Started::Guard(Pid::from_raw(child)),
    })
}

/// Forks, where the process has one thread. Returns the process id of the child, and 0 in the child.
fn fork_plainly() -> Result<libc::pid_t, Errno> {
    // SAFETY: the process has one thread, so the child may do anything the parent could.
    Ok(match unsafe { fork() }? {
        ForkResult::Child => 0,
        ForkResult::Parent { child } => child.as_raw(),
    })
}

/// Starts a server that is confined at this level. Inner `Err`: the host does not allow it, and no server is left.
fn start_in(level: ConfinementLevel, before: &[Failed]) -> Result<Result<Started, Failed>, Errno> {
    let (own, servers) = UnixStream::pair().map_err(|error| sys::errno_of(&error))?;
    // Asked before the fork: inside of new namespaces, they have no numbers yet.
    let user = (getuid(), getgid());
    let forked = match level {
        ConfinementLevel::Full => confine::fork_into_namespaces(),
        _ => Ok(fork_plainly()?),
    };
    match forked {
        Ok(0) => {
            drop(own);
            let before = before.to_vec();
            Ok(Ok(Started::Server(Confining::In { level, before, link: servers, user })))
        }
        Ok(child) => {
            drop(servers);
            let child = Pid::from_raw(child);
            match confine::receive(&own) {
                Some(Relay::Failed(failed)) => {
                    waitpid(child, None)?;
                    return Ok(Err(failed));
                }
                Some(Relay::Entered(Some((listener, target)))) => {
                    confine::serve(listener, target).map_err(|error| sys::errno_of(&error))?;
                }
                // A server that sends no word has ended.
                Some(Relay::Entered(None)) | None => {}
            }
            Ok(Ok(Started::Guard(child)))
        }
        Err(failed) => Ok(Err(failed)),
    }
}

/// A write beyond a file size limit that the host set fails like one on a full disk, instead of ending the process. A child whose end
/// its parent ignores has no status.
/// The session's processes get the default actions back.
fn set_dispositions() -> Result<(), Errno> {
    // SAFETY: no handler is installed.
    unsafe {
        signal(Signal::SIGXFSZ, SigHandler::SigIgn)?;
        signal(Signal::SIGCHLD, SigHandler::SigDfl).map(drop)
    }
}

/// Marks every descriptor beyond the standard three close-on-exec: descriptors that the host left open are not for the
/// session.
fn seal_descriptors() {
    // SAFETY: the call takes plain integers; descriptors stay open and keep their owners. A kernel before 5.11 refuses,
    // and then the session inherits what the host left open, as it would without a worker in between.
    unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, libc::CLOSE_RANGE_CLOEXEC) };
}

/// The descriptors that the host left open, besides the standard three and the one that it passed. None of our own is open yet.
fn left_open(passed: Option<RawFd>) -> Vec<RawFd> {
    let names = fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let open: Vec<RawFd> = names.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    // SAFETY: the call takes plain integers. It fails for the directory's own descriptor, which is closed by now.
    let is_open = |descriptor: &RawFd| unsafe { libc::fcntl(*descriptor, libc::F_GETFD) } >= 0;
    let others = open.into_iter().filter(|descriptor| *descriptor > 2 && Some(*descriptor) != passed);
    others.filter(is_open).collect()
}

/// Forwards signals until the server has ended, and returns its status.
fn guard_server(mut server: Guarded, forwarding: ForwardFlag) -> Result<i32, Errno> {
    let signals =
        SignalFd::with_flags(&events::Events::signals(), SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
    let mut kill_at = None;
    loop {
        if let Some(status) = server.status()? {
            return Ok(status);
        }
        if kill_at.is_some_and(|deadline| Instant::now() >= deadline) {
            server.signal(Signal::SIGKILL);
            kill_at = None;
        }
        let mut fds = vec![PollFd::new(signals.as_fd(), PollFlags::POLLIN)];
        let (news, look_at) = server.news();
        fds.extend(news.into_iter().map(|fd| PollFd::new(fd, PollFlags::POLLIN)));
        let deadline = kill_at.into_iter().chain(look_at).min();
        match poll(&mut fds, sys::timeout_until(deadline)) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno),
        }
        // Set before the signal is taken from the kernel, while the server can still see it pending.
        forwarding.set(true);
        while let Some(info) = signals.read_signal()? {
            match Signal::try_from(i32::try_from(info.ssi_signo).unwrap_or(0)) {
                Ok(Signal::SIGCHLD) | Err(_) => {}
                Ok(signal) => {
                    server.signal(signal);
                    if signal != Signal::SIGINT && kill_at.is_none() {
                        server.signal(Signal::SIGCONT);
                        kill_at = Some(Instant::now() + SERVER_GRACE);
                    }
                }
            }
        }
        forwarding.set(false);
    }
}
