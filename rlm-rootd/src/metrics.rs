//! Counters of the whole endpoint, in Prometheus' text format. No label takes a value from a request.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::Serialize;

use crate::ledger::Prices;
use crate::llm::{Recorder, SubCallRecord};

/// Upper bounds of the histograms' buckets, in seconds.
const BUCKETS: [f64; 9] = [0.001, 0.005, 0.025, 0.1, 0.5, 2.5, 10.0, 60.0, 300.0];

/// A route in metrics and logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Route {
    Tools,
    Chat,
    Rollout,
    Health,
    Metrics,
    Unknown,
}

impl Route {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::Chat => "chat",
            Self::Rollout => "rollout",
            Self::Health => "healthz",
            Self::Metrics => "metrics",
            Self::Unknown => "unknown",
        }
    }
}

/// The outcome of a tool call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Ok,
    Arguments,
    Failed,
    TimedOut,
    Cancelled,
}

impl Outcome {
    const ALL: [(Self, &'static str); 5] = [
        (Self::Ok, "ok"),
        (Self::Arguments, "arguments"),
        (Self::Failed, "failed"),
        (Self::TimedOut, "timed_out"),
        (Self::Cancelled, "cancelled"),
    ];
}

/// Tool calls by outcome.
#[derive(Debug, Default)]
pub(crate) struct CallCounters([AtomicU64; Outcome::ALL.len()]);

impl CallCounters {
    pub(crate) fn add(&self, outcome: Outcome) {
        self.0[outcome as usize].fetch_add(1, Relaxed);
    }

    pub(crate) fn counts(&self) -> CallCounts {
        let count = |outcome: Outcome| self.0[outcome as usize].load(Relaxed);
        CallCounts {
            ok: count(Outcome::Ok),
            arguments: count(Outcome::Arguments),
            failed: count(Outcome::Failed),
            timed_out: count(Outcome::TimedOut),
            cancelled: count(Outcome::Cancelled),
        }
    }
}

/// Calls of a tool by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct CallCounts {
    /// Ended with a result.
    pub ok: u64,
    /// Refused for their arguments.
    pub arguments: u64,
    /// Failed with an error of the tool.
    pub failed: u64,
    /// Stopped at the time limit.
    pub timed_out: u64,
    /// Cancelled: the caller went away, or the rollout ended.
    pub cancelled: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Histogram {
    buckets: [AtomicU64; BUCKETS.len()],
    micros: AtomicU64,
    count: AtomicU64,
}

impl Histogram {
    pub(crate) fn add(&self, took: Duration) {
        let seconds = took.as_secs_f64();
        if let Some(place) = BUCKETS.iter().position(|bound| seconds <= *bound) {
            self.buckets[place].fetch_add(1, Relaxed);
        }
        add(&self.micros, u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
        self.count.fetch_add(1, Relaxed);
    }

    fn write(&self, out: &mut Text, name: &str, help: &str) {
        out.head(name, "histogram", help);
        let mut sum = 0;
        for (bound, bucket) in BUCKETS.iter().zip(&self.buckets) {
            sum += bucket.load(Relaxed);
            out.line(format_args!("{name}_bucket{{le=\"{bound}\"}} {sum}"));
        }
        let count = self.count.load(Relaxed);
        out.line(format_args!("{name}_bucket{{le=\"+Inf\"}} {count}"));
        out.line(format_args!(
            "{name}_sum {}",
            Duration::from_micros(self.micros.load(Relaxed)).as_secs_f64()
        ));
        out.line(format_args!("{name}_count {count}"));
    }
}

/// Adds to a counter, which saturates instead of wrapping.
fn add(counter: &AtomicU64, more: u64) {
    counter.update(Relaxed, Relaxed, |count| count.saturating_add(more));
}

/// The counters.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    requests: Mutex<BTreeMap<(Route, u16), u64>>,
    request_seconds: Histogram,
    calls: CallCounters,
    call_seconds: Histogram,
    sub_calls: SubCalls,
}

/// Requests to models.
#[derive(Debug, Default)]
pub(crate) struct SubCalls {
    answered: AtomicU64,
    failed: AtomicU64,
    attempts: AtomicU64,
    prompt_tokens: AtomicU64,
    completion_tokens: AtomicU64,
    /// Cost in 10⁻¹² USD: prices in USD per million tokens give whole numbers.
    cost: AtomicU64,
    seconds: Histogram,
}

/// Counts the requests of a rollout to models, and hands their records on.
#[derive(Debug)]
pub(crate) struct MetricsRecorder {
    metrics: Arc<Metrics>,
    prices: Prices,
    next: Option<Arc<dyn Recorder>>,
}

impl MetricsRecorder {
    pub(crate) fn new(metrics: Arc<Metrics>, prices: Prices, next: Option<Arc<dyn Recorder>>) -> Self {
        Self { metrics, prices, next }
    }
}

impl Recorder for MetricsRecorder {
    fn sub_call(&self, record: &SubCallRecord<'_>) {
        let SubCalls { answered, failed, attempts, prompt_tokens, completion_tokens, cost, seconds } =
            &self.metrics.sub_calls;
        let ended = if record.error.is_none() { answered } else { failed };
        ended.fetch_add(1, Relaxed);
        attempts.fetch_add(record.attempts.into(), Relaxed);
        let usage = &record.usage;
        add(prompt_tokens, usage.prompt_tokens);
        add(completion_tokens, usage.completion_tokens);
        if let Some(price) = self.prices.get(record.model) {
            let of = |tokens: u64, price: f64| tokens as f64 * price * 1e6;
            let total = of(usage.prompt_tokens, price.prompt) + of(usage.completion_tokens, price.completion);
            add(cost, total as u64);
        }
        seconds.add(Duration::try_from_secs_f64(record.seconds).unwrap_or_default());
        if let Some(next) = &self.next {
            next.sub_call(record);
        }
    }
}

impl Metrics {
    pub(crate) fn request(&self, route: Route, status: u16, took: Duration) {
        let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        *requests.entry((route, status)).or_default() += 1;
        drop(requests);
        self.request_seconds.add(took);
    }

    pub(crate) fn call(&self, outcome: Outcome, took: Duration) {
        self.calls.add(outcome);
        self.call_seconds.add(took);
    }

    /// The metrics as text.
    pub(crate) fn text(&self, rollouts: usize, connections: usize) -> String {
        let mut out = Text(String::new());
        out.head(
            "rlm_requests_total",
            "counter",
            "Requests by route and status; 499 is a caller that went away.",
        );
        let requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for ((route, status), count) in requests {
            let route = route.name();
            out.line(format_args!("rlm_requests_total{{route=\"{route}\",status=\"{status}\"}} {count}"));
        }
        self.request_seconds.write(
            &mut out,
            "rlm_request_seconds",
            "Time from a request's head to its response's.",
        );
        out.head("rlm_tool_calls_total", "counter", "Calls of root tools by how they ended.");
        for (outcome, name) in Outcome::ALL {
            let count = self.calls.0[outcome as usize].load(Relaxed);
            out.line(format_args!("rlm_tool_calls_total{{outcome=\"{name}\"}} {count}"));
        }
        self.call_seconds.write(&mut out, "rlm_tool_call_seconds", "Time that root tools took.");
        self.sub_calls.write(&mut out);
        out.head("rlm_rollouts", "gauge", "Rollouts that are registered.");
        out.line(format_args!("rlm_rollouts {rollouts}"));
        out.head("rlm_connections", "gauge", "Open connections.");
        out.line(format_args!("rlm_connections {connections}"));
        out.0
    }
}

impl SubCalls {
    fn write(&self, out: &mut Text) {
        let load = |counter: &AtomicU64| counter.load(Relaxed);
        out.head(
            "rlm_sub_llm_calls_total",
            "counter",
            "Requests to models by how they ended, retries not counted.",
        );
        out.line(format_args!("rlm_sub_llm_calls_total{{outcome=\"ok\"}} {}", load(&self.answered)));
        out.line(format_args!("rlm_sub_llm_calls_total{{outcome=\"failed\"}} {}", load(&self.failed)));
        out.head("rlm_sub_llm_attempts_total", "counter", "Requests to models, each retry counted.");
        out.line(format_args!("rlm_sub_llm_attempts_total {}", load(&self.attempts)));
        out.head("rlm_sub_llm_tokens_total", "counter", "Tokens that were paid for.");
        let (prompt, completion) = (load(&self.prompt_tokens), load(&self.completion_tokens));
        out.line(format_args!("rlm_sub_llm_tokens_total{{kind=\"prompt\"}} {prompt}"));
        out.line(format_args!("rlm_sub_llm_tokens_total{{kind=\"completion\"}} {completion}"));
        out.head("rlm_sub_llm_cost_usd_total", "counter", "Cost in USD of models whose price is known.");
        out.line(format_args!("rlm_sub_llm_cost_usd_total {}", load(&self.cost) as f64 / 1e12));
        self.seconds.write(out, "rlm_sub_llm_seconds", "Time that requests to models took.");
    }
}

struct Text(String);

impl Text {
    fn head(&mut self, name: &str, kind: &str, help: &str) {
        self.line(format_args!("# HELP {name} {help}"));
        self.line(format_args!("# TYPE {name} {kind}"));
    }

    fn line(&mut self, line: fmt::Arguments<'_>) {
        writeln!(self.0, "{line}").expect("a String takes everything");
    }
}
