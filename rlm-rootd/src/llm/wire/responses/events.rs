//! Replies in pieces.

use std::collections::BTreeMap;

use serde_json::{Map, Value as Json};

/// Events of a stream, joined to the response that the same server would send whole.
#[derive(Debug, Default)]
pub(in crate::llm::wire) struct Events {
    /// Finished items by their index in the output.
    items: BTreeMap<u64, Json>,
    /// The response of the event that ends the stream.
    response: Option<Map<String, Json>>,
}

impl Events {
    /// Adds the data of an event. Pieces of items are ignored, since each finished item comes whole.
    pub(in crate::llm::wire) fn add(&mut self, mut event: Json) {
        let kind = event["type"].as_str().unwrap_or_default().to_owned();
        match kind.strip_prefix("response.") {
            Some("output_item.done") if event["item"].is_object() => {
                let next = self.items.last_key_value().map_or(0, |(last, _)| last + 1);
                self.items.insert(event["output_index"].as_u64().unwrap_or(next), event["item"].take());
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

    /// The native response. Where its last event has no output, as from OpenAI's ChatGPT backend, the finished items are the
    /// output.
    pub(in crate::llm::wire) fn into_body(self) -> Json {
        let unfinished = || Map::from_iter([("status".to_owned(), "in_progress".into())]);
        let mut response = self.response.unwrap_or_else(unfinished);
        let has_output =
            response.get("output").and_then(Json::as_array).is_some_and(|items| !items.is_empty());
        if !has_output {
            response.insert("output".to_owned(), self.items.into_values().collect());
        }
        response.into()
    }
}
