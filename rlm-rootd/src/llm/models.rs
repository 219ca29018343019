//! The models of a process: one endpoint, one client, one bound on what runs at once.

mod config;
mod failures;
mod headers;
mod list;
mod streamed;

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use std::time::Duration;

use reqwest::header::{CONTENT_TYPE, HeaderMap};
use reqwest::{Client, Method, Request, Response, Url};
use rlm_core::pickle::{Limits, Value};
use serde_json::{Map, Value as Json, json};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, timeout_at};

pub use self::config::{ModelsConfig, ModelsError};
use self::config::{base_url, headers, host};
use super::api::Api;
use super::bounds::{LEAST_COMPLETION, ToldWindow, above_thinking, afforded, fit_bound, thinking_budget};
use super::error::SubCallError;
use super::failure::{Cost, Failure, Retry, unusable};
use super::message::{ChatMessage, prompt_tokens};
use super::reply::{Came, Reply};
use super::request_ids::{Form, RequestIds};
use super::retry::{Retries, asked_pause};
use super::rules::{ErrorKind, Refused, Rules, refuses_stream};
use super::server_error::{ServerError, error_in_choice, page_title, says_something};
use crate::http_client::{builder, last_cause, over, read};

/// Header of LiteLLM's proxy with the cost of a reply that comes whole, in USD.
const COST_HEADER: &str = "x-litellm-response-cost";

/// Largest reply that is read, in bytes. A completion of a million tokens is smaller.
const MAX_REPLY_BYTES: usize = 16 << 20;

/// Most bytes of events of a reply that is streamed: each token has an event of its own.
const MAX_STREAM_BYTES: usize = 512 << 20;

/// Time limit for making a connection.
const CONNECT_TIME: Duration = Duration::from_secs(10);

/// Time for which an idle connection is kept. Servers close it after 5 s (uvicorn, Node), and a request that meets its end is lost.
const IDLE_TIME: Duration = Duration::from_secs(4);

/// Most rules that one request may teach: a server could name a smaller limit each time.
const MOST_LESSONS: u32 = 16;

/// A time that ends no request.
const FOREVER: Duration = Duration::from_secs(1 << 32);

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
    /// The longest completion of each model for which the server lists one.
    listed: RwLock<Vec<(String, u64)>>,
    /// The host in the base URL, with its port if it has one.
    host: String,
    /// The headers of each request without the key.
    headers: HeaderMap,
    client: Client,
    /// The server is on a Unix socket: this server is the program that asks.
    is_own: bool,
    /// True while replies are asked for in pieces.
    streams: AtomicBool,
    streaming: Mutex<Streaming>,
    /// Number of the last streamed replies, one after the other, whose calls have lost their arguments.
    lost_arguments: AtomicU64,
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
        let mut client =
            builder(socket.as_deref()).connect_timeout(CONNECT_TIME).pool_idle_timeout(IDLE_TIME);
        if !is_own {
            client = client.read_timeout(config.timeout);
        }
        let client = over(client, &url, config.proxy.as_ref()).map_err(ModelsError::Proxy)?;
        let client = client.build().map_err(|error| ModelsError::Client(last_cause(&error)))?;
        let running = Semaphore::new(config.parallelism.min(Semaphore::MAX_PERMITS));
        let streams = AtomicBool::new(config.stream && !is_own);
        let (rules, owner, listed) = (RwLock::default(), OnceLock::new(), RwLock::default());
        let (streaming, sent, lost_arguments) = (Mutex::default(), AtomicU64::new(0), AtomicU64::new(0));
        Ok(Self {
            config,
            api,
            url,
            host,
            rules,
            owner,
            listed,
            headers,
            client,
            is_own,
            streams,
            streaming,
            lost_arguments,
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
    /// once more. `came` gets what comes of a reply that does not end, or for which this is not waited any more.
    pub(super) async fn post(
        &self,
        ids: &mut RequestIds<'_>,
        messages: &[ChatMessage],
        fields: &Map<String, Json>,
        mut room: Option<u64>,
        came: &Came,
    ) -> Result<Reply, Failure> {
        let (mut has_refused_bound, mut refused_key, mut lessons) = (false, None, 0);
        loop {
            let model = fields.get("model").and_then(Json::as_str).unwrap_or(self.model());
            let (rules, streams) = (self.rules(model), self.streams.load(Ordering::Relaxed));
            let mut sent = Cow::Borrowed(fields);
            if self.config.token_ids {
                sent.to_mut().extend(rules.token_ids());
            }
            let longest = || above_thinking(rules.longest_completion(), fields);
            let longest = (self.api == Api::Anthropic).then(longest);
            // A request without a bound gets one where the server has told how much is left.
            let longest = longest.or(has_refused_bound.then_some(u64::MAX));
            let most = fit_bound(&mut sent, longest, rules.longest_completion);
            let bound = fit_bound(&mut sent, most, room);
            check_room_to_think(bound, most, thinking_budget(fields))?;
            ids.send_as(Form { rules: rules.clone(), streams, bound });
            let body = self.api.body(messages, sent, streams, &rules);
            let replied = self.send(ids, &rules, body.bytes, streams, bound, came).await;
            if let Err(failure) = &replied {
                let refuses_key = matches!(failure.error, SubCallError::Status { status: 401 | 403, .. });
                if refuses_key && let Some(first) = refused_key.take() {
                    // The words about the header that is the interface's own tell more.
                    self.forget_key_header(model);
                    return Err(first);
                }
                lessons += 1;
                if lessons <= MOST_LESSONS
                    && self.learn(model, &rules, failure, Refused { messages, fields, streams })
                {
                    refused_key = replied.err().filter(|_| refuses_key);
                    continue;
                }
                if !has_refused_bound && let Some(fits) = fitting(failure, bound, messages, fields) {
                    tracing::debug!(request_id = ids.id, fits, "the bound on the completion is lowered");
                    (has_refused_bound, room) = (true, Some(fits));
                    continue;
                }
                if streams
                    && let SubCallError::Status { status: 400 | 404 | 422 | 501, .. } = failure.error
                    && refuses_stream(&failure.said)
                {
                    self.note_streaming(Streaming::Refused);
                    self.stop_streaming("it refuses to stream");
                    continue;
                }
            }
            if streams && replied.as_ref().is_ok_and(|reply| reply.reported_usage().is_none()) {
                self.note_streaming(Streaming::WithoutUsage);
                self.stop_streaming("streamed replies have no usage");
            }
            let replied = replied.map(|reply| Reply { adapted: body.adapted, ..reply }.cut_at(bound));
            if streams && let Ok(reply) = &replied {
                self.watch_arguments(reply, fields);
            }
            return replied;
        }
    }

    fn stop_streaming(&self, why: &str) {
        tracing::info!(why, "replies are asked for whole from now on");
        self.streams.store(false, Ordering::Relaxed);
    }

    /// Learns from a refused request. True if the rules have changed since it was sent.
    fn learn(&self, model: &str, before: &Arc<Rules>, failure: &Failure, refused: Refused<'_>) -> bool {
        let SubCallError::Status { status: status @ (400 | 401 | 403 | 404 | 422 | 500 | 501), message } =
            &failure.error
        else {
            return false;
        };
        let mut rules = self.rules.write().unwrap_or_else(PoisonError::into_inner);
        let Some(known) = rules.get_mut(model) else { return false };
        if !Arc::ptr_eq(before, known) {
            return true;
        }
        let mut new = Rules::clone(known);
        let learned = match status {
            401 | 403 => self.config.key.as_ref().and_then(|_| new.learn_key_header(self.api)),
            _ => new.learn(*status, &failure.said, refused),
        };
        let Some(learned) = learned else { return false };
        tracing::warn!("{learned}; it said: {message}");
        *known = Arc::new(new);
        true
    }

    /// Takes back the header of the key that was learned: the server has refused the key there, too.
    fn forget_key_header(&self, model: &str) {
        let mut rules = self.rules.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = rules.get_mut(model) {
            *known = Arc::new(Rules { key_header: None, ..Rules::clone(known) });
        }
    }

    async fn send(
        &self,
        ids: &RequestIds<'_>,
        rules: &Rules,
        body: Vec<u8>,
        streams: bool,
        bound: Option<u64>,
        came: &Came,
    ) -> Result<Reply, Failure> {
        let mut request = Request::new(Method::POST, self.url.clone());
        *request.headers_mut() = self.headers_with(ids, rules);
        *request.body_mut() = Some(body.into());
        if !streams && !self.is_own {
            *request.timeout_mut() = Some(self.config.timeout);
        }
        self.sent.fetch_add(1, Ordering::Relaxed);
        let sent = Instant::now();
        let response = self.client.execute(request).await.map_err(|error| self.broken(&error))?;
        let status = response.status();
        let asked = if status.is_success() {
            None
        } else {
            asked_pause(|name| response.headers().get(name)?.to_str().ok())
        };
        let cost =
            response.headers().get(COST_HEADER).and_then(|value| value.to_str().ok()?.parse::<f64>().ok());
        let kind = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let is_stream = |kind: &str| kind.to_ascii_lowercase().starts_with("text/event-stream");
        if status.is_success() && kind.is_some_and(is_stream) {
            return self.read_pieces(response, bound, came).await;
        }
        // Blank lines, which keep a connection open, do not put the limit off.
        let longest = self.limit(1);
        let body = timeout_at(sent + longest, self.read(response)).await;
        let body = body.unwrap_or_else(|_| Err(self.silent(longest)));
        if let Ok(body) = &body
            && status.is_success()
            && is_events(body)
        {
            return self.pieces_of(body);
        }
        if !status.is_success() {
            // Without the text, the status is enough.
            let body = body.unwrap_or_default();
            return Err(self.refused(status, asked, &ServerError::of_body(&body)));
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

    /// So many times the limit of a request. Requests to a program of ours have none.
    fn limit(&self, times: u32) -> Duration {
        if self.is_own { FOREVER } else { self.config.timeout.saturating_mul(times).min(FOREVER) }
    }

    /// Reads a reply of status 200, which may still be an error. `text` has all texts of its pieces if it came in some.
    fn reply(&self, body: Json, text: &str) -> Result<Reply, Failure> {
        let is_error = match self.api {
            // OpenRouter (speakeasy-api/gram#3129).
            Api::Chat => lacks_choices(&body) || body["choices"] == json!([]) && has_error(&body),
            _ => has_error(&body),
        };
        let in_choice = error_in_choice(&body);
        let failed = in_choice.as_ref().or_else(|| is_error.then_some(&body));
        match failed.and_then(ServerError::of) {
            Some(error) => Err(self.failed_midway(&error).after(self.api.part(body, text))),
            None => Ok(Reply::new(self.api.reply(body).map_err(unusable)?)),
        }
    }

    async fn read(&self, response: Response) -> Result<Vec<u8>, Failure> {
        let body = read(response, MAX_REPLY_BYTES).await.map_err(|error| self.broken(&error))?;
        body.ok_or_else(|| unusable(format!("it is over {} MiB", MAX_REPLY_BYTES >> 20)))
    }

    fn json(&self, body: &[u8]) -> Result<Json, Failure> {
        // 9router ends a whole reply like a stream, with `data: [DONE]` (decolua/9router#3492).
        let mut documents = serde_json::Deserializer::from_slice(body).into_iter();
        let first = documents.next().unwrap_or_else(|| serde_json::from_slice(body));
        first.or_else(|error| repaired(body).ok_or(error)).map_err(|error| self.malformed(body, &error))
    }

    /// The documents of an event: proxies send two pieces as one (openai/openai-python#663).
    fn documents(&self, data: &[u8]) -> Result<Vec<Json>, Failure> {
        let documents: Result<Vec<_>, _> = serde_json::Deserializer::from_slice(data).into_iter().collect();
        documents.or_else(|error| Ok(vec![repaired(data).ok_or_else(|| self.malformed(data, &error))?]))
    }

    fn malformed(&self, body: &[u8], error: &serde_json::Error) -> Failure {
        if body.starts_with(b"\x1f\x8b") {
            return unusable("it is compressed by gzip, which was not asked for".to_owned());
        }
        let text = String::from_utf8_lossy(body);
        unusable(match page_title(&text) {
            Some(title) => self.shorten(&title),
            // The piece of a reply may hold reasoning, so it is not shown.
            None if text.trim_start().starts_with(['{', '[']) => error.to_string(),
            None => format!("{error} in {:?}", self.shorten(&text)),
        })
    }
}

/// Fails if the window has so little room that a bound was lowered to what the model may think with.
fn check_room_to_think(bound: Option<u64>, most: Option<u64>, thinking: u64) -> Result<(), Failure> {
    match bound {
        Some(room) if thinking > 0 && bound < most && room < thinking.saturating_add(LEAST_COMPLETION) => {
            let error = SubCallError::NoRoomToThink { room, thinking };
            Err(Failure::new(error, Cost::Nothing, Retry::Never))
        }
        _ => Ok(()),
    }
}

/// True if a body is a stream of events, whatever its type says.
fn is_events(body: &[u8]) -> bool {
    [&b"data:"[..], b"event:"].iter().any(|field| body.trim_ascii_start().starts_with(field))
}

/// The most tokens of a completion for which the context window has room, or the account has credit, by the numbers in the error of
/// a request with this bound. None if the error has none, or if there is too little.
fn fitting(
    failure: &Failure,
    bound: Option<u64>,
    messages: &[ChatMessage],
    fields: &Map<String, Json>,
) -> Option<u64> {
    let in_window = || {
        let bound = bound.filter(|_| ErrorKind::ContextFull.is_of(&failure.said))?;
        ToldWindow::in_error(&failure.said, bound)?.room(|| prompt_tokens(messages, fields))
    };
    let most = afforded(&failure.said).filter(|tokens| *tokens >= LEAST_COMPLETION).or_else(in_window)?;
    bound.is_none_or(|bound| most < bound).then_some(most)
}

/// True if a reply, or a piece of one, is an error. Some servers add an empty one to each (BerriAI/litellm#18407).
fn has_error(piece: &Json) -> bool {
    piece["type"] == "error" || says_something(&piece["error"])
}

fn lacks_choices(body: &Json) -> bool {
    body.get("choices").is_none_or(Json::is_null)
}

/// Reads a body whose texts have halves of surrogate pairs, as models may write them: the reply is paid for already.
fn repaired(body: &[u8]) -> Option<Json> {
    Value::from_json_text(body, &Limits::default()).ok()?.to_json(usize::MAX).ok()
}

#[cfg(test)]
mod tests;
