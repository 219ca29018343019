//! The entries of a trajectory.

use std::time::{SystemTime, UNIX_EPOCH};

use rlm_core::protocol::Response;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use crate::metrics::Metrics;
use crate::terms::{Callbacks, LeftOut, StopReason};

/// The version of the schema, in `rollout_started`.
///
/// * 1: the first.
pub const VERSION: u32 = 1;

/// One line of a trajectory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Entry {
    /// Id of the rollout.
    pub rollout: String,
    /// Time of the event in seconds since the Unix epoch.
    pub time: f64,
    /// The event.
    #[serde(flatten)]
    pub event: Event,
    /// Number of rollouts above this one; left out if it is 0.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub depth: u32,
}

impl Entry {
    /// An entry of this moment.
    #[must_use]
    pub fn now(rollout: String, depth: u32, event: Event) -> Self {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { rollout, time: since_epoch.as_secs_f64(), event, depth }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(depth: &u32) -> bool {
    *depth == 0
}

/// An event; the field `event` names its kind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Event {
    /// The first entry of a rollout.
    RolloutStarted(RolloutStarted),
    /// A message of the conversation with the root model.
    Message(Message),
    /// A request to the root model has failed, and is sent again.
    ModelRetry(ModelRetry),
    /// The end of a request to the root model.
    ModelCall(ModelCall),
    /// The start of a tool that the root model called: the REPL, or a standard tool.
    CallStarted(CallStarted),
    /// The end of a call. A call that could not be read has no start.
    CallEnded(CallEnded),
    /// The end of a request to a sub-LLM.
    SubCall(SubCall),
    /// Another root model, from here on.
    ModelChanged(ModelChanged),
    /// The end of a question of a rollout that takes several.
    QuestionEnded(QuestionEnded),
    /// The last entry of a rollout, but for its score.
    RolloutEnded(RolloutEnded),
    /// The score of a rollout of a batch that is scored, after its end.
    RolloutScored(RolloutScored),
}

/// The start of a rollout.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RolloutStarted {
    /// [`VERSION`].
    pub version: u32,
    /// The question.
    pub question: String,
    /// The rollout whose code has started this one, or whose beginning it has; none for one that a host has started.
    #[serde(default)]
    pub parent: Option<String>,
    /// The call whose code has started this rollout.
    #[serde(default)]
    pub parent_call_id: Option<String>,
    /// The turn of `parent` after which this rollout goes on in its place; none for one that begins with its question.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branched_at: Option<u32>,
    /// A digest of the question that the code asked, by which a replay knows it.
    #[serde(default)]
    pub query_digest: Option<String>,
    /// `bash` or `python`.
    pub language: String,
    /// The way in which code calls root tools. Trajectories of older versions do not have this field; code then called
    /// over the network.
    #[serde(default)]
    pub callbacks: Callbacks,
    /// The root model.
    pub model: String,
    /// The sub-LLM's model; none where sub-LLMs cannot be called.
    pub sub_model: Option<String>,
    /// True if Python code has `FINAL` and `FINAL_VAR`.
    #[serde(default)]
    pub final_functions: bool,
    /// Names of the root tools that code can call.
    pub root_tools: Vec<String>,
    /// Names of the tools that the root model can call, the REPL first.
    pub tools: Vec<String>,
    /// Number of files in the working directory.
    pub context_files: u64,
    /// Size of the working directory in bytes.
    pub context_bytes: u64,
    /// Files that the copy of the context left out, by reason. Older trajectories do not have this field.
    #[serde(default)]
    pub context_left_out: Vec<LeftOut>,
}

/// A message of the conversation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Message {
    /// The turn of the message: 0 before the model's first reply, then 1, 2, …
    pub turn: u32,
    /// The purpose of the message.
    pub kind: MessageKind,
    /// The message in OpenAI's form, as sent or received. An output's `tool_call_id` is that of its call.
    pub message: Json,
    /// Names of what was left out of the message, where reasoning is not kept: it cannot be sent to a server as it is here.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<String>,
}

/// The purpose of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum MessageKind {
    /// The system prompt. A second one replaces the first: the model's server refused tools.
    System,
    /// The question.
    Question,
    /// A reply of the model.
    Reply,
    /// The output of a call.
    Output,
    /// A notice of the host: few tokens are left, this is the last turn, no tool was called.
    Notice,
    /// A summary that replaced earlier turns.
    Summary,
}

/// An attempt of a request to the root model that failed, before the next one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ModelRetry {
    /// The turn of the request, from 1.
    pub turn: u32,
    /// Why the request failed.
    pub error: String,
    /// Seconds until the next attempt, as the server asks for or growing with each.
    pub wait_seconds: f64,
}

/// A change of the root model between two questions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ModelChanged {
    /// The number of turns before the change.
    pub turn: u32,
    /// The model after the change.
    pub model: String,
}

/// A request to the root model, with its retries.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ModelCall {
    /// The turn of the request, from 1.
    pub turn: u32,
    /// True if the request asked for a summary of older turns instead of the next message.
    pub is_summary: bool,
    /// The model.
    pub model: String,
    /// Tokens of the prompt.
    pub prompt_tokens: u64,
    /// Tokens of the completion.
    pub completion_tokens: u64,
    /// The tokens of the prompt that were read from the server's cache. Older trajectories do not have this field.
    #[serde(default)]
    pub cached_tokens: u64,
    /// The tokens of the prompt that were written to it at a price of their own.
    #[serde(default)]
    pub cache_write_tokens: u64,
    /// The tokens of the completion that are reasoning.
    #[serde(default)]
    pub reasoning_tokens: u64,
    /// True if the token counts are estimates because the server reported none.
    pub usage_estimated: bool,
    /// Cost in USD; null if the model has no known price.
    pub cost_usd: Option<f64>,
    /// Number of times the request was sent.
    pub attempts: u32,
    /// Wall-clock seconds, waiting included.
    pub seconds: f64,
    /// Why there is no reply.
    pub error: Option<String>,
    /// The reason why the reply ended, as the server gave it: `stop`, `tool_calls`, `length`, `content_filter`, …
    #[serde(default)]
    pub finish_reason: Option<String>,
    /// Changes to the conversation before it was sent, and their reasons: a sentence for each kind.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub adapted: Vec<String>,
    /// An object of the fields that the server added to the reply, such as `logprobs` and `token_ids`.
    #[serde(default)]
    pub extra: Option<Json>,
    /// Id of the request, if the server was told one and replied.
    #[serde(default)]
    pub request_id: Option<String>,
    /// Parts that are left out, as in [`Message`]: of `extra`, whose tokens would tell the reasoning.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<String>,
}

/// The start of a call of the root model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct CallStarted {
    /// The turn.
    pub turn: u32,
    /// Id of the call; the model's, if it gave one.
    pub call_id: String,
    /// The tool's name.
    pub tool: String,
    /// The code, if the tool is the REPL.
    pub code: Option<String>,
    /// The arguments, for other tools.
    pub arguments: Option<Json>,
}

/// The end of a call of the root model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct CallEnded {
    /// The turn.
    pub turn: u32,
    /// Id of the call.
    pub call_id: String,
    /// Wall-clock seconds.
    pub seconds: f64,
    /// The session's response, if the REPL ran. Lines hold a part of it (`docs/trajectory.md`); read back, all dropped
    /// bytes are in `truncated.stdout`.
    #[serde(with = "super::output")]
    pub output: Option<Response>,
    /// Why the call could not be made or failed: malformed arguments, a dead worker, a standard tool's error.
    pub error: Option<String>,
}

/// A request to a sub-LLM, with its retries.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SubCall {
    /// The call of the root model in which the request was made; null if it ended between calls.
    pub call_id: Option<String>,
    /// The `llm_batch` call that the request belongs to.
    pub batch_id: String,
    /// The index of the request's prompt in the batch, from 0.
    pub index: usize,
    /// The number of this request for that prompt, from 0: a sub-LLM that calls tools takes several.
    pub step: u32,
    /// Sent to the server as `X-Request-Id`.
    pub request_id: String,
    /// The model.
    pub model: String,
    /// The messages that were sent, in OpenAI's form.
    pub messages: Vec<Json>,
    /// The reply.
    pub reply: Option<Json>,
    /// The same field as in [`ModelCall`].
    #[serde(default)]
    pub finish_reason: Option<String>,
    /// The same field as in [`ModelCall`].
    #[serde(default)]
    pub extra: Option<Json>,
    /// Parts that are left out, as in [`Message`], of all messages and of `extra`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<String>,
    /// Why there is no reply.
    pub error: Option<String>,
    /// Tokens of the prompt.
    pub prompt_tokens: u64,
    /// Tokens of the completion.
    pub completion_tokens: u64,
    /// The tokens of the prompt that were read from the server's cache. Older trajectories do not have this field.
    #[serde(default)]
    pub cached_tokens: u64,
    /// The tokens of the prompt that were written to it at a price of their own.
    #[serde(default)]
    pub cache_write_tokens: u64,
    /// The tokens of the completion that are reasoning.
    #[serde(default)]
    pub reasoning_tokens: u64,
    /// True if the token counts are estimates.
    pub usage_estimated: bool,
    /// Cost in USD; null if the model has no known price.
    pub cost_usd: Option<f64>,
    /// Number of times the request was sent.
    pub attempts: u32,
    /// Wall-clock seconds, waiting included.
    pub seconds: f64,
}

/// The end of a question of a rollout that takes several.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct QuestionEnded {
    /// Why it ended.
    pub stop_reason: StopReason,
    /// The final answer, or the latest draft.
    pub answer: Option<String>,
    /// True if the answer is final.
    pub answer_ready: bool,
    /// The error that ended it, if any.
    pub error: Option<String>,
}

/// The end of a rollout.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RolloutEnded {
    /// Why it ended.
    pub stop_reason: StopReason,
    /// The final answer, or the latest draft. Null: no answer.
    pub answer: Option<String>,
    /// True if the model declared the answer final.
    pub answer_ready: bool,
    /// The error that ended the rollout, if any.
    pub error: Option<String>,
    /// The rollout's metrics.
    pub metrics: Metrics,
}

/// The score of a rollout.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RolloutScored {
    /// The score from 0 to 1. None: the answer could not be scored.
    pub score: Option<f64>,
    /// Why the answer could not be scored.
    pub error: Option<String>,
}

impl RolloutScored {
    /// The outcome of scoring.
    #[must_use]
    pub fn new(score: Result<f64, String>) -> Self {
        match score {
            Ok(score) => Self { score: Some(score), error: None },
            Err(error) => Self { score: None, error: Some(error) },
        }
    }
}
