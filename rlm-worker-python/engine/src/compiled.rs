//! The engine's Python parts as code.

use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// Names of parts, the numbers of CPython's formats of code, and the code in them, as `build.rs` has made it.
static COMPILED: &[(&str, [u8; 4], &[u8])] = include!(concat!(env!("OUT_DIR"), "/compiled.rs"));

/// The code of a part: as the build has compiled it for this version of CPython, or from its source.
pub(crate) fn code<'py>(py: Python<'py>, source: &str, name: &str) -> PyResult<Bound<'py, PyAny>> {
    let magic = py.import("_frozen_importlib_external")?.getattr("MAGIC_NUMBER")?;
    let magic = magic.cast::<PyBytes>()?.as_bytes();
    match COMPILED.iter().find(|(part, of, _)| *part == name && of == magic) {
        Some((.., code)) => py.import("marshal")?.call_method1("loads", (PyBytes::new(py, code),)),
        None => py.import("builtins")?.getattr("compile")?.call1((source, name, "exec")),
    }
}
