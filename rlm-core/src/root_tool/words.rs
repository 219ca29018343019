//! The words of a root tool's command in a shell. `rlm-root-tool` runs such a command, and interception reads one from
//! code; both interpret the words here.

use super::{Call, LLM_BATCH, asks};
use crate::pickle::{Dict, Limits, Value};

/// Meaning of a word after the tool's name and before any `--`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word<'a> {
    /// An option: `-x`, `--name`, `--name=value`, `--`; but not `-5`, `- item` or `---`.
    Option,
    /// `@FILE`: the argument is the text of a file. Prompts are never files.
    File(&'a [u8]),
    /// The argument itself.
    Argument,
}

impl<'a> Word<'a> {
    /// Classifies a word after the tool's name.
    #[must_use]
    pub fn of(tool: &str, word: &'a [u8]) -> Self {
        match word {
            _ if is_option(word) => Self::Option,
            [b'@', path @ ..] if !asks(tool) && !path.is_empty() => Self::File(path),
            _ => Self::Argument,
        }
    }
}

fn is_option(word: &[u8]) -> bool {
    match word {
        b"--" => true,
        [b'-', b'-', rest @ ..] | [b'-', rest @ ..] => {
            let name = rest.split(|byte| *byte == b'=').next().unwrap_or_default();
            name.first().is_some_and(u8::is_ascii_alphabetic)
                && name.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
        }
        _ => false,
    }
}

/// The value of an argument: decoded if the text is JSON, otherwise the text. A prompt is always text.
#[must_use]
pub fn value(tool: &str, text: &str) -> Value {
    if asks(tool) {
        return text.into();
    }
    Value::from_json_text(text.as_bytes(), &limits()).unwrap_or_else(|_not_json| text.into())
}

/// Limits on JSON in a command. The endpoint limits the number of values.
#[must_use]
pub fn limits() -> Limits {
    Limits { expanded_values: usize::MAX, ..Limits::default() }
}

/// The call with these arguments. All prompts together are one.
#[must_use]
pub fn call(tool: &str, values: Vec<Value>) -> Call {
    let args = if tool == LLM_BATCH { vec![Value::list(values)] } else { values };
    Call { tool: tool.to_owned(), args, kwargs: Dict::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_begin_with_a_letter() {
        for word in ["-x", "--json", "--json=[1]", "--", "-a_b-c", "--x=", "-x=a b"] {
            assert_eq!(Word::of("t", word.as_bytes()), Word::Option, "{word}");
        }
        for word in ["", "-", "---", "-5", "- item", "--- a", "a-b", "-é", "--a b"] {
            assert_eq!(Word::of("t", word.as_bytes()), Word::Argument, "{word}");
        }
    }

    #[test]
    fn prompts_are_never_files() {
        assert_eq!(Word::of("t", b"@a/b"), Word::File(b"a/b"));
        assert_eq!([Word::of("t", b"@"), Word::of(LLM_BATCH, b"@a")], [Word::Argument; 2]);
    }

    #[test]
    fn json_is_decoded_unless_it_is_a_prompt() {
        assert_eq!([value("t", "[1]"), value("t", "a")], [Value::list([1.into()]), "a".into()]);
        assert_eq!(value(LLM_BATCH, "[1]"), "[1]".into());
        assert_eq!(call(LLM_BATCH, vec!["a".into()]).args, [Value::list(["a".into()])]);
        assert_eq!(call("t", vec!["a".into()]).args, ["a".into()]);
    }
}
