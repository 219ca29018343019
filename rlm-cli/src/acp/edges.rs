//! How the requests of a session to models depend on each other, for trainers.

use std::sync::{Mutex, PoisonError};

use rlm_env::trajectory::{Entry, Event, Sink};
use serde_json::{Value as Json, json};

/// The key of the edges in `_meta`.
pub(super) const KEY: &str = "ai.prime.acp/semantic-edges-v1";

/// Collects the edges. Requests without a reply have none: a trainer knows only those that it answered.
#[derive(Debug, Default)]
pub(super) struct Edges(Mutex<Seen>);

#[derive(Debug, Default)]
struct Seen {
    edges: Vec<Json>,
    /// The latest request to the root model.
    root: Option<String>,
    /// Requests to sub-LLMs since then.
    subs: Vec<String>,
}

impl Edges {
    /// The edges since the last time.
    pub(super) fn take(&self) -> Json {
        json!({"edges": std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner).edges)})
    }
}

impl Seen {
    fn add(&mut self, source: &str, target: &str, kind: &str) {
        self.edges.push(json!({"source_request_id": source, "target_request_id": target, "type": kind}));
    }
}

impl Sink for Edges {
    fn entry(&self, entry: &Entry) {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &entry.event {
            Event::ModelCall(call) => {
                let Some(id) = &call.request_id else { return };
                if let Some(root) = seen.root.replace(id.clone()) {
                    seen.add(&root, id, if call.is_summary { "compaction" } else { "continuation" });
                }
                for sub in std::mem::take(&mut seen.subs) {
                    seen.add(&sub, id, "subagent_return");
                }
            }
            Event::SubCall(call) if call.reply.is_some() && call.error.is_none() => {
                if let Some(root) = seen.root.clone() {
                    seen.add(&root, &call.request_id, "subagent_call");
                }
                seen.subs.push(call.request_id.clone());
            }
            _ => {}
        }
    }
}
