//! Results of a tool. Programs in other languages read these types: fields may be added, never removed or changed.

use rlm_core::error::with_causes;
use rlm_core::protocol::{Answer, Exception, Outcome, Response, State};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::prompts::{Prompts, ToolFailureText, ToolFault};
use crate::terms::ReplLanguage;

/// The result of a request: `{"ok": true, "value": …}`, or `{"ok": false, "error": "…", "hint": "…"}`.
///
/// Code that fails is a value with `success` false. A failure is the tool's: the code did not run, or it is unknown how
/// far.
#[derive(Clone, Debug, PartialEq)]
pub enum ToolResult<T> {
    /// The request succeeded.
    Ok(T),
    /// The request failed.
    Failed(ToolFailure),
}

impl<T> ToolResult<T> {
    /// True if the request succeeded.
    pub fn is_ok(&self) -> bool {
        matches!(self, Self::Ok(_))
    }
}

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ToolFailure {
    /// A sentence that says what is wrong.
    pub error: String,
    /// A sentence that says what to do about it.
    pub hint: String,
}

impl ToolFailure {
    /// Words a fault for a model.
    #[must_use]
    pub fn of(fault: &ToolFault, prompts: &Prompts, language: ReplLanguage) -> Self {
        let text = ToolFailureText { language, fault };
        // Templates are checked when they are loaded; should one fail all the same, its error is the text.
        let said = |rendered: Result<String, _>| rendered.unwrap_or_else(|error| with_causes(&error));
        Self { error: said(text.render_error(prompts)), hint: said(text.render_hint(prompts)) }
    }
}

/// The result of one call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct CallValue {
    /// Standard output; for bash, everything a person would see at the terminal. Here and in the next two fields, escape
    /// sequences and control characters are removed.
    pub stdout: String,
    /// Standard error; empty for bash.
    pub stderr: String,
    /// Python: the repr of the value of the last expression, or the traceback. Bash: null.
    pub result: Option<String>,
    /// Python: the exception that ended the code, `{"type", "message"}`. Otherwise null.
    pub exception: Option<Exception>,
    /// True if the code ran to its end, in Python without an exception, and `exit_code` is not that of a failure.
    pub success: bool,
    /// True if the code ran to its end, in Python without an exception, whatever `exit_code` is.
    pub completed: bool,
    /// Bash: the status of the last command. Python: null.
    pub exit_code: Option<i32>,
    /// Wall-clock seconds that the code ran.
    pub execution_time: f64,
    /// True if the code was stopped at its time limit.
    pub timed_out: bool,
    /// True if the code was interrupted from outside.
    pub interrupted: bool,
    /// The texts above that are cut; null if none is.
    pub truncated: Option<Cuts>,
    /// The part of the session that is left: `kept` everything, `restored` what could be saved, `reset` only files.
    pub state: State,
    /// The answer after the call: `{"ready", "content"}`.
    pub answer: Answer,
    /// Anything else the caller should know, and what to do; null if nothing.
    pub hint: Option<String>,
}

impl CallValue {
    pub(super) fn new(response: Response, truncated: Option<Cuts>) -> Self {
        Self {
            success: response.outcome == Outcome::Ok && matches!(response.exit_code, None | Some(0)),
            completed: response.outcome == Outcome::Ok,
            timed_out: response.outcome == Outcome::TimedOut,
            interrupted: response.outcome == Outcome::Interrupted,
            stdout: response.stdout,
            stderr: response.stderr,
            result: response.result,
            exception: response.exception,
            exit_code: response.exit_code,
            execution_time: response.execution_time,
            truncated,
            state: response.state,
            answer: response.answer,
            hint: response.hint,
        }
    }
}

/// The cut of each text; null for a text that is whole.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Cuts {
    /// The cut of `stdout`.
    pub stdout: Option<Cut>,
    /// The cut of `stderr`.
    pub stderr: Option<Cut>,
    /// The cut of `result`.
    pub result: Option<Cut>,
    /// The cut of the answer's `content`.
    pub answer: Option<Cut>,
}

/// A cut in the middle of a text. A line in its place mentions it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Cut {
    /// Bytes left out here; they are in `file`, if that is not null.
    pub omitted_bytes: u64,
    /// Bytes that were too many even for the session and are lost.
    pub lost_bytes: u64,
    /// The file with the whole text; null if it could not be kept, or if only lost bytes are missing.
    pub file: Option<String>,
}

/// The result of a reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ResetValue {
    /// Always `reset`.
    pub state: State,
}

/// The code that a session ran, as a script.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ScriptValue {
    /// The script; empty if nothing was run.
    pub script: String,
}

/// The result of a call, for programs and for models.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ToolReply {
    /// The result for programs.
    pub result: ToolResult<CallValue>,
    /// The result as text for a model: the output as a person would see it, with notes in square brackets.
    pub text: String,
}

impl ToolReply {
    pub(super) fn failed(failure: ToolFailure) -> Self {
        Self { text: failure.to_string(), result: ToolResult::Failed(failure) }
    }
}

impl std::fmt::Display for ToolFailure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "[error: {}. {}]", self.error.trim_end_matches('.'), self.hint)
    }
}

/// The JSON form of a result.
#[derive(Serialize, Deserialize)]
struct Form<T> {
    ok: bool,
    #[serde(default = "Option::default", skip_serializing_if = "Option::is_none")]
    value: Option<T>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
}

impl<T: Serialize> Serialize for ToolResult<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let form = match self {
            Self::Ok(value) => Form { ok: true, value: Some(value), error: None, hint: None },
            Self::Failed(ToolFailure { error, hint }) => {
                Form { ok: false, value: None, error: Some(error.clone()), hint: Some(hint.clone()) }
            }
        };
        form.serialize(serializer)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for ToolResult<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Form::deserialize(deserializer)? {
            Form { ok: true, value: Some(value), .. } => Ok(Self::Ok(value)),
            Form { ok: true, value: None, .. } => Err(D::Error::missing_field("value")),
            Form { ok: false, error: Some(error), hint, .. } => {
                Ok(Self::Failed(ToolFailure { error, hint: hint.unwrap_or_default() }))
            }
            Form { ok: false, error: None, .. } => Err(D::Error::missing_field("error")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value() -> CallValue {
        CallValue {
            stdout: "é\n".to_owned(),
            stderr: String::new(),
            result: None,
            exception: Some(Exception { kind: "ValueError".to_owned(), message: "no".to_owned() }),
            success: false,
            completed: false,
            exit_code: None,
            execution_time: 0.5,
            timed_out: false,
            interrupted: false,
            truncated: Some(Cuts {
                stdout: Some(Cut { omitted_bytes: 7, lost_bytes: 0, file: Some("/tmp/x".to_owned()) }),
                ..Cuts::default()
            }),
            state: State::Reset,
            answer: Answer::default(),
            hint: Some("begin anew".to_owned()),
        }
    }

    /// Programs read this JSON: fields may be added, but none removed or changed in meaning.
    #[test]
    fn golden_results() {
        let golden = concat!(
            r#"{"ok":true,"value":{"stdout":"é\n","stderr":"","result":null,"#,
            r#""exception":{"type":"ValueError","message":"no"},"success":false,"completed":false,"exit_code":null,"#,
            r#""execution_time":0.5,"timed_out":false,"interrupted":false,"#,
            r#""truncated":{"stdout":{"omitted_bytes":7,"lost_bytes":0,"file":"/tmp/x"},"stderr":null,"#,
            r#""result":null,"answer":null},"state":"reset","answer":{"ready":false,"content":""},"#,
            r#""hint":"begin anew"}}"#
        );
        let result = ToolResult::Ok(value());
        assert_eq!(serde_json::to_string(&result).unwrap(), golden);
        assert_eq!(serde_json::from_str::<ToolResult<CallValue>>(golden).unwrap(), result);

        let golden = r#"{"ok":false,"error":"busy","hint":"wait"}"#;
        let failure = ToolFailure { error: "busy".to_owned(), hint: "wait".to_owned() };
        let result = ToolResult::<CallValue>::Failed(failure);
        assert_eq!(serde_json::to_string(&result).unwrap(), golden);
        assert_eq!(serde_json::from_str::<ToolResult<CallValue>>(golden).unwrap(), result);

        let reset = ToolResult::Ok(ResetValue { state: State::Reset });
        assert_eq!(serde_json::to_string(&reset).unwrap(), r#"{"ok":true,"value":{"state":"reset"}}"#);
    }

    #[test]
    fn a_result_without_value_or_error_is_refused() {
        for text in [r#"{"ok":true}"#, r#"{"ok":false}"#, r#"{"value":{}}"#] {
            assert!(serde_json::from_str::<ToolResult<ScriptValue>>(text).is_err(), "{text}");
        }
    }
}
