//! Recorded replies of root tools, in a file of JSON lines.
//!
//! A line holds a call and its reply as on the root-tool wire (`docs/root-tools.md`): `{"call": …, "reply": …}`, as
//! JSON if that loses nothing, otherwise as pickles. Calls are looked up by tool and arguments; equal calls are
//! answered in recorded order.

use std::collections::{HashMap, VecDeque};
use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, Read as _};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::Instant;

use nix::libc;
use rlm_core::error::with_causes;
use rlm_core::ids::is_identifier;
use rlm_core::jsonl::{self, Lines};
use rlm_core::pickle::{Dict, Limits, Value};
use rlm_core::root_tool::{Call, Envelope, MAX_BODY_BYTES, Reply, Serialization, WireError, is_query};
use rlm_core::text::cut;
use rlm_rootd::{DefinitionError, RootTool, Tool, ToolError, ToolFuture};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value as Json, json};

/// Largest recording that is read, in bytes.
const MAX_BYTES: u64 = 256 << 20;

/// Longest quotation of a call in an error, in characters.
const SHOWN_CHARS: usize = 200;

/// Why a recording cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordingError {
    /// The file cannot be read.
    #[error("cannot read the recording {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// The file cannot be written.
    #[error("cannot write the recording {}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// The file already exists.
    #[error("{} exists already: remove it, or record to another file", .0.display())]
    Exists(PathBuf),
    /// A line is not a call with its reply.
    #[error("{}: line {line} is not a recorded call: {reason}", path.display())]
    BadLine {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: u64,
        /// The reason.
        reason: String,
    },
}

/// A call and its reply.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct RecordedCall {
    pub(super) call: Call,
    /// The tool's reply, or its error message.
    pub(super) reply: Result<Reply, String>,
}

/// Calls of root tools with their replies, in the order in which they ended.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Recording {
    pub(super) calls: Vec<RecordedCall>,
}

impl Recording {
    /// Reads a recording.
    ///
    /// # Errors
    /// [`RecordingError::Read`], [`RecordingError::BadLine`].
    pub fn read(path: &Path) -> Result<Self, RecordingError> {
        let cannot = |source| RecordingError::Read { path: path.to_owned(), source };
        let opened = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path);
        let file = opened.map_err(cannot)?;
        let metadata = file.metadata().map_err(cannot)?;
        if !metadata.is_file() {
            return Err(cannot(io::Error::other("it is not a regular file")));
        }
        if metadata.len() > MAX_BYTES {
            let message = format!("it has {} bytes, more than the limit of {MAX_BYTES}", metadata.len());
            return Err(cannot(io::Error::new(io::ErrorKind::FileTooLarge, message)));
        }
        let mut calls = Vec::new();
        let mut lines = Lines::new(BufReader::new(file.take(MAX_BYTES)));
        while let Some(line) = lines.next_line().map_err(cannot)? {
            calls.push(recorded(line.text).map_err(|reason| RecordingError::BadLine {
                path: path.to_owned(),
                line: line.number,
                reason,
            })?);
        }
        Ok(Self { calls })
    }

    /// Names of the tools that were called.
    #[must_use]
    pub fn tools(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for RecordedCall { call, .. } in &self.calls {
            if !names.contains(&call.tool.as_str()) {
                names.push(&call.tool);
            }
        }
        names
    }
}

/// One line of the file.
#[derive(Deserialize)]
struct RecordedLine<'a> {
    #[serde(borrow)]
    call: &'a RawValue,
    #[serde(borrow)]
    reply: &'a RawValue,
}

#[derive(Deserialize)]
struct FailedReply {
    error: Option<String>,
}

fn recorded(line: &[u8]) -> Result<RecordedCall, String> {
    let wire = |error: WireError| with_causes(&error);
    let written: RecordedLine<'_> = serde_json::from_slice(line).map_err(|error| jsonl::fault(&error))?;
    let limits = Limits::default();
    let envelope = Envelope::parse(written.call.get().as_bytes(), &limits).map_err(wire)?;
    let serialization = envelope.serialization().map_err(wire)?;
    let call = envelope.into_call(&limits).map_err(wire)?;
    if !is_identifier(&call.tool) {
        return Err(format!("tool_name {:?} is not an identifier", call.tool));
    }
    let FailedReply { error } =
        serde_json::from_str(written.reply.get()).map_err(|error| jsonl::fault(&error))?;
    let reply = match error {
        Some(error) => Err(error),
        None => Ok(Reply::from_body(written.reply.get().as_bytes(), serialization, &limits).map_err(wire)?),
    };
    Ok(RecordedCall { call, reply })
}

/// The line for a call and its reply.
fn line(recorded: &RecordedCall) -> Result<Vec<u8>, WireError> {
    let as_json = written(recorded, Serialization::Json);
    let is_whole = |line: &[u8]| self::recorded(line).is_ok_and(|read| read == *recorded);
    match as_json {
        Ok(line) if is_whole(&line) => Ok(line),
        _ => written(recorded, Serialization::Pickle),
    }
}

fn written(recorded: &RecordedCall, serialization: Serialization) -> Result<Vec<u8>, WireError> {
    let reply = match &recorded.reply {
        Ok(reply) => reply.to_body(serialization)?,
        Err(error) => json!({"error": error}).to_string().into_bytes(),
    };
    let call = recorded.call.to_body(serialization)?;
    Ok([b"{\"call\":", &call[..], b",\"reply\":", &reply, b"}\n"].concat())
}

/// Writes calls and their replies to a file, each when it ends.
#[derive(Debug)]
pub struct Recorder {
    path: PathBuf,
    file: Mutex<File>,
    failed: Mutex<Option<io::Error>>,
}

impl Recorder {
    /// Creates the file of a new recording.
    ///
    /// # Errors
    /// [`RecordingError::Exists`] if the file exists; [`RecordingError::Write`].
    pub fn create(path: &Path) -> Result<Self, RecordingError> {
        let opened = OpenOptions::new().append(true).create_new(true).mode(0o600).open(path);
        let file = opened.map_err(|source| match source.kind() {
            io::ErrorKind::AlreadyExists => RecordingError::Exists(path.to_owned()),
            _ => RecordingError::Write { path: path.to_owned(), source },
        })?;
        Ok(Self { path: path.to_owned(), file: Mutex::new(file), failed: Mutex::default() })
    }

    fn add(&self, recorded: &RecordedCall) {
        let file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let written = line(recorded).map_err(io::Error::other).and_then(|line| jsonl::append(&file, &line));
        if let Err(error) = written {
            self.failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        }
    }

    /// Reports whether everything was written so far.
    ///
    /// # Errors
    /// [`RecordingError::Write`] with the first failure.
    pub fn check(&self) -> Result<(), RecordingError> {
        match self.failed.lock().unwrap_or_else(PoisonError::into_inner).take() {
            None => Ok(()),
            Some(source) => Err(RecordingError::Write { path: self.path.clone(), source }),
        }
    }
}

/// The call with its files relative to the session's directory, which a replay has elsewhere. A shell makes paths absolute.
fn portable(mut call: Call, root: &Path) -> Call {
    if !is_query(&call.tool) {
        return call;
    }
    for (at, argument) in call.args.iter_mut().enumerate() {
        *argument = match at {
            1 => relative(argument, root),
            _ => portable_questions(argument, root),
        };
    }
    call.kwargs = portable_options(&call.kwargs, root);
    call
}

/// The questions, where some of them have files of their own.
fn portable_questions(questions: &Value, root: &Path) -> Value {
    match questions {
        Value::List(questions) => {
            Value::list(questions.iter().map(|question| portable_questions(question, root)))
        }
        Value::Dict(options) => portable_options(options, root).into(),
        other => other.clone(),
    }
}

fn portable_options(options: &Dict, root: &Path) -> Dict {
    let portable = options.iter().map(|(name, value)| {
        let value = match name {
            Value::Str(name) if &**name == "files" => relative(value, root),
            Value::Str(name) if &**name == "questions" => portable_questions(value, root),
            _ => value.clone(),
        };
        (name.clone(), value)
    });
    Dict::from_pairs(portable).unwrap_or_else(|_unhashable| options.clone())
}

/// A path, or a list of paths.
fn relative(files: &Value, root: &Path) -> Value {
    match files {
        Value::List(files) => Value::list(files.iter().map(|file| relative(file, root))),
        Value::Str(file) => {
            let inside = Path::new(&**file).strip_prefix(root).ok().and_then(Path::to_str);
            inside.map_or_else(|| files.clone(), Value::from)
        }
        other => other.clone(),
    }
}

/// The lookup key of a call: tool and arguments, with keyword arguments in any order.
pub(super) fn key(call: &Call) -> String {
    let repr = |value: &Value| value.repr(MAX_BODY_BYTES).unwrap_or_else(|_too_large| format!("{value:?}"));
    let mut by_name: Vec<_> = call.kwargs.iter().map(|(name, value)| (repr(name), repr(value))).collect();
    by_name.sort();
    let by_place = call.args.iter().map(repr);
    let by_name = by_name.into_iter().map(|(name, value)| format!("{name}={value}"));
    format!("{}({})", call.tool, by_place.chain(by_name).collect::<Vec<_>>().join(", "))
}

static ANY_ARGUMENTS: LazyLock<Json> = LazyLock::new(|| json!({"type": "object"}));

/// A tool whose calls are recorded.
#[derive(Debug)]
pub(super) struct RecordedTool {
    pub(super) tool: Tool,
    pub(super) recorder: Arc<Recorder>,
    /// The session's directory.
    pub(super) root: Arc<Path>,
}

impl RootTool for RecordedTool {
    fn name(&self) -> &str {
        self.tool.name()
    }

    fn description(&self) -> &str {
        self.tool.description()
    }

    /// Accepts anything: the tool itself checks its arguments, so that refusals are recorded too.
    fn parameters(&self) -> &Json {
        &ANY_ARGUMENTS
    }

    /// Cancelled calls are not recorded.
    fn call(&self, call: Call, deadline: Instant) -> ToolFuture<'_> {
        Box::pin(async move {
            let reply = self.tool.run(call.clone(), deadline).await;
            let call = portable(call, &self.root);
            let recorded = RecordedCall { call, reply: reply.as_ref().map_err(ToString::to_string).cloned() };
            self.recorder.add(&recorded);
            reply
        })
    }
}

/// The recorded replies that have not been given yet.
#[derive(Debug)]
pub(super) struct Answers {
    left: Mutex<HashMap<String, VecDeque<Result<Reply, String>>>>,
    /// The session's directory.
    root: PathBuf,
}

impl Answers {
    pub(super) fn new(recording: Recording, root: &Path) -> Self {
        let mut left: HashMap<String, VecDeque<_>> = HashMap::new();
        for RecordedCall { call, reply } in recording.calls {
            left.entry(key(&call)).or_default().push_back(reply);
        }
        Self { left: Mutex::new(left), root: root.to_owned() }
    }

    fn take(&self, call: &Call) -> Result<Reply, ToolError> {
        let key = key(&portable(call.clone(), &self.root));
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        let missing = match left.get_mut(&key).map(VecDeque::pop_front) {
            Some(Some(reply)) => return reply.map_err(ToolError::Failed),
            Some(None) => "was recorded fewer times than it is called",
            None => "is not in the recording",
        };
        Err(ToolError::Failed(format!("{} {missing}", cut(&key, SHOWN_CHARS))))
    }
}

/// A tool that replies from a recording.
pub(super) fn answering_tool(name: String, answers: Arc<Answers>) -> Result<Tool, DefinitionError> {
    Tool::from_fn(name, "Replies from a recording.", ANY_ARGUMENTS.clone(), move |call| answers.take(&call))
}

/// A tool that the session had but this replay does not.
pub(super) fn missing_tool(name: String) -> Result<Tool, DefinitionError> {
    let refusal = format!(
        "this replay does not have the root tool {name}: provide the tools, the model or a recording"
    );
    Tool::from_fn(name, "Refuses.", ANY_ARGUMENTS.clone(), move |_| Err::<Reply, _>(refusal.as_str().into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(tool: &str, args: Vec<Value>, kwargs: &[(&str, Value)]) -> Call {
        let kwargs = kwargs.iter().map(|(name, value)| (Value::from(*name), value.clone()));
        Call { tool: tool.to_owned(), args, kwargs: Dict::from_pairs(kwargs).unwrap() }
    }

    #[test]
    fn calls_and_replies_are_kept_as_json_where_it_loses_nothing_else_as_pickles() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("recording.jsonl");
        let recorder = Recorder::create(&path).unwrap();
        let plain = Value::list([Value::from("é"), Value::from(1), Value::None]);
        let binary = Value::Bytes(b"\xff\0".as_slice().into());
        let tuple = Value::tuple([Value::from(f64::NAN)]);
        let recorded: Vec<_> = [
            (call("a", vec![plain.clone()], &[("n", Value::from(2.0))]), Ok(Reply::of(plain.clone()))),
            (call("b", vec![binary.clone()], &[]), Ok(Reply::of(Value::from("x")))),
            (call("c", vec![], &[]), Ok(Reply { print_lines: vec!["p".to_owned()], ..Reply::of(tuple) })),
            (call("d", vec![], &[]), Err("no such row".to_owned())),
        ]
        .into_iter()
        .map(|(call, reply)| RecordedCall { call, reply })
        .collect();
        for one in &recorded {
            recorder.add(one);
        }
        recorder.check().unwrap();
        assert_eq!(Recording::read(&path).unwrap(), Recording { calls: recorded });
        let text = std::fs::read_to_string(&path).unwrap();
        let forms: Vec<_> = text.lines().map(|line| line.contains(r#""serialization":"json""#)).collect();
        assert_eq!(forms, [true, false, false, true], "{text}");
        assert!(matches!(Recorder::create(&path), Err(RecordingError::Exists(_))));
    }

    #[test]
    fn equal_calls_are_answered_in_order_and_others_are_named() {
        let recorded = |args: Vec<Value>, reply: &str| RecordedCall {
            call: call("search", args, &[]),
            reply: Ok(Reply::of(Value::from(reply))),
        };
        let answers = Answers::new(
            Recording {
                calls: vec![
                    recorded(vec!["x".into()], "1"),
                    recorded(vec!["y".into()], "2"),
                    recorded(vec!["x".into()], "3"),
                ],
            },
            Path::new("/x"),
        );
        let take =
            |args: Vec<Value>| answers.take(&call("search", args, &[])).map_err(|error| error.to_string());
        assert_eq!(take(vec!["x".into()]).unwrap(), Reply::of(Value::from("1")));
        assert_eq!(take(vec!["x".into()]).unwrap(), Reply::of(Value::from("3")));
        assert_eq!(
            take(vec!["x".into()]).unwrap_err(),
            "search('x') was recorded fewer times than it is called"
        );
        assert_eq!(take(vec![1.into()]).unwrap_err(), "search(1) is not in the recording");
        let long = take(vec!["z".repeat(1000).as_str().into()]).unwrap_err();
        assert!(long.chars().count() < 250 && long.ends_with("… is not in the recording"), "{long}");
        let named = |names: [&str; 2]| {
            let pairs = names.map(|name| (name, Value::from(name)));
            key(&call("t", vec![], &pairs))
        };
        assert_eq!(named(["a", "b"]), named(["b", "a"]));
    }

    #[test]
    fn a_malformed_line_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("r");
        let refusal = |text: &str| {
            std::fs::write(&path, text).unwrap();
            let error = Recording::read(&path).unwrap_err().to_string();
            error.replace(&format!("{}: line ", path.display()), "")
        };
        assert!(
            refusal("\nx\n").starts_with("2 is not a recorded call: expected value"),
            "{}",
            refusal("\nx\n")
        );
        assert_eq!(
            refusal(r#"{"call":{"args":[]},"reply":{}}"#),
            "1 is not a recorded call: Tool name not provided"
        );
    }
}
