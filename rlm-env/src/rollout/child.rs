//! Children: rollouts that code in a session starts by `rlm_query` and `rlm_query_batch`.

use std::path::PathBuf;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use futures_util::{StreamExt as _, stream};
use rlm_core::ids::MAX_ROLLOUT_ID_BYTES;
use rlm_rootd::{OnTheWay, Paid, RootModel, Tool};

use super::config::{Control, RolloutConfig, RolloutResult};
use super::log::Log;
use super::query::{Answering, Answers, Question};
use super::recursion::{Node, Place};
use super::under_way::UnderWay;
use crate::session::CallClock;
use crate::terms::Limits;
use crate::workspace::{Context, PathWithin};

/// The part of the question's remaining time that a child may take. The rest is for its parent.
const TIME_PART: f64 = 0.95;

/// With less time than this left for the question, no child is started.
const LEAST_TIME: Duration = Duration::from_secs(1);

/// Bytes of a parent's id that the id of a child begins with.
const ID_PREFIX_BYTES: usize = 96;

/// A rollout that runs.
pub(super) type Running = Pin<Box<dyn Future<Output = RolloutResult> + Send>>;

/// Runs a child from its beginning to its end.
pub(super) trait Runner: std::fmt::Debug + Send + Sync {
    fn run(self: Arc<Self>, config: RolloutConfig, control: Control) -> Running;
}

/// The answer to a question.
#[derive(Debug)]
pub(super) struct Answered {
    result: RolloutResult,
    /// Keeps the answer, if it was paid for, until it has reached the code.
    way: OnTheWay<RolloutResult>,
    /// True if the answer was paid for in an earlier call, whose code did not get it.
    is_from_before: bool,
}

/// The children of a rollout.
#[derive(Debug)]
pub(super) struct Children {
    pub(super) runner: Arc<dyn Runner>,
    /// The rollout's own configuration.
    pub(super) parent: RolloutConfig,
    /// The model that leads the rollout.
    pub(super) model: Arc<dyn RootModel>,
    pub(super) node: Node,
    /// The session's directory, in which relative paths begin, and other directories whose files a child may get.
    pub(super) directories: Vec<PathBuf>,
    pub(super) under_way: Arc<UnderWay>,
    pub(super) clock: CallClock,
    pub(super) log: Arc<Log>,
    /// Number of children so far.
    pub(super) count: AtomicU64,
    /// Paid results that have not reached the code, by question.
    pub(super) paid: Paid<RolloutResult>,
}

impl Children {
    /// Answers questions. Until then the call's clock stands still, and its children have the rollout's place.
    async fn answers(&self, questions: Vec<Result<Question, String>>) -> Answers {
        let _stands_still = self.clock.stand_still();
        let given = match &self.node.place {
            Some(place) => Some(place.give().await),
            None => None,
        };
        let at_once = self.parent.recursion.as_ref().map_or(1, |recursion| recursion.max_running.max(1));
        let (mut results, mut before, mut way) = (Vec::new(), 0, self.paid.on_the_way());
        let of_call = way.of_the_same_call();
        let children = questions.into_iter().enumerate();
        let children = children.map(|(at, question)| {
            let way = of_call.of_the_same_call();
            async move { (at, self.one(question, way).await) }
        });
        let mut children = pin!(stream::iter(children).buffer_unordered(at_once));
        while let Some((at, answered)) = children.next().await {
            let result = answered.map(|answered| {
                before += usize::from(answered.is_from_before);
                way.append(answered.way);
                answered.result
            });
            results.push((at, result));
        }
        results.sort_by_key(|(at, _)| *at);
        let results = results.into_iter().map(|(_, result)| result).collect();
        if let Some(given) = given {
            given.take_back().await;
        }
        Answers { results, before, receipt: way.into_receipt() }
    }

    /// Answers one question, with a result that was paid for before or by a child.
    async fn one(
        &self,
        question: Result<Question, String>,
        mut way: OnTheWay<RolloutResult>,
    ) -> Result<Answered, String> {
        let question = question?;
        let (_, key) = question.files_and_key(&self.directories).await?;
        match way.take(&key).await {
            Some(result) => Ok(Answered { result, way, is_from_before: true }),
            None => self.child(question, way).await,
        }
    }

    /// Runs one child.
    ///
    /// # Errors
    /// A sentence that says why no child can answer the question.
    async fn child(&self, question: Question, mut way: OnTheWay<RolloutResult>) -> Result<Answered, String> {
        self.check_time()?;
        let place = Place::take(&self.node.places).await;
        self.check_time()?;
        // While the question waited for a place, code may have rewritten its files.
        let (files, key) = question.files_and_key(&self.directories).await?;
        let context = context_of(&question, files);
        // A call that was given up just before may have got its result by now.
        if let Some(result) = way.take(&key).await {
            return Ok(Answered { result, way, is_from_before: true });
        }
        let id = self.id();
        let ledger = self.under_way.ledger().ok_or("the rollout has not begun")?;
        // The share is given back when the child has ended.
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
            query_digest: self.directories.first().map(|directory| question.digest(directory)),
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
        let (runner, control) = (self.runner.clone(), control.child());
        let _ends_with_the_call = CancelledOnDrop(control.clone());
        let child = self.under_way.run_child(async move {
            let result = runner.run(config, control).await;
            drop(share);
            if result.answer_ready {
                way.add(&key, result.clone());
            }
            Answered { result, way, is_from_before: false }
        });
        child.await.map_err(|_| "the child has failed".to_owned())
    }

    /// Fails if so little time is left that a child would only cost.
    fn check_time(&self) -> Result<(), String> {
        match self.time_limit() {
            left if left < LEAST_TIME => Err(format!(
                "there is no time for a child: the question's limit is reached in {:.2} s",
                left.as_secs_f64()
            )),
            _ => Ok(()),
        }
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

    /// The model with this name, if it leads this rollout or a level below. Code gets no other models.
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
}

/// The context of a child: copies of files of the session's directory, a text, a JSON document.
fn context_of(question: &Question, files: Vec<PathWithin>) -> Context {
    let mut parts: Vec<_> = question.text.clone().map(Context::Text).into_iter().collect();
    parts.extend(question.data.clone().map(Context::Json));
    // As in other contexts, the contents of a single directory become the child's directory.
    let files = (!files.is_empty()).then_some(Context::Within(files));
    match (files, parts.is_empty()) {
        (Some(files), true) => files,
        (files, _) => Context::Together(files.into_iter().chain(parts).collect()),
    }
}

impl Answering for Children {
    fn answer(
        &self,
        questions: Vec<Result<Question, String>>,
    ) -> Pin<Box<dyn Future<Output = Answers> + Send + '_>> {
        Box::pin(self.answers(questions))
    }

    /// The time that is left for the question.
    fn time_limit(&self) -> Duration {
        let end = self.under_way.question().1;
        end.map_or(Duration::MAX, |end| end.saturating_duration_since(Instant::now()))
    }
}

/// Cancels a rollout when it is dropped.
struct CancelledOnDrop(Control);

impl Drop for CancelledOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}
