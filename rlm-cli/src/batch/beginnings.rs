//! Beginnings that the attempts at a question share.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rlm_core::text::{counted, grouped};
use rlm_env::rollout::{Metrics, Prefix};
use rlm_env::{Control, Host, RolloutConfig, RolloutResult};
use tokio::sync::OnceCell;

use super::attempts::Attempt;
use crate::runs::tokens;

/// The end of a beginning, and what others go on from, unless it has ended by itself.
type Beginning = (RolloutResult, Option<Arc<Prefix>>);

/// The beginnings of a batch.
#[derive(Debug)]
pub(super) struct Beginnings {
    /// The turns of each.
    turns: u32,
    attempts: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Beginnings by the id of the question, with the number of attempts that have ended. Each goes with the last attempt.
    begun: HashMap<String, (Arc<OnceCell<Beginning>>, usize)>,
    /// The metrics of each beginning.
    metrics: Vec<Metrics>,
}

impl Beginnings {
    pub(super) fn new(turns: u32, attempts: usize) -> Self {
        Self { turns, attempts, state: Mutex::default() }
    }

    /// Runs an attempt, which goes on from the beginning of its question. The first one runs that. A beginning that has ended by
    /// itself is the end of each attempt.
    pub(super) async fn run(
        &self,
        host: &Host,
        attempt: &Attempt,
        config: RolloutConfig,
        control: &Control,
    ) -> RolloutResult {
        let question = &attempt.question.id;
        let beginning = self.state().begun.entry(question.clone()).or_default().0.clone();
        let begin = async || {
            let config = RolloutConfig { id: format!("{question}-beginning"), ..config.clone() };
            let begun = host.run_prefix(config, self.turns, control).await;
            self.state().metrics.push(begun.0.metrics.clone());
            begun
        };
        let result = match beginning.get_or_init(begin).await {
            (_, Some(prefix)) => {
                let config = RolloutConfig { prefix: Some(prefix.clone()), ..config };
                host.run(config, control).await
            }
            (ended, None) => {
                let mut ended = ended.clone();
                (ended.id, ended.metrics) = (config.id, Metrics::default());
                ended
            }
        };
        self.attempt_ended(question);
        result
    }

    fn attempt_ended(&self, question: &str) {
        let mut state = self.state();
        let Some((_, ended)) = state.begun.get_mut(question) else { return };
        *ended += 1;
        if *ended == self.attempts {
            state.begun.remove(question);
        }
    }

    /// The cost of all beginnings, in USD. None: the price of a model is unknown.
    pub(super) fn cost_usd(&self) -> Option<f64> {
        self.state().metrics.iter().map(|metrics| metrics.cost_usd).sum()
    }

    /// A line about the turns that ran once. Attempts that were done before do not count.
    pub(super) fn text(&self, attempts: usize) -> String {
        let state = self.state();
        let begun = state.metrics.len() as u64;
        let turns: u64 = state.metrics.iter().map(|metrics| metrics.root_llm_turns).sum();
        let spent: u64 = state.metrics.iter().map(tokens).sum();
        let saved = spent * (attempts as u64).saturating_sub(begun) / begun.max(1);
        format!(
            "rlm: {} of {} ran once for {}: {} tokens, and {} tokens saved",
            counted(begun, "beginning"),
            counted(turns, "turn"),
            counted(attempts as u64, "attempt"),
            grouped(spent),
            grouped(saved)
        )
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
