//! Calls that models write into their text.

use serde_json::Value as Json;

/// A call that a model wrote into its text.
#[derive(Clone, Debug, PartialEq)]
pub struct WrittenCall {
    /// Name as written.
    pub name: String,
    /// JSON text: as written, or an object of named parameters, which are strings unless the form says otherwise.
    pub arguments: String,
}

/// A name without surrounding white space. None if it does not look like a name.
pub(super) fn checked(name: &str) -> Option<String> {
    let name = name.trim();
    let is_name = |char: char| char.is_alphanumeric() || "_-.:/".contains(char);
    (!name.is_empty() && name.chars().all(is_name)).then(|| name.to_owned())
}

/// A value without the line breaks between it and its tags.
pub(super) fn without_breaks(value: &str) -> &str {
    let value = value.strip_prefix("\r\n").or_else(|| value.strip_prefix('\n')).unwrap_or(value);
    value.strip_suffix("\r\n").or_else(|| value.strip_suffix('\n')).unwrap_or(value)
}

/// The calls in a JSON object or list. None if anything else is in it.
pub(super) fn calls_of(json: &Json) -> Option<Vec<WrittenCall>> {
    json.as_array().map_or(std::slice::from_ref(json), Vec::as_slice).iter().map(call_of).collect()
}

fn call_of(call: &Json) -> Option<WrittenCall> {
    let name = call.get("name").or_else(|| call.get("tool_name"))?.as_str()?;
    let arguments = match (call.get("arguments"), call.get("parameters")) {
        (Some(_), Some(_)) => return None,
        (Some(Json::String(text)), None) | (None, Some(Json::String(text))) => text.clone(),
        (Some(json), None) | (None, Some(json)) => json.to_string(),
        (None, None) => "{}".to_owned(),
    };
    (!name.is_empty()).then(|| WrittenCall { name: name.to_owned(), arguments })
}
