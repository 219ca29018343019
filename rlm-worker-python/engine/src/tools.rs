//! Root tools: functions in the namespace that call the endpoint on the host.
//!
//! A call waits without the interpreter's lock, so that threads can call at the same time, each on a connection of its own,
//! which is kept for the next call. An interrupt ends the calls of all threads: those of the main thread when its signal comes, the
//! others within a tenth of a second.

use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nix::unistd::Pid;
use pyo3::exceptions::{PyKeyboardInterrupt, PyRuntimeError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyCFunction, PyDict, PyString, PyTuple};
use rlm_core::pickle::{Limits, check_for_cpython};
use rlm_core::root_tool::client::{Answer, Connection, Endpoint, PostError};
use rlm_core::root_tool::{
    MAX_BODY_BYTES, PAID_BEFORE, RawReply, Serialization, WireError, Written, asks, write_body,
};
use rlm_core::worker::settings::RootTools;

use crate::compiled::code;
use crate::eval::evaluate;

/// Most idle connections that are kept: more threads seldom call at once.
const MAX_KEPT: usize = 64;

/// Counts interrupts.
static INTERRUPTS: AtomicU64 = AtomicU64::new(0);

/// Ends the calls of all threads.
pub(crate) fn interrupt_calls() {
    INTERRUPTS.fetch_add(1, Ordering::Relaxed);
}

/// The part that is written in Python.
const GLUE: &str = include_str!("tools.py");

/// The file name of [`GLUE`] in tracebacks, which leave it out.
const FILE_NAME: &str = "<rlm tools>";

/// The place to which calls go.
#[derive(Clone)]
struct Target {
    endpoint: Endpoint,
    timeout: Duration,
}

impl Target {
    fn of(settings: &RootTools) -> PyResult<Self> {
        Ok(Self { endpoint: settings.endpoint().map_err(failure)?, timeout: settings.timeout })
    }
}

/// The state that the functions share.
pub(crate) struct Tools {
    target: Mutex<Target>,
    serialization: Serialization,
    dumps: Py<PyAny>,
    loads: Py<PyAny>,
    print: Py<PyAny>,
    kept: Mutex<Vec<Connection>>,
    /// Replies of models that an interrupt has kept from the code, by their requests: the same call takes them.
    unread: Mutex<Vec<(Vec<u8>, Vec<u8>)>>,
}

/// The session's process. Its forks have copies of the connections, which they must not use.
static OWNER: AtomicI32 = AtomicI32::new(0);

/// Makes this process the session's.
pub(crate) fn own_connections() {
    OWNER.store(Pid::this().as_raw(), Ordering::Relaxed);
}

/// Puts the tools' functions into the namespace. Returns the state that they share.
pub(crate) fn add(namespace: &Bound<'_, PyDict>, settings: &RootTools) -> PyResult<Arc<Tools>> {
    let py = namespace.py();
    let builtins = py.import("builtins")?;
    let glue = PyDict::new(py);
    glue.set_item("__builtins__", builtins.dict().copy()?)?;
    glue.set_item("__name__", "rlm_cell_engine")?;
    evaluate(&code(py, GLUE, FILE_NAME)?, &glue)?;
    let item = |name: &str| glue.as_any().get_item(name);
    let pair = match settings.serialization {
        Serialization::Pickle => item("pickling")?.call0()?,
        Serialization::Json => item("json")?.call0()?,
    };
    let (dumps, loads) = pair.extract::<(Py<PyAny>, Py<PyAny>)>()?;
    let tools = Arc::new(Tools {
        target: Mutex::new(Target::of(settings)?),
        serialization: settings.serialization,
        dumps,
        loads,
        print: builtins.getattr("print")?.unbind(),
        kept: Mutex::default(),
        unread: Mutex::default(),
    });
    let shared = Arc::clone(&tools);
    own_connections();
    let call = PyCFunction::new_closure(py, Some(c"call"), None, move |arguments, _| {
        let (name, args, kwargs) = arguments.extract::<(String, Bound<'_, PyTuple>, Bound<'_, PyDict>)>()?;
        tools.call(&name, &args, &kwargs)
    })?;
    item("add")?.call1((namespace, &settings.names, call))?;
    Ok(shared)
}

impl Tools {
    /// Leads the functions, which code may have under other names too, to the endpoint of another session.
    pub(crate) fn lead_to(&self, settings: &RootTools) -> PyResult<()> {
        *self.target.lock().unwrap_or_else(PoisonError::into_inner) = Target::of(settings)?;
        self.connections().clear();
        Ok(())
    }

    fn call(&self, name: &str, args: &Bound<'_, PyTuple>, kwargs: &Bound<'_, PyDict>) -> PyResult<Py<PyAny>> {
        let py = args.py();
        let body = self.body(name, args, kwargs)?;
        let unread = if asks(name) { self.take_unread(&body) } else { None };
        let is_from_before = unread.is_some();
        let (reply, stopped) = match unread {
            Some(reply) => (Ok(reply), None),
            None => {
                let (answer, stopped) = self.post(py, name, &body)?;
                (answer.into_ok(), stopped)
            }
        };
        let is_stopped = stopped.is_some();
        let taken = match (stopped, &reply) {
            (Some(raised), _) => Err(raised),
            (None, Ok(reply)) => self.read(py, name, reply, is_from_before),
            (None, Err(reason)) => Err(failure(reason)),
        };
        if let (Ok(reply), Err(error)) = (reply, &taken)
            && (is_stopped || error.is_instance_of::<PyKeyboardInterrupt>(py))
            && asks(name)
            && is_answered(&reply)
            // Only the host knows whether files have changed.
            && !format!("{args:?}{kwargs:?}").contains("files")
        {
            self.unread().push((body, reply));
        }
        taken
    }

    /// The value of a reply, whose lines are printed.
    fn read(&self, py: Python<'_>, name: &str, reply: &[u8], is_from_before: bool) -> PyResult<Py<PyAny>> {
        let unreadable = |error: WireError| failure(error.in_reply_of(name));
        let reply = RawReply::parse(reply).map_err(unreadable)?;
        for line in &reply.print_lines {
            let line = if is_from_before { format!("{line}, all{PAID_BEFORE}") } else { line.clone() };
            self.print.call1(py, (line,))?;
        }
        if let Some(repr) = &reply.result_repr {
            return Ok(PyString::new(py, repr).into_any().unbind());
        }
        match self.serialization {
            Serialization::Pickle => {
                let pickle = reply.pickle().map_err(unreadable)?;
                let limits = Limits { payload_bytes: MAX_BODY_BYTES, ..Limits::default() };
                py.detach(|| check_for_cpython(&pickle, &limits))
                    .map_err(|error| failure(format!("the answer to {name} cannot be read: {error}")))?;
                let loaded = self.loads.call1(py, (PyBytes::new(py, &pickle),));
                loaded.map_err(|error| match error.is_instance_of::<PyKeyboardInterrupt>(py) {
                    true => error,
                    false => failure(format!("the answer to {name} cannot be read: {}", error.value(py))),
                })
            }
            Serialization::Json => self.loads.call1(py, (reply.json().map_err(unreadable)?,)),
        }
    }

    fn body(&self, name: &str, args: &Bound<'_, PyTuple>, kwargs: &Bound<'_, PyDict>) -> PyResult<Vec<u8>> {
        let py = args.py();
        let (args, kwargs) = (self.dumps.bind(py).call1((args,))?, self.dumps.bind(py).call1((kwargs,))?);
        let body = match self.serialization {
            Serialization::Pickle => {
                let (args, kwargs) = (args.cast::<PyBytes>()?, kwargs.cast::<PyBytes>()?);
                write_body(name, Written::Pickle(args.as_bytes()), Written::Pickle(kwargs.as_bytes()))
            }
            Serialization::Json => {
                let (args, kwargs) = (args.extract::<String>()?, kwargs.extract::<String>()?);
                write_body(name, Written::Json(&args), Written::Json(&kwargs))
            }
        };
        body.map_err(failure)
    }

    fn take_unread(&self, body: &[u8]) -> Option<Vec<u8>> {
        let mut unread = self.unread();
        let at = unread.iter().position(|(asked, _)| asked == body)?;
        Some(unread.remove(at).1)
    }

    fn unread(&self) -> MutexGuard<'_, Vec<(Vec<u8>, Vec<u8>)>> {
        self.unread.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The answer of the endpoint, and the exception of an interrupt that came with it.
    fn post(&self, py: Python<'_>, name: &str, body: &[u8]) -> PyResult<(Answer, Option<PyErr>)> {
        let Target { endpoint, timeout } = self.target.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let deadline = Instant::now() + timeout;
        let interrupts = INTERRUPTS.load(Ordering::Relaxed);
        let is_owner = Pid::this().as_raw() == OWNER.load(Ordering::Relaxed);
        let mut raised = None;
        let answer = py.detach(|| {
            let mut connection = is_owner.then(|| self.connections().pop()).flatten();
            let answer = endpoint.post(body, &mut connection, Some(deadline), &mut || {
                // Only the main thread's signals raise.
                raised = Python::attach(|py| py.check_signals()).err();
                raised.is_none() && INTERRUPTS.load(Ordering::Relaxed) == interrupts
            });
            if let Some(connection) = connection.filter(|_| is_owner) {
                let mut kept = self.connections();
                if kept.len() < MAX_KEPT {
                    kept.push(connection);
                }
            }
            answer
        });
        let error = match answer {
            Ok(answer) => {
                // A signal may have come between two looks, and the code would not get results that were paid for.
                let is_stopped = INTERRUPTS.load(Ordering::Relaxed) != interrupts;
                let stopped = is_stopped.then(|| PyKeyboardInterrupt::new_err(()));
                return Ok((answer, py.check_signals().err().or(stopped)));
            }
            Err(error) => error,
        };
        Err(match (error, raised) {
            (_, Some(raised)) => raised,
            (PostError::Interrupted, None) => PyKeyboardInterrupt::new_err(()),
            (PostError::TimedOut, None) => {
                failure(format!("{name}: no answer within {} s", timeout.as_secs_f64()))
            }
            (error, None) => failure(error),
        })
    }

    fn connections(&self) -> MutexGuard<'_, Vec<Connection>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// True if models have answered all that they were asked.
fn is_answered(reply: &[u8]) -> bool {
    let is_fault = |line: &str| line.contains(" failed") || line.contains("no final answer");
    RawReply::parse(reply).is_ok_and(|reply| !reply.print_lines.iter().any(|line| is_fault(line)))
}

fn failure(error: impl ToString) -> PyErr {
    PyRuntimeError::new_err(error.to_string())
}
