//! Code objects run in a namespace.

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// Runs code in a namespace.
pub(crate) fn evaluate<'py>(
    code: &Bound<'py, PyAny>,
    namespace: &Bound<'py, PyDict>,
) -> PyResult<Bound<'py, PyAny>> {
    // SAFETY: a code object, and a dict for globals and locals alike; the call returns a new reference, or null
    // with an exception.
    unsafe {
        let value = ffi::PyEval_EvalCode(code.as_ptr(), namespace.as_ptr(), namespace.as_ptr());
        Bound::from_owned_ptr_or_err(code.py(), value)
    }
}
