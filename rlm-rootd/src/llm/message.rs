//! Messages of models, in OpenAI's form.

use std::borrow::Cow;

use serde_json::Value as Json;

/// The text of a message: its `content` is text, or a list of parts that may have one. None: it is of another type.
#[must_use]
pub fn message_text(message: &Json) -> Option<String> {
    match message.get("content") {
        None | Some(Json::Null) => Some(String::new()),
        Some(Json::String(text)) => Some(text.clone()),
        Some(Json::Array(parts)) => {
            Some(parts.iter().filter_map(|part| part.get("text").and_then(Json::as_str)).collect())
        }
        Some(_) => None,
    }
}

/// The arguments of a tool call, as JSON text: an empty object where there are none. Some servers give JSON in the place of
/// its text.
#[must_use]
pub fn call_arguments(call: &Json) -> Cow<'_, str> {
    match call.pointer("/function/arguments") {
        None | Some(Json::Null) => "{}".into(),
        Some(Json::String(text)) if text.trim().is_empty() => "{}".into(),
        Some(Json::String(text)) => text.into(),
        Some(other) => other.to_string().into(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn content_is_text_or_parts() {
        let text = |content: Json| message_text(&json!({ "content": content }));
        assert_eq!(text(json!("a")).as_deref(), Some("a"));
        assert_eq!(text(json!([{"text": "a"}, {"type": "image_url"}, {"text": "b"}])).as_deref(), Some("ab"));
        assert_eq!([text(Json::Null), message_text(&json!({}))], [Some(String::new()), Some(String::new())]);
        assert_eq!(text(json!(3)), None);
    }

    #[test]
    fn arguments_are_json_text_in_every_form() {
        let arguments = |given: Json| call_arguments(&json!({"function": {"arguments": given}})).into_owned();
        let given = [json!(r#"{"a": 1}"#), json!({"a": 1}), json!(" "), Json::Null, json!([1])];
        assert_eq!(given.map(arguments), [r#"{"a": 1}"#, r#"{"a":1}"#, "{}", "{}", "[1]"]);
    }
}
