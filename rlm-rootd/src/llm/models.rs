//! The models of a process: one endpoint, one client, one bound on what runs at once.

use std::borrow::Cow;
use std::error::Error;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use axum::body::Bytes;
use futures_util::StreamExt as _;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use reqwest::{Client, Response, StatusCode, Url};
use rlm_core::pickle::{Limits, Value};
use rlm_core::root_tool::client::Endpoint;
use rlm_core::text::{counted, cut, one_line};
use serde_json::Value as Json;
use sse_stream::SseStream;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

use super::error::SubCallError;
use super::key::Key;
use super::limits::ModelLimits;
use super::pieces::Pieces;
use super::proxy::Proxy;
use super::reply::Reply;
use super::retry::{Retries, retry_after};
use crate::http_client::{bearer, builder, last_cause, read, without_tls};

/// Headers with the id of a request, the same with each attempt: for logs, for servers that count a request that is sent again once,
/// and for trainers.
const REQUEST_ID_HEADERS: [&str; 3] = ["x-request-id", "idempotency-key", "x-acp-model-request-id"];

/// Largest reply that is read, in bytes. A completion of a million tokens is smaller.
const MAX_REPLY_BYTES: usize = 16 << 20;

/// Most bytes of events of a reply that is streamed: each token has an event of its own.
const MAX_STREAM_BYTES: usize = 512 << 20;

/// Time in which a server ends a connection's response after the last event.
const CLOSING: Duration = Duration::from_millis(50);

/// Time limit of a request for the list of models.
const LIST_TIME: Duration = Duration::from_secs(10);

/// Time in which a server lists the limits of its model.
const LIMITS_TIME: Duration = Duration::from_secs(3);

/// Longest text of a server's error, in characters.
const ERROR_CHARS: usize = 300;

/// The server of the models, and the limits of calls to it.
#[derive(Clone, Debug)]
pub struct ModelsConfig {
    /// The address of an OpenAI-compatible interface, up to and with its version: `https://host/v1`, or, on a Unix socket,
    /// `http+unix://SOCKET/v1` with the slashes of SOCKET as %2F.
    pub base_url: String,
    /// The model that is called unless a rollout names another.
    pub model: String,
    /// The key, sent as `Authorization: Bearer …`.
    pub key: Option<Key>,
    /// Further headers of each request. A value is a secret, like a key.
    pub headers: Vec<(String, Key)>,
    /// The proxy for requests; none by default, whatever the environment says.
    pub proxy: Option<Proxy>,
    /// Requests of this process that run at once; 64 by default.
    pub parallelism: usize,
    /// The retries of a request.
    pub retries: Retries,
    /// Time limit for making a connection; 10 s by default.
    pub connect_timeout: Duration,
    /// Time limit of one attempt until its response is read, or where it is streamed, of a silence in it; 120 s by default, so
    /// that a call of 300 s has a second one. A server on a Unix socket has none: it is the program that asks.
    pub timeout: Duration,
    /// True, the default, to ask for replies in pieces. A server that refuses that, or does not report the usage of such a
    /// reply, is asked for whole ones from then on; one on a Unix socket always.
    pub stream: bool,
}

impl ModelsConfig {
    /// A configuration with default limits and no key.
    pub fn new(base_url: impl Into<String>, model: impl Into<String>) -> Self {
        Self {
            base_url: base_url.into(),
            model: model.into(),
            key: None,
            headers: Vec::new(),
            proxy: None,
            parallelism: 64,
            retries: Retries::default(),
            connect_timeout: Duration::from_secs(10),
            timeout: Duration::from_secs(120),
            stream: true,
        }
    }
}

/// An invalid configuration.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ModelsError {
    /// The base URL cannot be called.
    #[error("the base URL of the models {0}")]
    BaseUrl(String),
    /// The name of the model is empty.
    #[error("the name of the model is empty")]
    NoModel,
    /// A parallelism of 0.
    #[error("the parallelism of the models is 0, expected 1 or more")]
    NoParallelism,
    /// The key cannot be sent in a header.
    #[error("the key of the models has characters that a header cannot hold")]
    Key,
    /// A header cannot be sent.
    #[error("the header {0} of the models has a name or a value that cannot be sent")]
    Header(String),
    /// The kind of proxy is not supported.
    #[error("{0}")]
    Proxy(String),
    /// The HTTP client cannot be made.
    #[error("the HTTP client cannot be made: {0}")]
    Client(String),
}

/// The models of a process.
#[derive(Debug)]
pub struct Models {
    config: ModelsConfig,
    url: Url,
    /// The headers of each request: the key, and further ones.
    headers: HeaderMap,
    client: Client,
    /// The server is on a Unix socket: it is the program that asks.
    is_own: bool,
    /// True while replies are asked for in pieces.
    streams: AtomicBool,
    /// One permit per request under way.
    running: Semaphore,
}

/// An attempt without a reply.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) error: SubCallError,
    /// True if the model may have answered although no reply arrived.
    pub(super) may_have_cost: bool,
    pub(super) retry: Retry,
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

impl Models {
    /// Makes the client. No connection is made yet.
    ///
    /// # Errors
    /// [`ModelsError`].
    pub fn new(config: ModelsConfig) -> Result<Self, ModelsError> {
        if config.model.is_empty() {
            return Err(ModelsError::NoModel);
        }
        if config.parallelism == 0 {
            return Err(ModelsError::NoParallelism);
        }
        let (url, socket) = completions_url(&config.base_url).map_err(ModelsError::BaseUrl)?;
        let headers = headers(&config)?;
        let is_own = socket.is_some();
        let mut client = builder(socket.as_deref()).connect_timeout(config.connect_timeout);
        if !is_own {
            client = client.read_timeout(config.timeout);
        }
        if let Some(proxy) = &config.proxy {
            client = client.proxy(proxy.for_client().map_err(ModelsError::Proxy)?);
        }
        if url.scheme() == "http" && !config.proxy.as_ref().is_some_and(Proxy::has_tls) {
            client = without_tls(client);
        }
        let client = client.build().map_err(|error| ModelsError::Client(last_cause(&error)))?;
        let running = Semaphore::new(config.parallelism.min(Semaphore::MAX_PERMITS));
        let streams = AtomicBool::new(config.stream && !is_own);
        Ok(Self { config, url, headers, client, is_own, streams, running })
    }

    /// The model that is called unless a rollout names another.
    #[must_use]
    pub fn model(&self) -> &str {
        &self.config.model
    }

    pub(super) fn retries(&self) -> &Retries {
        &self.config.retries
    }

    /// A place among the requests that run at once.
    pub(super) async fn permit(&self) -> SemaphorePermit<'_> {
        self.running.acquire().await.expect("the semaphore is never closed")
    }

    /// Sends a request once; its body asks for a reply in pieces or not. One that is refused for the pieces alone is sent once
    /// more without.
    pub(super) async fn post(
        &self,
        request_id: &str,
        body: impl Fn(bool) -> Bytes,
    ) -> Result<Reply, Failure> {
        if self.streams.load(Ordering::Relaxed) {
            let replied = self.send(request_id, body(true), true).await;
            let is_refused = matches!(&replied, Err(failure) if refuses_stream(&failure.error));
            let has_usage =
                replied.as_ref().is_ok_and(|reply| reply.body.get("usage").is_some_and(Json::is_object));
            if is_refused || (replied.is_ok() && !has_usage) {
                tracing::info!(is_refused, has_usage, "replies are asked for whole from now on");
                self.streams.store(false, Ordering::Relaxed);
            }
            if !is_refused {
                return replied;
            }
        }
        self.send(request_id, body(false), false).await
    }

    async fn send(&self, request_id: &str, body: Bytes, streams: bool) -> Result<Reply, Failure> {
        let mut request = self
            .client
            .post(self.url.clone())
            .header(CONTENT_TYPE, "application/json")
            .headers(self.headers.clone())
            .body(body);
        for name in REQUEST_ID_HEADERS {
            request = request.header(name, request_id);
        }
        if !streams && !self.is_own {
            request = request.timeout(self.config.timeout);
        }
        let response = request.send().await.map_err(|error| self.broken(&error))?;
        let status = response.status();
        let asked = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok());
        let asked = asked.and_then(|value| retry_after(value, SystemTime::now()));
        let kind = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        if status.is_success() && kind.is_some_and(|kind| kind.starts_with("text/event-stream")) {
            return self.read_pieces(response).await;
        }
        let body = self.read(response).await;
        if !status.is_success() {
            // Without the text, the status is enough.
            let body = body.unwrap_or_default();
            return Err(self.refused(status, asked, &body));
        }
        let body = self.json(&body?)?;
        match error_text(&body) {
            // Some servers report errors with a status of success.
            Some(error) if lacks_choices(&body) => Err(unusable(self.shorten(&error))),
            _ => Ok(Reply { body }),
        }
    }

    /// Reads a reply that comes as events, each with a piece of it.
    async fn read_pieces(&self, response: Response) -> Result<Reply, Failure> {
        let mut events = SseStream::new(reqwest::Body::from(response));
        let (mut pieces, mut bytes) = (Pieces::default(), 0);
        while let Some(event) = events.next().await {
            let data = event.map_err(|error| self.broken_stream(error))?.data.unwrap_or_default();
            if data == "[DONE]" {
                // A connection whose response has ended can be used again.
                let _ended_or_late = timeout(CLOSING, events.next()).await;
                break;
            }
            bytes += data.len();
            if bytes > MAX_STREAM_BYTES {
                return Err(unusable(format!("it is over {} MiB", MAX_STREAM_BYTES >> 20)));
            }
            let piece = self.json(data.as_bytes())?;
            match error_text(&piece) {
                Some(error) if lacks_choices(&piece) || !piece["error"].is_null() => {
                    return Err(self.failed_midway(&piece, &error));
                }
                _ => pieces.add(piece),
            }
        }
        match pieces.is_whole() {
            true => Ok(Reply { body: pieces.into_body() }),
            false => Err(Failure {
                error: SubCallError::Broken("the stream ended before the reply".to_owned()),
                may_have_cost: true,
                retry: Retry::After(None),
            }),
        }
    }

    /// An error that a server reports in a reply that it has begun, perhaps with the status that it would have had.
    fn failed_midway(&self, piece: &Json, error: &str) -> Failure {
        let code = piece.pointer("/error/code").or_else(|| piece.get("code")).and_then(Json::as_u64);
        let status = code.and_then(|code| StatusCode::from_u16(code.try_into().ok()?).ok());
        match status.filter(|status| status.is_client_error() || status.is_server_error()) {
            Some(status) => {
                Failure { may_have_cost: true, ..self.refused(status, None, piece.to_string().as_bytes()) }
            }
            None => unusable(self.shorten(error)),
        }
    }

    fn broken_stream(&self, error: sse_stream::Error) -> Failure {
        match error {
            sse_stream::Error::Body(error) => match error.downcast::<reqwest::Error>() {
                Ok(error) => self.broken(&error),
                Err(error) => unusable(self.shorten(&error.to_string())),
            },
            other => unusable(format!("its stream has an {other}")),
        }
    }

    /// The names of the models that the server lists.
    ///
    /// # Errors
    /// A sentence with the address and what may help. A server may answer requests and list nothing.
    pub async fn list(&self) -> Result<Vec<String>, String> {
        let entries = self.entries().await;
        let entries = entries.map_err(|failure| explain(&failure.error, self.list_url(), 1))?;
        Ok(entries.iter().filter_map(|entry| name(entry).map(str::to_owned)).collect())
    }

    /// The limits of the model, as far as the server lists them. A server that does not answer within 3 s lists none, and
    /// one on a Unix socket is not asked.
    pub async fn limits(&self) -> ModelLimits {
        if self.is_own {
            return ModelLimits::default();
        }
        let entries = timeout(LIMITS_TIME, self.entries()).await;
        let entries = entries.ok().and_then(Result::ok).unwrap_or_default();
        let entry = entries.iter().find(|entry| name(entry) == Some(self.model()));
        entry.map(ModelLimits::of_entry).unwrap_or_default()
    }

    fn list_url(&self) -> Url {
        let mut url = self.url.clone();
        url.path_segments_mut().expect("http has a path").pop().pop().push("models");
        url
    }

    /// The entries of the list of models.
    async fn entries(&self) -> Result<Vec<Json>, Failure> {
        let request = self.client.get(self.list_url()).headers(self.headers.clone()).timeout(LIST_TIME);
        let response = request.send().await.map_err(|error| self.broken(&error))?;
        let status = response.status();
        let body = self.read(response).await;
        if !status.is_success() {
            return Err(self.refused(status, None, &body.unwrap_or_default()));
        }
        let mut list: Json = serde_json::from_slice(&body?).map_err(|error| unusable(error.to_string()))?;
        match list.get_mut("data").map(Json::take) {
            Some(Json::Array(entries)) => Ok(entries),
            _ => Err(unusable("it has no list `data`".to_owned())),
        }
    }

    async fn read(&self, response: Response) -> Result<Vec<u8>, Failure> {
        let body = read(response, MAX_REPLY_BYTES).await.map_err(|error| self.broken(&error))?;
        body.ok_or_else(|| unusable(format!("it is over {} MiB", MAX_REPLY_BYTES >> 20)))
    }

    fn json(&self, body: &[u8]) -> Result<Json, Failure> {
        serde_json::from_slice(body).or_else(|error| repaired(body).ok_or(error)).map_err(|error| {
            let text = String::from_utf8_lossy(body);
            unusable(match page_title(&text) {
                Some(title) => self.shorten(&title),
                None => format!("{error} in {:?}", self.shorten(&text)),
            })
        })
    }

    fn refused(&self, status: StatusCode, asked: Option<Duration>, body: &[u8]) -> Failure {
        let text = String::from_utf8_lossy(body);
        let text = page_title(&text).map_or(text, Cow::Owned);
        let said = serde_json::from_slice(body).ok().and_then(|json| error_text(&json));
        let said = self.shorten(&said.unwrap_or_else(|| text.into_owned()));
        let message = if said.is_empty() {
            status.canonical_reason().unwrap_or("without a reason").to_owned()
        } else {
            said
        };
        let message = self.naming_proxy(message);
        let is_passing = matches!(status.as_u16(), 408 | 429) || status.is_server_error();
        Failure {
            error: SubCallError::Status { status: status.as_u16(), message },
            // A gateway gave up waiting; the model behind it may have answered.
            may_have_cost: matches!(status.as_u16(), 504 | 524),
            retry: if is_passing { Retry::After(asked) } else { Retry::Never },
        }
    }

    fn broken(&self, error: &reqwest::Error) -> Failure {
        let reason = self.naming_proxy(self.shorten(&last_cause(error)));
        let again = Retry::After(None);
        let (error, may_have_cost, retry) = if speaks_http(error) {
            (SubCallError::Unreachable(PLAIN_HTTP.to_owned()), false, Retry::Never)
        } else if error.is_connect() {
            (SubCallError::Unreachable(reason), false, again)
        } else if error.is_timeout() {
            (SubCallError::TimedOut { after: self.config.timeout, last: None }, true, Retry::Once)
        } else {
            (SubCallError::Broken(reason), true, again)
        };
        Failure { error, may_have_cost, retry }
    }

    /// An error in words for people, who can do something about it. Code in a session gets the error alone, without the
    /// address.
    pub(super) fn explain(&self, error: &SubCallError, attempts: u32) -> String {
        match error {
            // The deadline was nearer than the limit of a request.
            SubCallError::TimedOut { after, .. } if *after < self.config.timeout => error.to_string(),
            _ => explain(error, self.url.clone(), attempts),
        }
    }

    /// The text with the name of the proxy, which may be what failed.
    fn naming_proxy(&self, text: String) -> String {
        match &self.config.proxy {
            Some(proxy) => format!("{text} (over {proxy})"),
            None => text,
        }
    }

    /// A server's text in one short line, without the key and the values of headers.
    fn shorten(&self, text: &str) -> String {
        let secrets = self.config.key.iter().chain(self.config.headers.iter().map(|(_, value)| value));
        let text = secrets.fold(text.to_owned(), |text, secret| secret.redact(&text));
        cut(&one_line(&text), ERROR_CHARS)
    }
}

/// The reason why a server without TLS cannot be reached over `https`.
const PLAIN_HTTP: &str = "the server speaks http, not https";

/// Reports whether a server answered the beginning of TLS with something else.
fn speaks_http(error: &reqwest::Error) -> bool {
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
fn explain(error: &SubCallError, mut address: Url, attempts: u32) -> String {
    use SubCallError::{Broken, Malformed, MustWait, Status, TimedOut, Unreachable};
    let advice = match error {
        Unreachable(reason) if reason == PLAIN_HTTP => ": does the base URL begin with http://?",
        Unreachable(_) => ": does a server run there?",
        Status { status: 401 | 403, .. } => ": is the key right?",
        Status { status: 404, .. } => {
            ": does the base URL end with its version, such as /v1, and is the model's name right?"
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

/// The headers of each request. A header that is given comes in the place of our own.
fn headers(config: &ModelsConfig) -> Result<HeaderMap, ModelsError> {
    let mut headers = HeaderMap::new();
    if let Some(key) = &config.key {
        headers.insert(AUTHORIZATION, bearer(key.reveal()).map_err(|_| ModelsError::Key)?);
    }
    for (name, value) in &config.headers {
        let cannot = || ModelsError::Header(name.clone());
        let mut value = HeaderValue::from_str(value.reveal()).map_err(|_| cannot())?;
        value.set_sensitive(true);
        headers.insert(HeaderName::from_bytes(name.as_bytes()).map_err(|_| cannot())?, value);
    }
    Ok(headers)
}

/// True if a server says with this error that it does not stream replies.
fn refuses_stream(error: &SubCallError) -> bool {
    let SubCallError::Status { status: 400 | 404 | 422 | 501, message } = error else { return false };
    message.to_lowercase().contains("stream")
}

fn lacks_choices(body: &Json) -> bool {
    body.get("choices").is_none_or(Json::is_null)
}

/// Reads a body whose texts have halves of surrogate pairs, as models may write them: the reply is paid for already.
fn repaired(body: &[u8]) -> Option<Json> {
    Value::from_json_text(body, &Limits::default()).ok()?.to_json(usize::MAX).ok()
}

/// The name of a model in a list.
fn name(entry: &Json) -> Option<&str> {
    entry.get("id")?.as_str()
}

fn unusable(why: String) -> Failure {
    Failure { error: SubCallError::Malformed(why), may_have_cost: true, retry: Retry::Once }
}

/// What an HTML page is called, if the text is one.
fn page_title(text: &str) -> Option<String> {
    if !text.trim_start().starts_with('<') {
        return None;
    }
    let title = text.split_once("<title>").and_then(|(_, rest)| rest.split_once("</title>"));
    Some(title.map_or("an HTML page".to_owned(), |(title, _)| format!("an HTML page, {:?}", title.trim())))
}

/// The message of an error document: `{"error": {"message"}}`, `{"error"}`, `{"message"}` or `{"detail"}`.
fn error_text(json: &Json) -> Option<String> {
    let found = json.pointer("/error/message").or_else(|| json.get("error")).or_else(|| json.get("message"));
    match found.or_else(|| json.get("detail"))? {
        Json::Null => None,
        Json::String(text) => Some(text.clone()),
        other => Some(other.to_string()),
    }
}

/// The address of requests, and the Unix socket that they go to.
fn completions_url(base_url: &str) -> Result<(Url, Option<PathBuf>), String> {
    if base_url.starts_with("http+unix:") {
        let endpoint =
            Endpoint::new(base_url, None).map_err(|error| format!("cannot be used: {}", error.fault))?;
        let (url, _) = completions_url(&endpoint.http_url())?;
        return Ok((url, endpoint.socket().map(Into::into)));
    }
    // The text itself is not repeated where a key may be in it.
    let mut url = Url::parse(base_url).map_err(|error| {
        format!("cannot be read: {error}; expected http://… or https://…, up to the version")
    })?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(format!("begins with {}:, expected http: or https:", url.scheme()));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("has a user name or password in it: give a key instead".to_owned());
    }
    url.path_segments_mut().expect("http has a path").pop_if_empty().extend(["chat", "completions"]);
    Ok((url, None))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn completions_lie_under_the_base_url() {
        let url = |base| completions_url(base).map(|(url, _)| String::from(url));
        let expected = Ok("https://host/v1/chat/completions".to_owned());
        assert_eq!(url("https://host/v1"), expected);
        assert_eq!(url("https://host/v1/"), expected);
        assert_eq!(url("http://host/a?v=2"), Ok("http://host/a/chat/completions?v=2".to_owned()));
        let error = url("host/v1").unwrap_err();
        assert_eq!(
            error,
            "cannot be read: relative URL without a base; expected http://… or https://…, up to the version"
        );
        assert_eq!(url("host:80/v1"), Err("begins with host:, expected http: or https:".to_owned()));
        let error = url("https://me:secret@host/v1").unwrap_err();
        assert_eq!(error, "has a user name or password in it: give a key instead");
        let (url, socket) = completions_url("http+unix://%2Ftmp%2Fa.sock/v1").unwrap();
        assert_eq!(url.as_str(), "http://localhost/v1/chat/completions");
        assert_eq!(socket, Some("/tmp/a.sock".into()));
        let error = completions_url("http+unix://tmp/v1").unwrap_err();
        assert_eq!(error, "cannot be used: the socket's path is not absolute");
    }

    #[test]
    fn a_configuration_that_cannot_be_is_refused() {
        let error = |change: fn(&mut ModelsConfig)| {
            let mut config = ModelsConfig::new("http://127.0.0.1:1/v1", "m");
            change(&mut config);
            Models::new(config).unwrap_err().to_string()
        };
        assert_eq!(error(|config| config.model.clear()), "the name of the model is empty");
        assert_eq!(
            error(|config| config.parallelism = 0),
            "the parallelism of the models is 0, expected 1 or more"
        );
        let key = error(|config| config.key = Some(Key::new("se\ncret")));
        assert_eq!(key, "the key of the models has characters that a header cannot hold");
        let header = error(|config| config.headers.push(("api key".to_owned(), Key::new("x"))));
        assert_eq!(header, "the header api key of the models has a name or a value that cannot be sent");
        assert!(
            error(|config| config.base_url.clear()).starts_with("the base URL of the models cannot be read")
        );
    }
}
