//! The documents of the FIFO protocol, version 1.
//!
//! The rules: the host writes one request and reads exactly one response before it writes the next. A request that
//! cannot be understood gets a response too, with status `error` and the fault in `hint`; it never ends the worker.
//! Unknown fields are ignored in both directions. Fields are only ever added within a version; a change of meaning
//! takes a new [`PROTOCOL_VERSION`].
//!
//! These types are only wire: nothing else in the project is serialised through them.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use crate::json::JsonText;
use crate::limits::{MAX_TIMEOUT, MAX_VARIABLE_BYTES, MAX_VARIABLE_DEPTH, MIN_MAX_OUTPUT_BYTES};

/// The version of this protocol, sent in every response as `protocol`.
///
/// * 1: the first.
pub const PROTOCOL_VERSION: u32 = 1;

/// The `seq` of a response to a request whose own could not be read.
pub const UNKNOWN_SEQ: i64 = -1;

/// What the host asks for: one document on the command FIFO.
#[derive(Clone, Debug, PartialEq)]
pub enum Request {
    /// Run code in the session.
    Execute(Execute),
    /// Give the session a fresh interpreter; the answer is cleared.
    Reset {
        /// Echoed in the response.
        seq: i64,
    },
    /// Put values into the session under the given names.
    Set {
        /// Echoed in the response.
        seq: i64,
        /// Name to JSON value, each within [`MAX_VARIABLE_BYTES`] and [`MAX_VARIABLE_DEPTH`].
        variables: BTreeMap<String, JsonText>,
    },
    /// Describe the session.
    Info {
        /// Echoed in the response.
        seq: i64,
    },
    /// End the worker. The one request without a response.
    Shutdown,
}

/// One call: code to run, and limits that hold for this call alone.
#[derive(Clone, Debug, PartialEq)]
pub struct Execute {
    /// The code, in the language of the worker.
    pub code: String,
    /// Echoed in the response.
    pub seq: i64,
    /// Time limit of this call; the worker's own default when absent.
    pub timeout: Option<Duration>,
    /// Bound on the bytes of output returned per stream; the worker's own default when absent.
    pub max_output_bytes: Option<usize>,
}

/// A request document that is well framed and yet no request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{fault}")]
pub struct BadRequest {
    /// The document's `seq` where it could be read, else [`UNKNOWN_SEQ`].
    pub seq: i64,
    /// What is wrong: the field, what was found and what was expected.
    pub fault: String,
}

impl Request {
    /// Reads one document. Unknown fields are ignored.
    ///
    /// # Errors
    /// [`BadRequest`] names the field, what was found and what was expected.
    pub fn parse(document: &[u8]) -> Result<Self, BadRequest> {
        let invalid = |error: &dyn std::fmt::Display| BadRequest {
            seq: crate::frame::scan_seq(document),
            fault: format!("request is not valid {error}"),
        };
        let text = std::str::from_utf8(document).map_err(|utf8| {
            let at = utf8.valid_up_to();
            invalid(&format_args!("UTF-8: byte 0x{:02x} at offset {at}", document[at]))
        })?;
        if !text.trim_start().starts_with('{') {
            let other = serde_json::from_str::<Value>(text)
                .map_err(|error| invalid(&format_args!("JSON: {error}")))?;
            let fault = format!("request is {}, expected a JSON object", kind(&other));
            return Err(BadRequest { seq: UNKNOWN_SEQ, fault });
        }
        let fields = serde_json::from_str(text).map_err(|error| invalid(&format_args!("JSON: {error}")))?;
        Fields::new(fields).and_then(Fields::into_request)
    }
}

/// A request's fields, with the `seq` that every complaint about them carries.
struct Fields<'a> {
    seq: i64,
    fields: BTreeMap<String, &'a RawValue>,
}

impl<'a> Fields<'a> {
    fn new(fields: BTreeMap<String, &'a RawValue>) -> Result<Self, BadRequest> {
        let mut fields = Self { seq: UNKNOWN_SEQ, fields };
        fields.seq = match fields.take("seq")? {
            None => UNKNOWN_SEQ,
            Some(value) => value.as_i64().ok_or_else(|| fields.wrong("seq", &value, "a 64-bit integer"))?,
        };
        Ok(fields)
    }

    /// A field's value. What JSON can say and a value cannot hold is a fault: a number out of range, half a character.
    fn take(&mut self, name: &str) -> Result<Option<Value>, BadRequest> {
        let Some(raw) = self.fields.remove(name) else { return Ok(None) };
        let value = serde_json::from_str(raw.get());
        value.map(Some).map_err(|error| self.fault(format!("field `{name}` cannot be read: {error}")))
    }

    fn into_request(mut self) -> Result<Request, BadRequest> {
        match self.take("shutdown")? {
            None | Some(Value::Bool(false)) => {}
            Some(Value::Bool(true)) => return Ok(Request::Shutdown),
            Some(other) => return Err(self.wrong("shutdown", &other, "a boolean")),
        }
        let op = match self.take("op")? {
            None => "execute".to_owned(),
            Some(Value::String(op)) => op,
            Some(other) => return Err(self.wrong("op", &other, "a string")),
        };
        let seq = self.seq;
        match op.as_str() {
            "execute" => self.into_execute().map(Request::Execute),
            "reset" => Ok(Request::Reset { seq }),
            "set" => self.into_variables().map(|variables| Request::Set { seq, variables }),
            "info" => Ok(Request::Info { seq }),
            other => {
                Err(self.fault(format!("unknown op `{other}`: expected `execute`, `reset`, `set` or `info`")))
            }
        }
    }

    fn into_execute(mut self) -> Result<Execute, BadRequest> {
        let code = match self.take("code")? {
            Some(Value::String(code)) => code,
            Some(other) => return Err(self.wrong("code", &other, "a string")),
            None => return Err(self.fault("request has no field `code`, the string to run".into())),
        };
        let timeout = match self.take("timeout")? {
            None | Some(Value::Null) => None,
            Some(value) => match value.as_f64() {
                Some(seconds) if seconds > 0.0 => Some(
                    Duration::try_from_secs_f64(seconds).map_or(MAX_TIMEOUT, |limit| limit.min(MAX_TIMEOUT)),
                ),
                _ => return Err(self.wrong("timeout", &value, "a number of seconds above 0")),
            },
        };
        let max_output_bytes = match self.take("max_output_bytes")? {
            None | Some(Value::Null) => None,
            Some(value) => match value.as_u64().and_then(|bytes| usize::try_from(bytes).ok()) {
                Some(bytes) => Some(bytes.max(MIN_MAX_OUTPUT_BYTES)),
                None => return Err(self.wrong("max_output_bytes", &value, "a number of bytes, 0 or more")),
            },
        };
        Ok(Execute { code, seq: self.seq, timeout, max_output_bytes })
    }

    fn into_variables(mut self) -> Result<BTreeMap<String, JsonText>, BadRequest> {
        const EXPECTED: &str = "an object of names and values";
        let Some(raw) = self.fields.remove("variables") else {
            return Err(self.fault(format!("op `set` has no field `variables`, {EXPECTED}")));
        };
        let Ok(variables) = serde_json::from_str::<BTreeMap<String, JsonText>>(raw.get()) else {
            self.fields.insert("variables".to_owned(), raw);
            // No object, or a name that is half a character.
            let found = self.take("variables")?.unwrap_or_default();
            return Err(self.wrong("variables", &found, EXPECTED));
        };
        for (name, json) in &variables {
            let bytes = json.get().len();
            let fault = if bytes > MAX_VARIABLE_BYTES {
                format!(
                    "variable `{}` has {bytes} bytes of JSON, more than the limit of {MAX_VARIABLE_BYTES}: \
                     put large data into a file of the session's directory",
                    name_excerpt(name)
                )
            } else if json.depth() > MAX_VARIABLE_DEPTH {
                format!(
                    "variable `{}` is nested {} levels deep, more than the limit of {MAX_VARIABLE_DEPTH}",
                    name_excerpt(name),
                    json.depth()
                )
            } else {
                continue;
            };
            return Err(self.fault(fault));
        }
        Ok(variables)
    }

    fn wrong(&self, field: &str, found: &Value, expected: &str) -> BadRequest {
        self.fault(format!("field `{field}` is {}, expected {expected}", kind(found)))
    }

    fn fault(&self, fault: String) -> BadRequest {
        BadRequest { seq: self.seq, fault }
    }
}

/// A variable's name in an error, which may be of any length.
#[must_use]
pub fn name_excerpt(name: &str) -> String {
    match name.char_indices().nth(NAME_CHARS) {
        None => name.to_owned(),
        Some((end, _)) => format!("{}…", &name[..end]),
    }
}

/// How many characters of a variable's name an error shows.
const NAME_CHARS: usize = 80;

/// Names a JSON value in an error: its type, and the value where it is short.
fn kind(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(value) => format!("the boolean {value}"),
        Value::Number(value) => format!("the number {value}"),
        Value::String(_) => "a string".to_owned(),
        Value::Array(_) => "an array".to_owned(),
        Value::Object(_) => "an object".to_owned(),
    }
}

/// What a call came to: one document on the response FIFO. Every field is always present.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Response {
    /// `ok` exactly when `outcome` is.
    pub status: Status,
    /// What the call wrote to standard output; for bash, all that a person would see at the terminal.
    pub stdout: String,
    /// What the call wrote to standard error; always empty for bash, whose terminal shows both in `stdout`.
    pub stderr: String,
    /// Python: the value of a trailing expression, or a traceback. Bash: null. `op` `info`: a JSON text.
    pub result: Option<String>,
    /// Number of calls executed so far in this worker, this one included.
    pub execution_count: u64,
    /// The request's `seq`, or -1 where it could not be read.
    pub seq: i64,
    /// The answer as it stands after this call.
    pub answer: Answer,
    /// How the call ended.
    pub outcome: Outcome,
    /// What is left of the session's state.
    pub state: State,
    /// Wall-clock time of the call, in seconds.
    pub execution_time: f64,
    /// Bash: the status of the last command, or of the shell that ended. Else null.
    pub exit_code: Option<i32>,
    /// Python: the exception that ended the cell. Else null.
    pub exception: Option<Exception>,
    /// Null, or how many bytes of which stream were dropped.
    pub truncated: Option<Truncated>,
    /// A sentence on what happened and what to do, where the caller should know more than `outcome` tells.
    pub hint: Option<String>,
    /// [`PROTOCOL_VERSION`].
    pub protocol: u32,
}

impl Response {
    /// The response to a request that could not be understood or served. The session is untouched.
    #[must_use]
    pub fn refused(seq: i64, fault: String) -> Self {
        Self {
            status: Status::Error,
            stdout: String::new(),
            stderr: String::new(),
            result: None,
            execution_count: 0,
            seq,
            answer: Answer::default(),
            outcome: Outcome::Error,
            state: State::Kept,
            execution_time: 0.0,
            exit_code: None,
            exception: None,
            truncated: None,
            hint: Some(fault),
            protocol: PROTOCOL_VERSION,
        }
    }

    /// The first 16 hexadecimal digits of the SHA-256 of `stdout`, `stderr` and, where it is not null, `result`, as they
    /// stand here, in UTF-8, with a byte 0xff between one and the next.
    #[must_use]
    pub fn output_digest(&self) -> String {
        let mut digest = Sha256::new();
        digest.update(&self.stdout);
        for part in [Some(&self.stderr), self.result.as_ref()].into_iter().flatten() {
            digest.update([0xff]);
            digest.update(part);
        }
        digest.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect()
    }

    /// Length of `stdout`, `stderr` and `result` together, in bytes of UTF-8.
    #[must_use]
    pub fn output_bytes(&self) -> u64 {
        (self.stdout.len() + self.stderr.len() + self.result.as_ref().map_or(0, String::len)) as u64
    }
}

/// The coarse result that hosts of the original wire look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// The call ran to its end.
    Ok,
    /// Anything else; `outcome` says what.
    Error,
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The code ran to its end. A failing command is no error in bash: see `exit_code`.
    Ok,
    /// Python: the cell raised. Both languages: the request was refused, and `hint` names the fault.
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
    /// The status that goes with this outcome.
    #[must_use]
    pub fn status(self) -> Status {
        if self == Self::Ok { Status::Ok } else { Status::Error }
    }
}

/// What is left of the session's state after a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Everything: the same interpreter goes on.
    Kept,
    /// A new interpreter, with what the old one could save.
    Restored,
    /// A new interpreter, with the answer and, for bash, the working directory.
    Reset,
}

/// The rollout's answer. The worker owns it: it outlives the interpreter.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// Whether the model declared the answer final.
    pub ready: bool,
    /// The answer's text.
    pub content: String,
}

/// The exception that ended a Python cell.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exception {
    /// The exception's class, `ValueError`.
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

/// The document in `rlm_context.json`, written by the host before the worker starts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Context {
    /// The session's working directory.
    pub fs_root: std::path::PathBuf,
    /// What the host knows of the files there; handed to Python sessions, not interpreted.
    #[serde(default)]
    pub fs_metadata: Value,
    /// Directories that a file-system jail leaves open beside `fs_root`.
    #[serde(default)]
    pub allowed_paths: Vec<std::path::PathBuf>,
}

/// What a session was asked to do, as its history tells it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Operation {
    /// To run code.
    #[default]
    Execute,
    /// To begin anew with a fresh interpreter.
    Reset,
    /// To take variables.
    Set,
}

/// One line of `rlm_history.jsonl`. Lines of older workers end before `op`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HistoryEntry {
    /// The request's `seq`.
    pub seq: i64,
    /// The code that ran; empty where none did.
    pub code: String,
    /// How the call ended.
    pub outcome: Outcome,
    /// What was left of the session's state.
    pub state: State,
    /// Status of the last command (bash).
    pub exit_code: Option<i32>,
    /// When the call began, in seconds since the Unix epoch.
    pub started_at: f64,
    /// Wall-clock time of the call, in seconds.
    pub execution_time: f64,
    /// What was asked.
    #[serde(default)]
    pub op: Operation,
    /// [`Response::output_digest`]; None in lines of older workers.
    #[serde(default)]
    pub output_digest: Option<String>,
    /// [`Response::output_bytes`].
    #[serde(default)]
    pub output_bytes: u64,
    /// Op `set`: the variables, those that fit into [`crate::limits::MAX_HISTORY_VARIABLES_BYTES`] in the order of their
    /// names. Other ops: absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variables: Option<BTreeMap<String, JsonText>>,
    /// Op `set`: names of the variables that did not fit; absent where all did.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub variables_omitted: Vec<String>,
}

/// What a session and its worker are at the moment: `result` of the response to op `info`, as JSON text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Info {
    /// `bash` or `python`.
    pub language: String,
    /// Version of the interpreter, `5.2.15(1)-release` or `3.11.2`.
    pub version: String,
    /// Version of the worker program.
    pub worker_version: String,
    /// [`PROTOCOL_VERSION`].
    pub protocol: u32,
    /// How long the worker has been ready, in seconds.
    pub uptime: f64,
    /// Calls executed so far.
    pub calls: u64,
    /// Resident memory of the worker, the interpreter and all that they started, in bytes. Pages that processes share are
    /// counted for each.
    pub memory_bytes: u64,
    /// Working directory of the interpreter, without symbolic links; where there is no interpreter, the last one known, or
    /// null.
    pub cwd: Option<String>,
    /// Process id of the interpreter; null where it has ended and the next call starts another.
    pub pid: Option<i32>,
    /// Whether the answer was declared final.
    pub answer_ready: bool,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde::de::DeserializeOwned;
    use serde_json::json;

    use super::*;

    /// The golden documents: a change here is a change of the wire, to be judged as an addition or a new version.
    #[track_caller]
    fn check_golden<T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(value: &T, golden: &str) {
        assert_eq!(serde_json::to_string(value).unwrap(), golden);
        assert_eq!(&serde_json::from_str::<T>(golden).unwrap(), value);
    }

    fn execute(code: &str) -> Execute {
        Execute { code: code.to_owned(), seq: 1, timeout: None, max_output_bytes: None }
    }

    #[track_caller]
    fn check_request(document: &str, request: Request) {
        assert_eq!(Request::parse(document.as_bytes()), Ok(request), "{document}");
    }

    #[test]
    fn golden_requests() {
        check_request(r#"{"code": "echo \u00e9", "seq": 1}"#, Request::Execute(execute("echo é")));
        check_request(r#"{"op": "execute", "code": "", "seq": 1, "new": {}}"#, Request::Execute(execute("")));
        check_request(
            r#"{"code": ":", "seq": 1, "timeout": 0.5, "max_output_bytes": 4096}"#,
            Request::Execute(Execute {
                timeout: Some(Duration::from_millis(500)),
                max_output_bytes: Some(4096),
                ..execute(":")
            }),
        );
        check_request(r#"{"code": ":"}"#, Request::Execute(Execute { seq: UNKNOWN_SEQ, ..execute(":") }));
        check_request(r#"{"shutdown": true}"#, Request::Shutdown);
        check_request(r#"{"op": "reset", "seq": 2}"#, Request::Reset { seq: 2 });
        check_request(r#"{"op": "info", "seq": 3}"#, Request::Info { seq: 3 });
        check_request(
            r#"{"op": "set", "seq": 4, "variables": {"a": [1, "x"]}}"#,
            Request::Set { seq: 4, variables: BTreeMap::from([("a".to_owned(), json!([1, "x"]).into())]) },
        );
    }

    #[test]
    fn limits_that_no_clock_or_buffer_can_hold_are_bounded() {
        let Ok(Request::Execute(call)) =
            Request::parse(br#"{"code": "", "timeout": 1e300, "max_output_bytes": 1}"#)
        else {
            panic!("refused")
        };
        assert_eq!((call.timeout, call.max_output_bytes), (Some(MAX_TIMEOUT), Some(MIN_MAX_OUTPUT_BYTES)));
    }

    #[test]
    fn golden_responses() {
        let response = Response {
            status: Status::Ok,
            stdout: "a\u{e9}\n".to_owned(),
            stderr: String::new(),
            result: None,
            execution_count: 3,
            seq: 7,
            answer: Answer { ready: true, content: "42".to_owned() },
            outcome: Outcome::Ok,
            state: State::Kept,
            execution_time: 0.25,
            exit_code: Some(0),
            exception: None,
            truncated: None,
            hint: None,
            protocol: PROTOCOL_VERSION,
        };
        check_golden(
            &response,
            concat!(
                r#"{"status":"ok","stdout":"aé\n","stderr":"","result":null,"execution_count":3,"seq":7,"#,
                r#""answer":{"ready":true,"content":"42"},"outcome":"ok","state":"kept","execution_time":0.25,"#,
                r#""exit_code":0,"exception":null,"truncated":null,"hint":null,"protocol":1}"#
            ),
        );
        check_golden(
            &Response {
                exception: Some(Exception { kind: "ValueError".to_owned(), message: "no".to_owned() }),
                truncated: Some(Truncated { stdout: 5, stderr: 0, result: 0 }),
                ..Response::refused(-1, "why".to_owned())
            },
            concat!(
                r#"{"status":"error","stdout":"","stderr":"","result":null,"execution_count":0,"seq":-1,"#,
                r#""answer":{"ready":false,"content":""},"outcome":"error","state":"kept","execution_time":0.0,"#,
                r#""exit_code":null,"exception":{"type":"ValueError","message":"no"},"#,
                r#""truncated":{"stdout":5,"stderr":0,"result":0},"hint":"why","protocol":1}"#
            ),
        );
    }

    #[test]
    fn golden_names() {
        let outcomes = [
            Outcome::Ok,
            Outcome::Error,
            Outcome::TimedOut,
            Outcome::Interrupted,
            Outcome::Exited,
            Outcome::Crashed,
        ];
        check_golden(&outcomes.to_vec(), r#"["ok","error","timed_out","interrupted","exited","crashed"]"#);
        check_golden(&vec![State::Kept, State::Restored, State::Reset], r#"["kept","restored","reset"]"#);
    }

    #[test]
    fn golden_files() {
        check_golden(
            &Context {
                fs_root: "/data".into(),
                fs_metadata: json!({"files": 2, "about": 1}),
                allowed_paths: vec!["/x".into()],
            },
            r#"{"fs_root":"/data","fs_metadata":{"files":2,"about":1},"allowed_paths":["/x"]}"#,
        );
        let short: Context = serde_json::from_str(r#"{"fs_root": "/data", "unknown": 1}"#).unwrap();
        assert_eq!(short.allowed_paths, [""; 0].map(std::path::PathBuf::from));
        let entry = HistoryEntry {
            seq: 1,
            code: "exit 3".to_owned(),
            outcome: Outcome::Exited,
            state: State::Restored,
            exit_code: Some(3),
            started_at: 1.5,
            execution_time: 0.25,
            op: Operation::Execute,
            output_digest: Some("00ff00ff00ff00ff".to_owned()),
            output_bytes: 5,
            variables: None,
            variables_omitted: Vec::new(),
        };
        check_golden(
            &entry,
            concat!(
                r#"{"seq":1,"code":"exit 3","outcome":"exited","state":"restored","exit_code":3,"#,
                r#""started_at":1.5,"execution_time":0.25,"op":"execute","#,
                r#""output_digest":"00ff00ff00ff00ff","output_bytes":5}"#
            ),
        );
        check_golden(
            &HistoryEntry {
                code: String::new(),
                op: Operation::Set,
                variables: Some(BTreeMap::from([("a".to_owned(), r#"[1.0,"x"]"#.parse().unwrap())])),
                variables_omitted: vec!["b".to_owned()],
                ..entry.clone()
            },
            concat!(
                r#"{"seq":1,"code":"","outcome":"exited","state":"restored","exit_code":3,"#,
                r#""started_at":1.5,"execution_time":0.25,"op":"set","#,
                r#""output_digest":"00ff00ff00ff00ff","output_bytes":5,"#,
                r#""variables":{"a":[1.0,"x"]},"variables_omitted":["b"]}"#
            ),
        );
        let old = concat!(
            r#"{"seq":1,"code":"exit 3","outcome":"exited","state":"restored","exit_code":3,"#,
            r#""started_at":1.5,"execution_time":0.25}"#
        );
        let old: HistoryEntry = serde_json::from_str(old).unwrap();
        assert_eq!(old, HistoryEntry { output_digest: None, output_bytes: 0, ..entry });
        check_golden(
            &[Operation::Execute, Operation::Reset, Operation::Set].to_vec(),
            r#"["execute","reset","set"]"#,
        );
    }

    #[test]
    fn golden_info() {
        check_golden(
            &Info {
                language: "bash".to_owned(),
                version: "5.2.15(1)-release".to_owned(),
                worker_version: "0.1.0".to_owned(),
                protocol: PROTOCOL_VERSION,
                uptime: 1.5,
                calls: 2,
                memory_bytes: 4096,
                cwd: Some("/data".to_owned()),
                pid: None,
                answer_ready: false,
            },
            concat!(
                r#"{"language":"bash","version":"5.2.15(1)-release","worker_version":"0.1.0","protocol":1,"#,
                r#""uptime":1.5,"calls":2,"memory_bytes":4096,"cwd":"/data","pid":null,"answer_ready":false}"#
            ),
        );
    }

    /// What `printf 'out\xfferr' | sha256sum`, and the same with `\xffresult` behind it, print.
    #[test]
    fn the_digest_is_one_that_other_programs_can_make() {
        let response = Response {
            stdout: "out".to_owned(),
            stderr: "err".to_owned(),
            ..Response::refused(1, String::new())
        };
        assert_eq!((response.output_digest().as_str(), response.output_bytes()), ("e0818b0068cbc90a", 6));
        let response = Response { result: Some("result".to_owned()), ..response };
        assert_eq!((response.output_digest().as_str(), response.output_bytes()), ("ccaf4e8d070b5ded", 12));
        let response = Response { result: Some(String::new()), ..response };
        assert_eq!((response.output_digest().as_str(), response.output_bytes()), ("5bfa7d27d5339480", 6));
    }

    #[test]
    fn values_keep_what_their_text_says() {
        let document = r#"{"op": "set", "seq": 1, "variables": {"n": 1e400, "i": 12345678901234567890123, "s": "\ud800", "n": 1.0}}"#;
        let Ok(Request::Set { variables, .. }) = Request::parse(document.as_bytes()) else {
            panic!("refused")
        };
        let texts: Vec<&str> = variables.values().map(JsonText::get).collect();
        assert_eq!(texts, ["12345678901234567890123", "1.0", r#""\ud800""#]);
    }

    #[test]
    fn variables_over_the_limits_are_refused_by_name() {
        let set = |value: &str| {
            let document =
                format!(r#"{{"op": "set", "seq": 3, "variables": {{"fits": 1, "big": {value}}}}}"#);
            Request::parse(document.as_bytes())
        };
        let text = |bytes: usize| format!("\"{}\"", "x".repeat(bytes - 2));
        assert!(set(&text(MAX_VARIABLE_BYTES)).is_ok());
        let fault = "variable `big` has 1048577 bytes of JSON, more than the limit of 1048576: \
                     put large data into a file of the session's directory";
        assert_eq!(set(&text(MAX_VARIABLE_BYTES + 1)), Err(BadRequest { seq: 3, fault: fault.to_owned() }));
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert!(set(&nested(MAX_VARIABLE_DEPTH)).is_ok());
        let fault = set(&nested(MAX_VARIABLE_DEPTH + 1)).unwrap_err().fault;
        assert_eq!(fault, "variable `big` is nested 101 levels deep, more than the limit of 100");
    }

    proptest! {
        #[test]
        fn no_document_is_fatal(document in "\\{(\"(op|code|seq|variables|timeout)\":(\"(set|x)\"|\\{\"a\":[0-9\\[\\]]{0,3}\\}|-?[0-9e.]{0,5}),?){0,4}\\}?") {
            if let Err(refused) = Request::parse(document.as_bytes()) {
                prop_assert!(!refused.fault.is_empty());
            }
        }
    }
}
