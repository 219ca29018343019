//! The report of a replay, for people.

use rlm_core::text::{counted, cut};
use rlm_env::replay::{ComparedCall, Difference, PastCall, PastSession, ReplayResult, Task};
use similar::TextDiff;

use crate::standard_output::Output;
use crate::text::visible;

/// Most lines of a call's code that are shown.
const CODE_LINES: usize = 12;

/// Most characters of a line of code that are shown.
const CODE_CHARS: usize = 200;

/// Most lines of a text or a diff that are shown.
const TEXT_LINES: usize = 200;

/// Most characters of a text or a diff that are shown.
const TEXT_CHARS: usize = 20_000;

/// Most bytes of two texts that are compared line by line.
const DIFF_BYTES: usize = 4 << 20;

/// Prints the report.
#[derive(Debug, Default)]
pub(super) struct Report(pub(super) Output);

impl Report {
    /// Prints a call that differs or was not run.
    pub(super) fn call(&self, compared: &ComparedCall<'_>) {
        let ComparedCall { call, differences, skipped } = compared;
        if let Some(why) = skipped {
            self.text(&format!("call {} is not run again: it {why}\n", call.number));
        }
        if differences.is_empty() {
            return;
        }
        self.text(&format!("call {} is different:\n{}", call.number, code(call)));
        for difference in differences {
            self.text(&self::difference(difference));
        }
        self.text("\n");
    }

    /// Prints the summary.
    pub(super) fn end(&self, past: &PastSession, replayed: &ReplayResult<'_>) {
        if !replayed.answer.is_empty() {
            self.text("the final answer is different:\n");
            for difference in &replayed.answer {
                self.text(&self::difference(difference));
            }
            self.text("\n");
        }
        let different: Vec<_> = replayed
            .calls
            .iter()
            .filter(|compared| !compared.differences.is_empty())
            .map(|compared| compared.call.number.to_string())
            .collect();
        let count = past.calls.len();
        let calls = counted(count as u64, "call");
        let run = replayed.calls.iter().filter(|compared| compared.skipped.is_none()).count();
        self.text(&match (different.len(), replayed.answer.is_empty()) {
            (0, true) if run < count => {
                format!("equal as far as it was run again: {run} of {calls}\n")
            }
            (0, true) => format!("equal: {calls}\n"),
            (0, false) => format!("different: the final answer, but none of {calls}\n"),
            (_, true) => format!("different: call {} of {count}\n", different.join(", ")),
            (_, false) => format!("different: the final answer, call {} of {count}\n", different.join(", ")),
        });
    }

    fn text(&self, text: &str) {
        self.0.print(&visible(text));
    }
}

/// The code of a call, indented.
fn code(call: &PastCall) -> String {
    let code = match &call.task {
        Task::Run(code) => call.source.as_ref().unwrap_or(code).clone(),
        Task::Reset => "(reset)".to_owned(),
        Task::Set { variables, .. } => {
            format!("(set {})", variables.keys().cloned().collect::<Vec<_>>().join(", "))
        }
    };
    let mut shown = String::new();
    for line in code.lines().take(CODE_LINES) {
        shown.push_str(&format!("  | {}\n", cut(line, CODE_CHARS)));
    }
    let more = code.lines().count().saturating_sub(CODE_LINES);
    if more > 0 {
        shown.push_str(&format!("  | … {more} more lines\n"));
    }
    shown
}

fn difference(difference: &Difference) -> String {
    match difference {
        Difference::Outcome { was, is } => format!("  outcome: was {}, is {}\n", word(was), word(is)),
        Difference::State { was, is } => format!("  state: was {}, is {}\n", word(was), word(is)),
        Difference::ExitCode { was, is } => {
            let number = |code: &Option<i32>| code.map_or_else(|| "none".to_owned(), |code| code.to_string());
            format!("  exit code: was {}, is {}\n", number(was), number(is))
        }
        Difference::Ready { was, is } => {
            let ready = |ready: &bool| if *ready { "final" } else { "not final" };
            format!("  answer: was {}, is {}\n", ready(was), ready(is))
        }
        Difference::Output { was_bytes, is_bytes, is } => {
            let now = if is.is_empty() { "nothing\n".to_owned() } else { indented(&bounded(is)) };
            format!(
                "  output: was {was_bytes} bytes, is {is_bytes} bytes; the history does not have the old \
                 output, the new one is\n{now}"
            )
        }
        Difference::Text { what, was, is } => format!("  {what}:\n{}", indented(&diff(was, is))),
    }
}

/// The name of a value on the wire.
fn word(value: &impl serde::Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => word,
        _ => String::new(),
    }
}

/// The difference of two texts, in the form of `diff -u`.
fn diff(was: &str, is: &str) -> String {
    if was.len() + is.len() > DIFF_BYTES {
        let at = was.bytes().zip(is.bytes()).take_while(|(was, is)| was == is).count();
        return format!(
            "was {} bytes, is {} bytes: too large to compare by lines; equal up to byte {at}\n",
            was.len(),
            is.len()
        );
    }
    let diff = TextDiff::from_lines(was, is);
    bounded(&diff.unified_diff().context_radius(2).header("recorded", "replayed").to_string())
}

/// The beginning of a text, up to the limits above.
fn bounded(text: &str) -> String {
    let by_lines = text.split_inclusive('\n').take(TEXT_LINES).map(str::len).sum();
    let by_chars = text.char_indices().nth(TEXT_CHARS).map_or(text.len(), |(at, _)| at);
    let end = by_chars.min(by_lines);
    let mut shown = text[..end].to_owned();
    if !shown.is_empty() && !shown.ends_with('\n') {
        shown.push('\n');
    }
    if end < text.len() {
        shown.push_str(&format!("… {} more bytes\n", text.len() - end));
    }
    shown
}

fn indented(text: &str) -> String {
    text.split_inclusive('\n').map(|line| format!("    {line}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_cut() {
        assert_eq!(bounded(""), "");
        assert_eq!(bounded("a"), "a\n");
        assert_eq!(bounded(&"a\n".repeat(201)), format!("{}… 2 more bytes\n", "a\n".repeat(200)));
        assert!(bounded(&"é".repeat(20_001)).ends_with("é\n… 2 more bytes\n"));
        let large = "a".repeat(DIFF_BYTES / 2 + 1);
        assert!(diff(&large, &(large.clone() + "b")).ends_with("equal up to byte 2097153\n"));
        assert_eq!(diff("a\nb\n", "a\nc\n"), "--- recorded\n+++ replayed\n@@ -1,2 +1,2 @@\n a\n-b\n+c\n");
    }
}
