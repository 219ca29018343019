//! Refused modules and builtins. Best effort, for models that mean well: this is not a sandbox.

use pyo3::exceptions::{PyImportError, PyPermissionError};
use pyo3::prelude::*;
use pyo3::types::{PyCFunction, PyDict, PyTuple};
use rlm_worker_python::wire::Setup;

use crate::jail;

/// The failure of a branch whose host gives it other guard rails.
const OTHER_RAILS: &str = "a branch has the guard rails of its origin: RLM_DISALLOWED_MODULES, RLM_DISALLOWED_BUILTINS, RLM_FS_JAIL and \
                           RLM_FINAL_FUNCTIONS must be the same";

/// The guard rails of a session, which stay what they are.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Rails {
    modules: Vec<String>,
    builtins: Vec<String>,
    is_jailed: bool,
    has_final_functions: bool,
}

impl Rails {
    pub(crate) fn of(setup: &Setup) -> Self {
        Self {
            modules: setup.disallowed_modules.clone(),
            builtins: setup.disallowed_builtins.clone(),
            is_jailed: setup.jail.is_some(),
            has_final_functions: setup.has_final_functions,
        }
    }

    /// Checks that a session in the place of this one has the same.
    pub(crate) fn check(&self, setup: &Setup) -> Result<(), &'static str> {
        if Self::of(setup) == *self { Ok(()) } else { Err(OTHER_RAILS) }
    }
}

/// Installs the guard rails of the setup.
pub(crate) fn install(namespace: &Bound<'_, PyDict>, setup: &Setup) -> PyResult<()> {
    let py = namespace.py();
    if !setup.disallowed_modules.is_empty() || !setup.disallowed_builtins.is_empty() {
        // The cells get builtins of their own, so that the library keeps all of them.
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
    setup.jail.as_ref().map_or(Ok(()), |paths| jail::install(py, paths))
}

/// A function that replaces a refused builtin.
fn refusing<'py>(py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyCFunction>> {
    let message = format!("builtin '{name}' is not allowed in this session");
    PyCFunction::new_closure(py, None, None, move |_: &Bound<'_, PyTuple>, _: Option<&Bound<'_, PyDict>>| {
        Err::<(), PyErr>(PyPermissionError::new_err(message.clone()))
    })
}

/// An `__import__` that refuses these modules and their submodules.
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
