//! `FINAL` and `FINAL_VAR`: other ways to set the answer, for models that were trained on them.
//!
//! Both are C functions, so that tracebacks do not show a frame of theirs.

use pyo3::exceptions::{PyNameError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyCFunction, PyDict, PyMapping, PyString, PyTuple};
use rlm_core::protocol::name_excerpt;
use rlm_worker_python::tools::{ANSWER, FINAL, FINAL_FUNCTIONS, FINAL_VAR, TAKEN};

use crate::{answer, text};

/// Least similarity of a name to suggest, from 0 to 1.
const MIN_SIMILARITY: f64 = 0.8;

/// Most names to suggest.
const MAX_SUGGESTIONS: usize = 3;

/// Adds both functions to the namespace.
pub(crate) fn add(namespace: &Bound<'_, PyDict>) -> PyResult<()> {
    let py = namespace.py();
    let owned = namespace.clone().unbind();
    let doc = c"FINAL(value)\n--\n\nMakes str(value) the answer, and declares it final.";
    let function = PyCFunction::new_closure(py, Some(c"FINAL"), Some(doc), move |arguments, keywords| {
        let value = argument(FINAL, "value", arguments, keywords)?;
        set_answer(owned.bind(value.py()), &value)
    })?;
    namespace.set_item(FINAL, function)?;
    let owned = namespace.clone().unbind();
    let frame = py.import("sys")?.getattr("_getframe")?.unbind();
    let doc =
        c"FINAL_VAR(name)\n--\n\nMakes str() of the variable of this name the answer, and declares it final.";
    let function =
        PyCFunction::new_closure(py, Some(c"FINAL_VAR"), Some(doc), move |arguments, keywords| {
            let name = argument(FINAL_VAR, "name", arguments, keywords)?;
            let py = name.py();
            // Local variables of the calling function come first, as in any name lookup.
            let locals = frame.call0(py).and_then(|frame| frame.getattr(py, "f_locals"));
            let locals = locals.ok().and_then(|locals| locals.into_bound(py).cast_into::<PyMapping>().ok());
            let namespace = owned.bind(py);
            set_answer(namespace, &variable(&name, locals.as_ref(), namespace)?)
        })?;
    namespace.set_item(FINAL_VAR, function)
}

/// The single argument of a function.
fn argument<'py>(
    function: &str,
    parameter: &str,
    arguments: &Bound<'py, PyTuple>,
    keywords: Option<&Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, PyAny>> {
    let named = keywords.map(|keywords| keywords.get_item(parameter)).transpose()?.flatten();
    let given = arguments.len() + keywords.map_or(0, |keywords| keywords.len());
    match (arguments.get_item(0).ok().or(named), given) {
        (Some(value), 1) => Ok(value),
        (None, 1..) if arguments.is_empty() => {
            Err(PyTypeError::new_err(format!("{function}() takes its argument as {function}({parameter})")))
        }
        _ => Err(PyTypeError::new_err(format!("{function}() takes exactly one argument ({given} given)"))),
    }
}

/// The value of the variable that a model names.
fn variable<'py>(
    name: &Bound<'py, PyAny>,
    locals: Option<&Bound<'py, PyMapping>>,
    namespace: &Bound<'py, PyDict>,
) -> PyResult<Bound<'py, PyAny>> {
    let Ok(name) = name.cast::<PyString>() else {
        return Err(PyTypeError::new_err(format!(
            "FINAL_VAR takes the name of a variable as a string, not {}: write FINAL_VAR(\"name\"), or FINAL(value) \
             for the value itself",
            text::type_name(name)
        )));
    };
    let name = text::of_string(name);
    let name = name.trim_matches(|c: char| c.is_whitespace() || "'\"`".contains(c));
    if let Some(value) = locals.and_then(|locals| locals.get_item(name).ok()) {
        return Ok(value);
    }
    if let Some(value) = namespace.get_item(name)? {
        return Ok(value);
    }
    let mut names: Vec<String> = namespace.keys().iter().filter_map(|key| key.extract().ok()).collect();
    names.extend(
        locals.and_then(|locals| locals.keys().ok()?.extract::<Vec<String>>().ok()).unwrap_or_default(),
    );
    let suggested = suggestions(name, names);
    let meant =
        if suggested.is_empty() { "assign it first".to_owned() } else { format!("did you mean {suggested}") };
    Err(PyNameError::new_err(format!(
        "FINAL_VAR finds no variable named '{}': {meant}, or write FINAL(value) for a value",
        name_excerpt(name)
    )))
}

/// The most similar names, best first.
fn suggestions(name: &str, names: Vec<String>) -> String {
    let name = name.to_lowercase();
    let similarity = |other: &String| strsim::jaro_winkler(&name, &other.to_lowercase());
    let is_ours = |other: &str| FINAL_FUNCTIONS.contains(&other) || TAKEN.contains(&other);
    let mut suggested: Vec<(f64, String)> = names
        .into_iter()
        .filter(|other| !other.starts_with('_') && !is_ours(other))
        .map(|other| (similarity(&other), other))
        .filter(|(similarity, _)| *similarity >= MIN_SIMILARITY)
        .collect();
    suggested
        .sort_by(|(one, name), (other, other_name)| other.total_cmp(one).then_with(|| name.cmp(other_name)));
    suggested.dedup();
    let suggested: Vec<String> =
        suggested.into_iter().take(MAX_SUGGESTIONS).map(|(_, name)| format!("'{name}'")).collect();
    suggested.join(" or ")
}

/// Sets the answer to the text of a value and declares it final, whatever a cell made of `answer`. Returns None.
fn set_answer(namespace: &Bound<'_, PyDict>, value: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
    let is_answer = answer::item(namespace, ANSWER).is_some_and(|answer| answer.is(value));
    let content = match value {
        // `answer` itself means its content.
        dict if is_answer && dict.is_instance_of::<PyDict>() => None,
        text if text.is_instance_of::<PyString>() => Some(text.clone()),
        other => Some(other.str()?.into_any()),
    };
    // Converting the value to text may have run code that replaced the answer.
    let answer = answer::item(namespace, ANSWER).and_then(|answer| answer.cast_into::<PyDict>().ok());
    let answer = match answer {
        Some(answer) => answer,
        None => {
            let answer = PyDict::new(namespace.py());
            namespace.set_item(ANSWER, &answer)?;
            answer
        }
    };
    if let Some(content) = content {
        answer.set_item("content", content)?;
    }
    answer.set_item("ready", true)?;
    Ok(namespace.py().None())
}
