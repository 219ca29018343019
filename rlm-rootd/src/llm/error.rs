//! Errors of sub-LLMs: of their configuration, and of their calls.

use std::time::Duration;

use crate::ledger::{Exhausted, Unpriced};

/// A call of a sub-LLM that failed. The text is for the model that made it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SubCallError {
    /// The rollout's budget does not allow it.
    #[error(transparent)]
    Exhausted(#[from] Exhausted),
    /// The deadline passed before the request was sent.
    #[error("the time was up before the request was sent")]
    NotSent,
    /// No answer came in time.
    #[error("no answer within {:.1} s{}", .after.as_secs_f64(), .last.as_ref().map_or_else(String::new, |last| format!(", and before that: {last}")))]
    TimedOut {
        /// Time waited: for one attempt, or where the deadline passed, for all attempts together.
        after: Duration,
        /// The error of an earlier attempt.
        last: Option<Box<Self>>,
    },
    /// The server answered with an error status.
    #[error("the model's server answered {status}: {message}")]
    Status {
        /// The status.
        status: u16,
        /// The server's text, shortened.
        message: String,
    },
    /// The server asks to wait beyond the deadline.
    #[error("the model's server answered {status} and asks to wait {:.0} s, but only {:.0} s are left: {message}", .wait.as_secs_f64(), .left.as_secs_f64())]
    MustWait {
        /// The status.
        status: u16,
        /// The server's text, shortened.
        message: String,
        /// The wait that the server asks for.
        wait: Duration,
        /// Time left until the deadline.
        left: Duration,
    },
    /// No connection could be made.
    #[error("the model's server cannot be reached: {0}")]
    Unreachable(String),
    /// The connection ended without a whole answer.
    #[error("the connection to the model's server broke: {0}")]
    Broken(String),
    /// The reply does not follow the interface.
    #[error("the model's reply is malformed: {0}")]
    Malformed(String),
    /// The reply has no text.
    #[error("the model returned no text")]
    NoText,
    /// The reply has no text because its limit of tokens was spent, by reasoning for example.
    #[error("the model returned no text: it reached the limit of its tokens")]
    NoTextWithinTokens,
    /// The same, of a limit that we have chosen for a budget.
    #[error(
        "the model returned no text: it reached the limit of {tokens} tokens, chosen since there is a budget: `max_tokens` in `sub_sampling` sets another"
    )]
    NoTextWithinBound {
        /// The limit.
        tokens: u64,
    },
    /// The context window has no room for what the model thinks.
    #[error(
        "the context window has room for {room} tokens of a completion, but `sampling` gives the model {thinking} to think with"
    )]
    NoRoomToThink {
        /// Tokens of the longest completion.
        room: u64,
        /// Tokens that the model may think with.
        thinking: u64,
    },
    /// The model refused.
    #[error("the model refused: {0}")]
    Refused(String),
    /// The caller went away. Only records hold this error.
    #[error("cancelled")]
    Cancelled,
}

/// An invalid configuration of a sub-LLM.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SubLlmError {
    /// The budget is in USD, and the model has no price.
    #[error(transparent)]
    Unpriced(#[from] Unpriced),
    /// A parallelism of 0.
    #[error("the parallelism of the sub-LLM is 0, expected 1 or more")]
    NoParallelism,
    /// A field that each request sets itself, or an invalid bound of a completion.
    #[error("sampling: {0}")]
    Sampling(String),
    /// The parameters of a tool are not a JSON schema.
    #[error("the parameters of the tool {tool} are not a JSON schema: {reason}")]
    Schema {
        /// The tool.
        tool: String,
        /// The fault in the schema.
        reason: String,
    },
}
