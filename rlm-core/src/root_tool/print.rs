//! Results as a shell wants them.

use std::fmt::Write as _;

use super::{LLM_BATCH, MAX_BODY_BYTES, Reply, ToolResult};
use crate::pickle::Value;

/// How a result is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// A string as it is, anything else as JSON or as its repr.
    Text,
    /// As JSON where JSON can hold it.
    Json,
}

/// Everything that a call prints in a shell.
///
/// # Errors
/// A sentence: the result is too large.
pub fn reply(tool: &str, reply: &Reply, output: Output) -> Result<Vec<u8>, String> {
    let mut text = String::new();
    if tool != LLM_BATCH && output == Output::Text {
        for line in &reply.print_lines {
            push_line(&mut text, line);
        }
    }
    match (&reply.result, output) {
        (ToolResult::Repr(repr), _) => push_line(&mut text, repr),
        (ToolResult::Value(Value::Str(line)), Output::Text) => push_line(&mut text, line),
        (ToolResult::Value(Value::List(replies)), Output::Text) if tool == LLM_BATCH => {
            for reply in replies.iter() {
                match reply {
                    Value::Str(reply) => push_line(&mut text, reply),
                    other => push_line(&mut text, &json_or_repr(other)?),
                }
            }
        }
        (ToolResult::Value(value), _) => push_line(&mut text, &json_or_repr(value)?),
    }
    Ok(text.into_bytes())
}

fn push_line(text: &mut String, line: &str) {
    text.push_str(line);
    if !line.ends_with('\n') {
        text.push('\n');
    }
}

fn json_or_repr(value: &Value) -> Result<String, String> {
    let mut text = String::new();
    match push_json(&mut text, value) {
        Ok(()) => Ok(text),
        Err(NotJson) => value.repr(MAX_BODY_BYTES).map_err(|error| format!("the result: {error}")),
    }
}

/// JSON has nothing for the value.
struct NotJson;

/// As Python's `json.dumps` writes it: all of it ASCII, NaN and infinities by name.
fn push_json(text: &mut String, value: &Value) -> Result<(), NotJson> {
    match value {
        Value::Str(string) => push_string(text, string),
        Value::Tuple(items) | Value::List(items) => {
            text.push('[');
            for (at, item) in items.iter().enumerate() {
                text.push_str(if at == 0 { "" } else { ", " });
                push_json(text, item)?;
            }
            text.push(']');
        }
        Value::Dict(dict) => {
            text.push('{');
            for (at, (key, value)) in dict.iter().enumerate() {
                text.push_str(if at == 0 { "" } else { ", " });
                match key {
                    Value::Str(key) => push_string(text, key),
                    key => push_string(text, &scalar(key)?),
                }
                text.push_str(": ");
                push_json(text, value)?;
            }
            text.push('}');
        }
        scalar_value => text.push_str(&scalar(scalar_value)?),
    }
    Ok(())
}

fn scalar(value: &Value) -> Result<String, NotJson> {
    Ok(match value {
        Value::None => "null".to_owned(),
        Value::Bool(truth) => truth.to_string(),
        Value::Int(int) => int.to_string(),
        Value::Float(float) if float.is_nan() => "NaN".to_owned(),
        Value::Float(float) if float.is_infinite() => {
            if *float > 0.0 { "Infinity" } else { "-Infinity" }.to_owned()
        }
        // A float's repr is short.
        Value::Float(_) => value.repr(64).map_err(|_too_large| NotJson)?,
        _ => return Err(NotJson),
    })
}

fn push_string(text: &mut String, string: &str) {
    text.push('"');
    for c in string.chars() {
        match c {
            '"' => text.push_str("\\\""),
            '\\' => text.push_str("\\\\"),
            '\n' => text.push_str("\\n"),
            '\r' => text.push_str("\\r"),
            '\t' => text.push_str("\\t"),
            '\u{8}' => text.push_str("\\b"),
            '\u{c}' => text.push_str("\\f"),
            ' '..='~' => text.push(c),
            other => {
                for unit in other.encode_utf16(&mut [0; 2]) {
                    // A String takes everything.
                    let _infallible = write!(text, "\\u{unit:04x}");
                }
            }
        }
    }
    text.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pickle::{Dict, Set};

    fn printed(tool: &str, value: Value, output: Output) -> String {
        String::from_utf8(reply(tool, &Reply::of(value), output).unwrap()).unwrap()
    }

    #[test]
    fn results_are_printed_as_python_would() {
        let text = |value: Value| printed("t", value, Output::Text);
        assert_eq!(text("a".into()), "a\n");
        assert_eq!(text("a\n".into()), "a\n");
        assert_eq!(text(Value::None), "null\n");
        assert_eq!(text(f64::NAN.into()), "NaN\n");
        assert_eq!(text(1e16.into()), "1e+16\n");
        let dict = Dict::from_pairs([
            (Value::from("é😀\u{7f}"), Value::tuple([Value::from(1), Value::from(true)])),
            (Value::from(2), Value::from("\"\u{1}\n")),
        ]);
        let dict = Value::from(dict.unwrap());
        assert_eq!(text(dict), "{\"\\u00e9\\ud83d\\ude00\\u007f\": [1, true], \"2\": \"\\\"\\u0001\\n\"}\n");
        assert_eq!(text(Value::Bytes(b"a\x00".as_slice().into())), "b'a\\x00'\n");
        let set = Set::from_items([Value::from(1)]).unwrap();
        assert_eq!(text(Value::list([Value::Set(set.into())])), "[{1}]\n");
    }

    #[test]
    fn replies_come_alone_one_after_the_other() {
        let replies = || Value::list(["a".into(), "b\n".into(), "".into(), "c".into()]);
        assert_eq!(printed("llm_batch", replies(), Output::Text), "a\nb\n\nc\n");
        assert_eq!(printed("llm_batch", replies(), Output::Json), "[\"a\", \"b\\n\", \"\", \"c\"]\n");
        let with_lines = Reply { print_lines: vec!["x".to_owned()], ..Reply::of(replies()) };
        assert!(reply("llm_batch", &with_lines, Output::Text).unwrap().starts_with(b"a\n"));
        assert!(reply("t", &with_lines, Output::Text).unwrap().starts_with(b"x\n"));
    }
}
