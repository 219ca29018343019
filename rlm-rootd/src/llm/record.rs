//! Records of requests to models, for trajectories.

use std::fmt;

use serde_json::Value as Json;

use super::error::SubCallError;
use super::message::ChatMessage;
use crate::ledger::Usage;

/// A receiver of the records of a rollout.
pub trait Recorder: fmt::Debug + Send + Sync {
    /// Takes the record of a request that has ended. It is called from the task of the request, and must not block.
    fn sub_call(&self, record: &SubCallRecord<'_>);
}

/// One request to a model, with its retries.
#[derive(Clone, Copy, Debug)]
pub struct SubCallRecord<'a> {
    /// Id of the batch.
    pub batch_id: &'a str,
    /// Index of the item in the batch, from 0.
    pub index: usize,
    /// Index of the request in its item, from 0: an item with tools takes several.
    pub turn: u32,
    /// Id of the request, sent to the server as `X-Request-Id` with each attempt.
    pub request_id: &'a str,
    /// The model.
    pub model: &'a str,
    /// The messages that were sent.
    pub messages: &'a [ChatMessage],
    /// The message of the reply.
    pub reply: Option<&'a Json>,
    /// The reason why the reply ended, as the server gave it.
    pub finish_reason: Option<&'a str>,
    /// An object of the fields that the server added to the reply, such as `logprobs` and `token_ids`.
    pub extra: Option<&'a Json>,
    /// The error in place of a reply.
    pub error: Option<&'a SubCallError>,
    /// The ledger's charge, failed attempts included.
    pub usage: Usage,
    /// Number of attempts.
    pub attempts: u32,
    /// Wall-clock seconds, waiting included.
    pub seconds: f64,
}
