//! The calls of a soak as data: everything about a call that running it again, alone or in another order, needs.

use rlm_core::protocol::{Outcome, State};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One call and the promises about it. A replay file has one of these in each line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// The production of the grammar that made it.
    pub kind: String,
    /// The request that is sent.
    pub request: Request,
    /// The way the host reads the response.
    #[serde(default)]
    pub reading: Reading,
    /// True if the session's worker ends before the request, which a new one gets.
    #[serde(default)]
    pub starts_worker: bool,
    /// The host's actions on the worker around the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disturbance: Option<Disturbance>,
    /// The output and the changes of the code, in this order.
    #[serde(default)]
    pub effects: Vec<Effect>,
    /// The endings of which one must come, unless the session's state or a disturbance allows another.
    pub endings: Vec<Ending>,
    /// True if the output is not known exactly.
    #[serde(default)]
    pub is_output_free: bool,
    /// True if a command of the code fails, which ends a shell with `set -e`.
    #[serde(default)]
    pub fails: bool,
    /// Python: the type of the exception that ends the cell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exception: Option<String>,
    /// A part of the hint of a request that is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
}

/// A request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Request {
    /// A JSON object, which gets its `seq` when it is sent, and a file in place of a `file`.
    Document(Value),
    /// Bytes in order, written as the characters U+0000 to U+00FF, and the `seq` of the answer.
    Bytes(String, i64),
    /// A document whose code is one byte longer than the limit of requests.
    TooLarge,
}

/// The way a host reads a response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reading {
    /// Opens the FIFO after the request, waits in `open` and in `read`.
    #[default]
    Blocking,
    /// Opens the FIFO before the request, without waiting, and reads whenever it is readable.
    Early,
    /// Opens the FIFO after the request, without waiting, and reads whenever it is readable.
    Late,
    /// Like `Early`, and a process that the host forks has a copy of the reader until the next call.
    Forked,
}

/// An action of the host around a call. Times are in microseconds after the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Disturbance {
    /// SIGINT to the worker.
    Interrupt(u64),
    /// A signal to the interpreter.
    Kill(i32, u64),
    /// A signal to the interpreter before the request.
    KillBefore(i32),
    /// SIGKILL to the interpreter that is there then: a new one, if the call ends the old one.
    KillNew(u64),
    /// SIGKILL to a program that the interpreter has started.
    KillChild(u64),
}

/// An allowed ending of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ending {
    /// The outcome.
    pub outcome: Outcome,
    /// The state.
    pub state: State,
    /// The exit code, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
}

/// A change of the session, or a piece of output.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Effect {
    /// The name has this value. Names are those of variables, functions, aliases and all else that [`Effect::Show`]
    /// can show; what a new shell never has begins with `!`.
    Set(String, String),
    /// The value grows by this text at its end, if there is one; otherwise this is the value.
    Append(String, String),
    /// The name has no value.
    Unset(String),
    /// Prints the value of a name or `gone`, and a newline.
    Show(String),
    /// Prints the working directory, relative to the session's, and a newline.
    ShowDir,
    /// Prints a text.
    Print(String),
    /// Prints a text on standard error.
    Complain(String),
    /// Prints a text this many times.
    Fill(String, usize),
    /// Python: the value of the last expression.
    Result(String),
    /// The content of the answer.
    Content(String),
    /// True if the answer is final.
    Ready(bool),
    /// Changes to a directory, relative to the session's.
    Dir(String),
    /// Prints go elsewhere from now on, or no longer.
    Mute(bool),
    /// Bash: `set -x`.
    Trace(bool),
    /// Bash: `set -e`.
    Strict(bool),
    /// Bash: an EXIT trap that prints this.
    AtExit(String),
    /// Background programs may print lines `~bg…~` at any later time, and bash says how jobs end.
    Noisy,
    /// Bash: there is a stopped job, with which bash refuses to exit.
    Stopped,
    /// Python: builtins are broken, or whole again.
    Broken(bool),
}

impl Effect {
    pub(crate) fn set(name: &str, value: &str) -> Self {
        Self::Set(name.to_owned(), value.to_owned())
    }

    pub(crate) fn print(text: &str) -> Self {
        Self::Print(text.to_owned())
    }

    pub(crate) fn complain(text: &str) -> Self {
        Self::Complain(text.to_owned())
    }
}

impl Step {
    /// A call that runs this code, changes and prints nothing, and ends well.
    pub(crate) fn new(kind: &str, code: impl Into<String>) -> Self {
        Self::of(kind, Request::Document(serde_json::json!({"code": code.into()})))
    }

    /// Another request that changes and prints nothing.
    pub(crate) fn of(kind: &str, request: Request) -> Self {
        Self {
            kind: kind.to_owned(),
            request,
            reading: Reading::default(),
            starts_worker: false,
            disturbance: None,
            effects: Vec::new(),
            endings: vec![Ending::new(Outcome::Ok, State::Kept)],
            is_output_free: false,
            fails: false,
            exception: None,
            fault: None,
        }
    }

    pub(crate) fn effects(mut self, effects: impl IntoIterator<Item = Effect>) -> Self {
        self.effects.extend(effects);
        self
    }

    pub(crate) fn endings(self, endings: impl IntoIterator<Item = (Outcome, State)>) -> Self {
        let endings = endings.into_iter().map(|(outcome, state)| Ending::new(outcome, state)).collect();
        Self { endings, ..self }
    }

    pub(crate) fn ends(self, outcome: Outcome, state: State) -> Self {
        self.endings([(outcome, state)])
    }

    pub(crate) fn exit_code(mut self, code: i32) -> Self {
        for ending in &mut self.endings {
            ending.exit_code = Some(code);
        }
        self
    }

    pub(crate) fn raises(self, exception: &str) -> Self {
        Self { exception: Some(exception.to_owned()), ..self.ends(Outcome::Error, State::Kept) }
    }

    pub(crate) fn field(mut self, name: &str, value: impl Into<Value>) -> Self {
        if let Request::Document(document) = &mut self.request {
            document[name] = value.into();
        }
        self
    }

    pub(crate) fn failing(self) -> Self {
        Self { fails: true, ..self }
    }

    pub(crate) fn with_free_output(self) -> Self {
        Self { is_output_free: true, ..self }
    }

    /// True for a save or a load of the session.
    pub(crate) fn is_of_saved_session(&self) -> bool {
        matches!(self.operation(), Some("save" | "load"))
    }

    /// True for a save with the session's directory.
    pub(crate) fn is_with_directory(&self) -> bool {
        matches!(&self.request, Request::Document(document) if document["directory"] == true)
    }

    /// The operation, or None if the request is malformed.
    pub(crate) fn operation(&self) -> Option<&str> {
        match &self.request {
            Request::Document(document) if self.fault.is_none() => {
                Some(document["op"].as_str().unwrap_or("execute"))
            }
            _ => None,
        }
    }

    /// Bash: true if the code may replace the trap by which the shell hands on its state.
    pub(crate) fn mentions_traps(&self) -> bool {
        self.code().is_some_and(|code| code.contains("trap") || code.contains("builtin"))
    }

    /// The code of a call.
    pub(crate) fn code(&self) -> Option<&str> {
        match &self.request {
            Request::Document(document) => document["code"].as_str(),
            _ => None,
        }
    }

    /// Time limit in seconds.
    pub(crate) fn timeout(&self) -> Option<f64> {
        match &self.request {
            Request::Document(document) => document["timeout"].as_f64(),
            _ => None,
        }
    }

    /// Bound on the output returned per stream, in bytes.
    pub(crate) fn max_output(&self) -> Option<usize> {
        match &self.request {
            Request::Document(document) => document["max_output_bytes"].as_u64()?.try_into().ok(),
            _ => None,
        }
    }
}

impl Ending {
    pub(crate) fn new(outcome: Outcome, state: State) -> Self {
        Self { outcome, state, exit_code: None }
    }
}
