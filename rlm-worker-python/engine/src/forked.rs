//! The interpreter of a session that was forked from a server in this process: see [`rlm_core::worker::fork_server`].

use std::convert::Infallible;
use std::io;
use std::os::fd::AsRawFd as _;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use nix::errno::Errno;
use nix::libc;
use nix::sys::signal::Signal;
use nix::unistd::{Pid, setsid};
use pyo3::prelude::*;
use rlm_core::sys::{errno_of, tie_to_parent};
use rlm_worker_python::Place;
use rlm_worker_python::wire::{LOST_STATUS, PipePaths};

use crate::fork::begin_child;
use crate::pipes;

/// A session, as a process that was forked goes on with it.
pub(crate) trait Served {
    /// Gives it its pipes, in the process in which it is served.
    fn lead_to(&mut self, py: Python<'_>, paths: PipePaths) -> PyResult<()>;

    /// Makes it a branch of what it was, which is not set up yet.
    fn become_branch(&mut self, py: Python<'_>);

    /// Serves it until the process is ended.
    fn serve(&mut self, py: Python<'_>) -> PyResult<Infallible>;
}

/// The part of a beginning that depends on what the server was forked from.
pub(crate) trait Beginning {
    /// Closes the descriptors of the server, and goes to the session's working directory. Python knows nothing of the fork yet.
    fn enter(&mut self, place: &Place<'_>) -> io::Result<()>;

    /// Gives the session what is its own in this process.
    fn go_on(&mut self, py: Python<'_>, session: &mut dyn Served, place: &Place<'_>) -> PyResult<()>;

    /// Lets go, in the server, of what was there for its interpreter.
    fn has_forked(&mut self) {}
}

/// The parts of an interpreter.
struct Template {
    session: *mut dyn Served,
    beginning: Box<dyn Beginning>,
}

/// The template of interpreters. This process has one thread.
static TEMPLATE: AtomicPtr<Template> = AtomicPtr::new(ptr::null_mut());

/// Stores the parts of the interpreters that [`fork_interpreter`] forks from servers below this process, which uses the session no more.
pub(crate) fn prepare(session: *mut dyn Served, beginning: Box<dyn Beginning>) {
    TEMPLATE.store(Box::into_raw(Box::new(Template { session, beginning })), Ordering::Relaxed);
}

/// Forks an interpreter from this server.
pub(crate) fn fork_interpreter(place: &Place<'_>) -> io::Result<Pid> {
    let server = Pid::this();
    // SAFETY: only this thread runs Python, and it does so only in the new process. The pointer was stored once, before the first fork.
    let (forked, template) = unsafe { (libc::fork(), &mut *TEMPLATE.load(Ordering::Relaxed)) };
    match Errno::result(forked)? {
        0 => {
            let Err(fault) = begin(template, place, server);
            // SAFETY: the process that has prepared the template held the interpreter's lock, in this thread.
            fault.display(unsafe { Python::assume_attached() });
            pipes::end_process(LOST_STATUS)
        }
        interpreter => {
            template.beginning.has_forked();
            Ok(Pid::from_raw(interpreter))
        }
    }
}

/// Goes on as the interpreter of a session.
fn begin(template: &mut Template, place: &Place<'_>, server: Pid) -> PyResult<Infallible> {
    if let Err(error) = enter(place, server).and_then(|()| template.beginning.enter(place)) {
        pipes::end_process(errno_of(&error) as i32);
    }
    begin_child();
    // SAFETY: as above. Nothing else in this process uses the session.
    let (py, session) = unsafe { (Python::assume_attached(), &mut *template.session) };
    let modules = py.import("sys")?.getattr("modules")?;
    if let Ok(random) = modules.get_item("numpy.random") {
        random.call_method0("seed")?;
    }
    if let Ok(threading) = modules.get_item("threading") {
        let main = threading.call_method0("main_thread")?;
        // Later versions of Python do so themselves.
        if main.hasattr("_set_native_id")? {
            main.call_method0("_set_native_id")?;
        }
    }
    template.beginning.go_on(py, session, place)?;
    session.serve(py)
}

/// Gives this process the place of an interpreter that was started.
fn enter(place: &Place<'_>, server: Pid) -> io::Result<()> {
    setsid()?;
    tie_to_parent(server, Signal::SIGKILL)?;
    place.entry.enter()?;
    let streams = [
        ("/dev/null", libc::O_RDONLY),
        (&place.paths.stdout, libc::O_WRONLY),
        (&place.paths.stderr, libc::O_WRONLY),
    ];
    for ((path, flags), fd) in streams.into_iter().zip(0..) {
        let file = pipes::open(path, flags)?;
        // SAFETY: plain integers.
        Errno::result(unsafe { libc::dup2(file.as_raw_fd(), fd) })?;
    }
    Ok(())
}
