//! The server of a scripted model: finds the rule for a request, and answers as it says.

use std::convert::Infallible;
use std::future::pending;
use std::io;
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::connect_info::Connected;
use axum::extract::{ConnectInfo, State};
use axum::http::{HeaderMap, Response, StatusCode, Uri};
use axum::serve::IncomingStream;
use futures_util::{StreamExt as _, stream};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::{oneshot, watch};

use super::{Answer, Delivery, Request, Rule};

#[derive(Debug)]
pub(super) struct Script {
    pub(super) rules: Mutex<Vec<Rule>>,
    /// The entries of `GET /v1/models`.
    pub(super) models: Mutex<Value>,
    pub(super) log: Mutex<Log>,
    /// True: bodies are not kept.
    pub(super) forgets: AtomicBool,
    /// Number of requests that have arrived, and of those that were answered or abandoned.
    pub(super) counts: watch::Sender<(usize, usize)>,
}

#[derive(Debug, Default)]
pub(super) struct Log {
    pub(super) requests: Vec<Request>,
    pub(super) running: usize,
    pub(super) most_at_once: usize,
}

/// A request in progress.
#[derive(Debug)]
struct Running(Arc<Script>);

impl Script {
    pub(super) fn new(rules: Vec<Rule>) -> Self {
        Self {
            rules: Mutex::new(rules),
            models: Mutex::new(json!([])),
            log: Mutex::default(),
            forgets: AtomicBool::new(false),
            counts: watch::Sender::new((0, 0)),
        }
    }

    pub(super) fn rules(&self) -> MutexGuard<'_, Vec<Rule>> {
        self.rules.lock().unwrap()
    }

    pub(super) fn log(&self) -> MutexGuard<'_, Log> {
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
            ["/v1/chat/completions", "/v1/messages"].contains(&uri.path())
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

pub(super) fn serve(
    listener: std::net::TcpListener,
    script: Arc<Script>,
    stopped: oneshot::Receiver<Infallible>,
) {
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
