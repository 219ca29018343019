//! The choice and the order of the rollouts that are shown.

use std::collections::HashMap;

use super::facts;
use super::rollouts::{Rollout, Rollouts};
use crate::arguments::SortKey;

/// Keeps only rollouts without a final answer if `is_failed`, and puts those with most of the `key` first.
pub(super) fn arrange(rollouts: &mut Rollouts, is_failed: bool, key: Option<SortKey>) {
    let of = |rollout: &Rollout| match key {
        Some(SortKey::Cost) => rollout.usage.cost_usd,
        Some(SortKey::Time) => rollout.seconds(),
        Some(SortKey::Tokens) => rollout.usage.all_tokens() as f64,
        Some(SortKey::Turns) => facts::turns(rollout) as f64,
        None => 0.0,
    };
    let mut kept: Vec<_> = std::mem::take(&mut rollouts.list).into_iter().enumerate().collect();
    kept.retain(|(_, rollout)| !is_failed || !facts::has_answer(rollout));
    kept.sort_by(|(_, one), (_, other)| of(other).total_cmp(&of(one)));
    let places: HashMap<usize, usize> =
        kept.iter().enumerate().map(|(place, (before, _))| (*before, place)).collect();
    rollouts.list = kept.into_iter().map(|(_, rollout)| rollout).collect();
    for rollout in &mut rollouts.list {
        rollout.parent = rollout.parent.and_then(|parent| places.get(&parent).copied());
    }
}
