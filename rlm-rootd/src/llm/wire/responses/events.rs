//! Replies in pieces.

use std::collections::BTreeMap;

use serde_json::{Map, Value as Json, json};

/// Events of a stream, joined to the response that the same server would send whole.
#[derive(Debug, Default)]
pub(in crate::llm::wire) struct Events {
    /// Finished items in the order in which they have come, each with its index in the output.
    items: Vec<(u64, Json)>,
    /// Items that have not finished, by their index in the output.
    begun: BTreeMap<u64, Json>,
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
            Some("output_item.added") if event["item"].is_object() => {
                self.begun.insert(self.index(&event), event["item"].take());
            }
            Some("output_item.done") if event["item"].is_object() => {
                let index = self.index(&event);
                self.begun.remove(&index);
                self.items.push((index, event["item"].take()));
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
            Some(status @ ("completed" | "incomplete" | "failed" | "done")) => {
                let Json::Object(mut response) = event["response"].take() else { return };
                let status = if status == "done" { "completed" } else { status };
                response.entry("status").or_insert_with(|| status.into());
                self.response = Some(response);
            }
            _ => {}
        }
    }

    /// The place of an event's item in the output. Gateways number several items alike (decolua/9router#2611).
    fn index(&self, event: &Json) -> u64 {
        let next = self.items.iter().map(|(index, _)| index + 1).max().unwrap_or(0);
        event["output_index"].as_u64().unwrap_or(next)
    }

    /// True if the response has ended.
    pub(in crate::llm::wire) fn is_whole(&self) -> bool {
        self.response.is_some()
    }

    /// True if the reply is whole where the stream ends in order: OpenRouter leaves out the last event (moeru-ai/airi#2589).
    pub(in crate::llm::wire) fn is_whole_at_end(&self) -> bool {
        let last = self.items.last().and_then(|(_, item)| item["type"].as_str());
        self.begun.is_empty() && matches!(last, Some("message" | "function_call"))
    }

    /// The native response. Where its last event has fewer items than have finished, those are the output: OpenAI's ChatGPT backend tells
    /// none there, and others leave some out (lobehub/lobehub#13555).
    pub(in crate::llm::wire) fn into_body(mut self) -> Json {
        let status = if self.is_whole_at_end() { "completed" } else { "in_progress" };
        let untold = || Map::from_iter([("status".to_owned(), status.into())]);
        let mut response = self.response.unwrap_or_else(untold);
        let told = response.get("output").and_then(Json::as_array).map_or(0, Vec::len);
        if told < self.items.len().max(1) {
            self.items.sort_by_key(|(index, _)| *index);
            response.insert("output".to_owned(), self.items.into_iter().map(|(_, item)| item).collect());
        }
        if let Some(output) = response.get_mut("output").and_then(Json::as_array_mut) {
            add_calls(output, self.begun, &mut self.arguments);
            add_texts(output, self.texts);
            add_arguments(output, self.arguments);
        }
        response.into()
    }
}

/// Adds calls that have begun and have arguments, but were not told to be done (sgl-project/sglang#12652).
fn add_calls(output: &mut Vec<Json>, begun: BTreeMap<u64, Json>, arguments: &mut BTreeMap<u64, String>) {
    for (index, mut call) in begun.into_iter().filter(|(_, item)| item["type"] == "function_call") {
        if output.iter().all(|item| item["call_id"] != call["call_id"])
            && let Some(arguments) = arguments.remove(&index)
        {
            call["arguments"] = arguments.into();
            call["status"] = "completed".into();
            output.push(call);
        }
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
