//! The log of a rollout: passes events to sinks as they happen, and counts them.
//!
//! Metrics are computed from the trajectory's entries, so the two cannot disagree. Two counts come from elsewhere: the endpoint
//! counts calls of root tools, and the ledger knows of requests that were cut off.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use rlm_core::protocol::{Outcome, State};
use rlm_rootd::{LedgerSnapshot, Prices, Recorder, RolloutMetrics, SubCallRecord, Usage};
use serde_json::Value as Json;

use crate::metrics::Metrics;
use crate::session::{OutputObserver, OutputStream};
use crate::terms::StopReason;
use crate::trajectory::{Entry, Event, MessageKind, OutputPiece, Sink, SubCall, event_without_reasoning};

/// Costs that differ by less are equal: a sum of floats depends on its order.
const ROUNDING_USD: f64 = 1e-9;

/// The log of a rollout.
#[derive(Debug)]
pub(super) struct Log {
    rollout: String,
    sinks: Vec<Arc<dyn Sink>>,
    prices: Prices,
    began: Instant,
    /// The rollout's depth in its tree.
    depth: u32,
    /// The log of the rollout that has started this one. It also counts the events of all rollouts below.
    parent: Option<Arc<Self>>,
    keeps_reasoning: bool,
    state: Mutex<LogState>,
}

#[derive(Debug, Default)]
struct LogState {
    metrics: Metrics,
    /// The id of the running call.
    call_id: Option<String>,
    /// Number of prompts by batch: the highest index plus one.
    batches: HashMap<String, u64>,
    /// Cost of all requests with a known price, and whether one had none.
    cost_usd: f64,
    is_unpriced: bool,
    is_over: bool,
}

impl Log {
    pub(super) fn new(rollout: &str, sinks: Vec<Arc<dyn Sink>>, prices: Prices) -> Self {
        Self {
            rollout: rollout.to_owned(),
            sinks,
            prices,
            began: Instant::now(),
            depth: 0,
            parent: None,
            keeps_reasoning: true,
            state: Mutex::default(),
        }
    }

    /// The log of a rollout at this depth, with the log of the rollout that has started it.
    pub(super) fn below(self, parent: Option<Arc<Self>>, depth: u32) -> Self {
        Self { depth, parent, ..self }
    }

    /// This log, whose entries leave out the model's reasoning unless it is to be kept.
    pub(super) fn keeping_reasoning(self, keeps_reasoning: bool) -> Self {
        Self { keeps_reasoning, ..self }
    }

    pub(super) fn keeps_reasoning(&self) -> bool {
        self.keeps_reasoning
    }

    /// Id of the running call.
    pub(super) fn call_id(&self) -> Option<String> {
        self.state().call_id.clone()
    }

    /// Adds an event.
    pub(super) fn add(&self, event: Event) {
        let mut state = self.state();
        // A request that the rollout's end cut off comes too late.
        if state.is_over {
            return;
        }
        state.count(&event);
        let above = std::iter::successors(self.parent.as_deref(), |log| log.parent.as_deref());
        for log in above {
            log.state().count_below(self.depth, &event);
        }
        let event = if self.keeps_reasoning { event } else { event_without_reasoning(event) };
        let entry = Entry::now(self.rollout.clone(), self.depth, event);
        // Under the lock, so that all sinks see the same order.
        for sink in &self.sinks {
            sink.entry(&entry);
        }
    }

    /// True if a sink wants the output of calls as it comes.
    pub(super) fn wants_output(&self) -> bool {
        self.sinks.iter().any(|sink| sink.wants_output())
    }

    /// The cost of a request to a model in USD.
    pub(super) fn cost(&self, model: &str, usage: &Usage) -> Option<f64> {
        usage.cost_usd(self.prices.get(model))
    }

    /// Takes over the counts of the endpoint for root tools.
    pub(super) fn set_root_tools(&self, seen: &RolloutMetrics) {
        let mut state = self.state();
        (state.metrics.root_tool_call_count, state.metrics.root_tool_error_count) = (0, 0);
        for (name, counts) in &seen.tools {
            let failed = counts.arguments + counts.failed + counts.timed_out + counts.cancelled;
            let all = counts.ok + failed;
            state.metrics.root_tool_call_count += all;
            state.metrics.root_tool_error_count += failed;
            if all > 0 {
                state.metrics.root_tool_calls.insert(name.clone(), all);
            }
        }
    }

    /// Takes over the ledger's charges. They include requests of children that were cut off, which have no event.
    pub(super) fn settle(&self, charged: &LedgerSnapshot) {
        let mut state = self.state();
        let Some(cost) = charged.used.cost_usd.filter(|cost| *cost > state.cost_usd + ROUNDING_USD) else {
            return;
        };
        let more = cost - state.cost_usd;
        state.cost_usd = cost;
        state.metrics.usage_estimated |= charged.usage_estimated;
        drop(state);
        for log in std::iter::successors(self.parent.as_deref(), |log| log.parent.as_deref()) {
            let mut state = log.state();
            state.cost_usd += more;
            state.metrics.usage_estimated |= charged.usage_estimated;
            let counts = state.metrics.depths.entry(self.depth).or_default();
            counts.cost_usd = counts.cost_usd.map(|sum| sum + more);
        }
    }

    /// The metrics so far.
    pub(super) fn metrics(&self) -> Metrics {
        let state = self.state();
        let mean = |sum: f64, count: u64| if count == 0 { 0.0 } else { sum / count as f64 };
        let prompts: u64 = state.batches.values().sum();
        let batches = state.batches.len() as u64;
        let metrics = &state.metrics;
        Metrics {
            sub_llm_batch_count: batches,
            sub_llm_max_batch_size: state.batches.values().copied().max().unwrap_or(0),
            sub_llm_mean_batch_size: mean(prompts as f64, batches),
            repl_mean_time_seconds: mean(metrics.repl_total_time_seconds, metrics.repl_call_count),
            total_time_seconds: self.began.elapsed().as_secs_f64(),
            cost_usd: (!state.is_unpriced).then_some(state.cost_usd),
            ..metrics.clone()
        }
    }

    fn state(&self) -> MutexGuard<'_, LogState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LogState {
    fn count(&mut self, event: &Event) {
        let metrics = &mut self.metrics;
        match event {
            Event::RolloutStarted(_)
            | Event::ModelRetry(_)
            | Event::ModelChanged(_)
            | Event::QuestionEnded(_)
            | Event::RolloutScored(_) => {}
            Event::RolloutEnded(_) => self.is_over = true,
            Event::Message(message) if message.kind == MessageKind::Summary => {
                metrics.root_llm_summary_count += 1;
            }
            Event::Message(_) => {}
            Event::ModelCall(call) => {
                metrics.root_llm_turns += u64::from(call.error.is_none() && !call.is_summary);
                saturate(&mut metrics.root_llm_prompt_tokens, call.prompt_tokens);
                saturate(&mut metrics.root_llm_completion_tokens, call.completion_tokens);
                saturate(&mut metrics.root_llm_cached_tokens, call.cached_tokens);
                saturate(&mut metrics.root_llm_cache_write_tokens, call.cache_write_tokens);
                saturate(&mut metrics.root_llm_reasoning_tokens, call.reasoning_tokens);
                metrics.root_llm_total_time_seconds += call.seconds;
                let tokens = call.prompt_tokens.saturating_add(call.completion_tokens);
                self.spend(tokens, call.cost_usd, call.usage_estimated);
            }
            Event::CallStarted(call) => {
                self.call_id = Some(call.call_id.clone());
                match call.code {
                    Some(_) => metrics.repl_call_count += 1,
                    None => metrics.standard_tool_call_count += 1,
                }
            }
            Event::CallEnded(call) => {
                let began = self.call_id.take();
                metrics.malformed_call_count += u64::from(began.as_ref() != Some(&call.call_id));
                if let Some(output) = &call.output {
                    metrics.repl_error_count += u64::from(output.outcome != Outcome::Ok);
                    metrics.repl_timeout_count += u64::from(output.outcome == Outcome::TimedOut);
                    metrics.repl_reset_count += u64::from(output.state == State::Reset);
                    metrics.repl_total_time_seconds += call.seconds;
                }
            }
            Event::SubCall(call) => {
                // A call without attempts was never sent.
                let is_sent = call.attempts > 0;
                metrics.sub_llm_call_count += u64::from(is_sent);
                metrics.sub_llm_error_count += u64::from(is_sent && call.error.is_some());
                saturate(&mut metrics.sub_llm_prompt_tokens, call.prompt_tokens);
                saturate(&mut metrics.sub_llm_completion_tokens, call.completion_tokens);
                saturate(&mut metrics.sub_llm_cached_tokens, call.cached_tokens);
                saturate(&mut metrics.sub_llm_cache_write_tokens, call.cache_write_tokens);
                saturate(&mut metrics.sub_llm_reasoning_tokens, call.reasoning_tokens);
                metrics.sub_llm_total_time_seconds += call.seconds;
                let prompts = self.batches.entry(call.batch_id.clone()).or_default();
                *prompts = (*prompts).max(call.index as u64 + 1);
                let tokens = call.prompt_tokens.saturating_add(call.completion_tokens);
                self.spend(tokens, call.cost_usd, call.usage_estimated);
            }
        }
    }

    /// Counts an event of a rollout below.
    fn count_below(&mut self, depth: u32, event: &Event) {
        let counts = self.metrics.depths.entry(depth).or_default();
        let (prompt, completion, cost_usd, is_estimated) = match event {
            Event::RolloutStarted(_) => {
                counts.rollouts += 1;
                return;
            }
            Event::RolloutEnded(ended) => {
                counts.answered += u64::from(ended.stop_reason == StopReason::Answered);
                return;
            }
            Event::ModelCall(call) => {
                counts.turns += u64::from(call.error.is_none() && !call.is_summary);
                (call.prompt_tokens, call.completion_tokens, call.cost_usd, call.usage_estimated)
            }
            Event::SubCall(call) => {
                counts.sub_llm_calls += u64::from(call.attempts > 0);
                (call.prompt_tokens, call.completion_tokens, call.cost_usd, call.usage_estimated)
            }
            _ => return,
        };
        saturate(&mut counts.prompt_tokens, prompt);
        saturate(&mut counts.completion_tokens, completion);
        let tokens = prompt.saturating_add(completion);
        match cost_usd {
            Some(cost) => counts.cost_usd = counts.cost_usd.map(|sum| sum + cost),
            None if tokens > 0 => counts.cost_usd = None,
            None => {}
        }
        self.spend(tokens, cost_usd, is_estimated);
    }

    fn spend(&mut self, tokens: u64, cost_usd: Option<f64>, is_estimated: bool) {
        self.metrics.usage_estimated |= is_estimated;
        match cost_usd {
            Some(cost) => self.cost_usd += cost,
            None => self.is_unpriced |= tokens > 0,
        }
    }
}

/// Adds without overflow: servers may report any number.
fn saturate(sum: &mut u64, tokens: u64) {
    *sum = sum.saturating_add(tokens);
}

impl OutputObserver for Log {
    fn output(&self, stream: OutputStream, text: &str) {
        // Under the lock, so that the output comes between the call's entries.
        let state = self.state();
        let Some(call_id) = &state.call_id else { return };
        let piece = OutputPiece { rollout: &self.rollout, call_id, stream, text };
        for sink in self.sinks.iter().filter(|sink| sink.wants_output()) {
            sink.output(&piece);
        }
    }
}

impl Recorder for Log {
    fn sub_call(&self, record: &SubCallRecord<'_>) {
        let usage = record.usage;
        let call_id = self.state().call_id.clone();
        self.add(Event::SubCall(SubCall {
            call_id,
            batch_id: record.batch_id.to_owned(),
            index: record.index,
            step: record.turn,
            request_id: record.request_id.to_owned(),
            model: record.model.to_owned(),
            messages: record.messages.iter().map(|message| Json::clone(message)).collect(),
            reply: record.reply.cloned(),
            finish_reason: record.finish_reason.map(str::to_owned),
            extra: record.extra.cloned(),
            left_out: Vec::new(),
            error: record.error.map(ToString::to_string),
            prompt_tokens: usage.prompt_tokens,
            completion_tokens: usage.completion_tokens,
            cached_tokens: usage.cached_tokens,
            cache_write_tokens: usage.cache_write_tokens,
            reasoning_tokens: usage.reasoning_tokens,
            usage_estimated: usage.is_estimated,
            cost_usd: self.cost(record.model, &usage),
            attempts: record.attempts,
            seconds: record.seconds,
        }));
    }
}
