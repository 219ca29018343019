//! Results of root tools as a shell prints them.

use super::{CUT_OFF, DRAFT, MAX_BODY_BYTES, PAID_BEFORE, QUERY_ERROR, Reply, ToolResult, asks};
use crate::pickle::{Value, WriteError};

/// Output format of a result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Output {
    /// A string as is, anything else as JSON or as its repr.
    #[default]
    Text,
    /// JSON, if JSON can hold the result.
    Json,
    /// As [`Self::Text`], but each reply of a list ends with a NUL.
    Nul,
}

/// Everything that a call prints in a shell.
///
/// # Errors
/// A sentence: the result is too large.
pub fn reply(tool: &str, reply: &Reply, output: Output) -> Result<Vec<u8>, String> {
    let mut text = String::new();
    if !asks(tool) && output == Output::Text {
        for line in &reply.print_lines {
            push_line(&mut text, line);
        }
    }
    match (&reply.result, output) {
        (ToolResult::Repr(repr), _) => push_line(&mut text, repr),
        (ToolResult::Value(Value::Str(line)), Output::Text | Output::Nul) => push_line(&mut text, line),
        (ToolResult::Value(Value::List(replies)), Output::Text | Output::Nul) if asks(tool) => {
            for reply in replies.iter() {
                let reply = match reply {
                    Value::Str(reply) => reply.to_string(),
                    other => json_or_repr(other)?,
                };
                match output {
                    Output::Nul => text.extend([&reply, "\0"]),
                    _ => push_line(&mut text, &reply),
                }
            }
        }
        (ToolResult::Value(value), _) => push_line(&mut text, &json_or_repr(value)?),
    }
    Ok(text.into_bytes())
}

/// The lines that a shell prints on standard error for a call that asks models: some answers were paid for before, are cut off, or are
/// drafts.
pub fn remarks<'a>(tool: &str, reply: &'a Reply) -> impl Iterator<Item = &'a str> {
    let is_remark = move |line: &&str| [PAID_BEFORE, CUT_OFF, DRAFT].iter().any(|words| line.contains(words));
    let lines = if asks(tool) { &*reply.print_lines } else { &[] };
    lines.iter().map(String::as_str).filter(is_remark)
}

/// True if a rollout of the code's own gave no answer: a text stands for it, or its result says so.
#[must_use]
pub fn lacks_answer(reply: &Reply) -> bool {
    let is_error = |value: &Value| match value {
        Value::Str(text) => text.starts_with(QUERY_ERROR),
        Value::Dict(result) => result.get("answer") == Some(&Value::None),
        _ => false,
    };
    match &reply.result {
        ToolResult::Value(Value::List(replies)) => replies.iter().any(is_error),
        ToolResult::Value(value) => is_error(value),
        ToolResult::Repr(_) => false,
    }
}

fn push_line(text: &mut String, line: &str) {
    text.push_str(line);
    if !line.ends_with('\n') {
        text.push('\n');
    }
}

fn json_or_repr(value: &Value) -> Result<String, String> {
    let text = match value.to_python_json(usize::MAX) {
        Err(WriteError::NotJson { .. }) => value.repr(MAX_BODY_BYTES),
        written => written,
    };
    text.map_err(|error| format!("the result: {error}"))
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
    fn llm_replies_are_printed_without_their_lines() {
        let replies = || Value::list(["a".into(), "b\n".into(), "".into(), "c".into()]);
        assert_eq!(printed("llm_batch", replies(), Output::Text), "a\nb\n\nc\n");
        assert_eq!(printed("llm_batch", replies(), Output::Json), "[\"a\", \"b\\n\", \"\", \"c\"]\n");
        let with_lines = Reply { print_lines: vec!["x".to_owned()], ..Reply::of(replies()) };
        assert!(reply("llm_batch", &with_lines, Output::Text).unwrap().starts_with(b"a\n"));
        assert!(reply("t", &with_lines, Output::Text).unwrap().starts_with(b"x\n"));
    }

    #[test]
    fn a_shell_hears_of_answers_that_are_not_as_they_look() {
        let lines = ["llm_batch: 2 calls in 0.10s", "…, 1 cut off (answers[1])", "…, 1 paid for before"];
        let said = Reply { print_lines: lines.map(str::to_owned).into(), ..Reply::of(Value::None) };
        assert!(remarks("llm_batch", &said).eq(lines[1..].iter().copied()));
    }
}
