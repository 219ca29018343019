//! The conversation with the root model.
//!
//! Each message goes to the trajectory and the transcript once, when it is added. The model gets this list, in which a
//! summary may have replaced older turns.

use std::ops::Range;
use std::sync::Arc;

use rlm_core::text::cut;
use serde_json::{Value as Json, json};

use super::log::Log;
use crate::trajectory::{Event, Message, MessageKind};
use crate::workspace::Transcript;

/// Estimated bytes of text per token, until a server has counted.
const BYTES_PER_TOKEN: u64 = 4;

/// Characters of an output that stay when the conversation must be cut down for the last turn.
const SHORT_OUTPUT: usize = 500;

/// The conversation so far.
#[derive(Debug)]
pub(super) struct Conversation {
    messages: Vec<Json>,
    /// Index of the model's reply that begins each turn.
    turns: Vec<usize>,
    /// Number of the last turn, counting those that were summarised.
    turn: u32,
    /// Tokens of the messages before `counted`.
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

    /// Adds a message to the model.
    pub(super) fn say(&mut self, kind: MessageKind, role: &str, text: &str) {
        self.push(kind, json!({"role": role, "content": text}));
    }

    /// Replaces the system prompt, which comes first.
    pub(super) fn begin_again(&mut self, system_prompt: &str) {
        self.messages[0] = json!({"role": "system", "content": system_prompt});
        let message = self.messages[0].clone();
        self.tell(MessageKind::System, &message);
    }

    /// Adds the output of a call.
    pub(super) fn output(&mut self, call_id: &str, is_tool_call: bool, text: &str) {
        if is_tool_call {
            let message = json!({"role": "tool", "tool_call_id": call_id, "content": text});
            self.push(MessageKind::Output, message);
        } else {
            self.say(MessageKind::Output, "user", text);
        }
    }

    /// Sets the token count of the whole conversation, as a server reported it.
    pub(super) fn counted(&mut self, tokens: u64) {
        self.tokens = tokens;
        self.counted = self.messages.len();
    }

    /// Estimated tokens of the whole conversation.
    pub(super) fn tokens(&self) -> u64 {
        let new = self.messages.get(self.counted..).unwrap_or_default();
        let bytes: usize = new.iter().map(|message| message.to_string().len()).sum();
        self.tokens.saturating_add(bytes as u64 / BYTES_PER_TOKEN)
    }

    /// The messages of all but the newest turns, including an earlier summary. None if there are none.
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

    /// Number of turns that are kept in full.
    pub(super) fn whole_turns(&self) -> usize {
        self.turns.len()
    }

    /// Replaces older messages by a summary.
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

    /// Drops all but the newest turns and cuts their outputs, so that the last turn fits into the model's context.
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

    /// Number of messages before the first turn: the system prompt and the question.
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
