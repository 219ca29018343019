//! The calls in replies of the root model.

use std::collections::HashSet;

use rlm_core::text::cut;
use rlm_rootd::Tool;
use rlm_rootd::{call_arguments, message_text};
use serde_json::{Map, Value as Json, json};

use crate::prompts::CallFault;
use crate::terms::ReplLanguage;

/// Name of the REPL's argument.
const CODE: &str = "code";

/// Largest code of one call, in bytes.
const MAX_CODE_BYTES: usize = 1 << 20;

/// Longest quotation of a model's reply in an error, in characters.
const QUOTED_CHARS: usize = 200;

/// A reply of the root model, and the calls in it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ParsedReply {
    /// The reply as stored in the conversation: each call has an id and JSON arguments.
    pub(super) message: Json,
    /// The calls in order.
    pub(super) calls: Vec<Call>,
}

/// One call.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Call {
    pub(super) id: String,
    /// True for a tool call, false for code in the reply's text.
    pub(super) is_tool_call: bool,
    pub(super) target: CallTarget,
}

/// The target of a call.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum CallTarget {
    /// Code.
    Code(String),
    /// A standard tool, with the call in OpenAI's form.
    Tool { name: String, call: Json },
    /// A call that cannot be read.
    Malformed { tool: String, fault: CallFault },
}

/// The tools that the model may call.
#[derive(Clone, Debug)]
pub(super) struct CallableTools {
    pub(super) language: ReplLanguage,
    /// Name of the REPL as a tool.
    pub(super) repl: &'static str,
    /// Names of standard tools.
    pub(super) tools: Vec<String>,
}

impl CallableTools {
    pub(super) fn new(language: ReplLanguage, tools: &[Tool]) -> Self {
        let tools = tools.iter().map(|tool| tool.name().to_owned()).collect();
        Self { language, repl: language.tool_name(), tools }
    }

    /// Parses a reply. `turn` goes into the ids of calls that have none.
    pub(super) fn read(&self, reply: Json, turn: u32) -> ParsedReply {
        let text = message_text(&reply).unwrap_or_default();
        let Json::Object(mut message) = reply else {
            return ParsedReply { message: reply, calls: Vec::new() };
        };
        message.insert("role".to_owned(), "assistant".into());
        // Some servers refuse to get their own reasoning fields back, and all require `content`.
        message.retain(|field, _| matches!(field.as_str(), "role" | "content" | "tool_calls"));
        message.entry("content").or_insert(Json::Null);
        let listed = match message.get_mut("tool_calls") {
            Some(Json::Array(listed)) => std::mem::take(listed),
            _ => Vec::new(),
        };
        if listed.is_empty() {
            message.shift_remove("tool_calls");
            let calls = self.in_text(&text, turn);
            return ParsedReply { message: message.into(), calls };
        }
        let mut ids = HashSet::new();
        let (listed, calls) =
            listed.into_iter().enumerate().map(|(at, call)| self.listed(call, turn, at, &mut ids)).unzip();
        message.insert("tool_calls".to_owned(), Json::Array(listed));
        ParsedReply { message: message.into(), calls }
    }

    /// One call, with an id that is not yet in `ids`.
    fn listed(&self, call: Json, turn: u32, at: usize, ids: &mut HashSet<String>) -> (Json, Call) {
        let id = match call.get("id").and_then(Json::as_str) {
            Some(id) if !id.is_empty() && ids.insert(id.to_owned()) => id.to_owned(),
            _ => format!("call-{turn}-{at}"),
        };
        let name = call.pointer("/function/name").and_then(Json::as_str).unwrap_or_default().to_owned();
        let arguments = arguments(&call);
        // Invalid JSON would be refused by the server when the conversation is sent back.
        let sound = arguments.as_ref().map_or_else(|_| Map::new(), Clone::clone);
        let listed = json!({
            "id": id,
            "type": "function",
            "function": {"name": name, "arguments": Json::Object(sound).to_string()},
        });
        let malformed = |fault| CallTarget::Malformed { tool: shortened(&name), fault };
        let target = match arguments {
            _ if !self.names().contains(&name.as_str()) => malformed(CallFault::UnknownTool),
            Err(fault) => malformed(fault),
            Ok(arguments) if name == self.repl => self.code(&arguments),
            Ok(_) => CallTarget::Tool { name, call: listed.clone() },
        };
        (listed, Call { id, is_tool_call: true, target })
    }

    fn code(&self, arguments: &Map<String, Json>) -> CallTarget {
        match arguments.get(CODE) {
            Some(Json::String(code)) => self.sized(code.clone()),
            Some(_) => self.malformed(CallFault::NotAString(CODE.to_owned())),
            None => self.malformed(CallFault::Missing(CODE.to_owned())),
        }
    }

    fn sized(&self, code: String) -> CallTarget {
        if code.len() <= MAX_CODE_BYTES {
            return CallTarget::Code(code);
        }
        self.malformed(CallFault::TooLarge { bytes: code.len() as u64, limit: MAX_CODE_BYTES as u64 })
    }

    fn malformed(&self, fault: CallFault) -> CallTarget {
        CallTarget::Malformed { tool: self.repl.to_owned(), fault }
    }

    /// All names, the REPL first.
    pub(super) fn names(&self) -> Vec<&str> {
        std::iter::once(self.repl).chain(self.tools.iter().map(String::as_str)).collect()
    }

    /// The code in fenced blocks of a text, for models without tool calls. All blocks form one call.
    fn in_text(&self, text: &str, turn: u32) -> Vec<Call> {
        let tags: &[&str] = match self.language {
            ReplLanguage::Bash => &["bash", "sh", "shell", "repl"],
            ReplLanguage::Python => &["python", "py", "python3", "repl"],
        };
        let target = match fenced(text, tags) {
            Fenced::Nothing => return Vec::new(),
            Fenced::Code(code) => self.sized(code),
            Fenced::Open => self.malformed(CallFault::OpenBlock),
        };
        vec![Call { id: format!("text-{turn}"), is_tool_call: false, target }]
    }
}

fn arguments(call: &Json) -> Result<Map<String, Json>, CallFault> {
    let text = call_arguments(call);
    match serde_json::from_str(&text) {
        Ok(Json::Object(arguments)) => Ok(arguments),
        Ok(_) => Err(CallFault::NotAnObject(shortened(&text))),
        Err(error) => Err(CallFault::NotJson(format!("{error} in {:?}", shortened(&text)))),
    }
}

#[derive(Debug, PartialEq)]
enum Fenced {
    Nothing,
    Code(String),
    /// The last block is not closed.
    Open,
}

/// The contents of the fenced blocks of a text that have one of these tags.
fn fenced(text: &str, tags: &[&str]) -> Fenced {
    let mut code = String::new();
    // Length of the open fence, and whether its tag is one of these.
    let mut open: Option<(usize, bool)> = None;
    let mut found = false;
    for line in text.split_inclusive('\n') {
        let trimmed = line.trim();
        let ticks = trimmed.bytes().take_while(|byte| *byte == b'`').count();
        match open {
            Some((fence, is_ours)) if ticks >= fence && trimmed.len() == ticks => {
                open = None;
                found |= is_ours;
            }
            Some((_, true)) => code.push_str(&line.replace("\r\n", "\n")),
            Some((_, false)) => {}
            None if ticks >= 3 => {
                let tag = trimmed[ticks..].trim().to_ascii_lowercase();
                open = Some((ticks, tags.contains(&tag.as_str())));
                if !code.is_empty() && !code.ends_with('\n') {
                    code.push('\n');
                }
            }
            None => {}
        }
    }
    match open {
        Some((_, true)) => Fenced::Open,
        _ if found => Fenced::Code(code),
        _ => Fenced::Nothing,
    }
}

fn shortened(text: &str) -> String {
    cut(text, QUOTED_CHARS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bash() -> CallableTools {
        CallableTools { language: ReplLanguage::Bash, repl: "call_bash_repl", tools: vec!["look".to_owned()] }
    }

    fn reply(calls: Json) -> Json {
        json!({"role": "assistant", "content": null, "reasoning": "hm", "tool_calls": calls})
    }

    fn function(name: &str, arguments: Json) -> Json {
        json!({"id": "a", "type": "function", "function": {"name": name, "arguments": arguments}})
    }

    #[track_caller]
    fn one(call: Json) -> CallTarget {
        let asked = bash().read(reply(json!([call])), 1);
        assert_eq!(asked.calls.len(), 1);
        asked.calls[0].target.clone()
    }

    #[track_caller]
    fn fault(call: Json) -> CallFault {
        match one(call) {
            CallTarget::Malformed { fault, .. } => fault,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn code_comes_as_json_text_or_as_json() {
        let code = CallTarget::Code("ls\n".to_owned());
        assert_eq!(one(function("call_bash_repl", r#"{"code": "ls\n"}"#.into())), code);
        assert_eq!(one(function("call_bash_repl", json!({"code": "ls\n", "why": 1}))), code);
    }

    #[test]
    fn malformed_calls_are_named_and_go_back_as_json() {
        let name = "call_bash_repl";
        let words = r#"EOF while parsing a string at line 1 column 12 in "{\"code\": \"ls""#;
        let cut = r#"{"code": "ls"#;
        assert_eq!(fault(function(name, cut.into())), CallFault::NotJson(words.to_owned()));
        assert_eq!(fault(function(name, "[1]".into())), CallFault::NotAnObject("[1]".to_owned()));
        assert_eq!(fault(function(name, json!(3))), CallFault::NotAnObject("3".to_owned()));
        let missing = CallFault::Missing(CODE.to_owned());
        assert_eq!(fault(function(name, Json::Null)), missing);
        assert_eq!(fault(function(name, json!({"cmd": "ls"}))), missing);
        assert_eq!(fault(function(name, json!({"code": ["ls"]}))), CallFault::NotAString(CODE.to_owned()));
        assert_eq!(fault(function("python", json!({"code": "1"}))), CallFault::UnknownTool);
        assert_eq!(fault(json!("ls")), CallFault::UnknownTool);
        let large = json!({"code": "x".repeat(MAX_CODE_BYTES + 1)});
        assert_eq!(fault(function(name, large)), CallFault::TooLarge { bytes: 1048577, limit: 1048576 });
        let asked = bash().read(reply(json!([function(name, r#"{"code"#.into())])), 1);
        assert_eq!(
            asked.message,
            json!({"role": "assistant", "content": null, "tool_calls": [function(name, "{}".into())]})
        );
    }

    #[test]
    fn calls_without_an_id_get_one_each() {
        let mut call = function("look", json!({"at": 1}));
        call["id"] = Json::Null;
        let asked = bash().read(reply(json!([call, call])), 7);
        let ids: Vec<_> = asked.calls.iter().map(|call| call.id.as_str()).collect();
        assert_eq!(ids, ["call-7-0", "call-7-1"]);
        let twice = bash().read(reply(json!([function("look", json!({})), function("look", json!({}))])), 7);
        assert_eq!([twice.calls[0].id.as_str(), twice.calls[1].id.as_str()], ["a", "call-7-1"]);
        assert_eq!(asked.message["tool_calls"][1]["id"], "call-7-1");
        assert!(matches!(&asked.calls[0].target, CallTarget::Tool { name, .. } if name == "look"));
    }

    #[test]
    fn code_in_text_is_one_call_of_all_its_blocks() {
        let read = |text: &str| {
            let asked = bash().read(json!({"role": "assistant", "content": text}), 2);
            assert_eq!(asked.message, json!({"role": "assistant", "content": text}));
            asked.calls
        };
        let calls = read("First\n```bash\nls\n```\nthen\n````sh\necho '```'\n```\n````\n```python\n1\n```\n");
        assert_eq!(
            calls,
            [Call {
                id: "text-2".to_owned(),
                is_tool_call: false,
                target: CallTarget::Code("ls\necho '```'\n```\n".to_owned())
            }]
        );
        let lines_of_windows = CallTarget::Code("ls\n".to_owned());
        assert_eq!(read("```bash\r\nls\r\n```\r\n")[0].target, lines_of_windows);
        assert_eq!(read("no code, and `ls` alone"), []);
        assert_eq!(read("```\nls\n```"), []);
        assert!(matches!(&read("```repl\nls\n```\n```repl\nls")[0].target, CallTarget::Malformed { .. }));
    }

    #[test]
    fn tool_calls_win_over_code_in_text() {
        let mut said = reply(json!([function("call_bash_repl", json!({"code": "a"}))]));
        said["content"] = "```bash\nb\n```".into();
        let asked = bash().read(said, 1);
        assert_eq!(asked.calls.len(), 1);
        assert_eq!(asked.calls[0].target, CallTarget::Code("a".to_owned()));
    }
}
