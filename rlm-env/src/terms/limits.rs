//! The limits of rollouts.

use std::time::Duration;

use rlm_rootd::Budget;

/// Where a rollout ends at the latest.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Turns of the root model; 50 by default. The last one is announced to it.
    pub max_turns: u32,
    /// Time of the whole rollout, from its first turn on; none by default.
    pub timeout: Option<Duration>,
    /// Time of one call of the REPL; 120 s by default. What is left of `timeout` is a limit too.
    pub call_timeout: Duration,
    /// What it may spend, root model and sub-LLMs together; no limit by default. Enough for one last turn is set aside.
    pub budget: Budget,
    /// Tokens that the root model takes, prompt and completion together. None: it is not known, and not warned of.
    pub context_tokens: Option<u64>,
    /// Tokens of one completion of the root model; the model's own limit when None, 4096 where a budget needs a bound.
    pub max_completion_tokens: Option<u64>,
    /// Characters of a call's output that the root model gets; 8192 by default.
    pub max_output_length: usize,
    /// How often a dead worker is replaced; twice by default.
    pub max_restarts: u32,
    /// Bytes of the context; 1 GB by default.
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
