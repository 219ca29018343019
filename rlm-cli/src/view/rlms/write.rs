//! A rollout in the form of RLMLogger.

use std::io::{self, Write};

use chrono::DateTime;
use rlm_core::text::{counted, size};
use rlm_env::trajectory::{CallEnded, Entry, Event, MessageKind, RolloutStarted, SubCall};
use serde_json::{Map, Value as Json, json};

use crate::replies::message_words;

/// Writes the lines of one rollout from its entries.
pub(in crate::view) fn write(entries: Vec<Entry>, output: &mut impl Write) -> io::Result<()> {
    let mut log =
        Log { output, messages: Vec::new(), context: Json::Null, number: 0, began: 0.0, open: None };
    for entry in entries {
        log.add(entry.time, entry.event)?;
    }
    log.close()?;
    log.output.flush()
}

struct Log<'a, W> {
    output: &'a mut W,
    /// The conversation so far.
    messages: Vec<Json>,
    /// The working directory in words: rlms shows the variable `context`.
    context: Json,
    number: u64,
    /// The moment at which the newest request to the model began.
    began: f64,
    /// The iteration whose calls are still to come.
    open: Option<Iteration>,
}

/// A reply, and the calls in it.
struct Iteration {
    prompt: Vec<Json>,
    response: String,
    blocks: Vec<Json>,
    /// Calls that have begun: id, code, and sub-calls.
    running: Vec<(String, String, Vec<Json>)>,
    answer: Json,
    began: f64,
    ended: f64,
}

impl<W: Write> Log<'_, W> {
    fn add(&mut self, time: f64, event: Event) -> io::Result<()> {
        match event {
            Event::RolloutStarted(started) => self.start(time, &started)?,
            Event::Message(message) if message.kind == MessageKind::Reply => {
                self.close()?;
                let response = message_words(&message.message);
                let reply = json!({"role": "assistant", "content": response});
                self.open = Some(Iteration {
                    prompt: self.messages.clone(),
                    response,
                    blocks: Vec::new(),
                    running: Vec::new(),
                    answer: Json::Null,
                    began: self.began,
                    ended: time,
                });
                self.messages.push(reply);
            }
            Event::Message(message) => {
                let role = if message.kind == MessageKind::System { "system" } else { "user" };
                self.messages.push(json!({"role": role, "content": message_words(&message.message)}));
            }
            Event::ModelCall(call) if !call.is_summary => {
                // The reply follows.
                self.close()?;
                self.number += u64::from(call.error.is_none());
                self.began = time - call.seconds;
            }
            event => {
                if let Some(iteration) = &mut self.open {
                    iteration.ended = iteration.ended.max(time);
                    iteration.add(event, &self.context);
                }
            }
        }
        Ok(())
    }

    fn start(&mut self, time: f64, started: &RolloutStarted) -> io::Result<()> {
        let files = counted(started.context_files, "file");
        self.context = format!("{files}, {}", size(started.context_bytes)).into();
        let line = json!({
            "type": "metadata",
            "timestamp": timestamp(time),
            "root_model": started.model,
            "max_depth": 1,
            "max_iterations": null,
            "backend": "rlm-env",
            "backend_kwargs": {"model_name": started.model},
            "environment_type": started.language,
            "environment_kwargs": {},
            "other_backends": started.sub_model.as_ref().map(|model| [model]),
        });
        self.line(&line)
    }

    /// Writes the open iteration.
    fn close(&mut self) -> io::Result<()> {
        let Some(iteration) = self.open.take() else { return Ok(()) };
        let line = json!({
            "type": "iteration",
            "iteration": self.number,
            "timestamp": timestamp(iteration.ended),
            "prompt": iteration.prompt,
            "response": iteration.response,
            "code_blocks": iteration.blocks,
            "final_answer": iteration.answer,
            "iteration_time": iteration.ended - iteration.began,
        });
        self.line(&line)
    }

    fn line(&mut self, line: &Json) -> io::Result<()> {
        serde_json::to_writer(&mut *self.output, line)?;
        self.output.write_all(b"\n")
    }
}

impl Iteration {
    fn add(&mut self, event: Event, context: &Json) {
        match event {
            Event::CallStarted(started) => {
                let arguments = started.arguments.map(|arguments| arguments.to_string());
                let code = started
                    .code
                    .unwrap_or_else(|| format!("{}({})", started.tool, arguments.unwrap_or_default()));
                self.running.push((started.call_id, code, Vec::new()));
            }
            Event::SubCall(call) => {
                if let Some((_, _, calls)) = self.running.last_mut() {
                    calls.push(sub_call(&call));
                }
            }
            Event::CallEnded(ended) => {
                let place = self.running.iter().position(|(id, _, _)| *id == ended.call_id);
                let (_, code, calls) = place.map(|at| self.running.remove(at)).unwrap_or_default();
                let block = block(&code, &ended, calls, context);
                if !block["result"]["final_answer"].is_null() {
                    self.answer = block["result"]["final_answer"].clone();
                }
                self.blocks.push(block);
            }
            _ => {}
        }
    }
}

fn block(code: &str, ended: &CallEnded, calls: Vec<Json>, context: &Json) -> Json {
    let (mut stdout, mut stderr, mut answer) = (String::new(), String::new(), Json::Null);
    if let Some(output) = &ended.output {
        stdout.clone_from(&output.stdout);
        stderr.clone_from(&output.stderr);
        stdout.extend(output.result.iter().map(String::as_str));
        stderr.extend(output.hint.iter().map(String::as_str));
        if output.answer.ready {
            answer = output.answer.content.clone().into();
        }
    }
    stderr.extend(ended.error.iter().map(String::as_str));
    json!({"code": code, "result": {
        "stdout": stdout,
        "stderr": stderr,
        "locals": {"context": context},
        "execution_time": ended.seconds,
        "rlm_calls": calls,
        "final_answer": answer,
    }})
}

fn sub_call(call: &SubCall) -> Json {
    let mut usage = Map::from_iter([
        ("total_calls".to_owned(), call.attempts.into()),
        ("total_input_tokens".to_owned(), call.prompt_tokens.into()),
        ("total_output_tokens".to_owned(), call.completion_tokens.into()),
    ]);
    usage.extend(call.cost_usd.map(|cost| ("total_cost".to_owned(), cost.into())));
    let mut line = json!({
        "root_model": call.model,
        "prompt": call.messages.iter().map(prompted).collect::<Vec<_>>(),
        "response": call.reply.as_ref().map(message_words).unwrap_or_default(),
        "usage_summary": {"model_usage_summaries": {call.model.as_str(): usage}},
        "execution_time": call.seconds,
        // The visualizer of rlms reads these fields.
        "prompt_tokens": call.prompt_tokens,
        "completion_tokens": call.completion_tokens,
    });
    if let Some(error) = &call.error {
        line["error"] = error.as_str().into();
    }
    line
}

/// A message of a prompt in the form of RLMLogger: without what servers add, such as signatures.
fn prompted(message: &Json) -> Json {
    json!({"role": message["role"], "content": message_words(message)})
}

/// A time in UTC, in the form of Python's `isoformat`.
fn timestamp(seconds: f64) -> String {
    let time = DateTime::from_timestamp_micros((seconds * 1e6) as i64).unwrap_or_default();
    time.naive_utc().format("%Y-%m-%dT%H:%M:%S%.6f").to_string()
}
