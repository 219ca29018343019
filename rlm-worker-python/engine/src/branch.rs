//! Branches: a copy of this process, from which the server of another session is forked, and from that one its interpreter.
//!
//! The copy is a fork server for one session. When it has forked the server, it stays above that, to clean up after it.

use std::convert::Infallible;
use std::ffi::{CString, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd, RawFd};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::libc;
use nix::sys::prctl;
use nix::sys::signal::Signal;
use nix::unistd::{Pid, fchdir, getppid};
use pyo3::prelude::*;
use rlm_core::env;
use rlm_core::sys::tie_to_parent;
use rlm_core::worker::descendants::BRANCH_PROCESS;
use rlm_core::worker::fork_server::{End, ForkServer, close_descriptors};
use rlm_core::worker::program::serve_forked;
use rlm_worker_python::fork_server::open_listener;
use rlm_worker_python::wire::{Branch, LOST_STATUS};
use rlm_worker_python::{Forking, Place, PythonWorker};

use crate::descriptors::{ClosedFile, disconnect, open_database, open_descriptors, silence};
use crate::fork::{self, Leaving, thread_count};
use crate::forked::{self, Beginning, Served, fork_interpreter};
use crate::pipes;
use crate::signals::{self, Dispositions};

/// Time for a worker to connect.
const CONNECT_LIMIT: Duration = Duration::from_secs(30);

/// Leaves a branch of the session, which takes one worker.
///
/// # Errors
/// The reason why the session cannot branch now.
pub(crate) fn leave(
    session: &mut (dyn Served + 'static),
    wanted: &Branch,
    root: &Path,
) -> Result<(), String> {
    if let Some(database) = open_database() {
        return Err(format!(
            "a database of SQLite is open, {}, and would not survive it",
            database.display()
        ));
    }
    let listener = open_listener(&wanted.name).map_err(|error| match error.kind() {
        io::ErrorKind::AddrInUse => format!("the name {} is in use", wanted.name),
        _ => format!("cannot listen at the name {}: {error}", wanted.name),
    })?;
    let saved = pipes::open(&wanted.saved, libc::O_RDONLY).map_err(|error| error.to_string())?;
    let supervisor = getppid();
    let left = fork::leave(supervisor, |leaving| -> Infallible {
        let served = serve(leaving, supervisor, listener, saved, session, root);
        pipes::end_process(served.map_or(LOST_STATUS, |()| 0))
    });
    match left {
        Ok(None) => Ok(()),
        Ok(Some(never)) => match never {},
        Err(_refused) if thread_count(Pid::this()) > 1 => {
            Err("threads of a library are alive, and a copy would not have them".to_owned())
        }
        Err(Errno::ECHILD) => {
            Err("the process could not be copied: its copy ended, or a cell has made it a subreaper"
                .to_owned())
        }
        Err(errno) => Err(format!("the process could not be copied ({})", errno.desc())),
    }
}

/// Goes from a directory to the same place in a copy of it, if that has it, otherwise to the copy.
pub(crate) fn move_to(py: Python<'_>, from: &Path, copy: PathBuf) -> PyResult<()> {
    // A directory that was removed leads nowhere.
    let here = std::env::current_dir().unwrap_or_default();
    let there = here.strip_prefix(from).map_or(here.clone(), |below| copy.join(below));
    let there = if there.is_dir() { there } else { copy };
    std::env::set_current_dir(&there)?;
    py.import("os")?.getattr("environ")?.set_item("PWD", OsString::from(there))
}

/// Serves one worker, in the copy.
fn serve(
    leaving: Leaving,
    supervisor: Pid,
    listener: OwnedFd,
    saved: File,
    session: &mut (dyn Served + 'static),
    root: &Path,
) -> io::Result<()> {
    if leaving.original_has_threads() {
        return Err(Errno::EDEADLK.into());
    }
    leaving.become_child()?;
    let name = prctl::get_name()?;
    // Until a worker has come, the branch is a program of its origin, and ends with that.
    tie_to_parent(supervisor, Signal::SIGKILL)?;
    let own = [listener.as_raw_fd(), saved.as_raw_fd(), leaving.descriptor()];
    let files = disconnect(&own)?;
    let cwd = File::options().read(true).custom_flags(libc::O_PATH).open("/proc/self/cwd")?;
    let inherited: Vec<RawFd> =
        open_descriptors()?.into_iter().filter(|fd| *fd > 2 && !own.contains(fd)).collect();
    silence()?;
    let (mask, dispositions) = (leaving.mask, Dispositions::take());
    signals::restore(&mask);
    let mut server = ForkServer::for_one(listener, Instant::now() + CONNECT_LIMIT)?;
    leaving.settle()?;
    let branching = Branching {
        name,
        mask,
        dispositions,
        files,
        inherited: inherited.clone(),
        root: root.to_owned(),
        cwd: Some(cwd),
    };
    forked::prepare(session, Box::new(branching));
    let mut saved = Some(saved);
    let fork = || {
        prctl::set_name(BRANCH_PROCESS)?;
        // SAFETY: this is the only thread. Python is prepared for a fork since that of this process.
        let server = Errno::result(unsafe { libc::fork() })?;
        if server != 0 {
            prctl::set_pdeathsig(None)?;
            // A directory in it is memory.
            saved = None;
        }
        Ok(server)
    };
    match server.run(|| None, fork)? {
        End::Forked(accepted) => {
            let forking = Forking { fork: fork_interpreter, is_for_the_first: true };
            let saved = saved.ok_or(Errno::EBADF)?;
            let accepted = accepted.of_branch(saved.into(), inherited);
            serve_forked(PythonWorker::forking(forking), accepted, |_| None)
        }
        End::Stale | End::Retired => Ok(()),
    }
}

/// The parts of the origin that a branch has besides its memory.
struct Branching {
    /// Name of the process.
    name: CString,
    /// The mask of signals.
    mask: libc::sigset_t,
    dispositions: Dispositions,
    files: Vec<ClosedFile>,
    /// Descriptors that keep their numbers.
    inherited: Vec<RawFd>,
    /// The directory of the origin. A copy has copies of the files below.
    root: PathBuf,
    cwd: Option<File>,
}

impl Beginning for Branching {
    fn enter(&mut self, place: &Place<'_>) -> io::Result<()> {
        close_descriptors(&self.inherited);
        if let Some(cwd) = self.cwd.take() {
            fchdir(cwd)?;
        }
        let moved = (place.cwd != self.root).then_some((&*self.root, place.cwd));
        self.files.iter().for_each(|file| file.reopen(moved));
        self.dispositions.restore();
        Ok(prctl::set_name(&self.name)?)
    }

    fn go_on(&mut self, py: Python<'_>, session: &mut dyn Served, place: &Place<'_>) -> PyResult<()> {
        session.become_branch(py);
        session.lead_to(py, place.paths.clone())?;
        // Code has the environment as it has changed it, but for the address of the session's own host.
        let environment = py.import("os")?.getattr("environ")?;
        let of_host = place.env.iter().filter_map(|(name, value)| Some((name.to_str()?, value)));
        for (name, value) in of_host.filter(|(name, _)| env::SESSION_NAMES.contains(name)) {
            environment.set_item(name, value)?;
        }
        signals::restore(&self.mask);
        Ok(())
    }

    fn has_forked(&mut self) {
        self.cwd = None;
        for fd in self.inherited.drain(..) {
            // SAFETY: a plain integer. What has the descriptor is in the interpreter alone.
            unsafe { libc::close(fd) };
        }
    }
}
