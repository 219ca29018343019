//! The lines of `rlm_history.jsonl`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::{Outcome, Response, State};
use crate::json::JsonText;

/// The operation of a history line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Operation {
    /// Run code.
    #[default]
    Execute,
    /// Start over with a fresh interpreter.
    Reset,
    /// Set variables.
    Set,
    /// Write the state to a file.
    Save,
    /// Go on with the session in a file. The lines of that session precede this one.
    Load,
}

/// One line of `rlm_history.jsonl`. Lines of older workers end before `op`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HistoryEntry {
    /// The request's `seq`.
    pub seq: i64,
    /// The code that ran; empty if none did.
    pub code: String,
    /// The way the call ended.
    pub outcome: Outcome,
    /// The part of the session's state that was left.
    pub state: State,
    /// Bash: exit status of the last command.
    pub exit_code: Option<i32>,
    /// Start of the call, in seconds since the Unix epoch.
    pub started_at: f64,
    /// Wall-clock time of the call, in seconds.
    pub execution_time: f64,
    /// The operation.
    #[serde(default)]
    pub op: Operation,
    /// [`Response::output_digest`]; None in lines of older workers.
    #[serde(default)]
    pub output_digest: Option<String>,
    /// [`Response::output_bytes`].
    #[serde(default)]
    pub output_bytes: u64,
    /// Op `set`: the variables, in the order of their names, that fit into
    /// [`crate::limits::MAX_HISTORY_VARIABLES_BYTES`]. Absent for other ops.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variables: Option<BTreeMap<String, JsonText>>,
    /// Op `set`: names of the variables that did not fit; absent if all did.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub variables_omitted: Vec<String>,
    /// Ops `save` and `load`: the file. Absent for other ops.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<PathBuf>,
    /// True if the response had a `result`: the value of a last expression, or a traceback. Absent otherwise.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_result: bool,
    /// The code as written, if different code ran: [`super::Execute::source`]. Absent otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Present in the first line of each worker, where it marks a new session, and for op `load`; absent in the others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<HistorySession>,
}

impl HistoryEntry {
    /// The entry for a request that began at `started_at`, in seconds since the Unix epoch, and got this response. The
    /// code or variables of the request are left out.
    #[must_use]
    pub fn of(response: &Response, op: Operation, started_at: f64) -> Self {
        Self {
            seq: response.seq,
            code: String::new(),
            outcome: response.outcome,
            state: response.state,
            exit_code: response.exit_code,
            started_at,
            execution_time: response.execution_time,
            op,
            output_digest: Some(response.output_digest()),
            output_bytes: response.output_bytes(),
            variables: None,
            variables_omitted: Vec::new(),
            file: None,
            has_result: response.result.is_some(),
            source: None,
            session: None,
        }
    }
}

/// The session whose history begins at a line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistorySession {
    /// `bash` or `python`.
    pub language: String,
    /// Version of the interpreter.
    pub version: String,
    /// The session's working directory.
    pub fs_root: String,
    /// Names of the root tools.
    #[serde(default)]
    pub root_tools: Vec<String>,
    /// True if the session has `FINAL` and `FINAL_VAR`. Absent otherwise.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub final_functions: bool,
}
