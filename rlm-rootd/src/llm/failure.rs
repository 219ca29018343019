//! Failures of requests to models: the server's words, whether a retry helps, and how the failure is reported.

use std::error::Error;
use std::io;
use std::time::Duration;

use reqwest::{StatusCode, Url};
use rlm_core::text::counted;
use serde_json::{Value as Json, json};

use super::error::SubCallError;
use super::reply::Reply;
use super::reply_end::ReplyEnd;
use super::rules::ErrorKind;

/// An attempt without a reply.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) error: SubCallError,
    pub(super) cost: Cost,
    pub(super) retry: Retry,
    /// The server's words, not shortened; empty where it said nothing.
    pub(super) said: String,
}

/// The charge for an attempt without a reply.
#[derive(Debug)]
pub(super) enum Cost {
    Nothing,
    /// All that was estimated: the model may have answered, and nothing says how much.
    Unknown,
    /// The prompt, and the part of the completion that came before the server's error.
    Part(Box<Reply>),
}

impl Failure {
    /// A failure about which the server said nothing.
    pub(super) fn new(error: SubCallError, cost: Cost, retry: Retry) -> Self {
        Self { error, cost, retry, said: String::new() }
    }

    /// True if the model has replied, and another reply to the same request may be fine.
    pub(super) fn wants_another_sample(&self) -> bool {
        self.retry == Retry::Once && !matches!(self.error, SubCallError::TimedOut { .. })
    }

    /// The failure of a reply of which this body came before.
    pub(super) fn after(self, came: Json) -> Self {
        Self { cost: Cost::Part(Box::new(Reply::new(came))), ..self }
    }
}

/// Whether the same request can be sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Retry {
    Never,
    /// Once more: this reply is unusable, but the next may be fine.
    Once,
    /// After a pause, which the server may have specified.
    After(Option<Duration>),
}

/// The reason why a server without TLS cannot be reached over `https`.
pub(super) const PLAIN_HTTP: &str = "the server speaks http, not https";

/// Reports whether a server answered the beginning of TLS with something else.
pub(super) fn speaks_http(error: &reqwest::Error) -> bool {
    let mut causes = std::iter::successors(error.source(), |cause| (*cause).source());
    causes.any(|cause| {
        matches!(
            tls_error(cause),
            Some(rustls::Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType))
        )
    })
}

/// The error of TLS in an error, which may be wrapped as one of input and output.
fn tls_error<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a rustls::Error> {
    error.downcast_ref().or_else(|| tls_error(error.downcast_ref::<io::Error>()?.get_ref()?))
}

/// An error, the address that was asked, and what may help.
pub(super) fn explain(error: &SubCallError, mut address: Url, attempts: u32) -> String {
    use SubCallError::{Broken, Malformed, MustWait, Status, TimedOut, Unreachable};
    let advice = match error {
        Unreachable(reason) if reason == PLAIN_HTTP => ": does the base URL begin with http://?",
        Unreachable(_) => ": does a server run there?",
        Status { message, .. } if ErrorKind::NoCredit.is_of(message) => "",
        Status { status: 401 | 403, .. } => ": is the key right?",
        Status { status: 404, .. } => {
            ": does the base URL end with its version, such as /v1, and is the model's name right?"
        }
        Status { message, .. } if ErrorKind::OtherWire.is_of(message) => {
            ": `api = \"responses\"` asks the other interface"
        }
        Status { status: 429, .. } => {
            ": more retries (`max_retries`) or fewer requests at once (`server_parallelism`) may help"
        }
        Status { status: 502..=504, .. } => ": does the server behind it run?",
        Malformed(_) => ": is this an interface like OpenAI's?",
        TimedOut { .. } => ": `request_timeout` gives a request more time",
        Status { .. } | MustWait { .. } | Broken(_) => "",
        _ => return error.to_string(),
    };
    // A key may be in it.
    address.set_query(None);
    format!("{error} (asked {address} {}{advice})", counted(attempts.into(), "time"))
}

/// True if a server says with this error that it does not stream replies.
pub(super) fn refuses_stream(error: &SubCallError) -> bool {
    let SubCallError::Status { status: 400 | 404 | 422 | 501, message } = error else { return false };
    let message = message.to_lowercase();
    // The word "upstream" does not count.
    message
        .match_indices("stream")
        .any(|(at, _)| !message[..at].ends_with(|letter: char| letter.is_alphanumeric()))
}

/// The status of an error that comes in a reply of status 200, by its code or by its type: OpenRouter's numbers, and the types of
/// Anthropic (<https://docs.anthropic.com/en/api/errors>) and OpenAI.
pub(super) fn status_of(body: &Json) -> Option<StatusCode> {
    let error = body.get("error").unwrap_or(body);
    let number = ["code", "status"].iter().find_map(|field| error.get(*field)?.as_u64());
    let code = number.and_then(|number| u16::try_from(number).ok()).or_else(|| {
        let named = |field: &&str| error.get(*field).and_then(Json::as_str).and_then(status_named);
        ["type", "code"].iter().find_map(named)
    });
    StatusCode::from_u16(code?).ok().filter(|status| status.is_client_error() || status.is_server_error())
}

fn status_named(name: &str) -> Option<u16> {
    Some(match name {
        "invalid_request_error" | "invalid_prompt" => 400,
        "authentication_error" => 401,
        "billing_error" | "insufficient_quota" => 402,
        "permission_error" => 403,
        "not_found_error" => 404,
        "request_too_large" => 413,
        "rate_limit_error" | "rate_limit_exceeded" => 429,
        "api_error" | "server_error" => 500,
        "timeout_error" => 504,
        "overloaded_error" => 529,
        _ => return None,
    })
}

pub(super) fn unusable(why: String) -> Failure {
    Failure::new(SubCallError::Malformed(why), Cost::Unknown, Retry::Once)
}

/// The error within the first choice of a reply, as an error document: OpenRouter's, where the server behind it has failed midway, or
/// a finish reason that says so.
pub(super) fn error_in_choice(body: &Json) -> Option<Json> {
    let choice = body.get("choices")?.get(0)?;
    match choice.get("error").filter(|error| !error.is_null()) {
        Some(error) => Some(json!({ "error": error })),
        None => {
            let reason = choice.get("finish_reason")?.as_str()?;
            let message = format!("the reply ended with {reason:?}");
            (ReplyEnd::of(Some(reason)) == ReplyEnd::Failed)
                .then(|| json!({"error": {"message": message, "type": "server_error"}}))
        }
    }
}

/// The title of an HTML page, if the text is one.
pub(super) fn page_title(text: &str) -> Option<String> {
    if !text.trim_start().starts_with('<') {
        return None;
    }
    let title = text.split_once("<title>").and_then(|(_, rest)| rest.split_once("</title>"));
    Some(title.map_or("an HTML page".to_owned(), |(title, _)| format!("an HTML page, {:?}", title.trim())))
}

/// The message of an error document: `{"error": {"message"}}`, `{"error"}`, `{"message"}` or `{"detail"}`, or a list of one of these
/// (Gemini). OpenRouter has the text of the server behind it in `metadata.raw`.
pub(super) fn error_text(json: &Json) -> Option<String> {
    let json = json.get(0).unwrap_or(json);
    let found = json.pointer("/error/message").or_else(|| json.get("error")).or_else(|| json.get("message"));
    let text = match found.or_else(|| json.get("detail"))? {
        Json::Null => return None,
        Json::String(text) => text.clone(),
        // Leaves out the model's own text, which Groq adds.
        Json::Object(error) if error.contains_key("failed_generation") => {
            error.get("code")?.as_str()?.to_owned()
        }
        other => other.to_string(),
    };
    match json.pointer("/error/metadata/raw") {
        None | Some(Json::Null) => Some(text),
        Some(Json::String(raw)) => Some(format!("{text}: {raw}")),
        Some(raw) => Some(format!("{text}: {raw}")),
    }
}
