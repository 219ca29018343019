//! Replies of a model's server.

use serde_json::{Map, Value as Json};

use super::error::SubCallError;
use super::estimate::text_tokens;
use super::message::message_text;
use crate::ledger::{Estimate, Usage};

/// Largest number of tokens that we believe from a server, for a prompt or a completion.
const MAX_TOKENS: u64 = 1 << 31;

/// Fields of a body and of a choice that OpenAI's form always has.
const USUAL: [&str; 9] =
    ["id", "object", "created", "model", "choices", "usage", "index", "message", "finish_reason"];

/// A body of status 200.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) body: Json,
}

/// The content of a reply.
#[derive(Debug)]
pub(super) enum ReplyContent {
    Text(String),
    /// Calls of tools, at least one, and the content beside them.
    Calls {
        calls: Vec<Json>,
        content: Json,
    },
}

impl Reply {
    /// The message of the first choice.
    pub(super) fn message(&self) -> Result<&Json, SubCallError> {
        let malformed = |what: &str| Err(SubCallError::Malformed(what.to_owned()));
        match self.body.get("choices") {
            None | Some(Json::Null) => malformed("it has no choices"),
            Some(Json::Array(choices)) if choices.is_empty() => malformed("its choices are empty"),
            Some(Json::Array(choices)) => match choices[0].get("message") {
                Some(message @ Json::Object(_)) => Ok(message),
                _ => malformed("its choice has no message"),
            },
            Some(_) => malformed("its choices are not a list"),
        }
    }

    /// The further fields of the first choice, and of the body: `logprobs`, `token_ids`, `prompt_token_ids`. None if there are
    /// none.
    pub(super) fn extra(&self) -> Option<Json> {
        let objects = [self.body.pointer("/choices/0"), Some(&self.body)];
        let fields = objects.into_iter().flatten().filter_map(Json::as_object).flatten();
        let mut extra = Map::new();
        for (name, value) in
            fields.filter(|(name, value)| !value.is_null() && !USUAL.contains(&name.as_str()))
        {
            extra.entry(name.clone()).or_insert_with(|| value.clone());
        }
        (!extra.is_empty()).then_some(Json::Object(extra))
    }

    /// The text, or calls of tools if it may make any.
    pub(super) fn said(&self, may_call: bool) -> Result<ReplyContent, SubCallError> {
        let message = self.message()?;
        if may_call
            && let Some(Json::Array(calls)) = message.get("tool_calls")
            && !calls.is_empty()
        {
            return Ok(ReplyContent::Calls { calls: calls.clone(), content: message["content"].clone() });
        }
        let text = message_text(message)
            .ok_or_else(|| SubCallError::Malformed("its content is not text".to_owned()))?;
        if !text.trim().is_empty() {
            return Ok(ReplyContent::Text(text));
        }
        if let Some(refusal) = message.get("refusal").and_then(Json::as_str) {
            return Err(SubCallError::Refused(refusal.to_owned()));
        }
        let reason = self.body.pointer("/choices/0/finish_reason").and_then(Json::as_str);
        Err(if reason == Some("length") { SubCallError::NoTextWithinTokens } else { SubCallError::NoText })
    }

    /// The usage and cost as reported by the server; estimated if it reports none.
    pub(super) fn usage(&self, estimate: &Estimate) -> Usage {
        let reported = |name: &str| Some(self.body.get("usage")?.get(name)?.as_u64()?.min(MAX_TOKENS));
        match (reported("prompt_tokens"), reported("completion_tokens")) {
            (Some(prompt_tokens), Some(completion_tokens)) => {
                Usage { prompt_tokens, completion_tokens, is_estimated: false }
            }
            (prompt, completion) => Usage {
                prompt_tokens: prompt.unwrap_or(estimate.prompt_tokens),
                completion_tokens: completion.unwrap_or_else(|| self.completion_tokens()),
                is_estimated: true,
            },
        }
    }

    /// The tokens of all choices, as estimated.
    fn completion_tokens(&self) -> u64 {
        let choices = self.body.get("choices").and_then(Json::as_array);
        choices.map_or(0, |choices| {
            choices.iter().map(|choice| text_tokens(&choice["message"].to_string())).sum()
        })
    }
}
