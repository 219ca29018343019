//! Text for Python values of any kind.

use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyString};
use rlm_core::worker::HeadTail;

/// A Python string as UTF-8. Surrogate pairs become the character they encode; lone surrogates become replacement
/// characters.
pub(crate) fn of_string(string: &Bound<'_, PyString>) -> String {
    if let Ok(text) = string.to_str() {
        return text.to_owned();
    }
    // SAFETY: the object is a string, and the two names are live C strings; the call returns a new reference or null.
    let encoded = unsafe {
        let bytes =
            ffi::PyUnicode_AsEncodedString(string.as_ptr(), c"utf-16-le".as_ptr(), c"surrogatepass".as_ptr());
        Bound::from_owned_ptr_or_opt(string.py(), bytes)
    };
    let units = encoded.as_ref().and_then(|bytes| bytes.cast::<PyBytes>().ok()).map(|bytes| {
        let units = bytes.as_bytes().chunks_exact(2);
        String::from_utf16_lossy(
            &units.map(|unit| u16::from_le_bytes([unit[0], unit[1]])).collect::<Vec<_>>(),
        )
    });
    if units.is_none() {
        // The encoder ran out of memory: the placeholder says so.
        drop(PyErr::take(string.py()));
    }
    units.unwrap_or_else(|| "<text that cannot be encoded>".to_owned())
}

/// The text of a value that its author would have meant: strings as they are, bytes as UTF-8, other values by `str`, or
/// by `repr` if that raises.
///
/// # Errors
/// Both raise, or the conversion was interrupted.
pub(crate) fn of_value(value: &Bound<'_, PyAny>) -> PyResult<String> {
    if let Ok(string) = value.cast::<PyString>() {
        return Ok(of_string(string));
    }
    if let Ok(bytes) = value.cast::<PyBytes>() {
        return Ok(String::from_utf8_lossy(bytes.as_bytes()).into_owned());
    }
    if let Ok(bytes) = value.cast::<PyByteArray>() {
        return Ok(String::from_utf8_lossy(&bytes.to_vec()).into_owned());
    }
    let by_repr = |raised: PyErr| match raised.is_instance_of::<PyKeyboardInterrupt>(value.py()) {
        true => Err(raised),
        false => value.repr(),
    };
    value.str().or_else(by_repr).map(|text| of_string(&text))
}

/// Placeholder for a value that cannot be shown.
pub(crate) fn placeholder(value: &Bound<'_, PyAny>) -> String {
    format!("<{} that cannot be shown>", type_name(value))
}

/// `str(value)`, `repr(value)` if that raises, or a placeholder.
pub(crate) fn by_str(value: &Bound<'_, PyAny>) -> String {
    let text = value.str().or_else(|_raised| value.repr());
    text.map_or_else(|_raised| placeholder(value), |text| of_string(&text))
}

/// Name of a value's class.
pub(crate) fn type_name(value: &Bound<'_, PyAny>) -> String {
    value.get_type().name().map_or_else(|_raised| "object".to_owned(), |name| of_string(&name))
}

/// Head and tail of a text, and the number of bytes dropped between them.
pub(crate) fn cut(text: &str, limit: usize) -> (String, u64) {
    if text.len() <= limit {
        return (text.to_owned(), 0);
    }
    let mut kept = HeadTail::new(limit);
    kept.push(text.as_bytes());
    kept.into_text()
}

/// Characters that are encoded at once of a text that is not ASCII.
const CHUNK: usize = 1 << 20;

/// [`cut`] of [`of_string`]: a text of gigabytes is not copied.
pub(crate) fn cut_string(string: &Bound<'_, PyString>, limit: usize) -> (String, u64) {
    let characters = string.as_any().len().unwrap_or_default();
    let is_ascii = || string.call_method0("isascii").and_then(|is| is.is_truthy()).unwrap_or(false);
    if characters <= CHUNK || is_ascii() {
        return string
            .to_str()
            .map_or_else(|_surrogates| cut(&of_string(string), limit), |text| cut(text, limit));
    }
    let mut kept = HeadTail::new(limit);
    for begin in (0..characters).step_by(CHUNK) {
        let (begin, end) = (begin as isize, (begin + CHUNK) as isize);
        // SAFETY: the object is a string; the call returns a new reference or null.
        let part = unsafe {
            Bound::from_owned_ptr_or_opt(string.py(), ffi::PyUnicode_Substring(string.as_ptr(), begin, end))
        };
        match part.as_ref().and_then(|part| part.cast::<PyString>().ok()) {
            Some(part) => kept.push(of_string(part).as_bytes()),
            // Python is out of memory, as it may be with texts of this size.
            None => drop(PyErr::take(string.py())),
        }
    }
    kept.into_text()
}

/// Describes an exception in one sentence.
pub(crate) fn of_exception(py: Python<'_>, error: PyErr) -> String {
    let error = error.into_value(py).into_bound(py).into_any();
    let (kind, message) = (type_name(&error), by_str(&error));
    if message.is_empty() { kind } else { format!("{kind}: {message}") }
}
