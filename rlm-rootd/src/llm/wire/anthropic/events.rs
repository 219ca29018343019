//! Replies in pieces.

use serde_json::{Map, Value as Json, json};

use crate::llm::reply::count;
use crate::llm::wire::pieces::{is_told, replace};

/// Counts of the tokens of a prompt that are not in `input_tokens`.
const CACHED: [&str; 2] = ["cache_read_input_tokens", "cache_creation_input_tokens"];

/// Events of a stream, joined to the message that the server would send whole.
#[derive(Debug, Default)]
pub(in crate::llm::wire) struct Events {
    /// The message without its blocks.
    message: Map<String, Json>,
    blocks: Vec<Block>,
    has_stopped: bool,
}

/// A content block, as far as it has arrived.
#[derive(Debug)]
struct Block {
    index: Json,
    fields: Map<String, Json>,
    /// JSON text of the block's input; empty if none has arrived.
    input: String,
    has_stopped: bool,
}

impl Events {
    /// Adds the data of an event. An event of an unknown type is ignored.
    pub(in crate::llm::wire) fn add(&mut self, event: Json) {
        let Json::Object(mut event) = event else { return };
        let kind = event.shift_remove("type").unwrap_or_default();
        match kind.as_str() {
            Some("message_start") => self.start(event),
            Some("content_block_start") => self.start_block(event),
            Some("content_block_delta") => {
                let index = event.get("index").cloned().unwrap_or_default();
                let delta = event.get("delta").unwrap_or(&Json::Null);
                if !self.blocks.iter().any(|block| block.index == index) {
                    self.blocks.extend(Block::begun_by(delta, &index));
                }
                if let Some(block) = self.blocks.iter_mut().rev().find(|block| block.index == index) {
                    block.add(delta);
                }
            }
            Some("content_block_stop") => {
                let mut blocks = self.blocks.iter_mut();
                if let Some(block) = blocks.rfind(|block| Some(&block.index) == event.get("index")) {
                    block.has_stopped = true;
                }
            }
            Some("message_delta") => self.change(event),
            Some("message_stop") => self.has_stopped = true,
            _ => {}
        }
    }

    fn start(&mut self, mut event: Map<String, Json>) {
        if let Some(Json::Object(message)) = event.shift_remove("message") {
            self.message = message;
        }
    }

    fn start_block(&mut self, mut event: Map<String, Json>) {
        let Some(Json::Object(fields)) = event.shift_remove("content_block") else { return };
        // Another model continues the reply, and the whole message has that model's name.
        if fields.get("type").is_some_and(|kind| kind == "fallback")
            && let Some(model) = fields.get("to").and_then(|to| to.get("model"))
        {
            replace(&mut self.message, "model".to_owned(), model.clone());
        }
        let index = event.shift_remove("index").unwrap_or_default();
        self.blocks.push(Block { index, fields, input: String::new(), has_stopped: false });
    }

    /// Replaces fields of the message. Token counts are totals; one of 0 replaces none (envoyproxy/ai-gateway#1631). Tokens of the
    /// cache that are told only now were counted as input before (DashScope, jeremychone/rust-genai#258).
    fn change(&mut self, mut event: Map<String, Json>) {
        if let Some(Json::Object(mut usage)) = event.shift_remove("usage") {
            let old = self.message.entry("usage").or_insert_with(|| json!({}));
            if let Some(old) = old.as_object_mut() {
                let told_now = cached(&usage).saturating_sub(cached(old));
                if let Some(input) = old.get("input_tokens").and_then(count) {
                    old.insert("input_tokens".to_owned(), input.saturating_sub(told_now).into());
                }
                usage.retain(|name, value| *value != 0 || !old.contains_key(name));
                usage.into_iter().for_each(|(name, value)| replace(old, name, value));
            }
        }
        if let Some(Json::Object(delta)) = event.shift_remove("delta") {
            event.extend(delta);
        }
        event.into_iter().for_each(|(name, value)| replace(&mut self.message, name, value));
    }

    /// True once the message has ended.
    pub(in crate::llm::wire) fn is_whole(&self) -> bool {
        self.has_stopped || self.message.get("stop_reason").is_some_and(is_told)
    }

    /// True if the message is whole where the stream ends in order: its last block is a complete call.
    pub(in crate::llm::wire) fn is_whole_at_end(&self) -> bool {
        let is_call = |block: &Block| block.fields.get("type").is_some_and(|kind| kind == "tool_use");
        self.blocks.last().is_some_and(|block| is_call(block) && block.has_stopped)
    }

    /// True once the server has said that nothing follows.
    pub(in crate::llm::wire) fn has_stopped(&self) -> bool {
        self.has_stopped
    }

    /// The native message.
    pub(in crate::llm::wire) fn into_body(self) -> Json {
        let is_whole = self.is_whole();
        let Self { mut message, blocks, .. } = self;
        // The count at the start is of the first tokens alone.
        if let Some(usage) = message.get_mut("usage").and_then(Json::as_object_mut).filter(|_| !is_whole) {
            usage.shift_remove("output_tokens");
        }
        message.insert("content".to_owned(), blocks.into_iter().map(Block::into_json).collect());
        message.into()
    }
}

impl Block {
    /// A block that its server has not begun (Wei-Shaw/sub2api#4286). None for a call: only its beginning would name the tool.
    fn begun_by(delta: &Json, index: &Json) -> Option<Self> {
        let kind = ["text", "thinking"].into_iter().find(|kind| !delta[*kind].is_null())?;
        let fields = Map::from_iter([("type".to_owned(), kind.into())]);
        Some(Self { index: index.clone(), fields, input: String::new(), has_stopped: false })
    }

    fn add(&mut self, delta: &Json) {
        match delta["type"].as_str() {
            Some("text_delta") => self.append("text", delta),
            Some("thinking_delta") => self.append("thinking", delta),
            Some("input_json_delta") => {
                self.input.push_str(delta["partial_json"].as_str().unwrap_or_default());
            }
            // Signatures arrive whole.
            Some("signature_delta") => self.set("signature", delta),
            Some("compaction_delta") => {
                self.set("content", delta);
                self.set("encrypted_content", delta);
            }
            Some("citations_delta") => match self.fields.get_mut("citations") {
                Some(Json::Array(citations)) => citations.push(delta["citation"].clone()),
                _ => {
                    self.fields.insert("citations".to_owned(), json!([delta["citation"]]));
                }
            },
            _ => {}
        }
    }

    /// Continues a text by the delta's field of the same name.
    fn append(&mut self, name: &str, delta: &Json) {
        let more = delta[name].as_str().unwrap_or_default();
        match self.fields.get_mut(name) {
            Some(Json::String(text)) => text.push_str(more),
            _ => {
                self.fields.insert(name.to_owned(), more.into());
            }
        }
    }

    fn set(&mut self, name: &str, delta: &Json) {
        replace(&mut self.fields, name.to_owned(), delta[name].clone());
    }

    fn into_json(mut self) -> Json {
        if !self.input.trim().is_empty() {
            // SGLang joins several calls in one block (sgl-project/sglang#39782): nothing names the tools of the others.
            let mut inputs = serde_json::Deserializer::from_str(&self.input).into_iter::<Json>();
            let first = inputs.next().and_then(Result::ok).filter(Json::is_object);
            self.fields.insert("input".to_owned(), first.unwrap_or_else(|| json!({})));
        }
        self.fields.into()
    }
}

/// The tokens of a prompt that were read from the cache, or written to it.
fn cached(usage: &Map<String, Json>) -> u64 {
    let counts = CACHED.iter().filter_map(|name| count(usage.get(*name)?));
    counts.fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(events: impl IntoIterator<Item = Json>) -> Json {
        let mut all = Events::default();
        events.into_iter().for_each(|event| all.add(event));
        all.into_body()["content"].take()
    }

    fn delta(index: u64, delta: Json) -> Json {
        json!({"type": "content_block_delta", "index": index, "delta": delta})
    }

    #[test]
    fn a_block_that_was_not_begun_is_begun_by_its_text() {
        let events = [
            delta(0, json!({"type": "thinking_delta", "thinking": "Hm."})),
            delta(0, json!({"type": "signature_delta", "signature": "s"})),
            delta(1, json!({"type": "text_delta", "text": "It "})),
            delta(1, json!({"type": "text_delta", "text": "is."})),
        ];
        let expected = json!([{"type": "thinking", "thinking": "Hm.", "signature": "s"}, {"type": "text", "text": "It is."}]);
        assert_eq!(content(events), expected);
    }

    #[test]
    fn a_message_is_whole_with_its_reason_or_at_the_end_of_a_stream_behind_a_call() {
        let mut events = Events::default();
        events.add(json!({"type": "message_start", "message": {"role": "assistant", "stop_reason": ""}}));
        let call = json!({"type": "tool_use", "id": "a", "name": "f", "input": {}});
        events.add(json!({"type": "content_block_start", "index": 0, "content_block": call}));
        assert!(!events.is_whole() && !events.is_whole_at_end());
        events.add(json!({"type": "content_block_stop", "index": 0}));
        assert!(!events.is_whole() && events.is_whole_at_end());
        events.add(json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"}}));
        assert!(events.is_whole());
    }

    #[test]
    fn the_first_of_several_inputs_in_one_block_is_that_of_its_call() {
        let call = json!({"type": "tool_use", "id": "a", "name": "f", "input": {}});
        for (pieces, input) in [
            (["{\"code\": \"1\"}", "{\"code\": \"2\"}"], json!({"code": "1"})),
            (["{\"code\": ", "\"1\"}"], json!({"code": "1"})),
            (["{\"code\": ", "\"1"], json!({})),
        ] {
            let start = json!({"type": "content_block_start", "index": 0, "content_block": call});
            let pieces =
                pieces.map(|piece| delta(0, json!({"type": "input_json_delta", "partial_json": piece})));
            assert_eq!(content([start].into_iter().chain(pieces))[0]["input"], input);
        }
    }
}
