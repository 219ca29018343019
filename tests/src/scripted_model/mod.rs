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

mod server;

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use axum::http::{HeaderMap, StatusCode};
use rlm_env::HostConfig;
use rlm_env::model::{HttpModel, Models, ModelsConfig, Retries};
use serde_json::{Value, json};
use tokio::sync::{Semaphore, oneshot};

use self::server::Script;
use crate::PATIENCE;

/// A model's message that calls a tool, the REPL, with code.
#[must_use]
pub fn calling(tool: &str, code: &str) -> Value {
    let function = json!({"name": tool, "arguments": json!({"code": code}).to_string()});
    json!({"role": "assistant", "content": null, "tool_calls": [{"id": "c", "type": "function", "function": function}]})
}

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

    /// Answers with a call of a tool, the REPL, with code.
    #[must_use]
    pub fn calls(self, tool: &str, code: &str) -> Self {
        self.message(calling(tool, code))
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

impl ScriptedModel {
    /// Starts a server that follows these rules.
    ///
    /// # Panics
    /// A port or thread cannot be created.
    #[must_use]
    pub fn start(rules: impl IntoIterator<Item = Rule>) -> Self {
        let script = Arc::new(Script::new(rules.into_iter().collect()));
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel();
        let thread = thread::Builder::new().name("scripted-model".to_owned());
        let state = Arc::clone(&script);
        let thread = thread.spawn(move || server::serve(listener, state, stopped)).unwrap();
        Self { address, script, stop: Some(stop), thread: Some(thread) }
    }

    /// Address for a client's configuration: `http://127.0.0.1:PORT/v1`.
    #[must_use]
    pub fn base_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// A client of this server that asks this model.
    ///
    /// # Panics
    /// It cannot be made.
    #[must_use]
    pub fn models(&self, name: &str) -> Arc<Models> {
        let mut config = ModelsConfig::new(self.base_url(), name);
        config.retries = Retries { base: Duration::from_millis(1), ..Retries::default() };
        Arc::new(Models::new(config).expect("the address of a running server is one"))
    }

    /// A host in this directory whose root model is `root` and whose sub-LLM is `sub`.
    #[must_use]
    pub fn host_config(&self, dir: &Path) -> HostConfig {
        HostConfig {
            env: crate::variables(),
            dir: dir.to_owned(),
            sub_models: Some(self.models("sub")),
            ..HostConfig::new(crate::programs(), Arc::new(HttpModel::new(self.models("root"))))
        }
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
