//! An endpoint in this process, a client on a bare socket, and tools that report events.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use nix::unistd::Pid;
use rlm_core::pickle::{Dict, Limits, Value};
use rlm_core::root_tool::{Call, Reply, Serialization};
use rlm_rootd::{
    Listener, Registration, RolloutConfig, RootTool, Rootd, RootdConfig, Tool, ToolError, ToolFuture,
};
use rlm_tests::PATIENCE;
use serde_json::{Value as Json, json};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::JoinHandle;

/// Waits for an event.
pub(crate) async fn soon<T>(event: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, event).await.expect("it takes too long")
}

/// The pid in a file, with a line feed behind it, that a program writes; none where it has not done so.
pub(crate) fn written_pid(file: impl AsRef<Path>) -> Option<Pid> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    text.strip_suffix('\n').map(|pid| Pid::from_raw(pid.parse().unwrap()))
}

/// An endpoint that serves.
pub(crate) struct Endpoint {
    pub(crate) rootd: Rootd,
    pub(crate) address: SocketAddr,
    pub(crate) base_url: String,
    stop: oneshot::Sender<()>,
    served: JoinHandle<std::io::Result<()>>,
}

impl Endpoint {
    pub(crate) fn start(config: RootdConfig) -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let listener = Listener::from_tcp(listener).unwrap();
        let base_url = listener.base_url().to_owned();
        let rootd = Rootd::new(config);
        let (stop, served) = serve(&rootd, listener);
        Self { rootd, address, base_url, stop, served }
    }

    /// An endpoint with one rollout `r` that has these tools.
    pub(crate) fn with_tools(tools: Vec<Tool>) -> (Self, Registration) {
        let endpoint = Self::start(RootdConfig::default());
        let registration = endpoint.register("r", tools);
        (endpoint, registration)
    }

    pub(crate) fn register(&self, id: &str, tools: Vec<Tool>) -> Registration {
        self.rootd.register(id, RolloutConfig { tools, ..RolloutConfig::default() }).unwrap()
    }

    pub(crate) async fn client(&self) -> Client<TcpStream> {
        Client::new(TcpStream::connect(self.address).await.unwrap())
    }

    /// A call of a tool through a connection of its own.
    pub(crate) async fn call(&self, registration: &Registration, tool: &str, args: Json) -> Response {
        self.client().await.exchange(&tool_request(registration, tool, args)).await
    }

    /// Begins the shutdown.
    pub(crate) fn stop(self) -> JoinHandle<std::io::Result<()>> {
        self.stop.send(()).unwrap();
        self.served
    }

    /// Drops the server.
    pub(crate) fn abort(self) {
        self.served.abort();
    }

    /// The value of a line in the metrics.
    pub(crate) fn metric(&self, name: &str) -> f64 {
        let text = self.rootd.metrics_text();
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("no {name} in {text}")).parse().unwrap()
    }
}

/// Serves until something is sent, or the sender is dropped.
pub(crate) fn serve(
    rootd: &Rootd,
    listener: Listener,
) -> (oneshot::Sender<()>, JoinHandle<std::io::Result<()>>) {
    let (stop, stopped) = oneshot::channel();
    let serving = rootd.clone();
    (stop, tokio::spawn(async move { serving.serve(listener, async { drop(stopped.await) }).await }))
}

/// A connection.
pub(crate) struct Client<S> {
    pub(crate) stream: S,
    buffer: Vec<u8>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Client<S> {
    pub(crate) fn new(stream: S) -> Self {
        Self { stream, buffer: Vec::new() }
    }

    pub(crate) async fn send(&mut self, bytes: &[u8]) {
        soon(self.stream.write_all(bytes)).await.unwrap();
    }

    pub(crate) async fn exchange(&mut self, request: &[u8]) -> Response {
        self.send(request).await;
        self.receive().await
    }

    /// The next response.
    pub(crate) async fn receive(&mut self) -> Response {
        soon(self.try_receive()).await.expect("the connection ended before a whole response")
    }

    /// The next response; None where the connection ends before it is whole.
    pub(crate) async fn try_receive(&mut self) -> Option<Response> {
        let head_len = loop {
            if let Some(at) = self.buffer.windows(4).position(|four| four == b"\r\n\r\n") {
                break at + 4;
            }
            self.more().await?;
        };
        let head = String::from_utf8(self.buffer[..head_len].to_vec()).unwrap().to_lowercase();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        let length: usize = length.map_or(0, |length| length.parse().unwrap());
        while self.buffer.len() < head_len + length {
            self.more().await?;
        }
        let rest = self.buffer.split_off(head_len + length);
        let body = std::mem::replace(&mut self.buffer, rest).split_off(head_len);
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Some(Response { status, head, body })
    }

    async fn more(&mut self) -> Option<()> {
        match self.stream.read_buf(&mut self.buffer).await {
            Ok(0) | Err(_) => None,
            Ok(_) => Some(()),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    /// The head of the response, in lower case.
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Response {
    pub(crate) fn json(&self) -> Json {
        assert!(self.head.contains("\r\ncontent-type: application/json\r\n"), "{self:?}");
        serde_json::from_slice(&self.body).unwrap()
    }

    /// Status and message of a refusal, which is nothing but `{"error": "…"}`.
    pub(crate) fn error(&self) -> (u16, String) {
        let json = self.json();
        let object = json.as_object().unwrap();
        assert_eq!(object.len(), 1, "{self:?}");
        (self.status, object["error"].as_str().unwrap().to_owned())
    }

    /// The result of a tool that was called with JSON.
    pub(crate) fn result(&self) -> Json {
        assert_eq!(self.status, 200, "{}", String::from_utf8_lossy(&self.body));
        self.json()["result"].clone()
    }

    /// The result of a tool that was called with pickles.
    pub(crate) fn value(&self) -> Reply {
        assert_eq!(self.status, 200, "{}", String::from_utf8_lossy(&self.body));
        Reply::from_body(&self.body, Serialization::Pickle, &Limits::default()).unwrap()
    }
}

/// A request of any kind.
pub(crate) fn request(method: &str, path: &str, secret: Option<&str>, body: &[u8]) -> Vec<u8> {
    let authorization =
        secret.map(|secret| format!("Authorization: Bearer {secret}\r\n")).unwrap_or_default();
    let length = body.len();
    let head =
        format!("{method} {path} HTTP/1.1\r\nHost: h\r\n{authorization}Content-Length: {length}\r\n\r\n");
    [head.as_bytes(), body].concat()
}

/// A request to the tools of a rollout.
pub(crate) fn tools_request(registration: &Registration, body: &[u8]) -> Vec<u8> {
    let path = registration.tools_url("");
    request("POST", &path, Some(registration.secret.reveal()), body)
}

/// A call in JSON: `args` is a list of arguments by position, or an object of arguments by name.
pub(crate) fn tool_request(registration: &Registration, tool: &str, args: Json) -> Vec<u8> {
    let (args, kwargs) = if args.is_object() { (json!([]), args) } else { (args, json!({})) };
    let body = json!({"tool_name": tool, "serialization": "json", "args": args, "kwargs": kwargs});
    tools_request(registration, body.to_string().as_bytes())
}

/// A call in pickles.
pub(crate) fn pickled_request(registration: &Registration, tool: &str, args: Vec<Value>) -> Vec<u8> {
    let call = Call { tool: tool.to_owned(), args, kwargs: Dict::default() };
    tools_request(registration, &call.to_body(Serialization::Pickle).unwrap())
}

/// A tool from a closure.
pub(crate) fn fn_tool(
    name: &str,
    parameters: Json,
    function: impl Fn(Call) -> Result<Reply, ToolError> + Send + Sync + 'static,
) -> Tool {
    Tool::from_fn(name, "A function.", parameters, function).unwrap()
}

/// Gives its arguments back: a dict of the list of those by position and the dict of those by name.
pub(crate) fn echo(name: &str, parameters: Json) -> Tool {
    fn_tool(name, parameters, |call| {
        let pairs = [
            (Value::from("args"), Value::tuple(call.args)),
            (Value::from("kwargs"), Value::from(call.kwargs)),
        ];
        Ok(Reply::of(Dict::from_pairs(pairs).unwrap()))
    })
}

/// A tool that waits until the test lets it go on.
#[derive(Debug)]
pub(crate) struct Gate {
    parameters: Json,
    events: mpsc::UnboundedSender<Event>,
    open: Arc<Notify>,
}

/// Events of a call of a [`Gate`].
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Event {
    Began { deadline: Instant },
    Ended,
    Dropped,
}

/// The test's side of a [`Gate`].
pub(crate) struct Keeper {
    events: mpsc::UnboundedReceiver<Event>,
    open: Arc<Notify>,
}

impl Gate {
    pub(crate) fn shut() -> (Tool, Keeper) {
        let (sender, events) = mpsc::unbounded_channel();
        let open = Arc::new(Notify::new());
        let gate = Self { parameters: json!({"type": "object"}), events: sender, open: open.clone() };
        (Tool::new(gate).unwrap(), Keeper { events, open })
    }
}

impl RootTool for Gate {
    fn name(&self) -> &str {
        "gate"
    }

    fn description(&self) -> &str {
        "Waits."
    }

    fn parameters(&self) -> &Json {
        &self.parameters
    }

    fn call(&self, _call: Call, deadline: Instant) -> ToolFuture<'_> {
        struct Told<'a>(&'a Gate, Event);
        impl Drop for Told<'_> {
            fn drop(&mut self) {
                // A test that ends does not listen.
                drop(self.0.events.send(std::mem::replace(&mut self.1, Event::Ended)));
            }
        }
        Box::pin(async move {
            let mut told = Told(self, Event::Dropped);
            drop(self.events.send(Event::Began { deadline }));
            self.open.notified().await;
            told.1 = Event::Ended;
            Ok(Reply::of("through"))
        })
    }
}

impl Keeper {
    /// A connection with a call that has begun.
    pub(crate) async fn caller(&mut self, endpoint: &Endpoint, r: &Registration) -> Client<TcpStream> {
        let mut client = endpoint.client().await;
        client.send(&tool_request(r, "gate", json!([]))).await;
        self.began().await;
        client
    }

    pub(crate) async fn next(&mut self) -> Event {
        soon(self.events.recv()).await.unwrap()
    }

    /// Waits until a call has begun.
    pub(crate) async fn began(&mut self) -> Instant {
        match self.next().await {
            Event::Began { deadline } => deadline,
            other => panic!("{other:?}"),
        }
    }

    /// Lets one call go on.
    pub(crate) fn open(&self) {
        self.open.notify_one();
    }
}
