//! The calls in replies of the root model.
//!
//! A reply is kept as it came, and the calls read from it are kept beside it. The forms of calls that servers and models write
//! are in `rlm_rootd::written_calls` and its neighbours.

use std::collections::HashSet;

use rlm_core::text::cut;
use rlm_rootd::{
    ArgumentsFault, Fenced, ReplyEnd, Tool, WrittenCall, arguments, call_arguments, fenced, message_text,
    new_call_id, refusal, repeats_thought, reply_text, tool_named, without_thoughts, written_calls,
};
use serde_json::{Map, Value as Json, json};

use crate::prompts::{CallFault, NoCallReason};
use crate::terms::ReplLanguage;

/// Name of the REPL's argument.
const CODE: &str = "code";

/// Largest code of one call, in bytes.
const MAX_CODE_BYTES: usize = 1 << 20;

/// Longest quotation of a model's reply in an error, in characters.
const QUOTED_CHARS: usize = 200;

/// Tags of fenced blocks with bash code.
const BASH_TAGS: [&str; 4] = ["bash", "sh", "shell", "repl"];

/// Tags of fenced blocks with Python code.
const PYTHON_TAGS: [&str; 4] = ["python", "py", "python3", "repl"];

/// The request that a reply of the root model makes.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum ReplyRequest {
    /// One or more calls, in order.
    Calls(Vec<Call>),
    /// Nothing that can be run.
    Nothing(NoCallReason),
}

impl ReplyRequest {
    /// True if each of its calls can be run.
    pub(super) fn can_be_run(&self) -> bool {
        let is_read = |call: &Call| !matches!(call.target, CallTarget::Malformed { .. });
        matches!(self, Self::Calls(calls) if calls.iter().all(is_read))
    }
}

/// One call.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Call {
    /// The call's id in the rollout's log: the model's, unless that is missing, empty or taken.
    pub(super) id: String,
    pub(super) form: CallForm,
    pub(super) target: CallTarget,
}

/// The form of a call. Its answer takes the same form.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum CallForm {
    /// A tool call, with its id as it came or, if it has none, ours.
    Tool(String),
    /// The only call of a reply in the older form of OpenAI's interface, with the name that it calls.
    Function(String),
    /// A call or code in the reply's text.
    Text,
}

/// The target of a call.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum CallTarget {
    /// Code.
    Code(String),
    /// A standard tool and its arguments.
    Tool { name: String, arguments: Map<String, Json> },
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

/// The text of a reply that is only text: without thoughts, and not of a reply that calls a tool, refuses or goes on.
pub(super) fn plain_text(reply: &Json, finish_reason: Option<&str>) -> Option<String> {
    let has_calls = reply["tool_calls"].as_array().is_some_and(|calls| !calls.is_empty())
        || reply["function_call"].is_object()
        || !written_calls(&message_text(reply).unwrap_or_default()).is_empty();
    let is_whole = ReplyEnd::of(finish_reason) != ReplyEnd::Paused && refusal(reply, finish_reason).is_none();
    let text = reply_text(reply, finish_reason).filter(|text| !text.trim().is_empty());
    text.filter(|_| is_whole && !has_calls)
}

impl CallableTools {
    pub(super) fn new(language: ReplLanguage, tools: &[Tool]) -> Self {
        let tools = tools.iter().map(|tool| tool.name().to_owned()).collect();
        Self { language, repl: language.tool_name(), tools }
    }

    /// Reads a reply. `turn` goes into the ids of calls that have none. Code in the text of a reply that was refused is not run.
    pub(super) fn read(&self, reply: &Json, turn: u32, finish_reason: Option<&str>) -> ReplyRequest {
        let refusal = refusal(reply, finish_reason);
        let is_cut = ReplyEnd::of(finish_reason).is_cut();
        // The fault of a call that the reply's end has cut.
        let cut = refusal.clone().map(CallFault::Refused).or_else(|| is_cut.then_some(CallFault::Cut));
        let cut = cut.as_ref();
        let listed = reply.get("tool_calls").and_then(Json::as_array).filter(|calls| !calls.is_empty());
        let calls = match (listed, reply.get("function_call").filter(|call| call.is_object())) {
            (Some(calls), _) => self.listed(calls, turn, cut),
            (None, Some(call)) => {
                let call = json!({ "function": call });
                let target = self.target(&call, cut);
                let name = call.pointer("/function/name").and_then(Json::as_str).unwrap_or_default();
                vec![Call { id: our_id(turn, 0), form: CallForm::Function(name.to_owned()), target }]
            }
            (None, None) => {
                if let Some(words) = refusal {
                    return ReplyRequest::Nothing(NoCallReason::Refused(words));
                }
                let text = message_text(reply).filter(|_| !repeats_thought(reply, finish_reason));
                let text = text.unwrap_or_default();
                match self.in_text(&text, turn, cut) {
                    Ok(calls) => calls,
                    Err(reason) => return ReplyRequest::Nothing(reason),
                }
            }
        };
        ReplyRequest::Calls(calls)
    }

    fn listed(&self, calls: &[Json], turn: u32, cut: Option<&CallFault>) -> Vec<Call> {
        let mut ids = HashSet::new();
        let call = |(at, call): (usize, &Json)| {
            let own = call.get("id").and_then(Json::as_str);
            let id = match own {
                Some(own) if !own.is_empty() && ids.insert(own.to_owned()) => own.to_owned(),
                _ => our_id(turn, at),
            };
            let form = CallForm::Tool(own.map_or_else(|| id.clone(), str::to_owned));
            Call { id, form, target: self.target(call, cut) }
        };
        calls.iter().enumerate().map(call).collect()
    }

    /// The target of a call in OpenAI's form.
    fn target(&self, call: &Json, cut: Option<&CallFault>) -> CallTarget {
        let written = call.pointer("/function/name").and_then(Json::as_str).unwrap_or_default();
        self.named(written, &call_arguments(call), cut)
    }

    fn named(&self, written: &str, text: &str, cut: Option<&CallFault>) -> CallTarget {
        let malformed = |tool: &str, fault| CallTarget::Malformed { tool: shortened(tool), fault };
        let Some(name) = tool_named(written, &self.names()) else {
            return malformed(written, CallFault::UnknownTool);
        };
        match (arguments(text), cut) {
            (Err(_), Some(cut)) => malformed(name, cut.clone()),
            // Anthropic sends an object without the argument that was cut.
            (Ok(arguments), Some(cut)) if arguments.is_empty() => malformed(name, cut.clone()),
            (Err(ArgumentsFault::NotAnObject), None) => {
                malformed(name, CallFault::NotAnObject(shortened(text)))
            }
            (Err(ArgumentsFault::NotJson(error)), None) => {
                malformed(name, CallFault::NotJson(format!("{error} in {:?}", shortened(text))))
            }
            (Ok(arguments), _) if name == self.repl => self.code(&arguments),
            (Ok(arguments), _) => CallTarget::Tool { name: name.to_owned(), arguments },
        }
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

    /// Names of all tools, the REPL first.
    pub(super) fn names(&self) -> Vec<&str> {
        std::iter::once(self.repl).chain(self.tools.iter().map(String::as_str)).collect()
    }

    /// The calls in a text: those that the server did not parse or, without any, the code of all fenced blocks as one call.
    fn in_text(&self, text: &str, turn: u32, cut: Option<&CallFault>) -> Result<Vec<Call>, NoCallReason> {
        let call = |at, target| Call { id: our_id(turn, at), form: CallForm::Text, target };
        let written = written_calls(text);
        if !written.is_empty() {
            let target = |WrittenCall { name, arguments }| self.named(&name, &arguments, cut);
            return Ok(written
                .into_iter()
                .map(target)
                .enumerate()
                .map(|(at, target)| call(at, target))
                .collect());
        }
        let (ours, others) = match self.language {
            ReplLanguage::Bash => (&BASH_TAGS, &PYTHON_TAGS),
            ReplLanguage::Python => (&PYTHON_TAGS, &BASH_TAGS),
        };
        let target = match fenced(&without_thoughts(text), ours, others) {
            Fenced::Nothing if cut.is_some() => return Err(NoCallReason::Cut),
            Fenced::Nothing => return Err(NoCallReason::NoCode),
            Fenced::OtherLanguage(tag) => return Err(NoCallReason::OtherLanguage(tag)),
            Fenced::Code(code) => self.sized(code),
            Fenced::Open => self.malformed(CallFault::OpenBlock),
        };
        Ok(vec![call(0, target)])
    }
}

fn our_id(turn: u32, at: usize) -> String {
    new_call_id(turn as usize, at)
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

    fn calls(reply: &Json) -> Vec<Call> {
        match bash().read(reply, 7, Some("stop")) {
            ReplyRequest::Calls(calls) => calls,
            ReplyRequest::Nothing(_) => Vec::new(),
        }
    }

    #[track_caller]
    fn one(call: Json) -> CallTarget {
        let calls = calls(&reply(json!([call])));
        assert_eq!(calls.len(), 1);
        calls[0].target.clone()
    }

    #[track_caller]
    fn fault(call: Json) -> CallFault {
        match one(call) {
            CallTarget::Malformed { fault, .. } => fault,
            other => panic!("{other:?}"),
        }
    }

    fn nothing(text: &str, finish_reason: &str) -> NoCallReason {
        match bash().read(&json!({"role": "assistant", "content": text}), 2, Some(finish_reason)) {
            ReplyRequest::Nothing(reason) => reason,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn code_comes_as_json_text_or_as_json() {
        let code = CallTarget::Code("ls\n".to_owned());
        assert_eq!(one(function("call_bash_repl", r#"{"code": "ls\n"}"#.into())), code);
        assert_eq!(one(function("call_bash_repl", "{\"code\": \"ls\n\"}".into())), code);
        assert_eq!(one(function("call_bash_repl", json!({"code": "ls\n", "why": 1}))), code);
        assert_eq!(one(function("functions.call_bash_repl:0", json!({"code": "ls\n"}))), code);
    }

    #[test]
    fn malformed_calls_are_named() {
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
    }

    #[test]
    fn a_call_that_was_cut_off_is_one_of_a_cut_reply() {
        let refused = |words: &str| CallFault::Refused(words.to_owned());
        for (finish_reason, fault) in [
            ("length", CallFault::Cut),
            ("MAX_TOKENS", CallFault::Cut),
            ("model_context_window_exceeded", CallFault::Cut),
            ("refusal", refused("the model refused to answer")),
            ("content_filter", refused("a content filter of the server cut the reply")),
        ] {
            for arguments in [json!(r#"{"code": "ls"#), json!({})] {
                let reply = reply(json!([function("call_bash_repl", arguments)]));
                let read = bash().read(&reply, 1, Some(finish_reason));
                let ReplyRequest::Calls(calls) = read else { panic!("{reply}") };
                let tool = "call_bash_repl".to_owned();
                assert_eq!(calls[0].target, CallTarget::Malformed { tool, fault: fault.clone() });
            }
            let whole = reply(json!([function("call_bash_repl", json!({"code": "ls"}))]));
            let ReplyRequest::Calls(calls) = bash().read(&whole, 1, Some(finish_reason)) else { panic!() };
            assert_eq!(calls[0].target, CallTarget::Code("ls".to_owned()));
        }
        assert_eq!(nothing("I think", "model_length"), NoCallReason::Cut);
        assert_eq!(nothing("I think", "stop"), NoCallReason::NoCode);
    }

    #[test]
    fn code_in_the_text_of_a_refused_reply_is_not_run() {
        let call = r#"<tool_call>{"name": "call_bash_repl", "arguments": {"code": "rm x"}}</tool_call>"#;
        for text in ["```bash\nrm x\n```\nand", call] {
            for finish_reason in ["content_filter", "SAFETY", "refusal"] {
                assert!(matches!(nothing(text, finish_reason), NoCallReason::Refused(_)));
            }
            let reply = json!({"role": "assistant", "content": text, "refusal": "No."});
            let refused = ReplyRequest::Nothing(NoCallReason::Refused("No.".to_owned()));
            assert_eq!(bash().read(&reply, 1, Some("stop")), refused);
        }
    }

    #[test]
    fn each_call_has_an_id_and_is_answered_by_its_own() {
        let mut call = function("look", json!({"at": 1}));
        let ids = |calls: &[Call]| {
            calls.iter().map(|call| (call.id.clone(), call.form.clone())).collect::<Vec<_>>()
        };
        let id = |id: &str, own: &str| (id.to_owned(), CallForm::Tool(own.to_owned()));
        let twice = calls(&reply(json!([call, call])));
        assert_eq!(ids(&twice), [id("a", "a"), id("c00007001", "a")]);
        call["id"] = "".into();
        assert_eq!(ids(&calls(&reply(json!([call])))), [id("c00007000", "")]);
        call["id"] = Json::Null;
        assert_eq!(ids(&calls(&reply(json!([call])))), [id("c00007000", "c00007000")]);
        assert!(matches!(&twice[0].target, CallTarget::Tool { name, .. } if name == "look"));
    }

    #[test]
    fn an_older_form_and_calls_in_the_text_are_calls() {
        let code = CallTarget::Code("ls".to_owned());
        let older = json!({"content": null, "function_call": {"name": "call_bash_repl", "arguments": "{\"code\": \"ls\"}"}});
        let form = CallForm::Function("call_bash_repl".to_owned());
        assert_eq!(calls(&older), [Call { id: "c00007000".to_owned(), form, target: code.clone() }]);
        let written =
            "<tool_call>{\"name\": \"call_bash_repl\", \"arguments\": {\"code\": \"ls\"}}</tool_call>";
        let text = json!({"content": format!("<think>\n```bash\nrm x\n```\n</think>{written}{written}")});
        let targets: Vec<_> = calls(&text).into_iter().map(|call| (call.form, call.target)).collect();
        assert_eq!(targets, [(CallForm::Text, code.clone()), (CallForm::Text, code)]);
    }

    #[test]
    fn code_in_text_is_one_call_of_all_its_blocks() {
        let read = |text: &str| calls(&json!({"role": "assistant", "content": text}));
        let found = read("First\n```bash\nls\n```\nthen\n````sh\necho '```'\n```\n````\n```python\n1\n```\n");
        let target = CallTarget::Code("ls\necho '```'\n```\n".to_owned());
        assert_eq!(found, [Call { id: "c00007000".to_owned(), form: CallForm::Text, target }]);
        assert_eq!(read("```bash\r\nls\r\n```\r\n")[0].target, CallTarget::Code("ls\n".to_owned()));
        assert_eq!(nothing("no code, and `ls` alone", "stop"), NoCallReason::NoCode);
        assert_eq!(nothing("```\nls\n```", "stop"), NoCallReason::NoCode);
        assert_eq!(nothing("```python\n1\n```", "stop"), NoCallReason::OtherLanguage("python".to_owned()));
        assert_eq!(nothing("<think>```bash\nls\n```</think>", "stop"), NoCallReason::NoCode);
        assert!(matches!(&read("```repl\nls\n```\n```repl\nls")[0].target, CallTarget::Malformed { .. }));
    }

    #[test]
    fn tool_calls_win_over_code_in_text() {
        let mut said = reply(json!([function("call_bash_repl", json!({"code": "a"}))]));
        said["content"] = "```bash\nb\n```".into();
        let found = calls(&said);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].target, CallTarget::Code("a".to_owned()));
    }
}
