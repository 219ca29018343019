//! The models of a process: one endpoint, one client, one bound on what runs at once.

use std::borrow::Cow;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use std::time::Duration;

use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, Method, Request, Response, StatusCode, Url};
use rlm_core::pickle::{Limits, Value};
use rlm_core::root_tool::client::Endpoint;
use rlm_core::text::{cut, one_line};
use serde_json::{Map, Value as Json};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

use super::api::Api;
use super::bounds::{ToldWindow, fit_bound};
use super::error::SubCallError;
use super::failure::{
    Cost, Failure, PLAIN_HTTP, Retry, error_in_choice, error_text, explain, page_title, refuses_stream,
    speaks_http, status_of, unusable,
};
use super::key::Key;
use super::limits::ModelLimits;
use super::message::{ChatMessage, prompt_tokens};
use super::opaque::without_signatures;
use super::reply::Reply;
use super::request_ids::RequestIds;
use super::retry::{Retries, asked_pause, told_pause};
use super::rules::{ErrorKind, Refused, Rules, telling_part};
use super::sse;
use super::wire::Streamed;
use crate::http_client::{bearer, builder, header, last_cause, over, read};
use crate::proxy::Proxy;

/// Headers with the id of a request, the same in each attempt: for logs, and for trainers.
const REQUEST_ID_HEADERS: [HeaderName; 2] =
    [HeaderName::from_static("x-request-id"), HeaderName::from_static("x-acp-model-request-id")];

/// Header for servers that count a repeated request once.
const KEY_HEADER: HeaderName = HeaderName::from_static("idempotency-key");

/// Header with the id of the batch that a request belongs to.
const BATCH_ID_HEADER: HeaderName = HeaderName::from_static("x-rlm-batch-id");

/// Header of LiteLLM's proxy with the cost of a reply that comes whole, in USD.
const COST_HEADER: &str = "x-litellm-response-cost";

/// The version of Anthropic's interface (<https://docs.anthropic.com/en/api/versioning>).
const ANTHROPIC_VERSION: (&str, &str) = ("anthropic-version", "2023-06-01");

/// Header with the key of Anthropic's interface.
const ANTHROPIC_KEY: &str = "x-api-key";

/// Largest reply that is read, in bytes. A completion of a million tokens is smaller.
const MAX_REPLY_BYTES: usize = 16 << 20;

/// Most bytes of events of a reply that is streamed: each token has an event of its own.
const MAX_STREAM_BYTES: usize = 512 << 20;

/// Time limit for making a connection.
const CONNECT_TIME: Duration = Duration::from_secs(10);

/// Time for a server to end its response after the last event.
const CLOSING: Duration = Duration::from_millis(50);

/// Most entries that Anthropic lists at once; 20 if it is not asked for more.
const LIST_ENTRIES: &str = "1000";

/// Time limit of a request for the list of models.
const LIST_TIME: Duration = Duration::from_secs(10);

/// Time for a server to list the limits of its model.
const LIMITS_TIME: Duration = Duration::from_secs(3);

/// Words beside the error of a server that is not paid any more.
const NO_CREDIT: &str = "the account has no credit";

/// Kinds of errors that are refusals, although some servers call them their own fault.
const REFUSALS: [ErrorKind; 3] = [ErrorKind::ContextFull, ErrorKind::NoTools, ErrorKind::NoImages];

/// Longest text of a server's error, in characters.
const ERROR_CHARS: usize = 300;

/// The server of the models, and the limits of calls to it.
#[derive(Clone, Debug)]
pub struct ModelsConfig {
    /// The address of the server's interface, up to and with its version: `https://host/v1`, or, on a Unix socket,
    /// `http+unix://SOCKET/v1` with the slashes of SOCKET as %2F.
    pub base_url: String,
    /// The model that is called unless a rollout names another.
    pub model: String,
    /// The interface; by default the one that the table of servers names for this address, or else chat completions.
    pub api: Option<Api>,
    /// The row of the table of servers; by default the one with this address, or with what the server lists as its owner.
    pub server: Option<String>,
    /// Rules that override those of the table.
    pub rules: Rules,
    /// True to ask for the ids and log probabilities of tokens, from servers that return them. False by default.
    pub token_ids: bool,
    /// The key, sent as `Authorization: Bearer …`, or to Anthropic's interface as `x-api-key`.
    pub key: Option<Key>,
    /// Further headers of each request. A value is a secret, like a key.
    pub headers: Vec<(String, Key)>,
    /// The proxy for requests; none by default, whatever the environment says.
    pub proxy: Option<Proxy>,
    /// Requests of this process that run at once; 64 by default.
    pub parallelism: usize,
    /// The retries of a request.
    pub retries: Retries,
    /// Time limit of one attempt until its response is read or, where that is streamed, of a silence in it; 120 s by default, so
    /// that a call of 300 s has a second attempt. None for a server on a Unix socket, which is the program that asks.
    pub timeout: Duration,
    /// True, the default, to ask for replies in pieces. Replies are asked for whole from a server on a Unix socket, and from any
    /// server once it refuses pieces or does not report their usage.
    pub stream: bool,
}

impl ModelsConfig {
    /// A configuration with default limits and no key.
    pub fn new(base_url: impl Into<String>, model: impl Into<String>) -> Self {
        Self {
            base_url: base_url.into(),
            model: model.into(),
            api: None,
            server: None,
            rules: Rules::default(),
            token_ids: false,
            key: None,
            headers: Vec::new(),
            proxy: None,
            parallelism: 64,
            retries: Retries::default(),
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
    /// The table of servers has no such row.
    #[error("{0}")]
    Server(String),
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

/// The way in which a server has sent its replies so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Streaming {
    /// No reply was asked for in pieces.
    #[default]
    NotAsked,
    /// In pieces, with their usage.
    InPieces,
    /// Whole, although pieces were asked for.
    Whole,
    /// In pieces without usage, so that whole replies are asked for.
    WithoutUsage,
    /// The server refuses to stream.
    Refused,
}

/// The models of a process.
#[derive(Debug)]
pub struct Models {
    config: ModelsConfig,
    api: Api,
    url: Url,
    /// The rules of the server for each model, as far as they are known so far.
    rules: RwLock<HashMap<String, Arc<Rules>>>,
    /// The name that the server lists as the owner of its models.
    owner: OnceLock<String>,
    /// The host in the base URL, with its port if it has one.
    host: String,
    /// The headers of each request: the key, and further ones.
    headers: HeaderMap,
    client: Client,
    /// The server is on a Unix socket: this server is the program that asks.
    is_own: bool,
    /// True while replies are asked for in pieces.
    streams: AtomicBool,
    streaming: Mutex<Streaming>,
    /// Number of requests that were sent, without those for lists.
    sent: AtomicU64,
    /// One permit per request under way.
    running: Semaphore,
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
        let (mut url, socket) = base_url(&config.base_url).map_err(ModelsError::BaseUrl)?;
        let by_host = Rules::of_host(&host(&url), &config.model);
        let table = config.server.as_deref().map_or(Ok(by_host), |name| Rules::named(name, &config.model));
        let rules = table.map_err(ModelsError::Server)?.with(&config.rules);
        let api = config.api.or(rules.api).unwrap_or_default();
        let host = host(&url);
        url.path_segments_mut().expect("http has a path").extend(api.path());
        let headers = headers(&config, api)?;
        let is_own = socket.is_some();
        let mut client = builder(socket.as_deref()).connect_timeout(CONNECT_TIME);
        if !is_own {
            client = client.read_timeout(config.timeout);
        }
        let client = over(client, &url, config.proxy.as_ref()).map_err(ModelsError::Proxy)?;
        let client = client.build().map_err(|error| ModelsError::Client(last_cause(&error)))?;
        let running = Semaphore::new(config.parallelism.min(Semaphore::MAX_PERMITS));
        let streams = AtomicBool::new(config.stream && !is_own);
        let (rules, owner) = (RwLock::default(), OnceLock::new());
        let (streaming, sent) = (Mutex::default(), AtomicU64::new(0));
        Ok(Self {
            config,
            api,
            url,
            host,
            rules,
            owner,
            headers,
            client,
            is_own,
            streams,
            streaming,
            sent,
            running,
        })
    }

    /// The interface of the server.
    #[must_use]
    pub fn api(&self) -> Api {
        self.api
    }

    /// The way in which the server has sent its replies so far.
    #[must_use]
    pub fn streaming(&self) -> Streaming {
        *self.streaming.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note_streaming(&self, streaming: Streaming) {
        *self.streaming.lock().unwrap_or_else(PoisonError::into_inner) = streaming;
    }

    /// Number of requests that were sent, retries included.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// The rules of the server for a model, with those that were learned so far.
    #[must_use]
    pub fn rules(&self, model: &str) -> Arc<Rules> {
        if let Some(rules) = self.rules.read().unwrap_or_else(PoisonError::into_inner).get(model) {
            return rules.clone();
        }
        let by_host = || Rules::of_host(&self.host, model);
        let by_owner = || self.owner.get().map(|owner| Rules::of_owner(owner, model)).unwrap_or_default();
        let table = match &self.config.server {
            Some(name) => Rules::named(name, model).unwrap_or_default(),
            None => Some(by_host()).filter(|rules| *rules != Rules::default()).unwrap_or_else(by_owner),
        };
        let mut rules = self.rules.write().unwrap_or_else(PoisonError::into_inner);
        rules.entry(model.to_owned()).or_insert_with(|| Arc::new(table.with(&self.config.rules))).clone()
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

    /// Sends a request once. If the server refuses the form of the request, not its content, the rules learn that, and it is sent
    /// once more.
    pub(super) async fn post(
        &self,
        ids: &mut RequestIds<'_>,
        messages: &[ChatMessage],
        fields: &Map<String, Json>,
        mut room: Option<u64>,
    ) -> Result<Reply, Failure> {
        let mut has_refused_bound = false;
        loop {
            let model = fields.get("model").and_then(Json::as_str).unwrap_or(self.model());
            let (rules, streams) = (self.rules(model), self.streams.load(Ordering::Relaxed));
            let mut sent = Cow::Borrowed(fields);
            if self.config.token_ids {
                sent.to_mut().extend(rules.token_ids());
            }
            let longest = (self.api == Api::Anthropic).then(|| rules.longest_completion());
            let bound = fit_bound(&mut sent, longest, room);
            let body = self.api.body(messages, sent, streams, &rules);
            let replied = self.send(ids, body.bytes, streams).await;
            if let Err(failure) = &replied {
                if self.learn(model, &rules, failure, Refused { messages, fields, streams }) {
                    continue;
                }
                if !has_refused_bound && let Some(fits) = fitting(failure, bound, messages, fields) {
                    tracing::debug!(request_id = ids.id, fits, "the bound on the completion is lowered");
                    (has_refused_bound, room) = (true, Some(fits));
                    continue;
                }
                if streams && refuses_stream(&failure.error) {
                    self.note_streaming(Streaming::Refused);
                    self.stop_streaming("it refuses to stream");
                    continue;
                }
            }
            if streams && replied.as_ref().is_ok_and(|reply| reply.reported_usage().is_none()) {
                self.note_streaming(Streaming::WithoutUsage);
                self.stop_streaming("streamed replies have no usage");
            }
            return replied.map(|reply| Reply { adapted: body.adapted, ..reply });
        }
    }

    fn stop_streaming(&self, why: &str) {
        tracing::info!(why, "replies are asked for whole from now on");
        self.streams.store(false, Ordering::Relaxed);
    }

    /// Learns from a refused request. True if the rules have changed since it was sent.
    fn learn(&self, model: &str, before: &Arc<Rules>, failure: &Failure, refused: Refused<'_>) -> bool {
        let SubCallError::Status { status: status @ (400 | 404 | 422 | 500 | 501), message } = &failure.error
        else {
            return false;
        };
        let mut rules = self.rules.write().unwrap_or_else(PoisonError::into_inner);
        let Some(known) = rules.get_mut(model) else { return false };
        if !Arc::ptr_eq(before, known) {
            return true;
        }
        let mut new = Rules::clone(known);
        let Some(learned) = new.learn(*status, &failure.said, refused) else { return false };
        tracing::warn!("{learned}; it said: {message}");
        *known = Arc::new(new);
        true
    }

    /// The headers of a request. Those of the user replace our own. An id that a header cannot hold is left out.
    fn headers_with(&self, ids: &mut RequestIds<'_>, body: &[u8]) -> HeaderMap {
        let mut headers = self.headers.clone();
        headers.entry(CONTENT_TYPE).or_insert(HeaderValue::from_static("application/json"));
        if let Ok(id) = HeaderValue::from_str(ids.id) {
            for name in REQUEST_ID_HEADERS {
                headers.entry(name).or_insert_with(|| id.clone());
            }
        }
        if let Ok(key) = HeaderValue::from_str(ids.key(body)) {
            headers.entry(KEY_HEADER).or_insert(key);
        }
        if let Ok(batch) = HeaderValue::from_str(ids.batch) {
            headers.entry(BATCH_ID_HEADER).or_insert(batch);
        }
        headers
    }

    async fn send(&self, ids: &mut RequestIds<'_>, body: Vec<u8>, streams: bool) -> Result<Reply, Failure> {
        let mut request = Request::new(Method::POST, self.url.clone());
        *request.headers_mut() = self.headers_with(ids, &body);
        *request.body_mut() = Some(body.into());
        if !streams && !self.is_own {
            *request.timeout_mut() = Some(self.config.timeout);
        }
        self.sent.fetch_add(1, Ordering::Relaxed);
        let response = self.client.execute(request).await.map_err(|error| self.broken(&error))?;
        let status = response.status();
        let asked = if status.is_success() { None } else { asked_pause(response.headers()) };
        let cost =
            response.headers().get(COST_HEADER).and_then(|value| value.to_str().ok()?.parse::<f64>().ok());
        let kind = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let is_stream = |kind: &str| kind.to_ascii_lowercase().starts_with("text/event-stream");
        if status.is_success() && kind.is_some_and(is_stream) {
            self.note_streaming(Streaming::InPieces);
            return self.read_pieces(response).await;
        }
        let body = self.read(response).await;
        if let Ok(body) = &body
            && status.is_success()
            && is_events(body)
        {
            self.note_streaming(Streaming::InPieces);
            let mut pieces = StreamedReply::new(self);
            pieces.add(body)?;
            return pieces.end();
        }
        if !status.is_success() {
            // Without the text, the status is enough.
            let body = body.unwrap_or_default();
            return Err(self.refused(status, asked, &body));
        }
        if streams {
            self.note_streaming(Streaming::Whole);
        }
        let mut reply = self.reply(self.json(&body?)?, "")?;
        if let (Some(cost), Some(usage)) = (cost, reply.body.get_mut("usage").and_then(Json::as_object_mut)) {
            usage.entry("cost").or_insert_with(|| cost.into());
        }
        Ok(reply)
    }

    /// Reads a reply of status 200, which may still be an error. `text` has all texts of its pieces if it came in some.
    fn reply(&self, body: Json, text: &str) -> Result<Reply, Failure> {
        let is_error = match self.api {
            Api::Chat => lacks_choices(&body),
            _ => has_error(&body),
        };
        let in_choice = error_in_choice(&body);
        let failed = in_choice.as_ref().or_else(|| is_error.then_some(&body));
        match failed.and_then(|failed| Some((failed, error_text(failed)?))) {
            Some((failed, error)) => {
                let failure = self.failed_midway(failed, &error);
                Err(failure.after(self.api.part(body, text)))
            }
            None => Ok(Reply::new(self.api.reply(body).map_err(unusable)?)),
        }
    }

    /// Reads a reply that comes as events, each with a piece of it.
    async fn read_pieces(&self, mut response: Response) -> Result<Reply, Failure> {
        let mut pieces = StreamedReply::new(self);
        while let Some(chunk) = response.chunk().await.map_err(|error| self.broken(&error))? {
            pieces.add(&chunk)?;
            if pieces.is_over {
                // A connection whose response has ended can be used again.
                let _ended_or_late = timeout(CLOSING, response.chunk()).await;
                break;
            }
        }
        pieces.end()
    }

    /// An error that a server reports in a reply that it has begun, perhaps with the status that it would have had.
    fn failed_midway(&self, piece: &Json, error: &str) -> Failure {
        let text = piece.to_string();
        let is_full = ErrorKind::ContextFull.is_of(&text);
        match status_of(piece).or_else(|| is_full.then_some(StatusCode::BAD_REQUEST)) {
            Some(status) => self.refused(status, None, text.as_bytes()),
            None if ErrorKind::Overloaded.is_of(error) => {
                Failure { retry: Retry::After(told_pause(error)), ..unusable(self.shorten(error)) }
            }
            None => unusable(self.shorten(error)),
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
        self.limits_of(self.model()).await
    }

    /// The limits of another model of the server, as far as the server lists them.
    pub async fn limits_of(&self, model: &str) -> ModelLimits {
        if self.is_own {
            return ModelLimits::default();
        }
        let entries = timeout(LIMITS_TIME, self.entries()).await;
        let entries = entries.ok().and_then(Result::ok).unwrap_or_default();
        let entry = entries.iter().find(|entry| name(entry).is_some_and(|name| is_same_model(name, model)));
        let owner = entry.and_then(|entry| entry.get("owned_by")?.as_str());
        if let Some(owner) = owner.filter(|_| self.owner.get().is_none()) {
            self.owner.get_or_init(|| owner.to_owned());
            self.rules.write().unwrap_or_else(PoisonError::into_inner).clear();
        }
        entry.map(ModelLimits::of_entry).unwrap_or_default()
    }

    fn list_url(&self) -> Url {
        let mut url = self.url.clone();
        let mut path = url.path_segments_mut().expect("http has a path");
        for _ in self.api.path() {
            path.pop();
        }
        path.push("models");
        drop(path);
        if self.api == Api::Anthropic {
            url.query_pairs_mut().append_pair("limit", LIST_ENTRIES);
        }
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
                // The piece of a reply may hold reasoning, so it is not shown.
                None if text.trim_start().starts_with(['{', '[']) => error.to_string(),
                None => format!("{error} in {:?}", self.shorten(&text)),
            })
        })
    }

    fn refused(&self, status: StatusCode, asked: Option<Duration>, body: &[u8]) -> Failure {
        let text = String::from_utf8_lossy(body);
        let text = page_title(&text).map_or(text, Cow::Owned);
        let said = serde_json::from_slice(body).ok().and_then(|json| error_text(&json));
        let said = self.shorten(said.as_deref().unwrap_or(&text));
        let message = if said.is_empty() {
            status.canonical_reason().unwrap_or("without a reason").to_owned()
        } else {
            said
        };
        let is_of = |kind: ErrorKind| kind.is_of(&text);
        let message = if is_of(ErrorKind::NoCredit) { format!("{message} ({NO_CREDIT})") } else { message };
        let message = self.naming_proxy(message);
        let is_own_fault = matches!(status.as_u16(), 500 | 501);
        let retry = if is_of(ErrorKind::NoCredit) || is_own_fault && REFUSALS.into_iter().any(is_of) {
            Retry::Never
        } else if matches!(status.as_u16(), 408 | 429)
            || status.is_server_error()
            || is_of(ErrorKind::Overloaded)
        {
            Retry::After(asked.or_else(|| told_pause(&text)))
        } else if is_of(ErrorKind::BadCall) {
            Retry::Once
        } else {
            Retry::Never
        };
        Failure {
            error: SubCallError::Status { status: status.as_u16(), message },
            // A gateway gave up waiting; the model behind it may have answered.
            cost: if matches!(status.as_u16(), 504 | 524) { Cost::Unknown } else { Cost::Nothing },
            retry,
            said: text.into_owned(),
        }
    }

    fn broken(&self, error: &reqwest::Error) -> Failure {
        let reason = self.naming_proxy(self.shorten(&last_cause(error)));
        let again = Retry::After(None);
        let (error, cost, retry) = if speaks_http(error) {
            (SubCallError::Unreachable(PLAIN_HTTP.to_owned()), Cost::Nothing, Retry::Never)
        } else if error.is_connect() {
            (SubCallError::Unreachable(reason), Cost::Nothing, again)
        } else if error.is_timeout() {
            (SubCallError::TimedOut { after: self.config.timeout, last: None }, Cost::Unknown, Retry::Once)
        } else {
            (SubCallError::Broken(reason), Cost::Unknown, again)
        };
        Failure { error, cost, retry, said: String::new() }
    }

    /// An error in words for people, with the address and what may help. Code in a session gets the error alone.
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

    /// A server's text in one short line, without the key, the values of headers, signatures and encrypted reasoning.
    fn shorten(&self, text: &str) -> String {
        let secrets = self.config.key.iter().chain(self.config.headers.iter().map(|(_, value)| value));
        let text = secrets.fold(text.to_owned(), |text, secret| secret.redact(&text));
        let text = one_line(&without_signatures(&text));
        match telling_part(&text) {
            // The words by which the kind of error is known are not cut off.
            Some(at) if text[..at].chars().count() > ERROR_CHARS / 2 => {
                format!("{} {}", cut(&text, ERROR_CHARS / 2), cut(&text[at..], ERROR_CHARS / 2))
            }
            _ => cut(&text, ERROR_CHARS),
        }
    }
}

/// A reply that comes as events, each with a piece of it.
struct StreamedReply<'a> {
    models: &'a Models,
    events: sse::Events,
    streamed: Streamed,
    bytes: usize,
    /// True once the server has said that the stream is over.
    is_over: bool,
}

impl<'a> StreamedReply<'a> {
    fn new(models: &'a Models) -> Self {
        let (events, streamed) = (sse::Events::default(), models.api.streamed());
        Self { models, events, streamed, bytes: 0, is_over: false }
    }

    fn add(&mut self, chunk: &[u8]) -> Result<(), Failure> {
        let models = self.models;
        let mut ended = Vec::new();
        self.events.add(chunk, |data| ended.push(data));
        self.bytes += chunk.len();
        if self.bytes > MAX_STREAM_BYTES || self.events.pending() > MAX_REPLY_BYTES {
            return Err(unusable(format!("it is over {} MiB", MAX_STREAM_BYTES >> 20)));
        }
        self.is_over = ended.iter().any(|data| data == "[DONE]");
        for data in ended.iter().take_while(|data| *data != "[DONE]") {
            let piece = models.json(data.as_bytes())?;
            let is_error = has_error(&piece) || models.api == Api::Chat && lacks_choices(&piece);
            let error = error_text(&piece).filter(|_| is_error);
            let failure = error.map(|error| models.failed_midway(&piece, &error));
            self.streamed.add(piece);
            if let Some(failure) = failure {
                let (body, text) = std::mem::replace(&mut self.streamed, models.api.streamed()).into_body();
                return Err(failure.after(models.api.part(body, &text)));
            }
        }
        Ok(())
    }

    fn end(self) -> Result<Reply, Failure> {
        if self.streamed.is_whole() || self.is_over && self.streamed.is_over() {
            let (body, text) = self.streamed.into_body();
            return self.models.reply(body, &text);
        }
        Err(Failure {
            error: SubCallError::Broken("the stream ended before the reply".to_owned()),
            cost: Cost::Unknown,
            retry: Retry::After(None),
            said: String::new(),
        })
    }
}

/// True if a body is a stream of events, whatever its type says.
fn is_events(body: &[u8]) -> bool {
    [&b"data:"[..], b"event:"].iter().any(|field| body.trim_ascii_start().starts_with(field))
}

/// The headers of each request. A configured header replaces our own.
fn headers(config: &ModelsConfig, api: Api) -> Result<HeaderMap, ModelsError> {
    let mut headers = HeaderMap::new();
    if api == Api::Anthropic {
        let (name, version) = ANTHROPIC_VERSION;
        headers.insert(name, HeaderValue::from_static(version));
    }
    if let Some(key) = &config.key {
        let (name, value) = match api {
            Api::Anthropic => (HeaderName::from_static(ANTHROPIC_KEY), HeaderValue::from_str(key.reveal())),
            _ => (AUTHORIZATION, bearer(key.reveal())),
        };
        let mut value = value.map_err(|_| ModelsError::Key)?;
        value.set_sensitive(true);
        headers.insert(name, value);
    }
    for (name, value) in &config.headers {
        let cannot = || ModelsError::Header(name.clone());
        let (name, value) = header(name, value.reveal()).ok_or_else(cannot)?;
        headers.insert(name, value);
    }
    Ok(headers)
}

/// The most tokens of a completion for which the context window has room, by the numbers in the error of a request with this bound.
/// None if the error has none, or if the prompt alone fills the window.
fn fitting(
    failure: &Failure,
    bound: Option<u64>,
    messages: &[ChatMessage],
    fields: &Map<String, Json>,
) -> Option<u64> {
    let bound = bound.filter(|_| ErrorKind::ContextFull.is_of(&failure.said))?;
    let told = ToldWindow::in_error(&failure.said, bound)?;
    let room = told.room(|| prompt_tokens(messages, fields));
    room.filter(|room| *room < bound)
}

/// True if a reply, or a piece of one, is an error.
fn has_error(piece: &Json) -> bool {
    piece["type"] == "error" || !piece["error"].is_null()
}

fn lacks_choices(body: &Json) -> bool {
    body.get("choices").is_none_or(Json::is_null)
}

/// The name of a model in a list.
fn name(entry: &Json) -> Option<&str> {
    entry.get("id")?.as_str()
}

/// True if two names are of the same model: Gemini lists `models/NAME`, Ollama `NAME:latest`.
#[must_use]
pub fn is_same_model(one: &str, other: &str) -> bool {
    let [one, other] = [one, other].map(|name| {
        let name = name.strip_prefix("models/").unwrap_or(name);
        name.strip_suffix(":latest").unwrap_or(name)
    });
    one == other
}

/// Reads a body whose texts have halves of surrogate pairs, as models may write them: the reply is paid for already.
fn repaired(body: &[u8]) -> Option<Json> {
    Value::from_json_text(body, &Limits::default()).ok()?.to_json(usize::MAX).ok()
}

/// The base URL, and the Unix socket that requests go to, if there is one.
fn base_url(base_url: &str) -> Result<(Url, Option<PathBuf>), String> {
    if base_url.starts_with("http+unix:") {
        let endpoint =
            Endpoint::new(base_url, None).map_err(|error| format!("cannot be used: {}", error.fault))?;
        let (url, _) = self::base_url(&endpoint.http_url())?;
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
    url.path_segments_mut().expect("http has a path").pop_if_empty();
    Ok((url, None))
}

/// The host of a URL, with its port if the URL names one.
fn host(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    url.port().map_or(host.to_owned(), |port| format!("{host}:{port}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_go_to_paths_under_the_base_url() {
        let url = |base| {
            base_url(base)?;
            Ok(Models::new(ModelsConfig::new(base, "m")).unwrap().url.to_string())
        };
        let expected = Ok("https://host/v1/chat/completions".to_owned());
        assert_eq!(url("https://host/v1"), expected);
        assert_eq!(url("https://host/v1/"), expected);
        assert_eq!(url("http://host/a?v=2"), Ok("http://host/a/chat/completions?v=2".to_owned()));
        assert_eq!(
            url("https://api.anthropic.com/v1"),
            Ok("https://api.anthropic.com/v1/messages".to_owned())
        );
        let error = url("host/v1").unwrap_err();
        assert_eq!(
            error,
            "cannot be read: relative URL without a base; expected http://… or https://…, up to the version"
        );
        assert_eq!(url("host:80/v1"), Err("begins with host:, expected http: or https:".to_owned()));
        let error = url("https://me:secret@host/v1").unwrap_err();
        assert_eq!(error, "has a user name or password in it: give a key instead");
        let (url, socket) = base_url("http+unix://%2Ftmp%2Fa.sock/v1").unwrap();
        assert_eq!(url.as_str(), "http://localhost/v1");
        assert_eq!(socket, Some("/tmp/a.sock".into()));
        let error = base_url("http+unix://tmp/v1").unwrap_err();
        assert_eq!(error, "cannot be used: the socket's path is not absolute");
    }

    #[test]
    fn a_model_is_found_in_the_lists_of_servers() {
        assert!(is_same_model("models/gemini-2.5-flash", "gemini-2.5-flash"));
        assert!(is_same_model("llama3:latest", "llama3") && is_same_model("llama3", "llama3:latest"));
        assert!(!is_same_model("llama3:8b", "llama3") && !is_same_model("org/models/m", "org/m"));
        let list = |api| {
            let config = ModelsConfig { api: Some(api), ..ModelsConfig::new("https://host/v1", "m") };
            Models::new(config).unwrap().list_url().to_string()
        };
        assert_eq!(list(Api::Chat), "https://host/v1/models");
        assert_eq!(list(Api::Anthropic), "https://host/v1/models?limit=1000");
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
