//! Values and texts as Python literals.

use std::fmt::Write as _;

use rlm_core::json::{JsonText, Part, Wtf8};

/// Longest number that Python always reads in a program, whatever its limit on digits.
const MAX_DIGITS: usize = 640;

/// Deepest nesting that is written as a literal; Python's parser has a limit.
const MAX_DEPTH: usize = 50;

/// An expression with the value that `json.loads` would return.
pub(super) fn value(json: &JsonText) -> String {
    let mut literal = String::new();
    if json.depth() <= MAX_DEPTH && push_value(&mut literal, json.get()) {
        literal
    } else {
        format!("__rlm_json({})", text(json.get()))
    }
}

/// Appends a value. Returns false if it cannot be written as a literal.
fn push_value(literal: &mut String, json: &str) -> bool {
    match Part::of(json) {
        Part::Null => literal.push_str("None"),
        Part::Bool(true) => literal.push_str("True"),
        Part::Bool(false) => literal.push_str("False"),
        Part::Number(number) if number.len() > MAX_DIGITS => return false,
        Part::Number(number) => literal.push_str(number),
        Part::String(Wtf8(bytes)) => match std::str::from_utf8(&bytes) {
            Ok(string) => push_string(literal, string),
            // An unpaired surrogate.
            Err(_) => return false,
        },
        Part::Array(items) => {
            literal.push('[');
            for (at, item) in items.into_iter().enumerate() {
                literal.push_str(if at == 0 { "" } else { ", " });
                if !push_value(literal, item) {
                    return false;
                }
            }
            literal.push(']');
        }
        Part::Object(fields) => {
            literal.push('{');
            for (at, (name, item)) in fields.into_iter().enumerate() {
                literal.push_str(if at == 0 { "" } else { ", " });
                let Ok(name) = std::str::from_utf8(&name.0) else { return false };
                push_string(literal, name);
                literal.push_str(": ");
                if !push_value(literal, item) {
                    return false;
                }
            }
            literal.push('}');
        }
    }
    true
}

/// A text as a literal on one line.
pub(super) fn text(text: &str) -> String {
    let mut literal = String::with_capacity(text.len() + 2);
    push_string(&mut literal, text);
    literal
}

fn push_string(literal: &mut String, text: &str) {
    literal.push('"');
    for c in text.chars() {
        match c {
            '"' => literal.push_str("\\\""),
            '\\' => literal.push_str("\\\\"),
            '\n' => literal.push_str("\\n"),
            '\r' => literal.push_str("\\r"),
            '\t' => literal.push_str("\\t"),
            c if c.is_control() => {
                // Writing to a String never fails.
                let _infallible = write!(literal, "\\x{:02x}", u32::from(c));
            }
            c => literal.push(c),
        }
    }
    literal.push('"');
}

/// Code as a literal that is readable as code, if possible.
pub(super) fn code(code: &str) -> String {
    let newline = if code.ends_with('\n') { "" } else { "\n" };
    let is_plain = |c: char| !c.is_control() || matches!(c, '\n' | '\t');
    if code.chars().all(is_plain) {
        for quotes in ["'''", "\"\"\""] {
            if !code.contains(quotes) {
                return format!("r{quotes}\n{code}{newline}{quotes}");
            }
        }
    }
    // The other form begins with a line break too.
    text(&format!("\n{code}{newline}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_equal_those_of_json_loads() {
        let literal = |json: &str| value(&json.parse().unwrap());
        assert_eq!(
            literal(r#"{"a\/b": [true, null, 1e400, "\ud83d\ude00\u0001\"\\"]}"#),
            "{\"a/b\": [True, None, 1e400, \"\u{1F600}\\x01\\\"\\\\\"]}"
        );
        assert_eq!(literal(r#""\ud800""#), r#"__rlm_json("\"\\ud800\"")"#);
        assert!(literal(&"1".repeat(5000)).starts_with("__rlm_json(\"111"));
        assert!(literal(&format!("{}{}", "[".repeat(90), "]".repeat(90))).starts_with("__rlm_json("));
    }

    #[test]
    fn code_is_readable_where_it_can_be() {
        assert_eq!(code("a\\"), "r'''\na\\\n'''");
        assert_eq!(code("'''a'''\n"), "r\"\"\"\n'''a'''\n\"\"\"");
        assert_eq!(code("'''a'''\"\"\"b\"\"\""), r#""\n'''a'''\"\"\"b\"\"\"\n""#);
        assert_eq!(code("a\rb"), r#""\na\rb\n""#);
    }
}
