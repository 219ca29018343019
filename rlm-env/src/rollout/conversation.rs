//! The conversation with the root model.
//!
//! Every message is told to the trajectory and appended to the transcript once, when it is said. What the model gets is this
//! list, in which a summary may have taken the place of older turns.

use std::ops::Range;
use std::sync::Arc;

use rlm_core::text::cut;
use serde_json::{Value as Json, json};

use super::log::Log;
use crate::trajectory::{Event, Message, MessageKind};
use crate::workspace::Transcript;

/// Bytes of text per token, about: for what no server has counted yet.
const BYTES_PER_TOKEN: u64 = 4;

/// Characters that are left of an output where the conversation must become shorter at any price.
const SHORT_OUTPUT: usize = 500;

/// The conversation so far.
#[derive(Debug)]
pub(super) struct Conversation {
    messages: Vec<Json>,
    /// Where each turn begins, with the model's reply.
    turns: Vec<usize>,
    /// The number of the last turn, also of those that were summarised.
    turn: u32,
    /// Tokens of all before `counted`.
    tokens: u64,
    counted: usize,
    log: Arc<Log>,
    transcript: Transcript,
}

impl Conversation {
    pub(super) fn new(log: Arc<Log>, transcript: Transcript) -> Self {
        Self { messages: Vec::new(), turns: Vec::new(), turn: 0, tokens: 0, counted: 0, log, transcript }
    }

    /// The messages as the model gets them.
    pub(super) fn messages(&self) -> &[Json] {
        &self.messages
    }

    /// The number of the last turn, 0 before the first.
    pub(super) fn turn(&self) -> u32 {
        self.turn
    }

    /// Begins a turn with the model's reply.
    pub(super) fn reply(&mut self, message: Json) {
        self.turn += 1;
        self.turns.push(self.messages.len());
        self.push(MessageKind::Reply, message);
    }

    /// Says something to the model.
    pub(super) fn say(&mut self, kind: MessageKind, role: &str, text: &str) {
        self.push(kind, json!({"role": role, "content": text}));
    }

    /// Answers a call.
    pub(super) fn output(&mut self, call_id: &str, is_tool_call: bool, text: &str) {
        if is_tool_call {
            let message = json!({"role": "tool", "tool_call_id": call_id, "content": text});
            self.push(MessageKind::Output, message);
        } else {
            self.say(MessageKind::Output, "user", text);
        }
    }

    /// A server has counted the tokens of all that there is, the last reply included.
    pub(super) fn counted(&mut self, tokens: u64) {
        self.tokens = tokens;
        self.counted = self.messages.len();
    }

    /// About how many tokens all of it has.
    pub(super) fn tokens(&self) -> u64 {
        let new = self.messages.get(self.counted..).unwrap_or_default();
        let bytes: usize = new.iter().map(|message| message.to_string().len()).sum();
        self.tokens.saturating_add(bytes as u64 / BYTES_PER_TOKEN)
    }

    /// The messages of all turns but the newest ones, a summary of those before them included. None: there are none.
    pub(super) fn older_than(&self, newest: usize) -> Option<Range<usize>> {
        let first = *self.turns.len().checked_sub(newest).and_then(|older| {
            if older == 0 { None } else { self.turns.get(older).or(Some(&0)).filter(|at| **at > 0) }
        })?;
        let start = self.beginning();
        (start < first).then_some(start..first)
    }

    /// Number of turns that a summary stands for.
    pub(super) fn summarised_turns(&self) -> usize {
        self.turn as usize - self.turns.len()
    }

    /// Number of turns that are there in full.
    pub(super) fn whole_turns(&self) -> usize {
        self.turns.len()
    }

    /// Puts a summary in the place of older messages.
    pub(super) fn summarise(&mut self, older: Range<usize>, summary: &str) {
        let message = json!({"role": "user", "content": summary});
        self.tell(MessageKind::Summary, &message);
        let removed = older.len() - 1;
        self.turns.retain(|at| *at >= older.end);
        for at in &mut self.turns {
            *at -= removed;
        }
        self.messages.splice(older, [message]);
        self.recount();
    }

    /// Drops all turns but the newest ones, and cuts what they printed: for a last word to a model that takes no more.
    pub(super) fn shorten(&mut self, newest: usize) {
        if let Some(older) = self.older_than(newest) {
            self.turns.retain(|at| *at >= older.end);
            for at in &mut self.turns {
                *at -= older.len();
            }
            self.messages.drain(older);
        }
        let start = self.beginning();
        for message in &mut self.messages[start..] {
            let Some(Json::String(text)) = message.get_mut("content") else { continue };
            *text = cut(text, SHORT_OUTPUT);
        }
        self.recount();
    }

    /// Where the system prompt and the question are over.
    fn beginning(&self) -> usize {
        self.messages.len().min(2)
    }

    fn recount(&mut self) {
        self.tokens = 0;
        self.counted = 0;
    }

    fn push(&mut self, kind: MessageKind, message: Json) {
        self.tell(kind, &message);
        self.messages.push(message);
    }

    fn tell(&mut self, kind: MessageKind, message: &Json) {
        self.transcript.append(message);
        self.log.add(Event::Message(Message { turn: self.turn, kind, message: message.clone() }));
    }
}
