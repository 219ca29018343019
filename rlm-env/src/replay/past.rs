//! A session as it was.

use std::collections::BTreeMap;
use std::path::PathBuf;

use rlm_core::json::JsonText;
use rlm_core::protocol::{Answer, Outcome, State};
use serde_json::Value as Json;

use crate::callbacks::Callbacks;
use crate::session::ReplLanguage;

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

/// How a call ended.
#[derive(Clone, Debug, PartialEq)]
pub enum End {
    /// The session returned.
    Ran(Ran),
    /// The worker did not live to return; why.
    Failed(String),
    /// The source ends before the call does.
    Missing,
}

/// What a session returned.
#[derive(Clone, Debug, PartialEq)]
pub struct Ran {
    /// How the call ended.
    pub outcome: Outcome,
    /// What was left of the session.
    pub state: State,
    /// Bash: the status of the last command.
    pub exit_code: Option<i32>,
    /// How long it took, in seconds.
    pub execution_time: f64,
    /// What it printed.
    pub printed: Printed,
    /// The answer after it, where it is known.
    pub answer: Option<Answer>,
}

/// What a call printed, as far as it is known.
#[derive(Clone, Debug, PartialEq)]
pub enum Printed {
    /// Nothing is known: the history was written by an old worker.
    Unknown,
    /// [`rlm_core::protocol::Response::output_digest`] and the size of it.
    Digest {
        /// The digest.
        digest: String,
        /// Bytes of output.
        bytes: u64,
        /// Whether there was a `result`.
        has_result: bool,
    },
    /// All of it.
    Text {
        /// Standard output.
        stdout: String,
        /// Standard error.
        stderr: String,
        /// Python: the value of a last expression, or a traceback.
        result: Option<String>,
    },
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

    /// What the session returned, if it did.
    #[must_use]
    pub fn ran(&self) -> Option<&Ran> {
        match &self.end {
            End::Ran(ran) => Some(ran),
            End::Failed(_) | End::Missing => None,
        }
    }

    /// Why it did not run to its end. None: it did.
    #[must_use]
    pub fn fault(&self) -> Option<String> {
        let ran = match &self.end {
            End::Ran(ran) => ran,
            End::Failed(why) => return Some(format!("could not be made: {why}")),
            End::Missing => return Some("has no end in the source".to_owned()),
        };
        let words = match (ran.outcome, &self.task) {
            (Outcome::Ok, _) => return None,
            (Outcome::Error, Task::Run(_)) => "raised an exception",
            (Outcome::Error, _) => "was refused",
            (Outcome::TimedOut, _) => "timed out",
            (Outcome::Interrupted, _) => "was interrupted",
            (Outcome::Exited, _) => "ended the shell",
            (Outcome::Crashed, _) => "ended the interpreter",
        };
        match &ran.printed {
            Printed::Text { result: Some(traceback), .. } if ran.outcome == Outcome::Error => {
                let last = traceback.trim_end().lines().last().unwrap_or_default();
                Some(format!("{words}: {last}"))
            }
            _ => Some(words.to_owned()),
        }
    }
}
