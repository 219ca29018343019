//! Quantities, formatted for models.

use std::time::Duration;

use rlm_core::text::grouped;
use rlm_rootd::Budget;

/// A time limit: `0.5 s`, `120 s`, `15 min`.
pub(super) fn duration(time: Duration) -> String {
    let seconds = time.as_secs();
    if seconds >= 300 && seconds.is_multiple_of(60) && time.subsec_nanos() == 0 {
        format!("{} min", grouped(seconds / 60))
    } else if seconds >= 10 {
        format!("{} s", grouped(seconds))
    } else {
        format!("{} s", (time.as_secs_f64() * 1000.0).round() / 1000.0)
    }
}

/// The limits of a budget: `200,000 tokens, 0.50 USD`; empty if it has none.
pub(super) fn budget(budget: &Budget) -> String {
    let parts = [
        budget.calls.map(|calls| format!("{} requests", grouped(calls))),
        budget.tokens.map(|tokens| format!("{} tokens", grouped(tokens))),
        budget.completion_tokens.map(|tokens| format!("{} completion tokens", grouped(tokens))),
        budget.cost_usd.map(|cost| format!("{} USD", usd(cost))),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// An amount in USD with two to four decimals.
fn usd(amount: f64) -> String {
    let text = format!("{amount:.4}");
    let short = text.trim_end_matches('0');
    let digits = short.len() - short.find('.').map_or(short.len(), |point| point + 1);
    format!("{short}{}", &"00"[digits.min(2)..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_read_well() {
        let times = [0.05, 1.5, 10.0, 120.0, 299.9, 300.0, 310.0, 5400.0, 1e6];
        let shown: Vec<_> = times.into_iter().map(|time| duration(Duration::from_secs_f64(time))).collect();
        assert_eq!(
            shown,
            ["0.05 s", "1.5 s", "10 s", "120 s", "299 s", "5 min", "310 s", "90 min", "1,000,000 s"]
        );
        let amounts: Vec<_> = [0.0, 0.5, 0.125, 0.00004, 12.0].into_iter().map(usd).collect();
        assert_eq!(amounts, ["0.00", "0.50", "0.125", "0.00", "12.00"]);
    }

    #[test]
    fn a_budget_names_what_it_limits() {
        assert_eq!(budget(&Budget::default()), "");
        let all = Budget {
            calls: Some(1),
            tokens: Some(200_000),
            completion_tokens: Some(5000),
            cost_usd: Some(1.5),
        };
        assert_eq!(budget(&all), "1 requests, 200,000 tokens, 5,000 completion tokens, 1.50 USD");
    }
}
