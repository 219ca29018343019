//! Refused modules and builtins, and the jail. Best effort, for models that mean well: this is no sandbox.

use pyo3::prelude::*;
use pyo3::types::PyDict;
use rlm_worker_python::wire::Setup;

pub(crate) fn raise(_namespace: &Bound<'_, PyDict>, _setup: &Setup) -> PyResult<()> {
    Ok(())
}
