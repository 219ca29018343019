//! Updates that show a client the rollout while it runs.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use agent_client_protocol::Client;
use agent_client_protocol::v1::ConnectionTo;
use agent_client_protocol::v1::schema::{
    ContentBlock, ContentChunk, MessageId, Meta, SessionId, SessionNotification, SessionUpdate, TextContent,
    ToolCall, ToolCallContent, ToolCallId, ToolCallStatus, ToolCallUpdate, ToolCallUpdateFields, ToolKind,
};
use rlm_core::protocol::{Outcome, Response};
use rlm_core::text::{cut, grouped, without_middle};
use rlm_env::trajectory::{CallEnded, CallStarted, Entry, Event, MessageKind, ModelCall, OutputPiece, Sink};
use rlm_env::{RolloutResult, StopReason};
use rlm_rootd::{reasoning_text, reply_text};
use serde_json::{Value as Json, json};

use super::tokens;
use crate::lock::lock;
use crate::rollouts::is_failure;
use crate::text::{joined, one_line, visible};

/// Least time between two updates with output.
const PAUSE: Duration = Duration::from_millis(100);

/// Bytes of running output in an update, the latest ones.
const LIVE_BYTES: usize = 16 << 10;

/// Bytes of the beginning and of the end of an output in the update at a call's end.
const OUTPUT_BYTES: usize = 16 << 10;

/// Characters of a title.
const TITLE_CHARS: usize = 80;

/// Sends updates to the client of a session.
#[derive(Debug)]
pub(super) struct Updates {
    this: Weak<Self>,
    connection: ConnectionTo<Client>,
    session: SessionId,
    /// True while the client does not take what is sent.
    is_busy: Arc<AtomicBool>,
    language: &'static str,
    running: Mutex<Running>,
    /// The last reply with a text.
    last_reply: Mutex<String>,
    /// True: the client gets the tokens of each reply.
    tells_tokens: bool,
    /// The tokens of the reply that comes next.
    tokens: Mutex<Option<Json>>,
}

/// The running call.
#[derive(Debug, Default)]
struct Running {
    turn: u32,
    id: Option<ToolCallId>,
    code: String,
    output: Tail,
    /// The time of the last update with output.
    sent: Option<Instant>,
    is_scheduled: bool,
}

/// The end of an output.
#[derive(Debug, Default)]
struct Tail {
    text: String,
    dropped: usize,
}

impl Tail {
    fn push(&mut self, text: &str) {
        self.text.push_str(text);
        // Twice, so that not each piece moves all of it.
        if self.text.len() > 2 * LIVE_BYTES {
            let at = self.text.ceil_char_boundary(self.text.len() - LIVE_BYTES);
            self.text.drain(..at);
            self.dropped += at;
        }
    }

    fn shown(&self) -> String {
        let at = self.text.ceil_char_boundary(self.text.len().saturating_sub(LIVE_BYTES));
        match self.dropped + at {
            0 => self.text.clone(),
            before => format!("[{} bytes before]\n{}", grouped(before as u64), &self.text[at..]),
        }
    }
}

impl Updates {
    pub(super) fn new(
        connection: ConnectionTo<Client>,
        session: SessionId,
        is_busy: Arc<AtomicBool>,
        language: &'static str,
        tells_tokens: bool,
    ) -> Arc<Self> {
        Arc::new_cyclic(|this| Self {
            this: this.clone(),
            connection,
            session,
            is_busy,
            language,
            running: Mutex::default(),
            last_reply: Mutex::default(),
            tells_tokens,
            tokens: Mutex::default(),
        })
    }

    /// A message of the agent.
    fn say(&self, id: &str, text: &str, tokens: Option<Json>) {
        let meta = tokens.map(|tokens| Meta::from_iter([(tokens::KEY.to_owned(), tokens)]));
        let chunk = ContentChunk::new(text_block(text)).message_id(MessageId::new(id)).meta(meta);
        self.send(SessionUpdate::AgentMessageChunk(chunk));
    }

    /// Keeps the tokens of a reply for its message. Those of a summary, which has none, are sent at once.
    fn model_call(&self, call: &ModelCall) {
        let tokens = tokens::of_call(call).filter(|_| self.tells_tokens);
        if call.is_summary && tokens.is_some() {
            return self.say(&format!("summary-{}", call.turn), "", tokens);
        }
        *lock(&self.tokens) = tokens;
    }

    /// The answer to a prompt, as a message of its own, unless it was the last reply.
    pub(super) fn answer(&self, result: &RolloutResult) {
        let last_reply = std::mem::take(&mut *lock(&self.last_reply));
        let is_draft = is_failure(result.stop_reason)
            || matches!(result.stop_reason, StopReason::Cancelled | StopReason::Stopped);
        if is_draft {
            return;
        }
        if let Some(answer) = result.answer.as_ref().filter(|answer| **answer != last_reply) {
            self.say(&format!("answer-{}", result.metrics.root_llm_turns), answer, None);
        }
    }

    /// The call that waits for permission, as the client knows it.
    pub(super) fn pending(&self, call_id: &str) -> ToolCallUpdate {
        let running = lock(&self.running);
        let fields = ToolCallUpdateFields::new().raw_input(json!({"code": running.code}));
        ToolCallUpdate::new(tool_call_id(running.turn, call_id), fields)
    }

    fn send(&self, update: SessionUpdate) {
        // A connection that is gone ends the session elsewhere.
        _ = self.connection.send_notification(SessionNotification::new(self.session.clone(), update));
    }

    /// A call's code, and its output if there is any.
    fn content(&self, code: &str, output: &str) -> Vec<ToolCallContent> {
        let output = Some(output).filter(|output| !output.is_empty());
        std::iter::once(fenced(self.language, code)).chain(output.map(|output| fenced("", output))).collect()
    }

    fn call_started(&self, call: &CallStarted) {
        let code =
            call.code.clone().or_else(|| Some(call.arguments.as_ref()?.to_string())).unwrap_or_default();
        let first = code.lines().find(|line| !line.trim().is_empty()).unwrap_or(&call.tool);
        let id = tool_call_id(call.turn, &call.call_id);
        let started = ToolCall::new(id.clone(), one_line(&cut(first, TITLE_CHARS)))
            .kind(ToolKind::Execute)
            .status(ToolCallStatus::InProgress)
            .content(self.content(&code, ""))
            .raw_input(match &call.code {
                Some(code) => json!({"code": code}),
                None => call.arguments.clone().unwrap_or_default(),
            });
        let mut running = lock(&self.running);
        *running = Running { turn: call.turn, id: Some(id), code, ..Running::default() };
        self.send(SessionUpdate::ToolCall(started));
    }

    fn call_ended(&self, call: &CallEnded) {
        let mut running = lock(&self.running);
        let ended = std::mem::take(&mut *running);
        running.turn = call.turn;
        let is_sound = call.output.as_ref().is_some_and(|response| response.outcome == Outcome::Ok);
        let status = if is_sound { ToolCallStatus::Completed } else { ToolCallStatus::Failed };
        let text = match (&call.output, &call.error) {
            (Some(response), _) => output_of(response),
            (None, error) => error.clone().unwrap_or_default(),
        };
        let Some(id) = ended.id else {
            // The call could not be read, so it was never begun.
            let id = tool_call_id(call.turn, &call.call_id);
            let refused = ToolCall::new(id, "malformed call").status(status).content(vec![fenced("", &text)]);
            return self.send(SessionUpdate::ToolCall(refused));
        };
        let text = without_middle(&text, OUTPUT_BYTES);
        let raw = call.output.as_ref().map(|response| {
            let (outcome, exit_code) = (response.outcome, response.exit_code);
            let dropped_bytes = response.dropped_bytes();
            // The name by which clients look for the text: Harbor's.
            json!({"outcome": outcome, "exit_code": exit_code, "dropped_bytes": dropped_bytes, "output": text})
        });
        let content = self.content(&ended.code, &text);
        let fields = ToolCallUpdateFields::new().status(status).content(content).raw_output(raw);
        self.send(SessionUpdate::ToolCallUpdate(ToolCallUpdate::new(id, fields)));
    }

    /// Sends the output so far, unless the client is behind: a later update has it, too.
    fn flush(&self) {
        let mut running = lock(&self.running);
        running.is_scheduled = false;
        let Some(id) = running.id.clone().filter(|_| !running.output.text.is_empty()) else { return };
        if self.is_busy.load(Ordering::Relaxed) {
            return;
        }
        running.sent = Some(Instant::now());
        let content = self.content(&running.code, &visible(&running.output.shown()));
        let fields = ToolCallUpdateFields::new().content(content);
        self.send(SessionUpdate::ToolCallUpdate(ToolCallUpdate::new(id, fields)));
    }
}

impl Sink for Updates {
    fn entry(&self, entry: &Entry) {
        if entry.depth > 0 {
            return;
        }
        match &entry.event {
            Event::Message(message) if message.kind == MessageKind::Reply => {
                if let Some(reasoning) = reasoning_text(&message.message) {
                    let id = MessageId::new(format!("reasoning-{}", message.turn));
                    let chunk = ContentChunk::new(text_block(&reasoning)).message_id(id);
                    self.send(SessionUpdate::AgentThoughtChunk(chunk));
                }
                let text = reply_text(&message.message, None).unwrap_or_default();
                let (tokens, has_text) = (lock(&self.tokens).take(), !text.trim().is_empty());
                if has_text || tokens.is_some() {
                    self.say(&format!("reply-{}", message.turn), &text, tokens);
                }
                if has_text {
                    *lock(&self.last_reply) = text;
                }
            }
            Event::ModelCall(call) => self.model_call(call),
            Event::CallStarted(call) => self.call_started(call),
            Event::CallEnded(call) => self.call_ended(call),
            _ => {}
        }
    }

    fn wants_output(&self) -> bool {
        true
    }

    fn output(&self, piece: &OutputPiece<'_>) {
        let mut running = lock(&self.running);
        running.output.push(piece.text);
        let waits = running.sent.map_or(Duration::ZERO, |sent| PAUSE.saturating_sub(sent.elapsed()));
        if std::mem::replace(&mut running.is_scheduled, true) {
            return;
        }
        drop(running);
        let this = self.this.clone();
        tokio::spawn(async move {
            tokio::time::sleep(waits).await;
            if let Some(this) = this.upgrade() {
                this.flush();
            }
        });
    }
}

/// Ids of calls are unique within a reply only.
fn tool_call_id(turn: u32, call_id: &str) -> ToolCallId {
    ToolCallId::new(format!("{turn}-{call_id}"))
}

/// The output of a call, with its error, its result and the state of the session after it.
fn output_of(response: &Response) -> String {
    let Response { stdout, stderr, result, hint, .. } = response;
    visible(&joined([Some(stdout), Some(stderr), result.as_ref(), hint.as_ref()]))
}

fn text_block(text: &str) -> ContentBlock {
    ContentBlock::Text(TextContent::new(text))
}

/// A block of Markdown whose fence the text does not close.
fn fenced(language: &str, text: &str) -> ToolCallContent {
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest.max(2) + 1);
    let end = if text.ends_with('\n') { "" } else { "\n" };
    ToolCallContent::from(text_block(&format!("{fence}{language}\n{text}{end}{fence}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tail_keeps_the_end_and_counts_the_rest() {
        let mut tail = Tail::default();
        tail.push("é");
        assert_eq!(tail.shown(), "é");
        for _ in 0..10_000 {
            tail.push("12345678é\n");
        }
        assert!(tail.text.len() <= 2 * LIVE_BYTES);
        let shown = tail.shown();
        assert!(shown.starts_with("[") && shown.ends_with("12345678é\n"), "{shown}");
        let (_, end) = shown.split_once("before]\n").unwrap();
        assert!(end.len() <= LIVE_BYTES && end.len() > LIVE_BYTES - 16);
        assert_eq!(tail.dropped + tail.text.len(), 2 + 10_000 * 11);
    }
}
