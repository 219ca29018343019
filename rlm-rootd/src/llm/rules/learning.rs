//! The rules that a refusal teaches.

use serde_json::{Map, Value as Json};

use super::foreign::REASONING;
use super::{
    ArgumentsForm, BOUNDS, ErrorKind, KeyHeader, NullContent, Refused, Rules, TABLE, has_any, names_word,
};
use crate::llm::api::Api;
use crate::llm::estimate::{NATIVE, native};
use crate::llm::message::{ChatMessage, has_broken_arguments, is_plain_name, says_nothing};

/// Fields that we add to requests and that can be left out. What a user sets is never left out.
const OPTIONAL: [&str; 5] = ["stream_options", "tool_choice", "include", "return_token_ids", "logprobs"];

/// Words of errors that refuse a field.
const REFUSING: [&str; 17] = [
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
    "not implemented",
    "not available",
    "disabled",
    "cannot find field",
    "invalid field",
];

/// Words of errors before the longest completion: Anthropic's "max_tokens: 32000 > 8192, which is the maximum allowed number of output
/// tokens", OpenAI's "max_tokens is too large: 40000. This model supports at most 16384 completion tokens", Groq's "`max_tokens` must be
/// less than or equal to `8192`" and Cohere's "max tokens must be less than or equal to 4096", DeepSeek's "the valid range of max_tokens
/// is [1, 8192]", DashScope's "Range of max_tokens should be [1, 8192]" (anomalyco/opencode#40770), Volcengine's "The parameter `max_tokens`
/// specified in the request are not valid: integer above maximum value, expected a value <= 12288" (decolua/9router#2460), Bedrock's "The
/// maximum tokens you requested exceeds the model limit of 4096" (langgenius/dify#10390: 4096 passes), DeepInfra's "max_tokens=131072 cannot be greater than
/// max_model_len=max_total_tokens=28672" (HeyPuter/puter#3564).
const BEFORE_LONGEST: [&str; 8] = [
    " > ",
    "supports at most ",
    "less than or equal to ",
    "range of max_tokens is [1, ",
    "range of max_tokens should be [1, ",
    "expected a value <= ",
    "exceeds the model limit of ",
    "cannot be greater than max_model_len=max_total_tokens=",
];

/// Words of Vertex before the shortest completion that is too long: "maxOutputTokens value of 65537 but the supported range is from 1
/// (inclusive) to 65537 (exclusive)" (BerriAI/litellm#10548).
const BEFORE_TOO_LONG: &str = "(inclusive) to ";

/// Names of the bound on a completion in errors about its value.
const NAMES_OF_BOUND: [&str; 6] =
    [BOUNDS[0], BOUNDS[1], "max_output_tokens", "max tokens", "maximum tokens", "maxoutputtokens"];

/// Fields of replies that every server takes back.
const COMMON: [&str; 4] = ["role", "content", "tool_calls", "function_call"];

/// Words of errors that refuse `content: null`.
const NULL_WORDS: [&str; 6] = ["null", "none", "empty", "missing", "must be a string", "valid string"];

impl Rules {
    /// Learns a rule from the error of a refused request. Returns the rule in words, or None if the error teaches none: then the
    /// request is not sent again.
    pub(in crate::llm) fn learn(&mut self, status: u16, error: &str, refused: Refused<'_>) -> Option<String> {
        let error = error.to_lowercase();
        // A server's own fault is told in any words. llama-cpp-python refuses with the same status, in the words of pydantic.
        let refuses_field = status < 500 || error.contains("extra_forbidden");
        let of_fields = if refuses_field { self.learn_fields(&error, refused) } else { None };
        of_fields
            .or_else(|| self.learn_reasoning(&error, refused))
            .or_else(|| self.learn_form(&error, refused))
            .or_else(|| self.learn_in_any_words(status, &error, refused))
    }

    /// Sends the key as `Authorization: Bearer`. Servers with Anthropic's interface that refuse its header say so in too many ways to
    /// know.
    pub(in crate::llm) fn learn_key_header(&mut self, api: Api) -> Option<String> {
        if self.key_header.is_some() || self.key_header(api) == KeyHeader::Authorization {
            return None;
        }
        self.key_header = Some(KeyHeader::Authorization);
        Some("the key is sent as `Authorization: Bearer`, since the server refuses `x-api-key`".to_owned())
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

    fn learn_longest_completion(&mut self, error: &str) -> Option<String> {
        let is_meant = NAMES_OF_BOUND.iter().any(|name| names_word(error, name));
        if !is_meant || ErrorKind::ContextFull.is_of(error) {
            return None;
        }
        let number_after = |words: &str| -> Option<u64> {
            let rest = error.split_once(words)?.1.trim_start_matches('`');
            rest.split(|letter: char| !letter.is_ascii_digit()).next()?.parse().ok()
        };
        let below = || number_after(BEFORE_TOO_LONG)?.checked_sub(1);
        let most = BEFORE_LONGEST.into_iter().find_map(number_after).or_else(below);
        let most = most.filter(|most| *most > 0)?;
        if self.longest_completion.is_some_and(|known| known <= most) {
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

    /// Leaves out reasoning that is bound to another conversation, account or model: that of the replies in the request. A server that
    /// refuses that of later ones, too, gets none; Anthropic's interface is left, since it wants the newest where the model thinks.
    fn learn_reasoning(&mut self, error: &str, refused: Refused<'_>) -> Option<String> {
        let gets_none = REASONING.iter().all(|field| self.omits_of_replies(field));
        if gets_none || !has_any(error, &TABLE.errors.refused_reasoning) {
            return None;
        }
        // Another conversation may have replies of another model, too.
        let is_again =
            refused.messages.iter().any(|message| self.foreign_replies.contains(&message.fingerprint()));
        if !self.learn_foreign_replies(refused.messages) {
            return None;
        }
        if is_again && refused.messages.iter().all(|reply| reply.get("anthropic").is_none()) {
            let all = REASONING.into_iter().chain(["responses"]);
            self.omit_from_replies.extend(all.map(str::to_owned));
            return Some(
                "replies are sent without their reasoning, since the server refuses that".to_owned(),
            );
        }
        Some("earlier replies are sent without their reasoning, since the server refuses that".to_owned())
    }

    fn learn_form(&mut self, error: &str, refused: Refused<'_>) -> Option<String> {
        let replies = || refused.messages.iter().filter(|message| message["role"] == "assistant");
        let calls = || replies().filter_map(|reply| reply["tool_calls"].as_array()).flatten();
        let is_null =
            |reply: &ChatMessage| reply.get("content").is_none_or(Json::is_null) && !says_nothing(reply);
        let refuses_null = || {
            has_any(error, &TABLE.errors.bad_content)
                || names_field(error, "content") && NULL_WORDS.iter().any(|words| names_word(error, words))
        };
        if self.null_content.is_none() && replies().any(is_null) && refuses_null() {
            self.null_content = Some(NullContent::Empty);
            return Some(
                "`content` of replies without text is sent as \"\", since the server refuses null".to_owned(),
            );
        }
        let has_no_calls = |reply: &ChatMessage| reply["tool_calls"].as_array().is_some_and(Vec::is_empty);
        if !self.omit_empty_calls
            && names_word(error, "tool_calls")
            && error.contains("empty array")
            && replies().any(has_no_calls)
        {
            self.omit_empty_calls = true;
            return Some(
                "`tool_calls` without calls is left out of replies, since the server refuses an empty array"
                    .to_owned(),
            );
        }
        if self.arguments.is_none()
            && has_any(error, &TABLE.errors.bad_arguments)
            && calls().any(has_broken_arguments)
        {
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
        let names_id =
            ["tool call id", "tool_call_id", "].id", "tool_use.id"].iter().any(|name| error.contains(name));
        // Over other interfaces, calls are parts of the reply's own form, which goes back as it came.
        let is_chat = replies().all(|reply| native(reply).is_none());
        let refuses_form = ["must be a-z", "pattern", "too long"].iter().any(|words| error.contains(words));
        if is_chat && !self.new_ids && names_id && refuses_form && calls().any(has_id) {
            self.new_ids = true;
            return Some("calls get ids of ours, since the server refuses those that came".to_owned());
        }
        let names_function =
            || ["function.name", "tool_use.name", "tooluse.name"].iter().any(|name| error.contains(name));
        let is_odd = |call: &Json| !call["function"]["name"].as_str().is_some_and(is_plain_name);
        if is_chat && !self.plain_names && names_function() && calls().any(is_odd) {
            self.plain_names = true;
            return Some(
                "names of functions are sent with letters, digits, _ and - alone, since the server refuses others"
                    .to_owned(),
            );
        }
        let has_no_reasoning = |reply: &ChatMessage| reply.get("reasoning_content").is_none_or(Json::is_null);
        let wants_reasoning = names_word(error, "reasoning_content")
            && ["must be passed back", "is missing"].iter().any(|words| error.contains(words));
        if !self.fill_reasoning && wants_reasoning && replies().any(has_no_reasoning) {
            self.fill_reasoning = true;
            return Some(
                "replies without `reasoning_content` get a blank one, since the server refuses them otherwise"
                    .to_owned(),
            );
        }
        let has_answers = || refused.messages.iter().any(|message| message["role"] == "tool");
        if !self.name_answers && has_any(error, &TABLE.errors.nameless_answers) && has_answers() {
            self.name_answers = true;
            return Some(
                "answers of tools have the name of the tool, since the server refuses them otherwise"
                    .to_owned(),
            );
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

    /// Sends `{}` for arguments that are no object, and leaves out replies that say nothing, where no known words tell another reason: the
    /// words about them are too many to know.
    fn learn_in_any_words(&mut self, status: u16, error: &str, refused: Refused<'_>) -> Option<String> {
        if !matches!(status, 400 | 422) || ErrorKind::is_known(error) {
            return None;
        }
        let mut calls = refused.messages.iter().filter_map(|reply| reply["tool_calls"].as_array()).flatten();
        if self.arguments.is_none() && calls.any(has_broken_arguments) {
            self.arguments = Some(ArgumentsForm::Json);
            return Some(
                "arguments that are no JSON object are sent as {}, since the server may refuse others"
                    .to_owned(),
            );
        }
        let is_sent_empty = |message: &ChatMessage| says_nothing(message) && native(message).is_none();
        if self.omit_empty_replies || !refused.messages.iter().any(is_sent_empty) {
            return None;
        }
        self.omit_empty_replies = true;
        Some(
            "replies without text and calls are left out of requests, since the server may refuse them"
                .to_owned(),
        )
    }
}

/// True if a server says with this error that it does not stream replies: OpenAI's "'stream' does not support true with this model"
/// (github/gh-models#31), "Streaming is not supported".
pub(in crate::llm) fn refuses_stream(error: &str) -> bool {
    let error = error.to_lowercase();
    ["stream", "streaming"].iter().any(|name| names_word(&error, name)) && refuses(&error)
}

fn refuses(error: &str) -> bool {
    REFUSING.iter().any(|words| error.contains(words))
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
