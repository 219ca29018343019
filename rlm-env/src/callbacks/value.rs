//! The result of a tool, as the value of a session's variable.

use rlm_core::json::JsonText;
use rlm_core::limits::{MAX_VARIABLE_BYTES, MAX_VARIABLE_DEPTH};
use rlm_core::pickle::{Dict, Value, WriteError};
use rlm_core::root_tool::print::{self, Output};
use rlm_core::root_tool::{MAX_BODY_BYTES, Reply, ToolResult};

use crate::terms::ReplLanguage;

/// A value for `op: "set"`.
#[derive(Debug)]
pub(super) struct Variable {
    pub(super) json: JsonText,
    /// True if only the beginning is kept.
    pub(super) is_cut: bool,
}

impl Variable {
    /// The value of `name = tool(…)` in Python, or of `name=$(tool …)` in bash.
    ///
    /// # Errors
    /// A sentence: why the result cannot be a variable.
    pub(super) fn of(tool: &str, reply: &Reply, language: ReplLanguage) -> Result<Self, String> {
        match language {
            ReplLanguage::Bash => {
                let bytes = print::reply(tool, reply, Output::Text)?;
                // A command substitution treats bytes in the same way.
                let text = String::from_utf8_lossy(&bytes).trim_end_matches('\n').replace('\0', "");
                Self::of_value(&text.into())
            }
            ReplLanguage::Python => match &reply.result {
                ToolResult::Repr(repr) => Self::of_value(&repr.as_str().into()),
                ToolResult::Value(value) => Self::of_value(value),
            },
        }
        .map_err(|error| format!("the result of {tool} cannot be a variable: {error}"))
    }

    fn of_value(value: &Value) -> Result<Self, WriteError> {
        let mut is_cut = false;
        let written = match json(value) {
            Err(WriteError::TooLarge(_)) => {
                is_cut = true;
                let mut left = MAX_VARIABLE_BYTES;
                json(&beginning(value, &mut left, 0).0.unwrap_or(Value::None))
            }
            written => written,
        };
        match written {
            Ok(json) => Ok(Self { json, is_cut }),
            // HTTP with JSON does the same.
            Err(WriteError::NotJson { .. }) => Self::of_value(&value.repr(MAX_BODY_BYTES)?.into()),
            Err(error) => Err(error),
        }
    }
}

fn json(value: &Value) -> Result<JsonText, WriteError> {
    let text = value.to_json_text(MAX_VARIABLE_BYTES)?;
    let text = String::from_utf8(text).expect("JSON text is UTF-8");
    let json: JsonText = text.parse().expect("it is written as JSON");
    match json.depth() > MAX_VARIABLE_DEPTH {
        true => Err(WriteError::TooDeep(MAX_VARIABLE_DEPTH)),
        false => Ok(json),
    }
}

/// The beginning of a value, in the order in which it is printed, within `left` bytes of JSON; true if it is the whole
/// value.
fn beginning(value: &Value, left: &mut usize, depth: usize) -> (Option<Value>, bool) {
    let is_container = matches!(value, Value::List(_) | Value::Tuple(_) | Value::Dict(_) | Value::Str(_));
    if is_container && (depth > MAX_VARIABLE_DEPTH || !spend(left, 2)) {
        return (None, false);
    }
    match value {
        Value::Str(text) => {
            let kept = text_within(text, left);
            (Some(kept.into()), kept.len() == text.len())
        }
        Value::List(items) | Value::Tuple(items) => {
            let mut kept = Vec::new();
            let is_whole = items.iter().all(|item| {
                spend(left, 1) && {
                    let (item, is_whole) = beginning(item, left, depth + 1);
                    kept.extend(item);
                    is_whole
                }
            });
            (Some(Value::list(kept)), is_whole)
        }
        Value::Dict(dict) => {
            let mut kept = Vec::new();
            let is_whole = dict.iter().all(|(key, value)| {
                let Ok(name) = key.repr(*left) else { return false };
                // The longest JSON escapes, plus quotes, colon and comma.
                spend(left, 6 * name.len() + 4) && {
                    let (value, is_whole) = beginning(value, left, depth + 1);
                    kept.extend(value.map(|value| (key.clone(), value)));
                    is_whole
                }
            });
            let kept = Dict::from_pairs(kept).expect("they are keys of a dict");
            (Some(kept.into()), is_whole)
        }
        scalar => {
            let bytes = scalar.to_json_text(*left).map_or(usize::MAX, |text| text.len());
            let fits = spend(left, bytes);
            (fits.then(|| scalar.clone()), fits)
        }
    }
}

/// Takes this many of the remaining bytes. Returns false if there are too few.
fn spend(left: &mut usize, bytes: usize) -> bool {
    let rest = left.checked_sub(bytes);
    *left = rest.unwrap_or(0);
    rest.is_some()
}

/// The beginning of a text that fits.
fn text_within<'a>(text: &'a str, left: &mut usize) -> &'a str {
    let bytes_in_json = |character: char| match character {
        '"' | '\\' | '\n' | '\r' | '\t' | '\u{8}' | '\u{c}' => 2,
        '\0'..='\u{1f}' | '\u{7f}' => 6,
        other => other.len_utf8(),
    };
    let does_not_fit = |(_, character): &(usize, char)| !spend(left, bytes_in_json(*character));
    let end = text.char_indices().find(does_not_fit).map_or(text.len(), |(at, _)| at);
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(value: &Value) -> JsonText {
        let variable = Variable::of_value(value).unwrap();
        assert!(variable.is_cut);
        assert!(variable.json.get().len() <= MAX_VARIABLE_BYTES);
        variable.json
    }

    #[test]
    fn a_value_of_the_limit_is_whole() {
        let most: Value = "x".repeat(MAX_VARIABLE_BYTES - 2).into();
        let variable = Variable::of_value(&most).unwrap();
        assert!(!variable.is_cut);
        assert_eq!(variable.json.get().len(), MAX_VARIABLE_BYTES);
    }

    #[test]
    fn a_larger_value_keeps_its_beginning() {
        let text: Value = "é\"".repeat(MAX_VARIABLE_BYTES).into();
        assert!(cut(&text).get().len() > MAX_VARIABLE_BYTES - 8);
        let rows = Value::list((0..200_000_i64).map(Value::from));
        let kept: Vec<i64> = serde_json::from_str(cut(&rows).get()).unwrap();
        assert!(kept.len() > 100_000, "{}", kept.len());
        assert!(kept.iter().copied().eq(0..kept.len() as i64));
        let inner = Value::list([1_i64.into(), "y".repeat(2 << 20).as_str().into(), 2_i64.into()]);
        let dict = Dict::from_pairs([("a".into(), inner), ("b".into(), 3_i64.into())]).unwrap();
        let kept: serde_json::Value = serde_json::from_str(cut(&dict.into()).get()).unwrap();
        assert_eq!((kept["a"][0].as_i64(), kept["a"].as_array().unwrap().len()), (Some(1), 2));
        assert!(kept["a"][1].as_str().unwrap().len() > 1_000_000);
        assert_eq!(kept.get("b"), None);
    }

    #[test]
    fn a_value_that_json_cannot_hold_becomes_its_repr() {
        let bytes = Value::Bytes((*b"a\xff").into());
        let variable = Variable::of_value(&Value::tuple([bytes, 1_i64.into()])).unwrap();
        assert_eq!(variable.json.get(), r#""(b'a\\xff', 1)""#);
        let mixed =
            Value::list(["x".repeat(600 << 10).as_str().into(), Value::Float(f64::NAN), 1_i64.into()]);
        assert!(Variable::of_value(&mixed).unwrap().json.get().starts_with(r#""['xxx"#));
        let large = Value::Bytes(vec![0xff; 1 << 20].into());
        assert!(cut(&large).get().starts_with(r#""b'\\xff"#));
    }

    #[test]
    fn a_value_nested_too_deep_is_refused() {
        let nested = (0..200).fold(Value::None, |value, _| Value::list([value]));
        assert!(matches!(Variable::of_value(&nested), Err(WriteError::TooDeep(_))));
        let large = Value::list([nested, "x".repeat(2 << 20).as_str().into()]);
        assert!(Variable::of_value(&large).is_err());
    }

    #[test]
    fn in_bash_a_value_is_that_of_a_command_substitution() {
        let of = |value: Value| Variable::of("t", &Reply::of(value), ReplLanguage::Bash).unwrap().json;
        assert_eq!(of("a\n b\0\n\n".into()).get(), r#""a\n b""#);
        assert_eq!(of(Value::list([1_i64.into(), Value::None])).get(), r#""[1, null]""#);
    }
}
