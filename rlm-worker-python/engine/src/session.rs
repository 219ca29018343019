//! The loop of the engine: a command, a cell, a report.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::ffi::OsString;
use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::path::PathBuf;
use std::sync::Arc;

use nix::libc;
use nix::unistd::Pid;
use pyo3::exceptions::{PyKeyError, PyKeyboardInterrupt, PyRuntimeError, PySystemExit};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use rlm_core::json::JsonText;
use rlm_core::protocol::{Completions, ONE_CALL_PREFIX, name_excerpt};
use rlm_worker_python::tools::FINAL_FUNCTIONS;
use rlm_worker_python::wire::{Branch, Command, PipePaths, Report, Setup, Task};

use crate::answer::LastAnswer;
use crate::cell::{Cells, Source};
use crate::checkpoint::Copies;
use crate::descriptors::holds_lock;
use crate::fork::begin_child;
use crate::forked::Served;
use crate::guard_rails::{self, Rails};
use crate::signals::{self, Signals};
use crate::streams::Streams;
use crate::tools::{self, Tools};
use crate::{branch, final_functions, pipes, text, variables};

/// The message of a cell that was stopped while a task kept the session from beginning it.
const NOT_BEGUN: &str =
    "the code did not run: a task of an earlier cell held the session until the call was stopped";

/// The name of the session's directory in the namespace.
const EXTRA_DATA: &str = "extra_data";

/// Passes a state by a file, and returns the JSON text of a [`rlm_worker_python::wire::Saved`].
type PassState = fn(&mut Cells, Python<'_>, i32, &Bound<'_, PyDict>) -> PyResult<String>;

/// A session: the namespace, and the means to run cells in it.
pub(crate) struct Session {
    paths: PipePaths,
    cells: Cells,
    signals: Signals,
    streams: Streams,
    last_answer: LastAnswer,
    /// Names of the root tools.
    root_tools: Vec<String>,
    tools: Option<Arc<Tools>>,
    has_final_functions: bool,
    /// The objects in the namespace that belong to this session's host, by name.
    given: Py<PyDict>,
    /// Names in the namespace that last until the end of the next cell.
    transient_variables: BTreeSet<String>,
    /// True if the next cell was stopped before it began, by an interrupt of a task that held the session.
    is_next_stopped: bool,
    pid: Pid,
    copies: Option<Copies>,
    count_threads: Py<PyAny>,
    /// True for a branch that has not been set up.
    is_new_branch: bool,
    rails: Rails,
}

impl Served for Session {
    fn lead_to(&mut self, py: Python<'_>, paths: PipePaths) -> PyResult<()> {
        self.pid = Pid::this();
        self.streams.lead_to(py, &paths.stdout, &paths.stderr)?;
        self.paths = paths;
        Ok(())
    }

    fn become_branch(&mut self, py: Python<'_>) {
        tools::own_connections();
        self.cells.after_copy(py, &py.None());
        self.is_new_branch = true;
    }

    fn serve(&mut self, py: Python<'_>) -> PyResult<Infallible> {
        loop {
            let command = self.next_command(py)?;
            let payload_bytes = if command.task == Task::Load { 0 } else { command.payload_bytes };
            let payload = pipes::read_payload(&self.paths.payload, payload_bytes)?;
            let mut report = match command.task {
                Task::SetUp => self.set_up(py, &payload)?,
                Task::Set => self.set(py, &payload)?,
                Task::Complete => self.complete(py, &payload)?,
                Task::Save => self.pass_state(py, libc::O_RDWR | libc::O_TRUNC, Cells::save)?,
                Task::Load => self.pass_state(py, libc::O_RDONLY, Cells::load)?,
                Task::Cell(cell) => {
                    let source = Source::of_payload(&payload, command.written_bytes).map_err(fault)?;
                    self.run(py, &source, cell, command.max_result_bytes)?
                }
                Task::Branch => self.branch(py, &payload)?,
                Task::TakeOver => Report::default(),
            };
            let mut is_copied = false;
            if command.task.changes_session()
                && let Some(copies) = &self.copies
            {
                report.no_copy = copies.obstacle().or_else(|| self.obstacle(py));
                is_copied = report.no_copy.is_none() || copies.is_retried();
            }
            // Nobody waits for a new session yet.
            if is_copied && !matches!(command.task, Task::Cell(_) | Task::Set) {
                is_copied = false;
                if self.take_copy(py, command.nonce)? {
                    continue;
                }
            }
            let (header, result, document) = report.encode(command.nonce).map_err(fault)?;
            self.leave_if_child(py);
            py.detach(|| pipes::write_report(&self.paths.report, [&header, result, &document]))?;
            if is_copied {
                self.take_copy(py, command.nonce)?;
            }
        }
    }
}

impl Session {
    /// A session that has no pipes yet, and the arguments of this process for it.
    pub(crate) fn new(py: Python<'_>) -> PyResult<(Self, Vec<String>)> {
        let signals = Signals::new(py)?;
        let sys = py.import("sys")?;
        // The first two are `-c` and the engine.
        let arguments = sys.getattr("argv")?.extract::<Vec<String>>()?.into_iter().skip(2).collect();
        sys.setattr("argv", PyList::new(py, [""])?)?;
        sys.delattr("__interactivehook__")?;
        // Modules in the working directory can be imported, but do not hide other modules.
        sys.getattr("path")?.call_method1("append", ("",))?;
        let streams = Streams::new(py)?;
        let cells = Cells::new(py)?;
        let (last_answer, root_tools, transient_variables) =
            (LastAnswer::default(), Vec::new(), BTreeSet::new());
        let (has_final_functions, pid) = (false, Pid::this());
        let session = Self {
            paths: PipePaths::default(),
            cells,
            signals,
            streams,
            last_answer,
            root_tools,
            tools: None,
            has_final_functions,
            given: PyDict::new(py).unbind(),
            transient_variables,
            is_next_stopped: false,
            pid,
            copies: None,
            count_threads: py.import("_thread")?.getattr("_count")?.unbind(),
            is_new_branch: false,
            rails: Rails::default(),
        };
        Ok((session, arguments))
    }

    /// Gives the session the pipes that the arguments of this process name.
    pub(crate) fn lead_to_arguments(&mut self, py: Python<'_>, arguments: Vec<String>) -> PyResult<()> {
        let paths = arguments.try_into().map_err(|_| fault("the engine's arguments are missing"))?;
        self.lead_to(py, PipePaths::from_arguments(paths))
    }

    /// Waits for a command. In the meantime, Python runs the tasks that cells have left, and its handlers of other signals, which a
    /// cell may have set.
    fn next_command(&mut self, py: Python<'_>) -> PyResult<Command> {
        let pipe = pipes::open(&self.paths.commands, nix::libc::O_RDONLY)?;
        self.is_next_stopped = false;
        loop {
            self.run_tasks(py, &pipe);
            // A signal that arrives between the check and the wait must end the wait.
            let mask = signals::block_all();
            signals::run_handlers(py);
            self.leave_if_child(py);
            let has_come = py.detach(|| signals::wait_readable(&pipe, &mask));
            signals::restore(&mask);
            if has_come? {
                let mut bytes = [0; Command::BYTES];
                pipes::read_command(&pipe, &mut bytes)?;
                return Ok(Command::decode(&bytes));
            }
        }
    }

    /// Runs the tasks that cells have left, until a command comes. An interrupt of the call that waits stops the task that holds it.
    fn run_tasks(&mut self, py: Python<'_>, commands: &File) {
        while !self.is_next_stopped {
            let ran = match self.cells.has_tasks(py) {
                Ok(true) => {
                    self.signals.open_for_tasks(py, commands);
                    let ran = self.cells.run_tasks(py, commands);
                    self.signals.close(py);
                    self.cells.tidy(py);
                    ran
                }
                looked => looked.map(drop),
            };
            self.leave_if_child(py);
            match ran {
                Ok(()) => return,
                Err(raised) if raised.is_instance_of::<PyKeyboardInterrupt>(py) => {
                    self.is_next_stopped = signals::has_command(commands);
                }
                // A task has raised SystemExit, or the like, or the handler of a signal.
                Err(raised) => signals::tell(py, raised),
            }
        }
    }

    /// Fills the namespace.
    fn set_up(&mut self, py: Python<'_>, payload: &[u8]) -> PyResult<Report> {
        let setup: Setup = serde_json::from_slice(payload).map_err(fault)?;
        if std::mem::take(&mut self.is_new_branch) {
            return self.set_up_branch(py, setup);
        }
        let namespace = self.cells.namespace(py);
        let answer = PyDict::new(py);
        answer.set_item("ready", setup.answer.ready)?;
        answer.set_item("content", &setup.answer.content)?;
        namespace.set_item("answer", answer)?;
        namespace.set_item(EXTRA_DATA, OsString::from(&setup.fs_root))?;
        namespace.set_item("fs_metadata", variables::of_json(py, &setup.fs_metadata.to_string())?)?;
        if let Some(tools) = &setup.root_tools {
            self.tools = Some(tools::add(namespace, tools)?);
            self.root_tools.clone_from(&tools.names);
        }
        if setup.has_final_functions {
            final_functions::add(namespace)?;
        }
        self.has_final_functions = setup.has_final_functions;
        self.copies = setup.copies.clone().map(Copies::new);
        let given = self.given.bind(py);
        let functions = FINAL_FUNCTIONS.iter().copied().filter(|_| setup.has_final_functions);
        for name in self.root_tools.iter().map(String::as_str).chain(functions).chain([EXTRA_DATA]) {
            given.set_item(name, namespace.as_any().get_item(name)?)?;
        }
        guard_rails::install(namespace, &setup)?;
        self.rails = Rails::of(&setup);
        return_memory();
        Ok(set_up_report())
    }

    /// Gives a branch what its host gives it: root tools, and a directory, if that is another one.
    fn set_up_branch(&mut self, py: Python<'_>, setup: Setup) -> PyResult<Report> {
        self.rails.check(&setup).map_err(fault)?;
        if let (Some(tools), Some(settings)) = (&self.tools, &setup.root_tools) {
            tools.lead_to(settings)?;
        }
        self.copies = setup.copies.map(Copies::new);
        let given = self.given.bind(py);
        let old = given.as_any().get_item(EXTRA_DATA)?;
        let root = old.extract::<PathBuf>()?;
        if root != setup.fs_root {
            let namespace = self.cells.namespace(py);
            given.set_item(EXTRA_DATA, OsString::from(&setup.fs_root))?;
            if namespace.get_item(EXTRA_DATA)?.is_some_and(|value| value.is(&old)) {
                namespace.set_item(EXTRA_DATA, given.as_any().get_item(EXTRA_DATA)?)?;
            }
            branch::move_to(py, &root, setup.fs_root)?;
        }
        Ok(set_up_report())
    }

    /// Leaves a branch. If the session cannot branch now, the report says why.
    fn branch(&mut self, py: Python<'_>, payload: &[u8]) -> PyResult<Report> {
        let wanted: Branch = serde_json::from_slice(payload).map_err(fault)?;
        let refused = match self.obstacle(py) {
            Some(obstacle) => Some(obstacle),
            None => {
                let root = self.given.bind(py).as_any().get_item(EXTRA_DATA)?.extract::<PathBuf>()?;
                branch::leave(self, &wanted, &root).err()
            }
        };
        Ok(Report { result: refused, ..Report::default() })
    }

    /// Sets variables in the namespace: all, or none and a report with the reason.
    fn set(&mut self, py: Python<'_>, payload: &[u8]) -> PyResult<Report> {
        let variables: BTreeMap<String, JsonText> = serde_json::from_slice(payload).map_err(fault)?;
        let refuse = |name: &str, fault: String| {
            let refusal =
                format!("variable `{}` cannot be set: {fault}; nothing was set", name_excerpt(name));
            Report { result: Some(refusal), ..Report::default() }
        };
        let mut values = Vec::new();
        for (name, json) in &variables {
            match self.variable(py, name, json) {
                Ok(variable) => values.push(variable),
                Err(fault) => return Ok(refuse(name, fault)),
            }
        }
        let namespace = self.cells.namespace(py);
        let mut old: Vec<(&String, Option<Bound<'_, PyAny>>)> = Vec::new();
        for (name, value) in &values {
            let before = namespace.get_item(name)?;
            if let Err(error) = namespace.set_item(name, value) {
                // Out of memory: the old values are put back as far as that takes no memory.
                for (name, before) in old {
                    before
                        .map_or_else(|| namespace.del_item(name), |value| namespace.set_item(name, value))?;
                }
                return Ok(refuse(name, text::of_exception(py, error)));
            }
            old.push((name, before));
        }
        let names = values.iter().map(|(name, _)| name).filter(|name| name.starts_with(ONE_CALL_PREFIX));
        self.transient_variables.extend(names.cloned());
        // Dropping the old values may run code of the session, which must be interruptible.
        self.signals.open(py);
        drop(old);
        self.signals.close(py);
        Ok(Report::default())
    }

    /// Finds what can complete the code. Only an object's own `__dir__` is code of the session; it can be interrupted.
    fn complete(&self, py: Python<'_>, payload: &[u8]) -> PyResult<Report> {
        let code = str::from_utf8(payload).map_err(fault)?;
        self.signals.open(py);
        let found = self.cells.complete(py, code);
        self.signals.close(py);
        let (replaced, candidates) = found.unwrap_or_default();
        let completions = Completions { start: code.len() - replaced.len(), candidates };
        Ok(Report { result: Some(completions.to_json()), ..Report::default() })
    }

    /// Writes the session's state to the file of the payload, or takes over the one there. That runs code of the session, and can be
    /// interrupted.
    fn pass_state(&mut self, py: Python<'_>, flags: i32, pass: PassState) -> PyResult<Report> {
        self.signals.open(py);
        let passed = if self.is_next_stopped {
            Err(PyKeyboardInterrupt::new_err(NOT_BEGUN))
        } else {
            let file = pipes::open(&self.paths.payload, flags).map_err(PyErr::from);
            file.and_then(|file| pass(&mut self.cells, py, file.as_raw_fd(), self.given.bind(py)))
        };
        let (result, exception) = match passed {
            Ok(result) => (Some(result), None),
            Err(error) => (None, Some(self.cells.describe(py, error).exception)),
        };
        let (answer, _) = self.last_answer.changed(self.cells.namespace(py)).unzip();
        self.streams.flush(py);
        self.signals.close(py);
        self.cells.tidy(py);
        self.streams.restore(py)?;
        Ok(Report { result, exception, answer, ..Report::default() })
    }

    /// A name and a value for the namespace, or the reason for the refusal.
    fn variable<'py>(
        &self,
        py: Python<'py>,
        name: &str,
        json: &JsonText,
    ) -> Result<(String, Bound<'py, PyAny>), String> {
        let failure = |error| text::of_exception(py, error);
        let name = self.cells.variable_name(py, name).map_err(failure)?;
        let name = name.ok_or("it is not a valid variable name in Python")?;
        match variables::reserved(&name, &self.root_tools, self.has_final_functions) {
            Some(fault) => Err(fault.to_owned()),
            None => variables::of_json(py, json.get()).map(|value| (name, value)).map_err(failure),
        }
    }

    /// Runs a cell and reports the result.
    fn run(&mut self, py: Python<'_>, source: &Source<'_>, cell: u64, limit: u64) -> PyResult<Report> {
        if pipes::descriptor_was_lent() {
            self.streams.restore(py)?;
        }
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        self.signals.open(py);
        let ran = if self.is_next_stopped {
            Err(PyKeyboardInterrupt::new_err(NOT_BEGUN))
        } else {
            self.cells.run(py, source, cell, limit)
        };
        if Pid::this() != self.pid {
            self.end_child(py, ran.err());
        }
        // All of this runs code of the cell too, even dropping its values: it can be interrupted like the cell.
        let (result, exception) = match ran {
            Ok(result) => (result, None),
            Err(error) => {
                if error.is_instance_of::<PyKeyboardInterrupt>(py) {
                    tools::interrupt_calls();
                }
                let failure = self.cells.describe(py, error);
                (Some(text::cut(&failure.traceback, limit)), Some(failure.exception))
            }
        };
        let (answer, answer_type) = self.last_answer.changed(self.cells.namespace(py)).unzip();
        self.remove_transient_variables(py);
        self.streams.flush(py);
        self.signals.close(py);
        self.cells.tidy(py);
        self.streams.restore(py)?;
        let (result, dropped) = result.unzip();
        Ok(Report {
            result,
            dropped: dropped.unwrap_or(0),
            exception,
            answer,
            answer_type: answer_type.flatten(),
            no_copy: None,
        })
    }

    /// The reason why a copy of this process would not be the session.
    fn obstacle(&self, py: Python<'_>) -> Option<String> {
        let threads = self.count_threads.call0(py).and_then(|count| count.extract::<u64>(py));
        let reason = if threads.unwrap_or(0) > 0 {
            "a thread that a cell started is alive, and a copy would not have it"
        } else if holds_lock() {
            "a file is locked for writing, as by an open transaction of a database"
        } else if self.cells.has_tasks(py).unwrap_or(false) {
            "a task that a cell started is not done"
        } else {
            return None;
        };
        Some(reason.to_owned())
    }

    /// Leaves a copy of this process, which returns from here, with true, when it takes over.
    fn take_copy(&mut self, py: Python<'_>, number: u64) -> PyResult<bool> {
        let Some(copies) = &mut self.copies else { return Ok(false) };
        let before = self.cells.before_copy(py);
        let Some(command) = copies.take(number) else { return Ok(false) };
        self.pid = Pid::this();
        begin_child();
        tools::own_connections();
        self.cells.after_copy(py, &before);
        self.remove_transient_variables(py);
        self.streams.restore(py)?;
        let report = Report::default();
        let (header, result, document) = report.encode(command.nonce).map_err(fault)?;
        pipes::write_report(&self.paths.report, [&header, result, &document])?;
        Ok(true)
    }

    /// Removes the variables that last for one call from the namespace. A cell may have put anything in their place.
    fn remove_transient_variables(&mut self, py: Python<'_>) {
        let namespace = self.cells.namespace(py);
        let remains = |error: PyErr| !error.is_instance_of::<PyKeyError>(py);
        self.transient_variables.retain(|name| namespace.del_item(name).is_err_and(remains));
    }

    /// Ends a child that was forked outside a cell, by a signal handler or while a value was shown.
    fn leave_if_child(&self, py: Python<'_>) {
        if Pid::this() != self.pid {
            self.end_child(py, None);
        }
    }

    /// Ends a child that the cell forked when it reaches the end of the cell, as a script would end: it is not the
    /// session.
    fn end_child(&self, py: Python<'_>, raised: Option<PyErr>) -> ! {
        let mut status = 0;
        if let Some(error) = raised {
            status = 1;
            if error.is_instance_of::<PySystemExit>(py) {
                let code = error.value(py).getattr("code");
                let no_code = code.as_ref().is_ok_and(|code| code.is_none());
                status = code.and_then(|code| code.extract()).unwrap_or(i32::from(!no_code));
            } else {
                let traceback = self.cells.describe(py, error).traceback;
                // With a closed stderr, the traceback of the child is lost.
                let _closed = self.streams.write_error(py, &traceback);
            }
        }
        self.streams.flush(py);
        pipes::end_process(status)
    }
}

/// The report of a session that is ready for cells.
fn set_up_report() -> Report {
    let version = Python::version_str().split(' ').next().unwrap_or_default();
    Report { result: Some(version.to_owned()), ..Report::default() }
}

/// Returns memory that only the start needed: a session may sit idle for hours.
fn return_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: the call takes a plain integer.
    unsafe {
        nix::libc::malloc_trim(0)
    };
}

/// A failure of the engine itself: the process ends with this message.
fn fault(error: impl ToString) -> PyErr {
    PyRuntimeError::new_err(error.to_string())
}
