//! Quantities as people read them.

/// Tokens and cost of one or more requests to models.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Usage {
    pub(super) prompt_tokens: u64,
    pub(super) completion_tokens: u64,
    pub(super) is_estimated: bool,
    /// What those with a price cost.
    cost_usd: f64,
    /// Whether one has none.
    is_unpriced: bool,
}

impl Usage {
    pub(super) fn new(
        prompt_tokens: u64,
        completion_tokens: u64,
        is_estimated: bool,
        cost: Option<f64>,
    ) -> Self {
        let is_unpriced = cost.is_none() && (prompt_tokens > 0 || completion_tokens > 0);
        Self {
            prompt_tokens,
            completion_tokens,
            is_estimated,
            cost_usd: cost.unwrap_or_default(),
            is_unpriced,
        }
    }

    pub(super) fn add(&mut self, other: Self) {
        self.prompt_tokens = self.prompt_tokens.saturating_add(other.prompt_tokens);
        self.completion_tokens = self.completion_tokens.saturating_add(other.completion_tokens);
        self.is_estimated |= other.is_estimated;
        self.cost_usd += other.cost_usd;
        self.is_unpriced |= other.is_unpriced;
    }

    /// `812 + 41 tokens`: of the prompt and of the completion. With `~` where they are estimated.
    pub(super) fn tokens(&self) -> String {
        let sign = if self.is_estimated { "~" } else { "" };
        format!("{sign}{} + {} tokens", count(self.prompt_tokens), count(self.completion_tokens))
    }

    /// `0.0012 USD`; nothing where it is not known.
    pub(super) fn cost(&self) -> Option<String> {
        (!self.is_unpriced).then(|| match self.cost_usd {
            0.0 => "0 USD".to_owned(),
            cost if cost < 0.0001 => "< 0.0001 USD".to_owned(),
            cost => format!("{cost:.4} USD"),
        })
    }
}

/// `1,234`.
pub(super) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3 + 1);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `1 prompt`, `3 prompts`.
pub(super) fn counted(number: u64, noun: &str) -> String {
    format!("{} {noun}{}", count(number), if number == 1 { "" } else { "s" })
}

/// `3 ms`, `1.2 s`, `4 min 10 s`.
pub(super) fn seconds(seconds: f64) -> String {
    if seconds < 0.0995 {
        format!("{:.0} ms", seconds.max(0.0) * 1000.0)
    } else if seconds < 119.95 {
        format!("{seconds:.1} s")
    } else {
        let whole = seconds.round() as u64;
        format!("{} min {} s", count(whole / 60), whole % 60)
    }
}

/// `12 B`, `4.5 kB`.
pub(super) fn bytes(bytes: u64) -> String {
    let mut amount = bytes as f64;
    for unit in ["B", "kB", "MB"] {
        if amount < 999.5 {
            return if unit == "B" { format!("{bytes} B") } else { format!("{amount:.1} {unit}") };
        }
        amount /= 1000.0;
    }
    format!("{amount:.1} GB")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_read_well() {
        let times = [-1.0, 0.0, 0.0034, 0.5, 9.96, 119.0, 250.0, 7261.0].map(seconds);
        assert_eq!(
            times,
            ["0 ms", "0 ms", "3 ms", "0.5 s", "10.0 s", "119.0 s", "4 min 10 s", "121 min 1 s"]
        );
        let sizes = [0, 999, 1500, 1_234_567, 7_000_000_000].map(bytes);
        assert_eq!(sizes, ["0 B", "999 B", "1.5 kB", "1.2 MB", "7.0 GB"]);
        assert_eq!([counted(1, "prompt"), counted(1200, "prompt")], ["1 prompt", "1,200 prompts"]);
    }

    #[test]
    fn a_sum_with_an_unknown_price_has_none() {
        let mut usage = Usage::new(1000, 5, false, Some(0.00123));
        assert_eq!(
            (usage.tokens().as_str(), usage.cost().as_deref()),
            ("1,000 + 5 tokens", Some("0.0012 USD"))
        );
        usage.add(Usage::new(0, 0, false, None));
        assert_eq!(usage.cost().as_deref(), Some("0.0012 USD"), "nothing was spent on it");
        usage.add(Usage::new(1, 1, true, None));
        assert_eq!((usage.tokens().as_str(), usage.cost()), ("~1,001 + 6 tokens", None));
        assert_eq!(Usage::new(1, 1, false, Some(0.00001)).cost().as_deref(), Some("< 0.0001 USD"));
    }
}
