//! Small requests that find out how a model's server handles tools, streams, bounds, reasoning and its cache.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rlm_core::text::{counted, grouped, listed};
use rlm_env::unstable::without_reasoning;
use rlm_rootd::{
    Api, Budget, ChatMessage, ChatReply, ChatRequest, HttpModel, Ledger, ModelError, ModelErrorKind, Models,
    Prices, ReplyEnd, RootModel as _, Streaming, thinking_budget,
};
use serde_json::{Map, Value as Json, json};

use super::found::Lines;

/// Most tokens of a completion.
const SHORT: u64 = 16;

/// Most tokens of a completion in which a model thinks before it calls a tool.
const LONG: u64 = 1024;

/// Time limit of a request.
const TIME: Duration = Duration::from_secs(60);

/// Lines of the system prompt: servers cache prompts from about 1,000 tokens on.
const LINES: u32 = 250;

/// Parts of a reply in the form of another interface than chat completions.
const NATIVE: [&str; 2] = ["anthropic", "responses"];

/// Asks a model, and says what its server does.
pub(super) async fn ask(name: &str, models: &Arc<Models>, sampling: &Map<String, Json>) -> Lines {
    let mut sampling = sampling.clone();
    sampling.retain(|field, _| !["max_tokens", "max_completion_tokens"].contains(&field.as_str()));
    let ledger = Arc::new(Ledger::new(Budget::default(), Prices::default()));
    let asking =
        Asking { model: HttpModel::named(models.clone(), name), sampling, ledger, sent: models.requests() };
    let mut lines = Lines::new();
    asking.all(models, &mut lines).await;
    let (sent, used) = (models.requests() - asking.sent, asking.ledger.snapshot().used);
    let requests = format!("{}, {} tokens", counted(sent, "request"), grouped(used.tokens));
    lines.push(("model.asked", Ok(requests)));
    lines
}

/// The requests to a model.
struct Asking {
    model: HttpModel,
    sampling: Map<String, Json>,
    ledger: Arc<Ledger>,
    /// Number of requests that were sent before.
    sent: u64,
}

impl Asking {
    async fn all(&self, models: &Models, lines: &mut Lines) {
        let mut tools = vec![ping()];
        let mut messages = opening();
        let mut first = self.complete(&messages, &tools, SHORT).await;
        if matches!(&first, Err(error) if error.kind == ModelErrorKind::NoTools) {
            tools.clear();
            first = self.complete(&messages, &tools, SHORT).await;
        } else if matches!(&first, Ok(reply) if is_cut(reply) && !calls(reply)) {
            first = self.complete(&messages, &tools, LONG).await;
        }
        let reply = match first {
            Ok(reply) => reply,
            Err(error) => return lines.push(("model.tools", Err(error.message))),
        };
        lines.push(("model.tools", Ok(tools_words(&reply, !tools.is_empty()))));
        lines.push(("model.stream", Ok(stream_words(models.streaming()).to_owned())));
        let reasoning = reasoning(&reply.message);
        let answers = answers(&reply.message);
        messages.push(reply.message.clone());
        messages.extend(answers.iter().cloned());
        let second = self.complete(&messages, &tools, SHORT).await;
        let cache = match &second {
            Ok(second) => cache_words(second),
            Err(_) => "not known".to_owned(),
        };
        let back = match second {
            Err(error) => Err(format!("the second turn is refused: {}", error.message)),
            Ok(_) if reasoning.is_empty() => Ok("none came".to_owned()),
            Ok(_) => Ok(self.reasoning_words(models, &reasoning, messages, answers.len(), &tools).await),
        };
        lines.push(("model.reasoning", back));
        lines.push(("model.bound", Ok(bound_words(models, self.model.name(), &reply))));
        lines.push(("model.cache", Ok(cache)));
    }

    /// Finds out whether reasoning must come back, by a second turn without it.
    async fn reasoning_words(
        &self,
        models: &Models,
        reasoning: &[String],
        mut messages: Vec<Json>,
        answers: usize,
        tools: &[Json],
    ) -> String {
        let names = listed(reasoning, reasoning.len());
        let left_out = models.rules(self.model.name()).omit_from_replies.clone();
        if reasoning.iter().any(|name| left_out.contains(name)) {
            return format!("{names}, which must not come back");
        }
        let at = messages.len() - answers - 1;
        messages[at] = without_reasoning(&messages[at]).0;
        match self.complete(&messages, tools, SHORT).await {
            Ok(_) if !models.rules(self.model.name()).fill_reasoning => {
                format!("{names}, which comes back; it may be missing")
            }
            _ => format!("{names}, which must come back, and does"),
        }
    }

    async fn complete(&self, messages: &[Json], tools: &[Json], bound: u64) -> Result<ChatReply, ModelError> {
        let messages: Vec<ChatMessage> = messages.iter().cloned().map(ChatMessage::from).collect();
        let mut request = ChatRequest::new(&messages, Instant::now() + TIME, &self.ledger);
        let bound = bound.saturating_add(thinking_budget(&self.sampling));
        (request.tools, request.sampling, request.max_tokens) = (tools, &self.sampling, Some(bound));
        self.model.complete(request).await
    }
}

fn ping() -> Json {
    json!({"type": "function", "function": {
        "name": "ping", "description": "Answers pong.", "parameters": {"type": "object", "properties": {}},
    }})
}

/// A system prompt that is long enough for a cache, and a question.
fn opening() -> Vec<Json> {
    let lines: Vec<String> = (1..=LINES).map(|line| format!("{line}. Ping is answered by pong.")).collect();
    vec![
        json!({"role": "system", "content": lines.join("\n")}),
        json!({"role": "user", "content": "Call the tool ping once. Say nothing else."}),
    ]
}

fn calls(reply: &ChatReply) -> bool {
    reply.message["tool_calls"].as_array().is_some_and(|calls| !calls.is_empty())
}

fn is_cut(reply: &ChatReply) -> bool {
    ReplyEnd::of(reply.finish_reason.as_deref()).is_cut()
}

/// The messages that follow a reply: an answer to each of its calls, or a message of the user.
fn answers(reply: &Json) -> Vec<Json> {
    let calls = reply["tool_calls"].as_array().map_or(&[][..], Vec::as_slice);
    let answers =
        calls.iter().map(|call| json!({"role": "tool", "tool_call_id": call["id"], "content": "pong"}));
    let answers: Vec<_> = answers.collect();
    match answers.is_empty() {
        true => vec![json!({"role": "user", "content": "Say pong."})],
        false => answers,
    }
}

/// Names of the parts of a reply that hold reasoning.
fn reasoning(reply: &Json) -> Vec<String> {
    let mut names = without_reasoning(reply).1;
    names.retain(|name| {
        let native = reply.get(name).filter(|_| NATIVE.contains(&name.as_str()));
        // `{"content": […]}` and `{"output": […]}`.
        native.is_none_or(|native| {
            let parts =
                native.as_object().into_iter().flat_map(serde_json::Map::values).filter_map(Json::as_array);
            let mut kinds = parts.flatten().filter_map(|part| part["type"].as_str());
            kinds.any(|kind| ["thinking", "redacted_thinking", "reasoning"].contains(&kind))
        })
    });
    names
}

fn tools_words(reply: &ChatReply, are_taken: bool) -> String {
    match (are_taken, calls(reply)) {
        (false, _) => "no: code comes in fenced blocks; `tool_calls = false` saves a request".to_owned(),
        (true, true) => "yes".to_owned(),
        (true, false) if is_cut(reply) => {
            format!("taken, but {} tokens were too few for a call", grouped(LONG))
        }
        (true, false) => "taken, but the model answered without a call".to_owned(),
    }
}

fn stream_words(streaming: Streaming) -> &'static str {
    match streaming {
        Streaming::InPieces => "yes, with usage",
        Streaming::WithoutUsage => {
            "without usage: replies are asked for whole; `stream = false` saves a request"
        }
        Streaming::Refused => "no: replies are asked for whole; `stream = false` saves a request",
        Streaming::Whole => "no: replies come whole",
        _ => "not asked for",
    }
}

/// The name of the bound on a completion.
fn bound_words(models: &Models, name: &str, reply: &ChatReply) -> String {
    let rules = models.rules(name);
    let bound = match models.api() {
        Api::Chat => rules.bound.as_deref().unwrap_or("max_tokens"),
        Api::Responses => "max_output_tokens",
        _ => "max_tokens",
    };
    match reply.usage.completion_tokens {
        tokens if tokens > LONG => format!("{bound}, which does not bound: {} tokens came", grouped(tokens)),
        _ => bound.to_owned(),
    }
}

/// The tokens of the second request that were in the cache.
fn cache_words(second: &ChatReply) -> String {
    match (second.usage.cached_tokens, second.usage.prompt_tokens) {
        (0, _) => "no cached tokens told".to_owned(),
        (cached, all) => format!("{} of {} tokens of the second request", grouped(cached), grouped(all)),
    }
}
