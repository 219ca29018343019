//! The sub-LLM of a rollout.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures_util::{StreamExt as _, stream};
use serde_json::{Map, Value as Json, json};
use tokio::sync::Semaphore;

use super::bounds::{
    DEFAULT_COMPLETION, LEAST_COMPLETION, LONGEST_BOUND, bound, check_bounds, choices, lower_bounds,
    thinking_budget,
};
use super::boxed::last_boxed;
use super::error::{SubCallError, SubLlmError};
use super::exchange::{Request, Sender};
use super::message::{ChatMessage, as_reply, prompt_tokens};
use super::models::Models;
use super::record::Recorder;
use super::reply::{Reply, ReplyContent};
use super::reply_end::ReplyEnd;
use super::request_ids::new_request_id;
use super::tool_loop::ChatTools;
use crate::ledger::{Budget, Estimate, Ledger, Usage};
use crate::tool::RootTool;

/// Fields that are not sampling parameters.
const RESERVED: [&str; 5] = ["messages", "model", "stream", "tools", "tool_choice"];

/// Options of a rollout's sub-LLM.
#[derive(Clone, Debug)]
pub struct SubLlmOptions {
    /// The model; that of [`Models`] by default.
    pub model: Option<String>,
    /// Number of requests of the rollout that run at once; 5 by default.
    pub parallelism: usize,
    /// True to return the content of the last `\boxed{…}` in a text, if there is one. False by default.
    pub boxed: bool,
    /// Time limit of one prompt of a batch, from its first request on, with retries and tools; by default that of the
    /// batch.
    pub item_deadline: Option<Duration>,
    /// A system prompt for each prompt of a batch; none by default.
    pub system_prompt: Option<String>,
    /// Tools that the sub-LLM may call; none by default.
    pub tools: Vec<Arc<dyn RootTool>>,
    /// Number of times it may call tools before it must answer; 8 by default.
    pub max_tool_turns: u32,
    /// Extra fields of each request, such as `temperature`. Requests through the proxy can override them.
    pub sampling: Map<String, Json>,
    /// `max_tokens` of a request that has neither `max_tokens` nor `max_completion_tokens`, if the budget needs a
    /// bound, and whose model's longest completion the server does not list; 4096 by default. It is doubled after each reply that was
    /// cut off at it. If the budget has less left, it is the rest of the budget, down to [`LEAST_COMPLETION`]. The tokens that a user
    /// gives the model to think with come on top of both.
    pub default_max_tokens: u64,
    /// Receives a record of each request; none by default.
    pub recorder: Option<Arc<dyn Recorder>>,
}

impl Default for SubLlmOptions {
    fn default() -> Self {
        Self {
            model: None,
            parallelism: 5,
            boxed: false,
            item_deadline: None,
            system_prompt: None,
            tools: Vec::new(),
            max_tool_turns: 8,
            sampling: Map::new(),
            default_max_tokens: DEFAULT_COMPLETION,
            recorder: None,
        }
    }
}

/// Checks that these can be fields of each request under this budget.
///
/// # Errors
/// A sentence that names the field.
pub fn check_sampling(sampling: &Map<String, Json>, budget: &Budget) -> Result<(), String> {
    check_fields(sampling, budget.bounds_completions())
}

fn check_fields(sampling: &Map<String, Json>, has_budget: bool) -> Result<(), String> {
    match RESERVED.into_iter().find(|field| sampling.contains_key(*field)) {
        Some(field) => Err(format!("`{field}` is not a sampling parameter: each request sets its own")),
        None => check_bounds(sampling, has_budget),
    }
}

/// The answer to one prompt.
#[derive(Clone, Debug, PartialEq)]
pub struct Completion {
    /// The text, or its boxed part.
    pub text: String,
    /// The reason why the text ended: one that is cut off is given as well.
    pub end: ReplyEnd,
    /// The ledger's charge.
    pub usage: Usage,
    /// Number of requests that were sent for the prompt: turns with tools, and retries.
    pub requests: u32,
}

/// The sub-LLM of a rollout. All its calls share the rollout's ledger and parallelism.
#[derive(Debug)]
pub struct SubLlm {
    pub(super) sender: Sender,
    pub(super) model: Arc<str>,
    pub(super) options: SubLlmOptions,
    tools: ChatTools,
    /// The bound on a completion where nobody has set one, without what the model may think with.
    own_bound: AtomicU64,
}

impl SubLlm {
    /// The sub-LLM of a rollout with this ledger.
    ///
    /// # Errors
    /// [`SubLlmError`].
    pub fn new(
        models: Arc<Models>,
        ledger: Arc<Ledger>,
        options: SubLlmOptions,
    ) -> Result<Self, SubLlmError> {
        if options.parallelism == 0 {
            return Err(SubLlmError::NoParallelism);
        }
        check_fields(&options.sampling, ledger.bounds_completions()).map_err(SubLlmError::Sampling)?;
        let model: Arc<str> = options.model.as_deref().unwrap_or(models.model()).into();
        ledger.check_model(&model)?;
        let tools = ChatTools::new(&options.tools)?;
        let slots = Semaphore::new(options.parallelism.min(Semaphore::MAX_PERMITS));
        let recorder = options.recorder.clone();
        let own_bound = AtomicU64::new(options.default_max_tokens);
        Ok(Self { sender: Sender { models, ledger, slots, recorder }, model, options, tools, own_bound })
    }

    /// The model that is called.
    #[must_use]
    pub fn model(&self) -> &str {
        &self.model
    }

    /// The ledger of the rollout.
    #[must_use]
    pub fn ledger(&self) -> &Arc<Ledger> {
        &self.sender.ledger
    }

    /// Sends each prompt to the model, and returns the answers in the order of the prompts. Each succeeds or fails on
    /// its own. Prompts without an answer at the deadline have failed.
    pub async fn batch(
        &self,
        prompts: Vec<String>,
        deadline: Instant,
    ) -> Vec<Result<Completion, SubCallError>> {
        self.batch_of(prompts.into_iter().enumerate().collect(), deadline, |_, _| {}).await
    }

    /// As [`Self::batch`], of prompts with their places in the batch. `answered` gets each answer at once, with its number among
    /// these prompts.
    pub(super) async fn batch_of(
        &self,
        prompts: Vec<(usize, impl AsRef<str>)>,
        deadline: Instant,
        mut answered: impl FnMut(usize, &Completion) + Send,
    ) -> Vec<Result<Completion, SubCallError>> {
        let batch_id = new_id();
        let mut results: Vec<_> = prompts.iter().map(|_| Err(SubCallError::NotSent)).collect();
        let items = prompts.into_iter().enumerate().map(|(at, (index, prompt))| {
            let batch_id = &batch_id;
            // In a box, since the future is cheaper to move that way.
            Box::pin(async move { (at, self.item(batch_id, index, prompt.as_ref(), deadline).await) })
        });
        // One task polls all of them, so that dropping this future stops them all.
        let mut ended = stream::iter(items).buffer_unordered(self.options.parallelism);
        while let Some((at, result)) = ended.next().await {
            if let Ok(completion) = &result {
                answered(at, completion);
            }
            results[at] = result;
        }
        results
    }

    /// Answers one prompt: lets the model call tools until it answers or reaches the limit.
    async fn item(
        &self,
        batch_id: &str,
        index: usize,
        prompt: &str,
        deadline: Instant,
    ) -> Result<Completion, SubCallError> {
        let own = self.options.item_deadline.and_then(|limit| Instant::now().checked_add(limit));
        let deadline = own.map_or(deadline, |own| own.min(deadline));
        let mut messages: Vec<ChatMessage> = Vec::new();
        if let Some(system_prompt) = &self.options.system_prompt {
            messages.push(json!({"role": "system", "content": system_prompt}).into());
        }
        messages.push(json!({"role": "user", "content": prompt}).into());
        let (mut usage, mut requests) = (Usage::default(), 0);
        for turn in 0.. {
            let may_call = !self.tools.is_empty() && turn < self.options.max_tool_turns;
            let mut body = Map::new();
            if !self.tools.is_empty() {
                body.insert("tools".to_owned(), self.tools.definitions().clone());
                body.insert("tool_choice".to_owned(), if may_call { "auto" } else { "none" }.into());
            }
            let own_bound = self.own_bound.load(Ordering::Relaxed);
            let request = self.request((batch_id, index, turn, new_request_id()), body, &messages);
            let said = |reply: &Reply| Ok((reply.said(may_call)?, reply.end()));
            let (result, charged, attempts) = self.sender.exchange(&request, deadline, said).await;
            usage = usage + charged;
            requests += attempts;
            let is_cut = match &result {
                Ok((_, end)) => end.is_cut(),
                Err(error) => matches!(error, SubCallError::NoTextWithinBound { .. }),
            };
            if is_cut && request.has_own_bound {
                self.own_bound.fetch_max(own_bound.saturating_mul(2).min(LONGEST_BOUND), Ordering::Relaxed);
            }
            let (content, end) = result?;
            match content {
                ReplyContent::Text(text) => {
                    return Ok(Completion { text: self.answer(text), end, usage, requests });
                }
                ReplyContent::Calls { calls, message } => {
                    let answers = self.tools.run(&calls, deadline).await;
                    messages.push(as_reply(message).into());
                    messages.extend(answers.into_iter().map(ChatMessage::from));
                }
            }
        }
        unreachable!("a turn without tools ends the loop")
    }

    /// A request of these fields and messages, with the model, the sampling parameters and the bound that the budget needs.
    pub(super) fn request<'a>(
        &self,
        (batch_id, index, turn, id): (&'a str, usize, u32, String),
        fields: Map<String, Json>,
        messages: &'a [ChatMessage],
    ) -> Request<'a> {
        let is_bounded = bound(&fields).or_else(|| bound(&self.options.sampling)).is_some();
        let mut fields = self.fields(fields);
        let mut estimate = self.estimate(&fields, messages);
        let has_own_bound = !is_bounded && estimate.completion_tokens > 0;
        let own_bound = self.own_bound(&fields).saturating_mul(choices(&fields));
        if has_own_bound && estimate.completion_tokens > own_bound {
            // Requests run at once: with the longest completion that the server lists, each would take the room of the others.
            let affordable = self.sender.ledger.affordable_completion(&estimate);
            let most = own_bound.max(affordable / self.options.parallelism as u64);
            estimate.completion_tokens = estimate.completion_tokens.min(most);
            lower_bounds(&mut fields, most);
        }
        fields.insert("model".to_owned(), (*self.model).into());
        let least_completion =
            (!is_bounded).then(|| LEAST_COMPLETION.saturating_add(thinking_budget(&fields)));
        Request {
            batch_id,
            index,
            turn,
            id,
            estimate,
            messages,
            fields,
            least_completion,
            has_own_bound,
            room: None,
            observer: None,
        }
    }

    /// These fields, the sampling parameters, and the bound that the budget needs.
    pub(super) fn fields(&self, mut fields: Map<String, Json>) -> Map<String, Json> {
        for (name, value) in &self.options.sampling {
            if !fields.contains_key(name) {
                fields.insert(name.clone(), value.clone());
            }
        }
        if bound(&fields).is_none() && self.sender.ledger.bounds_completions() {
            let listed = self.sender.models.longest_completion(&self.model);
            let most = listed.unwrap_or_else(|| self.own_bound(&fields));
            fields.insert("max_tokens".to_owned(), most.into());
        }
        fields
    }

    /// The bound on a completion where neither a user nor the server has named one.
    fn own_bound(&self, fields: &Map<String, Json>) -> u64 {
        self.own_bound.load(Ordering::Relaxed).saturating_add(thinking_budget(fields))
    }

    /// The most that a request may cost.
    pub(super) fn estimate(&self, fields: &Map<String, Json>, messages: &[ChatMessage]) -> Estimate {
        Estimate {
            model: Arc::clone(&self.model),
            prompt_tokens: prompt_tokens(messages, fields),
            cached_tokens: 0,
            completion_tokens: bound(fields).unwrap_or(0).saturating_mul(choices(fields)),
            has_hour_cache: fields.get("cache_control").is_some_and(|mark| mark["ttl"] == "1h"),
            is_reserved: false,
        }
    }

    fn answer(&self, text: String) -> String {
        match self.options.boxed.then(|| last_boxed(&text)).flatten() {
            Some(boxed) => boxed.to_owned(),
            None => text,
        }
    }
}

/// A unique name for a batch.
pub(super) fn new_id() -> String {
    format!("{:016x}", fastrand::u64(..))
}
