//! A session as it was.

use std::collections::BTreeMap;
use std::path::PathBuf;

use rlm_core::json::JsonText;
use rlm_core::protocol::{Answer, Outcome, Response};
use serde_json::Value as Json;

use crate::terms::Callbacks;
use crate::terms::ReplLanguage;

/// A session that was, with its calls in order.
#[derive(Clone, Debug, PartialEq)]
pub struct PastSession {
    /// Its language.
    pub language: ReplLanguage,
    /// Version of its interpreter, where it is known.
    pub version: Option<String>,
    /// Its working directory, where it is known.
    pub fs_root: Option<PathBuf>,
    /// What Python code found in `fs_metadata`, where it is known.
    pub fs_metadata: Option<Json>,
    /// How its code called root tools. In a history it is always over the network: calls that the host made for the code are
    /// not told of there, but what ran in their place is.
    pub callbacks: Callbacks,
    /// Names of the root tools that it had, where they are known.
    pub root_tools: Vec<String>,
    /// Whether Python code had `FINAL` and `FINAL_VAR`, where it is known.
    pub has_final_functions: Option<bool>,
    /// What it did.
    pub calls: Vec<PastCall>,
    /// Its last answer, where it is known.
    pub answer: Option<Answer>,
    /// What a person should know of the source: what could not be read, or is missing in it.
    pub remarks: Vec<String>,
}

/// A call of a session that was.
#[derive(Clone, Debug, PartialEq)]
pub struct PastCall {
    /// Its number, from 1.
    pub number: usize,
    /// What was asked for.
    pub task: Task,
    /// What was written, where it is not the code that ran.
    pub source: Option<String>,
    /// How it ended.
    pub end: End,
    /// What its response tells.
    pub known: Known,
    /// Whether a worker began with it, so that nothing is left of the calls before but files.
    pub is_first: bool,
}

/// What a session was asked for.
#[derive(Clone, Debug, PartialEq)]
pub enum Task {
    /// To run code.
    Run(String),
    /// To begin anew.
    Reset,
    /// To take variables.
    Set {
        /// Names and values.
        variables: BTreeMap<String, JsonText>,
        /// Names of those whose values were too large for the history.
        omitted: Vec<String>,
    },
}

/// The end of a call.
#[derive(Clone, Debug, PartialEq)]
pub enum End {
    /// The session responded. The source may not have all of the response: see [`PastCall::known`].
    Responded(Box<Response>),
    /// The worker did not live to respond; why.
    Failed(String),
    /// The source ends before the call does.
    Missing,
}

/// The part of a response that a source has, beside how the call ended.
#[derive(Clone, Debug, PartialEq)]
pub enum Known {
    /// No more: the history was written by an old worker.
    Nothing,
    /// A digest of the output.
    Digest {
        /// [`Response::output_digest`].
        digest: String,
        /// Bytes of output.
        bytes: u64,
        /// Whether there was a `result`.
        has_result: bool,
    },
    /// The output and the answer.
    All,
}

impl PastCall {
    /// The code, where it ran code.
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

    /// The answer after the call, where it is known.
    #[must_use]
    pub fn answer(&self) -> Option<&Answer> {
        self.response().filter(|_| self.known == Known::All).map(|response| &response.answer)
    }

    /// Why it did not run to its end. None: it did.
    #[must_use]
    pub fn fault(&self) -> Option<String> {
        let response = match &self.end {
            End::Responded(response) => response,
            End::Failed(why) => return Some(format!("could not be made: {why}")),
            End::Missing => return Some("has no end in the source".to_owned()),
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
