//! The processes that a session started, and the way to end them.
//!
//! A worker is a subreaper: any process of its session that is left behind (`nohup`, `setsid` or double-forked) becomes
//! the worker's own child when its parent dies. So the tree below the worker is always complete, and "no child left"
//! (ECHILD) means that nothing is left at all.

use std::ffi::CStr;
use std::fs;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::libc;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid, waitpid};
use nix::unistd::Pid;

/// Interval at which the tree is signalled again while a process in it is alive: a fork may have been missed.
const RESIGNAL: Duration = Duration::from_millis(10);

/// The rungs of the stop ladder: the signal that every process below us gets, and the time it has to end.
pub const STOP_LADDER: [(Signal, Duration); 3] = [
    (Signal::SIGHUP, Duration::from_millis(250)),
    (Signal::SIGTERM, Duration::from_millis(350)),
    (Signal::SIGKILL, Duration::from_millis(900)),
];

/// Name of the processes that serve a branch. They are below the session that it came from, but they are not part of it, and no sweep of
/// that session ends them.
pub const BRANCH_PROCESS: &CStr = c"rlm-branch";

/// Reaps every dead child except `keep`, whose status its owner collects. Returns true if a child is left.
pub fn reap_orphans(keep: Option<Pid>) -> bool {
    loop {
        // WNOWAIT: only look first, because the owner of `keep` collects its status itself.
        let id = nix::sys::wait::Id::All;
        match nix::sys::wait::waitid(id, WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT) {
            Ok(status) => match status.pid() {
                Some(pid) if Some(pid) == keep => return true,
                Some(pid) => {
                    if waitpid(pid, Some(WaitPidFlag::WNOHANG)).is_err() {
                        return true;
                    }
                }
                None => return true,
            },
            Err(Errno::EINTR) => {}
            Err(_) => return false,
        }
    }
}

/// Ends every descendant of this process by the [`STOP_LADDER`] and reaps it. Returns true if all are gone: only a
/// process in an uninterruptible system call, or one of another user, can survive.
pub fn end_all() -> bool {
    end_all_but(&[])
}

/// Ends every descendant but these children of ours and the processes below them.
pub fn end_all_but(keep: &[Pid]) -> bool {
    STOP_LADDER.iter().any(|(signal, limit)| end_all_with(*signal, *limit, keep))
}

/// One rung: sends `signal` to every descendant but those that are kept, until none is left or `limit` has passed.
pub fn end_all_with(signal: Signal, limit: Duration, keep: &[Pid]) -> bool {
    let deadline = Instant::now() + limit;
    let (mut signalled, mut empty_scans) = (Vec::new(), 0);
    loop {
        let all = all_children(Pid::this());
        let others = all.iter().filter(|pid| !keep.contains(pid) && !is_of_branch(**pid));
        let alive: Vec<Pid> = others.copied().filter(|pid| matches!(try_reap(*pid), Ok(None))).collect();
        if alive.is_empty() {
            // The kernel's list may lack a child while others end.
            empty_scans += usize::from(!all.is_empty());
            if empty_scans == 2 || has_no_child() {
                return true;
            }
        }
        // The first process of a namespace reaches all others at once: none of them can go on by a fork.
        if signal == Signal::SIGKILL && Pid::this() == Pid::from_raw(1) && keep.is_empty() {
            let _none_left = kill(Pid::from_raw(-1), signal);
        }
        for pid in alive.iter().flat_map(|pid| [vec![*pid], below(*pid)].concat()) {
            // Only once each, except for SIGKILL: a process that handles SIGTERM may be cleaning up.
            if signal == Signal::SIGKILL || !signalled.contains(&pid) {
                signalled.push(pid);
                // A stopped process acts on a signal only when it is resumed.
                let _gone_already = kill(pid, signal).and_then(|()| kill(pid, Signal::SIGCONT));
            }
        }
        if Instant::now() >= deadline {
            return false;
        }
        if !alive.is_empty() {
            wait_for_child(RESIGNAL.min(deadline.saturating_duration_since(Instant::now())));
        }
    }
}

/// True if this process has no child at all.
fn has_no_child() -> bool {
    let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    waitid(Id::All, flags) == Err(Errno::ECHILD)
}

/// True for a process of [`BRANCH_PROCESS`], which leads a session of its own.
fn is_of_branch(pid: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let name = format!(" ({}) ", BRANCH_PROCESS.to_string_lossy());
    let fields = stat.split_once(&name).map(|(_, fields)| fields);
    fields.and_then(|fields| fields.split(' ').nth(3)).and_then(parse_pid) == Some(pid)
}

/// Waits for at most `limit` until a child changes state. SIGCHLD is blocked, and is consumed here.
fn wait_for_child(limit: Duration) {
    // SAFETY: an empty set is initialised by sigemptyset before it is used; both pointers are to live locals.
    unsafe {
        let mut set = std::mem::zeroed::<libc::sigset_t>();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGCHLD);
        let limit = libc::timespec {
            tv_sec: limit.as_secs() as libc::time_t,
            tv_nsec: limit.subsec_nanos() as libc::c_long,
        };
        libc::sigtimedwait(&raw const set, std::ptr::null_mut(), &raw const limit);
    }
}

/// Every process below `root`, without those of branches. A process that forks during the scan may be missed, so callers scan again.
#[must_use]
pub fn below(root: Pid) -> Vec<Pid> {
    let mut found = children(root);
    let mut next = 0;
    while let Some(&pid) = found.get(next) {
        next += 1;
        found.extend(children(pid));
    }
    found
}

/// The children of all threads of a process, without those of branches.
#[must_use]
pub fn children(pid: Pid) -> Vec<Pid> {
    let mut children = all_children(pid);
    children.retain(|pid| !is_of_branch(*pid));
    children
}

fn all_children(pid: Pid) -> Vec<Pid> {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    let mut found = Vec::new();
    for task in tasks.flatten() {
        match fs::read_to_string(task.path().join("children")) {
            Ok(list) => found.extend(list.split_ascii_whitespace().filter_map(parse_pid)),
            // A kernel without CONFIG_PROC_CHILDREN, or a task that has just ended.
            Err(_) => return children_by_scan(pid),
        }
    }
    found
}

fn children_by_scan(parent: Pid) -> Vec<Pid> {
    let Ok(processes) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = processes.flatten().filter_map(|entry| parse_pid(entry.file_name().to_str()?));
    pids.filter(|pid| parent_of(*pid) == Some(parent)).collect()
}

fn parent_of(pid: Pid) -> Option<Pid> {
    stat_fields(pid, [4]).map(|[parent]| Pid::from_raw(i32::try_from(parent).unwrap_or(0)))
}

/// Numeric fields of `/proc/PID/stat`, numbered as in proc(5), from 4 on.
#[must_use]
pub fn stat_fields<const N: usize>(pid: Pid, wanted: [usize; N]) -> Option<[u64; N]> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may contain anything; the fields after its closing parenthesis start with the third.
    let (_, fields) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = fields.split_ascii_whitespace().collect();
    let mut found = [0; N];
    for (place, number) in found.iter_mut().zip(wanted) {
        *place = fields.get(number.checked_sub(3)?)?.parse().ok()?;
    }
    Some(found)
}

/// A time as the kernel records process starts: clock ticks since boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BootTime(u64);

impl BootTime {
    /// The current time.
    #[must_use]
    pub fn now() -> Self {
        let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the pointer is to a live struct; the clock exists since Linux 2.6.39.
        unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &raw mut now) };
        let per_second = ticks_per_second();
        let parts = [now.tv_sec, now.tv_nsec].map(|part| u64::try_from(part).unwrap_or(0));
        Self(parts[0] * per_second + parts[1] * per_second / 1_000_000_000)
    }
}

/// Clock ticks in a second, the unit of times in `/proc/PID/stat`.
#[must_use]
pub fn ticks_per_second() -> u64 {
    // SAFETY: a plain integer.
    u64::try_from(unsafe { libc::sysconf(libc::_SC_CLK_TCK) }).unwrap_or(100)
}

/// True if a process was started at or after a time, to the precision of a clock tick (10 ms).
#[must_use]
pub fn started_since(pid: Pid, moment: BootTime) -> bool {
    stat_fields(pid, [22]).is_some_and(|[started]| BootTime(started) >= moment)
}

/// Resident memory of a process in bytes; 0 if it has ended.
#[must_use]
pub fn resident_bytes(pid: Pid) -> u64 {
    memory(pid)[0]
}

/// Resident memory of a process that is not a file's, in bytes; 0 if it has ended.
#[must_use]
pub fn own_bytes(pid: Pid) -> u64 {
    let [resident, of_files] = memory(pid);
    resident.saturating_sub(of_files)
}

/// Resident memory of a process, and the part of it that is files', in bytes.
fn memory(pid: Pid) -> [u64; 2] {
    let statm = fs::read_to_string(format!("/proc/{pid}/statm")).unwrap_or_default();
    let mut fields = statm.split_ascii_whitespace().skip(1).map(|pages| pages.parse::<u64>().unwrap_or(0));
    // SAFETY: a plain integer.
    let page = u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(0);
    std::array::from_fn(|_| fields.next().unwrap_or(0) * page)
}

fn parse_pid(text: &str) -> Option<Pid> {
    text.parse().ok().map(Pid::from_raw)
}

/// Resumes a child if it is stopped.
pub fn resume(child: Pid) {
    let flags = WaitPidFlag::WSTOPPED | WaitPidFlag::WNOHANG;
    if let Ok(WaitStatus::Stopped(..)) = waitid(Id::Pid(child), flags) {
        // The child may be dying right now, but it has not been reaped, so the pid is still its own.
        let _dying = kill(child, Signal::SIGCONT);
    }
}

/// Reaps a child if it is dead. Returns its status as a shell shows it: the exit code, or 128 plus the signal's number,
/// including real-time signals.
///
/// # Errors
/// `ECHILD` if it is not our child, or was already reaped.
pub fn try_reap(child: Pid) -> Result<Option<i32>, Errno> {
    let mut status = 0;
    // SAFETY: the pointer is to a live local.
    let reaped = Errno::result(unsafe { libc::waitpid(child.as_raw(), &raw mut status, libc::WNOHANG) })?;
    Ok((reaped != 0).then(|| {
        if libc::WIFEXITED(status) { libc::WEXITSTATUS(status) } else { 128 + libc::WTERMSIG(status) }
    }))
}
