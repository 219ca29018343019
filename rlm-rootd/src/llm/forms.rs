//! The forms in which models write calls and thoughts that their server did not parse. Reading is lenient, but nothing
//! is guessed where two readings are possible.
//!
//! A reply is split into text, thoughts and calls. Thoughts and calls begin with marks that no model writes by chance;
//! forms without such marks are not read: a bare JSON object, a pythonic list, `python_tag` with Python code. A mark
//! in a fenced block or in a code span of its line is text, and so is one in the arguments of a call. A call that is not
//! complete is not a call. The end of a thought that the prompt has opened is read in blocks as well, where code does not
//! have it: see `Scanner::closing_mark`.

use std::borrow::Cow;

use serde_json::{Map, Value as Json};

use self::apart::{begins_with_thought, behind_thought};
pub use self::fences::{Fenced, fenced};
use self::json::whole_json;
use self::scanner::{Part, parts};
pub use self::written::WrittenCall;

mod apart;
mod cursor;
mod fences;
mod harmony;
mod json;
mod marks;
mod readers;
mod scanner;
mod written;

/// Prefixes of tools: OpenAI's and Kimi's namespace, and Gemini's.
const PREFIXES: [&str; 4] = ["functions.", "tools.", "default_api.", "default_api:"];

/// The text without the model's thoughts, so that code in them is never run. Line breaks between a thought and the text after it
/// are also removed.
pub fn without_thoughts(text: &str) -> Cow<'_, str> {
    let parts = parts(text);
    if !parts.iter().any(|part| matches!(part, Part::Thought(_))) {
        return Cow::Borrowed(text);
    }
    let (mut kept, mut has_gap) = (String::new(), false);
    for part in parts {
        let (Part::Text(text) | Part::Calls(text, _)) = part else {
            has_gap = true;
            continue;
        };
        let follows_thought = std::mem::take(&mut has_gap);
        if follows_thought && kept.is_empty() {
            kept.push_str(text.trim_start_matches(['\n', '\r']));
            continue;
        }
        // A fence after a thought begins a line.
        if follows_thought && !kept.ends_with('\n') && !text.starts_with('\n') {
            kept.push('\n');
        }
        kept.push_str(text);
    }
    Cow::Owned(kept)
}

/// The text without thoughts. Marks of thoughts in it are text, except where the server has repeated the thought, or has taken a mark
/// that the thought speaks of for its end, so that the rest of the thought and its closing mark begin the text.
pub(super) fn without_repeated_thoughts(text: &str) -> Cow<'_, str> {
    if begins_with_thought(text) {
        return without_thoughts(text);
    }
    behind_thought(text).map_or(text, |answer| answer.trim_start_matches(['\n', '\r'])).into()
}

/// The model's thoughts in a text, to show them. None if there are none.
pub fn thoughts(text: &str) -> Option<String> {
    let thoughts = parts(text).into_iter().filter_map(|part| match part {
        Part::Thought(thought) if !thought.trim().is_empty() => Some(thought.trim()),
        _ => None,
    });
    let thoughts = thoughts.collect::<Vec<_>>().join("\n\n");
    (!thoughts.is_empty()).then_some(thoughts)
}

/// The calls in a text, in order. Thoughts in it are skipped.
pub fn written_calls(text: &str) -> Vec<WrittenCall> {
    let calls = parts(text).into_iter().filter_map(|part| match part {
        Part::Calls(_, calls) => Some(calls),
        _ => None,
    });
    calls.flatten().collect()
}

/// The tool that a written name means: itself, or with the prefixes and suffixes that servers and models add.
pub fn tool_named<'a>(written: &str, names: &[&'a str]) -> Option<&'a str> {
    let written = written.trim();
    if let Some(exact) = names.iter().find(|name| **name == written) {
        return Some(exact);
    }
    let name = written.split("<|").next().unwrap_or_default().trim();
    let unnumbered = match name.rsplit_once(':') {
        Some((name, number)) if number.parse::<u32>().is_ok() => name,
        _ => name,
    };
    let readings = [name, unnumbered].into_iter().flat_map(|name| {
        let unprefixed = PREFIXES.iter().find_map(|prefix| name.strip_prefix(prefix));
        [name, unprefixed.unwrap_or(name)]
    });
    let readings: Vec<_> = readings.collect();
    let mut meant = names.iter().filter(|name| readings.contains(name));
    let first = meant.next()?;
    meant.all(|other| other == first).then_some(first)
}

/// The fault of arguments that are not an object.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ArgumentsFault {
    /// Not JSON; the parser's message.
    #[error("not JSON: {0}")]
    NotJson(String),
    /// JSON, but not an object.
    #[error("not an object")]
    NotAnObject,
}

/// The arguments of a call: as JSON, or with raw line breaks and tabs in its strings. Blank text is an empty object,
/// and a string that contains an object is that object.
pub fn arguments(text: &str) -> Result<Map<String, Json>, ArgumentsFault> {
    if text.trim().is_empty() {
        return Ok(Map::new());
    }
    match whole_json(text).map_err(ArgumentsFault::NotJson)? {
        Json::Object(arguments) => Ok(arguments),
        Json::String(inner) => match whole_json(&inner) {
            Ok(Json::Object(arguments)) => Ok(arguments),
            _ => Err(ArgumentsFault::NotAnObject),
        },
        _ => Err(ArgumentsFault::NotAnObject),
    }
}

#[cfg(test)]
mod tests;
