//! A past session.

use std::collections::BTreeMap;
use std::path::PathBuf;

use rlm_core::json::JsonText;
use rlm_core::protocol::{Answer, Outcome, Response};
use serde_json::Value as Json;

use crate::rollout::RolloutResult;
use crate::terms::Callbacks;
use crate::terms::ReplLanguage;

/// A rollout that the code of a session has started.
#[derive(Clone, Debug, PartialEq)]
pub struct PastChild {
    /// The result of the rollout.
    pub result: RolloutResult,
    /// A digest of what was asked, if known.
    pub query_digest: Option<String>,
    /// Size of the working directory at the start, in bytes.
    pub context_bytes: u64,
    /// The model that led the rollout.
    pub model: String,
}

/// A past session, with its calls in order.
#[derive(Clone, Debug, PartialEq)]
pub struct PastSession {
    /// The language of the session.
    pub language: ReplLanguage,
    /// The version of the interpreter, if known.
    pub version: Option<String>,
    /// The model that led the session, if known.
    pub model: Option<String>,
    /// The working directory, if known.
    pub fs_root: Option<PathBuf>,
    /// The value of `fs_metadata` in Python code, if known.
    pub fs_metadata: Option<Json>,
    /// The way in which code called root tools. For a history always over the network: it does not mention intercepted calls,
    /// only the code that ran in their place.
    pub callbacks: Callbacks,
    /// Names of the root tools, if known.
    pub root_tools: Vec<String>,
    /// The results of the rollouts that code has started, if known, in the order of their starts.
    pub children: Vec<PastChild>,
    /// True if Python code had `FINAL` and `FINAL_VAR`; None if unknown.
    pub has_final_functions: Option<bool>,
    /// The calls, in order.
    pub calls: Vec<PastCall>,
    /// The last answer, if known.
    pub answer: Option<Answer>,
    /// Remarks for the user on the source: parts that are missing or could not be read.
    pub remarks: Vec<String>,
}

/// A call of a past session.
#[derive(Clone, Debug, PartialEq)]
pub struct PastCall {
    /// The number of the call, from 1.
    pub number: usize,
    /// The request.
    pub task: Task,
    /// The code as written, if it differs from the code that ran.
    pub source: Option<String>,
    /// The end of the call.
    pub end: End,
    /// The part of its response that the source has.
    pub known: KnownOutput,
    /// True for the first call of a worker: of the state before it, only files are left.
    pub is_first: bool,
}

/// A request to a session.
#[derive(Clone, Debug, PartialEq)]
pub enum Task {
    /// Run code.
    Run(String),
    /// Reset the session.
    Reset,
    /// Set variables.
    Set {
        /// Names and values.
        variables: BTreeMap<String, JsonText>,
        /// Names of variables whose values were too large for the history.
        omitted: Vec<String>,
    },
}

/// The end of a call.
#[derive(Clone, Debug, PartialEq)]
pub enum End {
    /// The session responded. The source may not have the whole response: see [`PastCall::known`].
    Responded(Box<Response>),
    /// The worker died before it responded; the error.
    Failed(String),
    /// The source ends before the call does.
    Missing,
}

/// The part of a response that a source has, besides the outcome.
#[derive(Clone, Debug, PartialEq)]
pub enum KnownOutput {
    /// Nothing else: the history was written by an older worker.
    Nothing,
    /// A digest of the output.
    Digest {
        /// [`Response::output_digest`].
        digest: String,
        /// Bytes of output.
        bytes: u64,
        /// True if there was a `result`.
        has_result: bool,
    },
    /// The output and the answer.
    All,
}

impl PastCall {
    /// The code, if the request was to run code.
    #[must_use]
    pub fn code(&self) -> Option<&str> {
        match &self.task {
            Task::Run(code) => Some(code),
            Task::Reset | Task::Set { .. } => None,
        }
    }

    /// The session's response, if there was one.
    #[must_use]
    pub fn response(&self) -> Option<&Response> {
        match &self.end {
            End::Responded(response) => Some(response),
            End::Failed(_) | End::Missing => None,
        }
    }

    /// The answer after the call, if known.
    #[must_use]
    pub fn answer(&self) -> Option<&Answer> {
        self.response().filter(|_| self.known == KnownOutput::All).map(|response| &response.answer)
    }

    /// Why the call did not run to its end, as a predicate: "timed out". None: it did.
    #[must_use]
    pub fn fault(&self) -> Option<String> {
        let response = match &self.end {
            End::Responded(response) => response,
            End::Failed(why) => return Some(format!("could not be made: {why}")),
            End::Missing => return Some("is incomplete in the source".to_owned()),
        };
        let words = match (response.outcome, &self.task) {
            (Outcome::Ok, _) => return None,
            (Outcome::Error, Task::Run(_)) => "raised an exception",
            (Outcome::Error, _) => "was refused",
            (Outcome::TimedOut, _) => "timed out",
            (Outcome::Interrupted, _) => "was interrupted",
            (Outcome::Exited, _) => "ended the shell",
            (Outcome::Crashed, _) => "ended the interpreter",
        };
        match &response.result {
            Some(traceback) if response.outcome == Outcome::Error => {
                let last = traceback.trim_end().lines().last().unwrap_or_default();
                Some(format!("{words}: {last}"))
            }
            _ => Some(words.to_owned()),
        }
    }
}
