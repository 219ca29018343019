//! A model server that follows a script: the test decides what it answers, and when.
//!
//! ```no_run
//! use rlm_tests::scripted_model::{Gate, Rule, ScriptedModel};
//!
//! let gate = Gate::shut();
//! let model = ScriptedModel::start([
//!     Rule::on("weather").status(429, "slow down").header("retry-after", "1").once(),
//!     Rule::on("weather").reply("rain").after(&gate),
//!     Rule::any(),
//! ]);
//! // … calls of `model.base_url()` …
//! gate.open();
//! let requests = model.finish();
//! ```
//!
//! The first rule that matches a request answers it. A request that no rule matches gets 500, and fails the test when
//! the server is finished or dropped. The server speaks OpenAI's chat completions on a port of the loopback device, in
//! a thread of its own, so that a test may block. Its list of models, which is no part of the requests, is empty unless the
//! test sets one.

use std::convert::Infallible;
use std::future::pending;
use std::io;
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream};
use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::connect_info::Connected;
use axum::extract::{ConnectInfo, State};
use axum::http::{HeaderMap, Response, StatusCode, Uri};
use axum::serve::IncomingStream;
use futures_util::{StreamExt as _, stream};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, oneshot, watch};

use crate::PATIENCE;

/// Holds answers back until the test releases them.
#[derive(Clone, Debug)]
pub struct Gate(Arc<Semaphore>);

impl Gate {
    /// A closed gate.
    #[must_use]
    pub fn shut() -> Self {
        Self(Arc::new(Semaphore::new(0)))
    }

    /// Releases this many answers, those that already wait first.
    pub fn let_through(&self, count: usize) {
        self.0.add_permits(count);
    }

    /// Opens the gate for good.
    pub fn open(&self) {
        self.0.close();
    }

    async fn pass(&self) {
        // An error means that the gate is open.
        if let Ok(permit) = self.0.acquire().await {
            permit.forget();
        }
    }
}

/// The requests to answer, and the answer. By default, the answer is `re: ` and the prompt.
#[derive(Clone, Debug)]
pub struct Rule {
    prompt: Option<String>,
    left: Option<usize>,
    gate: Option<Gate>,
    delay: Duration,
    status: StatusCode,
    headers: Vec<(String, String)>,
    usage: Option<(u64, u64)>,
    cached: Option<u64>,
    answer: Answer,
    in_pieces: bool,
    delivery: Delivery,
}

#[derive(Clone, Debug)]
enum Answer {
    Echo,
    Message(Value),
    Raw(String),
    HangUp,
}

#[derive(Clone, Debug)]
enum Delivery {
    Whole,
    /// Byte by byte, with a pause before each.
    Slow(Duration),
    /// The reply comes in two halves, the second one after the gate.
    Halves(Gate),
    /// The first half only; then the connection is closed.
    Cut,
}

impl Rule {
    /// Matches every request.
    #[must_use]
    pub fn any() -> Self {
        Self {
            prompt: None,
            left: None,
            gate: None,
            delay: Duration::ZERO,
            status: StatusCode::OK,
            headers: Vec::new(),
            usage: Some((10, 5)),
            cached: None,
            answer: Answer::Echo,
            in_pieces: false,
            delivery: Delivery::Whole,
        }
    }

    /// Matches requests whose last message contains this.
    #[must_use]
    pub fn on(prompt: impl Into<String>) -> Self {
        Self { prompt: Some(prompt.into()), ..Self::any() }
    }

    /// Matches one request only.
    #[must_use]
    pub fn once(self) -> Self {
        self.times(1)
    }

    /// Matches this many requests only.
    #[must_use]
    pub fn times(self, count: usize) -> Self {
        Self { left: Some(count), ..self }
    }

    /// Answers once the gate lets the answer through.
    #[must_use]
    pub fn after(self, gate: &Gate) -> Self {
        Self { gate: Some(gate.clone()), ..self }
    }

    /// Answers after this time.
    #[must_use]
    pub fn delay(self, delay: Duration) -> Self {
        Self { delay, ..self }
    }

    /// Answers with this text.
    #[must_use]
    pub fn reply(self, text: &str) -> Self {
        self.message(json!({"role": "assistant", "content": text}))
    }

    /// Answers with this message.
    #[must_use]
    pub fn message(self, message: Value) -> Self {
        Self { answer: Answer::Message(message), ..self }
    }

    /// Answers with this body as is.
    #[must_use]
    pub fn body(self, body: impl Into<String>) -> Self {
        Self { answer: Answer::Raw(body.into()), ..self }
    }

    /// Answers with this status, and an error with this text.
    ///
    /// # Panics
    /// The status does not exist.
    #[must_use]
    pub fn status(self, status: u16, error: &str) -> Self {
        let status = StatusCode::from_u16(status).unwrap();
        Self { status, ..self.body(json!({"error": {"message": error}}).to_string()) }
    }

    /// Adds a header to the answer.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Reports these numbers of prompt and completion tokens, instead of 10 and 5.
    #[must_use]
    pub fn usage(self, prompt: u64, completion: u64) -> Self {
        Self { usage: Some((prompt, completion)), ..self }
    }

    /// Reports so many of the prompt's tokens as read from a cache.
    #[must_use]
    pub fn cached(self, tokens: u64) -> Self {
        Self { cached: Some(tokens), ..self }
    }

    /// Reports no tokens.
    #[must_use]
    pub fn without_usage(self) -> Self {
        Self { usage: None, ..self }
    }

    /// Closes the connection instead of answering.
    #[must_use]
    pub fn hang_up(self) -> Self {
        Self { answer: Answer::HangUp, ..self }
    }

    /// Streams the answer in small pieces where the request asks for that.
    #[must_use]
    pub fn in_pieces(self) -> Self {
        Self { in_pieces: true, ..self }
    }

    /// Sends the answer byte by byte, with a pause before each.
    #[must_use]
    pub fn slowly(self, pause: Duration) -> Self {
        Self { delivery: Delivery::Slow(pause), ..self }
    }

    /// Sends half of the answer's body, and the rest after the gate.
    #[must_use]
    pub fn in_halves(self, gate: &Gate) -> Self {
        Self { delivery: Delivery::Halves(gate.clone()), ..self }
    }

    /// Sends half of the answer's body, and closes the connection.
    #[must_use]
    pub fn cut(self) -> Self {
        Self { delivery: Delivery::Cut, ..self }
    }
}

/// A request as received.
#[derive(Clone, Debug)]
pub struct Request {
    /// Path of the request.
    pub path: String,
    /// The headers of the request.
    pub headers: HeaderMap,
    /// Body of the request; null if it is not JSON.
    pub body: Value,
    /// The content of its last message.
    pub prompt: String,
    /// Time of arrival.
    pub at: Instant,
    /// True if a rule matched it.
    pub is_expected: bool,
}

impl Request {
    /// Value of a header, or an empty text.
    #[must_use]
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap_or_default())
    }
}

/// A running server. Dropping it stops it.
#[derive(Debug)]
pub struct ScriptedModel {
    address: SocketAddr,
    script: Arc<Script>,
    stop: Option<oneshot::Sender<Infallible>>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Script {
    rules: Mutex<Vec<Rule>>,
    /// The entries of `GET /v1/models`.
    models: Mutex<Value>,
    log: Mutex<Log>,
    /// True: bodies are not kept.
    forgets: AtomicBool,
    /// Number of requests that have arrived, and of those that were answered or abandoned.
    counts: watch::Sender<(usize, usize)>,
}

#[derive(Debug, Default)]
struct Log {
    requests: Vec<Request>,
    running: usize,
    most_at_once: usize,
}

impl ScriptedModel {
    /// Starts a server that follows these rules.
    ///
    /// # Panics
    /// A port or thread cannot be created.
    #[must_use]
    pub fn start(rules: impl IntoIterator<Item = Rule>) -> Self {
        let script = Arc::new(Script {
            rules: Mutex::new(rules.into_iter().collect()),
            models: Mutex::new(json!([])),
            log: Mutex::default(),
            forgets: AtomicBool::new(false),
            counts: watch::Sender::new((0, 0)),
        });
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel();
        let thread = thread::Builder::new().name("scripted-model".to_owned());
        let state = Arc::clone(&script);
        let thread = thread.spawn(move || serve(listener, state, stopped)).unwrap();
        Self { address, script, stop: Some(stop), thread: Some(thread) }
    }

    /// Address for a client's configuration: `http://127.0.0.1:PORT/v1`.
    #[must_use]
    pub fn base_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// Adds a rule after the others.
    pub fn add(&self, rule: Rule) {
        self.script.rules().push(rule);
    }

    /// Keeps no bodies of requests from now on: those of a long conversation take gigabytes.
    pub fn forget_bodies(&self) {
        self.script.forgets.store(true, Ordering::Relaxed);
    }

    /// Sets the entries of its list of models.
    pub fn set_models(&self, entries: Value) {
        *self.script.models.lock().unwrap() = entries;
    }

    /// The requests so far.
    #[must_use]
    pub fn requests(&self) -> Vec<Request> {
        self.script.log().requests.clone()
    }

    /// Largest number of requests that were in progress at once.
    #[must_use]
    pub fn most_at_once(&self) -> usize {
        self.script.log().most_at_once
    }

    /// Waits until this many requests have arrived.
    ///
    /// # Panics
    /// They do not arrive in time.
    pub async fn wait_for_requests(&self, count: usize) {
        self.wait_for(&format!("{count} requests"), |(come, _)| come >= count).await;
    }

    /// Waits until each request so far was answered or abandoned.
    ///
    /// # Panics
    /// A request stays in progress for too long.
    pub async fn wait_until_idle(&self) {
        self.wait_for("no request is in progress", |(come, over)| come == over).await;
    }

    async fn wait_for(&self, what: &str, is_so: impl Fn((usize, usize)) -> bool) {
        let mut counts = self.script.counts.subscribe();
        let waited = tokio::time::timeout(PATIENCE, counts.wait_for(|counts| is_so(*counts))).await;
        if waited.is_err() {
            let (come, over) = *self.script.counts.borrow();
            panic!("waited for {what}: {come} arrived and {over} are finished");
        }
    }

    /// Stops the server and returns the requests.
    ///
    /// # Panics
    /// A request arrived that no rule matches.
    #[must_use]
    pub fn finish(mut self) -> Vec<Request> {
        self.end();
        self.requests()
    }

    fn end(&mut self) {
        drop(self.stop.take());
        let Some(thread) = self.thread.take() else { return };
        let ended = thread.join();
        if thread::panicking() {
            return;
        }
        ended.expect("the server does not panic");
        let unexpected: Vec<_> = self
            .requests()
            .into_iter()
            .filter(|request| !request.is_expected)
            .map(|request| request.body)
            .collect();
        assert!(unexpected.is_empty(), "no rule matches these requests: {unexpected:?}");
    }
}

impl Drop for ScriptedModel {
    fn drop(&mut self) {
        self.end();
    }
}

/// A request in progress.
#[derive(Debug)]
struct Running(Arc<Script>);

impl Script {
    fn rules(&self) -> MutexGuard<'_, Vec<Rule>> {
        self.rules.lock().unwrap()
    }

    fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap()
    }

    /// Records a request, and returns the rule for it.
    fn take(
        self: &Arc<Self>,
        uri: &Uri,
        headers: HeaderMap,
        body: &Bytes,
    ) -> (Option<Rule>, String, Running) {
        let body: Value = serde_json::from_slice(body).unwrap_or_default();
        let streams = body["stream"] == true;
        let last = body["messages"].as_array().and_then(|messages| messages.last());
        let prompt = match last.map(|last| &last["content"]) {
            None | Some(Value::Null) => String::new(),
            Some(Value::String(text)) => text.clone(),
            // Parts, such as images, are matched as JSON.
            Some(parts) => parts.to_string(),
        };
        let mut rules = self.rules();
        let rule = rules.iter_mut().find(|rule| {
            uri.path() == "/v1/chat/completions"
                && rule.left != Some(0)
                && rule.prompt.as_ref().is_none_or(|part| prompt.contains(part))
        });
        let rule = rule.map(|rule| {
            rule.left = rule.left.map(|left| left - 1);
            Rule { in_pieces: rule.in_pieces && streams, ..rule.clone() }
        });
        drop(rules);
        let mut log = self.log();
        log.running += 1;
        log.most_at_once = log.most_at_once.max(log.running);
        let (at, is_expected) = (Instant::now(), rule.is_some());
        log.requests.push(Request {
            path: uri.path().to_owned(),
            headers,
            body: if self.forgets.load(Ordering::Relaxed) { Value::Null } else { body },
            prompt: prompt.clone(),
            at,
            is_expected,
        });
        drop(log);
        self.counts.send_modify(|(come, _)| *come += 1);
        (rule, prompt, Running(Arc::clone(self)))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.log().running -= 1;
        self.0.counts.send_modify(|(_, over)| *over += 1);
    }
}

/// A second handle of a connection, to close it without an answer.
#[derive(Clone, Debug)]
struct Connection(Arc<TcpStream>);

impl Connected<IncomingStream<'_, TcpListener>> for Connection {
    fn connect_info(stream: IncomingStream<'_, TcpListener>) -> Self {
        let handle = stream.io().as_fd().try_clone_to_owned().expect("there are descriptors left");
        Self(Arc::new(handle.into()))
    }
}

fn serve(listener: std::net::TcpListener, script: Arc<Script>, stopped: oneshot::Receiver<Infallible>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let listener = TcpListener::from_std(listener).unwrap();
        let app = Router::new()
            .fallback(answer)
            .layer(axum::extract::DefaultBodyLimit::disable())
            .with_state(script);
        let serving = axum::serve(listener, app.into_make_service_with_connect_info::<Connection>());
        tokio::select! {
            served = serving => served.unwrap(),
            // Requests still in progress end with the runtime.
            _ = stopped => {}
        }
    });
}

async fn answer(
    State(script): State<Arc<Script>>,
    ConnectInfo(connection): ConnectInfo<Connection>,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response<Body> {
    if uri.path() == "/v1/models" {
        let list = json!({"object": "list", "data": *script.models.lock().unwrap()});
        return Response::new(list.to_string().into());
    }
    let (rule, prompt, running) = script.take(&uri, headers, &body);
    let Some(rule) = rule else {
        return Response::builder().status(500).body("no rule matches this request".into()).unwrap();
    };
    if let Some(gate) = &rule.gate {
        gate.pass().await;
    }
    if !rule.delay.is_zero() {
        // The rule asks for a slow model: there is no event to wait for.
        tokio::time::sleep(rule.delay).await;
    }
    let message = match rule.answer {
        Answer::Echo => json!({"role": "assistant", "content": format!("re: {prompt}")}),
        Answer::Message(message) => message,
        Answer::Raw(text) => return deliver(rule.status, &rule.headers, text, rule.delivery, running),
        Answer::HangUp => {
            connection.0.shutdown(Shutdown::Both).unwrap();
            // The server finds the connection closed and drops this future.
            return pending().await;
        }
    };
    let mut body = json!({
        "id": "scripted",
        "object": "chat.completion",
        "model": "scripted",
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
    });
    if let Some((prompt, completion)) = rule.usage {
        body["usage"] = json!({
            "prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt.saturating_add(completion),
        });
    }
    if let Some(cached) = rule.cached {
        body["usage"]["prompt_tokens_details"] = json!({"cached_tokens": cached});
    }
    let (mut headers, mut text) = (rule.headers, body.to_string());
    if rule.in_pieces {
        headers.push(("content-type".to_owned(), "text/event-stream".to_owned()));
        text = events(&body);
    }
    deliver(rule.status, &headers, text, rule.delivery, running)
}

/// The events of a reply that is streamed: a role, pieces of its texts, the end, the usage.
fn events(body: &Value) -> String {
    let (choice, id) = (&body["choices"][0], &body["id"]);
    let piece = |delta: Value, reason: &Value| {
        let choice = json!({"index": 0, "delta": delta, "finish_reason": reason});
        json!({"id": id, "object": "chat.completion.chunk", "model": body["model"], "choices": [choice]})
    };
    // OpenAI begins a reply with text like this, and one without text with null.
    let begun = if choice["message"]["content"].is_null() { Value::Null } else { "".into() };
    let mut pieces = vec![piece(json!({"role": "assistant", "content": begun}), &Value::Null)];
    let mut delta = |delta: Value| pieces.push(piece(delta, &Value::Null));
    for (name, value) in choice["message"].as_object().into_iter().flatten() {
        match (name.as_str(), value) {
            ("role", _) => {}
            ("tool_calls", Value::Array(calls)) => {
                for (index, call) in calls.iter().enumerate() {
                    let arguments = call["function"]["arguments"].as_str().unwrap_or_default();
                    let mut begun = call.clone();
                    begun["index"] = index.into();
                    begun["function"]["arguments"] = "".into();
                    delta(json!({"tool_calls": [begun]}));
                    for part in parts(arguments) {
                        let more = json!({"index": index, "function": {"arguments": part}});
                        delta(json!({"tool_calls": [more]}));
                    }
                }
            }
            (name, Value::String(text)) => parts(text).for_each(|part| delta(json!({name: part}))),
            (name, value) => delta(json!({name: value})),
        }
    }
    pieces.push(piece(json!({}), &choice["finish_reason"]));
    if let Some(usage) = body.get("usage") {
        pieces.push(json!({"id": id, "choices": [], "usage": usage}));
    }
    let events: String = pieces.iter().map(|piece| format!("data: {piece}\n\n")).collect();
    format!(": a comment\n\n{events}data: [DONE]\n\n")
}

/// A text in parts of a few characters.
fn parts(text: &str) -> impl Iterator<Item = String> {
    let letters: Vec<char> = text.chars().collect();
    letters.chunks(5).map(String::from_iter).collect::<Vec<_>>().into_iter()
}

fn deliver(
    status: StatusCode,
    headers: &[(String, String)],
    text: String,
    delivery: Delivery,
    running: Running,
) -> Response<Body> {
    let bytes = Bytes::from(text);
    let (first, second) = (bytes.slice(..bytes.len() / 2), bytes.slice(bytes.len() / 2..));
    let body = match delivery {
        Delivery::Whole => Body::from(bytes),
        Delivery::Slow(pause) => {
            let places = stream::iter(0..bytes.len());
            Body::from_stream(places.then(move |at| {
                let (piece, _running) = (bytes.slice(at..=at), &running);
                async move {
                    // The rule asks for slow delivery.
                    tokio::time::sleep(pause).await;
                    Ok::<_, io::Error>(piece)
                }
            }))
        }
        Delivery::Halves(gate) => {
            Body::from_stream(stream::iter([Ok(first)]).chain(stream::once(async move {
                let _running = running;
                gate.pass().await;
                Ok::<_, io::Error>(second)
            })))
        }
        Delivery::Cut => Body::from_stream(stream::iter([Ok(first)]).chain(stream::once(async {
            // A pause, in which the first half is sent: an error right after it would discard it.
            tokio::task::yield_now().await;
            Err(io::Error::other("cut"))
        }))),
    };
    respond(status, headers, body)
}

fn respond(status: StatusCode, headers: &[(String, String)], body: Body) -> Response<Body> {
    let mut response = Response::builder().status(status);
    if !headers.iter().any(|(name, _)| name == "content-type") {
        response = response.header("content-type", "application/json");
    }
    for (name, value) in headers {
        response = response.header(name, value);
    }
    response.body(body).unwrap()
}
