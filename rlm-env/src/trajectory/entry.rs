//! The entries of a trajectory, as they stand in its lines.

use rlm_core::protocol::Response;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use crate::metrics::Metrics;
use crate::terms::{Callbacks, StopReason};

/// The version of the schema, in `rollout_started`.
///
/// * 1: the first.
pub const VERSION: u32 = 1;

/// One line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Entry {
    /// Id of the rollout.
    pub rollout: String,
    /// When it happened, in seconds since the Unix epoch.
    pub time: f64,
    /// What happened.
    #[serde(flatten)]
    pub event: Event,
}

/// What happened; the field `event` says which.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Event {
    /// The first entry of a rollout.
    RolloutStarted(RolloutStarted),
    /// A message of the conversation with the root model.
    Message(Message),
    /// A request to the root model has ended.
    ModelCall(ModelCall),
    /// A tool that the root model called has begun: the REPL, or a standard tool.
    CallStarted(CallStarted),
    /// It has ended. Without a beginning: it could not be read.
    CallEnded(CallEnded),
    /// A request to a sub-LLM has ended.
    SubCall(SubCall),
    /// The last entry of a rollout.
    RolloutEnded(RolloutEnded),
}

/// The start of a rollout.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RolloutStarted {
    /// [`VERSION`].
    pub version: u32,
    /// What was asked.
    pub question: String,
    /// `bash` or `python`.
    pub language: String,
    /// How code calls root tools; trajectories of older versions have none, and it was over the network.
    #[serde(default)]
    pub callbacks: Callbacks,
    /// The root model.
    pub model: String,
    /// The sub-LLM's model; none where sub-LLMs cannot be called.
    pub sub_model: Option<String>,
    /// Whether Python code has `FINAL` and `FINAL_VAR`.
    #[serde(default)]
    pub final_functions: bool,
    /// Names of the root tools that code can call.
    pub root_tools: Vec<String>,
    /// Names of the tools that the root model can call, the REPL first.
    pub tools: Vec<String>,
    /// Files in the working directory.
    pub context_files: u64,
    /// Bytes in the working directory.
    pub context_bytes: u64,
}

/// A message of the conversation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Message {
    /// The turn that it belongs to: 0 before the first reply of the model, then 1, 2, …
    pub turn: u32,
    /// What it is for.
    pub kind: MessageKind,
    /// The message as the model gets it or gave it, in OpenAI's form. An output's `tool_call_id` is that of its call.
    pub message: Json,
}

/// What a message is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum MessageKind {
    /// The system prompt.
    System,
    /// The question.
    Question,
    /// What the model said.
    Reply,
    /// The output of a call.
    Output,
    /// A word of the host's: few tokens are left, this is the last turn, no tool was called.
    Notice,
    /// A summary that took the place of turns before it.
    Summary,
}

/// A request to the root model, with its retries.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ModelCall {
    /// The turn that it was made for, from 1.
    pub turn: u32,
    /// Whether it asked for a summary of older turns, and not for the next message.
    pub is_summary: bool,
    /// The model.
    pub model: String,
    /// Tokens of the prompt.
    pub prompt_tokens: u64,
    /// Tokens of the completion.
    pub completion_tokens: u64,
    /// Whether the tokens are estimated, since the server reported none.
    pub usage_estimated: bool,
    /// Cost in USD; none where the model has no known price.
    pub cost_usd: Option<f64>,
    /// How often the request was sent.
    pub attempts: u32,
    /// How long it took, waiting included.
    pub seconds: f64,
    /// Why there is no reply.
    pub error: Option<String>,
}

/// A call of the root model's has begun.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct CallStarted {
    /// The turn.
    pub turn: u32,
    /// Id of the call: the model's where it gave one.
    pub call_id: String,
    /// The tool's name.
    pub tool: String,
    /// The code, where the tool is the REPL.
    pub code: Option<String>,
    /// The arguments, where it is another tool.
    pub arguments: Option<Json>,
}

/// A call of the root model's has ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct CallEnded {
    /// The turn.
    pub turn: u32,
    /// Id of the call.
    pub call_id: String,
    /// How long it took.
    pub seconds: f64,
    /// The session's response, where the tool is the REPL and it ran. Lines have a part of it, with which it is read again
    /// (`docs/trajectory.md`): bytes that were dropped are all in `truncated.stdout` then.
    #[serde(with = "super::output")]
    pub output: Option<Response>,
    /// Why the call could not be made or failed: arguments that cannot be read, a dead worker, a standard tool's error.
    pub error: Option<String>,
}

/// A request to a sub-LLM, with its retries.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SubCall {
    /// The call of the root model's in which it was made; none where it ended between calls.
    pub call_id: Option<String>,
    /// The `llm_batch` call that it belongs to.
    pub batch_id: String,
    /// The place of its prompt in the batch, from 0.
    pub index: usize,
    /// Which request for that prompt it is, from 0: a sub-LLM that calls tools takes several.
    pub step: u32,
    /// Sent to the server as `X-Request-Id`.
    pub request_id: String,
    /// The model.
    pub model: String,
    /// What it was sent, in OpenAI's form.
    pub messages: Vec<Json>,
    /// The message that it answered.
    pub reply: Option<Json>,
    /// Why there is none.
    pub error: Option<String>,
    /// Tokens of the prompt.
    pub prompt_tokens: u64,
    /// Tokens of the completion.
    pub completion_tokens: u64,
    /// Whether the tokens are estimated.
    pub usage_estimated: bool,
    /// Cost in USD; none where the model has no known price.
    pub cost_usd: Option<f64>,
    /// How often the request was sent.
    pub attempts: u32,
    /// How long it took, waiting included.
    pub seconds: f64,
}

/// The end of a rollout.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RolloutEnded {
    /// Why it ended.
    pub stop_reason: StopReason,
    /// The answer: final, or the best so far. None: there is none.
    pub answer: Option<String>,
    /// Whether the model declared it final.
    pub answer_ready: bool,
    /// What went wrong, where something did.
    pub error: Option<String>,
    /// What was counted.
    pub metrics: Metrics,
}
