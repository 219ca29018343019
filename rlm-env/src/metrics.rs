//! What is counted of a rollout, under the names that the field uses.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Counts of a rollout. Times are in seconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Metrics {
    /// Replies of the root model.
    pub root_llm_turns: u64,
    /// Tokens of its prompts, of all turns together.
    pub root_llm_prompt_tokens: u64,
    /// Tokens of its completions.
    pub root_llm_completion_tokens: u64,
    /// Waiting for it.
    pub root_llm_total_time_seconds: f64,
    /// How often turns were summarised.
    pub root_llm_summary_count: u64,
    /// Requests to sub-LLMs. What was never sent is none.
    pub sub_llm_call_count: u64,
    /// Those without a reply.
    pub sub_llm_error_count: u64,
    /// Calls of `llm_batch` that asked something.
    pub sub_llm_batch_count: u64,
    /// Prompts of the largest.
    pub sub_llm_max_batch_size: u64,
    /// Prompts per batch.
    pub sub_llm_mean_batch_size: f64,
    /// Tokens of the sub-LLMs' prompts.
    pub sub_llm_prompt_tokens: u64,
    /// Tokens of their completions.
    pub sub_llm_completion_tokens: u64,
    /// Sum over their requests.
    pub sub_llm_total_time_seconds: f64,
    /// Calls of the REPL.
    pub repl_call_count: u64,
    /// Those that did not end with `ok`.
    pub repl_error_count: u64,
    /// Those that were stopped at their time limit.
    pub repl_timeout_count: u64,
    /// How often the session's state was lost.
    pub repl_reset_count: u64,
    /// Running code.
    pub repl_total_time_seconds: f64,
    /// The same per call.
    pub repl_mean_time_seconds: f64,
    /// Calls of root tools from code, `llm_batch` and `budget` included.
    pub root_tool_call_count: u64,
    /// Those that failed.
    pub root_tool_error_count: u64,
    /// The calls by tool.
    pub root_tool_calls: BTreeMap<String, u64>,
    /// Calls of standard tools by the root model.
    pub standard_tool_call_count: u64,
    /// Calls of the root model's that could not be read.
    pub malformed_call_count: u64,
    /// From start to end.
    pub total_time_seconds: f64,
    /// Cost of all models in USD; none where a model without a known price was called.
    pub cost_usd: Option<f64>,
    /// Whether some tokens are estimated.
    pub usage_estimated: bool,
}
