//! What a rollout is given, and what it comes to.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use rlm_rootd::{Budget, SubLlmOptions, Tool};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};
use tokio_util::sync::CancellationToken;

use crate::callbacks::Callbacks;
use crate::metrics::Metrics;
use crate::session::ReplLanguage;
use crate::trajectory::Entry;
use crate::workspace::Context;

/// A rollout to be run by a [`Host`](crate::Host).
#[derive(Clone, Debug)]
pub struct RolloutConfig {
    /// Its id, which no other rollout of the host has: 1 to 128 of the characters a-z, A-Z, 0-9, `_`, `-` and `.`.
    pub id: String,
    /// What is asked.
    pub question: String,
    /// What lies in the working directory.
    pub context: Context,
    /// The language of the REPL.
    pub language: ReplLanguage,
    /// Limits.
    pub limits: Limits,
    /// How much the system prompt explains.
    pub verbosity: Verbosity,
    /// How code in the session calls root tools.
    pub callbacks: Callbacks,
    /// Tools that code in the session calls, beside `llm_batch` and `budget`, and those of [`Self::navigation`].
    pub root_tools: Vec<Tool>,
    /// Whether code in the session can call the tools of [`rlm_rootd::nav`] for its directory. None, the default: where its
    /// calls are intercepted.
    pub navigation: Option<bool>,
    /// Whether Python sessions have `FINAL(value)` and `FINAL_VAR("name")`, which set the answer; they have not by default.
    pub final_functions: bool,
    /// Tools that the root model calls, beside the REPL.
    pub standard_tools: Vec<Tool>,
    /// How the sub-LLM is called. Its recorder is the rollout's own. Without a system prompt it gets that of the host's
    /// prompts; an empty one is none.
    pub sub_llm: SubLlmOptions,
    /// Fields of each request to the root model, such as `temperature`.
    pub sampling: Map<String, Json>,
    /// Whether the root model knows tool calls; by default it does. Else its code stands in its text, in fenced blocks.
    pub tool_calls: bool,
    /// How many of the newest turns stay as they are where older ones are summarised. None, the default: nothing is
    /// summarised.
    pub summarize_turns: Option<u32>,
    /// Variables of the worker's environment beside those of the host: `RLM_PYTHON`, `RLM_PASS_ENV`, …
    pub env: Vec<(OsString, OsString)>,
    /// Where the rollout's directory is made and left after its end. None: it is private, and removed.
    pub keep: Option<PathBuf>,
    /// Get each entry of the trajectory when it happens.
    pub sinks: Vec<Arc<dyn Sink>>,
}

impl RolloutConfig {
    /// A rollout with defaults for everything but these.
    #[must_use]
    pub fn new(id: impl Into<String>, question: impl Into<String>) -> Self {
        Self {
            id: id.into(),
            question: question.into(),
            context: Context::default(),
            language: ReplLanguage::default(),
            limits: Limits::default(),
            verbosity: Verbosity::default(),
            callbacks: Callbacks::default(),
            root_tools: Vec::new(),
            navigation: None,
            final_functions: false,
            standard_tools: Vec::new(),
            sub_llm: SubLlmOptions::default(),
            sampling: Map::new(),
            tool_calls: true,
            summarize_turns: None,
            env: Vec::new(),
            keep: None,
            sinks: Vec::new(),
        }
    }
}

/// Where a rollout ends at the latest.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Turns of the root model; 50 by default. The last one is announced to it.
    pub max_turns: u32,
    /// Time of the whole rollout, from its first turn on; none by default.
    pub timeout: Option<Duration>,
    /// Time of one call of the REPL; 120 s by default. What is left of `timeout` is a limit too.
    pub call_timeout: Duration,
    /// What it may spend, root model and sub-LLMs together; no limit by default. Enough for one last turn is set aside.
    pub budget: Budget,
    /// Tokens that the root model takes, prompt and completion together. None: it is not known, and not warned of.
    pub context_tokens: Option<u64>,
    /// Tokens of one completion of the root model; the model's own limit when None, 4096 where a budget needs a bound.
    pub max_completion_tokens: Option<u64>,
    /// Characters of a call's output that the root model gets; 8192 by default.
    pub max_output_length: usize,
    /// How often a dead worker is replaced; twice by default.
    pub max_restarts: u32,
    /// Bytes of the context; 1 GB by default.
    pub max_context_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_turns: 50,
            timeout: None,
            call_timeout: Duration::from_secs(120),
            budget: Budget::default(),
            context_tokens: None,
            max_completion_tokens: None,
            max_output_length: 8192,
            max_restarts: 2,
            max_context_bytes: 1_000_000_000,
        }
    }
}

/// How much the system prompt explains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Verbosity {
    /// The rules alone, for models that were trained on them.
    Light,
    /// Rules with reasons.
    #[default]
    Medium,
    /// Rules with reasons and worked examples.
    Heavy,
}

impl fmt::Display for Verbosity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Light => "light",
            Self::Medium => "medium",
            Self::Heavy => "heavy",
        })
    }
}

/// A verbosity that there is none of.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown verbosity `{0}`: expected `light`, `medium` or `heavy`")]
pub struct UnknownVerbosity(String);

impl FromStr for Verbosity {
    type Err = UnknownVerbosity;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        match name {
            "light" => Ok(Self::Light),
            "medium" => Ok(Self::Medium),
            "heavy" => Ok(Self::Heavy),
            other => Err(UnknownVerbosity(other.to_owned())),
        }
    }
}

/// Takes the entries of a trajectory.
pub trait Sink: fmt::Debug + Send + Sync {
    /// Something happened. Called in the order of the entries, from tasks of the rollout: must not block for long.
    fn entry(&self, entry: &Entry);
}

/// Ends a rollout from outside. A clone is the same control.
#[derive(Clone, Debug, Default)]
pub struct Control {
    stop: CancellationToken,
    cancel: CancellationToken,
}

impl Control {
    /// A control that lets the rollout go on.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Ends the rollout after the call that runs; its answer so far is the result.
    pub fn stop(&self) {
        self.stop.cancel();
    }

    /// Ends the rollout at once. What runs is interrupted.
    pub fn cancel(&self) {
        self.stop.cancel();
        self.cancel.cancel();
    }

    pub(crate) fn stopping(&self) -> CancellationToken {
        self.stop.clone()
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancel.is_cancelled()
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.is_cancelled()
    }

    /// Completes when the rollout is to end.
    pub async fn stopped(&self) {
        self.stop.cancelled().await;
    }

    pub(crate) async fn cancelled(&self) {
        self.cancel.cancelled().await;
    }
}

/// What a rollout came to. Whatever happened, there is one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RolloutResult {
    /// The rollout's id.
    pub id: String,
    /// What was asked.
    pub question: String,
    /// The answer: final, or the best so far. None: there is none.
    pub answer: Option<String>,
    /// Whether the model declared it final.
    pub answer_ready: bool,
    /// Why the rollout ended.
    pub stop_reason: StopReason,
    /// What went wrong, where something did.
    pub error: Option<String>,
    /// What was counted.
    pub metrics: Metrics,
    /// The rollout's directory, where it was kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dir: Option<PathBuf>,
}

/// Why a rollout ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// The model declared its answer final.
    Answered,
    /// [`Limits::max_turns`].
    MaxTurns,
    /// [`Limits::timeout`].
    TimedOut,
    /// [`Limits::budget`].
    BudgetExhausted,
    /// The conversation grew longer than the root model takes.
    ContextFull,
    /// The root model called no tool, and went on so when it was told.
    NoToolCall,
    /// [`Control::stop`].
    Stopped,
    /// [`Control::cancel`].
    Cancelled,
    /// The root model's endpoint failed.
    ModelFailed,
    /// The worker died more often than [`Limits::max_restarts`].
    WorkerFailed,
    /// The rollout could not be set up, or a prompt of its own could not be rendered.
    SetupFailed,
}
