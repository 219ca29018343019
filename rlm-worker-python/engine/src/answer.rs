//! Reads `answer` from the namespace, whatever a cell made of it.

use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};
use rlm_core::protocol::Answer;

use crate::text;

/// The last answer that was reported, so that a large one is reported only once.
#[derive(Default)]
pub(crate) struct LastAnswer {
    ready: bool,
    /// The content object, if it does not need to be read again: a string, which does not change, or an object that
    /// cannot be shown, which might take its time over it again.
    content: Option<Py<PyAny>>,
    /// Address of the value of `answer` if that is not a dict. The value may be gone.
    other: Option<usize>,
}

impl LastAnswer {
    /// The current answer, and the type of a new value that is not a dict. None if the answer is the one that was reported
    /// last.
    pub(crate) fn changed(&mut self, namespace: &Bound<'_, PyDict>) -> Option<(Answer, Option<String>)> {
        let answer = item(namespace, "answer");
        let (ready, content) = match answer.as_ref().map(|answer| answer.cast::<PyDict>()) {
            None => (None, None),
            Some(Ok(dict)) => (item(dict, "ready"), item(dict, "content")),
            // Code may use the name for something else, which must not end the rollout.
            Some(Err(_)) => (None, answer.clone()),
        };
        // A truth value that raises does not count as true.
        let ready = ready.is_some_and(|ready| ready.is_truthy().unwrap_or(false));
        let other = answer.filter(|answer| !answer.is_instance_of::<PyDict>());
        let address = other.as_ref().map(|other| other.as_ptr() as usize);
        let is_new_other = address.is_some() && address != self.other;
        self.other = address;
        let same = self.content.as_ref().zip(content.as_ref()).is_some_and(|(old, new)| new.is(old));
        if same && ready == self.ready && !is_new_other {
            return None;
        }
        self.ready = ready;
        self.content = None;
        let content = match content {
            None => String::new(),
            Some(content) if content.is_none() && other.is_none() => String::new(),
            Some(content) => {
                // The interrupt may have been meant for the cell, which has ended. An interrupt that has a reason comes again.
                let is_late = |raised: &PyErr| raised.is_instance_of::<PyKeyboardInterrupt>(content.py());
                let text = match text::of_value(&content) {
                    Err(raised) if is_late(&raised) => text::of_value(&content),
                    text => text,
                };
                if text.is_err() || content.is_exact_instance_of::<PyString>() {
                    self.content = Some(content.clone().unbind());
                }
                text.unwrap_or_else(|_raised| text::placeholder(&content))
            }
        };
        Some((Answer { ready, content }, other.filter(|_| is_new_other).as_ref().map(text::type_name)))
    }
}

/// A value of a dict, read without calling the methods of a subclass. A key that cannot be compared is not one of ours.
pub(crate) fn item<'py>(dict: &Bound<'py, PyDict>, key: &str) -> Option<Bound<'py, PyAny>> {
    let key = PyString::intern(dict.py(), key);
    // SAFETY: both are live objects of the right types; the call returns a borrowed reference, or null with or without
    // an exception.
    let found = unsafe {
        let found = ffi::PyDict_GetItemWithError(dict.as_ptr(), key.as_ptr());
        Bound::from_borrowed_ptr_or_opt(dict.py(), found)
    };
    if found.is_none() {
        drop(PyErr::take(dict.py()));
    }
    found
}
