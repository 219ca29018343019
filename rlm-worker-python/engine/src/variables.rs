//! Variables of op `set`: names for the namespace, and Python values from JSON.
//!
//! Nothing here runs Python code or imports a module, so a cell cannot break it. The values are those of `json.loads`,
//! including integers of any length.

use pyo3::exceptions::PyValueError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyFloat, PyList, PyString};
use rlm_core::json::{Part, Wtf8};
use rlm_worker_python::tools;

/// Most decimal digits that always fit into 64 bits.
const SHORT_DIGITS: usize = 18;

/// Converts JSON text to the value that `json.loads` would return.
pub(crate) fn of_json<'py>(py: Python<'py>, json: &str) -> PyResult<Bound<'py, PyAny>> {
    Ok(match Part::of(json) {
        Part::Null => py.None().into_bound(py),
        Part::Bool(value) => value.into_pyobject(py)?.to_owned().into_any(),
        Part::Number(text) => number(py, text)?,
        Part::String(text) => string(py, &text)?.into_any(),
        Part::Array(items) => {
            let list = PyList::empty(py);
            for item in items {
                list.append(of_json(py, item)?)?;
            }
            list.into_any()
        }
        Part::Object(fields) => {
            let dict = PyDict::new(py);
            for (name, value) in fields {
                dict.set_item(string(py, &name)?, of_json(py, value)?)?;
            }
            dict.into_any()
        }
    })
}

fn number<'py>(py: Python<'py>, text: &str) -> PyResult<Bound<'py, PyAny>> {
    if text.contains(['.', 'e', 'E']) {
        // A number that is too large becomes infinite, as in Python.
        let value = text.parse::<f64>().map_err(|error| PyValueError::new_err(error.to_string()))?;
        return Ok(PyFloat::new(py, value).into_any());
    }
    if text.len() <= SHORT_DIGITS {
        let value = text.parse::<i64>().map_err(|error| PyValueError::new_err(error.to_string()))?;
        return Ok(value.into_pyobject(py)?.into_any());
    }
    let invalid = || PyValueError::new_err("not an integer");
    let value = num_bigint::BigInt::parse_bytes(text.as_bytes(), 10).ok_or_else(invalid)?;
    // Python limits the digits of decimal integers only.
    let digits = std::ffi::CString::new(value.to_str_radix(16))?;
    // SAFETY: a live C string, and no end pointer; the call returns a new reference, or null with an exception.
    unsafe {
        Bound::from_owned_ptr_or_err(py, ffi::PyLong_FromString(digits.as_ptr(), std::ptr::null_mut(), 16))
    }
}

fn string<'py>(py: Python<'py>, Wtf8(bytes): &Wtf8) -> PyResult<Bound<'py, PyString>> {
    let length = ffi::Py_ssize_t::try_from(bytes.len()).unwrap_or(ffi::Py_ssize_t::MAX);
    // SAFETY: the bytes are alive, `length` is their number, and the name is a live C string; the call returns a new
    // reference, or null with an exception.
    let decoded = unsafe {
        let decoded = ffi::PyUnicode_DecodeUTF8(bytes.as_ptr().cast(), length, c"surrogatepass".as_ptr());
        Bound::from_owned_ptr_or_err(py, decoded)
    };
    Ok(decoded?.cast_into()?)
}

/// True for a text with the form of an identifier, which includes keywords.
pub(crate) fn is_identifier(name: &Bound<'_, PyString>) -> bool {
    // SAFETY: a live string.
    unsafe { ffi::PyUnicode_IsIdentifier(name.as_ptr()) == 1 }
}

/// The reason why the host may not set a variable of this name, which is an identifier.
pub(crate) fn reserved(name: &str, root_tools: &[String], has_final_functions: bool) -> Option<&'static str> {
    if name == tools::ANSWER {
        Some("the answer can only be set by a cell")
    } else if tools::TAKEN.contains(&name) {
        Some("it is reserved by the session")
    } else if root_tools.iter().any(|tool| tool == name) {
        Some("it is a root tool")
    } else if has_final_functions && tools::FINAL_FUNCTIONS.contains(&name) {
        Some("it is a function that sets the answer")
    } else if name.starts_with("__") && name.ends_with("__") {
        Some("it is reserved by Python")
    } else {
        None
    }
}
