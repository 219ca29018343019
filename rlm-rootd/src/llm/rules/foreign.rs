//! Replies of another model, account or conversation, whose reasoning a server refuses.

use serde_json::{Map, Value as Json};

use super::Rules;
use crate::llm::estimate::NATIVE;
use crate::llm::message::ChatMessage;

/// Fields of replies and of their calls with reasoning, and with its signatures, over chat completions: OpenRouter's, LiteLLM's,
/// Gemini's.
pub(super) const REASONING: [&str; 6] = [
    "reasoning",
    "reasoning_content",
    "reasoning_details",
    "thinking_blocks",
    "provider_specific_fields",
    "extra_content",
];

impl Rules {
    /// The reply without its reasoning, where the server has refused that. A reply that came over another interface is made anew from
    /// its text and calls.
    pub(in crate::llm) fn without_foreign_reasoning(&self, reply: &ChatMessage) -> Option<ChatMessage> {
        let is_foreign =
            || reply["role"] == "assistant" && self.foreign_replies.contains(&reply.fingerprint());
        if self.foreign_replies.is_empty() || !is_foreign() {
            return None;
        }
        without_reasoning(reply)
    }

    /// Learns that the reasoning of these replies is refused: first of all but the newest, whose calls Anthropic wants behind it. False
    /// if all of that is known.
    pub(super) fn learn_foreign_replies(&mut self, messages: &[ChatMessage]) -> bool {
        let replies: Vec<_> = messages.iter().filter(|message| message["role"] == "assistant").collect();
        let with_reasoning = replies.iter().filter(|reply| without_reasoning(reply).is_some());
        let mut new: Vec<u64> = with_reasoning.map(|reply| reply.fingerprint()).collect();
        new.retain(|reply| !self.foreign_replies.contains(reply));
        let newest = replies.last().map(|reply| reply.fingerprint());
        if new.len() > 1 {
            new.retain(|reply| Some(*reply) != newest);
        }
        self.foreign_replies.extend(&new);
        !new.is_empty()
    }
}

/// None if the reply has no reasoning.
fn without_reasoning(reply: &ChatMessage) -> Option<ChatMessage> {
    let Json::Object(mut new) = (**reply).clone() else { return None };
    let mut has_reasoning = remove(&mut new);
    let calls = new.get_mut("tool_calls").and_then(Json::as_array_mut);
    for call in calls.into_iter().flatten().filter_map(Json::as_object_mut) {
        has_reasoning |= remove(call);
        if let Some(Json::Object(function)) = call.get_mut("function") {
            has_reasoning |= remove(function);
        }
    }
    has_reasoning.then(|| Json::from(new).into())
}

fn remove(fields: &mut Map<String, Json>) -> bool {
    let before = fields.len();
    fields.retain(|field, _| !REASONING.contains(&field.as_str()) && !NATIVE.contains(&field.as_str()));
    fields.len() < before
}
