//! The signals that interrupt a cell, and nothing but a cell.
//!
//! The supervisor signals the main thread only: SIGINT first, and then the hard stop signal. Both are blocked while no cell
//! runs, and those that came in between are discarded before the next cell begins. So a late signal hits nothing.

use std::ffi::{c_int, c_void};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use nix::errno::Errno;
use nix::libc;
use nix::sys::signal::Signal;
use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use rlm_core::sys::waiting_bytes;
use rlm_worker_python::wire::hard_stop_signal;

use crate::tools;

/// Most exceptions of Python handlers that are ignored after a cell.
const SETTLE_ROUNDS: usize = 16;

/// `sys.settrace` and [`raise_again`], for the handler.
static TRACING: PyOnceLock<(Py<PyAny>, Py<PyAny>)> = PyOnceLock::new();

/// True once the hard stop has set trace functions in this cell.
static IS_TRACING: AtomicBool = AtomicBool::new(false);

/// Descriptor of the pipe of commands while tasks run between cells, otherwise -1.
static COMMANDS: AtomicI32 = AtomicI32::new(-1);

/// The two signals, and their handlers.
pub(crate) struct Signals {
    set_handler: Py<PyAny>,
    default_int_handler: Py<PyAny>,
    interrupt_task: Py<PyAny>,
    hard_stop: Py<PyAny>,
}

impl Signals {
    /// Blocks both signals, and looks up the functions that are needed later.
    pub(crate) fn new(py: Python<'_>) -> PyResult<Self> {
        change_mask(libc::SIG_BLOCK);
        let module = py.import("_signal")?;
        let set_trace = py.import("sys")?.getattr("settrace")?.unbind();
        let raise_again = wrap_pyfunction!(raise_again, py)?.into_any().unbind();
        TRACING.get_or_init(py, || (set_trace, raise_again));
        Ok(Self {
            set_handler: module.getattr("signal")?.unbind(),
            default_int_handler: module.getattr("default_int_handler")?.unbind(),
            interrupt_task: wrap_pyfunction!(interrupt_task, py)?.into_any().unbind(),
            hard_stop: wrap_pyfunction!(hard_stop, py)?.into_any().unbind(),
        })
    }

    /// Opens the window in which a cell can be interrupted. Earlier cells may have changed the handlers: they are put back.
    pub(crate) fn open(&self, py: Python<'_>) {
        self.open_with(py, &self.default_int_handler);
    }

    /// Opens it for the tasks that run until there is a command to read. While there is none, a signal comes too late for the last
    /// cell, and hits nothing.
    pub(crate) fn open_for_tasks(&self, py: Python<'_>, commands: &File) {
        COMMANDS.store(commands.as_raw_fd(), Ordering::Relaxed);
        self.open_with(py, &self.interrupt_task);
    }

    fn open_with(&self, py: Python<'_>, on_interrupt: &Py<PyAny>) {
        for (signal, handler) in [(libc::SIGINT, on_interrupt), (hard_stop_signal(), &self.hard_stop)] {
            // This fails if the handler of another signal raised just now, between cells.
            if let Err(raised) = self.set_handler.call1(py, (signal, handler)) {
                tell(py, raised);
                let _raised_again = self.set_handler.call1(py, (signal, handler));
            }
        }
        discard();
        change_mask(libc::SIG_UNBLOCK);
    }

    /// Closes the window. An interrupt that Python has noted but not raised yet is raised and dropped here.
    pub(crate) fn close(&self, py: Python<'_>) {
        change_mask(libc::SIG_BLOCK);
        for _ in 0..SETTLE_ROUNDS {
            match py.check_signals() {
                Ok(()) => break,
                Err(raised) if raised.is_instance_of::<PyKeyboardInterrupt>(py) => {}
                Err(raised) => tell(py, raised),
            }
        }
        COMMANDS.store(-1, Ordering::Relaxed);
        stop_tracing(py);
    }
}

/// Blocks both signals, as between cells.
pub(crate) fn block() {
    change_mask(libc::SIG_BLOCK);
}

/// Runs the handlers of pending signals.
pub(crate) fn run_handlers(py: Python<'_>) {
    if let Err(raised) = py.check_signals() {
        tell(py, raised);
    }
}

/// Reports an exception that a handler raised while no cell ran, as Python reports one that it cannot raise.
pub(crate) fn tell(py: Python<'_>, raised: PyErr) {
    raised.write_unraisable(py, None);
}

/// Ends the tracing that the hard stop began: the cell has been left.
pub(crate) fn stop_tracing(py: Python<'_>) {
    if IS_TRACING.swap(false, Ordering::Relaxed)
        && let Some((set_trace, _)) = TRACING.get(py)
    {
        // This fails if one of the cell's audit hooks refuses; then cells are slower, but work.
        let _refused = set_trace.call1(py, (py.None(),));
    }
}

/// The handler of SIGINT while tasks run between cells.
#[pyfunction]
fn interrupt_task(signal: i32, frame: Bound<'_, PyAny>) -> PyResult<()> {
    let _ = (signal, frame);
    if is_late() { Ok(()) } else { Err(PyKeyboardInterrupt::new_err(())) }
}

/// True if tasks run between cells, and no command waits.
fn is_late() -> bool {
    let commands = COMMANDS.load(Ordering::Relaxed);
    // SAFETY: the pipe is open for as long as its number is there.
    commands >= 0 && !has_command(unsafe { BorrowedFd::borrow_raw(commands) })
}

/// True if a command waits in this pipe.
pub(crate) fn has_command(commands: impl AsFd) -> bool {
    waiting_bytes(commands).is_ok_and(|count| count > 0)
}

/// The handler of the hard stop signal. A cell can swallow one exception, so each line that a frame of the stack reaches
/// raises another, until all frames are left.
#[pyfunction]
fn hard_stop(signal: i32, frame: Bound<'_, PyAny>) -> PyResult<()> {
    let _ = signal;
    if is_late() {
        return Ok(());
    }
    IS_TRACING.store(true, Ordering::Relaxed);
    tools::interrupt_calls();
    trace_lines(frame)?;
    Err(PyKeyboardInterrupt::new_err(()))
}

/// Makes this frame and those below it raise at their next line.
fn trace_lines(mut frame: Bound<'_, PyAny>) -> PyResult<()> {
    let py = frame.py();
    let Some((set_trace, raise_again)) = TRACING.get(py) else { return Ok(()) };
    set_trace.call1(py, (raise_again,))?;
    while !frame.is_none() {
        frame.setattr("f_trace", raise_again)?;
        frame = frame.getattr("f_back")?;
    }
    Ok(())
}

/// A trace function that raises at each line. Python ends all tracing when a trace function raises, so it is set again.
#[pyfunction]
fn raise_again(
    py: Python<'_>,
    frame: Bound<'_, PyAny>,
    event: &str,
    argument: Bound<'_, PyAny>,
) -> PyResult<Py<PyAny>> {
    let _ = (frame, argument);
    if event == "line" {
        // SAFETY: the function lives as long as the process. It fails where 32 calls wait already.
        unsafe { ffi::Py_AddPendingCall(Some(trace_again), ptr::null_mut()) };
        return Err(PyKeyboardInterrupt::new_err(()));
    }
    // New frames are left alone: they may be ours, and their callers raise when they return.
    let traced = TRACING.get(py).filter(|_| event != "call");
    Ok(traced.map_or_else(|| py.None(), |(_, raise_again)| raise_again.clone_ref(py)))
}

/// Python calls this from the main thread, soon after a line has raised.
extern "C" fn trace_again(_: *mut c_void) -> c_int {
    if IS_TRACING.load(Ordering::Relaxed) {
        Python::attach(|py| {
            // SAFETY: a borrowed reference to the frame that runs, or null.
            let frame = unsafe { Bound::from_borrowed_ptr_or_opt(py, ffi::PyEval_GetFrame().cast()) };
            // This fails if one of the cell's audit hooks refuses; then the cell may go on swallowing.
            let _refused = frame.map(trace_lines);
        });
    }
    0
}

fn set() -> libc::sigset_t {
    // SAFETY: an empty set is initialised by sigemptyset before it is used; both signals exist.
    unsafe {
        let mut set = std::mem::zeroed::<libc::sigset_t>();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGINT);
        libc::sigaddset(&raw mut set, hard_stop_signal());
        set
    }
}

/// Blocks or unblocks both signals for this thread.
fn change_mask(how: i32) {
    let set = set();
    // SAFETY: the pointer is to a live set; no old mask is asked for.
    unsafe { libc::pthread_sigmask(how, &raw const set, ptr::null_mut()) };
}

/// Blocks every signal for this thread, and returns the mask from before.
pub(crate) fn block_all() -> libc::sigset_t {
    // SAFETY: both sets are live; the first is initialised by sigfillset before it is used, the second is written.
    unsafe {
        let (mut all, mut before) = (std::mem::zeroed(), std::mem::zeroed());
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        before
    }
}

/// Restores a mask.
pub(crate) fn restore(mask: &libc::sigset_t) {
    // SAFETY: the set is live; no old mask is asked for.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, mask, ptr::null_mut()) };
}

/// Waits under this mask until there is something to read. False where a signal came first.
pub(crate) fn wait_readable(file: &File, mask: &libc::sigset_t) -> io::Result<bool> {
    let mut fd = libc::pollfd { fd: file.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: both pointers are to live values, and there is one descriptor.
    let ready = unsafe { libc::ppoll(&raw mut fd, 1, ptr::null(), mask) };
    match Errno::result(ready) {
        Ok(_) => Ok(true),
        Err(Errno::EINTR) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

/// Discards the signals that came while both were blocked.
fn discard() {
    let (set, at_once) = (set(), libc::timespec { tv_sec: 0, tv_nsec: 0 });
    // SAFETY: both pointers are to live values; no information on the signal is asked for.
    while unsafe { libc::sigtimedwait(&raw const set, ptr::null_mut(), &raw const at_once) } > 0 {}
}

/// The handling of a signal before [`end_by`].
pub(crate) struct Before {
    signal: libc::c_int,
    action: libc::sigaction,
}

/// Lets this signal end the process, although all are blocked.
pub(crate) fn end_by(signal: Signal) -> Before {
    let signal = signal as libc::c_int;
    // SAFETY: all structs are live; the set is initialised by sigemptyset before it is used. All zero is the default action.
    unsafe {
        let mut action = std::mem::zeroed::<libc::sigaction>();
        libc::sigaction(signal, &std::mem::zeroed::<libc::sigaction>(), &raw mut action);
        let mut set = std::mem::zeroed::<libc::sigset_t>();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, signal);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const set, ptr::null_mut());
        Before { signal, action }
    }
}

impl Before {
    /// Handles the signal as before. It is left unblocked.
    pub(crate) fn restore(&self) {
        // SAFETY: the struct is live, and was filled in by the same function.
        unsafe { libc::sigaction(self.signal, &raw const self.action, ptr::null_mut()) };
    }
}

/// The handling of all signals.
pub(crate) struct Dispositions(Vec<(libc::c_int, libc::sigaction)>);

impl Dispositions {
    /// Notes the handling of all signals, and changes it to that of a worker: no handler, and errors where something cannot be written.
    pub(crate) fn take() -> Self {
        let noted = (1..=libc::SIGRTMAX()).filter_map(|signal| {
            // SAFETY: all structs are live. All zero is the default action.
            unsafe {
                let (mut new, mut old) = std::mem::zeroed::<(libc::sigaction, libc::sigaction)>();
                if [libc::SIGPIPE, libc::SIGXFSZ].contains(&signal) {
                    new.sa_sigaction = libc::SIG_IGN;
                }
                // Some signals have no other handling than their own.
                (libc::sigaction(signal, &raw const new, &raw mut old) == 0).then_some((signal, old))
            }
        });
        Self(noted.collect())
    }

    /// Handles all signals as before.
    pub(crate) fn restore(&self) {
        for (signal, action) in &self.0 {
            // SAFETY: the struct is live, and was filled in by the same function.
            unsafe { libc::sigaction(*signal, action, ptr::null_mut()) };
        }
    }
}
