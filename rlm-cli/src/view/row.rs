//! A rollout in the page's overview, as JSON.

use std::collections::BTreeMap;

use rlm_core::text::cut;
use serde::Serialize;

use super::facts;
use super::quantity::Usage;
use super::rollouts::{Rollout, Rollouts, Step};
use crate::tokens::TokenParts;

/// Most characters of a question or an answer.
const WORDS: usize = 300;

/// A rollout in the overview.
#[derive(Debug, Serialize)]
pub(super) struct Row<'a> {
    at: usize,
    /// The number of its latest entry.
    stamp: u64,
    id: &'a str,
    /// The rollout that has started this one, the turn and the call.
    parent: Option<usize>,
    turn: Option<u32>,
    call: Option<&'a str>,
    state: &'a str,
    is_answered: bool,
    has_ended: bool,
    turns: usize,
    calls: usize,
    began: f64,
    seconds: f64,
    /// The number of the first rollout with the same question.
    asks: usize,
    question: String,
    answer: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    score: Option<f64>,
    spent: Vec<Spent<'a>>,
}

/// The requests to one model.
#[derive(Debug, Serialize)]
struct Spent<'a> {
    model: &'a str,
    requests: u32,
    tokens: u64,
    #[serde(flatten)]
    parts: TokenParts,
    is_estimated: bool,
    /// None: the price of a part is not known.
    cost: Option<f64>,
}

/// The rows of the rollouts that have changed after an entry.
pub(super) fn rows(rollouts: &Rollouts, since: u64) -> Vec<Row<'_>> {
    let changed = rollouts.list.iter().filter(|rollout| rollout.stamp > since);
    changed.map(|rollout| row(rollout, rollouts)).collect()
}

fn row<'a>(rollout: &'a Rollout, rollouts: &Rollouts) -> Row<'a> {
    let (start, end) = (rollout.start.as_ref(), rollout.end.as_ref());
    Row {
        at: rollout.at,
        stamp: rollout.stamp,
        id: &rollout.id,
        parent: rollout.parent.map(|parent| rollouts.list[parent].at),
        turn: rollout.parent_turn,
        call: rollout.parent_call.as_deref(),
        state: facts::state(rollout),
        is_answered: facts::has_answer(rollout),
        has_ended: end.is_some(),
        turns: facts::turns(rollout),
        calls: rollout.calls().count(),
        began: rollout.began,
        seconds: rollout.seconds(),
        asks: rollout.asks,
        question: start.map(|start| cut(&start.question.head, WORDS)).unwrap_or_default(),
        answer: end.and_then(|end| end.answer.as_ref()).map(|answer| cut(&answer.head, WORDS)),
        score: rollout.score,
        spent: spent(rollout),
    }
}

fn spent(rollout: &Rollout) -> Vec<Spent<'_>> {
    let mut models: BTreeMap<&str, (u32, Usage)> = BTreeMap::new();
    let mut add = |model, requests, usage| {
        let (all, sum) = models.entry(model).or_default();
        *all += requests;
        sum.add(usage);
    };
    for step in rollout.steps() {
        if let Step::Model(call) = step {
            add(&*call.model, 1, call.usage);
        }
    }
    for prompt in rollout.batches().flat_map(|batch| batch.prompts.values()) {
        add(&*prompt.model, prompt.requests, prompt.usage);
    }
    if let Some(start) = rollout.start.as_ref().filter(|_| rollout.cut_off != Usage::default()) {
        add(&start.model, 0, rollout.cut_off);
    }
    let of_model = |(model, (requests, usage)): (_, (_, Usage))| Spent {
        model,
        requests,
        tokens: usage.all_tokens(),
        parts: usage.parts,
        is_estimated: usage.is_estimated,
        cost: usage.cost().map(|_| usage.cost_usd),
    };
    models.into_iter().map(of_model).collect()
}
