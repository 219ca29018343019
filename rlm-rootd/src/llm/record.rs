//! Records of what models were asked, for trajectories.

use std::fmt;

use serde_json::Value as Json;

use super::error::SubCallError;
use crate::ledger::Usage;

/// Takes the records of a rollout.
pub trait Recorder: fmt::Debug + Send + Sync {
    /// A request to a model has ended. Called once for each, from the task that made it: must not block.
    fn sub_call(&self, record: &SubCallRecord<'_>);
}

/// One request to a model, with its retries.
#[derive(Clone, Copy, Debug)]
pub struct SubCallRecord<'a> {
    /// The batch that it belongs to.
    pub batch_id: &'a str,
    /// The place of its item in the batch, from 0.
    pub index: usize,
    /// Which request of the item it is, from 0: an item with tools takes several.
    pub turn: u32,
    /// Sent to the server as `X-Request-Id`, the same for each attempt.
    pub request_id: &'a str,
    /// The model.
    pub model: &'a str,
    /// What it was sent.
    pub messages: &'a [Json],
    /// The message that it answered.
    pub reply: Option<&'a Json>,
    /// Why there is none.
    pub error: Option<&'a SubCallError>,
    /// What the ledger was charged, failed attempts included.
    pub usage: Usage,
    /// How often it was sent.
    pub attempts: u32,
    /// How long it took, waiting included.
    pub seconds: f64,
}
