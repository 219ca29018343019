//! The root tools `llm_batch` and `llm_query`.

use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use rlm_core::pickle::Value;
use rlm_core::root_tool::{CUT_OFF, Call, LLM_BATCH, LLM_QUERY, PAID_BEFORE, Reply, ToolResult};
use serde_json::{Value as Json, json};

use super::reply_end::ReplyEnd;
use super::sub_llm::{Completion, SubLlm};
use crate::paid::{Paid, Receipt};
use crate::tool::{PaidToolFuture, RootTool, ToolError, ToolFuture, delivered, due};

/// Most answers that are named in the line on a batch.
const MOST_NAMED: usize = 20;

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

static PROMPT: LazyLock<Json> = LazyLock::new(|| {
    json!({
        "type": "object",
        "properties": {"prompt": {"type": "string", "description": "The prompt."}},
        "required": ["prompt"],
        "additionalProperties": false,
    })
});

/// Asks the sub-LLM of a rollout, for [`LlmBatch`] and [`LlmQuery`].
#[derive(Clone, Debug)]
struct Asker {
    sub_llm: Arc<SubLlm>,
    /// Answers that have not reached the code, by their prompts.
    paid: Paid<Completion>,
}

impl Asker {
    /// The answers in the order of the prompts, a line on how the batch went, and the receipt.
    async fn ask(
        &self,
        tool: &str,
        prompts: Vec<Value>,
        deadline: Instant,
    ) -> (Vec<String>, String, Receipt) {
        let started = Instant::now();
        let mut way = self.paid.on_the_way();
        let (mut answers, mut texts, mut before) = (Vec::with_capacity(prompts.len()), Vec::new(), 0);
        let mut cut = Vec::new();
        let mut read = |at: usize, completion: Completion| {
            cut.extend((completion.end != ReplyEnd::Done).then_some(at));
            completion.text
        };
        for (index, prompt) in prompts.into_iter().enumerate() {
            answers.push(match prompt {
                Value::Str(text) => {
                    let kept = way.take(&text).await;
                    before += usize::from(kept.is_some());
                    match kept {
                        Some(completion) => Some(read(index, completion)),
                        None => {
                            texts.push((index, text));
                            None
                        }
                    }
                }
                other => Some(format!("{ERROR}prompt {index} is {}, expected str", other.type_name())),
            });
        }
        let asked = texts.clone();
        let mut failed = answers.iter().flatten().count() - before;
        let count = answers.len();
        let answered = |at: usize, completion: &Completion| way.add(&asked[at].1, completion.clone());
        let results = self.sub_llm.batch_of(texts, due(deadline, started), answered).await;
        for ((place, _), result) in asked.iter().zip(results) {
            answers[*place] = Some(match result {
                Ok(completion) => read(*place, completion),
                Err(error) => {
                    failed += 1;
                    format!("{ERROR}{error}")
                }
            });
        }
        let answers = answers.into_iter().map(|answer| answer.expect("each place has been filled")).collect();
        let summary = summary(tool, [count, failed, before], cut, started.elapsed());
        (answers, summary, way.into_receipt())
    }
}

/// `llm_batch(prompts: list[str]) -> list[str]`: asks the rollout's sub-LLM each prompt. If a prompt fails, its answer is a text
/// that gives the error.
#[derive(Debug)]
pub struct LlmBatch(Asker);

impl LlmBatch {
    /// The tool of a rollout.
    #[must_use]
    pub fn new(sub_llm: Arc<SubLlm>) -> Self {
        Self(Asker { sub_llm, paid: Paid::default() })
    }

    /// The tool for one prompt. Both tools share the answers that were paid for and lost.
    #[must_use]
    pub fn one(&self) -> LlmQuery {
        LlmQuery(self.0.clone())
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
        delivered(self.call_with_receipt(call, deadline))
    }

    fn call_with_receipt(&self, call: Call, deadline: Instant) -> PaidToolFuture<'_> {
        Box::pin(async move {
            let (answers, summary, receipt) = self.0.ask(LLM_BATCH, prompts(call)?, deadline).await;
            let result = ToolResult::Value(Value::list(answers.into_iter().map(Value::from)));
            Ok((Reply { result, print_lines: vec![summary] }, Some(receipt)))
        })
    }
}

/// `llm_query(prompt: str) -> str`: [`LlmBatch`] for one prompt.
#[derive(Debug)]
pub struct LlmQuery(Asker);

impl RootTool for LlmQuery {
    fn name(&self) -> &str {
        LLM_QUERY
    }

    fn description(&self) -> &str {
        "Asks a smaller model one prompt, and returns its answer."
    }

    fn parameters(&self) -> &Json {
        &PROMPT
    }

    fn call(&self, call: Call, deadline: Instant) -> ToolFuture<'_> {
        delivered(self.call_with_receipt(call, deadline))
    }

    fn call_with_receipt(&self, call: Call, deadline: Instant) -> PaidToolFuture<'_> {
        Box::pin(async move {
            let prompt = call.argument(0, "prompt").cloned().into_iter().collect();
            let (mut answers, summary, receipt) = self.0.ask(LLM_QUERY, prompt, deadline).await;
            let result = ToolResult::Value(answers.pop().unwrap_or_default().into());
            Ok((Reply { result, print_lines: vec![summary] }, Some(receipt)))
        })
    }
}

/// The prompts: the one argument, by position or by name.
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

/// The line on a batch. Answers that are cut off are named by their places in it.
fn summary(tool: &str, [count, failed, before]: [usize; 3], mut cut: Vec<usize>, time: Duration) -> String {
    let calls = if count == 1 { "call" } else { "calls" };
    let failed = if failed == 0 { String::new() } else { format!(", {failed} failed") };
    let before = if before == 0 { String::new() } else { format!(", {before}{PAID_BEFORE}") };
    cut.sort_unstable();
    let named = cut.iter().take(MOST_NAMED).map(usize::to_string).collect::<Vec<_>>().join(", ");
    let cut = match cut.len() {
        0 => String::new(),
        number @ 1..=MOST_NAMED => format!(", {number}{CUT_OFF} (answers[{named}])"),
        number => format!(", {number}{CUT_OFF} (answers[{named}, …])"),
    };
    format!("{tool}: {count} {calls} in {:.2}s{failed}{cut}{before}", time.as_secs_f64())
}
