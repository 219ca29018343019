//! The metrics of a rollout, under the field's usual names.

use std::collections::BTreeMap;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

/// Metrics of a rollout. Times are in seconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Metrics {
    /// Replies of the root model.
    pub root_llm_turns: u64,
    /// Prompt tokens of the root model, summed over all turns.
    pub root_llm_prompt_tokens: u64,
    /// Completion tokens of the root model.
    pub root_llm_completion_tokens: u64,
    /// Prompt tokens of the root model that were read from its server's cache.
    #[serde(default)]
    pub root_llm_cached_tokens: u64,
    /// Prompt tokens of the root model that were written to its server's cache at a price of their own.
    #[serde(default)]
    pub root_llm_cache_write_tokens: u64,
    /// Completion tokens of the root model that are reasoning.
    #[serde(default)]
    pub root_llm_reasoning_tokens: u64,
    /// Time spent waiting for the root model.
    pub root_llm_total_time_seconds: f64,
    /// Number of times turns were summarised.
    pub root_llm_summary_count: u64,
    /// Requests to sub-LLMs that were sent.
    pub sub_llm_call_count: u64,
    /// Requests to sub-LLMs that got no reply.
    pub sub_llm_error_count: u64,
    /// Calls of `llm_batch` with at least one prompt.
    pub sub_llm_batch_count: u64,
    /// Prompts of the largest batch.
    pub sub_llm_max_batch_size: u64,
    /// Prompts per batch.
    pub sub_llm_mean_batch_size: f64,
    /// Prompt tokens of sub-LLMs.
    pub sub_llm_prompt_tokens: u64,
    /// Completion tokens of sub-LLMs.
    pub sub_llm_completion_tokens: u64,
    /// Prompt tokens of sub-LLMs that were read from their server's cache.
    #[serde(default)]
    pub sub_llm_cached_tokens: u64,
    /// Prompt tokens of sub-LLMs that were written to their server's cache at a price of their own.
    #[serde(default)]
    pub sub_llm_cache_write_tokens: u64,
    /// Completion tokens of sub-LLMs that are reasoning.
    #[serde(default)]
    pub sub_llm_reasoning_tokens: u64,
    /// Summed time of requests to sub-LLMs.
    pub sub_llm_total_time_seconds: f64,
    /// Calls of the REPL.
    pub repl_call_count: u64,
    /// Calls of the REPL with an outcome other than `ok`.
    pub repl_error_count: u64,
    /// Calls of the REPL that were stopped at their time limit.
    pub repl_timeout_count: u64,
    /// Number of times the session's state was lost.
    pub repl_reset_count: u64,
    /// Time that code ran.
    pub repl_total_time_seconds: f64,
    /// Mean time that code ran per call.
    pub repl_mean_time_seconds: f64,
    /// Calls of root tools from code, `llm_batch` and `budget` included.
    pub root_tool_call_count: u64,
    /// Calls of root tools that failed.
    pub root_tool_error_count: u64,
    /// Calls of root tools, by tool.
    pub root_tool_calls: BTreeMap<String, u64>,
    /// Calls of standard tools by the root model.
    pub standard_tool_call_count: u64,
    /// Malformed calls of the root model.
    pub malformed_call_count: u64,
    /// Wall-clock time of the rollout.
    pub total_time_seconds: f64,
    /// The rollouts below this one, which code has started, by their depth. The fields above are for this rollout alone.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "by_depth")]
    pub depths: BTreeMap<u32, DepthMetrics>,
    /// Cost of all models in USD, including the rollouts below; None if a model without a known price was called.
    pub cost_usd: Option<f64>,
    /// True if some token counts are estimates.
    pub usage_estimated: bool,
}

/// Reads keys that are numbers from their texts. In a flattened or tagged value, serde does not do that itself.
fn by_depth<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<u32, DepthMetrics>, D::Error> {
    BTreeMap::<String, DepthMetrics>::deserialize(deserializer)?
        .into_iter()
        .map(|(depth, metrics)| Ok((depth.parse().map_err(D::Error::custom)?, metrics)))
        .collect()
}

/// Sums over the rollouts of one depth below a rollout.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct DepthMetrics {
    /// Rollouts that were started.
    pub rollouts: u64,
    /// Rollouts that gave a final answer.
    pub answered: u64,
    /// Replies of the models that lead these rollouts.
    pub turns: u64,
    /// Requests to sub-LLMs that were sent.
    pub sub_llm_calls: u64,
    /// Prompt tokens of all models of these rollouts.
    pub prompt_tokens: u64,
    /// Completion tokens of all models of these rollouts.
    pub completion_tokens: u64,
    /// Cost in USD; None if a model without a known price was called.
    pub cost_usd: Option<f64>,
}

impl Default for DepthMetrics {
    fn default() -> Self {
        Self {
            rollouts: 0,
            answered: 0,
            turns: 0,
            sub_llm_calls: 0,
            prompt_tokens: 0,
            completion_tokens: 0,
            cost_usd: Some(0.0),
        }
    }
}
