//! The tools `rlm_query` and `rlm_query_batch`: the questions of code, and the forms in which it gets answers.

use std::fs::File;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use rlm_core::dirfd::{Cursor, Directory, Entry, Kind};
use rlm_core::pickle::Value;
use rlm_core::root_tool::{
    Call, DRAFT, PAID_BEFORE, QUERY_ERROR, RLM_QUERY, RLM_QUERY_BATCH, RLM_QUERY_BATCHED, Reply, ToolResult,
};
use rlm_core::text::{cut, hex};
use rlm_rootd::{PaidToolFuture, Receipt, RootTool, Tool, ToolError, ToolFuture, delivered};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json, json};
use sha2::{Digest as _, Sha256};
use tokio::task::spawn_blocking;

use super::config::RolloutResult;
use crate::terms::StopReason;
use crate::workspace::PathWithin;

/// Longest quotation of a value in an error, in characters.
const SHOWN_CHARS: usize = 100;

/// Bytes of a question's files that are compared by content, since a cell that runs again may rewrite its files.
const COMPARED_BYTES: u64 = 16 << 20;

/// Answers the questions of code.
pub(crate) trait Answering: std::fmt::Debug + Send + Sync {
    /// Answers questions, several at once, in their order.
    fn answer(
        &self,
        questions: Vec<Result<Question, String>>,
    ) -> Pin<Box<dyn Future<Output = Answers> + Send + '_>>;

    /// The most time that a call may take.
    fn time_limit(&self) -> Duration;
}

/// The tools by which code asks.
pub(crate) fn query_tools(answering: &Arc<dyn Answering>) -> Vec<Tool> {
    let tool = |name| Tool::new(QueryTool { answering: answering.clone(), name });
    let tools = [RLM_QUERY, RLM_QUERY_BATCH, RLM_QUERY_BATCHED].map(tool);
    tools.into_iter().map(|tool| tool.expect("it is well formed")).collect()
}

/// The answers to the questions of one call.
#[derive(Debug)]
pub(crate) struct Answers {
    pub(crate) results: Vec<Result<RolloutResult, String>>,
    /// Number of results that were paid for in an earlier call, whose code did not get them.
    pub(crate) before: usize,
    pub(crate) receipt: Receipt,
}

/// A question for a child.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Question {
    pub(crate) question: String,
    #[serde(default, deserialize_with = "one_or_many")]
    pub(crate) files: Vec<PathBuf>,
    pub(crate) text: Option<String>,
    pub(crate) data: Option<Json>,
    pub(crate) model: Option<String>,
    pub(crate) language: Option<String>,
    pub(crate) max_turns: Option<u32>,
    pub(crate) timeout: Option<f64>,
    pub(crate) share: Option<f64>,
    /// True: the result is a dict. None: false.
    pub(crate) json: Option<bool>,
}

impl Question {
    /// The question's files, and a key that is the same when the question is asked again about the same content, as JSON or not.
    /// The first directory is the session's; files elsewhere may be in one of the others.
    ///
    /// # Errors
    /// A file does not exist or, with links followed, lies outside of the directories.
    pub(crate) async fn files_and_key(
        &self,
        directories: &[PathBuf],
    ) -> Result<(Vec<PathWithin>, String), String> {
        let found = self.files.iter().map(|file| found(file, directories));
        let files = found.collect::<Result<Vec<_>, _>>()?;
        let compared = files.clone();
        let state = spawn_blocking(move || State::of(&compared)).await.ok();
        Ok((files, format!("{:?} {state:?}", Self { json: None, ..self.clone() })))
    }

    /// A digest of the question, whichever directory its files are in, and whether it asks for JSON or not.
    pub(crate) fn digest(&self, directory: &Path) -> String {
        let whole = directory.canonicalize().unwrap_or_default();
        let below = |file: &PathBuf| {
            let file = directory.join(file).canonicalize().unwrap_or_else(|_| file.clone());
            file.strip_prefix(&whole).map_or_else(|_| file.clone(), Path::to_owned)
        };
        let files = self.files.iter().map(below).collect();
        let text = serde_json::to_vec(&Self { json: None, files, ..self.clone() }).unwrap_or_default();
        hex(&Sha256::digest(text)[..8])
    }
}

fn found(file: &Path, directories: &[PathBuf]) -> Result<PathWithin, String> {
    let shown = file.to_string_lossy();
    if shown.is_empty() {
        return Err("cannot give the file \"\": it has no name".to_owned());
    }
    match PathWithin::find(directories, file) {
        Ok(Some(found)) => Ok(found),
        Ok(None) => Err(format!("cannot give the file {shown:?}: it is not in the session's directory")),
        Err(error) => Err(format!("cannot give the file {shown:?}: {error}")),
    }
}

/// A hash that changes with the contents of a question's files and directories.
struct State {
    hasher: DefaultHasher,
    /// The rest of [`COMPARED_BYTES`].
    bytes: u64,
}

impl State {
    fn of(files: &[PathWithin]) -> u64 {
        let mut state = Self { hasher: DefaultHasher::new(), bytes: COMPARED_BYTES };
        for file in files {
            file.path().hash(&mut state.hasher);
            let added = file.with_place(|place| match place.metadata()? {
                found if found.is_dir() => state.add_tree(Cursor::new(Directory::at_path(place)?)),
                found if found.is_file() => state.add_file(File::open(place)),
                // Reading a FIFO would wait for its writer. The copy refuses it.
                _ => Ok(()),
            });
            added.is_ok().hash(&mut state.hasher);
        }
        state.hasher.finish()
    }

    /// Adds what is copied of a directory: files and directories.
    fn add_tree(&mut self, mut here: Cursor) -> io::Result<()> {
        let sorted = |here: &Cursor| -> io::Result<_> {
            let mut entries = here.entries()?.collect::<io::Result<Vec<_>>>()?;
            entries.sort_unstable_by(|one, other| one.name.cmp(&other.name));
            Ok(entries.into_iter())
        };
        let mut levels = vec![sorted(&here)?];
        while let Some(level) = levels.last_mut() {
            let entry = level.next();
            entry.as_ref().map(|entry| &entry.name).hash(&mut self.hasher);
            match entry {
                Some(Entry { name, kind: Kind::Directory }) => {
                    here.enter(&name)?;
                    levels.push(sorted(&here)?);
                }
                Some(Entry { name, kind: Kind::File }) => self.add_file(here.file(&name))?,
                Some(_) => {}
                None => {
                    levels.pop();
                    if !levels.is_empty() {
                        here.leave()?;
                    }
                }
            }
        }
        Ok(())
    }

    fn add_file(&mut self, file: io::Result<File>) -> io::Result<()> {
        let file = file?;
        let metadata = file.metadata()?;
        metadata.len().hash(&mut self.hasher);
        if metadata.is_file() && metadata.len() <= self.bytes {
            self.bytes -= metadata.len();
            let mut content = Vec::new();
            file.take(metadata.len()).read_to_end(&mut content)?;
            content.hash(&mut self.hasher);
        } else {
            (metadata.ctime(), metadata.ctime_nsec(), metadata.ino()).hash(&mut self.hasher);
        }
        Ok(())
    }
}

/// A path, a list of paths, or null.
fn one_or_many<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Vec<PathBuf>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Paths {
        One(PathBuf),
        Many(Vec<PathBuf>),
    }
    Ok(match Option::deserialize(from)? {
        None => Vec::new(),
        Some(Paths::One(path)) => vec![path],
        Some(Paths::Many(paths)) => paths,
    })
}

/// The options that both tools take, as properties of their schemas.
fn options() -> Map<String, Json> {
    let options = json!({
        "files": {"type": ["array", "string", "null"], "items": {"type": "string"},
            "description": "files and directories of the session's directory, which are copied into the child's"},
        "text": {"type": ["string", "null"], "description": "a text, the child's file context.txt"},
        "data": {"description": "a value, the child's file context.json"},
        "model": {"type": ["string", "null"], "description": "the model that leads the child"},
        "language": {"enum": ["bash", "python", null], "description": "the language of the child's session"},
        "max_turns": {"type": ["integer", "null"], "minimum": 1, "description": "the most turns"},
        "timeout": {"type": ["number", "null"], "exclusiveMinimum": 0, "description": "the most time in seconds"},
        "share": {"type": ["number", "null"], "exclusiveMinimum": 0, "maximum": 1,
            "description": "the part of what is left of the budget that is the child's alone"},
        "json": {"type": ["boolean", "null"], "description": "true: a dict with answer, ready, stop_reason, error, turns, cost_usd"},
    });
    let Json::Object(options) = options else { unreachable!("it is an object") };
    options
}

fn schema(first: &str, described: Json) -> Json {
    let mut properties = Map::from_iter([(first.to_owned(), described)]);
    properties.extend(options());
    json!({"type": "object", "properties": properties, "required": [first], "additionalProperties": false})
}

static QUERY: LazyLock<Json> =
    LazyLock::new(|| schema("question", json!({"type": "string", "description": "the question"})));

static QUERY_BATCH: LazyLock<Json> = LazyLock::new(|| {
    // An invalid question fails alone: only its own answer says so.
    let description = "the questions: texts, or objects with question and options of their own";
    schema("questions", json!({"type": "array", "description": description}))
});

/// The tool `rlm_query(question, …) -> str`, which a child answers, or `rlm_query_batch(questions, …) -> list[str]`.
#[derive(Debug)]
struct QueryTool {
    answering: Arc<dyn Answering>,
    name: &'static str,
}

impl QueryTool {
    fn is_batch(&self) -> bool {
        self.name != RLM_QUERY
    }

    async fn one(&self, call: &Call) -> Result<(Reply, Option<Receipt>), ToolError> {
        let question = read(named(call, &QUERY)?).map_err(ToolError::Arguments)?;
        let (is_json, started) = (question.json == Some(true), Instant::now());
        let answers = self.answering.answer(vec![Ok(question)]).await;
        let print_lines = vec![summary(RLM_QUERY, &answers, started.elapsed())];
        let Answers { mut results, receipt, .. } = answers;
        let result = results.pop().unwrap_or_else(|| Err("there is no result".to_owned()));
        let result = result.map_err(ToolError::Arguments)?;
        let result = if is_json { document(&Ok(result))? } else { text(Ok(result)).into() };
        Ok((Reply { result: ToolResult::Value(result), print_lines }, Some(receipt)))
    }

    async fn several(&self, call: &Call) -> Result<(Reply, Option<Receipt>), ToolError> {
        let started = Instant::now();
        let mut given = named(call, &QUERY_BATCH)?;
        let questions = given.remove("questions").unwrap_or_default();
        let questions = questions.as_array().into_iter().flatten().enumerate().map(|(at, one)| {
            let mut question = given.clone();
            match one {
                // A field that is null counts as absent.
                Json::Object(own) => {
                    let given = own.iter().filter(|(name, value)| *name == "question" || !value.is_null());
                    question.extend(given.map(|(name, value)| (name.clone(), value.clone())));
                }
                other => drop(question.insert("question".to_owned(), other.clone())),
            }
            let is_json = question.get("json") == Some(&Json::Bool(true));
            (is_json, read(question).map_err(|error| format!("question {at}: {error}")))
        });
        let (are_json, questions): (Vec<_>, Vec<_>) = questions.unzip();
        let answers = self.answering.answer(questions).await;
        let print_lines = vec![summary(self.name, &answers, started.elapsed())];
        let Answers { results, receipt, .. } = answers;
        let values = results.into_iter().zip(are_json).map(|(result, is_json)| match is_json {
            true => document(&result),
            false => Ok(text(result).into()),
        });
        let result = ToolResult::Value(Value::list(values.collect::<Result<Vec<_>, _>>()?));
        Ok((Reply { result, print_lines }, Some(receipt)))
    }
}

impl RootTool for QueryTool {
    fn name(&self) -> &str {
        self.name
    }

    fn description(&self) -> &str {
        match self.is_batch() {
            false => {
                "Lets another agent with a session of its own answer a question about files, and returns its answer."
            }
            true => {
                "The same for a list of questions, several at once; returns the list of the answers in order."
            }
        }
    }

    fn parameters(&self) -> &Json {
        if self.is_batch() { &QUERY_BATCH } else { &QUERY }
    }

    fn time_limit(&self) -> Option<Duration> {
        Some(self.answering.time_limit())
    }

    fn call(&self, call: Call, deadline: Instant) -> ToolFuture<'_> {
        delivered(self.call_with_receipt(call, deadline))
    }

    fn call_with_receipt(&self, call: Call, _deadline: Instant) -> PaidToolFuture<'_> {
        Box::pin(
            async move { if self.is_batch() { self.several(&call).await } else { self.one(&call).await } },
        )
    }
}

/// The arguments by their names, as JSON.
fn named(call: &Call, schema: &Json) -> Result<Map<String, Json>, ToolError> {
    let names = schema["properties"].as_object().into_iter().flat_map(Map::keys);
    let of_kwargs = call.kwargs.iter().filter_map(|(name, value)| match name {
        Value::Str(name) => Some((name.to_string(), value)),
        _ => None,
    });
    let all = names.cloned().zip(&call.args).chain(of_kwargs);
    let json = |(name, value): (String, &Value)| match value.to_json(usize::MAX) {
        Ok(json) => Ok((name, json)),
        Err(error) => Err(ToolError::Arguments(format!("{}: {name}: {error}", call.tool))),
    };
    all.map(json).collect()
}

/// Reads a question.
///
/// # Errors
/// A sentence with the field, its value and what was expected. The tools' schemas check the same, except in a batch.
fn read(mut given: Map<String, Json>) -> Result<Question, String> {
    let expected = |name: &str, value: &Json, expected: &str| {
        Err(format!("{name} is {}, expected {expected}", cut(&value.to_string(), SHOWN_CHARS)))
    };
    for (name, value) in given.iter().filter(|(name, value)| !value.is_null() || *name == "question") {
        let number = value.as_f64();
        match name.as_str() {
            "question" if value.as_str().is_none_or(|question| question.trim().is_empty()) => {
                return expected(name, value, "a text that is not empty");
            }
            "text" | "model" | "language" if !value.is_string() => return expected(name, value, "a text"),
            "share" if number.is_none_or(|part| part <= 0.0 || part > 1.0) => {
                return expected(name, value, "a number above 0, at most 1");
            }
            "timeout" if number.is_none_or(|seconds| seconds <= 0.0) => {
                return expected(name, value, "a number of seconds above 0");
            }
            "max_turns" if value.as_u64().is_none_or(|turns| turns == 0) => {
                return expected(name, value, "a whole number from 1");
            }
            _ => {}
        }
    }
    if let Some(turns) = given.get_mut("max_turns").filter(|turns| turns.is_u64()) {
        *turns = turns.as_u64().map(|turns| turns.min(u64::from(u32::MAX))).into();
    }
    serde_json::from_value(Json::Object(given)).map_err(|error| error.to_string())
}

/// The answer as text, or the text in place of a missing answer.
fn text(result: Result<RolloutResult, String>) -> String {
    match result {
        Ok(RolloutResult { answer: Some(answer), .. }) => answer,
        Ok(result) => format!("{QUERY_ERROR}{}", why(&result)),
        Err(error) => format!("{QUERY_ERROR}{error}"),
    }
}

/// Why a child has ended without a final answer.
fn why(result: &RolloutResult) -> String {
    let reason = reason(result.stop_reason);
    match &result.error {
        Some(error) => format!("no final answer ({reason}): {error}"),
        None => format!("no final answer ({reason})"),
    }
}

fn reason(reason: StopReason) -> String {
    serde_json::to_value(reason).ok().and_then(|name| Some(name.as_str()?.to_owned())).unwrap_or_default()
}

/// The result with everything that a parent's code may ask for.
fn document(result: &Result<RolloutResult, String>) -> Result<Value, ToolError> {
    let document = match result {
        Ok(result) => json!({
            "answer": result.answer,
            "ready": result.answer_ready,
            "stop_reason": result.stop_reason,
            "error": result.error,
            "turns": result.metrics.root_llm_turns,
            "cost_usd": result.metrics.cost_usd,
            "seconds": result.metrics.total_time_seconds,
            "id": result.id,
        }),
        Err(error) => json!({
            "answer": null, "ready": false, "stop_reason": StopReason::SetupFailed, "error": error,
            "turns": 0, "cost_usd": 0.0, "seconds": 0.0, "id": null,
        }),
    };
    Value::from_json(&document).map_err(|error| ToolError::Failed(error.to_string()))
}

/// A line on how the call went.
fn summary(tool: &str, answers: &Answers, time: Duration) -> String {
    let seconds = format!("{:.2}s", time.as_secs_f64());
    let before = match answers.before {
        0 => String::new(),
        before => format!(", {before}{PAID_BEFORE}"),
    };
    if let [Ok(result)] = &*answers.results {
        let turns = result.metrics.root_llm_turns;
        let turns = format!("{turns} {}", if turns == 1 { "turn" } else { "turns" });
        let unfinished = match &result.answer {
            _ if result.answer_ready => String::new(),
            Some(_) => format!(",{DRAFT}: {}", why(result)),
            None => format!(", {}", why(result)),
        };
        return format!("{tool}: {turns} in {seconds}{before}{unfinished}");
    }
    let results = || answers.results.iter().flatten();
    let ready = results().filter(|result| result.answer_ready).count();
    let drafts = match results().filter(|result| !result.answer_ready && result.answer.is_some()).count() {
        0 => String::new(),
        drafts => format!(", {drafts} with{DRAFT}"),
    };
    format!("{tool}: {ready} of {} answered in {seconds}{before}{drafts}", answers.results.len())
}
