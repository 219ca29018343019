//! The rules of a model's server: which parts of a request it takes, and which it refuses.
//!
//! Rules come from the table `servers.toml`, by the address of the server, by the model, or by what the server lists; from
//! settings; and from refusals of the server. A rule learned from a refusal holds for the rest of the run.

mod foreign;
mod kinds;
mod learning;

use std::collections::{BTreeMap, HashSet};
use std::str::FromStr;
use std::sync::LazyLock;
use std::time::Duration;

use reqwest::Url;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value as Json};

pub(super) use self::kinds::{ErrorKind, is_too_long, telling_part};
pub(super) use self::learning::refuses_stream;
use super::api::Api;
use super::message::ChatMessage;

static TABLE: LazyLock<Table> =
    LazyLock::new(|| toml::from_str(include_str!("servers.toml")).expect("the table of servers is valid"));

/// The names of the bound on a completion.
const BOUNDS: [&str; 2] = ["max_tokens", "max_completion_tokens"];

/// Fields that each request has for itself.
const ALWAYS_OURS: [&str; 3] = ["messages", "model", "tools"];

/// The longest completion of a server that needs a bound, where none is set.
const LONGEST_COMPLETION: u64 = 32_000;

/// The table of servers.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    errors: ErrorTexts,
    server: Vec<Row>,
}

/// Parts of the texts of errors, in lower case.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ErrorTexts {
    context_full: Vec<String>,
    not_context_full: Vec<String>,
    alternating: Vec<String>,
    no_system: Vec<String>,
    no_credit: Vec<String>,
    no_tools: Vec<String>,
    no_images: Vec<String>,
    overloaded: Vec<String>,
    bad_call: Vec<String>,
    bad_arguments: Vec<String>,
    bad_content: Vec<String>,
    nameless_answers: Vec<String>,
    other_wire: Vec<String>,
    refused_reasoning: Vec<String>,
}

/// A row of the table.
#[derive(Debug, Deserialize)]
struct Row {
    name: String,
    #[serde(default)]
    hosts: Vec<String>,
    #[serde(default)]
    models: Vec<String>,
    #[serde(default)]
    owned_by: Option<String>,
    #[serde(flatten)]
    rules: Rules,
}

/// The header with the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum KeyHeader {
    /// `Authorization: Bearer KEY`.
    Authorization,
    /// `x-api-key: KEY`.
    XApiKey,
}

/// The form of `content: null` beside calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum NullContent {
    /// An empty text.
    Empty,
    /// The field is left out.
    Omit,
}

/// The form of arguments of calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ArgumentsForm {
    /// Arguments that are not a JSON object are sent as `{}`.
    Json,
}

/// The form of requests that a server takes. By default everything is sent as it is.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Rules {
    /// The interface; chat completions by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api: Option<Api>,
    /// The header with the key; that of the interface by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_header: Option<KeyHeader>,
    /// The name of the bound on a completion: `max_tokens` or `max_completion_tokens`. None: as the request has it.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "bound_name")]
    pub bound: Option<String>,
    /// Fields that we add to requests, and that the server refuses.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "omitted_fields")]
    pub omit: Vec<String>,
    /// Fields of each request, unless a user sets them.
    #[serde(skip_serializing_if = "Map::is_empty", deserialize_with = "added_fields")]
    pub add: Map<String, Json>,
    /// The only fields of replies that the server takes back; all by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reply_fields: Option<Vec<String>>,
    /// The only fields of calls that the server takes back; all by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub call_fields: Option<Vec<String>>,
    /// Fields of replies, and of calls in them, that the server refuses.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub omit_from_replies: Vec<String>,
    /// The form of `content: null` beside calls; as it came by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub null_content: Option<NullContent>,
    /// True if the server refuses replies that say nothing, so that they are left out.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub omit_empty_replies: bool,
    /// True if the server refuses `tool_calls: []`, so that the field is left out.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub omit_empty_calls: bool,
    /// The form of arguments of calls; as they came by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arguments: Option<ArgumentsForm>,
    /// True if the server refuses answers of tools without the tool's name.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub name_answers: bool,
    /// True if the server refuses calls without ids, so that they get ours.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub fill_ids: bool,
    /// True if the server refuses the ids of calls, so that all get ours.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub new_ids: bool,
    /// True if the server refuses names of functions with other signs than letters, digits, `_` and `-`.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub plain_names: bool,
    /// True if the server refuses replies without `reasoning_content`, so that those of other models get a blank one.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub fill_reasoning: bool,
    /// Fields that are added to the first call of a reply in which the model sent none of them.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub first_call_signature: Map<String, Json>,
    /// The text of a reply that is sent between the answer of a tool and a message of the user; none by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_after_tool: Option<String>,
    /// True if the server refuses messages of the user that follow each other, so that they are sent as one.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub join_users: bool,
    /// True if the server refuses a system prompt, so that it is sent at the beginning of the first message of the user.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub system_as_user: bool,
    /// The largest bound on a completion; where none is set, the bound for servers that need one, 32,000 by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub longest_completion: Option<u64>,
    /// Parts of errors of status 429, or in replies, in lower case, that pass, whatever they mean elsewhere, and the seconds until they
    /// are tried again.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub passing_errors: BTreeMap<String, u64>,
    /// Further fields of requests with which the server returns the ids and log probabilities of tokens.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub token_ids: Map<String, Json>,
    /// Fingerprints of the replies whose reasoning the server has refused, as that of another model.
    #[serde(skip)]
    pub foreign_replies: HashSet<u64>,
}

fn bound_name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    let name = Option::<String>::deserialize(deserializer)?;
    match name.as_deref().is_none_or(|name| BOUNDS.contains(&name)) {
        true => Ok(name),
        false => Err(D::Error::custom(format!("`bound`: expected {}", BOUNDS.join(" or ")))),
    }
}

fn omitted_fields<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    let names = Vec::<String>::deserialize(deserializer)?;
    check_names("omit", names.iter())?;
    Ok(names)
}

fn added_fields<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Map<String, Json>, D::Error> {
    let fields = Map::deserialize(deserializer)?;
    check_names("add", fields.keys())?;
    Ok(fields)
}

fn check_names<'a, E: Error>(key: &str, mut names: impl Iterator<Item = &'a String>) -> Result<(), E> {
    match names.find(|name| ALWAYS_OURS.contains(&name.as_str())) {
        Some(name) => Err(E::custom(format!("`{key}`: each request sets its own `{name}`"))),
        None => Ok(()),
    }
}

impl Api {
    /// The interface of the server at this base URL, as far as the table of servers knows it.
    #[must_use]
    pub fn of_url(base_url: &str) -> Option<Self> {
        let url = Url::parse(base_url).ok()?;
        Rules::of_host(url.host_str()?, "").api
    }
}

/// A setting for a model's server: a row of the table of servers, and rules that override it.
#[derive(Clone, Debug, Default)]
pub struct ServerRules {
    /// The name of the row.
    pub name: Option<String>,
    /// The rules.
    pub rules: Rules,
}

impl FromStr for ServerRules {
    type Err = String;

    /// Reads a name, or a JSON object of rules, which may have a `name`.
    fn from_str(text: &str) -> Result<Self, String> {
        let (name, rules) = if text.trim_start().starts_with('{') {
            let expected = |error| format!("expected a name, or a JSON object of rules: {error}");
            let mut rules: Map<String, Json> = serde_json::from_str(text).map_err(expected)?;
            let name = rules.shift_remove("name").and_then(|name| name.as_str().map(str::to_owned));
            (name, serde_json::from_value(rules.into()).map_err(|error| error.to_string())?)
        } else {
            (Some(text.trim().to_owned()), Rules::default())
        };
        let name = name.filter(|name| !name.is_empty());
        name.as_ref().map_or(Ok(()), |name| Rules::named(name, "").map(drop))?;
        Ok(Self { name, rules })
    }
}

/// The request that a server has refused.
#[derive(Clone, Copy, Debug)]
pub(super) struct Refused<'a> {
    pub(super) messages: &'a [ChatMessage],
    /// The fields as they are before the rules.
    pub(super) fields: &'a Map<String, Json>,
    pub(super) streams: bool,
}

impl Rules {
    /// The rules for a model of the server at this host, with its port if the URL has one.
    pub(super) fn of_host(host: &str, model: &str) -> Self {
        Self::of_rows(|row| row.hosts.iter().any(|pattern| is_like(pattern, host)) && row.is_for(model))
    }

    /// The rules for a model of a server that lists itself as its owner.
    pub(super) fn of_owner(owner: &str, model: &str) -> Self {
        Self::of_rows(|row| row.owned_by.as_deref() == Some(owner) && row.is_for(model))
    }

    /// The rules of the rows of this name, for a model.
    ///
    /// # Errors
    /// A sentence with the names of all rows.
    pub fn named(name: &str, model: &str) -> Result<Self, String> {
        if !TABLE.server.iter().any(|row| row.name == name) {
            let names: Vec<_> = TABLE.server.iter().map(|row| row.name.as_str()).collect();
            return Err(format!(
                "{name:?} is not a server that is known: expected one of {}",
                names.join(", ")
            ));
        }
        // Rows for some of a server's models begin with the server's name.
        let is_meant = |row: &Row| {
            row.name.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
        };
        Ok(Self::of_rows(|row| is_meant(row) && row.is_for(model)))
    }

    fn of_rows(is_meant: impl Fn(&Row) -> bool) -> Self {
        let rows = TABLE.server.iter().filter(|row| is_meant(row));
        rows.fold(Self::default(), |rules, row| rules.with(&row.rules))
    }

    /// These rules, replaced by the others where those say something.
    #[must_use]
    pub fn with(mut self, others: &Self) -> Self {
        let add = |all: &mut Vec<String>, more: &[String]| {
            all.extend(more.iter().filter(|name| !all.contains(name)).cloned().collect::<Vec<_>>());
        };
        self.api = others.api.or(self.api);
        self.key_header = others.key_header.or(self.key_header);
        self.bound = others.bound.clone().or(self.bound);
        add(&mut self.omit, &others.omit);
        add(&mut self.omit_from_replies, &others.omit_from_replies);
        self.add.extend(others.add.clone());
        self.reply_fields = others.reply_fields.clone().or(self.reply_fields);
        self.call_fields = others.call_fields.clone().or(self.call_fields);
        self.null_content = others.null_content.or(self.null_content);
        self.arguments = others.arguments.or(self.arguments);
        self.omit_empty_replies |= others.omit_empty_replies;
        self.omit_empty_calls |= others.omit_empty_calls;
        self.name_answers |= others.name_answers;
        self.fill_ids |= others.fill_ids;
        self.new_ids |= others.new_ids;
        self.plain_names |= others.plain_names;
        self.fill_reasoning |= others.fill_reasoning;
        self.join_users |= others.join_users;
        self.system_as_user |= others.system_as_user;
        self.first_call_signature.extend(others.first_call_signature.clone());
        self.user_after_tool = others.user_after_tool.clone().or(self.user_after_tool);
        self.longest_completion = others.longest_completion.or(self.longest_completion);
        self.passing_errors.extend(others.passing_errors.clone());
        self.token_ids.extend(others.token_ids.clone());
        self
    }

    /// The header with the key.
    pub(super) fn key_header(&self, api: Api) -> KeyHeader {
        let of_api = if api == Api::Anthropic { KeyHeader::XApiKey } else { KeyHeader::Authorization };
        self.key_header.unwrap_or(of_api)
    }

    pub(super) fn omits(&self, field: &str) -> bool {
        self.omit.iter().any(|omitted| omitted == field)
    }

    pub(super) fn omits_of_replies(&self, field: &str) -> bool {
        let is_unknown = |known: &Vec<String>| !known.iter().any(|known| known == field);
        self.reply_fields.as_ref().is_some_and(is_unknown)
            || self.omit_from_replies.iter().any(|omitted| omitted == field)
    }

    /// True if calls may be changed before they are sent.
    pub(super) fn changes_calls(&self) -> bool {
        self.call_fields.is_some()
            || self.arguments.is_some()
            || self.fill_ids
            || self.new_ids
            || self.plain_names
            || !self.first_call_signature.is_empty()
            || !self.omit_from_replies.is_empty()
    }

    pub(super) fn omits_of_calls(&self, field: &str) -> bool {
        self.call_fields.as_ref().is_some_and(|known| !known.iter().any(|known| known == field))
            || self.omit_from_replies.iter().any(|omitted| omitted == field)
    }

    /// The server's name for the bound on a completion, and the other name.
    pub(super) fn bound(&self) -> Option<(&'static str, &'static str)> {
        let [old, new] = BOUNDS;
        match self.bound.as_deref()? {
            name if name == new => Some((new, old)),
            _ => Some((old, new)),
        }
    }

    /// Fields of requests with which the server returns the ids and log probabilities of tokens: by default those of vLLM.
    pub(super) fn token_ids(&self) -> Map<String, Json> {
        if !self.token_ids.is_empty() {
            return self.token_ids.clone();
        }
        ["return_token_ids", "logprobs"].into_iter().map(|field| (field.to_owned(), true.into())).collect()
    }

    /// The pause after which a request with this error may pass, where the server says so.
    pub(super) fn pause_after(&self, error: &str) -> Option<Duration> {
        let error = error.to_lowercase();
        let (_, seconds) = self.passing_errors.iter().find(|(part, _)| error.contains(part.as_str()))?;
        Some(Duration::from_secs(*seconds))
    }

    /// True if messages are sent in other roles, or joined.
    pub(super) fn changes_turns(&self) -> bool {
        self.join_users || self.system_as_user
    }

    pub(super) fn longest_completion(&self) -> u64 {
        self.longest_completion.unwrap_or(LONGEST_COMPLETION)
    }
}

impl Row {
    fn is_for(&self, model: &str) -> bool {
        let last_part = model.rsplit('/').next().unwrap_or(model);
        self.models.is_empty()
            || self.models.iter().any(|pattern| is_like(pattern, model) || is_like(pattern, last_part))
    }
}

fn has_any(message: &str, parts: &[String]) -> bool {
    let message = message.to_lowercase();
    parts.iter().any(|part| message.contains(part.as_str()))
}

/// True if a text has this name as a word of its own.
pub(super) fn names_word(text: &str, name: &str) -> bool {
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    text.match_indices(name)
        .any(|(at, _)| !text[..at].ends_with(is_part) && !text[at + name.len()..].starts_with(is_part))
}

/// True if a text fits a pattern, in which `*` stands for any characters.
fn is_like(pattern: &str, text: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else { return pattern == text };
    text.strip_prefix(start)
        .is_some_and(|text| (0..=text.len()).any(|at| text.get(at..).is_some_and(|text| is_like(rest, text))))
}

#[cfg(test)]
mod tests;
