//! Processes: their ends, their resources, and the mark by which those of a test are found.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Child, ExitStatus};

use nix::errno::Errno;
use nix::libc;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::wait::wait_until;

/// The variable that marks every process of a worker.
const MARK: &str = "RLM_TEST_MARK";

/// The variables that mark a process of a test, and what it starts.
pub(crate) fn marking(mark: &str) -> [(&'static str, &str); 2] {
    [(MARK, mark), ("RLM_PASS_ENV", MARK)]
}

/// The variables of a rollout with this mark, and with this Python.
#[must_use]
pub fn marked_env(mark: &str, python: &Path) -> Vec<(OsString, OsString)> {
    let marking = marking(mark).map(|(name, value)| (name.into(), value.into()));
    marking.into_iter().chain([("RLM_PYTHON".into(), python.into())]).collect()
}

/// Exit status of a process, as a shell would show it.
#[must_use]
pub fn shell_status(status: ExitStatus) -> i32 {
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}

/// Signals a child.
///
/// # Panics
/// It is gone.
pub fn signal(child: &Child, signal: Signal) {
    kill(Pid::from_raw(child.id().cast_signed()), signal).unwrap();
}

/// True if a process is gone or a zombie.
#[must_use]
pub fn is_over(pid: Pid) -> bool {
    match fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(stat) => stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('Z')),
        Err(_) => true,
    }
}

/// The children of a process.
#[must_use]
pub fn children(pid: Pid) -> Vec<Pid> {
    let list = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    list.split_ascii_whitespace().map(|child| Pid::from_raw(child.parse().unwrap())).collect()
}

/// A process that has this file open.
#[must_use]
pub(crate) fn process_with_open(file: &Path) -> Option<Pid> {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok().map(Pid::from_raw));
    pids.into_iter().find(|pid| {
        let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        descriptors.into_iter().any(|fd| fs::read_link(fd.path()).is_ok_and(|target| target == file))
    })
}

/// Number of open descriptors of a process of a worker, without those of response FIFOs, of which a server that is idle has at
/// most four, and a guard none.
#[must_use]
pub fn open_descriptors(pid: Pid) -> usize {
    let count = || descriptors(pid).unwrap();
    wait_until("the response FIFOs are closed", || count().of_responses <= 4);
    count().others
}

/// Sets the soft limit of a resource for a running process.
///
/// # Panics
/// The process has ended, or its hard limit is lower.
pub fn set_soft_limit(pid: Pid, resource: libc::__rlimit_resource_t, value: u64) {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the pointer is to a live struct; nothing is set.
    let got = unsafe { libc::prlimit(pid.as_raw(), resource, std::ptr::null(), &raw mut limit) };
    limit.rlim_cur = value;
    // SAFETY: the pointer is to a live struct; no old limit is asked for.
    let set = unsafe { libc::prlimit(pid.as_raw(), resource, &raw const limit, std::ptr::null_mut()) };
    assert_eq!((got, set), (0, 0), "{}", Errno::last());
}

/// The numbers of open descriptors of a process.
pub(crate) struct Descriptors {
    of_responses: usize,
    pub(crate) others: usize,
}

pub(crate) fn descriptors(pid: Pid) -> io::Result<Descriptors> {
    let mut counts = Descriptors { of_responses: 0, others: 0 };
    for fd in fs::read_dir(format!("/proc/{pid}/fd"))?.flatten() {
        // A descriptor that has just been closed has no link any more.
        let Ok(link) = fs::read_link(fd.path()) else { continue };
        let is_response = link.to_string_lossy().contains("/rlm_res");
        *if is_response { &mut counts.of_responses } else { &mut counts.others } += 1;
    }
    Ok(counts)
}

/// Checks that no process is left with this mark, `RLM_TEST_MARK`, in its environment.
///
/// # Panics
/// A process is left.
pub fn assert_no_marked_process(mark: &str) {
    assert_eq!(marked_processes(mark), [], "processes outlive what started them");
}

/// Every process with this mark in its environment, and its name; zombies do not count.
#[must_use]
pub fn marked_processes(mark: &str) -> Vec<(Pid, String)> {
    let needle = format!("{MARK}={mark}");
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else {
            continue;
        };
        let environment = fs::read(entry.path().join("environ")).unwrap_or_default();
        if environment.split(|byte| *byte == 0).any(|variable| variable == needle.as_bytes()) {
            let name = fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
            found.push((Pid::from_raw(pid), name.trim().to_owned()));
        }
    }
    found
}
