//! A rollout: its secret, tools, limits and counters.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use rlm_core::ids::{MAX_ROLLOUT_ID_BYTES, is_rollout_id};
use serde::Serialize;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::error::CallError;
use crate::ledger::{Budget, Ledger, LedgerSnapshot, Prices};
use crate::llm::{BudgetTool, LlmBatch, Models, SubLlm, SubLlmError, SubLlmOptions};
use crate::metrics::{CallCounters, CallCounts};
use crate::secret::Secret;
use crate::tool::Tool;

/// Time limit of a root-tool call by default.
pub const TOOL_TIME_LIMIT: Duration = Duration::from_secs(300);

/// Longest time limit of a call. A longer one is a mistake of units.
pub const MAX_TOOL_TIME_LIMIT: Duration = Duration::from_secs(7 * 24 * 3600);

/// Requests of a rollout that are worked on at once by default.
const MAX_RUNNING: usize = 64;

/// Requests of a rollout that may wait by default. Each costs a connection.
const MAX_WAITING: usize = 1000;

/// Decoded arguments over 1 MiB that a rollout may have at once, in KiB.
pub(crate) const ARGUMENT_KIB: u32 = 128 << 10;

/// Results over 1 MiB that a rollout may have at once.
const LARGE_RESULTS: usize = 4;

/// Time limit for the last responses of a rollout to be read.
const DRAIN_LIMIT: Duration = Duration::from_secs(5);

/// The tools and limits of a rollout.
#[derive(Clone, Debug)]
pub struct RolloutConfig {
    /// The rollout's own tools. The endpoint adds `llm_batch`, `llm_query` and `budget` where it has models.
    pub tools: Vec<Tool>,
    /// Time limit of a call; [`TOOL_TIME_LIMIT`] by default, [`MAX_TOOL_TIME_LIMIT`] at most.
    pub tool_time_limit: Duration,
    /// Requests that are worked on at once; 64 by default. Further ones wait.
    pub max_running: usize,
    /// Requests that may wait; 1000 by default. Further ones are refused.
    pub max_waiting: usize,
    /// The budget for models; no limit by default.
    pub budget: Budget,
    /// A ledger that several rollouts spend from; none by default.
    pub shared_ledger: Option<Arc<Ledger>>,
    /// The options of the rollout's sub-LLM.
    pub sub_llm: SubLlmOptions,
}

impl Default for RolloutConfig {
    fn default() -> Self {
        Self {
            tools: Vec::new(),
            tool_time_limit: TOOL_TIME_LIMIT,
            max_running: MAX_RUNNING,
            max_waiting: MAX_WAITING,
            budget: Budget::default(),
            shared_ledger: None,
            sub_llm: SubLlmOptions::default(),
        }
    }
}

/// The data of a registered rollout that its worker needs to call.
#[derive(Clone, Debug)]
pub struct Registration {
    /// The rollout's id.
    pub id: String,
    /// The secret to send as `Authorization: Bearer …`.
    pub secret: Secret,
    /// Names of the rollout's tools, in their order.
    pub tools: Vec<String>,
}

impl Registration {
    /// The URL of the tools, on a server with this [`base_url`](crate::Listener::base_url).
    #[must_use]
    pub fn tools_url(&self, base_url: &str) -> String {
        format!("{base_url}/rollout/{}/v1/rlm/tools", self.id)
    }

    /// The URL of the sub-LLM proxy for chat completions.
    #[must_use]
    pub fn chat_url(&self, base_url: &str) -> String {
        format!("{base_url}/rollout/{}/v1/chat/completions", self.id)
    }
}

/// A registration that is refused. Nothing has changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RegisterError {
    /// An id that is not a path segment.
    #[error(
        "the rollout's id must be 1 to {MAX_ROLLOUT_ID_BYTES} of the characters a-z, A-Z, 0-9, '_', '-' and '.', not all dots"
    )]
    Id,
    /// The id is in use.
    #[error("rollout '{0}' is registered already")]
    Taken(String),
    /// Two tools of one name.
    #[error("two tools have the name '{0}'")]
    Twice(String),
    /// A time limit out of bounds.
    #[error("tool_time_limit must be above 0 and at most {} s", MAX_TOOL_TIME_LIMIT.as_secs())]
    TimeLimit,
    /// An invalid configuration of the sub-LLM.
    #[error(transparent)]
    SubLlm(#[from] SubLlmError),
    /// The system gave no random bytes for a secret.
    #[error("cannot make a secret")]
    Secret(#[source] std::io::Error),
}

/// The calls and the spending of a rollout so far.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct RolloutMetrics {
    /// The rollout's id.
    pub id: String,
    /// Seconds since the rollout was registered.
    pub age: f64,
    /// Running calls.
    pub running: i64,
    /// Counts of ended calls by tool.
    pub tools: BTreeMap<String, CallCounts>,
    /// Spending on models.
    pub spent: LedgerSnapshot,
}

#[derive(Debug)]
pub(crate) struct Rollout {
    pub(crate) id: String,
    pub(crate) tools: Vec<RolloutTool>,
    pub(crate) tool_time_limit: Duration,
    /// Cancelled when the rollout is unregistered.
    pub(crate) ended: CancellationToken,
    /// The sub-LLM. None: the endpoint has no models.
    pub(crate) sub_llm: Option<Arc<SubLlm>>,
    pub(crate) ledger: Arc<Ledger>,
    secret: Secret,
    began: Instant,
    running: AtomicI64,
    /// One permit per request that is worked on.
    places: Arc<Semaphore>,
    max_running: u32,
    /// One permit per request that waits for a place.
    queue: Semaphore,
    /// One permit per KiB of large bodies in flight: from before a body is read until its response is sent.
    pub(crate) body_kib: Arc<Semaphore>,
    /// One permit per KiB of large arguments: from before they are decoded until the response is sent.
    pub(crate) argument_kib: Arc<Semaphore>,
    /// One permit per large result: from before it is encoded until the response is sent.
    pub(crate) large_results: Arc<Semaphore>,
    /// One permit: large values are decoded and encoded one after another.
    pub(crate) large_turn: Arc<Semaphore>,
}

/// A tool of a rollout, and its counters.
#[derive(Debug)]
pub(crate) struct RolloutTool {
    pub(crate) tool: Tool,
    pub(crate) calls: CallCounters,
}

impl Rollout {
    pub(crate) fn new(
        id: &str,
        config: RolloutConfig,
        models: Option<&Arc<Models>>,
        prices: &Prices,
        max_body_bytes: usize,
    ) -> Result<Self, RegisterError> {
        if !is_rollout_id(id) {
            return Err(RegisterError::Id);
        }
        let limit = config.tool_time_limit;
        if limit.is_zero() || limit > MAX_TOOL_TIME_LIMIT {
            return Err(RegisterError::TimeLimit);
        }
        let ledger = Ledger::new(config.budget, prices.clone()).of_rollout(id);
        let ledger = Arc::new(match config.shared_ledger {
            Some(shared) => ledger.within(shared),
            None => ledger,
        });
        let mut tools = Vec::with_capacity(config.tools.len() + 2);
        let mut sub_llm = None;
        if let Some(models) = models {
            let own = Arc::new(SubLlm::new(models.clone(), ledger.clone(), config.sub_llm)?);
            let batch = LlmBatch::new(own.clone());
            let one = batch.one();
            tools.push(Tool::new(batch).expect("it is well formed"));
            tools.push(Tool::new(one).expect("it is well formed"));
            tools.push(Tool::new(BudgetTool::new(ledger.clone())).expect("it is well formed"));
            sub_llm = Some(own);
        }
        tools.extend(config.tools);
        let mut names = HashSet::new();
        if let Some(tool) = tools.iter().find(|tool| !names.insert(tool.name())) {
            return Err(RegisterError::Twice(tool.name().to_owned()));
        }
        let max_running = u32::try_from(config.max_running).unwrap_or(u32::MAX).clamp(1, 1 << 20);
        Ok(Self {
            id: id.to_owned(),
            tools: tools
                .into_iter()
                .map(|tool| RolloutTool { tool, calls: CallCounters::default() })
                .collect(),
            tool_time_limit: limit,
            ended: CancellationToken::new(),
            sub_llm,
            ledger,
            secret: Secret::random().map_err(RegisterError::Secret)?,
            began: Instant::now(),
            running: AtomicI64::new(0),
            places: Arc::new(Semaphore::new(max_running as usize)),
            max_running,
            queue: Semaphore::new(config.max_waiting.min(Semaphore::MAX_PERMITS)),
            // Room for two of the largest bodies.
            body_kib: Arc::new(Semaphore::new((2 * max_body_bytes.div_ceil(1 << 10)).min(u32::MAX as usize))),
            argument_kib: Arc::new(Semaphore::new(ARGUMENT_KIB as usize)),
            large_results: Arc::new(Semaphore::new(LARGE_RESULTS)),
            large_turn: Arc::new(Semaphore::new(1)),
        })
    }

    pub(crate) fn registration(&self) -> Registration {
        let tools = self.tools.iter().map(|entry| entry.tool.name().to_owned()).collect();
        Registration { id: self.id.clone(), secret: self.secret.clone(), tools }
    }

    pub(crate) fn is_secret(&self, presented: &[u8]) -> bool {
        self.secret.is(presented)
    }

    /// Waits for a place among the requests that are worked on.
    ///
    /// # Errors
    /// [`CallError::Busy`] where too many requests wait already, [`CallError::Ended`] with the rollout.
    pub(crate) async fn place(&self) -> Result<OwnedSemaphorePermit, CallError> {
        if let Ok(place) = self.places.clone().try_acquire_owned() {
            return Ok(place);
        }
        let _waiting = self.queue.try_acquire().map_err(|_full| CallError::Busy)?;
        tokio::select! {
            biased;
            () = self.ended.cancelled() => Err(CallError::Ended),
            place = self.places.clone().acquire_owned() => place.map_err(|_closed| CallError::Ended),
        }
    }

    pub(crate) fn count_begin(&self) {
        self.running.fetch_add(1, Relaxed);
    }

    pub(crate) fn count_end(&self) {
        self.running.fetch_sub(1, Relaxed);
    }

    /// Waits until all responses of an ended rollout are sent, [`DRAIN_LIMIT`] at most.
    pub(crate) async fn drained(&self) {
        // Responses that are not read by then are given up.
        drop(timeout(DRAIN_LIMIT, self.places.acquire_many(self.max_running)).await);
    }

    pub(crate) fn metrics(&self) -> RolloutMetrics {
        let counts = |entry: &RolloutTool| (entry.tool.name().to_owned(), entry.calls.counts());
        RolloutMetrics {
            id: self.id.clone(),
            age: self.began.elapsed().as_secs_f64(),
            running: self.running.load(Relaxed),
            tools: self.tools.iter().map(counts).collect(),
            spent: self.ledger.snapshot(),
        }
    }
}
