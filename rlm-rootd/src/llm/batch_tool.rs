//! The root tool `llm_batch`.

use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use rlm_core::pickle::Value;
use rlm_core::root_tool::{Call, LLM_BATCH, Reply, ToolResult};
use serde_json::{Value as Json, json};

use super::sub_llm::SubLlm;
use crate::tool::{RootTool, ToolError, ToolFuture};

/// Beginning of the text that stands for a missing answer.
const ERROR: &str = "Error in sub-LLM call: ";

static PARAMETERS: LazyLock<Json> = LazyLock::new(|| {
    // The tool checks the type itself: its error says more, and one bad prompt must not fail the others.
    json!({
        "type": "object",
        "properties": {"prompts": {"description": "The prompts, a list of str."}},
        "required": ["prompts"],
        "additionalProperties": false,
    })
});

/// `llm_batch(prompts: list[str]) -> list[str]`: asks the rollout's sub-LLM each prompt. The answer to a prompt that fails is
/// a text that gives the error.
#[derive(Debug)]
pub struct LlmBatch {
    sub_llm: Arc<SubLlm>,
}

impl LlmBatch {
    /// The tool of a rollout.
    #[must_use]
    pub fn new(sub_llm: Arc<SubLlm>) -> Self {
        Self { sub_llm }
    }

    async fn ask(&self, prompts: Vec<Value>, deadline: Instant) -> Reply {
        let started = Instant::now();
        let mut answers = Vec::with_capacity(prompts.len());
        let mut texts = Vec::with_capacity(prompts.len());
        for (index, prompt) in prompts.into_iter().enumerate() {
            answers.push(match prompt {
                Value::Str(text) => {
                    texts.push((index, text));
                    None
                }
                other => Some(format!("{ERROR}prompt {index} is {}, expected str", other.type_name())),
            });
        }
        let places: Vec<_> = texts.iter().map(|(index, _)| *index).collect();
        let count = answers.len();
        let mut failed = count - places.len();
        let results = self.sub_llm.batch_of(texts, deadline - margin(deadline, started)).await;
        for (place, result) in places.into_iter().zip(results) {
            answers[place] = Some(match result {
                Ok(completion) => completion.text,
                Err(error) => {
                    failed += 1;
                    format!("{ERROR}{error}")
                }
            });
        }
        let answers =
            answers.into_iter().map(|answer| Value::from(answer.expect("each place has been filled")));
        let summary = summary(count, failed, started.elapsed());
        Reply { result: ToolResult::Value(Value::list(answers)), print_lines: vec![summary] }
    }
}

impl RootTool for LlmBatch {
    fn name(&self) -> &str {
        LLM_BATCH
    }

    fn description(&self) -> &str {
        "Asks a smaller model each prompt of a list, several at once, and returns the list of its answers in order."
    }

    fn parameters(&self) -> &Json {
        &PARAMETERS
    }

    fn call(&self, call: Call, deadline: Instant) -> ToolFuture<'_> {
        Box::pin(async move { Ok(self.ask(prompts(call)?, deadline).await) })
    }
}

/// The one argument, by position or by name.
fn prompts(call: Call) -> Result<Vec<Value>, ToolError> {
    let refuse = |why: String| Err(ToolError::Arguments(format!("{LLM_BATCH}: {why}")));
    if let Some((name, _)) = call.kwargs.iter().find(|(name, _)| **name != Value::from("prompts")) {
        return refuse(format!("unknown argument {name:?}: the only one is prompts"));
    }
    let mut given = call.args.into_iter().chain(call.kwargs.get("prompts").cloned());
    let argument = match (given.next(), given.count()) {
        (None, _) => return refuse("prompts is missing, a list of str".to_owned()),
        (Some(argument), 0) => argument,
        (Some(_), more) => {
            return refuse(format!("takes one argument, prompts, a list of str; {} were given", more + 1));
        }
    };
    match argument {
        Value::List(items) | Value::Tuple(items) => Ok(Arc::unwrap_or_clone(items)),
        Value::Str(_) => refuse("prompts must be a list of str, not str: wrap it in a list".to_owned()),
        other => refuse(format!("prompts must be a list of str, not {}", other.type_name())),
    }
}

/// Time kept back for sending the reply: a twentieth of what is left, at most a second.
fn margin(deadline: Instant, now: Instant) -> Duration {
    (deadline.saturating_duration_since(now) / 20).min(Duration::from_secs(1))
}

fn summary(count: usize, failed: usize, time: Duration) -> String {
    let calls = if count == 1 { "call" } else { "calls" };
    let failed = if failed == 0 { String::new() } else { format!(", {failed} failed") };
    format!("{LLM_BATCH}: {count} {calls} in {:.2}s{failed}", time.as_secs_f64())
}
