//! The limits of rollouts.

use std::time::Duration;

use rlm_rootd::Budget;

/// The limits at which a rollout ends.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Turns of the root model; 50 by default. The last one is announced to it.
    pub max_turns: u32,
    /// Wall-clock time of the rollout, from its first turn; none by default.
    pub timeout: Option<Duration>,
    /// Time of one call of the REPL; 120 s by default. A call also ends with `timeout`.
    pub call_timeout: Duration,
    /// Spending of root model and sub-LLMs together; no limit by default. Enough for one last turn is reserved.
    pub budget: Budget,
    /// Context window of the root model in tokens, prompt and completion together. None: unknown, so the model is not
    /// warned.
    pub context_tokens: Option<u64>,
    /// Tokens of one completion of the root model. None: the model's own limit, or 4096 where a budget needs a bound.
    pub max_completion_tokens: Option<u64>,
    /// Characters of a call's output that the root model sees; 8192 by default.
    pub max_output_length: usize,
    /// Number of times a dead worker is replaced; 2 by default.
    pub max_restarts: u32,
    /// Size of the context in bytes; 1 GB by default.
    pub max_context_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_turns: 50,
            timeout: None,
            call_timeout: Duration::from_secs(120),
            budget: Budget::default(),
            context_tokens: None,
            max_completion_tokens: None,
            max_output_length: 8192,
            max_restarts: 2,
            max_context_bytes: 1_000_000_000,
        }
    }
}
