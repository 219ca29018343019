//! A rollout read from its entries.
//!
//! Everything that models, tools or users wrote goes through [`Text`] or [`word`] here, and nowhere else. It is shortened
//! as it is read, so memory is needed only for the part that is shown.

use rlm_core::protocol::Response;
use rlm_env::rollout::Metrics;
use rlm_env::trajectory::{self, Entry, Event, MessageKind, RolloutStarted, SubCall, image_places};
use serde_json::Value as Json;

use super::rollout::{Batch, Call, End, ModelCall, Output, Prompt, Rollout, Start, Step, Thought, Turn};
use crate::replies::{self, message_words, reply_words};
use crate::text::{Length, Lengths, Text, one_line, word};
use crate::tokens::TokenParts;
use crate::view::quantity::Usage;

/// Reasons why a reply ends that are not shown.
const ORDINARY: [&str; 2] = ["stop", "tool_calls"];

impl Rollout {
    pub(super) fn new(entry: &Entry, at: usize, parent: Option<usize>) -> Self {
        let parent_call = match &entry.event {
            Event::RolloutStarted(started) => started.parent_call_id.as_deref().map(word),
            _ => None,
        };
        Self {
            id: word(&entry.rollout),
            at,
            depth: entry.depth as usize,
            parent,
            parent_call,
            began: entry.time,
            last: entry.time,
            asks: at,
            ..Self::default()
        }
    }

    pub(super) fn add(&mut self, time: f64, event: Event, lengths: Lengths) {
        match event {
            Event::RolloutStarted(started) => self.start = Some(Start::new(&started, lengths)),
            Event::Message(message) => self.add_message(message, lengths),
            Event::ModelCall(call) => {
                let usage = Usage::from(&call);
                self.usage.add(usage);
                let step = ModelCall {
                    model: word(&call.model),
                    is_summary: call.is_summary,
                    began: time - call.seconds,
                    seconds: call.seconds,
                    usage,
                    attempts: call.attempts,
                    error: call.error.map(|error| Text::new(&error, lengths.text)),
                    finish_reason: call
                        .finish_reason
                        .as_deref()
                        .filter(|reason| !ORDINARY.contains(reason))
                        .map(word),
                    adapted: call.adapted.iter().map(|sentence| word(sentence)).collect(),
                };
                self.turn(call.turn).steps.push(Step::Model(step));
            }
            Event::CallStarted(started) => {
                let input = match (&started.code, &started.arguments) {
                    (Some(code), _) => Some(Text::new(code, lengths.code)),
                    (None, Some(arguments)) => Some(Text::new(&arguments.to_string(), lengths.code)),
                    (None, None) => None,
                };
                let call = self.call(started.turn, &started.call_id);
                call.tool = Some(word(&started.tool));
                (call.input, call.began, call.has_begun) = (input, time, true);
            }
            Event::CallEnded(ended) => self.end_call(time, ended, lengths),
            Event::SubCall(sub_call) => self.add_sub_call(time, &sub_call, lengths),
            Event::RolloutEnded(ended) => {
                self.cut_off = beyond(&ended.metrics, &self.usage);
                self.usage.add(self.cut_off);
                self.end = Some(End::new(&ended, lengths));
            }
            Event::RolloutScored(scored) => {
                self.score = scored.score;
                self.unscored = scored.error.as_deref().map(word);
            }
            Event::ModelRetry(retry) => {
                let error = Text::new(&retry.error, lengths.text);
                self.turn(retry.turn).steps.push(Step::Retry(error));
            }
            _ => {}
        }
    }

    fn add_images(&mut self, message: &trajectory::Message) {
        let steps: Vec<_> = image_places(&message.message, &self.images).map(Step::Image).collect();
        if !steps.is_empty() {
            self.turn(message.turn).steps.extend(steps);
        }
    }

    fn add_message(&mut self, message: trajectory::Message, lengths: Lengths) {
        let is_reply = message.kind == MessageKind::Reply;
        let words = if is_reply { reply_words } else { message_words }(&message.message);
        let text = Text::new(&words, lengths.text);
        match message.kind {
            MessageKind::System => self.system = Some(text),
            // The rollout's first entry has the first question already.
            MessageKind::Question if message.turn == 0 => self.add_images(&message),
            MessageKind::Output => {
                // A model without tools gets the output of its newest call, which has no id.
                let id = message.message["tool_call_id"].as_str();
                match self.newest_call(id) {
                    Some(call) if call.output.is_none() && call.error.is_none() => call.message = Some(text),
                    Some(_) => {}
                    None => self.turn(message.turn).steps.push(Step::Message(message.kind, text)),
                }
            }
            _ => {
                let turn = self.turn(message.turn);
                let thought =
                    is_reply.then(|| thought(&message.message, turn.reasoning_tokens(), lengths.text));
                turn.steps.extend(thought.flatten().map(Step::Thought));
                if !text.is_empty() {
                    turn.steps.push(Step::Message(message.kind, text));
                }
                self.add_images(&message);
                let turn = self.turn(message.turn);
                for call in message.message["tool_calls"].as_array().into_iter().flatten() {
                    let Some(id) = call["id"].as_str() else { continue };
                    let mut planned = Call::new(id);
                    planned.tool = call["function"]["name"].as_str().map(word);
                    planned.input =
                        call["function"]["arguments"].as_str().map(|input| Text::new(input, lengths.code));
                    turn.steps.push(Step::Call(Box::new(planned)));
                }
            }
        }
    }

    fn end_call(&mut self, time: f64, ended: trajectory::CallEnded, lengths: Lengths) {
        let output = ended.output.map(|response| {
            let Response { stdout, stderr, result, hint, answer, .. } = response;
            let is_changed = answer != self.answer;
            let shown = is_changed.then(|| (Text::new(&answer.content, lengths.text), answer.ready));
            self.answer = answer;
            let text = |text: String| Text::new(&text, lengths.text);
            let rest = Response {
                exit_code: response.exit_code,
                truncated: response.truncated,
                ..Response::new(response.outcome, response.state)
            };
            Output {
                stdout: text(stdout),
                stderr: text(stderr),
                result: result.map(text),
                hint: hint.map(text),
                response: rest,
                answer: shown,
            }
        });
        let call = self.call(ended.turn, &ended.call_id);
        if !call.has_begun {
            call.began = time - ended.seconds;
        }
        call.seconds = Some(ended.seconds);
        call.error = ended.error.map(|error| Text::new(&error, lengths.text));
        call.output = output;
    }

    fn add_sub_call(&mut self, time: f64, sub_call: &SubCall, lengths: Lengths) {
        let began = time - sub_call.seconds;
        let usage = Usage::from(sub_call);
        self.usage.add(usage);
        let batch = self.batch(sub_call, began);
        batch.began = batch.began.min(began);
        batch.ended = batch.ended.max(time);
        batch.usage.add(usage);
        let prompt = batch.prompts.entry(sub_call.index).or_insert_with(|| Prompt {
            model: word(&sub_call.model),
            prompt: Text::new(
                &sub_call.messages.last().map(message_words).unwrap_or_default(),
                lengths.sub_call,
            ),
            ..Prompt::default()
        });
        prompt.thought = sub_call
            .reply
            .as_ref()
            .and_then(|reply| thought(reply, sub_call.reasoning_tokens, lengths.sub_call));
        prompt.reply = sub_call.reply.as_ref().map(|reply| Text::new(&replied(reply), lengths.sub_call));
        prompt.error = sub_call.error.as_ref().map(|error| Text::new(error, lengths.sub_call));
        prompt.usage.add(usage);
        prompt.seconds += sub_call.seconds;
        prompt.requests += 1;
        prompt.attempts = prompt.attempts.saturating_add(sub_call.attempts);
    }

    /// The batch of a sub-call, in the newest call with its id.
    fn batch(&mut self, sub_call: &SubCall, began: f64) -> &mut Batch {
        let new = || Batch { id: sub_call.batch_id.clone(), began, ended: began, ..Batch::default() };
        if let Some((turn, step)) = sub_call.call_id.as_deref().and_then(|id| self.place_of_call(Some(id))) {
            let batches = &mut self.turns[turn].call_at(step).batches;
            let place = batches.iter().position(|batch| batch.id == sub_call.batch_id);
            let place = place.unwrap_or_else(|| {
                batches.push(new());
                batches.len() - 1
            });
            return &mut batches[place];
        }
        let number = self.turns.last().map_or(0, |turn| turn.number);
        let steps = &mut self.turn(number).steps;
        let is_it = |step: &Step| matches!(step, Step::Batch(batch) if batch.id == sub_call.batch_id);
        let place = steps.iter().position(is_it).unwrap_or_else(|| {
            steps.push(Step::Batch(new()));
            steps.len() - 1
        });
        let Step::Batch(batch) = &mut steps[place] else { unreachable!("this is the index of a batch") };
        batch
    }

    /// The turn with a number. It is the newest one, unless entries are out of order.
    fn turn(&mut self, number: u32) -> &mut Turn {
        let place = self.turns.iter().rposition(|turn| turn.number == number).unwrap_or_else(|| {
            self.turns.push(Turn { number, steps: Vec::new() });
            self.turns.len() - 1
        });
        &mut self.turns[place]
    }

    /// The call with an id in a turn; the reply may have announced it. Models may reuse an id in a later turn.
    fn call(&mut self, turn: u32, id: &str) -> &mut Call {
        let turn = self.turn(turn);
        let place = turn.place_of(Some(id)).unwrap_or_else(|| {
            turn.steps.push(Step::Call(Box::new(Call::new(id))));
            turn.steps.len() - 1
        });
        turn.call_at(place)
    }

    /// The newest call, or the newest one with an id.
    fn newest_call(&mut self, id: Option<&str>) -> Option<&mut Call> {
        let (turn, step) = self.place_of_call(id)?;
        Some(self.turns[turn].call_at(step))
    }

    pub(super) fn place_of_call(&self, id: Option<&str>) -> Option<(usize, usize)> {
        let mut turns = self.turns.iter().enumerate().rev();
        turns.find_map(|(place, turn)| Some((place, turn.place_of(id)?)))
    }
}

impl Turn {
    /// Tokens of reasoning in the turn's reply.
    fn reasoning_tokens(&self) -> u64 {
        let calls = self.steps.iter().rev().filter_map(|step| match step {
            Step::Model(call) if !call.is_summary && call.error.is_none() => Some(call),
            _ => None,
        });
        calls.map(|call| call.usage.parts.reasoning_tokens).next().unwrap_or_default()
    }

    fn place_of(&self, id: Option<&str>) -> Option<usize> {
        let is_it = |step: &Step| matches!(step, Step::Call(call) if id.is_none_or(|id| call.id == id));
        self.steps.iter().rposition(is_it)
    }

    fn call_at(&mut self, place: usize) -> &mut Call {
        match &mut self.steps[place] {
            Step::Call(call) => call,
            step => unreachable!("this is the index of a call, not of {step:?}"),
        }
    }
}

impl Call {
    fn new(id: &str) -> Self {
        Self { id: id.to_owned(), ..Self::default() }
    }
}

impl Start {
    fn new(started: &RolloutStarted, lengths: Lengths) -> Self {
        let words = |names: &[String]| names.iter().map(|name| word(name)).collect();
        Self {
            question: Text::new(&started.question, lengths.text),
            language: word(&started.language),
            callbacks: started.callbacks,
            model: word(&started.model),
            sub_model: started.sub_model.as_deref().map(word),
            root_tools: words(&started.root_tools),
            tools: words(&started.tools),
            context_files: started.context_files,
            context_bytes: started.context_bytes,
        }
    }
}

impl End {
    fn new(ended: &trajectory::RolloutEnded, lengths: Lengths) -> Self {
        let reason = serde_json::to_value(ended.stop_reason).unwrap_or_default();
        Self {
            stop_reason: word(&reason.as_str().unwrap_or_default().replace('_', " ")),
            answer: ended.answer.as_ref().map(|answer| Text::new(answer, lengths.text)),
            is_ready: ended.answer_ready,
            error: ended.error.as_ref().map(|error| Text::new(error, lengths.text)),
            metrics: metrics(&serde_json::to_value(&ended.metrics).unwrap_or_default()),
        }
    }
}

/// The spending of a rollout that its entries do not show.
fn beyond(metrics: &Metrics, seen: &Usage) -> Usage {
    let prompt = metrics.root_llm_prompt_tokens.saturating_add(metrics.sub_llm_prompt_tokens);
    let completion = metrics.root_llm_completion_tokens.saturating_add(metrics.sub_llm_completion_tokens);
    let prompt = prompt.saturating_sub(seen.prompt_tokens);
    let completion = completion.saturating_sub(seen.completion_tokens);
    // The cost is that of the whole tree.
    let below: Option<f64> = metrics.depths.values().map(|depth| depth.cost_usd).sum();
    let own = metrics.cost_usd.zip(below).map(|(whole, below)| (whole - below - seen.cost_usd).max(0.0));
    // The tokens of a cancelled request are not known. A difference this small comes from adding floats.
    let parts = TokenParts::from(metrics).beyond(seen.parts);
    if prompt == 0 && completion == 0 && own.is_none_or(|cost| cost < 1e-9) {
        return Usage::default();
    }
    Usage::new(prompt, completion, metrics.usage_estimated, own).with(parts)
}

/// Names and values of the metrics.
fn metrics(metrics: &Json) -> Vec<(String, String)> {
    let mut shown = Vec::new();
    for (name, value) in metrics.as_object().into_iter().flatten() {
        match value {
            Json::Null | Json::Bool(false) => {}
            Json::Number(number) if number.as_f64() == Some(0.0) => {}
            Json::Number(number) if number.is_f64() => {
                let rounded = format!("{:.4}", number.as_f64().unwrap_or_default());
                shown.push((word(name), rounded.trim_end_matches('0').trim_end_matches('.').to_owned()));
            }
            Json::Object(parts) => {
                shown.extend(
                    parts.iter().map(|(part, value)| (word(&format!("{name}.{part}")), value.to_string())),
                );
            }
            other => shown.push((word(name), other.to_string())),
        }
    }
    shown
}

/// The reasoning of a reply, with this many tokens.
fn thought(reply: &Json, tokens: u64, length: Option<Length>) -> Option<Thought> {
    let thought = replies::Thought::of(reply, tokens)?;
    Some(Thought { line: one_line(&thought.line()), text: Text::new(&thought.text, length) })
}

/// The text of a reply, or the names of the tools that it calls.
fn replied(message: &Json) -> String {
    let text = reply_words(message);
    let calls = message["tool_calls"].as_array().filter(|_| text.is_empty());
    let names = calls.into_iter().flatten().map(|call| call["function"]["name"].as_str().unwrap_or("?"));
    let names: Vec<_> = names.collect();
    if names.is_empty() { text } else { format!("[calls {}]", names.join(", ")) }
}
