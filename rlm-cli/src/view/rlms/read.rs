//! A file of RLMLogger as the entries of a trajectory.

use std::collections::VecDeque;
use std::io::BufRead;

use anyhow::{Context as _, bail};
use chrono::NaiveDateTime;
use rlm_core::jsonl::Lines;
use rlm_env::rollout::Metrics;
use rlm_env::trajectory::{Entry, Line};
use serde::Deserialize;
use serde_json::{Map, Value as Json, json};

/// Longest chain of RLMs that spawn one another.
const MAX_DEPTH: usize = 16;

/// The entries of a file, line by line.
pub(in crate::view) struct Reader<R> {
    lines: Lines<R>,
    metadata: Metadata,
    /// Number of the completion, which becomes a rollout, and of its last iteration.
    completion: u32,
    iteration: u64,
    pending: VecDeque<Entry>,
    is_over: bool,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
enum Record {
    Metadata(Metadata),
    Iteration(Box<Iteration>),
}

#[derive(Clone, Default, Deserialize)]
struct Metadata {
    root_model: Option<String>,
}

#[derive(Deserialize)]
struct Iteration {
    iteration: u64,
    timestamp: Option<String>,
    #[serde(default)]
    prompt: Json,
    #[serde(default)]
    response: String,
    #[serde(default)]
    code_blocks: Vec<CodeBlock>,
    final_answer: Option<Json>,
    iteration_time: Option<f64>,
}

#[derive(Deserialize)]
struct CodeBlock {
    code: String,
    result: BlockResult,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct BlockResult {
    stdout: String,
    stderr: String,
    execution_time: Option<f64>,
    rlm_calls: Vec<SubCall>,
    final_answer: Option<Json>,
}

#[derive(Deserialize)]
struct SubCall {
    root_model: Option<String>,
    #[serde(default)]
    prompt: Json,
    response: Option<String>,
    usage_summary: Option<Usage>,
    execution_time: Option<f64>,
    /// The trajectory of an RLM that was spawned.
    metadata: Option<Trajectory>,
    error: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Usage {
    model_usage_summaries: std::collections::BTreeMap<String, ModelUsage>,
    total_cost: Option<f64>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ModelUsage {
    total_input_tokens: u64,
    total_output_tokens: u64,
    total_cost: Option<f64>,
}

#[derive(Deserialize)]
struct Trajectory {
    #[serde(default)]
    run_metadata: Metadata,
    #[serde(default)]
    iterations: Vec<Iteration>,
}

impl<R: BufRead> Reader<R> {
    pub(in crate::view) fn new(input: R) -> Self {
        Self {
            lines: Lines::new(input),
            metadata: Metadata::default(),
            completion: 0,
            iteration: 0,
            pending: VecDeque::new(),
            is_over: false,
        }
    }

    fn next_line(&mut self) -> anyhow::Result<Option<Line>> {
        loop {
            if let Some(entry) = self.pending.pop_front() {
                return Ok(Some(Line::Entry(Box::new(entry))));
            }
            let line = match self.lines.next_line() {
                Ok(Some(line)) => line,
                Ok(None) => return Ok(None),
                Err(error) => return Err(error).context(format!("cannot read line {}", self.lines.number())),
            };
            match serde_json::from_slice(line.text) {
                Ok(Record::Metadata(metadata)) => self.metadata = metadata,
                Ok(Record::Iteration(iteration)) => {
                    // An RLM that is asked again counts from 1, in the same file.
                    if iteration.iteration <= self.iteration || self.completion == 0 {
                        self.completion += 1;
                    }
                    self.iteration = iteration.iteration;
                    let mut entries = Entries { list: &mut self.pending, depth: 0 };
                    entries.iteration(&self.completion.to_string(), &self.metadata, &iteration)?;
                }
                Err(_) if !line.is_finished => {
                    return Ok(Some(Line::CutOff { line: line.number, bytes: line.text.len() }));
                }
                Err(error) => bail!("line {} is not one of RLMLogger: {error}", line.number),
            }
        }
    }
}

impl<R: BufRead> Iterator for Reader<R> {
    type Item = anyhow::Result<Line>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_over {
            return None;
        }
        let line = self.next_line().transpose();
        self.is_over = !matches!(line, Some(Ok(Line::Entry(_))));
        line
    }
}

/// The entries that a line becomes.
struct Entries<'a> {
    list: &'a mut VecDeque<Entry>,
    depth: usize,
}

impl Entries<'_> {
    /// Adds an entry, in the documented form of a line.
    fn add(&mut self, rollout: &str, time: f64, event: &str, fields: Json) -> anyhow::Result<()> {
        let Json::Object(fields) = fields else { unreachable!("all of them are objects") };
        let mut line = Map::from_iter([
            ("rollout".to_owned(), rollout.into()),
            ("time".to_owned(), time.into()),
            ("event".to_owned(), event.into()),
        ]);
        line.extend(fields);
        self.list.push_back(serde_json::from_value(line.into()).context("a field has an unknown form")?);
        Ok(())
    }

    fn iteration(&mut self, rollout: &str, metadata: &Metadata, iteration: &Iteration) -> anyhow::Result<()> {
        let model = metadata.root_model.as_deref().unwrap_or("unknown");
        let executed: f64 =
            iteration.code_blocks.iter().filter_map(|block| block.result.execution_time).sum();
        let ended = iteration.timestamp.as_deref().map_or(0.0, seconds);
        let began = ended - iteration.iteration_time.unwrap_or(executed).max(executed);
        let turn = iteration.iteration;
        if turn == 1 {
            self.start(rollout, began, model, &iteration.prompt)?;
        }
        let mut time = ended - executed;
        let reply = json!({"role": "assistant", "content": iteration.response});
        self.add(rollout, time, "message", json!({"turn": turn, "kind": "reply", "message": reply}))?;
        for (index, block) in iteration.code_blocks.iter().enumerate() {
            let id = format!("{turn}-{}", index + 1);
            let started = json!({"turn": turn, "call_id": id, "tool": "repl", "code": block.code});
            self.add(rollout, time, "call_started", started)?;
            time += block.result.execution_time.unwrap_or(0.0);
            for (index, call) in block.result.rlm_calls.iter().enumerate() {
                self.sub_call(rollout, time, &id, index, call, model)?;
            }
            self.add(rollout, time, "call_ended", block.ended(turn, &id))?;
        }
        if let Some(answer) = &iteration.final_answer {
            let ended_fields = json!({
                "stop_reason": "answered",
                "answer": text(answer),
                "answer_ready": true,
                "error": null,
                "metrics": Metrics::default(),
            });
            self.add(rollout, ended, "rollout_ended", ended_fields)?;
        }
        Ok(())
    }

    fn start(&mut self, rollout: &str, time: f64, model: &str, prompt: &Json) -> anyhow::Result<()> {
        let messages = prompt.as_array().map_or(&[][..], Vec::as_slice);
        let of_role = |role: &str| messages.iter().find(|message| message["role"] == role);
        let question = of_role("user").map(|message| text(&message["content"])).unwrap_or_default();
        let started = json!({
            "version": 1, "question": question, "language": "python", "model": model, "sub_model": null,
            "root_tools": ["llm_query", "llm_query_batched", "rlm_query", "rlm_query_batched"],
            "tools": ["repl"], "context_files": 0, "context_bytes": 0,
        });
        self.add(rollout, time, "rollout_started", started)?;
        if let Some(system) = of_role("system") {
            self.add(rollout, time, "message", json!({"turn": 0, "kind": "system", "message": system}))?;
        }
        Ok(())
    }

    fn sub_call(
        &mut self,
        rollout: &str,
        time: f64,
        call_id: &str,
        index: usize,
        call: &SubCall,
        root_model: &str,
    ) -> anyhow::Result<()> {
        let no_usage = Usage::default();
        let usage = call.usage_summary.as_ref().unwrap_or(&no_usage);
        let models = usage.model_usage_summaries.values();
        let sum = |tokens: fn(&ModelUsage) -> u64| models.clone().map(tokens).fold(0, u64::saturating_add);
        let costs: Vec<_> = models.clone().filter_map(|usage| usage.total_cost).collect();
        let cost = usage.total_cost.or((!costs.is_empty()).then(|| costs.iter().sum()));
        let content = text(&call.prompt);
        let fields = json!({
            "call_id": call_id, "batch_id": call_id, "index": index, "step": 0, "request_id": "",
            "model": call.root_model.as_deref().unwrap_or(root_model),
            "messages": [{"role": "user", "content": content}],
            "reply": call.response.as_ref().map(|reply| json!({"role": "assistant", "content": reply})),
            "error": call.error,
            "prompt_tokens": sum(|usage| usage.total_input_tokens),
            "completion_tokens": sum(|usage| usage.total_output_tokens),
            "usage_estimated": false, "cost_usd": cost, "attempts": 1,
            "seconds": call.execution_time.unwrap_or(0.0),
        });
        self.add(rollout, time, "sub_call", fields)?;
        let Some(child) = &call.metadata else { return Ok(()) };
        if self.depth == MAX_DEPTH {
            return Ok(());
        }
        self.depth += 1;
        // An RLM that was spawned is a rollout of its own.
        let id = format!("{rollout}.{call_id}.{}", index + 1);
        for iteration in &child.iterations {
            self.iteration(&id, &child.run_metadata, iteration)?;
        }
        self.depth -= 1;
        Ok(())
    }
}

impl CodeBlock {
    /// The fields of the call's end.
    fn ended(&self, turn: u64, id: &str) -> Json {
        let BlockResult { stdout, stderr, execution_time, final_answer, .. } = &self.result;
        let outcome = if stderr.trim().is_empty() { "ok" } else { "error" };
        let output = json!({
            "stdout": stdout, "stderr": stderr, "result": null, "outcome": outcome, "state": "kept",
            "exit_code": null, "dropped_bytes": 0, "hint": null,
            "answer": final_answer.as_ref().map(text).unwrap_or_default(),
            "answer_ready": final_answer.is_some(),
        });
        let seconds = execution_time.unwrap_or(0.0);
        json!({"turn": turn, "call_id": id, "seconds": seconds, "output": output, "error": null})
    }
}

/// Text as it is, anything else as JSON.
fn text(value: &Json) -> String {
    match value {
        Json::String(text) => text.clone(),
        Json::Null => String::new(),
        other => other.to_string(),
    }
}

/// Seconds since the epoch of a local time without a zone, as if it were UTC: durations are right.
fn seconds(timestamp: &str) -> f64 {
    timestamp.parse::<NaiveDateTime>().map_or(0.0, |time| time.and_utc().timestamp_micros() as f64 / 1e6)
}
