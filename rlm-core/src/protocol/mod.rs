//! The documents of the FIFO protocol, version 1.
//!
//! The host writes one request and reads exactly one response before it writes the next. A request that cannot be
//! understood gets a response too, with status `error` and the fault in `hint`; it never ends the worker. Unknown
//! fields are ignored in both directions. Within a version, fields are only ever added; a change of meaning takes a new
//! [`PROTOCOL_VERSION`].
//!
//! These types are for the wire only: nothing else in the project is serialised through them.

mod request;

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

pub use self::request::{BadRequest, Execute, ONE_CALL_PREFIX, Request, name_excerpt};
use crate::json::JsonText;
use crate::text::hex;

/// The protocol version, sent in every response as `protocol`.
///
/// * 1: the first version.
pub const PROTOCOL_VERSION: u32 = 1;

/// The `seq` of a response to a request whose own `seq` could not be read.
pub const UNKNOWN_SEQ: i64 = -1;

/// How long the clock of the running call has stood still, since the call began. It stands still while the host works for the
/// call within a limit of its own, so that the call's limit is for its own work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CallClock {
    /// Seconds until `since`.
    pub stood_still: f64,
    /// It stands still since then, in seconds of `CLOCK_MONOTONIC`. None: it runs.
    pub since: Option<f64>,
}

impl CallClock {
    /// The time that it has stood still, if it is now so late on `CLOCK_MONOTONIC`.
    #[must_use]
    pub fn until(&self, now: Duration) -> Duration {
        let now = self.since.map_or(0.0, |since| (now.as_secs_f64() - since).max(0.0));
        Duration::try_from_secs_f64(self.stood_still + now).unwrap_or_default()
    }
}

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

/// The document in `rlm_context.json`, written by the host before the worker starts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Context {
    /// The session's working directory.
    pub fs_root: std::path::PathBuf,
    /// The host's information about the files there; passed on to Python sessions, not interpreted.
    #[serde(default)]
    pub fs_metadata: Value,
    /// Directories outside `fs_root` that a file-system jail leaves accessible.
    #[serde(default)]
    pub allowed_paths: Vec<std::path::PathBuf>,
}

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
    /// True if the response had a `result`: the value of a last expression, or a traceback. Absent otherwise.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_result: bool,
    /// The code as written, if different code ran: [`Execute::source`]. Absent otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Present in the first line of each worker, where it marks a new session; absent in the others.
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

/// What can complete code that is being typed: `result` of the response to op `complete`, as JSON text.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Completions {
    /// Offset in the code, in bytes, of the part that a candidate replaces. The part ends where the code ends.
    pub start: usize,
    /// Names, without duplicates and in order; a directory ends in `/`.
    pub candidates: Vec<String>,
}

impl Completions {
    /// The JSON text.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("a number and strings can be written as JSON")
    }
}

/// The current session and worker: `result` of the response to op `info`, as JSON text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Info {
    /// `bash` or `python`.
    pub language: String,
    /// Version of the interpreter, `5.2.15(1)-release` or `3.11.2`.
    pub version: String,
    /// True for the Python that is packed with the programs.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub builtin: bool,
    /// Version of the worker program.
    pub worker_version: String,
    /// [`PROTOCOL_VERSION`].
    pub protocol: u32,
    /// Seconds since the worker became ready.
    pub uptime: f64,
    /// Calls executed so far.
    pub calls: u64,
    /// Resident memory of the worker, the interpreter and everything they started, in bytes. Shared pages are counted
    /// once for each process.
    pub memory_bytes: u64,
    /// Working directory of the interpreter, without symbolic links; the last known one if no interpreter is running,
    /// or null.
    pub cwd: Option<String>,
    /// Process id of the interpreter; null if it has ended and the next call starts another.
    pub pid: Option<i32>,
    /// True if the answer was declared final.
    pub answer_ready: bool,
    /// What of the host the session can reach.
    #[serde(default, skip_serializing_if = "Confinement::is_off")]
    pub confinement: Confinement,
    /// Limits of the session's resources.
    #[serde(default)]
    pub limits: Limits,
    /// The most that the session has used of them so far.
    #[serde(default)]
    pub usage: Usage,
}

/// What of its host a session can reach.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Confinement {
    /// How much of the host is out of reach.
    pub level: ConfinementLevel,
    /// The version of Landlock that holds for the session; null: the kernel has none.
    #[serde(default)]
    pub landlock: Option<u32>,
}

impl Confinement {
    /// True without any.
    #[must_use]
    pub fn is_off(&self) -> bool {
        self.level == ConfinementLevel::Off
    }
}

/// How much of its host is out of a session's reach.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ConfinementLevel {
    /// Nothing: it has the rights of its user.
    #[default]
    Off,
    /// The contents of files, other processes and the network, but for its own directories, the system's programs and its endpoint.
    Landlock,
    /// Everything but those.
    Full,
}

/// The confinement that a host wants for a session: the setting `RLM_CONFINE`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Confine {
    /// None: the session has the rights of its user.
    #[default]
    Off,
    /// The full one, or no session.
    Full,
    /// That which needs no namespaces, or no session.
    Landlock,
    /// The first of these that the host allows, or none.
    Try,
}

impl Confine {
    /// The values that are accepted, for error messages.
    pub const EXPECTED: &str = "off, full, landlock or try";

    /// Its name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Full => "full",
            Self::Landlock => "landlock",
            Self::Try => "try",
        }
    }

    /// The levels to try, in order.
    #[must_use]
    pub const fn levels(self) -> &'static [ConfinementLevel] {
        match self {
            Self::Off => &[],
            Self::Full => &[ConfinementLevel::Full],
            Self::Landlock => &[ConfinementLevel::Landlock],
            Self::Try => &[ConfinementLevel::Full, ConfinementLevel::Landlock],
        }
    }
}

impl std::str::FromStr for Confine {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let all = [Self::Off, Self::Full, Self::Landlock, Self::Try];
        let named = all.into_iter().find(|wanted| wanted.as_str() == text);
        named.ok_or_else(|| format!("expected {}", Self::EXPECTED))
    }
}

impl std::fmt::Display for Confine {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(self.as_str())
    }
}

/// Limits of a session's resources; null where there is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Processes and threads; by `rlimit`, those of the user.
    pub processes: Option<Limit>,
    /// Memory in bytes; by `rlimit`, the address space of each process.
    pub memory_bytes: Option<Limit>,
    /// Size of each file in bytes.
    pub file_size_bytes: Option<Limit>,
    /// CPU time of each process in seconds.
    pub cpu_seconds: Option<Limit>,
}

/// A limit in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limit {
    /// The limit, in the unit of its field.
    pub value: u64,
    /// The part of the kernel that enforces it; null if the kernel cannot, for this user.
    pub mechanism: Option<Mechanism>,
}

/// The part of the kernel that enforces a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mechanism {
    /// The session's cgroup: the limit is for all of its processes together.
    Cgroup,
    /// A resource limit of each process.
    Rlimit,
}

/// The most that a session has used of its resources so far; null where it is not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Usage {
    /// Processes and threads that ran at once.
    pub peak_processes: Option<u64>,
    /// Memory in bytes.
    pub peak_memory_bytes: Option<u64>,
    /// CPU time in seconds of everything that the session has started.
    pub cpu_seconds: Option<f64>,
}

#[cfg(test)]
mod tests {
    use serde::de::DeserializeOwned;
    use serde_json::json;

    use super::*;

    /// Checks a golden document: a changed one is a change of the wire, to be judged as an addition or a new version.
    #[track_caller]
    fn check_golden<T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(value: &T, golden: &str) {
        assert_eq!(serde_json::to_string(value).unwrap(), golden);
        assert_eq!(&serde_json::from_str::<T>(golden).unwrap(), value);
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
        check_golden(&response, include_str!("../../testdata/protocol/response.json").trim_end());
        check_golden(
            &Response {
                exception: Some(Exception { kind: "ValueError".to_owned(), message: "no".to_owned() }),
                truncated: Some(Truncated { stdout: 5, stderr: 0, result: 0 }),
                ..Response::refused(-1, "why".to_owned())
            },
            include_str!("../../testdata/protocol/response-refused.json").trim_end(),
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
            has_result: false,
            source: None,
            session: None,
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
                has_result: true,
                session: Some(HistorySession {
                    language: "bash".to_owned(),
                    version: "5.2".to_owned(),
                    fs_root: "/data".to_owned(),
                    root_tools: vec!["search".to_owned()],
                    final_functions: true,
                }),
                ..entry.clone()
            },
            concat!(
                r#"{"seq":1,"code":"","outcome":"exited","state":"restored","exit_code":3,"#,
                r#""started_at":1.5,"execution_time":0.25,"op":"set","#,
                r#""output_digest":"00ff00ff00ff00ff","output_bytes":5,"#,
                r#""variables":{"a":[1.0,"x"]},"variables_omitted":["b"],"has_result":true,"#,
                r#""session":{"language":"bash","version":"5.2","fs_root":"/data","root_tools":["search"],"final_functions":true}}"#
            ),
        );
        check_golden(
            &HistoryEntry { source: Some("exit f()".to_owned()), ..entry.clone() },
            concat!(
                r#"{"seq":1,"code":"exit 3","outcome":"exited","state":"restored","exit_code":3,"#,
                r#""started_at":1.5,"execution_time":0.25,"op":"execute","#,
                r#""output_digest":"00ff00ff00ff00ff","output_bytes":5,"source":"exit f()"}"#
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
                builtin: false,
                worker_version: "0.1.0".to_owned(),
                protocol: PROTOCOL_VERSION,
                uptime: 1.5,
                calls: 2,
                memory_bytes: 4096,
                cwd: Some("/data".to_owned()),
                pid: None,
                answer_ready: false,
                confinement: Confinement::default(),
                limits: Limits {
                    processes: Some(Limit { value: 64, mechanism: None }),
                    memory_bytes: Some(Limit { value: 4096, mechanism: Some(Mechanism::Cgroup) }),
                    file_size_bytes: Some(Limit { value: 1, mechanism: Some(Mechanism::Rlimit) }),
                    cpu_seconds: None,
                },
                usage: Usage { peak_processes: Some(3), peak_memory_bytes: None, cpu_seconds: Some(0.5) },
            },
            include_str!("../../testdata/protocol/info.json").trim_end(),
        );
    }

    #[test]
    fn a_hint_stands_before_the_result_and_can_be_taken_away_again() {
        let hint = "the interpreter ended";
        for (result, shown) in
            [(None, hint), (Some("5"), "the interpreter ended\n5"), (Some(""), "the interpreter ended\n")]
        {
            let response =
                Response { result: result.map(str::to_owned), ..Response::refused(1, hint.to_owned()) };
            let mut told = response.clone();
            told.show_hint();
            assert_eq!(told.result.as_deref(), Some(shown));
            told.hide_hint();
            assert_eq!(told, response);
            told.hide_hint();
            assert_eq!(told, response);
        }
        let mut without = Response::new(Outcome::Ok, State::Reset);
        without.show_hint();
        assert_eq!(without.result, None);
    }

    /// Output of `printf 'out\xfferr' | sha256sum`, and of the same command with `\xffresult` appended.
    #[test]
    fn the_digest_can_be_computed_by_other_programs() {
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
}
