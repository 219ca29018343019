//! Messages of models, in OpenAI's form.

use std::borrow::Cow;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use serde::{Serialize, Serializer};
use serde_json::value::RawValue;
use serde_json::{Map, Value as Json};

use super::api::Api;
use super::estimate::{PER_MESSAGE, fields_tokens, image_urls, is_data_url, message_tokens, text_bytes};
use super::forms::{thoughts, without_repeated_thoughts, without_thoughts};
use super::reply_end::ReplyEnd;

/// A message of a conversation in OpenAI's form, with its JSON text, so that a long conversation is not written again for each
/// request. Clones share both.
#[derive(Clone)]
pub struct ChatMessage(Arc<Written>);

struct Written {
    json: Json,
    text: Box<RawValue>,
    tokens: u64,
    translated: OnceLock<(Form, Vec<Part>)>,
}

/// The form in which an interface other than chat completions takes messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Form {
    pub(super) api: Api,
    /// True if a reply's own parts are sent back.
    pub(super) has_native: bool,
}

/// An item or a block that a message becomes in another interface.
#[derive(Clone, Debug)]
pub(super) struct Part {
    pub(super) text: Box<RawValue>,
    pub(super) is_tool_result: bool,
}

impl From<Json> for Part {
    fn from(json: Json) -> Self {
        Self { text: written(&json), is_tool_result: json["type"] == "tool_result" }
    }
}

fn written(json: &Json) -> Box<RawValue> {
    serde_json::value::to_raw_value(json).expect("JSON can be written")
}

impl ChatMessage {
    /// Tokens of the message, as estimated.
    pub(super) fn tokens(&self) -> u64 {
        self.0.tokens
    }

    /// Length of the message as it is sent, in bytes; an image counts as a text of as many tokens.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        text_bytes(self, self.0.text.get())
    }

    /// A number by which the message is known again.
    pub(super) fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.0.text.get().hash(&mut hasher);
        hasher.finish()
    }

    /// True if the message has images with their data.
    #[must_use]
    pub fn has_images(&self) -> bool {
        image_urls(self).any(is_data_url)
    }

    /// The parts of the message in another interface. They are kept for the first form that is asked for.
    pub(super) fn parts(&self, form: Form, translate: impl Fn(&Json, Form) -> Vec<Json>) -> Cow<'_, [Part]> {
        let make = || translate(self, form).into_iter().map(Part::from).collect();
        match self.0.translated.get_or_init(|| (form, make())) {
            (kept, parts) if *kept == form => parts.into(),
            _ => make().into(),
        }
    }
}

impl From<Json> for ChatMessage {
    fn from(json: Json) -> Self {
        let (tokens, text, translated) = (message_tokens(&json), written(&json), OnceLock::new());
        Self(Arc::new(Written { json, text, tokens, translated }))
    }
}

impl Deref for ChatMessage {
    type Target = Json;

    fn deref(&self) -> &Json {
        &self.0.json
    }
}

impl Serialize for ChatMessage {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.text.serialize(serializer)
    }
}

impl fmt::Debug for ChatMessage {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.json.fmt(formatter)
    }
}

impl PartialEq for ChatMessage {
    fn eq(&self, other: &Self) -> bool {
        self.0.json == other.0.json
    }
}

/// Tokens of a request's prompt: its messages, and other fields such as tools and schemas.
pub(super) fn prompt_tokens(messages: &[ChatMessage], fields: &Map<String, Json>) -> u64 {
    let of_messages: u64 = messages.iter().map(ChatMessage::tokens).sum();
    PER_MESSAGE + of_messages + fields_tokens(fields)
}

/// Types of content parts that hold the text of a message. Parts of other types, such as reasoning, are shown to nobody.
const TEXT_PARTS: [&str; 3] = ["text", "input_text", "output_text"];

/// The text of a message, whose `content` is text or a list of parts that may have some. None: it is of another type.
#[must_use]
pub fn message_text(message: &Json) -> Option<String> {
    match message.get("content") {
        None | Some(Json::Null) => Some(String::new()),
        Some(Json::String(text)) => Some(text.clone()),
        Some(Json::Array(parts)) => Some(texts(parts).collect()),
        Some(_) => None,
    }
}

/// The texts in the parts of a content.
fn texts(parts: &[Json]) -> impl Iterator<Item = &str> {
    let is_text = |part: &&Json| part["type"].as_str().is_none_or(|kind| TEXT_PARTS.contains(&kind));
    parts.iter().filter(is_text).filter_map(|part| part.get("text")?.as_str())
}

/// True for a reply without text, calls and a refusal. It may have reasoning. Nothing is copied: each request asks this of each reply.
pub(super) fn says_nothing(reply: &Json) -> bool {
    let has_calls = reply["tool_calls"].as_array().is_some_and(|calls| !calls.is_empty());
    reply["role"] == "assistant"
        && !has_calls
        && !reply["function_call"].is_object()
        && !reply["refusal"].is_string()
        && match reply.get("content") {
            None | Some(Json::Null) => true,
            Some(Json::String(text)) => text.trim().is_empty(),
            Some(Json::Array(parts)) => texts(parts).all(|text| text.trim().is_empty()),
            Some(_) => false,
        }
}

/// The text of a reply, without thoughts. Where reasoning came apart from it, most marks of thoughts in it are text. `finish_reason` is
/// the reason why the reply ended, where that is known.
#[must_use]
pub fn reply_text(message: &Json, finish_reason: Option<&str>) -> Option<String> {
    let text = message_text(message)?;
    if repeats_thought(message, finish_reason) {
        return Some(String::new());
    }
    let is_apart = reasoning_apart(message).is_some();
    let without = if is_apart { without_repeated_thoughts(&text) } else { without_thoughts(&text) };
    if without.len() == text.len() {
        return Some(text);
    }
    Some(without.into_owned())
}

/// The readable reasoning of a reply, to show; None if it has none. Signatures and encrypted reasoning are never a part of it.
#[must_use]
pub fn reasoning_text(message: &Json) -> Option<String> {
    reasoning_apart(message).or_else(|| Some(thoughts(&message_text(message)?)?.trim().to_owned()))
}

/// True for a reply that was cut off within its thought, if the server has sent the thought again as the text (jundot/omlx#2457).
#[must_use]
pub fn repeats_thought(message: &Json, finish_reason: Option<&str>) -> bool {
    ReplyEnd::of(finish_reason).is_cut()
        && reasoning_apart(message)
            .is_some_and(|thought| message_text(message).is_some_and(|text| text.trim() == thought))
}

/// The readable reasoning beside the text of a reply. Servers put it into fields of their own or into blocks; the first of these
/// places that has any counts, since some repeat it in a second one.
fn reasoning_apart(message: &Json) -> Option<String> {
    let text = |field: &str| Some(message.get(field)?.as_str()?.to_owned());
    let blocks = |field: &str, read: fn(&Json) -> Option<String>| {
        let blocks = message.get(field)?.as_array()?.iter().filter_map(read);
        Some(blocks.filter(|text| !text.trim().is_empty()).collect::<Vec<_>>().join("\n\n"))
    };
    let places: [&dyn Fn() -> Option<String>; 5] = [
        // DeepSeek and most others, and our own translations of Anthropic's and OpenAI's blocks.
        &|| text("reasoning_content"),
        // vLLM, OpenRouter.
        &|| text("reasoning"),
        &|| blocks("reasoning_details", reasoning_detail),
        // LiteLLM.
        &|| blocks("thinking_blocks", thinking_block),
        // Mistral.
        &|| blocks("content", thinking_block),
    ];
    let found = places.iter().filter_map(|place| place()).find(|text| !text.trim().is_empty())?;
    Some(found.trim().to_owned())
}

/// The text of an item of `reasoning_details`, of OpenRouter. Other items are encrypted.
fn reasoning_detail(item: &Json) -> Option<String> {
    let field = match item.get("type")?.as_str()? {
        "reasoning.text" => "text",
        "reasoning.summary" => "summary",
        _ => return None,
    };
    Some(item.get(field)?.as_str()?.to_owned())
}

/// The text of a block of thinking: a text, or a list of parts.
fn thinking_block(block: &Json) -> Option<String> {
    let thinking = block.get("thinking").filter(|_| block["type"] == "thinking")?;
    match thinking {
        Json::String(text) => Some(text.clone()),
        Json::Array(parts) => Some(parts.iter().filter_map(|part| part.get("text")?.as_str()).collect()),
        _ => None,
    }
}

/// A message as a reply in a conversation: its role becomes `assistant`.
pub(super) fn as_reply(mut message: Json) -> Json {
    if let Some(fields) = message
        .as_object_mut()
        .filter(|fields| fields.get("role").and_then(Json::as_str) != Some("assistant"))
    {
        fields.insert("role".to_owned(), "assistant".into());
    }
    message
}

/// The words with which a model, or a filter of its server, refused; None if neither did. `finish_reason` is the reason why the
/// reply ended.
#[must_use]
pub fn refusal(message: &Json, finish_reason: Option<&str>) -> Option<String> {
    let words = message.get("refusal").and_then(Json::as_str).filter(|words| !words.trim().is_empty());
    let words = words.or(match ReplyEnd::of(finish_reason) {
        ReplyEnd::Refused => Some("the model refused to answer"),
        ReplyEnd::Filtered => Some("a content filter of the server cut the reply"),
        _ => None,
    });
    words.map(str::to_owned)
}

/// The arguments of a tool call, as JSON text: an empty object where there are none. Some servers give JSON in the place of
/// its text.
#[must_use]
pub fn call_arguments(call: &Json) -> Cow<'_, str> {
    match call.pointer("/function/arguments") {
        None | Some(Json::Null) => "{}".into(),
        Some(Json::String(text)) if text.trim().is_empty() => "{}".into(),
        Some(Json::String(text)) => text.into(),
        Some(other) => other.to_string().into(),
    }
}

/// Gives a call with broken arguments an empty object. False if it has none.
pub(super) fn mend_arguments(call: &mut Json) -> bool {
    let is_broken = has_broken_arguments(call);
    if let Some(Json::Object(function)) = call.get_mut("function").filter(|_| is_broken) {
        function.insert("arguments".to_owned(), "{}".into());
    }
    is_broken
}

/// True for a name that every server takes.
pub(super) fn is_plain_name(name: &str) -> bool {
    (1..=64).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte))
}

/// True for a call whose arguments are no JSON object, as they came. Calls without any may have an empty text.
pub(super) fn has_broken_arguments(call: &Json) -> bool {
    match call.pointer("/function/arguments") {
        Some(Json::String(text)) => serde_json::from_str::<Map<String, Json>>(text).is_err(),
        arguments => !arguments.is_some_and(Json::is_object),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn content_is_text_or_parts() {
        let text = |content: Json| message_text(&json!({ "content": content }));
        assert_eq!(text(json!("a")).as_deref(), Some("a"));
        assert_eq!(text(json!([{"text": "a"}, {"type": "image_url"}, {"text": "b"}])).as_deref(), Some("ab"));
        for kind in ["reasoning", "thinking", "redacted_thinking", "reasoning_text", "thought"] {
            let parts = json!([{"type": kind, "text": "```bash\nrm x\n```"}, {"type": "text", "text": "a"}]);
            assert_eq!(text(parts).as_deref(), Some("a"), "{kind}");
        }
        assert_eq!([text(Json::Null), message_text(&json!({}))], [Some(String::new()), Some(String::new())]);
        assert_eq!(text(json!(3)), None);
    }

    #[test]
    fn arguments_are_json_text_in_every_form() {
        let arguments = |given: Json| call_arguments(&json!({"function": {"arguments": given}})).into_owned();
        let given = [json!(r#"{"a": 1}"#), json!({"a": 1}), json!(" "), Json::Null, json!([1])];
        assert_eq!(given.map(arguments), [r#"{"a": 1}"#, r#"{"a":1}"#, "{}", "{}", "[1]"]);
    }

    #[test]
    fn reasoning_is_read_wherever_servers_put_it() {
        const SECRET: &str = "SECRET";
        let places = [
            json!({"reasoning_content": " Hm. \n"}),
            json!({"reasoning_content": "", "reasoning": "Hm."}),
            json!({"reasoning_content": "Hm.", "reasoning": "Other", "content": "<think>Other</think>"}),
            json!({"reasoning_details": [
                {"type": "reasoning.encrypted", "data": SECRET},
                {"type": "reasoning.text", "text": "Hm.", "signature": SECRET},
            ]}),
            json!({"reasoning": null, "reasoning_details": [{"type": "reasoning.summary", "summary": "Hm."}]}),
            json!({"thinking_blocks": [
                {"type": "thinking", "thinking": "Hm.", "signature": SECRET},
                {"type": "redacted_thinking", "data": SECRET},
            ]}),
            json!({"content": [
                {"type": "thinking", "thinking": [{"type": "text", "text": "H"}, {"type": "text", "text": "m."}]},
                {"type": "text", "text": "Done."},
            ]}),
            json!({"content": [{"type": "thinking", "thinking": "Hm.", "signature": SECRET}]}),
            json!({"content": "<think>\nHm.\n</think>\nDone."}),
            json!({"content": [{"type": "text", "text": "<think>Hm.</think>Done."}]}),
        ];
        for message in places {
            assert_eq!(reasoning_text(&message).as_deref(), Some("Hm."), "{message}");
        }
        let two = json!({"reasoning_details": [
            {"type": "reasoning.summary", "summary": "One"}, {"type": "reasoning.summary", "summary": "Two"},
        ]});
        assert_eq!(reasoning_text(&two).as_deref(), Some("One\n\nTwo"));
    }

    #[test]
    fn marks_of_thoughts_are_text_where_reasoning_came_apart() {
        let text = |mut message: Json, content: &str| {
            message["content"] = content.into();
            reply_text(&message, None).unwrap()
        };
        for (content, alone) in [
            ("Use <think> tags.", "Use "),
            ("See </think> in line 9.", " in line 9."),
            ("<think>Hm.</think>Done.", "Done."),
            ("\n<THINK a=1>Hm.</think>Done.", "\nDone."),
        ] {
            assert_eq!(text(json!({}), content), alone);
            let apart = if content.trim().starts_with('<') { alone } else { content };
            assert_eq!(text(json!({"reasoning_content": "Hm."}), content), apart);
        }
    }

    #[test]
    fn the_rest_of_a_thought_that_a_server_has_split_too_early_is_not_text() {
        let text = |content: &str| {
            reply_text(&json!({"reasoning_content": "The parser looks for `", "content": content}), None)
                .unwrap()
        };
        for (content, answer) in [
            // ggml-org/llama.cpp#27661
            (" in line 9.\n</think>\n\nLine 9.", "Line 9."),
            ("</think>\n\nParis", "Paris"),
            ("\n</THINK>\n\nParis", "Paris"),
            // Vali-98/ChatterUI#503: GLM
            (" in line 9.</think>\nLine 9.\n\nIt has `</think>`.", "Line 9.\n\nIt has `</think>`."),
            (" so:\n```bash\nrm x\n```\nNo.\n</think>\n\nNothing.", "Nothing."),
            ("still in thoughts.\n</think>", ""),
        ] {
            assert_eq!(text(content), answer);
        }
        for answer in [
            "It ends with `</think>`.",
            "It ends with </think> there.",
            "Models write \"</think>\"\nat the end.",
            "DeepSeek's prompt ends so:\n```\n<｜Assistant｜></think>\n```",
            "A thought:\n<think>\nHm.\n</think>\nDone.",
            "End the list [1, 2] < 3.",
        ] {
            assert_eq!(text(answer), answer);
        }
    }

    #[test]
    fn what_is_not_readable_reasoning_is_none() {
        let odd = [
            json!({}),
            json!(null),
            json!({"content": "Done."}),
            json!({"content": 3, "reasoning": {"effort": "high"}, "reasoning_content": 3}),
            json!({"reasoning_details": [{"type": "reasoning.encrypted", "data": "x"}, {"text": "x"}, 3]}),
            json!({"thinking_blocks": [{"type": "redacted_thinking", "data": "x"}, {"thinking": "x"}]}),
            json!({"content": [{"type": "thinking", "thinking": []}, {"type": "thinking", "thinking": 3}]}),
            json!({"anthropic": {"content": [{"type": "thinking", "thinking": "", "signature": "x"}]}}),
        ];
        for message in odd {
            assert_eq!(reasoning_text(&message), None, "{message}");
        }
    }
}
