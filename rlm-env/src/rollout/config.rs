//! The input and the result of a rollout.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use rlm_rootd::{Budget, Ledger, RootModel, SubLlmOptions, Tool};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};
use tokio_util::sync::CancellationToken;

use super::answer_schema::AnswerSchema;
use super::images::Image;
use super::prefix::Prefix;
use super::recursion::Recursion;
use crate::metrics::Metrics;
use crate::terms::{Callbacks, Limits, ReplLanguage, StopReason, Verbosity};
use crate::trajectory::Sink;
use crate::workspace::{Context, ContextFilter};

/// A rollout to be run by a [`Host`](crate::Host).
#[derive(Clone, Debug)]
pub struct RolloutConfig {
    /// The rollout's id, unique within the host: 1 to 128 of the characters a-z, A-Z, 0-9, `_`, `-` and `.`.
    pub id: String,
    /// The question.
    pub question: String,
    /// Images after the question, for a root model that takes them.
    pub images: Vec<Image>,
    /// True to give code in the session `show(path)`, which shows the root model an image; false by default.
    pub show_images: bool,
    /// The contents of the working directory.
    pub context: Context,
    /// An existing directory to work in. The context still goes into a private directory.
    pub working_dir: Option<PathBuf>,
    /// Files that copies of the context's directories leave out.
    pub context_filter: ContextFilter,
    /// The language of the REPL.
    pub language: ReplLanguage,
    /// The limits at which the rollout ends.
    pub limits: Limits,
    /// A ledger that several rollouts spend from, besides the budget of each. A rollout that finds no room to begin is stopped.
    pub shared_ledger: Option<Arc<Ledger>>,
    /// The extent of the explanations in the system prompt.
    pub verbosity: Verbosity,
    /// The way in which code in the session calls root tools.
    pub callbacks: Callbacks,
    /// Tools for code in the session, besides `llm_batch`, `budget` and those of [`Self::navigation`].
    pub root_tools: Vec<Tool>,
    /// True to give code in the session the tools of [`rlm_rootd::nav`] for its directory. None, the default: only if
    /// calls are intercepted.
    pub navigation: Option<bool>,
    /// True if a reply without a call is a final answer. False, the default: the model is reminded to call.
    pub plain_answers: bool,
    /// A text at the end of the root model's system prompt.
    pub append_to_system_prompt: Option<String>,
    /// True to give Python sessions `FINAL(value)` and `FINAL_VAR("name")`, which set the answer; false by default.
    pub final_functions: bool,
    /// The model that leads the rollout. None, the default: the host's.
    pub model: Option<Arc<dyn RootModel>>,
    /// The rollouts that code in the session may start by `rlm_query`. None, the default: it may start none.
    pub recursion: Option<Recursion>,
    /// The schema that a final answer must fit. Other answers are given back to the model. None, the default: any text.
    pub answer_schema: Option<AnswerSchema>,
    /// Tools that the root model calls directly, besides the REPL.
    pub standard_tools: Vec<Tool>,
    /// Options of the sub-LLM. The rollout replaces the recorder by its own. If the system prompt is None, the one of
    /// the host's prompts is used; if it is empty, none is sent.
    pub sub_llm: SubLlmOptions,
    /// Extra fields of each request to the root model, such as `temperature`.
    pub sampling: Map<String, Json>,
    /// True, the default, if the root model supports tool calls. Otherwise its code is in fenced blocks of its text.
    pub tool_calls: bool,
    /// Number of the newest turns to keep when older ones are summarised. None, the default: never summarise.
    pub summarize_turns: Option<u32>,
    /// When the whole conversation is replaced by a summary. None, the default: never.
    pub compaction: Option<Compaction>,
    /// True: the file with the conversation is `.messages` in the working directory, where it counts as a part of the
    /// context. False, the default: it is outside. Code finds it by the variable `RLM_MESSAGES` in both cases.
    pub messages_in_context: bool,
    /// True, the default, to keep the model's reasoning, and what signs or encrypts it, in the entries of the trajectory and in
    /// the file with the conversation. Requests have it in both cases.
    pub keep_reasoning: bool,
    /// Variables of the worker's environment besides those of the host: `RLM_PYTHON`, `RLM_PASS_ENV`, …
    pub env: Vec<(OsString, OsString)>,
    /// The directory in which the rollout's directory is made and kept. None: it is private, and removed at the end.
    pub keep: Option<PathBuf>,
    /// Decides whether code runs. None, the default: all of it.
    pub gate: Option<Arc<dyn CallGate>>,
    /// The beginning of the rollout, which has run: the question, the context and the language are those of that one. None, the
    /// default: it begins with the question.
    pub prefix: Option<Arc<Prefix>>,
    /// Receivers of the trajectory's entries as they happen.
    pub sinks: Vec<Arc<dyn Sink>>,
}

/// When and how the whole conversation is replaced by a summary. The system prompt and the running question stay.
#[derive(Clone, Debug)]
pub struct Compaction {
    /// Tokens of the conversation at which it is replaced. None: 16,384 less than the context window of the limits, but at least
    /// half of it. It is also replaced where the window is full, or the model's server refuses the conversation as too long.
    pub at_tokens: Option<u64>,
    /// Most summaries in a rollout. None, the default: no limit.
    pub max_times: Option<u32>,
    /// Most requests for each summary, until one gets a text; 5 by default. If none does, the context counts as full.
    pub max_attempts: u32,
}

impl Default for Compaction {
    fn default() -> Self {
        Self { at_tokens: None, max_times: None, max_attempts: 5 }
    }
}

/// Decides before each call of the REPL whether its code runs.
pub trait CallGate: fmt::Debug + Send + Sync {
    /// Completes with true if the code runs. The future is dropped if the question is cancelled.
    fn allows<'a>(
        &'a self,
        call_id: &'a str,
        code: &'a str,
    ) -> Pin<Box<dyn Future<Output = bool> + Send + 'a>>;
}

impl RolloutConfig {
    /// A configuration with defaults for everything but the arguments.
    #[must_use]
    pub fn new(id: impl Into<String>, question: impl Into<String>) -> Self {
        Self {
            id: id.into(),
            question: question.into(),
            images: Vec::new(),
            show_images: false,
            context: Context::default(),
            working_dir: None,
            context_filter: ContextFilter::default(),
            language: ReplLanguage::default(),
            limits: Limits::default(),
            shared_ledger: None,
            verbosity: Verbosity::default(),
            callbacks: Callbacks::default(),
            root_tools: Vec::new(),
            navigation: None,
            plain_answers: false,
            append_to_system_prompt: None,
            final_functions: false,
            model: None,
            recursion: None,
            answer_schema: None,
            standard_tools: Vec::new(),
            sub_llm: SubLlmOptions::default(),
            sampling: Map::new(),
            tool_calls: true,
            summarize_turns: None,
            compaction: None,
            messages_in_context: false,
            keep_reasoning: true,
            env: Vec::new(),
            keep: None,
            gate: None,
            prefix: None,
            sinks: Vec::new(),
        }
    }

    /// The time limit of the rollout, or what its beginning has left of it.
    pub(super) fn timeout(&self) -> Option<Duration> {
        self.prefix.as_ref().map_or(self.limits.timeout, |prefix| prefix.time_left)
    }

    /// The budget of the rollout, or what its beginning has left of it.
    pub(super) fn budget(&self) -> Budget {
        self.prefix.as_ref().map_or(self.limits.budget, |prefix| prefix.budget())
    }
}

/// Ends a rollout from outside. Clones control the same rollout.
#[derive(Clone, Debug, Default)]
pub struct Control {
    stop: CancellationToken,
    cancel: CancellationToken,
}

impl Control {
    /// A control that does not end the rollout until asked to.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Ends the rollout after the running call; its answer so far is the result.
    pub fn stop(&self) {
        self.stop.cancel();
    }

    /// Ends the rollout at once and interrupts the running call.
    pub fn cancel(&self) {
        self.stop.cancel();
        self.cancel.cancel();
    }

    /// A control that ends with this one, and can end before it.
    pub(crate) fn child(&self) -> Self {
        Self { stop: self.stop.child_token(), cancel: self.cancel.child_token() }
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

    /// Completes when the rollout is asked to end.
    pub async fn stopped(&self) {
        self.stop.cancelled().await;
    }

    /// Completes when the rollout is asked to end at once.
    pub async fn cancelled(&self) {
        self.cancel.cancelled().await;
    }
}

/// The result of a rollout. Every rollout has one, whatever happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RolloutResult {
    /// The rollout's id.
    pub id: String,
    /// The question.
    pub question: String,
    /// The final answer, or the latest draft. None: no answer.
    pub answer: Option<String>,
    /// True if the model declared the answer final.
    pub answer_ready: bool,
    /// Why the rollout ended.
    pub stop_reason: StopReason,
    /// The error that ended the rollout, if any.
    pub error: Option<String>,
    /// True if the root model's server refused the key, its rights or credit, or the model's name: a retry does not help.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub refused_by_server: bool,
    /// Its metrics.
    pub metrics: Metrics,
    /// The rollout's directory, if it was kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dir: Option<PathBuf>,
}
