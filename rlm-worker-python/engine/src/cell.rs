//! A cell: from its source to the value of its last expression, or to the exception that ended it.

use std::borrow::Cow;
use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::str::Utf8Error;

use pyo3::exceptions::{
    PyBaseException, PyKeyboardInterrupt, PyMemoryError, PyRecursionError, PySyntaxError,
};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString, PyTuple};
use rlm_core::protocol::Exception;

use crate::compiled::code;
use crate::eval::evaluate;
use crate::{quiet, signals, text, variables};

/// `ast.PyCF_ONLY_AST`.
const ONLY_AST: i32 = 0x400;

/// `ast.PyCF_ALLOW_TOP_LEVEL_AWAIT`.
const TOP_LEVEL_AWAIT: i32 = 0x2000;

/// The `CO_FUTURE_*` flags of `Include/cpython/code.h`, which are the same from 3.10 to 3.14.
const FUTURES: i32 = 0x1fe_0000;

/// `inspect.CO_COROUTINE`: the code awaits at top level.
const COROUTINE: i32 = 0x80;

/// The byte-order mark that some editors put before a file.
const BYTE_ORDER_MARK: char = '\u{feff}';

/// Most bytes of code that are compared with the code as written: that takes as long as compiling the code, or longer.
const MAX_COMPARED: usize = 256 * 1024;

/// The runner of cells: the namespace, and the objects of Python that were fetched at the start.
pub(crate) struct Cells {
    namespace: Py<PyDict>,
    compile: Py<PyAny>,
    /// `_ast.Expr`, `_ast.Expression`.
    statement: Py<PyAny>,
    expression: Py<PyAny>,
    move_to_written: Py<PyAny>,
    sources: Py<PyAny>,
    add_source: Py<PyAny>,
    keep_source: Py<PyAny>,
    tidy: Py<PyAny>,
    complete_error: Py<PyAny>,
    run_async: Py<PyAny>,
    has_tasks: Py<PyAny>,
    run_tasks: Py<PyAny>,
    format_exception: Py<PyAny>,
    complete: Py<PyAny>,
    save: Py<PyAny>,
    load: Py<PyAny>,
    before_copy: Py<PyAny>,
    after_copy: Py<PyAny>,
    /// Flags of `from __future__ import …` in earlier cells.
    futures: i32,
}

/// The parts of a cell.
pub(crate) struct Source<'a> {
    /// The code that runs.
    code: Cow<'a, str>,
    /// The code as it was written, if it differs: tracebacks show it.
    written: Option<&'a str>,
}

/// The code without the indentation of its first statement, as models and notebooks copy it from a block: no code is valid with it.
fn without_indent(code: &str) -> Cow<'_, str> {
    let first =
        code.lines().find(|line| !line.trim_start().is_empty() && !line.trim_start().starts_with('#'));
    let indent = first.map_or("", |line| &line[..line.len() - line.trim_start_matches([' ', '\t']).len()]);
    if indent.is_empty() {
        return code.into();
    }
    let lines = code.split_inclusive('\n').map(|line| line.strip_prefix(indent).unwrap_or(line));
    lines.collect::<String>().into()
}

impl<'a> Source<'a> {
    /// Reads the payload from the supervisor: the code, followed by so many bytes of the code as written.
    pub(crate) fn of_payload(payload: &'a [u8], written_bytes: u64) -> Result<Self, Utf8Error> {
        let written_bytes = usize::try_from(written_bytes).unwrap_or(payload.len());
        let (code, written) = payload.split_at(payload.len().saturating_sub(written_bytes));
        let text =
            |bytes| str::from_utf8(bytes).map(|text| text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text));
        let written = (!written.is_empty()).then(|| text(written)).transpose()?;
        let code = text(code)?;
        Ok(Self { code: if written.is_some() { code.into() } else { without_indent(code) }, written })
    }

    fn is_compared(&self) -> bool {
        self.written.is_some_and(|written| self.code.len().max(written.len()) <= MAX_COMPARED)
    }

    /// True if the lines of the code as written can stand for those of the code.
    fn has_lines_of_written(&self) -> bool {
        let lines = |text: &str| text.replace("\r\n", "\n").matches(['\n', '\r']).count();
        self.written.is_some_and(|written| lines(&self.code) == lines(written))
    }
}

/// A cell's code: its statements, and an expression at its end.
type Parts<'py> = (Option<Bound<'py, PyAny>>, Option<Bound<'py, PyAny>>);

/// The failure of a cell.
pub(crate) struct Failure {
    pub(crate) traceback: String,
    pub(crate) exception: Exception,
}

impl Cells {
    pub(crate) fn new(py: Python<'_>) -> PyResult<Self> {
        let builtins = py.import("builtins")?;
        let ast = py.import("_ast")?;
        let glue = PyDict::new(py);
        // The glue has builtins of its own: a cell that changes the builtins changes nothing here.
        glue.set_item("__builtins__", builtins.dict().copy()?)?;
        glue.set_item("__name__", "rlm_cell_engine")?;
        glue.set_item("DEFINITIONS", DEFINITIONS)?;
        glue.set_item("NOTEBOOK", NOTEBOOK)?;
        glue.set_item("CLASSES", CLASSES)?;
        glue.set_item("COMPLETING", COMPLETING)?;
        glue.set_item("SAVING", SAVING)?;
        glue.set_item("LOADING", LOADING)?;
        evaluate(&code(py, GLUE, "<rlm>")?, &glue)?;
        let fetch = |name: &str| glue.as_any().get_item(name).map(Bound::unbind);
        builtins.setattr("display", fetch("display")?)?;
        Ok(Self {
            namespace: py.import("__main__")?.dict().unbind(),
            compile: builtins.getattr("compile")?.unbind(),
            statement: ast.getattr("Expr")?.unbind(),
            expression: ast.getattr("Expression")?.unbind(),
            move_to_written: fetch("move_to_written")?,
            sources: fetch("sources")?,
            add_source: fetch("add_source")?,
            keep_source: fetch("keep_source")?,
            tidy: fetch("tidy")?,
            complete_error: fetch("complete_error")?,
            run_async: fetch("run_async")?,
            has_tasks: fetch("has_tasks")?,
            run_tasks: fetch("run_tasks")?,
            format_exception: fetch("format_exception")?,
            complete: fetch("complete")?,
            save: fetch("save")?,
            load: fetch("load")?,
            before_copy: fetch("before_copy")?,
            after_copy: fetch("after_copy")?,
            futures: 0,
        })
    }

    /// `__main__`'s names and values.
    pub(crate) fn namespace<'py>(&self, py: Python<'py>) -> &Bound<'py, PyDict> {
        self.namespace.bind(py)
    }

    /// The variable that this name stands for in code, None if it cannot be a variable. The compiler decides: it knows the
    /// keywords, and spells some letters in another way (`ﬁ` as `fi`).
    pub(crate) fn variable_name(&self, py: Python<'_>, name: &str) -> PyResult<Option<String>> {
        if !variables::is_identifier(&PyString::new(py, name)) {
            return Ok(None);
        }
        let tree = self.compile.bind(py).call1((format!("{name} = 0"), "<rlm>", "exec", ONLY_AST, true));
        match tree {
            Ok(tree) => {
                let statement = tree.getattr("body")?.get_item(0)?;
                statement.getattr("targets")?.get_item(0)?.getattr("id")?.extract().map(Some)
            }
            Err(error) if error.is_instance_of::<PySyntaxError>(py) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The end of the code that can be completed, and what it can become.
    pub(crate) fn complete(&self, py: Python<'_>, code: &str) -> PyResult<(String, Vec<String>)> {
        self.complete.bind(py).call1((self.namespace.bind(py), code))?.extract()
    }

    /// Writes the session's state to a file, without the objects that belong to its host. Returns the JSON text of what it holds.
    pub(crate) fn save(
        &mut self,
        py: Python<'_>,
        descriptor: i32,
        given: &Bound<'_, PyDict>,
    ) -> PyResult<String> {
        self.save.bind(py).call1((descriptor, self.namespace.bind(py), given, self.futures))?.extract()
    }

    /// Takes over a state from a file. Returns the JSON text of what is not here.
    pub(crate) fn load(
        &mut self,
        py: Python<'_>,
        descriptor: i32,
        given: &Bound<'_, PyDict>,
    ) -> PyResult<String> {
        let loaded = self.load.bind(py).call1((descriptor, self.namespace.bind(py), given))?;
        let (text, futures) = loaded.extract::<(String, i32)>()?;
        self.futures = futures;
        Ok(text)
    }

    /// Runs a cell. Returns the repr of the value of its last expression, where that is not None: so many bytes of it, and the number
    /// of those dropped.
    pub(crate) fn run(
        &mut self,
        py: Python<'_>,
        source: &Source<'_>,
        cell: u64,
        limit: usize,
    ) -> PyResult<Option<(String, u64)>> {
        let file_name = format!("<cell {cell}>");
        let written = source.written.unwrap_or(&source.code);
        without_fail(py, self.add_source.bind(py).call1((&file_name, written)))?;
        let compiled = self.parse_as_written(py, source, &file_name).and_then(|tree| {
            let shows_written = tree.is_some() || (!source.is_compared() && source.has_lines_of_written());
            if source.written.is_some() && !shows_written {
                without_fail(py, self.add_source.bind(py).call1((&file_name, &source.code)))?;
            }
            self.compile(py, &source.code, tree, &file_name)
        });
        let compiled = compiled.inspect_err(|error| {
            // A syntax error without its source line or advice is still useful.
            let _unusual = self.complete_error.call1(py, (error.value(py), &file_name));
        });
        let (statements, expression) = compiled.inspect_err(|_error| self.drop_source(py, &file_name))?;
        // Warnings of one cell are no reason to keep silent about those of the next.
        if self.namespace.bind(py).contains("__warningregistry__")? {
            self.namespace.bind(py).del_item("__warningregistry__")?;
        }
        let codes: Vec<&Bound<'_, PyAny>> = statements.iter().chain(&expression).collect();
        if codes.is_empty() {
            self.drop_source(py, &file_name);
            return Ok(None);
        }
        let parts = PyTuple::new(py, &codes)?;
        without_fail(py, self.keep_source.bind(py).call1((file_name, &parts)))?;
        let mut value = py.None().into_bound(py);
        if codes.iter().map(|code| awaits(code)).collect::<PyResult<Vec<_>>>()?.contains(&true) {
            let awaited = self.run_async.bind(py).call1((self.namespace(py), parts));
            signals::stop_tracing(py);
            value = awaited?;
        } else {
            for code in codes {
                let evaluated = evaluate(code, self.namespace(py));
                signals::stop_tracing(py);
                value = evaluated?;
            }
        }
        if value.is_none() || expression.is_none() {
            return Ok(None);
        }
        let repr = text::cut_string(&value.repr()?, limit);
        self.keep_result(&value)?;
        Ok(Some(repr))
    }

    /// Keeps the last two results, as `_` and `__`: among the builtins, as at Python's prompt, where names of cells hide them.
    fn keep_result(&self, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let Some(builtins) = self.namespace(value.py()).get_item("__builtins__")? else { return Ok(()) };
        // Guard rails make them a dict, and a cell may make them anything.
        let names = match builtins.cast::<PyModule>() {
            Ok(module) => module.dict(),
            Err(_) => match builtins.cast_into::<PyDict>() {
                Ok(names) => names,
                Err(_) => return Ok(()),
            },
        };
        if let Some(last) = names.get_item("_")? {
            names.set_item("__", last)?;
        }
        names.set_item("_", value)
    }

    /// Removes the source of a cell that did not compile: nothing is left that could show it.
    fn drop_source(&self, py: Python<'_>, file_name: &str) {
        // The source is missing if it could not be added.
        let _not_there = self.sources.bind(py).del_item(file_name);
    }

    /// True if cells have left tasks in their event loop. Fails if the handler of a signal raises.
    pub(crate) fn has_tasks(&self, py: Python<'_>) -> PyResult<bool> {
        self.has_tasks.bind(py).call0()?.is_truthy()
    }

    /// Runs these tasks until there is a command to read.
    pub(crate) fn run_tasks(&self, py: Python<'_>, commands: &File) -> PyResult<()> {
        self.run_tasks.call1(py, (commands.as_raw_fd(),)).map(drop)
    }

    /// The state that a copy of this process would lose. None where a cell has broken what it is part of.
    pub(crate) fn before_copy(&self, py: Python<'_>) -> Py<PyAny> {
        self.before_copy.call0(py).unwrap_or_else(|_broken| py.None())
    }

    /// Makes a copy that goes on ready for cells.
    pub(crate) fn after_copy(&self, py: Python<'_>, before: &Py<PyAny>) {
        // This fails if a cell has broken what it builds on. Nothing that the next cell needs depends on it.
        let _broken = self.after_copy.call1(py, (before,));
    }

    /// Does what is left to do after a cell, when nothing can interrupt it.
    pub(crate) fn tidy(&self, py: Python<'_>) {
        // This fails if a cell has broken what it builds on. Nothing that the next cell needs depends on it.
        let _broken = self.tidy.call0(py);
    }

    /// The tree of the code at the places of the code as written. None if the two are the same, different programs, or too long.
    /// Fails if the code as written does not parse: its author is to see that error.
    fn parse_as_written<'py>(
        &self,
        py: Python<'py>,
        source: &Source<'_>,
        file_name: &str,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let Some(written) = source.written.filter(|_| source.is_compared()) else { return Ok(None) };
        let flags = self.futures | TOP_LEVEL_AWAIT | ONLY_AST;
        let parse = |text| self.compile.bind(py).call1((text, file_name, "exec", flags, true));
        let tree_of_written = match parse(written) {
            Ok(tree) => tree,
            Err(error) if is_too_deep(py, &error) => return Ok(None),
            Err(error) => return Err(error),
        };
        // Warnings were shown already, with the right place.
        let tree = quiet::without_warnings(py, || parse(&source.code));
        let tree = tree.and_then(|tree| self.move_to_written.bind(py).call1((tree, tree_of_written)));
        match tree {
            Ok(tree) => Ok((!tree.is_none()).then_some(tree)),
            Err(error) if error.is_instance_of::<PyKeyboardInterrupt>(py) => Err(error),
            Err(_not_code) => Ok(None),
        }
    }

    fn compile<'py>(
        &mut self,
        py: Python<'py>,
        source: &str,
        tree: Option<Bound<'py, PyAny>>,
        file_name: &str,
    ) -> PyResult<Parts<'py>> {
        let parts = self.compile_parts(py, source, tree, file_name);
        if !parts.as_ref().is_err_and(|error| error.is_instance_of::<PyRecursionError>(py)) {
            return parts;
        }
        // The code is too deep for a tree of objects, but not for the compiler's own. The value at the end is lost.
        without_fail(py, self.add_source.bind(py).call1((file_name, source)))?;
        let flags = self.futures | TOP_LEVEL_AWAIT;
        let code = self.compile.bind(py).call1((source, file_name, "exec", flags, true))?;
        Ok((Some(code), None))
    }

    /// The code of all statements, and that of an expression at the end. Both are compiled before either runs.
    fn compile_parts<'py>(
        &mut self,
        py: Python<'py>,
        source: &str,
        tree: Option<Bound<'py, PyAny>>,
        file_name: &str,
    ) -> PyResult<Parts<'py>> {
        let compile = self.compile.bind(py);
        let flags = self.futures | TOP_LEVEL_AWAIT;
        let parse = || compile.call1((source, file_name, "exec", flags | ONLY_AST, true));
        let tree = tree.map_or_else(parse, Ok)?;
        let body = tree.getattr("body")?.cast_into::<PyList>()?;
        let last = body.len().checked_sub(1).map(|last| body.get_item(last)).transpose()?;
        let last = last.filter(|last| last.get_type().is(&self.statement));
        let expression = last.map(|last| self.expression.bind(py).call1((last.getattr("value")?,)));
        let expression = expression.transpose()?;
        if expression.is_some() {
            body.del_item(body.len() - 1)?;
        }
        let mut statements = None;
        if !body.is_empty() {
            let code = compile.call1((tree, file_name, "exec", flags, true))?;
            self.futures |= code.getattr("co_flags")?.extract::<i32>()? & FUTURES;
            statements = Some(code);
        }
        let flags = self.futures | TOP_LEVEL_AWAIT;
        let expression = expression.map(|tree| compile.call1((tree, file_name, "eval", flags, true)));
        Ok((statements, expression.transpose()?))
    }

    /// The failure that the host gets for an exception.
    pub(crate) fn describe(&self, py: Python<'_>, error: PyErr) -> Failure {
        let value = error.value(py);
        if let Some(traceback) = error.traceback(py) {
            // Before 3.12 the interpreter keeps the two apart, and formatting goes by the exception. No known exception refuses
            // this.
            let _unusual = value.setattr("__traceback__", traceback);
        }
        let message = text::of_value(value);
        let formatted = match &message {
            Ok(_) => self.format_exception.bind(py).call1((value,)),
            // The exception cannot be shown, or an interrupt came: the formatter would only ask it again.
            Err(raised) => Err(raised.clone_ref(py)),
        };
        signals::stop_tracing(py);
        let message = message.unwrap_or_else(|_raised| text::placeholder(value));
        let exception = Exception { kind: text::type_name(value), message };
        let formatted = formatted.and_then(|text| Ok(text::of_string(text.cast::<PyString>()?)));
        let traceback = formatted.unwrap_or_else(|_raised| plain_traceback(value, &exception));
        Failure { traceback, exception }
    }
}

/// Passes an interrupt on, and ignores any other failure: the cell runs without the part that failed.
fn without_fail(py: Python<'_>, result: PyResult<Bound<'_, PyAny>>) -> PyResult<()> {
    match result {
        Err(error) if error.is_instance_of::<PyKeyboardInterrupt>(py) => Err(error),
        _ => Ok(()),
    }
}

/// True if the parser gave up since the code is nested too deep.
fn is_too_deep(py: Python<'_>, error: &PyErr) -> bool {
    error.is_instance_of::<PyRecursionError>(py) || error.is_instance_of::<PyMemoryError>(py)
}

/// True if code awaits at top level: then running it only makes a coroutine.
fn awaits(code: &Bound<'_, PyAny>) -> PyResult<bool> {
    Ok(code.getattr("co_flags")?.extract::<i32>()? & COROUTINE != 0)
}

/// The traceback of a session in which Python's own formatter no longer works: the lines of cells, and the exception.
fn plain_traceback(error: &Bound<'_, PyBaseException>, exception: &Exception) -> String {
    let frames = || -> PyResult<Vec<String>> {
        let mut lines = Vec::new();
        let mut entry = error.getattr("__traceback__")?;
        while !entry.is_none() {
            let code = entry.getattr("tb_frame")?.getattr("f_code")?;
            let (file, name) = (code.getattr("co_filename")?, code.getattr("co_name")?);
            let line = entry.getattr("tb_lineno")?;
            let [file, name, line] = [file, name, line].map(|part| text::by_str(&part));
            entry = entry.getattr("tb_next")?;
            if lines.is_empty() && !file.starts_with("<cell ") {
                continue;
            }
            lines.push(format!("  File \"{file}\", line {line}, in {name}\n"));
        }
        Ok(lines)
    };
    let frames = frames().unwrap_or_default();
    let head = if frames.is_empty() { "" } else { "Traceback (most recent call last):\n" };
    format!("{head}{}{}: {}", frames.concat(), exception.kind, exception.message)
}

/// The engine's Python part.
const GLUE: &str = include_str!("glue.py");

/// The part of it for cells that import `multiprocessing`.
const DEFINITIONS: &str = include_str!("definitions.py");

/// The parts of it for sessions that are saved and loaded.
const SAVING: &str = include_str!("saving.py");
const LOADING: &str = include_str!("loading.py");

/// The part of it for cells that import `inspect`.
const CLASSES: &str = include_str!("classes.py");

/// The part of it for cells with IPython's own syntax.
const NOTEBOOK: &str = include_str!("notebook.py");

/// The part of it for code that is being typed.
const COMPLETING: &str = include_str!("completing.py");
