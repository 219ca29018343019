//! Refused modules and builtins. Best effort, for models that mean well: this is no sandbox.

use pyo3::exceptions::{PyImportError, PyPermissionError};
use pyo3::prelude::*;
use pyo3::types::{PyCFunction, PyDict, PyTuple};
use rlm_worker_python::wire::Setup;

use crate::jail;

/// Puts up what the setup asks for.
pub(crate) fn put_up(namespace: &Bound<'_, PyDict>, setup: &Setup) -> PyResult<()> {
    let py = namespace.py();
    if !setup.disallowed_modules.is_empty() || !setup.disallowed_builtins.is_empty() {
        // The cells' own builtins, so that the library goes on with all of them.
        let builtins = py.import("builtins")?.dict().copy()?;
        for name in &setup.disallowed_builtins {
            if builtins.contains(name)? {
                builtins.set_item(name, refusing(py, name)?)?;
            }
        }
        if !setup.disallowed_modules.is_empty()
            && let Some(import) = builtins.get_item("__import__")?
        {
            builtins.set_item("__import__", refusing_import(&import, setup.disallowed_modules.clone())?)?;
        }
        namespace.set_item("__builtins__", builtins)?;
    }
    setup.jail.as_ref().map_or(Ok(()), |paths| jail::put_up(py, paths))
}

/// What stands in the place of a refused builtin.
fn refusing<'py>(py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyCFunction>> {
    let message = format!("builtin '{name}' is not allowed in this session");
    PyCFunction::new_closure(py, None, None, move |_: &Bound<'_, PyTuple>, _: Option<&Bound<'_, PyDict>>| {
        Err::<(), PyErr>(PyPermissionError::new_err(message.clone()))
    })
}

/// `__import__`, for all modules but these and what lies in them.
fn refusing_import<'py>(
    import: &Bound<'py, PyAny>,
    modules: Vec<String>,
) -> PyResult<Bound<'py, PyCFunction>> {
    let (py, import) = (import.py(), import.clone().unbind());
    let refuse = move |arguments: &Bound<'_, PyTuple>, keywords: Option<&Bound<'_, PyDict>>| {
        let argument = |at: usize, name: &str| {
            let named = || keywords.and_then(|keywords| keywords.get_item(name).ok().flatten());
            arguments.get_item(at).ok().or_else(named)
        };
        let name = argument(0, "name").and_then(|name| name.extract::<String>().ok()).unwrap_or_default();
        let parts = argument(3, "fromlist").and_then(|parts| parts.extract::<Vec<String>>().ok());
        let parts = parts.unwrap_or_default();
        let wanted = std::iter::once(name.clone()).chain(parts.iter().map(|part| format!("{name}.{part}")));
        for wanted in wanted {
            let is_within = |module: &String| {
                wanted
                    .strip_prefix(module.as_str())
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
            };
            if modules.iter().any(is_within) {
                let message = format!("module '{wanted}' is not allowed in this session");
                return Err(PyImportError::new_err(message));
            }
        }
        import.call(arguments.py(), arguments, keywords)
    };
    PyCFunction::new_closure(py, Some(c"__import__"), None, refuse)
}
