//! The dependencies between the requests of a session to models, for trainers.

use std::sync::Mutex;

use rlm_env::trajectory::{Entry, Event, MessageKind, Sink};
use serde_json::{Value as Json, json};

use crate::lock::lock;

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
    /// The latest request for a summary, and whether its reply has taken the place of turns.
    summary: Option<String>,
    is_accepted: bool,
}

impl Edges {
    /// The edges since the last time.
    pub(super) fn take(&self) -> Json {
        json!({"edges": std::mem::take(&mut lock(&self.0).edges)})
    }
}

impl Seen {
    fn add(&mut self, source: &str, target: &str, kind: &str) {
        self.edges.push(json!({"source_request_id": source, "target_request_id": target, "type": kind}));
    }

    /// Adds the edges to a request to the root model. What a summary does not replace goes on from the turn before it.
    fn root(&mut self, id: &str, is_summary: bool) {
        let summary = self.summary.take().filter(|_| std::mem::take(&mut self.is_accepted));
        match (&summary, self.root.clone()) {
            (Some(summary), _) => self.add(summary, id, "compaction"),
            (None, Some(root)) => {
                self.add(&root, id, if is_summary { "compaction_attempt" } else { "continuation" })
            }
            (None, None) => {}
        }
        if summary.is_some() {
            self.subs.clear();
        }
        for sub in self.subs.clone() {
            self.add(&sub, id, "subagent_return");
        }
        if is_summary {
            self.summary = Some(id.to_owned());
        } else {
            self.root = Some(id.to_owned());
            self.subs.clear();
        }
    }
}

impl Sink for Edges {
    fn entry(&self, entry: &Entry) {
        let mut seen = lock(&self.0);
        match &entry.event {
            Event::ModelCall(call) => {
                let Some(id) = &call.request_id else { return };
                match (entry.depth, seen.root.clone()) {
                    (0, _) => seen.root(id, call.is_summary),
                    (_, Some(root)) => seen.add(&root, id, "subagent_call"),
                    (_, None) => {}
                }
            }
            Event::Message(message) if message.kind == MessageKind::Summary => seen.is_accepted = true,
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
