//! What a rollout is given, and what it comes to.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use rlm_rootd::{SubLlmOptions, Tool};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};
use tokio_util::sync::CancellationToken;

use crate::metrics::Metrics;
use crate::terms::{Callbacks, Limits, ReplLanguage, StopReason, Verbosity};
use crate::trajectory::Sink;
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
#[non_exhaustive]
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
