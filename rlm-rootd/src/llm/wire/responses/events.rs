//! Replies in pieces.

use std::collections::BTreeMap;

use serde_json::{Map, Value as Json, json};

/// Events of a stream, joined to the response that the same server would send whole.
#[derive(Debug, Default)]
pub(in crate::llm::wire) struct Events {
    /// Finished items by their index in the output.
    items: BTreeMap<u64, Json>,
    /// Arguments of calls by their index in the output, as their own events have told them.
    arguments: BTreeMap<u64, String>,
    /// Texts of messages by their index in the output, as the pieces have told them.
    texts: BTreeMap<u64, String>,
    /// The response of the event that ends the stream.
    response: Option<Map<String, Json>>,
}

impl Events {
    /// Adds the data of an event. Pieces of items are ignored, since each finished item comes whole, but for the arguments of calls
    /// (LM Studio, earendil-works/pi#917) and for texts (agentgateway/agentgateway#2281).
    pub(in crate::llm::wire) fn add(&mut self, mut event: Json) {
        let kind = event["type"].as_str().unwrap_or_default().to_owned();
        match kind.strip_prefix("response.") {
            Some("output_item.done") if event["item"].is_object() => {
                let next = self.items.last_key_value().map_or(0, |(last, _)| last + 1);
                self.items.insert(event["output_index"].as_u64().unwrap_or(next), event["item"].take());
            }
            Some(kind @ ("function_call_arguments.delta" | "function_call_arguments.done")) => {
                let Some(index) = event["output_index"].as_u64() else { return };
                let arguments = self.arguments.entry(index).or_default();
                match (event["delta"].as_str(), event["arguments"].as_str()) {
                    (Some(more), _) if kind.ends_with("delta") => arguments.push_str(more),
                    (_, Some(all)) if !is_empty(all) => all.clone_into(arguments),
                    _ => {}
                }
            }
            Some("output_text.delta") => {
                let text = self.texts.entry(event["output_index"].as_u64().unwrap_or(0)).or_default();
                text.push_str(event["delta"].as_str().unwrap_or_default());
            }
            Some(status @ ("completed" | "incomplete" | "failed")) => {
                let Json::Object(mut response) = event["response"].take() else { return };
                response.entry("status").or_insert_with(|| status.into());
                self.response = Some(response);
            }
            _ => {}
        }
    }

    /// True if the response has ended.
    pub(in crate::llm::wire) fn is_whole(&self) -> bool {
        self.response.is_some()
    }

    /// The native response. Where its last event has fewer items than have finished, those are the output: OpenAI's ChatGPT backend tells
    /// none there, and others leave some out (lobehub/lobehub#13555).
    pub(in crate::llm::wire) fn into_body(self) -> Json {
        let unfinished = || Map::from_iter([("status".to_owned(), "in_progress".into())]);
        let mut response = self.response.unwrap_or_else(unfinished);
        let told = response.get("output").and_then(Json::as_array).map_or(0, Vec::len);
        if told < self.items.len().max(1) {
            response.insert("output".to_owned(), self.items.into_values().collect());
        }
        if let Some(output) = response.get_mut("output").and_then(Json::as_array_mut) {
            add_texts(output, self.texts);
            add_arguments(output, self.arguments);
        }
        response.into()
    }
}

/// Adds arguments that only their own events have told.
fn add_arguments(output: &mut [Json], mut arguments: BTreeMap<u64, String>) {
    for (item, index) in output.iter_mut().zip(0..).filter(|(item, _)| item["type"] == "function_call") {
        let is_told = item["arguments"].as_str().is_some_and(|text| !is_empty(text));
        if let Some(arguments) = arguments.remove(&index).filter(|text| !is_told && !is_empty(text)) {
            item["arguments"] = arguments.into();
        }
    }
}

/// Adds texts that only their pieces have told: gateways end a message without its text, or without the message.
fn add_texts(output: &mut Vec<Json>, texts: BTreeMap<u64, String>) {
    let has_no_items = output.is_empty();
    for (index, text) in texts.into_iter().filter(|(_, text)| !text.is_empty()) {
        let content = json!([{"type": "output_text", "text": text, "annotations": []}]);
        if has_no_items {
            output.push(json!({
                "type": "message", "role": "assistant", "status": "completed", "content": content,
            }));
        } else if let Some(item) = usize::try_from(index).ok().and_then(|index| output.get_mut(index))
            && item["type"] == "message"
            && is_untold(&item["content"])
        {
            item["content"] = content;
        }
    }
}

/// True for the content of a message that says nothing.
fn is_untold(content: &Json) -> bool {
    let says_nothing =
        |part: &Json| part["type"] == "output_text" && part["text"].as_str().is_none_or(str::is_empty);
    content.is_null() || content.as_array().is_some_and(|parts| parts.iter().all(says_nothing))
}

/// True for the arguments of a call that has none.
fn is_empty(arguments: &str) -> bool {
    ["", "{}"].contains(&arguments.trim())
}
