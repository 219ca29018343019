//! The root model of the demo: follows a script file, and reacts to the output of the session.

use std::collections::BTreeMap;

use rlm_env::model::{ChatMessage, ChatReply, ChatRequest, ModelFuture, Usage};
use rlm_env::{ReplLanguage, RootModel};
use serde_json::{Value as Json, json};

/// The step that goes wrong.
const MISTAKE: &str = "ask";

/// Phrases in the output of a failed call.
const COMPLAINTS: [&str; 2] = ["Error", "unknown option"];

/// Characters of a token, for the counts.
const TOKEN_CHARS: u64 = 4;

/// A root model that follows a script.
#[derive(Debug)]
pub(super) struct Script {
    /// The steps by the beginning of the question.
    parts: Vec<(&'static str, Vec<Step>)>,
}

/// One reply.
#[derive(Debug, PartialEq, Eq)]
struct Step {
    name: &'static str,
    /// Has placeholders for numbers that the session printed.
    text: &'static str,
    code: &'static str,
}

impl Script {
    /// `is_recursive`: it divides the work among children.
    pub(super) fn new(language: ReplLanguage, is_recursive: bool) -> Self {
        let steps = |text: &'static str| text.split("\n## ").skip(1).map(Step::parse).collect();
        let file = match (language, is_recursive) {
            (ReplLanguage::Bash, false) => include_str!("../../demo/bash.md"),
            (ReplLanguage::Python, false) => include_str!("../../demo/python.md"),
            (ReplLanguage::Bash, true) => include_str!("../../demo/bash_recursive.md"),
            (ReplLanguage::Python, true) => include_str!("../../demo/python_recursive.md"),
        };
        let parts = match is_recursive {
            false => vec![("", steps(file))],
            true => file
                .split("\n# ")
                .skip(1)
                .map(|part| (part.split_once('\n').map_or(part, |(question, _)| question), steps(part)))
                .collect(),
        };
        Self { parts }
    }

    /// The steps for the question of a conversation.
    fn steps(&self, messages: &[ChatMessage]) -> &[Step] {
        let question = messages.iter().find(|message| message["role"] == "user").and_then(content);
        let question = question.unwrap_or_default();
        self.parts.iter().find(|(begins, _)| question.starts_with(begins)).map_or(&[], |(_, steps)| steps)
    }

    /// The next reply in a conversation.
    fn reply(&self, messages: &[ChatMessage], tool: &str) -> Json {
        let outputs = messages.iter().filter(|message| message["role"] == "tool").filter_map(content);
        let outputs: Vec<&str> = outputs.collect();
        let done = messages.iter().rfind(|message| message["role"] == "assistant");
        let Some(step) = next(self.steps(messages), done, outputs.last().copied().unwrap_or_default()) else {
            return json!({"role": "assistant", "content": "My script ends here."});
        };
        let text = step.text(&numbers(&outputs));
        let arguments = json!({"code": step.code}).to_string();
        let function = json!({"name": tool, "arguments": arguments});
        let call = json!({"id": format!("call_{}", step.name.replace(' ', "_")), "type": "function", "function": function});
        json!({"role": "assistant", "content": text, "tool_calls": [call]})
    }
}

/// The step after the last one. The correction is skipped if the session did not report the mistake.
fn next<'a>(steps: &'a [Step], last_reply: Option<&ChatMessage>, last_output: &str) -> Option<&'a Step> {
    let Some(reply) = last_reply else { return steps.first() };
    let arguments = reply["tool_calls"][0]["function"]["arguments"].as_str()?;
    let arguments: Json = serde_json::from_str(arguments).ok()?;
    let at = steps.iter().position(|step| arguments["code"] == step.code)?;
    let failed = COMPLAINTS.iter().any(|complaint| last_output.contains(complaint));
    let skipped = usize::from(steps[at].name == MISTAKE && !failed);
    steps.get(at + 1 + skipped)
}

fn content(message: &ChatMessage) -> Option<&str> {
    message["content"].as_str()
}

/// The last number printed after each word and a colon.
fn numbers<'a>(outputs: &[&'a str]) -> BTreeMap<&'a str, &'a str> {
    let lines = outputs.iter().flat_map(|output| output.lines());
    let number = |line: &'a str| {
        let (word, number) = line.split_once(": ")?;
        number.parse::<u64>().is_ok().then_some((word, number))
    };
    lines.filter_map(number).collect()
}

impl Step {
    fn parse(section: &'static str) -> Self {
        let (name, rest) = section.split_once('\n').expect("a heading has a line");
        let (text, rest) = rest.split_once("\n```\n").expect("a step has code");
        let (code, _) = rest.split_once("```").expect("code has an end");
        Self { name, text: text.trim(), code }
    }

    /// The text with the numbers filled in; a missing one is a question mark.
    fn text(&self, numbers: &BTreeMap<&str, &str>) -> String {
        let mut parts = self.text.split('{');
        let mut text = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let (hole, after) = part.split_once('}').expect("a brace is closed");
            text += numbers.get(hole).copied().unwrap_or("?");
            text += after;
        }
        text
    }
}

impl RootModel for Script {
    fn name(&self) -> &str {
        "scripted-root-model"
    }

    fn complete<'a>(&'a self, request: ChatRequest<'a>) -> ModelFuture<'a> {
        let tool =
            request.tools.first().and_then(|tool| tool["function"]["name"].as_str()).unwrap_or_default();
        let message = self.reply(request.messages, tool);
        let tokens = |text: &str| u64::try_from(text.len()).unwrap_or(u64::MAX) / TOKEN_CHARS;
        let prompt_tokens = request.messages.iter().map(|message| tokens(&message.to_string())).sum();
        let finish_reason = if message.get("tool_calls").is_some() { "tool_calls" } else { "stop" };
        let completion_tokens = tokens(&message.to_string());
        let mut reply = ChatReply::new(
            message,
            Usage { is_estimated: true, ..Usage::new(prompt_tokens, completion_tokens) },
        );
        reply.finish_reason = Some(finish_reason.to_owned());
        Box::pin(async { Ok(reply) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output(text: &str) -> ChatMessage {
        json!({"role": "tool", "tool_call_id": "c", "content": text}).into()
    }

    /// The replies to these outputs, in order.
    fn run(language: ReplLanguage, outputs: &[&str]) -> Vec<ChatMessage> {
        let script = Script::new(language, false);
        let mut messages: Vec<ChatMessage> = vec![
            json!({"role": "system", "content": "s"}).into(),
            json!({"role": "user", "content": "q"}).into(),
        ];
        for text in outputs {
            messages.push(script.reply(&messages, "call").into());
            messages.push(output(text));
        }
        messages.push(script.reply(&messages, "call").into());
        messages.into_iter().filter(|message| message["role"] == "assistant").collect()
    }

    fn ids(replies: &[ChatMessage]) -> Vec<&str> {
        replies.iter().map(|reply| reply["tool_calls"][0]["id"].as_str().unwrap_or("none")).collect()
    }

    #[test]
    fn a_mistake_is_corrected_if_the_session_reports_it() {
        for language in [ReplLanguage::Bash, ReplLanguage::Python] {
            let failed = ["", "", "RuntimeError: prompts must be …", "", "", ""];
            assert_eq!(
                ids(&run(language, &failed)),
                [
                    "call_look",
                    "call_filter",
                    "call_ask",
                    "call_ask_again",
                    "call_combine",
                    "call_answer",
                    "none"
                ]
            );
            let went_well = ["", "", "", ""];
            assert_eq!(
                ids(&run(language, &went_well)),
                ["call_look", "call_filter", "call_ask", "call_combine", "call_answer"]
            );
        }
    }

    #[test]
    fn texts_contain_the_numbers_that_the_session_printed() {
        let replies = run(ReplLanguage::Bash, &["total: 7\n", "letters: 3\nbrakes: 2\n"]);
        assert!(replies[1]["content"].as_str().unwrap().contains(": 7 bytes"), "{:?}", replies[1]);
        assert!(replies[2]["content"].as_str().unwrap().starts_with("2 of 3 letters"), "{:?}", replies[2]);
        let replies = run(ReplLanguage::Bash, &["nothing"]);
        assert!(
            replies[1]["content"].as_str().unwrap().contains(": ? bytes"),
            "a missing number is not invented"
        );
    }
}
