//! The errors of servers, read from the fields that hold a server's own words. Others may repeat the request (`input`,
//! `instructions`) or the model's reply (`output`, `failed_generation`), whose words decide nothing.

use std::time::Duration;

use reqwest::StatusCode;
use serde_json::{Map, Value as Json, json};

use super::reply_end::ReplyEnd;
use super::retry::{asked_pause, told_pause};
use super::rules::ErrorKind;

/// Fields with a server's own words, at any depth of an error: of OpenAI's form, and of FastAPI (`msg`, `loc`), Gemini
/// (`violations`, `retryDelay`), Azure (`innererror`), OpenRouter (`raw`: the error of the server behind it), MiniMax
/// (`base_resp`), NVIDIA (`title`), DeepInfra and Venice (`error_message`, NousResearch/hermes-agent#65631).
const OWN_FIELDS: [&str; 26] = [
    "error",
    "errors",
    "message",
    "msg",
    "code",
    "type",
    "error_type",
    "error_message",
    "status",
    "status_code",
    "status_msg",
    "base_resp",
    "detail",
    "details",
    "description",
    "param",
    "loc",
    "field",
    "reason",
    "title",
    "violations",
    "fieldViolations",
    "retryDelay",
    "innererror",
    "metadata",
    "raw",
];

/// Places of the text for people.
const MESSAGES: [&str; 6] =
    ["/error/message", "/error", "/message", "/error_message", "/detail", "/base_resp/status_msg"];

/// Words before what an error repeats of a reply that the server could not read, and those behind it: llama.cpp
/// (ggml-org/llama.cpp#20260), Ollama (ollama/ollama#12064).
const AROUND_REPLY: [(&str, Option<&str>); 2] =
    [("failed to parse input at pos ", None), ("error parsing tool call: raw=", Some(", err="))];

/// The statuses of errors in replies of status 200 that tell none, by their words.
const BY_WORDS: [(ErrorKind, StatusCode); 4] = [
    (ErrorKind::ContextFull, StatusCode::BAD_REQUEST),
    (ErrorKind::NoCredit, StatusCode::PAYMENT_REQUIRED),
    (ErrorKind::Overloaded, StatusCode::SERVICE_UNAVAILABLE),
    (ErrorKind::BadCall, StatusCode::BAD_REQUEST),
];

/// A server's error.
#[derive(Debug)]
pub(super) struct ServerError {
    /// The text for people, not shortened.
    pub(super) message: String,
    /// All of the server's own words, by which the kind of the error is known.
    pub(super) words: String,
    /// The status that the error tells, also by its words where it came in a reply.
    pub(super) status: Option<StatusCode>,
    /// True if it came in a reply of status 200.
    pub(super) is_in_reply: bool,
    /// The pause that the error asks for.
    pub(super) pause: Option<Duration>,
}

impl ServerError {
    /// The error in the body of a response of another status than 200.
    pub(super) fn of_body(body: &[u8]) -> Self {
        let json = serde_json::from_slice(body).ok();
        json.and_then(|json| Self::read(&json, false)).unwrap_or_else(|| {
            let text = String::from_utf8_lossy(body);
            let text = page_title(&text).unwrap_or_else(|| without_reply(&text));
            let (words, pause) = (text.clone(), told_pause(&text));
            Self { message: text, words, status: None, is_in_reply: false, pause }
        })
    }

    /// The error in a reply of status 200. None if no message is found.
    pub(super) fn of(json: &Json) -> Option<Self> {
        Self::read(json, true)
    }

    /// The error in a document, or in a list of documents (Gemini).
    fn read(json: &Json, is_in_reply: bool) -> Option<Self> {
        let json = json.get(0).unwrap_or(json);
        let own = own_words(json).unwrap_or_default();
        let in_no_known_form = || Some(json.get("error").filter(|error| !error.is_null())?.to_string());
        let message = message(&own).or_else(in_no_known_form)?;
        let words = if own.is_null() { message.clone() } else { own.to_string() };
        let by_words =
            || BY_WORDS.into_iter().find_map(|(kind, status)| kind.is_of(&words).then_some(status));
        let status = status(&own).or_else(|| if is_in_reply { by_words() } else { None });
        // OpenRouter repeats the headers of its limits.
        let headers = json.pointer("/error/metadata/headers").and_then(Json::as_object);
        let pause = headers.and_then(|headers| asked_pause(|name| header(headers, name)));
        Some(Self { pause: pause.or_else(|| told_pause(&words)), message, words, status, is_in_reply })
    }
}

/// The document with nothing but the server's own words; None if there are none. A text that is itself a document is read as one,
/// as proxies pass on the errors of others.
fn own_words(json: &Json) -> Option<Json> {
    match json {
        Json::Null => None,
        // LiteLLM writes "None" for null.
        Json::String(text) if text.is_empty() || text == "None" => None,
        Json::String(text) if text.trim_start().starts_with(['{', '[']) => {
            let inner = serde_json::from_str(text).ok().and_then(|inner| own_words(&inner));
            Some(inner.unwrap_or_else(|| without_reply(text).into()))
        }
        Json::String(text) => Some(without_reply(text).into()),
        Json::Array(items) => {
            let items: Vec<_> = items.iter().filter_map(own_words).collect();
            (!items.is_empty()).then(|| items.into())
        }
        Json::Object(fields) => {
            let own = fields.iter().filter(|(name, _)| OWN_FIELDS.contains(&name.as_str()));
            let own: Map<_, _> =
                own.filter_map(|(name, value)| Some((name.clone(), own_words(value)?))).collect();
            (!own.is_empty()).then(|| own.into())
        }
        other => Some(other.clone()),
    }
}

/// A text without what it repeats of a reply.
fn without_reply(text: &str) -> String {
    let lower = text.to_ascii_lowercase();
    let found = AROUND_REPLY
        .into_iter()
        .find_map(|(before, behind)| Some((lower.find(before)? + before.len(), behind)));
    let Some((begin, behind)) = found else { return text.to_owned() };
    let end = behind.and_then(|behind| lower.rfind(behind)).unwrap_or(text.len());
    format!("{}…{}", &text[..begin], &text[end.max(begin)..])
}

/// The text for people.
fn message(own: &Json) -> Option<String> {
    if let Json::String(text) = own {
        return Some(text.clone());
    }
    // MiniMax adds `base_resp` to each reply. The code 0 means success.
    let is_none = |place: &str| {
        place.starts_with("/base_resp") && own.pointer("/base_resp/status_code") == Some(&0.into())
    };
    let found = MESSAGES.iter().filter(|place| !is_none(place)).find_map(|place| own.pointer(place))?;
    let text = |found: &Json| message(found).unwrap_or_else(|| found.to_string());
    Some(match own.pointer("/error/metadata/raw") {
        Some(raw) => format!("{}: {}", text(found), text(raw)),
        None => text(found),
    })
}

/// The status in an error, as a number (OpenRouter), a number in a text (LiteLLM), or a name (Anthropic,
/// <https://docs.anthropic.com/en/api/errors>, and OpenAI).
fn status(own: &Json) -> Option<StatusCode> {
    let error = own.get("error").filter(|error| error.is_object()).unwrap_or(own);
    ["code", "status", "type"].iter().find_map(|field| {
        let code = match error.get(*field)? {
            Json::String(name) => status_named(name).or_else(|| name.parse().ok())?,
            number => u16::try_from(number.as_u64()?).ok()?,
        };
        StatusCode::from_u16(code).ok().filter(|status| status.is_client_error() || status.is_server_error())
    })
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

fn header<'a>(headers: &'a Map<String, Json>, name: &str) -> Option<&'a str> {
    headers.iter().find(|(own, _)| own.eq_ignore_ascii_case(name))?.1.as_str()
}

/// The error within the first choice of a reply, as an error document: OpenRouter's, where the server behind it has failed midway, or
/// a finish reason that says so.
pub(super) fn error_in_choice(body: &Json) -> Option<Json> {
    let choice = body.get("choices")?.get(0)?;
    match choice.get("error").filter(|error| says_something(error)) {
        Some(error) => Some(json!({ "error": error })),
        None => {
            let reason = choice.get("finish_reason")?.as_str()?;
            let message = format!("the reply ended with {reason:?}");
            (ReplyEnd::of(Some(reason)) == ReplyEnd::Failed)
                .then(|| json!({"error": {"message": message, "type": "server_error"}}))
        }
    }
}

/// True if there is a text, a number or true in it: an error without any is none.
pub(super) fn says_something(error: &Json) -> bool {
    match error {
        Json::Null | Json::Bool(false) => false,
        Json::Bool(true) => true,
        Json::Number(code) => code.as_i64() != Some(0),
        Json::String(text) => !text.is_empty(),
        Json::Array(items) => items.iter().any(says_something),
        Json::Object(fields) => fields.values().any(says_something),
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

#[cfg(test)]
mod tests {
    use super::*;

    fn told(json: &Json) -> ServerError {
        ServerError::of(json).unwrap()
    }

    #[test]
    fn the_message_is_found_in_every_form() {
        let nested = json!({"error": {"message": "down", "code": 503}});
        for (document, message) in [
            (json!({"error": {"message": "no", "param": null}}), "no"),
            (json!({"error": "no"}), "no"),
            (json!([{"error": {"message": "no", "status": "INVALID_ARGUMENT"}}]), "no"),
            (json!({"message": "no", "code": 400}), "no"),
            (json!({"detail": "no"}), "no"),
            (json!({"error": {"code": "tool_use_failed"}}), r#"{"code":"tool_use_failed"}"#),
            (json!({"error": {"cause": "x"}}), r#"{"cause":"x"}"#),
            (json!({"error": {"message": "no", "metadata": {"raw": "why"}}}), "no: why"),
            (json!({"error": {"message": "no", "metadata": {"raw": nested.to_string()}}}), "no: down"),
            (json!({"error": {"message": nested.to_string()}}), "down"),
            (json!({"choices": null, "base_resp": {"status_code": 1002, "status_msg": "slow"}}), "slow"),
            (json!({"choices": null, "error_type": "x", "error_message": "no"}), "no"),
        ] {
            assert_eq!(told(&document).message, message, "{document}");
        }
        for no_error in [
            json!({"error": null, "code": 1}),
            json!({"type": "ping"}),
            json!({"usage": {"message": "x"}}),
            json!({"choices": null, "base_resp": {"status_code": 0, "status_msg": "success"}}),
        ] {
            assert!(ServerError::of(&no_error).is_none(), "{no_error}");
        }
        let body = |body: &str| ServerError::of_body(body.as_bytes()).message;
        assert_eq!(body("busy"), "busy");
        assert_eq!(body("\"busy\""), "busy");
        assert_eq!(body(r#"{"reason": {"x": 1}}"#), r#"{"reason": {"x": 1}}"#);
        assert_eq!(body("<html><title>Bad gateway</title>"), "an HTML page, \"Bad gateway\"");
    }

    #[test]
    fn words_of_the_request_and_of_the_reply_are_left_unread() {
        let echo = "insufficient balance, try again in 6s";
        let groq = json!({"error": {"message": "no", "code": "tool_use_failed", "failed_generation": echo}});
        for document in [
            json!({"status": "failed", "error": {"code": "server_error", "message": "no"}, "instructions": echo,
                "output": [{"type": "message", "content": [{"type": "output_text", "text": echo}]}]}),
            json!({"detail": [{"type": "string_type", "loc": ["body", "messages", 1, "content"], "input": echo,
                "msg": "Input should be a valid string", "ctx": {"given": echo}}]}),
            json!({"error": {"message": "no", "metadata": {"flagged_input": echo, "raw": groq.to_string()}}}),
            groq,
        ] {
            let told = told(&document);
            assert!(!told.words.contains("balance") && !told.message.contains("balance"), "{told:?}");
            assert_eq!(told.pause, None, "{told:?}");
        }
    }

    #[test]
    fn what_an_error_repeats_of_a_reply_is_left_unread() {
        let code = "grep 'insufficient_quota' log; try again in 9s";
        for (message, said) in [
            (format!("Failed to parse input at pos 12: <tool_call>{code}"), "Failed to parse input at pos …"),
            (
                format!("error parsing tool call: raw='{code}', err=unexpected end of JSON input"),
                "error parsing tool call: raw=…, err=unexpected end of JSON input",
            ),
        ] {
            for body in [json!({"error": {"code": 500, "message": message}}).to_string(), message] {
                let error = ServerError::of_body(body.as_bytes());
                assert_eq!((error.message.as_str(), error.pause), (said, None), "{body}");
                assert!(
                    !error.words.contains("quota") && ErrorKind::BadCall.is_of(&error.words),
                    "{error:?}"
                );
            }
        }
    }

    #[test]
    fn the_status_is_a_number_or_a_name_or_known_by_words() {
        let status = |error: Json| told(&json!({"error": error})).status.map(|status| status.as_u16());
        assert_eq!(status(json!({"message": "a", "code": 503})), Some(503));
        assert_eq!(
            status(json!({"message": "a", "type": "None", "param": "None", "code": "429"})),
            Some(429)
        );
        assert_eq!(status(json!({"message": "a", "type": "overloaded_error"})), Some(529));
        assert_eq!(status(json!({"message": "a", "code": "1261", "type": "server_error"})), Some(500));
        assert_eq!(status(json!({"message": "a", "code": 200})), None);
        assert_eq!(status(json!({"message": "The model is overloaded", "code": "x"})), Some(503));
        assert_eq!(status(json!({"message": "exceeds the context window"})), Some(400));
        let minimax = |text: &str| json!({"base_resp": {"status_code": 1002, "status_msg": text}});
        assert_eq!(told(&minimax("rate limit exceeded(RPM)")).status, Some(StatusCode::SERVICE_UNAVAILABLE));
        assert_eq!(told(&minimax("insufficient balance")).status, Some(StatusCode::PAYMENT_REQUIRED));
    }

    #[test]
    fn a_pause_stands_in_the_words_or_in_repeated_headers() {
        let gemini = json!([{"error": {"message": "Quota exceeded", "code": 429, "details": [
            {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "12s"}
        ]}}]);
        assert_eq!(told(&gemini).pause, Some(Duration::from_secs(12)));
        let headers = json!({"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "20"});
        let openrouter =
            json!({"error": {"message": "Rate limit exceeded", "metadata": {"headers": headers}}});
        assert_eq!(told(&openrouter).pause, Some(Duration::from_secs(20)));
    }
}
