//! Replies of a model's server.

use std::io::{self, Write};
use std::sync::{LazyLock, Mutex, PoisonError};

use rlm_core::text::grouped;
use serde_json::{Map, Value as Json, json};

use super::error::SubCallError;
use super::estimate::text_tokens;
use super::message::{refusal, reply_text};
use super::reply_end::ReplyEnd;
use crate::ledger::{Estimate, Usage};

/// Largest number of tokens that we believe from a server, for a prompt or a completion.
const MAX_TOKENS: u64 = 1 << 31;

/// Largest cost that we believe from a server, for a request.
const MAX_COST_USD: f64 = 1e4;

/// Places of the tokens of a prompt that were read from the server's cache: OpenAI and most others, DeepSeek, Moonshot, proxies of
/// Anthropic's models.
const CACHED: [&str; 4] = [
    "prompt_tokens_details.cached_tokens",
    "prompt_cache_hit_tokens",
    "cached_tokens",
    "cache_read_input_tokens",
];

/// Places of a prompt's tokens that were written to the cache: OpenAI, OpenRouter and our own Anthropic wire, LiteLLM, DashScope,
/// proxies of Anthropic's models.
const CACHE_WRITE: [&str; 4] = [
    "prompt_tokens_details.cache_write_tokens",
    "prompt_tokens_details.cache_creation_tokens",
    "prompt_tokens_details.cache_creation_input_tokens",
    "cache_creation_input_tokens",
];

/// Places of the tokens among those that the cache keeps for an hour: LiteLLM and our own Anthropic wire.
const HOUR_CACHE_WRITE: [&str; 1] =
    ["prompt_tokens_details.cache_creation_token_details.ephemeral_1h_input_tokens"];

/// Places of the tokens of a completion that are reasoning: OpenAI and most others.
const REASONING: [&str; 2] = ["completion_tokens_details.reasoning_tokens", "reasoning_tokens"];

/// xAI's cost units per USD (<https://docs.x.ai/developers/cost-tracking>).
const TICKS_PER_USD: f64 = 1e10;

/// Fields of a body and of a choice that OpenAI's form always has.
const USUAL: [&str; 9] =
    ["id", "object", "created", "model", "choices", "usage", "index", "message", "finish_reason"];

/// Bounds that are not above this are reached by whole replies, and OpenAI's least one over Responses is 16.
const LEAST_CUT: u64 = 16;

/// Most bytes of the further fields of a reply, as JSON.
const MAX_EXTRA_BYTES: usize = 4 << 20;

/// The message of a choice that has none, as Gemini sends it where a filter left nothing of the reply.
static EMPTY: LazyLock<Json> = LazyLock::new(|| json!({"role": "assistant", "content": null}));

/// A body of status 200.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) body: Json,
    /// Changes to the request before it was sent, and their reasons.
    pub(super) adapted: Vec<String>,
}

/// The part of a reply that came, where the reply did not end.
#[derive(Debug, Default)]
pub(super) struct Came(Mutex<Option<Reply>>);

impl Came {
    pub(super) fn put(&self, part: Json) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Reply::new(part));
    }

    pub(super) fn take(&self) -> Option<Reply> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// The content of a reply.
#[derive(Debug)]
pub(super) enum ReplyContent {
    Text(String),
    /// Calls of tools, at least one, and the message that they are in.
    Calls {
        calls: Vec<Json>,
        message: Json,
    },
}

/// Puts a sentence in place of the largest fields, until the rest is within the bound.
fn bound(extra: &mut Map<String, Json>) {
    let mut sizes: Vec<_> = extra.iter().map(|(name, value)| (json_bytes(value), name.clone())).collect();
    sizes.sort_unstable();
    let mut room = MAX_EXTRA_BYTES;
    for (bytes, name) in sizes {
        match room.checked_sub(bytes) {
            Some(left) => room = left,
            None => {
                let (bytes, most) = (grouped(bytes as u64), grouped(MAX_EXTRA_BYTES as u64));
                let sentence =
                    format!("left out: {bytes} bytes, where all further fields of a reply may have {most}");
                extra.insert(name, sentence.into());
            }
        }
    }
}

/// The value at a path of names with dots between them. `Value::pointer` makes copies of each name.
fn at<'a>(json: &'a Json, path: &str) -> Option<&'a Json> {
    path.split('.').try_fold(json, |json, name| json.get(name))
}

/// A count of tokens, which some servers write as a float.
pub(super) fn count(json: &Json) -> Option<u64> {
    let whole = || json.as_f64().filter(|count| count.fract() == 0.0 && *count >= 0.0);
    json.as_u64().or_else(|| whole().map(|count| count as u64))
}

/// The length of a value as JSON.
fn json_bytes(value: &Json) -> usize {
    struct Counter(usize);
    impl Write for Counter {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut counter = Counter(0);
    // Counting cannot fail.
    _ = serde_json::to_writer(&mut counter, value);
    counter.0
}

impl Reply {
    pub(super) fn new(body: Json) -> Self {
        Self { body, adapted: Vec::new() }
    }

    /// The reply, as cut off if it ends at the bound. Some servers give another reason: `tool_calls` for a call that the bound has cut
    /// (vllm-project/vllm#53269), `stop` (BerriAI/litellm#25825), `completed` (unslothai/unsloth#10177).
    pub(super) fn cut_at(mut self, bound: Option<u64>) -> Self {
        let reported = self.reported_usage().and_then(|usage| count(usage.get("completion_tokens")?));
        let end = self.end();
        if reported.is_none_or(|tokens| tokens <= LEAST_CUT)
            || reported != bound
            || !matches!(end, ReplyEnd::Done)
        {
            return self;
        }
        if let Some(Json::Array(choices)) = self.body.get_mut("choices")
            && let [choice] = choices.as_mut_slice()
            && choice.is_object()
        {
            let told = choice["finish_reason"].as_str().unwrap_or_default();
            let tokens = bound.unwrap_or_default();
            self.adapted.push(format!(
                "the reply has all of its {tokens} tokens, so it counts as cut off, although the server says {told:?}"
            ));
            choice["finish_reason"] = "length".into();
        }
        self
    }

    /// The message of the first choice.
    pub(super) fn message(&self) -> Result<&Json, SubCallError> {
        let malformed = |what: &str| Err(SubCallError::Malformed(what.to_owned()));
        match self.body.get("choices") {
            None | Some(Json::Null) => malformed("it has no choices"),
            Some(Json::Array(choices)) if choices.is_empty() => malformed("its choices are empty"),
            Some(Json::Array(_)) if self.end() == ReplyEnd::BadCall => {
                malformed("the server could not read the call in it")
            }
            Some(Json::Array(choices)) => match (&choices[0], choices[0].get("message")) {
                (_, Some(message @ Json::Object(_))) => Ok(message),
                (Json::Object(_), None | Some(Json::Null)) => Ok(&EMPTY),
                _ => malformed("its choice has no message"),
            },
            Some(_) => malformed("its choices are not a list"),
        }
    }

    /// The further fields of the first choice, and of the body: `logprobs`, `token_ids`, `prompt_token_ids`. None if there are
    /// none. Fields beyond [`MAX_EXTRA_BYTES`] are a sentence that says so.
    pub(super) fn extra(&self) -> Option<Json> {
        let objects = [self.choice(), Some(&self.body)];
        let fields = objects.into_iter().flatten().filter_map(Json::as_object).flatten();
        let mut extra = Map::new();
        for (name, value) in
            fields.filter(|(name, value)| !value.is_null() && !USUAL.contains(&name.as_str()))
        {
            extra.entry(name.clone()).or_insert_with(|| value.clone());
        }
        bound(&mut extra);
        (!extra.is_empty()).then_some(Json::Object(extra))
    }

    /// The text, or the calls of tools if the model may make any.
    pub(super) fn said(&self, may_call: bool) -> Result<ReplyContent, SubCallError> {
        let message = self.message()?;
        if may_call
            && let Some(Json::Array(calls)) = message.get("tool_calls")
            && !calls.is_empty()
        {
            return Ok(ReplyContent::Calls { calls: calls.clone(), message: message.clone() });
        }
        let text = reply_text(message, self.finish_reason())
            .ok_or_else(|| SubCallError::Malformed("its content is not text".to_owned()))?;
        if !text.trim().is_empty() {
            return Ok(ReplyContent::Text(text));
        }
        if let Some(refusal) = refusal(message, self.finish_reason()) {
            return Err(SubCallError::Refused(refusal));
        }
        Err(if self.end().is_cut() { SubCallError::NoTextWithinTokens } else { SubCallError::NoText })
    }

    /// The reason why the first choice ended.
    pub(super) fn finish_reason(&self) -> Option<&str> {
        self.choice()?.get("finish_reason")?.as_str()
    }

    /// Why the first choice ended.
    pub(super) fn end(&self) -> ReplyEnd {
        ReplyEnd::of(self.finish_reason())
    }

    /// The usage and cost as reported by the server; estimated if it reports none.
    pub(super) fn usage(&self, estimate: &Estimate) -> Usage {
        let usage = self.reported_usage();
        let reported = |place: &&str| Some(count(at(usage?, place)?)?.min(MAX_TOKENS));
        let first = |places: &[&str]| places.iter().find_map(reported);
        let (cached, written) = (first(&CACHED).unwrap_or(0), first(&CACHE_WRITE).unwrap_or(0));
        let (prompt, completion) = (first(&["prompt_tokens"]), first(&["completion_tokens"]));
        // Proxies of Anthropic's models leave out what the cache has read or written, as Anthropic does (Portkey-AI/gateway#1754,
        // decolua/9router#2658). Portkey's total has it.
        let is_without_cache = |prompt: u64| {
            let sum = prompt + completion.unwrap_or(0) + cached + written;
            cached.max(written) > prompt || cached + written > 0 && first(&["total_tokens"]) == Some(sum)
        };
        let prompt =
            prompt.map(|prompt| prompt + if is_without_cache(prompt) { cached + written } else { 0 });
        // No prompt is empty: servers that do not count say 0.
        let prompt = prompt.filter(|tokens| *tokens > 0);
        let completion = completion.filter(|tokens| *tokens > 0 || prompt.is_some());
        // Gemini and xAI count reasoning only in the total.
        let beyond_prompt =
            first(&["total_tokens"]).zip(prompt).map(|(total, prompt)| total.saturating_sub(prompt));
        let of_total =
            beyond_prompt.zip(completion).map_or(0, |(beyond, tokens)| beyond.saturating_sub(tokens));
        let completion = completion.map(|tokens| tokens + of_total);
        let amount = |place: &str| at(usage?, place)?.as_f64();
        // If the user has a key for the server behind OpenRouter, it reports that server's price apart.
        let is_byok = usage.and_then(|usage| usage.get("is_byok")?.as_bool()).unwrap_or(false);
        let upstream = amount("cost_details.upstream_inference_cost").filter(|_| is_byok);
        let cost = amount("cost")
            .map(|cost| cost + upstream.unwrap_or(0.0))
            .or_else(|| Some(amount("cost_in_usd_ticks")? / TICKS_PER_USD));
        let prompt_tokens = prompt.unwrap_or(estimate.prompt_tokens);
        let completion_tokens = completion.unwrap_or_else(|| self.completion_tokens());
        let cached_tokens = cached.min(prompt_tokens);
        let cache_write_tokens = written.min(prompt_tokens - cached_tokens);
        Usage {
            prompt_tokens,
            completion_tokens,
            cached_tokens,
            cache_write_tokens,
            hour_cache_write_tokens: first(&HOUR_CACHE_WRITE).unwrap_or(0).min(cache_write_tokens),
            reasoning_tokens: first(&REASONING).unwrap_or(of_total).min(completion_tokens),
            cost_usd: cost.filter(|cost| cost.is_finite() && (0.0..MAX_COST_USD).contains(cost)),
            is_estimated: prompt.is_none() || completion.is_none(),
        }
    }

    /// The usage as reported: in streams of Moonshot, it is in the choice.
    pub(super) fn reported_usage(&self) -> Option<&Json> {
        let objects = [Some(&self.body), self.choice()];
        objects
            .into_iter()
            .filter_map(|object| object?.get("usage"))
            .find(|usage| usage.as_object().is_some_and(|usage| !usage.is_empty()))
    }

    fn choice(&self) -> Option<&Json> {
        self.body.get("choices")?.get(0)
    }

    /// The tokens of all choices, as estimated.
    fn completion_tokens(&self) -> u64 {
        let choices = self.body.get("choices").and_then(Json::as_array);
        choices.map_or(0, |choices| {
            choices.iter().map(|choice| text_tokens(&choice["message"].to_string())).sum()
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn servers_put_parts_of_usage_in_different_places() {
        let estimate = Estimate {
            model: "m".into(),
            prompt_tokens: 9,
            cached_tokens: 0,
            completion_tokens: 9,
            has_hour_cache: false,
            is_reserved: false,
        };
        let usage = |usage: Json| Reply::new(json!({"choices": [], "usage": usage})).usage(&estimate);
        let base = || Usage::new(100, 10);
        let openai = json!({
            "prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110,
            "prompt_tokens_details": {"cached_tokens": 80, "cache_write_tokens": 30},
            "completion_tokens_details": {"reasoning_tokens": 4},
        });
        let parts = Usage { cached_tokens: 80, cache_write_tokens: 20, reasoning_tokens: 4, ..base() };
        assert_eq!(usage(openai), parts);
        let litellm = json!({
            "prompt_tokens": 100, "completion_tokens": 10,
            "prompt_tokens_details": {"cache_creation_tokens": 30, "cache_creation_token_details": {"ephemeral_1h_input_tokens": 20}},
        });
        assert_eq!(usage(litellm), Usage { cache_write_tokens: 30, hour_cache_write_tokens: 20, ..base() });
        let deepseek = json!({"prompt_tokens": 100, "completion_tokens": 10, "prompt_cache_hit_tokens": 64});
        assert_eq!(usage(deepseek), Usage { cached_tokens: 64, ..base() });
        // Portkey, as it reads the cache and as it writes it, and 9router.
        let read = Usage { cached_tokens: 900, ..Usage::new(1000, 10) };
        let written = Usage { cache_write_tokens: 900, ..Usage::new(1000, 10) };
        for (counts, expected) in [
            (json!({"total_tokens": 1010, "cache_read_input_tokens": 900}), read),
            (
                json!({"total_tokens": 1010, "cache_read_input_tokens": 0, "cache_creation_input_tokens": 900}),
                written,
            ),
            (json!({"total_tokens": 110, "prompt_tokens_details": {"cached_tokens": 900}}), read),
            (
                json!({"total_tokens": 200, "prompt_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 30}}),
                Usage { cached_tokens: 60, cache_write_tokens: 30, ..Usage::new(190, 10) },
            ),
        ] {
            let mut reported = json!({"prompt_tokens": 100, "completion_tokens": 10});
            reported.as_object_mut().unwrap().extend(counts.as_object().unwrap().clone());
            assert_eq!(usage(reported), expected, "{counts}");
        }
        assert_eq!(usage(json!({"prompt_tokens": 100.0, "completion_tokens": 10.0})), base());
        assert!(usage(json!({"prompt_tokens": 100.5, "completion_tokens": -1.0})).is_estimated);
        let gemini = json!({"prompt_tokens": 100, "completion_tokens": 1, "total_tokens": 110});
        assert_eq!(usage(gemini), Usage { reasoning_tokens: 9, ..base() });
        let openrouter = json!({"prompt_tokens": 100, "completion_tokens": 10, "cost": 0.25});
        assert_eq!(usage(openrouter), Usage { cost_usd: Some(0.25), ..base() });
        let byok = json!({
            "prompt_tokens": 100, "completion_tokens": 10, "cost": 0.25, "is_byok": true,
            "cost_details": {"upstream_inference_cost": 0.5},
        });
        assert_eq!(usage(byok).cost_usd, Some(0.75));
        let xai =
            json!({"prompt_tokens": 100, "completion_tokens": 10, "cost_in_usd_ticks": 5_000_000_000_u64});
        assert_eq!(usage(xai).cost_usd, Some(0.5));
        for nonsense in [json!(-1), json!(1e9), json!("1")] {
            let told = usage(json!({"prompt_tokens": 100, "completion_tokens": 10, "cost": nonsense}));
            assert_eq!(told.cost_usd, None);
        }
        let moonshot = json!({"choices": [{"usage": {"prompt_tokens": 100, "completion_tokens": 10}}]});
        assert_eq!(Reply::new(moonshot).usage(&estimate), base());
        assert!(usage(Json::Null).is_estimated);
        let zeros = usage(json!({"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}));
        assert_eq!((zeros.is_estimated, zeros.prompt_tokens), (true, estimate.prompt_tokens));
    }

    #[test]
    fn a_reply_that_ends_at_its_bound_is_cut_whatever_the_server_says() {
        let reply = |reason: &str, tokens: u64| {
            let choice = json!({"message": {"content": "a"}, "finish_reason": reason});
            Reply::new(
                json!({"choices": [choice], "usage": {"prompt_tokens": 1, "completion_tokens": tokens}}),
            )
        };
        for (reason, tokens, bound, end, notes) in [
            ("tool_calls", 4096, Some(4096), ReplyEnd::Cut, 1),
            ("stop", 4096, Some(4096), ReplyEnd::Cut, 1),
            ("length", 4096, Some(4096), ReplyEnd::Cut, 0),
            ("content_filter", 4096, Some(4096), ReplyEnd::Filtered, 0),
            ("stop", 4095, Some(4096), ReplyEnd::Done, 0),
            ("stop", 4097, Some(4096), ReplyEnd::Done, 0),
            ("stop", 4096, None, ReplyEnd::Done, 0),
            ("stop", 1, Some(1), ReplyEnd::Done, 0),
        ] {
            let reply = reply(reason, tokens).cut_at(bound);
            assert_eq!((reply.end(), reply.adapted.len()), (end, notes), "{reason} {tokens} {bound:?}");
        }
    }

    #[test]
    fn a_thought_that_is_sent_again_as_text_is_none() {
        let reply = |reason: &str, content: &str| {
            let message = json!({"reasoning_content": "I run `ls`.", "content": content});
            Reply::new(json!({"choices": [{"message": message, "finish_reason": reason}]})).said(false)
        };
        assert!(matches!(reply("length", "I run `ls`.\n"), Err(SubCallError::NoTextWithinTokens)));
        for (reason, content) in [("stop", "I run `ls`."), ("length", "I run")] {
            assert!(matches!(reply(reason, content), Ok(ReplyContent::Text(text)) if text == content));
        }
    }

    #[test]
    fn the_largest_further_fields_give_way_to_a_sentence() {
        let ids: Vec<u32> = (0..100_000).collect();
        let logprobs: Vec<_> =
            (0..60_000).map(|_| json!({"token": "a".repeat(60), "logprob": -0.125})).collect();
        let choice = json!({"message": {}, "finish_reason": "stop", "token_ids": ids, "logprobs": {"content": logprobs}});
        let reply = Reply::new(json!({"choices": [choice], "system_fingerprint": "f"}));
        let extra = reply.extra().unwrap();
        assert_eq!((&extra["token_ids"], &extra["system_fingerprint"]), (&json!(ids), &json!("f")));
        let sentence = extra["logprobs"].as_str().unwrap();
        assert!(
            sentence.starts_with("left out: 5,") && sentence.ends_with(" may have 4,194,304"),
            "{sentence}"
        );
    }
}
