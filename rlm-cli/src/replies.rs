//! Replies of models as people see them: the text, and the reasoning apart from it, folded into a line.

use std::fmt::Write as _;

use rlm_core::text::counted;
use rlm_rootd::{reasoning_text, without_thoughts};
use serde_json::Value as Json;

/// Characters of a reasoning that its line has.
const FIRST_CHARS: usize = 80;

/// Beginnings of the types of parts that are reasoning, readable or encrypted.
const REASONING: [&str; 3] = ["thinking", "redacted_thinking", "reasoning"];

/// The text of a message in OpenAI's form; of other parts than texts, their types.
pub(crate) fn message_words(message: &Json) -> String {
    words(message, |_| true)
}

/// The text of a reply, without its reasoning.
pub(crate) fn reply_words(reply: &Json) -> String {
    let kind = |part: &Json| part["type"].as_str().unwrap_or_default().to_owned();
    let text = words(reply, |part| !REASONING.iter().any(|of| kind(part).starts_with(of)));
    let rest = without_thoughts(&text);
    // The lines between them are not the text's.
    if rest.len() < text.len() { rest.trim_start().to_owned() } else { text }
}

fn words(message: &Json, is_shown: impl Fn(&Json) -> bool) -> String {
    match message.get("content") {
        Some(Json::String(text)) => text.clone(),
        Some(Json::Array(parts)) => {
            let texts = parts.iter().filter(|part| is_shown(part)).map(|part| match part["text"].as_str() {
                Some(text) => text.to_owned(),
                None => format!("[{}]", part["type"].as_str().unwrap_or("?")),
            });
            texts.collect::<Vec<_>>().join("\n")
        }
        _ => String::new(),
    }
}

/// The reasoning of a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Thought {
    pub(crate) text: String,
    /// 0: the server did not count them.
    pub(crate) tokens: u64,
}

impl Thought {
    /// The reasoning of a reply; None if it has none that can be read.
    pub(crate) fn of(reply: &Json, tokens: u64) -> Option<Self> {
        Some(Self { text: reasoning_text(reply)?, tokens })
    }

    /// `thought, 1,234 tokens: the first words…`, in one line. Control characters are as the model wrote them.
    pub(crate) fn line(&self) -> String {
        let mut line = "thought".to_owned();
        if self.tokens > 0 {
            _ = write!(line, ", {}", counted(self.tokens, "token"));
        }
        // Enough of a long text to have so many characters of it.
        let begun: String = self.text.chars().take(10 * FIRST_CHARS).collect();
        let begun = begun.split_whitespace().collect::<Vec<_>>().join(" ");
        let first: String = begun.chars().take(FIRST_CHARS).collect();
        let is_all = first == begun && self.text.chars().nth(10 * FIRST_CHARS).is_none();
        let more = if is_all { "" } else { "…" };
        line + &format!(": {}{more}", first.trim_end())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_reply_is_shown_without_its_reasoning() {
        let replies = [
            (json!("<think>\nHm.\n</think>\n\nDone."), "Done."),
            (json!("  Done."), "  Done."),
            (json!([{"type": "thinking", "thinking": "Hm."}, {"type": "text", "text": "Done."}]), "Done."),
            (json!([{"type": "redacted_thinking", "data": "x"}, {"type": "image_url"}]), "[image_url]"),
            (json!([{"type": "text", "text": "<think>Hm."}]), ""),
            (json!(null), ""),
        ];
        for (content, shown) in replies {
            assert_eq!(reply_words(&json!({ "content": content })), shown);
        }
        assert_eq!(
            message_words(&json!({"content": [{"type": "thinking"}, {"text": "a"}]})),
            "[thinking]\na"
        );
    }

    #[test]
    fn a_thought_is_a_line() {
        let line = |text: &str, tokens| Thought { text: text.to_owned(), tokens }.line();
        assert_eq!(line("First\n\n  the docs.", 1234), "thought, 1,234 tokens: First the docs.");
        assert_eq!(line("Hm", 0), "thought: Hm");
        let long = line(&"word ".repeat(1000), 1);
        assert!(long.starts_with("thought, 1 token: word word") && long.ends_with("word…"), "{long}");
        assert!(long.chars().count() < 20 + FIRST_CHARS, "{long}");
        assert!(line(&" \n".repeat(1000), 0).ends_with('…'), "its first words are far away");
        let reply = json!({"content": "<think>Hm.</think>"});
        assert_eq!(Thought::of(&reply, 3).unwrap().line(), "thought, 3 tokens: Hm.");
    }
}
