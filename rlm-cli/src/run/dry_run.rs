//! `rlm run --dry-run`: what would run, and what it may cost.

use std::process::ExitCode;

use rlm_core::text::counted;
use rlm_env::rollout::Metrics;
use rlm_rootd::Prices;

use crate::batch::{Plan, percentiles};
use crate::rollouts::{Setup, money};
use crate::runs::Runs;
use crate::standard_output::print;
use crate::text::one_line;

/// Recorded rollouts that an estimate is made from, the latest ones.
const MOST_RECORDED: usize = 50;

/// Prints the plan.
pub(super) fn show(
    plan: &Plan,
    setup: &Setup,
    runs: Option<&Runs>,
    max_cost: Option<f64>,
) -> anyhow::Result<ExitCode> {
    let (host, rollout) = (&setup.host, &setup.rollout);
    let model = host.root_model.name();
    let models = match rollout.sub_llm.model.as_deref().filter(|sub_model| *sub_model != model) {
        Some(sub_model) => format!("{}, {}", priced(model, &host.prices), priced(sub_model, &host.prices)),
        None => priced(model, &host.prices),
    };
    let budget = rollout.limits.budget.cost_usd.map(|usd| format!(", {} each", money(usd)));
    let in_all = max_cost.map(|usd| format!(", {} in all", money(usd)));
    let turns = counted(rollout.limits.max_turns.into(), "turn");
    let limits = format!("at most {turns}{}{}", budget.unwrap_or_default(), in_all.unwrap_or_default());
    let recorded = runs.map_or_else(Vec::new, |runs| runs.rollouts_of(model, MOST_RECORDED));
    let estimate = estimate(plan.rollouts(), &recorded).unwrap_or_else(|| {
        format!("none: no rollout of {model} with a known cost is recorded; run one first")
    });
    let lines =
        [("rollouts", plan.to_string()), ("models", models), ("limits", limits), ("estimate", estimate)];
    let lines = lines.map(|(name, words)| format!("{name:<10}{}\n", one_line(&words)));
    print(lines.concat()).map(|()| ExitCode::SUCCESS)
}

fn priced(model: &str, prices: &Prices) -> String {
    match prices.get(model) {
        Some(price) => {
            format!(
                "{model} at ${} and ${} per million prompt and completion tokens",
                price.prompt, price.completion
            )
        }
        None => format!("{model}, without a price"),
    }
}

/// The cost of so many rollouts, if they are like the recorded ones. None if the cost of none is known.
fn estimate(rollouts: usize, recorded: &[Metrics]) -> Option<String> {
    let costs: Vec<f64> =
        recorded.iter().filter_map(|metrics| metrics.cost_usd).filter(|cost| *cost > 0.0).collect();
    if costs.is_empty() {
        return None;
    }
    let number = counted(costs.len() as u64, "recorded rollout");
    let [median, _, most] = percentiles(costs).map(|cost| money(cost * rollouts as f64));
    Some(format!("{median}, at most {most}, if they are like {number} of this model"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_estimate_is_made_from_what_is_known() {
        let cost = |cost_usd| {
            let mut metrics = Metrics::default();
            metrics.cost_usd = cost_usd;
            metrics
        };
        assert_eq!(estimate(10, &[]), None);
        assert_eq!(estimate(10, &[cost(None), cost(Some(0.0))]), None);
        let recorded: Vec<_> = (1..=10).map(|number| cost(Some(0.01 * f64::from(number)))).collect();
        assert_eq!(
            estimate(10, &recorded).unwrap(),
            "$0.5000, at most $1.00, if they are like 10 recorded rollouts of this model"
        );
    }
}
