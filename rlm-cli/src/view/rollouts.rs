//! The entries of a trajectory assembled into rollouts, turns, calls and sub-calls.
//!
//! Everything that models, tools or users wrote goes through [`Text`] or [`word`] here, and nowhere else. It is shortened
//! as it is read, so memory is needed only for the part that is shown.

use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use rlm_core::protocol::{Answer, Outcome, Response};
use rlm_env::rollout::{Callbacks, Metrics};
use rlm_env::trajectory::{self, Entry, Event, MessageKind, RolloutStarted, SubCall};
use serde_json::Value as Json;

use super::quantity::Usage;
use super::text::{Length, Text, word};

/// Lengths of texts by kind. None: the whole text.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Lengths {
    /// Of outputs, messages and answers.
    pub(super) text: Option<Length>,
    /// Of code and arguments.
    pub(super) code: Option<Length>,
    /// Of prompts of sub-LLMs and their replies.
    pub(super) sub_call: Option<Length>,
}

/// The rollouts of a file, in the order of their first entries.
#[derive(Debug, Default)]
pub(super) struct Rollouts {
    pub(super) list: Vec<Rollout>,
    /// Rollouts that are left out before the first one.
    skipped: usize,
    /// The index in the list, by id.
    places: HashMap<String, usize>,
    /// The first rollout with a question, by its hash.
    questions: HashMap<u64, usize>,
    lengths: Lengths,
    /// The number of entries.
    pub(super) stamp: u64,
}

/// A rollout.
#[derive(Debug)]
pub(super) struct Rollout {
    pub(super) id: String,
    /// Its number in the file, from 0: links name it.
    pub(super) at: usize,
    /// The number of its latest entry in the file, from 1.
    pub(super) stamp: u64,
    /// The number of rollouts above it, and the one that has started it.
    pub(super) depth: usize,
    /// The place in the list of the one whose code has started it, if that is in the file.
    pub(super) parent: Option<usize>,
    /// The turn of the call whose code has started it, and the call.
    pub(super) parent_turn: Option<u32>,
    pub(super) parent_call: Option<String>,
    /// Times of its first and last entry, in seconds since the epoch.
    pub(super) began: f64,
    pub(super) last: f64,
    pub(super) start: Option<Start>,
    pub(super) system: Option<Text>,
    pub(super) turns: Vec<Turn>,
    pub(super) end: Option<End>,
    pub(super) score: Option<f64>,
    /// Why it has none.
    pub(super) unscored: Option<String>,
    /// The number of the first rollout with its question.
    pub(super) asks: usize,
    /// Of all models.
    pub(super) usage: Usage,
    /// The part of it of requests that were cut off, which have no entry.
    pub(super) cut_off: Usage,
    /// The answer after the last call, to show it only when it changes.
    answer: Answer,
}

#[derive(Debug)]
pub(super) struct Start {
    pub(super) question: Text,
    pub(super) language: String,
    pub(super) callbacks: Callbacks,
    pub(super) model: String,
    pub(super) sub_model: Option<String>,
    pub(super) root_tools: Vec<String>,
    pub(super) tools: Vec<String>,
    pub(super) context_files: u64,
    pub(super) context_bytes: u64,
}

/// A turn. Number 0 is before the first reply.
#[derive(Debug)]
pub(super) struct Turn {
    pub(super) number: u32,
    pub(super) steps: Vec<Step>,
}

/// A part of a turn.
#[derive(Debug)]
pub(super) enum Step {
    Model(ModelCall),
    Message(MessageKind, Text),
    /// Why a request is sent again.
    Retry(Text),
    Call(Box<Call>),
    /// Sub-calls outside any call.
    Batch(Batch),
}

#[derive(Debug)]
pub(super) struct ModelCall {
    pub(super) model: String,
    pub(super) is_summary: bool,
    pub(super) began: f64,
    pub(super) seconds: f64,
    pub(super) usage: Usage,
    pub(super) attempts: u32,
    pub(super) error: Option<Text>,
}

#[derive(Debug)]
pub(super) struct Call {
    pub(super) id: String,
    pub(super) tool: Option<String>,
    /// The code for a REPL, the arguments for other tools.
    pub(super) input: Option<Text>,
    pub(super) began: f64,
    /// None if it still runs or was never started.
    pub(super) seconds: Option<f64>,
    pub(super) has_begun: bool,
    pub(super) output: Option<Output>,
    /// The output message to the model, for a call without an output of the session.
    pub(super) message: Option<Text>,
    pub(super) error: Option<Text>,
    pub(super) batches: Vec<Batch>,
}

#[derive(Debug)]
pub(super) struct Output {
    pub(super) stdout: Text,
    pub(super) stderr: Text,
    pub(super) result: Option<Text>,
    pub(super) hint: Option<Text>,
    /// The rest of the response: its texts are above.
    pub(super) response: Response,
    /// The answer, and true if it is final. None if the call did not change it.
    pub(super) answer: Option<(Text, bool)>,
}

/// The sub-calls of one `llm_batch`.
#[derive(Debug)]
pub(super) struct Batch {
    id: String,
    /// By index in the batch.
    pub(super) prompts: BTreeMap<usize, Prompt>,
    pub(super) began: f64,
    pub(super) ended: f64,
    pub(super) usage: Usage,
}

#[derive(Debug)]
pub(super) struct Prompt {
    pub(super) model: String,
    pub(super) prompt: Text,
    pub(super) reply: Option<Text>,
    pub(super) error: Option<Text>,
    pub(super) usage: Usage,
    pub(super) seconds: f64,
    /// Requests for it, and attempts at them with retries.
    pub(super) requests: u32,
    pub(super) attempts: u32,
}

#[derive(Debug)]
pub(super) struct End {
    pub(super) stop_reason: String,
    pub(super) answer: Option<Text>,
    pub(super) is_ready: bool,
    pub(super) error: Option<Text>,
    /// Names and values, without zeros and nulls.
    pub(super) metrics: Vec<(String, String)>,
}

impl Rollouts {
    pub(super) fn new(lengths: Lengths) -> Self {
        Self { lengths, ..Self::default() }
    }

    /// Counts a rollout that is left out.
    pub(super) fn skip_one(&mut self) {
        if self.list.is_empty() {
            self.skipped += 1;
        }
    }

    /// Adds the next entry.
    pub(super) fn add(&mut self, entry: Entry) {
        let lengths = self.lengths;
        let begins_anew =
            |rollout: &Rollout| matches!(entry.event, Event::RolloutStarted(_)) && rollout.start.is_some();
        self.stamp += 1;
        let place = self.places.get(&entry.rollout).copied();
        let place = match place.filter(|place| !begins_anew(&self.list[*place])) {
            Some(place) => place,
            None => {
                // Of attempts with the same id, the last one so far.
                let parent = match &entry.event {
                    Event::RolloutStarted(started) => started.parent.as_ref(),
                    _ => None,
                };
                let parent = parent.and_then(|parent| self.places.get(parent).copied());
                let mut rollout = Rollout::new(&entry, self.skipped + self.list.len(), parent);
                rollout.parent_turn = parent.and_then(|parent| {
                    let (parent, id) = (&self.list[parent], rollout.parent_call.as_deref()?);
                    parent.place_of_call(Some(id)).map(|(turn, _)| parent.turns[turn].number)
                });
                self.list.push(rollout);
                self.places.insert(entry.rollout.clone(), self.list.len() - 1);
                self.list.len() - 1
            }
        };
        let rollout = &mut self.list[place];
        rollout.stamp = self.stamp;
        // Scoring is no part of it.
        if !matches!(entry.event, Event::RolloutScored(_)) {
            rollout.last = rollout.last.max(entry.time);
        }
        if let Event::RolloutStarted(started) = &entry.event {
            rollout.asks = *self.questions.entry(hash(&started.question)).or_insert(rollout.at);
        }
        rollout.add(entry.time, entry.event, lengths);
    }
}

fn hash(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

/// A rollout in its tree.
#[derive(Clone, Copy, Debug)]
pub(super) struct Node<'a> {
    pub(super) rollout: &'a Rollout,
    /// The number of rollouts above it that are in the file.
    pub(super) level: usize,
}

impl Rollouts {
    /// The rollouts in the order of a tree: those that a rollout has started follow it.
    pub(super) fn in_tree_order(&self) -> Vec<Node<'_>> {
        let mut of_parent: HashMap<usize, Vec<usize>> = HashMap::new();
        let mut left = Vec::new();
        for (at, rollout) in self.list.iter().enumerate().rev() {
            match rollout.parent {
                Some(parent) => of_parent.entry(parent).or_default().push(at),
                None => left.push((at, Node { rollout, level: 0 })),
            }
        }
        let mut ordered = Vec::with_capacity(self.list.len());
        while let Some((at, node)) = left.pop() {
            ordered.push(node);
            let below = |at| (at, Node { rollout: &self.list[at], level: node.level + 1 });
            left.extend(of_parent.remove(&at).into_iter().flatten().map(below));
        }
        ordered
    }
}

impl Rollout {
    pub(super) fn seconds(&self) -> f64 {
        self.last - self.began
    }

    pub(super) fn steps(&self) -> impl Iterator<Item = &Step> {
        self.turns.iter().flat_map(|turn| &turn.steps)
    }

    pub(super) fn calls(&self) -> impl Iterator<Item = &Call> {
        self.steps().filter_map(|step| if let Step::Call(call) = step { Some(&**call) } else { None })
    }

    pub(super) fn batches(&self) -> impl Iterator<Item = &Batch> {
        self.steps().flat_map(|step| match step {
            Step::Call(call) => &call.batches[..],
            Step::Batch(batch) => std::slice::from_ref(batch),
            _ => &[],
        })
    }

    fn new(entry: &Entry, at: usize, parent: Option<usize>) -> Self {
        let parent_call = match &entry.event {
            Event::RolloutStarted(started) => started.parent_call_id.as_deref().map(word),
            _ => None,
        };
        Self {
            id: word(&entry.rollout),
            at,
            stamp: 0,
            depth: entry.depth as usize,
            parent,
            parent_turn: None,
            parent_call,
            began: entry.time,
            last: entry.time,
            start: None,
            system: None,
            turns: Vec::new(),
            end: None,
            score: None,
            unscored: None,
            asks: at,
            usage: Usage::default(),
            cut_off: Usage::default(),
            answer: Answer::default(),
        }
    }

    fn add(&mut self, time: f64, event: Event, lengths: Lengths) {
        match event {
            Event::RolloutStarted(started) => self.start = Some(Start::new(&started, lengths)),
            Event::Message(message) => self.add_message(message, lengths),
            Event::ModelCall(call) => {
                let usage = Usage::new(
                    call.prompt_tokens,
                    call.completion_tokens,
                    call.usage_estimated,
                    call.cost_usd,
                );
                self.usage.add(usage);
                let step = ModelCall {
                    model: word(&call.model),
                    is_summary: call.is_summary,
                    began: time - call.seconds,
                    seconds: call.seconds,
                    usage,
                    attempts: call.attempts,
                    error: call.error.map(|error| Text::new(&error, lengths.text)),
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

    fn add_message(&mut self, message: trajectory::Message, lengths: Lengths) {
        let text = Text::new(&said(&message.message), lengths.text);
        match message.kind {
            MessageKind::System => self.system = Some(text),
            // The first entry has the first one already.
            MessageKind::Question if message.turn == 0 => {}
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
                if !text.is_empty() {
                    turn.steps.push(Step::Message(message.kind, text));
                }
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
        let usage = Usage::new(
            sub_call.prompt_tokens,
            sub_call.completion_tokens,
            sub_call.usage_estimated,
            sub_call.cost_usd,
        );
        self.usage.add(usage);
        let batch = self.batch(sub_call, began);
        batch.began = batch.began.min(began);
        batch.ended = batch.ended.max(time);
        batch.usage.add(usage);
        let prompt = batch.prompts.entry(sub_call.index).or_insert_with(|| Prompt {
            model: word(&sub_call.model),
            prompt: Text::new(&sub_call.messages.last().map(said).unwrap_or_default(), lengths.sub_call),
            reply: None,
            error: None,
            usage: Usage::default(),
            seconds: 0.0,
            requests: 0,
            attempts: 0,
        });
        prompt.reply = sub_call.reply.as_ref().map(|reply| Text::new(&replied(reply), lengths.sub_call));
        prompt.error = sub_call.error.as_ref().map(|error| Text::new(error, lengths.sub_call));
        prompt.usage.add(usage);
        prompt.seconds += sub_call.seconds;
        prompt.requests += 1;
        prompt.attempts = prompt.attempts.saturating_add(sub_call.attempts);
    }

    /// The batch of a sub-call, in the newest call with its id.
    fn batch(&mut self, sub_call: &SubCall, began: f64) -> &mut Batch {
        let new = || Batch {
            id: sub_call.batch_id.clone(),
            prompts: BTreeMap::new(),
            began,
            ended: began,
            usage: Usage::default(),
        };
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

    fn place_of_call(&self, id: Option<&str>) -> Option<(usize, usize)> {
        let mut turns = self.turns.iter().enumerate().rev();
        turns.find_map(|(place, turn)| Some((place, turn.place_of(id)?)))
    }
}

impl Turn {
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
        Self {
            id: id.to_owned(),
            tool: None,
            input: None,
            began: 0.0,
            seconds: None,
            has_begun: false,
            output: None,
            message: None,
            error: None,
            batches: Vec::new(),
        }
    }

    /// Reports whether it failed or was stopped.
    pub(super) fn has_failed(&self) -> bool {
        self.error.is_some()
            || self.output.as_ref().is_some_and(|output| output.response.outcome != Outcome::Ok)
    }
}

impl Batch {
    pub(super) fn seconds(&self) -> f64 {
        self.ended - self.began
    }

    pub(super) fn failed(&self) -> usize {
        self.prompts.values().filter(|prompt| prompt.error.is_some()).count()
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

/// What a rollout has spent beyond this.
fn beyond(metrics: &Metrics, seen: &Usage) -> Usage {
    let prompt = metrics.root_llm_prompt_tokens.saturating_add(metrics.sub_llm_prompt_tokens);
    let completion = metrics.root_llm_completion_tokens.saturating_add(metrics.sub_llm_completion_tokens);
    let prompt = prompt.saturating_sub(seen.prompt_tokens);
    let completion = completion.saturating_sub(seen.completion_tokens);
    // The cost is that of the whole tree.
    let below: Option<f64> = metrics.depths.values().map(|depth| depth.cost_usd).sum();
    let own = metrics.cost_usd.zip(below).map(|(whole, below)| (whole - below - seen.cost_usd).max(0.0));
    // Of a cancelled request the tokens are not known. The rest is what sums of floats leave.
    if prompt == 0 && completion == 0 && own.is_none_or(|cost| cost < 1e-9) {
        return Usage::default();
    }
    Usage::new(prompt, completion, metrics.usage_estimated, own)
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

/// The text of a message in OpenAI's form.
pub(super) fn said(message: &Json) -> String {
    let content = message.get("content").unwrap_or(&Json::Null);
    match content {
        Json::String(text) => text.clone(),
        Json::Array(parts) => {
            let texts = parts.iter().map(|part| match part["text"].as_str() {
                Some(text) => text.to_owned(),
                None => format!("[{}]", part["type"].as_str().unwrap_or("?")),
            });
            texts.collect::<Vec<_>>().join("\n")
        }
        _ => String::new(),
    }
}

/// The text of a reply, or the names of the tools that it calls.
fn replied(message: &Json) -> String {
    let text = said(message);
    let calls = message["tool_calls"].as_array().filter(|_| text.is_empty());
    let names = calls.into_iter().flatten().map(|call| call["function"]["name"].as_str().unwrap_or("?"));
    let names: Vec<_> = names.collect();
    if names.is_empty() { text } else { format!("[calls {}]", names.join(", ")) }
}
