//! The conversation with the root model.
//!
//! Each message goes to the trajectory and the transcript once, when it is added. The model gets this list, in which a
//! summary may have replaced older turns.

use std::ops::Range;
use std::sync::Arc;

use rlm_core::text::cut;
use rlm_rootd::{ChatMessage, Usage, message_text};
use serde_json::{Value as Json, json};

use super::calls::CallForm;
use super::images::{Image, content};
use super::log::Log;
use crate::trajectory::{Event, Message, MessageKind, without_image_data, without_reasoning};
use crate::workspace::Transcript;

/// Estimated bytes of text per token, until a server has counted.
const BYTES_PER_TOKEN: u64 = 4;

/// The text in the place of images where the conversation must be cut down.
const IMAGES_CUT: &str = "The images were removed to make room.";

/// Characters of an output that stay when the conversation must be cut down for the last turn.
pub(super) const SHORT_OUTPUT: usize = 500;

/// The messages of a conversation, and where its turns begin.
#[derive(Clone, Debug, Default)]
pub(super) struct Messages {
    messages: Vec<ChatMessage>,
    /// Index of the model's reply that begins each turn.
    turns: Vec<usize>,
    /// Number of the last turn, counting those that were summarised.
    turn: u32,
    /// Index of the running question.
    asked: usize,
    /// Tokens of the messages before `counted`.
    tokens: u64,
    counted: usize,
    /// Tokens of the beginning that the server is expected to have in its cache.
    cached_tokens: u64,
}

impl Messages {
    /// True if a message has this text.
    pub(super) fn mention(&self, text: &str) -> bool {
        self.messages.iter().any(|message| message.to_string().contains(text))
    }
}

/// The conversation so far.
#[derive(Debug)]
pub(super) struct Conversation {
    kept: Messages,
    log: Arc<Log>,
    transcript: Transcript,
}

impl Conversation {
    pub(super) fn new(log: Arc<Log>, transcript: Transcript) -> Self {
        Self { kept: Messages::default(), log, transcript }
    }

    /// A conversation that goes on where another one was. The trajectory of that one has its messages.
    pub(super) fn go_on(log: Arc<Log>, mut transcript: Transcript, kept: Messages) -> Self {
        for message in &kept.messages {
            append(&log, &mut transcript, message);
        }
        Self { kept, log, transcript }
    }

    /// The messages, for another conversation that goes on from here.
    pub(super) fn kept(&self) -> Messages {
        self.kept.clone()
    }

    /// The messages as the model gets them.
    pub(super) fn messages(&self) -> &[ChatMessage] {
        &self.kept.messages
    }

    /// The number of the last turn, 0 before the first.
    pub(super) fn turn(&self) -> u32 {
        self.kept.turn
    }

    /// Begins a turn with the model's reply.
    pub(super) fn reply(&mut self, message: Json) {
        self.kept.turn += 1;
        self.kept.turns.push(self.kept.messages.len());
        self.push(MessageKind::Reply, message);
    }

    /// Adds the question that is worked on from now on.
    pub(super) fn question(&mut self, text: &str, images: &[Image]) {
        self.kept.asked = self.kept.messages.len();
        self.push(MessageKind::Question, json!({"role": "user", "content": content(text, images)}));
    }

    /// Adds images with a text before them.
    pub(super) fn images(&mut self, text: &str, images: &[Image]) {
        self.push(MessageKind::Notice, json!({"role": "user", "content": content(text, images)}));
    }

    /// Replaces by a text the images of the newest turn or, if it has none, all others except those of the running question.
    /// False if there were none.
    pub(super) fn leave_images_out(&mut self, reason: &str) -> bool {
        let newest = self.kept.turns.last().copied().unwrap_or(0);
        self.leave_out_from(newest, reason) || self.leave_out_from(0, reason)
    }

    fn leave_out_from(&mut self, start: usize, reason: &str) -> bool {
        let has_images = |at: &usize| *at != self.kept.asked && self.kept.messages[*at].has_images();
        let left_out: Vec<_> = (start..self.kept.messages.len()).filter(has_images).collect();
        for at in &left_out {
            let text = message_text(&self.kept.messages[*at]).unwrap_or_default();
            let message = json!({"role": "user", "content": format!("{text}\n{reason}")});
            self.tell(MessageKind::Notice, &message);
            self.kept.messages[*at] = message.into();
        }
        if !left_out.is_empty() {
            self.recount();
        }
        !left_out.is_empty()
    }

    /// Adds a message to the model.
    pub(super) fn say(&mut self, kind: MessageKind, role: &str, text: &str) {
        self.push(kind, json!({"role": role, "content": text}));
    }

    /// Replaces the system prompt, which comes first.
    pub(super) fn begin_again(&mut self, system_prompt: &str) {
        let message = json!({"role": "system", "content": system_prompt});
        self.tell(MessageKind::System, &message);
        self.kept.messages[0] = message.into();
    }

    /// Adds the output of a call.
    pub(super) fn output(&mut self, form: &CallForm, text: &str) {
        let message = match form {
            CallForm::Tool(id) => json!({"role": "tool", "tool_call_id": id, "content": text}),
            CallForm::Function(name) => json!({"role": "function", "name": name, "content": text}),
            CallForm::Text => json!({"role": "user", "content": text}),
        };
        self.push(MessageKind::Output, message);
    }

    /// Sets the token count of the whole conversation, as a server reported it. The server's cache is expected to hold the prompt
    /// from now on, unless it held nothing of what was sent before.
    pub(super) fn counted(&mut self, usage: &Usage) {
        let is_known = self.kept.counted > 0;
        let is_cached = !is_known || usage.cached_tokens > 0 || usage.cache_write_tokens > 0;
        self.kept.cached_tokens = if is_cached { usage.prompt_tokens } else { 0 };
        self.kept.tokens = usage.prompt_tokens.saturating_add(usage.completion_tokens);
        self.kept.counted = self.kept.messages.len();
    }

    /// Tokens of the beginning of the conversation that the server is expected to have in its cache.
    pub(super) fn cached_tokens(&self) -> u64 {
        self.kept.cached_tokens
    }

    /// Estimated tokens of the whole conversation.
    pub(super) fn tokens(&self) -> u64 {
        let new = self.kept.messages.get(self.kept.counted..).unwrap_or_default();
        let bytes: u64 = new.iter().map(ChatMessage::bytes).sum();
        self.kept.tokens.saturating_add(bytes / BYTES_PER_TOKEN)
    }

    /// The messages of all but the newest turns, including an earlier summary. None if there are none.
    pub(super) fn older_than(&self, newest: usize) -> Option<Range<usize>> {
        let older = self.kept.turns.len().checked_sub(newest).filter(|older| *older > 0)?;
        let first = self.kept.turns.get(older).copied().unwrap_or(self.kept.messages.len());
        let start = self.beginning();
        (start < first).then_some(start..first)
    }

    /// Number of turns that a summary stands for.
    pub(super) fn summarised_turns(&self) -> usize {
        self.kept.turn as usize - self.kept.turns.len()
    }

    /// Number of turns that are kept in full.
    pub(super) fn whole_turns(&self) -> usize {
        self.kept.turns.len()
    }

    /// Replaces older messages by a summary.
    pub(super) fn summarise(&mut self, older: Range<usize>, summary: &str) {
        let message = json!({"role": "user", "content": summary});
        self.tell(MessageKind::Summary, &message);
        self.replace(older, vec![message.into()]);
    }

    /// Drops all but the newest turns and cuts their outputs, so that the last turn fits into the model's context.
    pub(super) fn shorten(&mut self, newest: usize) {
        if let Some(older) = self.older_than(newest) {
            self.replace(older, Vec::new());
        }
        self.cut_from(self.beginning(), SHORT_OUTPUT);
    }

    /// Cuts the outputs of the turns that are kept in full.
    pub(super) fn cut_outputs(&mut self, chars: usize) {
        self.cut_from(self.kept.turns.first().copied().unwrap_or(self.kept.messages.len()), chars);
    }

    fn cut_from(&mut self, start: usize, chars: usize) {
        self.leave_out_from(start, IMAGES_CUT);
        for (at, message) in self.kept.messages.iter_mut().enumerate().skip(start) {
            let Some(Json::String(text)) = message.get("content") else { continue };
            // Replies go back as they came.
            if at != self.kept.asked && message["role"] != "assistant" && text.chars().count() > chars {
                let mut shorter = (**message).clone();
                shorter["content"] = cut(text, chars).into();
                *message = shorter.into();
            }
        }
        self.recount();
    }

    /// Replaces older messages by others, followed by the running question if that is one of the older.
    fn replace(&mut self, older: Range<usize>, mut others: Vec<ChatMessage>) {
        let removed = older.len();
        if older.contains(&self.kept.asked) {
            others.push(self.kept.messages[self.kept.asked].clone());
            self.kept.asked = older.start + others.len() - 1;
        } else if self.kept.asked >= older.end {
            self.kept.asked = self.kept.asked - removed + others.len();
        }
        self.kept.turns.retain(|at| *at >= older.end);
        for at in &mut self.kept.turns {
            *at = *at - removed + others.len();
        }
        self.kept.messages.splice(older, others);
        self.recount();
    }

    /// Number of messages before the first turn: the system prompt and the first question.
    fn beginning(&self) -> usize {
        self.kept.messages.len().min(2)
    }

    fn recount(&mut self) {
        self.kept.tokens = 0;
        self.kept.counted = 0;
        self.kept.cached_tokens = 0;
    }

    fn push(&mut self, kind: MessageKind, message: Json) {
        self.tell(kind, &message);
        self.kept.messages.push(message.into());
    }

    fn tell(&mut self, kind: MessageKind, message: &Json) {
        append(&self.log, &mut self.transcript, message);
        let message = Message { turn: self.kept.turn, kind, message: message.clone(), left_out: Vec::new() };
        self.log.add(Event::Message(message));
    }
}

/// Appends a message to the transcript.
fn append(log: &Log, transcript: &mut Transcript, message: &Json) {
    let told = without_image_data(message);
    if log.keeps_reasoning() {
        return transcript.append(&told);
    }
    let (mut kept, left_out) = without_reasoning(&told);
    if !left_out.is_empty() {
        kept["left_out"] = left_out.into();
    }
    transcript.append(&kept);
}
