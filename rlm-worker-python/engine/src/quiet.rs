//! Suppression of warnings.

use pyo3::exceptions::PyWarning;
use pyo3::prelude::*;
use pyo3::types::PyList;

/// Runs `act` without any warnings. `act` must not run code of a cell, so that it cannot be interrupted.
///
/// `warnings.catch_warnings` would leave traces: `warnings` would be imported, and would forget which warnings were
/// shown.
pub(crate) fn without_warnings<T>(py: Python<'_>, act: impl FnOnce() -> PyResult<T>) -> PyResult<T> {
    // If a cell has broken the filters, warnings stay as they are.
    let Ok(filters) = filters(py) else { return act() };
    let ignore = ("ignore", py.None(), py.get_type::<PyWarning>(), py.None(), 0).into_pyobject(py)?;
    filters.insert(0, &ignore)?;
    let result = act();
    // A finalizer that ran in between may have put filters before it.
    if let Some(place) = filters.iter().position(|filter| filter.is(&ignore)) {
        filters.del_item(place)?;
    }
    result
}

/// The filters in force: those of `warnings` if it is imported, otherwise the interpreter's own.
fn filters(py: Python<'_>) -> PyResult<Bound<'_, PyList>> {
    let modules = py.import("sys")?.getattr("modules")?;
    let warnings = match modules.get_item("warnings") {
        Ok(warnings) => warnings,
        Err(_not_imported) => py.import("_warnings")?.into_any(),
    };
    Ok(warnings.getattr("filters")?.cast_into::<PyList>()?)
}
