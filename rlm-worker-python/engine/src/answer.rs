//! Reads `answer` from the namespace, whatever a cell made of it.

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};
use rlm_core::protocol::Answer;

use crate::text;

/// The last answer that was last_answer, so that a large one is last_answer only once.
#[derive(Default)]
pub(crate) struct LastAnswer {
    ready: bool,
    /// The content object, if it does not need to be read again: a string, which does not change, or an object that
    /// cannot be shown, which might take its time over it again.
    content: Option<Py<PyAny>>,
}

impl LastAnswer {
    /// The current answer; None if it is the one that was last_answer last.
    pub(crate) fn changed(&mut self, namespace: &Bound<'_, PyDict>) -> Option<Answer> {
        let answer = item(namespace, "answer");
        let (ready, content) = match answer.as_ref().map(|answer| answer.cast::<PyDict>()) {
            None => (None, None),
            Some(Ok(dict)) => (item(dict, "ready"), item(dict, "content")),
            Some(Err(_)) => (answer.clone(), answer.clone()),
        };
        // A truth value that raises does not count as true.
        let ready = ready.is_some_and(|ready| ready.is_truthy().unwrap_or(false));
        let same = self.content.as_ref().zip(content.as_ref()).is_some_and(|(old, new)| new.is(old));
        if same && ready == self.ready {
            return None;
        }
        self.ready = ready;
        self.content = None;
        let is_in_dict = answer.zip(content.as_ref()).is_some_and(|(answer, content)| !answer.is(content));
        let content = match content {
            None => String::new(),
            Some(content) if content.is_none() && is_in_dict => String::new(),
            Some(content) => {
                let text = text::of_value(&content);
                if text.is_err() || content.is_exact_instance_of::<PyString>() {
                    self.content = Some(content.clone().unbind());
                }
                text.unwrap_or_else(|_raised| text::placeholder(&content))
            }
        };
        Some(Answer { ready, content })
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
