//! Requests that exceed a budget, and the text of the error.

use std::fmt;

/// A request that a budget does not allow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Exhausted {
    /// Less is left than the request may need.
    Short {
        /// The resource that is short.
        resource: Resource,
        /// Amount that the request may need.
        needed: u64,
        /// Amount left.
        left: u64,
        /// Amount that running requests hold, and may give back in part.
        reserved: u64,
        /// The budget.
        limit: u64,
        /// The owner of the budget.
        whose: Whose,
    },
    /// The budget is in USD, and the model has no price.
    Unpriced(Unpriced),
    /// The ledger in another program has no room for it.
    Refused {
        /// The words of the other program.
        reason: String,
    },
}

/// The owner of a budget that does not allow a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    /// The budget of the rollout itself.
    Own,
    /// The budget of a rollout above it, whose code has started it.
    Parent,
    /// The budget of several rollouts together.
    All,
}

/// A resource that a budget limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resource {
    /// Requests.
    Calls,
    /// Tokens of prompts and completions.
    Tokens,
    /// Tokens of completions.
    CompletionTokens,
    /// Cost, in units of 10⁻¹² USD.
    Cost,
}

/// A budget in USD, and a model without a price.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the budget is in USD and the model {model:?} has no price: add it to the file of prices")]
pub struct Unpriced {
    /// The model.
    pub model: String,
}

impl std::error::Error for Exhausted {}

impl fmt::Display for Exhausted {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (resource, needed, left, reserved, limit, whose) = match self {
            Self::Unpriced(unpriced) => return unpriced.fmt(formatter),
            Self::Refused { reason } => return formatter.write_str(reason),
            Self::Short { resource, needed, left, reserved, limit, whose } => {
                (*resource, *needed, *left, *reserved, *limit, *whose)
            }
        };
        formatter.write_str(match whose {
            Whose::All => "the budget of all rollouts together is exhausted: ",
            Whose::Parent => "the budget of the rollouts above is exhausted: ",
            Whose::Own => "budget exhausted: ",
        })?;
        let amount = |amount| if resource == Resource::Cost { usd(amount) } else { amount.to_string() };
        let [needed, left, held, limit] = [needed, left, reserved, limit].map(amount);
        match resource {
            Resource::Calls => write!(formatter, "0 of {limit} calls are left")?,
            Resource::Tokens => {
                write!(formatter, "the call may need {needed} tokens, {left} of {limit} are left")?;
            }
            Resource::CompletionTokens => {
                write!(
                    formatter,
                    "the call may need {needed} completion tokens, {left} of {limit} are left"
                )?;
            }
            Resource::Cost => {
                write!(formatter, "the call may cost {needed} USD, {left} of {limit} USD are left")?;
            }
        }
        if reserved > 0 { write!(formatter, ", running calls hold {held}") } else { Ok(()) }
    }
}

impl Exhausted {
    /// True if it is the budget of several rollouts together that does not allow it.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        matches!(self, Self::Short { whose: Whose::All, .. } | Self::Refused { .. })
    }

    /// This error, as that of another owner's budget.
    pub(super) fn of(self, outer: Whose) -> Self {
        match self {
            Self::Short { resource, needed, left, reserved, limit, whose: Whose::Own } => {
                Self::Short { resource, needed, left, reserved, limit, whose: outer }
            }
            other => other,
        }
    }

    /// True if the request may still fit when running requests have been settled.
    pub(super) fn may_pass(&self) -> bool {
        match self {
            Self::Short { needed, left, reserved, .. } => *needed <= left.saturating_add(*reserved),
            Self::Unpriced(_) | Self::Refused { .. } => false,
        }
    }
}

/// A cost as USD, with at most nine digits behind the point.
fn usd(cost: u64) -> String {
    let text = format!("{:.9}", cost as f64 / 1e12);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}
