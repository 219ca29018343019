//! Replies that come in pieces.

use std::sync::atomic::Ordering;

use reqwest::{Response, StatusCode};
use serde_json::{Map, Value as Json};
use tokio::time::{Instant, timeout_at};

use super::{MAX_REPLY_BYTES, MAX_STREAM_BYTES, Models, Streaming, has_error, lacks_choices};
use crate::llm::api::Api;
use crate::llm::error::SubCallError;
use crate::llm::failure::{Cost, Failure, Retry, unusable};
use crate::llm::forms::arguments;
use crate::llm::message::call_arguments;
use crate::llm::reply::{Came, Reply};
use crate::llm::reply_end::ReplyEnd;
use crate::llm::server_error::ServerError;
use crate::llm::sse;
use crate::llm::wire::{CLOSING, Streamed};

/// Bytes of a reply that a token of the bound allows: a run of blanks or dashes may be one of some hundred.
const LONGEST_TOKEN: u64 = 256;

/// Bytes of a reply that any bound allows, for signatures and encrypted reasoning.
const LEAST_BYTES: u64 = 64 << 10;

/// Number of times that the limit of a silence is as long where a server keeps the connection open by comments and events without
/// anything of the reply: OpenRouter and DeepSeek do so while a request waits in their queues, for minutes.
const KEPT_ALIVE: u32 = 2;

/// Number of replies, one after the other, whose calls have lost their arguments.
const MOST_LOST: u64 = 2;

impl Models {
    /// Reads a reply that comes as events, each with a piece of it.
    /// `bound`: the most tokens that were asked for.
    pub(super) async fn read_pieces(
        &self,
        mut response: Response,
        bound: Option<u64>,
        came: &Came,
    ) -> Result<Reply, Failure> {
        let mut unended = Unended::new(StreamedReply { bound, ..StreamedReply::new(self) }, came);
        while let Some(pieces) = &mut unended.pieces {
            let next = response.chunk();
            let chunk = match pieces.until {
                None => match timeout_at(pieces.heard + self.limit(KEPT_ALIVE), next).await {
                    Ok(chunk) => chunk.map_err(|error| self.broken(&error))?,
                    Err(_) => return Err(self.silent(self.limit(KEPT_ALIVE))),
                },
                // The reply has ended and is paid for, whatever becomes of the connection. One whose response ends can be used again.
                Some(until) => timeout_at(until, next).await.ok().and_then(Result::ok).flatten(),
            };
            match chunk {
                Some(chunk) => pieces.add(&chunk)?,
                None => break,
            }
        }
        unended.pieces.take().expect("taken only here").end()
    }

    /// Reads the events of a reply that has come in whole.
    pub(super) fn pieces_of(&self, body: &[u8]) -> Result<Reply, Failure> {
        let mut pieces = StreamedReply::new(self);
        pieces.add(body)?;
        pieces.end()
    }
}

impl Models {
    /// Asks for whole replies once the arguments of calls are lost in streams, again and again: vLLM's parsers lose them there
    /// (vllm-project/vllm#31501, #45256).
    pub(super) fn watch_arguments(&self, reply: &Reply, fields: &Map<String, Json>) {
        let calls = || reply.message().ok()?.get("tool_calls")?.as_array().filter(|calls| !calls.is_empty());
        let Some(calls) = calls().filter(|_| reply.end() == ReplyEnd::Done) else { return };
        if !calls.iter().any(|call| lacks_arguments(call, fields)) {
            self.lost_arguments.store(0, Ordering::Relaxed);
        } else if self.lost_arguments.fetch_add(1, Ordering::Relaxed) + 1 >= MOST_LOST {
            self.stop_streaming("arguments of calls are lost in streamed replies");
        }
    }
}

/// True for a call without arguments that its tool needs, or whose arguments cannot be read.
fn lacks_arguments(call: &Json, fields: &Map<String, Json>) -> bool {
    let name = &call["function"]["name"];
    let tools = fields.get("tools").and_then(Json::as_array);
    let needs_some = || {
        let mut functions = tools.into_iter().flatten().map(|tool| &tool["function"]);
        let function = functions.find(|function| function["name"] == *name);
        function
            .and_then(|function| function["parameters"]["required"].as_array())
            .is_some_and(|names| !names.is_empty())
    };
    arguments(&call_arguments(call)).map_or(true, |read| read.is_empty() && needs_some())
}

/// A reply that comes as events, each with a piece of it.
struct StreamedReply<'a> {
    models: &'a Models,
    events: sse::Events,
    streamed: Streamed,
    bytes: usize,
    /// The most tokens that were asked for.
    bound: Option<u64>,
    /// The body, where it begins as a document instead of events, whatever its type says.
    document: Vec<u8>,
    /// True once the server has said that the stream is over.
    is_over: bool,
    /// The moment at which something of the reply has last come.
    heard: Instant,
    /// The moment until which something else is waited for, once the reply has ended. Comments, which keep a connection open, do not
    /// put it off.
    until: Option<Instant>,
}

impl<'a> StreamedReply<'a> {
    fn new(models: &'a Models) -> Self {
        let (events, streamed) = (sse::Events::default(), models.api.streamed());
        let heard = Instant::now();
        let (bytes, bound, document) = (0, None, Vec::new());
        Self { models, events, streamed, bytes, bound, document, is_over: false, heard, until: None }
    }

    fn add(&mut self, chunk: &[u8]) -> Result<(), Failure> {
        let mut ended = Vec::new();
        let is_document =
            !self.document.is_empty() || self.bytes == 0 && chunk.trim_ascii_start().starts_with(b"{");
        if is_document {
            self.document.extend_from_slice(chunk);
        } else {
            self.events.add(chunk, |data| ended.push(data));
        }
        if is_document || self.events.is_within_data() {
            self.heard = Instant::now();
        }
        let heard = self.heard;
        self.bytes += chunk.len();
        if self.bytes > MAX_STREAM_BYTES || self.events.pending().max(self.document.len()) > MAX_REPLY_BYTES {
            return Err(unusable(format!("it is over {} MiB", MAX_STREAM_BYTES >> 20)));
        }
        for data in &ended {
            self.event(data)?;
        }
        if !ended.is_empty() {
            let closing = if self.is_over { Some(CLOSING) } else { self.streamed.closing() };
            let until = closing.map(|closing| Instant::now() + closing);
            // Pieces without anything new do not move the moment.
            let earlier = self.until.filter(|_| self.heard == heard);
            self.until = until.map(|until| earlier.map_or(until, |earlier| earlier.min(until)));
        }
        Ok(())
    }

    /// Adds the data of an event. Nothing behind the server's word that the stream is over is read.
    fn event(&mut self, data: &str) -> Result<(), Failure> {
        self.is_over |= data == "[DONE]";
        // Some gateways send comments as data (mnfst/llm-gateway#2053).
        if self.is_over || data.starts_with(':') {
            return Ok(());
        }
        match self.models.documents(data.as_bytes()) {
            Err(_) if self.streamed.is_whole() => Ok(()),
            pieces => pieces?.into_iter().try_for_each(|piece| self.piece(piece)),
        }
    }

    fn piece(&mut self, piece: Json) -> Result<(), Failure> {
        let models = self.models;
        let is_error = has_error(&piece) || models.api == Api::Chat && lacks_choices(&piece);
        let error = is_error.then(|| ServerError::of(&piece)).flatten();
        // An error behind the end does not take the reply back.
        if error.is_some() && self.streamed.is_whole() {
            return Ok(());
        }
        let own_fault = StatusCode::INTERNAL_SERVER_ERROR;
        let failure = error.map(|error| models.refused(error.status.unwrap_or(own_fault), None, &error));
        if self.streamed.add(piece) {
            self.heard = Instant::now();
        }
        let most = |bound: u64| LONGEST_TOKEN.saturating_mul(bound).saturating_add(LEAST_BYTES);
        let is_longer = |bound: u64| self.streamed.text_bytes() > most(bound);
        let endless = || {
            let bound = self.bound.filter(|bound| is_longer(*bound))?;
            let why = format!(
                "it is far longer than the {bound} tokens that were asked for, which the server ignores"
            );
            Some(Failure { retry: Retry::Never, ..unusable(why) })
        };
        let Some(failure) = failure.or_else(endless) else { return Ok(()) };
        let (body, text) = std::mem::replace(&mut self.streamed, models.api.streamed()).into_body();
        Err(failure.after(models.api.part(body, &text)))
    }

    /// The part that came of a reply that did not end, if any did.
    fn part(self) -> Option<Json> {
        let (body, text) = self.streamed.into_body();
        let part = self.models.api.part(body, &text);
        (!text.is_empty() || part["usage"].is_object()).then_some(part)
    }

    fn end(mut self) -> Result<Reply, Failure> {
        let models = self.models;
        if let Some(rest) =
            self.events.rest().filter(|rest| rest == "[DONE]" || models.documents(rest.as_bytes()).is_ok())
        {
            self.event(&rest)?;
        }
        if !self.document.is_empty() {
            if models.streams.load(Ordering::Relaxed) {
                models.note_streaming(Streaming::Whole);
            }
            return models.reply(models.json(&self.document)?, "");
        }
        models.note_streaming(Streaming::InPieces);
        if self.streamed.is_whole() || self.streamed.is_whole_at_end(self.is_over) {
            let (body, text) = self.streamed.into_body();
            return models.reply(body, &text);
        }
        let error = SubCallError::Broken("the stream ended before the reply".to_owned());
        let failure = Failure::new(error, Cost::Unknown, Retry::After(None));
        Err(match self.part() {
            Some(part) => failure.after(part),
            None => failure,
        })
    }
}

/// A streamed reply that has not ended. If it is dropped, what came of it is put aside.
struct Unended<'a> {
    pieces: Option<StreamedReply<'a>>,
    came: &'a Came,
}

impl<'a> Unended<'a> {
    fn new(pieces: StreamedReply<'a>, came: &'a Came) -> Self {
        Self { pieces: Some(pieces), came }
    }
}

impl Drop for Unended<'_> {
    fn drop(&mut self) {
        if let Some(part) = self.pieces.take().and_then(StreamedReply::part) {
            self.came.put(part);
        }
    }
}
