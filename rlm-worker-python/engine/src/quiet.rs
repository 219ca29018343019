//! Warnings, kept from being told for a moment.

use pyo3::exceptions::PyWarning;
use pyo3::prelude::*;
use pyo3::types::PyList;

/// Does something that may warn, without a warning. It must run no code of the cell's, so that no interrupt comes between.
///
/// `warnings.catch_warnings` would leave traces: `warnings` imported, and forgotten which warnings were shown once.
pub(crate) fn without_warnings<T>(py: Python<'_>, act: impl FnOnce() -> PyResult<T>) -> PyResult<T> {
    // Where a cell has made something else of them, a warning is an error.
    let Ok(filters) = filters(py) else { return act() };
    let ignore = ("ignore", py.None(), py.get_type::<PyWarning>(), py.None(), 0).into_pyobject(py)?;
    filters.insert(0, &ignore)?;
    let result = act();
    // A finalizer that ran meanwhile may have put filters before it.
    if let Some(place) = filters.iter().position(|filter| filter.is(&ignore)) {
        filters.del_item(place)?;
    }
    result
}

/// The filters in force: those of `warnings`, where it is imported, or else the interpreter's own.
fn filters(py: Python<'_>) -> PyResult<Bound<'_, PyList>> {
    let modules = py.import("sys")?.getattr("modules")?;
    let warnings = match modules.get_item("warnings") {
        Ok(warnings) => warnings,
        Err(_not_imported) => py.import("_warnings")?.into_any(),
    };
    Ok(warnings.getattr("filters")?.cast_into::<PyList>()?)
}
