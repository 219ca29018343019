//! The result of a call.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::PROTOCOL_VERSION;
use crate::text::hex;

/// The result of a call: one document on the response FIFO. Every field is always present.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Response {
    /// `ok` if `outcome` is `ok`, otherwise `error`.
    pub status: Status,
    /// Standard output of the call; for bash, everything that a person would see at the terminal.
    pub stdout: String,
    /// Standard error of the call; always empty for bash, whose terminal shows both in `stdout`.
    pub stderr: String,
    /// Python: the value of a trailing expression, or a traceback. Bash: null. `op` `info`: a JSON text.
    pub result: Option<String>,
    /// Number of calls executed so far in this worker, including this one.
    pub execution_count: u64,
    /// The request's `seq`, or -1 if it could not be read.
    pub seq: i64,
    /// The answer after this call.
    pub answer: Answer,
    /// The way the call ended.
    pub outcome: Outcome,
    /// The part of the session's state that is left.
    pub state: State,
    /// Wall-clock time of the call, in seconds.
    pub execution_time: f64,
    /// Bash: exit status of the last command, or of the shell if it ended. Otherwise null.
    pub exit_code: Option<i32>,
    /// Python: the exception that ended the cell. Otherwise null.
    pub exception: Option<Exception>,
    /// Number of bytes dropped from each stream; null if nothing was dropped.
    pub truncated: Option<Truncated>,
    /// A sentence on what happened and what to do, if `outcome` alone does not tell the caller enough.
    pub hint: Option<String>,
    /// [`PROTOCOL_VERSION`].
    pub protocol: u32,
}

impl Response {
    /// A response that only says how the call ended.
    #[must_use]
    pub fn new(outcome: Outcome, state: State) -> Self {
        Self {
            status: outcome.status(),
            stdout: String::new(),
            stderr: String::new(),
            result: None,
            execution_count: 0,
            seq: 0,
            answer: Answer::default(),
            outcome,
            state,
            execution_time: 0.0,
            exit_code: None,
            exception: None,
            truncated: None,
            hint: None,
            protocol: PROTOCOL_VERSION,
        }
    }

    /// The response to a request that could not be understood or served. The session is untouched.
    #[must_use]
    pub fn refused(seq: i64, fault: String) -> Self {
        Self { seq, hint: Some(fault), ..Self::new(Outcome::Error, State::Kept) }
    }

    /// Puts the hint before the result, on a line of its own, for hosts that show a model no hints.
    pub fn show_hint(&mut self) {
        let Some(hint) = &self.hint else { return };
        self.result = Some(match &self.result {
            None => hint.clone(),
            Some(result) => format!("{hint}\n{result}"),
        });
    }

    /// The inverse of [`Self::show_hint`].
    pub fn hide_hint(&mut self) {
        let (Some(hint), Some(result)) = (&self.hint, &self.result) else { return };
        if let Some(rest) = result.strip_prefix(hint.as_str()) {
            self.result = rest.strip_prefix('\n').map(str::to_owned);
        }
    }

    /// The first 16 hexadecimal digits of the SHA-256 of `stdout`, `stderr` and, if it is not null, `result`, as they
    /// stand here, in UTF-8, with a byte 0xff between them.
    #[must_use]
    pub fn output_digest(&self) -> String {
        let mut digest = Sha256::new();
        digest.update(&self.stdout);
        for part in [Some(&self.stderr), self.result.as_ref()].into_iter().flatten() {
            digest.update([0xff]);
            digest.update(part);
        }
        hex(&digest.finalize()[..8])
    }

    /// Bytes dropped from all streams together.
    #[must_use]
    pub fn dropped_bytes(&self) -> u64 {
        self.truncated.unwrap_or_default().total()
    }

    /// Length of `stdout`, `stderr` and `result` together, in bytes of UTF-8.
    #[must_use]
    pub fn output_bytes(&self) -> u64 {
        (self.stdout.len() + self.stderr.len() + self.result.as_ref().map_or(0, String::len)) as u64
    }
}

/// The coarse result that hosts of the original protocol look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// The call ran to its end.
    Ok,
    /// Anything else; `outcome` says which.
    Error,
}

/// The way a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The code ran to its end. In bash a failing command is not an error: see `exit_code`.
    Ok,
    /// Python: the cell raised an exception. Both languages: the request was refused, and `hint` names the fault.
    Error,
    /// The time limit was reached and the code was stopped.
    TimedOut,
    /// The host interrupted the call.
    Interrupted,
    /// The shell ended: `exit`, `exec`, `set -e`, or it was killed. A new one serves the next call.
    Exited,
    /// The interpreter died. A new one serves the next call.
    Crashed,
}

impl Outcome {
    /// The status that belongs to this outcome.
    #[must_use]
    pub fn status(self) -> Status {
        if self == Self::Ok { Status::Ok } else { Status::Error }
    }
}

/// The part of the session's state that is left after a call; a greater value is a greater loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Everything: the same interpreter is still running.
    Kept,
    /// A new interpreter, with the state that the old one could save.
    Restored,
    /// A new interpreter, which has only the answer and, for bash, the working directory.
    Reset,
}

/// The rollout's answer. It belongs to the worker, and outlives the interpreter.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// True if the model declared the answer final.
    pub ready: bool,
    /// Text of the answer.
    pub content: String,
}

/// The exception that ended a Python cell.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exception {
    /// Name of the exception's class, such as `ValueError`.
    #[serde(rename = "type")]
    pub kind: String,
    /// `str()` of the exception.
    pub message: String,
}

/// Bytes that did not fit into the response, per stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Truncated {
    /// Bytes dropped from the middle of `stdout`.
    pub stdout: u64,
    /// Bytes dropped from the middle of `stderr`.
    pub stderr: u64,
    /// Bytes dropped from the middle of `result`.
    #[serde(default)]
    pub result: u64,
}

impl Truncated {
    /// Bytes dropped from all streams.
    #[must_use]
    pub fn total(self) -> u64 {
        self.stdout + self.stderr + self.result
    }
}
