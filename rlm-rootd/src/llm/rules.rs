//! The rules of a model's server: which parts of a request it takes, and which it refuses.
//!
//! Rules come from the table `servers.toml`, by the address of the server, by the model, or by what the server lists; from
//! settings; and from refusals of the server. A rule learned from a refusal holds for the rest of the run.

use std::str::FromStr;
use std::sync::LazyLock;

use reqwest::Url;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

use super::api::Api;
use super::estimate::NATIVE;
use super::message::{ChatMessage, call_arguments};

static TABLE: LazyLock<Table> =
    LazyLock::new(|| toml::from_str(include_str!("servers.toml")).expect("the table of servers is valid"));

/// The names of the bound on a completion.
const BOUNDS: [&str; 2] = ["max_tokens", "max_completion_tokens"];

/// Fields that we add to requests and that can be left out. What a user sets is never left out.
const OPTIONAL: [&str; 5] = ["stream_options", "tool_choice", "include", "return_token_ids", "logprobs"];

/// Words of errors that refuse a field.
const REFUSING: [&str; 14] = [
    "unsupported",
    "not supported",
    "not support",
    "unknown",
    "unrecognized",
    "unrecognised",
    "unexpected",
    "extra inputs",
    "extra_forbidden",
    "extra fields",
    "not permitted",
    "not allowed",
    "cannot find field",
    "invalid field",
];

/// Fields of replies that every server takes back.
const COMMON: [&str; 4] = ["role", "content", "tool_calls", "function_call"];

/// Words of errors that refuse `content: null`.
const NULL_WORDS: [&str; 6] = ["null", "none", "empty", "missing", "must be a string", "valid string"];

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
    other_wire: Vec<String>,
    refused_reasoning: Vec<String>,
}

/// The kind of an error, by its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ErrorKind {
    /// The conversation is too long for the model.
    ContextFull,
    /// The error is about something other than the conversation's length, whatever its status says.
    NotContextFull,
    /// The account has nothing left to pay with.
    NoCredit,
    /// The server refuses tools.
    NoTools,
    /// The server refuses images, or the ones that were sent.
    NoImages,
    /// The same request may pass later.
    Overloaded,
    /// The model wrote a call that the server cannot read; the next sample may be right.
    BadCall,
    /// The same request would be right over another interface of the server.
    OtherWire,
}

impl ErrorKind {
    /// True if an error with this text is of this kind.
    pub(super) fn is_of(self, text: &str) -> bool {
        let errors = &TABLE.errors;
        match self {
            Self::ContextFull => has_any(text, &errors.context_full) && !Self::NotContextFull.is_of(text),
            Self::NotContextFull => has_any(text, &errors.not_context_full),
            Self::NoCredit => has_any(text, &errors.no_credit),
            Self::NoTools => has_any(text, &errors.no_tools),
            Self::NoImages => has_any(text, &errors.no_images),
            Self::Overloaded => has_any(text, &errors.overloaded),
            Self::BadCall => has_any(text, &errors.bad_call),
            Self::OtherWire => has_any(text, &errors.other_wire),
        }
    }
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
    /// The name of the bound on a completion: `max_tokens` or `max_completion_tokens`. None: as the request has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bound: Option<String>,
    /// Fields that we add to requests, and that the server refuses.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub omit: Vec<String>,
    /// Fields of each request, unless a user sets them.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub add: Map<String, Json>,
    /// The only fields of replies that the server takes back; all by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reply_fields: Option<Vec<String>>,
    /// The only fields of calls that the server takes back; all by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub call_fields: Option<Vec<String>>,
    /// Fields of replies that the server refuses.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub omit_from_replies: Vec<String>,
    /// The form of `content: null` beside calls; as it came by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub null_content: Option<NullContent>,
    /// The form of arguments of calls; as they came by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arguments: Option<ArgumentsForm>,
    /// True if the server refuses calls without ids, so that they get ours.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub fill_ids: bool,
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
    /// The bound on a completion where none is set, for servers that need one; 32,000 by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub longest_completion: Option<u64>,
    /// Further fields of requests with which the server returns the ids and log probabilities of tokens.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub token_ids: Map<String, Json>,
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
        self.bound = others.bound.clone().or(self.bound);
        add(&mut self.omit, &others.omit);
        add(&mut self.omit_from_replies, &others.omit_from_replies);
        self.add.extend(others.add.clone());
        self.reply_fields = others.reply_fields.clone().or(self.reply_fields);
        self.call_fields = others.call_fields.clone().or(self.call_fields);
        self.null_content = others.null_content.or(self.null_content);
        self.arguments = others.arguments.or(self.arguments);
        self.fill_ids |= others.fill_ids;
        self.join_users |= others.join_users;
        self.system_as_user |= others.system_as_user;
        self.first_call_signature.extend(others.first_call_signature.clone());
        self.user_after_tool = others.user_after_tool.clone().or(self.user_after_tool);
        self.longest_completion = others.longest_completion.or(self.longest_completion);
        self.token_ids.extend(others.token_ids.clone());
        self
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
            || !self.first_call_signature.is_empty()
    }

    pub(super) fn omits_of_calls(&self, field: &str) -> bool {
        self.call_fields.as_ref().is_some_and(|known| !known.iter().any(|known| known == field))
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

    pub(super) fn longest_completion(&self) -> u64 {
        self.longest_completion.unwrap_or(LONGEST_COMPLETION)
    }

    /// Learns from the error of a request what the server refuses. Returns the new rule in words. None if there is none, so that
    /// the request is not sent again.
    pub(super) fn learn(&mut self, status: u16, error: &str, refused: Refused<'_>) -> Option<String> {
        let error = error.to_lowercase();
        // A server's own fault is told in any words. llama-cpp-python refuses with the same status, in the words of pydantic.
        let refuses_field = status < 500 || error.contains("extra_forbidden");
        let of_fields = if refuses_field { self.learn_fields(&error, refused) } else { None };
        of_fields.or_else(|| self.learn_native(&error, refused)).or_else(|| self.learn_form(&error, refused))
    }

    fn learn_fields(&mut self, error: &str, refused: Refused<'_>) -> Option<String> {
        self.learn_bound(error, refused)
            .or_else(|| self.learn_longest_completion(error))
            .or_else(|| self.learn_field(error, refused))
            .or_else(|| self.learn_reply_field(error, refused))
    }

    fn learn_bound(&mut self, error: &str, refused: Refused<'_>) -> Option<String> {
        let [old, new] = BOUNDS;
        let (name, other) = self
            .bound()
            .unwrap_or_else(|| if refused.fields.contains_key(new) { (new, old) } else { (old, new) });
        let sent = BOUNDS.iter().find_map(|name| refused.fields.get(*name));
        // "max_tokens of 60000 is not allowed": the name is right. Pydantic quotes the value in each refusal of a field.
        let is_value = |sent: &Json| error.contains(&sent.to_string()) && !error.contains("extra");
        let is_name = sent.is_some_and(|sent| !is_value(sent));
        if !is_name || self.bound.is_some() || !names_word(error, name) || !refuses(error) {
            return None;
        }
        self.bound = Some(other.to_owned());
        Some(format!("the bound on completions is sent as `{other}`, since the server refuses `{name}`"))
    }

    /// "max_tokens: 32000 > 8192, which is the maximum allowed number of output tokens for …"
    fn learn_longest_completion(&mut self, error: &str) -> Option<String> {
        let (_, rest) = error.split_once("max_tokens: ")?;
        let most = rest.split_once('>')?.1.trim_start();
        let digits = most.len() - most.trim_start_matches(|letter: char| letter.is_ascii_digit()).len();
        let most: u64 = most[..digits].parse().ok()?;
        if most == 0 || most >= self.longest_completion() {
            return None;
        }
        self.longest_completion = Some(most);
        Some(format!("completions are of {most} tokens at most, as the server says"))
    }

    fn learn_field(&mut self, error: &str, refused: Refused<'_>) -> Option<String> {
        let is_encrypted = error.contains("encrypted content is not supported");
        let is_meant = |field: &&&str| match **field {
            "include" if is_encrypted => !self.omits(field),
            field => names_field(error, field) && refuses(error) && !self.omits(field),
        };
        let field = OPTIONAL.iter().find(is_meant)?;
        let is_ours = match *field {
            "stream_options" => refused.streams,
            "tool_choice" => refused.fields.get("tool_choice").is_some_and(|choice| choice == "auto"),
            _ => !refused.fields.contains_key(*field),
        };
        is_ours.then(|| {
            self.omit.push((*field).to_owned());
            format!("`{field}` is left out of requests, since the server refuses it")
        })
    }

    fn learn_reply_field(&mut self, error: &str, refused: Refused<'_>) -> Option<String> {
        if !refuses(error) {
            return None;
        }
        let replies = refused.messages.iter().filter(|message| message["role"] == "assistant");
        let fields = replies.filter_map(|reply| reply.as_object()).flat_map(Map::keys);
        let is_known = |field: &str| COMMON.contains(&field) || NATIVE.contains(&field);
        let mut further = fields.filter(|field| !is_known(field));
        let field = further.find(|field| names_field(error, field) && !self.omits_of_replies(field))?;
        self.omit_from_replies.push(field.clone());
        Some(format!("`{field}` of replies is left out of requests, since the server refuses it"))
    }

    /// Makes replies in the form of another interface anew from their text: a server refuses reasoning that is bound to another
    /// conversation, account or model.
    fn learn_native(&mut self, error: &str, refused: Refused<'_>) -> Option<String> {
        let is_refused = has_any(error, &TABLE.errors.refused_reasoning);
        let has = |field: &str| refused.messages.iter().any(|message| message.get(field).is_some());
        let field = NATIVE.iter().find(|field| is_refused && has(field) && !self.omits_of_replies(field))?;
        self.omit_from_replies.push((*field).to_owned());
        Some("replies are sent without their reasoning, since the server refuses that".to_owned())
    }

    fn learn_form(&mut self, error: &str, refused: Refused<'_>) -> Option<String> {
        let replies = || refused.messages.iter().filter(|message| message["role"] == "assistant");
        let calls = || replies().filter_map(|reply| reply["tool_calls"].as_array()).flatten();
        let is_null = |reply: &ChatMessage| reply.get("content").is_none_or(Json::is_null);
        let refuses_null = || {
            has_any(error, &TABLE.errors.bad_content)
                || names_word(error, "content") && NULL_WORDS.iter().any(|words| error.contains(words))
        };
        if self.null_content.is_none() && replies().any(is_null) && refuses_null() {
            self.null_content = Some(NullContent::Empty);
            return Some(
                "`content` of replies without text is sent as \"\", since the server refuses null".to_owned(),
            );
        }
        let is_broken =
            |call: &Json| serde_json::from_str::<Map<String, Json>>(&call_arguments(call)).is_err();
        if self.arguments.is_none() && has_any(error, &TABLE.errors.bad_arguments) && calls().any(is_broken) {
            self.arguments = Some(ArgumentsForm::Json);
            return Some(
                "arguments that are no JSON object are sent as {}, since the server refuses others"
                    .to_owned(),
            );
        }
        let has_id = |call: &Json| call["id"].as_str().is_some_and(|id| !id.is_empty());
        let names_id = || ["id", "tool_call_id"].iter().any(|name| names_word(error, name));
        if !self.fill_ids && !calls().all(has_id) && names_id() {
            self.fill_ids = true;
            return Some("calls without an id get one, since the server refuses them otherwise".to_owned());
        }
        let is_alternating = has_any(error, &TABLE.errors.alternating);
        let has_pair = |first: &str| {
            refused.messages.windows(2).any(|pair| pair[0]["role"] == first && pair[1]["role"] == "user")
        };
        if is_alternating && !self.join_users && has_pair("user") {
            self.join_users = true;
            return Some(
                "messages of the user that follow each other are sent as one, since the server refuses them otherwise"
                    .to_owned(),
            );
        }
        if !self.system_as_user && has_any(error, &TABLE.errors.no_system) {
            self.system_as_user = true;
            return Some(
                "the system prompt is sent at the beginning of the first message of the user, since the server refuses it"
                    .to_owned(),
            );
        }
        let refuses_user =
            has_any(error, &["after role 'tool'".to_owned()]) || is_alternating && has_pair("tool");
        if self.user_after_tool.is_none() && refuses_user {
            self.user_after_tool = Some("Ok.".to_owned());
            return Some(
                "a short reply stands between answers of tools and messages, since the server wants one"
                    .to_owned(),
            );
        }
        None
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

fn refuses(error: &str) -> bool {
    REFUSING.iter().any(|words| error.contains(words))
}

/// True if a text has this name as a word of its own.
pub(super) fn names_word(text: &str, name: &str) -> bool {
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    text.match_indices(name)
        .any(|(at, _)| !text[..at].ends_with(is_part) && !text[at + name.len()..].starts_with(is_part))
}

/// True if a text names a field. A name that may be a word of English, such as `reasoning`, must stand in quotes, in a path, or
/// alone after a colon.
fn names_field(text: &str, name: &str) -> bool {
    const QUOTES: [char; 3] = ['\'', '"', '`'];
    let is_word = !name.contains('_') && name != "logprobs";
    let is_marked = |at: usize| {
        let (before, after) = (&text[..at], &text[at + name.len()..]);
        let is_quoted = before.ends_with(QUOTES) && after.trim_start_matches('\\').starts_with(QUOTES);
        is_quoted || before.ends_with('.') || before.trim_end().ends_with(':') && !after.starts_with(' ')
    };
    names_word(text, name) && (!is_word || text.match_indices(name).any(|(at, _)| is_marked(at)))
}

/// The place of the words by which the kind of an error is known. Overload does not count.
pub(super) fn telling_part(text: &str) -> Option<usize> {
    let (errors, text) = (&TABLE.errors, text.to_ascii_lowercase());
    let ErrorTexts { context_full, not_context_full, no_tools, no_images, other_wire, .. } = errors;
    let parts = [context_full, not_context_full, no_tools, no_images, other_wire];
    parts.into_iter().flatten().find_map(|part| text.find(part.as_str()))
}

/// True if a text fits a pattern, in which `*` stands for any characters.
fn is_like(pattern: &str, text: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else { return pattern == text };
    text.strip_prefix(start)
        .is_some_and(|text| (0..=text.len()).any(|at| text.get(at..).is_some_and(|text| is_like(rest, text))))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The rules that are learned from errors about a request, one after another.
    fn learned(errors: &[&str], fields: Json, replies: &[Json]) -> Rules {
        let fields = fields.as_object().unwrap().clone();
        let messages: Vec<ChatMessage> = replies.iter().cloned().map(Into::into).collect();
        let refused = Refused { messages: &messages, fields: &fields, streams: true };
        let mut rules = Rules::default();
        for error in errors {
            assert!(rules.learn(400, error, refused).is_some(), "{error}");
            assert_eq!(rules.learn(400, error, refused), None, "nothing is learned twice from {error}");
        }
        rules
    }

    #[test]
    fn a_star_stands_for_any_text() {
        let cases = [
            ("a.b", "a.b", true),
            ("a.b", "a.bc", false),
            ("*.b", "a.b", true),
            ("*.b", "b", false),
            ("a*", "a", true),
            ("a.*.rep.b", "a.us.rep.b", true),
            ("a.*.rep.b", "a.rep.b", false),
            ("*é*b", "aéxbb", true),
        ];
        for (pattern, text, fits) in cases {
            assert_eq!(is_like(pattern, text), fits, "{pattern} {text}");
        }
    }

    #[test]
    fn the_name_of_the_bound_is_learned_once() {
        let error = "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.";
        let fields = json!({"max_tokens": 7});
        assert_eq!(learned(&[error], fields, &[]).bound.as_deref(), Some("max_completion_tokens"));
        let error = r#"{"detail":[{"type":"extra_forbidden","loc":["body","max_completion_tokens"],"msg":"Extra inputs are not permitted"}]}"#;
        let fields = json!({"max_completion_tokens": 7});
        assert_eq!(learned(&[error], fields, &[]).bound.as_deref(), Some("max_tokens"));
        let error = "max_tokens: 32000 > 8192, which is the maximum allowed number of output tokens for m";
        assert_eq!(learned(&[error], json!({}), &[]).longest_completion, Some(8192));
    }

    #[test]
    fn nothing_is_learned_from_what_refuses_no_field() {
        let reply =
            json!({"role": "assistant", "content": "a", "reasoning": "hm", "anthropic": {"content": []}});
        let messages = [reply.into()];
        let fields = json!({"max_completion_tokens": 60000}).as_object().unwrap().clone();
        let refused = Refused { messages: &messages, fields: &fields, streams: true };
        for (status, error) in [
            (500, "An unexpected error occurred in the reasoning parser; please retry"),
            (500, "An unexpected error occurred. Please include the request ID req_1 in your message."),
            (500, "Internal server error: unexpected. See https://status.anthropic.com"),
            (400, "{\"error\": {\"message\": \"reasoning effort 'max' is not supported by this model\"}}"),
            (400, "An unknown error: please include the request ID"),
            (400, "max_completion_tokens of 60000 is not allowed for this model: the most is 8192"),
        ] {
            assert_eq!(Rules::default().learn(status, error, refused), None, "{error}");
        }
        let groq = "'messages.1' : property 'reasoning' is unsupported";
        assert!(Rules::default().learn(400, groq, refused).is_some());
    }

    #[test]
    fn fields_that_we_add_are_left_out_where_they_are_refused() {
        let errors = [
            "property 'stream_options' is unsupported, did you mean 'stream'?",
            r#"{"error":{"message":"Encrypted content is not supported with this model.","param":"include"}}"#,
            "Extra inputs are not permitted, field: 'return_token_ids'",
        ];
        assert_eq!(learned(&errors, json!({}), &[]).omit, ["stream_options", "include", "return_token_ids"]);
        let mut rules = Rules::default();
        let fields = json!({"logprobs": true, "temperature": 0.2}).as_object().unwrap().clone();
        let refused = Refused { messages: &[], fields: &fields, streams: false };
        for of_the_user in [
            "logprobs is not supported",
            "Unsupported parameter: 'temperature' is not supported with this model.",
        ] {
            assert_eq!(rules.learn(400, of_the_user, refused), None, "{of_the_user}");
        }
    }

    #[test]
    fn fields_and_forms_of_replies_are_learned() {
        let call =
            |id: &str, arguments: &str| json!({"id": id, "function": {"name": "f", "arguments": arguments}});
        let reply = json!({
            "role": "assistant", "content": null, "reasoning": "hm", "tool_calls": [call("a", "{\"cut"), call("", "{}")],
            "anthropic": {"content": []},
        });
        let learned = |error: &str| learned(&[error], json!({}), std::slice::from_ref(&reply));
        let groq = "'messages.1' : for 'role:assistant' the following must be satisfied[('messages.1' : property 'reasoning' is unsupported)]";
        assert_eq!(learned(groq).omit_from_replies, ["reasoning"]);
        assert_eq!(
            learned("messages.1: thinking is bound to a different conversation").omit_from_replies,
            ["anthropic"]
        );
        let null = "Invalid 'content': 'content' field must be a string or an array of objects.";
        assert_eq!(learned(null).null_content, Some(NullContent::Empty));
        assert_eq!(learned("invalid message content type: <nil>").null_content, Some(NullContent::Empty));
        assert_eq!(
            learned("Assistant tool call function.arguments must be valid JSON.").arguments,
            Some(ArgumentsForm::Json)
        );
        assert!(learned("messages[2].tool_calls[1].id: field required").fill_ids);
        assert_eq!(
            learned("Unexpected role 'user' after role 'tool'").user_after_tool.as_deref(),
            Some("Ok.")
        );
        // Forms of conversations that chat templates want.
        let conversation = ["system", "user", "user", "tool", "user"].map(|role| json!({"role": role}));
        let alternate =
            "Jinja Exception: Conversation roles must alternate user/assistant/user/assistant/...";
        let messages = conversation.map(ChatMessage::from);
        let refused = Refused { messages: &messages, fields: &Map::new(), streams: false };
        let mut rules = Rules::default();
        for error in [alternate, alternate, "System role not supported"] {
            assert!(rules.learn(500, error, refused).is_some(), "{error}");
        }
        assert!(rules.join_users && rules.user_after_tool.is_some() && rules.system_as_user);
        assert_eq!(rules.learn(500, alternate, refused), None);
        // A field that must come back is not one that is refused.
        let mut rules = Rules::default();
        let messages =
            [ChatMessage::from(json!({"role": "assistant", "content": "a", "reasoning_content": "hm"}))];
        let refused = Refused { messages: &messages, fields: &Map::new(), streams: false };
        let missing = "The `reasoning_content` in the thinking mode must be passed back to the API.";
        assert_eq!(rules.learn(400, missing, refused), None);
    }

    #[test]
    fn a_server_is_known_by_its_host_its_owner_or_its_name() {
        let bound = |rules: Rules| rules.bound;
        let completion = Some("max_completion_tokens".to_owned());
        assert_eq!(bound(Rules::of_host("api.openai.com", "gpt-5")), completion);
        assert_eq!(bound(Rules::of_host("my.openai.azure.com", "gpt-5")), completion);
        assert_eq!(Rules::of_host("api.openai.com.evil.org", "gpt-5"), Rules::default());
        assert_eq!(Rules::of_host("api.anthropic.com", "m").api, Some(Api::Anthropic));
        assert_eq!(bound(Rules::of_host("localhost:11434", "m")), Some("max_tokens".to_owned()));
        assert_eq!(Rules::of_owner("sglang", "m").arguments, Some(ArgumentsForm::Json));
        assert_eq!(
            Rules::named("openrouter", "anthropic/claude").unwrap().add["cache_control"]["type"],
            "ephemeral"
        );
        assert!(Rules::named("openrouter", "m").unwrap().add.is_empty());
        assert!(Rules::named("nobody", "m").unwrap_err().contains("expected one of openai, azure, "));
    }

    #[test]
    fn texts_of_errors_say_what_they_are_about() {
        use ErrorKind::{BadCall, ContextFull, NoCredit, NoTools, OtherWire, Overloaded};
        for (text, kind) in [
            ("This model's maximum context length is 8192 tokens", ContextFull),
            ("prompt is too long: 213462 tokens > 200000 maximum", ContextFull),
            ("registry.ollama.ai/library/x does not support tools", NoTools),
            ("Overloaded", Overloaded),
            ("Your credit balance is too low to access the Anthropic API.", NoCredit),
            ("code tool_use_failed: Failed to call a function", BadCall),
            ("To use function tools, use /v1/responses or set reasoning_effort", OtherWire),
        ] {
            let kinds = [ContextFull, NoCredit, NoTools, Overloaded, BadCall, OtherWire]
                .into_iter()
                .filter(|kind| kind.is_of(text));
            assert_eq!(kinds.collect::<Vec<_>>(), [kind], "{text}");
        }
        let limit =
            "Request too large for model m on tokens per minute (TPM): Limit 12000; maximum context length";
        assert!(!ContextFull.is_of(limit));
    }
}
