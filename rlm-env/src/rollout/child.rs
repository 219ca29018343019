//! Children: rollouts that code in a session starts by `rlm_query` and `rlm_query_batch`.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use futures_util::{StreamExt as _, stream};
use rlm_core::ids::MAX_ROLLOUT_ID_BYTES;
use rlm_core::pickle::Value;
use rlm_core::root_tool::{
    Call, QUERY_ERROR, RLM_QUERY, RLM_QUERY_BATCH, RLM_QUERY_BATCHED, Reply, ToolResult,
};
use rlm_rootd::{Paid, PaidToolFuture, Receipt, RootModel, RootTool, Tool, ToolError, ToolFuture, delivered};
use serde::Deserialize;
use serde_json::{Map, Value as Json, json};

use super::config::{Control, RolloutConfig, RolloutResult};
use super::log::Log;
use super::recursion::{Node, Place};
use super::under_way::UnderWay;
use crate::session::CallClock;
use crate::terms::{Limits, StopReason};
use crate::workspace::Context;

/// The part of the time that is left for the question that a child may take: the rest is for its parent.
const TIME_PART: f64 = 0.95;

/// Bytes of a parent's id that the id of a child begins with.
const ID_PREFIX_BYTES: usize = 96;

/// Runs a child from its beginning to its end.
pub(super) trait Runner: std::fmt::Debug + Send + Sync {
    fn run(
        &self,
        config: RolloutConfig,
        control: Control,
    ) -> Pin<Box<dyn Future<Output = RolloutResult> + Send + '_>>;
}

/// The children of a rollout.
#[derive(Debug)]
pub(super) struct Children {
    pub(super) runner: Arc<dyn Runner>,
    /// The rollout's own configuration.
    pub(super) parent: RolloutConfig,
    /// The model that leads it.
    pub(super) model: Arc<dyn RootModel>,
    pub(super) node: Node,
    /// The session's directory, which relative paths begin at, and other ones with files that a child may get.
    pub(super) directories: Vec<PathBuf>,
    pub(super) under_way: Arc<UnderWay>,
    pub(super) clock: CallClock,
    pub(super) log: Arc<Log>,
    /// Children so far.
    pub(super) count: AtomicU64,
    /// Results that have not reached the code, by what it has asked for.
    pub(super) paid: Paid<RolloutResult>,
}

impl Children {
    /// The tools by which code starts them.
    pub(super) fn tools(self: Arc<Self>) -> Vec<Tool> {
        let batch = |name| Tool::new(QueryBatch { children: self.clone(), name });
        let tools =
            [Tool::new(Query { children: self.clone() }), batch(RLM_QUERY_BATCH), batch(RLM_QUERY_BATCHED)];
        tools.into_iter().map(|tool| tool.expect("it is well formed")).collect()
    }

    /// Answers questions, several at once, in their order. The call's clock stands still meanwhile, and a place of the rollout is
    /// its children's.
    async fn answer(&self, questions: Vec<Result<Question, String>>) -> Answers {
        let _stands_still = self.clock.stand_still();
        let given = match &self.node.place {
            Some(place) => Some(place.give().await),
            None => None,
        };
        let at_once = self.parent.recursion.as_ref().map_or(1, |recursion| recursion.max_running.max(1));
        let (mut results, mut before, mut way) = (Vec::new(), 0, self.paid.on_the_way());
        let children = questions.into_iter().map(|question| async {
            let question = match question {
                Ok(question) => question,
                Err(error) => return (None, Err(error)),
            };
            let files = question.files.iter().filter_map(|file| self.file(file).ok());
            let key =
                Some(format!("{question:?} {:?}", files.map(|file| state_of(&file)).collect::<Vec<_>>()));
            match key.as_ref().and_then(|key| self.paid.take(key)) {
                Some(result) => (key, Ok((result, true))),
                None => (key, self.child(question).await.map(|result| (result, false))),
            }
        });
        let mut children = pin!(stream::iter(children).buffered(at_once));
        while let Some((key, answered)) = children.next().await {
            if let (Some(key), Ok((result, _))) = (key, &answered)
                && result.answer_ready
            {
                way.add(key, result.clone());
            }
            results.push(answered.map(|(result, is_from_before)| {
                before += usize::from(is_from_before);
                result
            }));
        }
        if let Some(given) = given {
            given.take_back().await;
        }
        Answers { results, before, receipt: way.into_receipt() }
    }

    /// Runs one child.
    ///
    /// # Errors
    /// A sentence: what was asked for cannot be.
    async fn child(&self, question: Question) -> Result<RolloutResult, String> {
        let context = self.context(&question)?;
        let place = Place::take(&self.node.places).await;
        let id = self.id();
        let ledger = self.under_way.ledger().ok_or("the rollout has not begun")?;
        // Given back when the child has ended.
        let share = question.share.map(|part| ledger.share(part, &id));
        let (control, end) = self.under_way.question().clone();
        let left = end.map(|end| end.saturating_duration_since(Instant::now()).mul_f64(TIME_PART));
        let own = question.timeout.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        let parent = &self.parent;
        let limits = Limits {
            max_turns: question
                .max_turns
                .map_or(parent.limits.max_turns, |most| most.min(parent.limits.max_turns)),
            timeout: left.into_iter().chain(own).min(),
            budget: share.as_ref().map(|share| *share.ledger().budget()).unwrap_or_default(),
            ..parent.limits.clone()
        };
        let depth = self.node.depth + 1;
        let node = Node {
            depth,
            parent: Some((parent.id.clone(), self.log.call_id())),
            parent_log: Some(self.log.clone()),
            places: self.node.places.clone(),
            place: Some(place),
        };
        let recursion = parent.recursion.as_ref();
        let level = recursion.and_then(|recursion| recursion.level(depth));
        let model = match &question.model {
            Some(name) => self.model(name)?,
            None => level.and_then(|level| level.model.clone()).unwrap_or_else(|| self.model.clone()),
        };
        let root_tools = match level.and_then(|level| level.root_tools.as_ref()) {
            Some(names) => {
                let is_there = |tool: &&Tool| names.iter().any(|name| name == tool.name());
                parent.root_tools.iter().filter(is_there).cloned().collect()
            }
            None => parent.root_tools.clone(),
        };
        let config = RolloutConfig {
            id,
            question: question.question,
            context,
            working_dir: None,
            language: match question.language.as_deref() {
                Some(name) => name.parse().map_err(|error| format!("language: {error}"))?,
                None => parent.language,
            },
            limits,
            shared_ledger: Some(share.as_ref().map_or(ledger, |share| share.ledger()).clone()),
            root_tools,
            append_to_system_prompt: None,
            answer_schema: None,
            model: Some(model),
            recursion: recursion.map(|recursion| recursion.of_child(node)),
            ..parent.clone()
        };
        Ok(self.runner.run(config, control.child()).await)
    }

    /// A new id, which begins with that of the parent.
    fn id(&self) -> String {
        let (parent, number) = (&self.parent.id, self.count.fetch_add(1, Relaxed) + 1);
        let id = format!("{parent}.{number}");
        if id.len() <= MAX_ROLLOUT_ID_BYTES {
            return id;
        }
        format!("{}.{:016x}", &parent[..ID_PREFIX_BYTES], getrandom::u64().unwrap_or(number))
    }

    /// The model of this name, of those that lead a level or this rollout: code gets no others.
    fn model(&self, name: &str) -> Result<Arc<dyn RootModel>, String> {
        let levels = self.parent.recursion.iter().flat_map(|recursion| &recursion.levels);
        let mut models = levels.filter_map(|level| level.model.as_ref()).chain([&self.model]);
        models.clone().find(|model| model.name() == name).cloned().ok_or_else(|| {
            let mut names: Vec<_> = models.by_ref().map(|model| model.name()).collect();
            names.sort_unstable();
            names.dedup();
            format!("there is no model {name}: the models are {}", names.join(", "))
        })
    }

    /// The context of a child: copies of files of the session's directory, a text, a JSON document.
    fn context(&self, question: &Question) -> Result<Context, String> {
        let files = question.files.iter().map(|file| self.file(file)).collect::<Result<Vec<_>, _>>()?;
        let mut parts: Vec<_> = question.text.clone().map(Context::Text).into_iter().collect();
        parts.extend(question.data.clone().map(Context::Json));
        // As of other contexts: a directory alone is the child's own.
        let files = (!files.is_empty()).then_some(Context::Paths(files));
        Ok(match (files, parts.is_empty()) {
            (Some(files), true) => files,
            (files, _) => Context::Together(files.into_iter().chain(parts).collect()),
        })
    }

    /// The whole path of a file for a child.
    ///
    /// # Errors
    /// It is not there, or not below a directory of the session, links followed.
    fn file(&self, file: &Path) -> Result<PathBuf, String> {
        let shown = file.to_string_lossy();
        let base = self.directories.first().ok_or("the session has no directory")?;
        let path = base
            .join(file)
            .canonicalize()
            .map_err(|error| format!("cannot give the file {shown:?}: {error}"))?;
        let is_below =
            |directory: &PathBuf| directory.canonicalize().is_ok_and(|directory| path.starts_with(directory));
        match self.directories.iter().any(is_below) {
            true => Ok(path),
            false => Err(format!("cannot give the file {shown:?}: it is not in the session's directory")),
        }
    }

    /// The most time that a call may take: what is left for the question.
    fn time_limit(&self) -> Duration {
        let end = self.under_way.question().1;
        end.map_or(Duration::MAX, |end| end.saturating_duration_since(Instant::now()))
    }
}

/// The answers to the questions of one call.
struct Answers {
    results: Vec<Result<RolloutResult, String>>,
    /// Those that were paid for in a call before, whose code did not get them.
    before: usize,
    receipt: Receipt,
}

/// A number that is another one once a file, or one in a directory, has changed.
fn state_of(path: &Path) -> u64 {
    let mut hasher = DefaultHasher::new();
    let mut left = vec![path.to_owned()];
    while let Some(path) = left.pop() {
        let Ok(metadata) = path.symlink_metadata() else { continue };
        (&path, metadata.len(), metadata.mtime(), metadata.mtime_nsec(), metadata.ino()).hash(&mut hasher);
        if metadata.is_dir() {
            let mut inner: Vec<_> =
                path.read_dir().into_iter().flatten().flatten().map(|entry| entry.path()).collect();
            inner.sort();
            left.extend(inner);
        }
    }
    hasher.finish()
}

/// A question for a child.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Question {
    question: String,
    #[serde(default, deserialize_with = "one_or_many")]
    files: Vec<PathBuf>,
    text: Option<String>,
    data: Option<Json>,
    model: Option<String>,
    language: Option<String>,
    max_turns: Option<u32>,
    timeout: Option<f64>,
    share: Option<f64>,
    /// True: the result is a dict. None: false.
    json: Option<bool>,
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
    let one = json!({"type": ["string", "object"]});
    schema(
        "questions",
        json!({"type": "array", "items": one,
        "description": "the questions: texts, or objects with question and options of their own"}),
    )
});

/// `rlm_query(question, …) -> str`: a child answers a question.
#[derive(Debug)]
struct Query {
    children: Arc<Children>,
}

impl RootTool for Query {
    fn name(&self) -> &str {
        RLM_QUERY
    }

    fn description(&self) -> &str {
        "Lets another agent with a session of its own answer a question about files, and returns its answer."
    }

    fn parameters(&self) -> &Json {
        &QUERY
    }

    fn time_limit(&self) -> Option<Duration> {
        Some(self.children.time_limit())
    }

    fn call(&self, call: Call, deadline: Instant) -> ToolFuture<'_> {
        delivered(self.call_with_receipt(call, deadline))
    }

    fn call_with_receipt(&self, call: Call, _deadline: Instant) -> PaidToolFuture<'_> {
        Box::pin(async move {
            let question = read(named(&call, &QUERY)?).map_err(ToolError::Arguments)?;
            let (is_json, started) = (question.json == Some(true), Instant::now());
            let answers = self.children.answer(vec![Ok(question)]).await;
            let print_lines = vec![summary(RLM_QUERY, &answers, started.elapsed())];
            let Answers { mut results, receipt, .. } = answers;
            let result = results.pop().unwrap_or_else(|| Err("there is no result".to_owned()));
            let result = result.map_err(ToolError::Arguments)?;
            let result = if is_json { document(&Ok(result))? } else { text(Ok(result)).into() };
            Ok((Reply { result: ToolResult::Value(result), print_lines }, Some(receipt)))
        })
    }
}

/// `rlm_query_batch(questions, …) -> list[str]`: children answer questions, several at once.
#[derive(Debug)]
struct QueryBatch {
    children: Arc<Children>,
    name: &'static str,
}

impl RootTool for QueryBatch {
    fn name(&self) -> &str {
        self.name
    }

    fn description(&self) -> &str {
        "The same for a list of questions, several at once; returns the list of the answers in order."
    }

    fn parameters(&self) -> &Json {
        &QUERY_BATCH
    }

    fn time_limit(&self) -> Option<Duration> {
        Some(self.children.time_limit())
    }

    fn call(&self, call: Call, deadline: Instant) -> ToolFuture<'_> {
        delivered(self.call_with_receipt(call, deadline))
    }

    fn call_with_receipt(&self, call: Call, _deadline: Instant) -> PaidToolFuture<'_> {
        Box::pin(async move {
            let started = Instant::now();
            let mut given = named(&call, &QUERY_BATCH)?;
            let questions = given.remove("questions").unwrap_or_default();
            let is_json = given.remove("json") == Some(Json::Bool(true));
            let questions = questions.as_array().into_iter().flatten().enumerate().map(|(at, one)| {
                let mut question = given.clone();
                match one {
                    Json::Object(own) => question.extend(own.clone()),
                    other => drop(question.insert("question".to_owned(), other.clone())),
                }
                read(question).map_err(|error| format!("question {at}: {error}"))
            });
            let answers = self.children.answer(questions.collect()).await;
            let print_lines = vec![summary(self.name, &answers, started.elapsed())];
            let Answers { results, receipt, .. } = answers;
            let values = results.into_iter().map(|result| match is_json {
                true => document(&result),
                false => Ok(text(result).into()),
            });
            let result = ToolResult::Value(Value::list(values.collect::<Result<Vec<_>, _>>()?));
            Ok((Reply { result, print_lines }, Some(receipt)))
        })
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

fn read(given: Map<String, Json>) -> Result<Question, String> {
    serde_json::from_value(Json::Object(given)).map_err(|error| error.to_string())
}

/// The answer as text, or what stands for it.
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

/// The result with everything that a parent's code may ask.
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

/// A line on how it went.
fn summary(tool: &str, answers: &Answers, time: Duration) -> String {
    let seconds = format!("{:.2}s", time.as_secs_f64());
    let before = match answers.before {
        0 => String::new(),
        before => format!(", {before} paid for before"),
    };
    if let [Ok(result)] = &*answers.results {
        let turns = result.metrics.root_llm_turns;
        let turns = format!("{turns} {}", if turns == 1 { "turn" } else { "turns" });
        let unfinished = if result.answer_ready { String::new() } else { format!(", {}", why(result)) };
        return format!("{tool}: {turns} in {seconds}{before}{unfinished}");
    }
    let ready = answers.results.iter().flatten().filter(|result| result.answer_ready).count();
    format!("{tool}: {ready} of {} answered in {seconds}{before}", answers.results.len())
}
