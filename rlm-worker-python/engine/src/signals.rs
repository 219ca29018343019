//! How a cell is interrupted, and why nothing but a cell ever is.
//!
//! The supervisor signals the main thread, and no other: SIGINT first, and where that does not help the hard stop signal.
//! Both are blocked while no cell runs, and what came meanwhile is thrown away before the next one begins. So a signal that
//! comes late hits nothing.

use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::libc;
use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use rlm_worker_python::wire::hard_stop_signal;

/// How many Python handlers that raise are put up with after a cell.
const SETTLE_ROUNDS: usize = 16;

/// `sys.settrace` and [`raise_once`], for the handler.
static TRACING: PyOnceLock<(Py<PyAny>, Py<PyAny>)> = PyOnceLock::new();

/// Whether the hard stop has set trace functions in this cell.
static IS_TRACING: AtomicBool = AtomicBool::new(false);

/// The two signals, and their handlers.
pub(crate) struct Signals {
    set_handler: Py<PyAny>,
    default_int_handler: Py<PyAny>,
    hard_stop: Py<PyAny>,
}

impl Signals {
    /// Blocks both signals, and fetches what is needed later.
    pub(crate) fn new(py: Python<'_>) -> PyResult<Self> {
        change_mask(libc::SIG_BLOCK);
        let module = py.import("_signal")?;
        let set_trace = py.import("sys")?.getattr("settrace")?.unbind();
        let raise_once = wrap_pyfunction!(raise_once, py)?.into_any().unbind();
        TRACING.get_or_init(py, || (set_trace, raise_once));
        Ok(Self {
            set_handler: module.getattr("signal")?.unbind(),
            default_int_handler: module.getattr("default_int_handler")?.unbind(),
            hard_stop: wrap_pyfunction!(hard_stop, py)?.into_any().unbind(),
        })
    }

    /// Opens the window in which a cell can be interrupted. Earlier cells may have changed the handlers: they are put back.
    pub(crate) fn open(&self, py: Python<'_>) {
        for (signal, handler) in
            [(libc::SIGINT, &self.default_int_handler), (hard_stop_signal(), &self.hard_stop)]
        {
            // It fails where the handler of another signal raised just now, between cells: nobody's exception.
            if self.set_handler.call1(py, (signal, handler)).is_err() {
                let _raised_again = self.set_handler.call1(py, (signal, handler));
            }
        }
        discard();
        change_mask(libc::SIG_UNBLOCK);
    }

    /// Closes the window. What Python has noted and not yet raised is raised here, to nobody.
    pub(crate) fn close(&self, py: Python<'_>) {
        change_mask(libc::SIG_BLOCK);
        for _ in 0..SETTLE_ROUNDS {
            if py.check_signals().is_ok() {
                break;
            }
        }
        if IS_TRACING.swap(false, Ordering::Relaxed)
            && let Some((set_trace, _)) = TRACING.get(py)
        {
            // It fails where an audit hook of the cell's refuses; then cells are slower, and no worse.
            let _refused = set_trace.call1(py, (py.None(),));
        }
    }
}

/// The handler of the hard stop signal. One exception can be swallowed; so every frame of the stack raises once more, at
/// the next line that it comes to, which is in the clause that swallowed it.
#[pyfunction]
fn hard_stop(signal: i32, mut frame: Bound<'_, PyAny>) -> PyResult<()> {
    let _ = signal;
    let py = frame.py();
    if let Some((set_trace, raise_once)) = TRACING.get(py) {
        IS_TRACING.store(true, Ordering::Relaxed);
        set_trace.call1(py, (raise_once,))?;
        while !frame.is_none() {
            frame.setattr("f_trace", raise_once)?;
            frame = frame.getattr("f_back")?;
        }
    }
    Err(PyKeyboardInterrupt::new_err(()))
}

/// A trace function that raises at the first line. Python ends the tracing when a trace function raises.
#[pyfunction]
fn raise_once(
    py: Python<'_>,
    frame: Bound<'_, PyAny>,
    event: &str,
    argument: Bound<'_, PyAny>,
) -> PyResult<Py<PyAny>> {
    let _ = (frame, argument);
    if event == "line" {
        return Err(PyKeyboardInterrupt::new_err(()));
    }
    Ok(TRACING.get(py).map_or_else(|| py.None(), |(_, raise_once)| raise_once.clone_ref(py)))
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

/// Throws away what came while both were blocked.
fn discard() {
    let (set, at_once) = (set(), libc::timespec { tv_sec: 0, tv_nsec: 0 });
    // SAFETY: both pointers are to live values; no information on the signal is asked for.
    while unsafe { libc::sigtimedwait(&raw const set, ptr::null_mut(), &raw const at_once) } > 0 {}
}
