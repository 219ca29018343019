//! The cost of a root-tool call, compared with a server that does nothing.
//!
//! Build the program first: `cargo build --release --workspace`. `cargo bench -p rlm-tests --bench rootd` has 16
//! connections that each send a request when the last one is answered: to a bare axum server, to an endpoint in this
//! process, and to the built program with its log on. Client and server share the machine. The last row calls a tool
//! that is a program, compared with only starting that program. They take turns; the table has medians. A missed limit
//! is marked, but does not fail the bench.

use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use axum::Router;
use axum::routing::post;
use rlm_core::pickle::{Dict, Value};
use rlm_core::root_tool::{Call, Serialization};
use rlm_rootd::{Listener, Registration, RolloutConfig, Rootd, RootdConfig, Secret, Tool, load_tools};
use serde_json::{Value as Json, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};

const CONNECTIONS: usize = 16;
const REQUESTS: usize = 1000;
const ROUNDS: usize = 15;
const PROGRAM_STARTS: usize = 100;

/// Least number of requests per second that we want.
const LIMIT: f64 = 10_000.0;

/// Largest ratio of the time of a tool that is a program to that of only starting the program.
const PROGRAM_LIMIT: f64 = 2.0;

fn main() {
    if !std::env::args_os().any(|argument| argument == OsStr::new("--bench")) {
        // `cargo test --all-targets` gets here too, but would not measure anything.
        return;
    }
    let servers = Runtime::new().unwrap();
    let clients = Builder::new_current_thread().enable_all().build().unwrap();
    let bare = bare(&servers);
    let (address, registration) = endpoint(&servers);
    let program = Program::start();
    let subjects = [
        ("a bare server", Subject::new(bare, &registration, "search", Serialization::Json)),
        ("a tool, JSON", Subject::new(address, &registration, "search", Serialization::Json)),
        ("a tool, pickle", Subject::new(address, &registration, "search", Serialization::Pickle)),
        (
            "the program, JSON",
            Subject::new(program.address, &program.registration, "budget", Serialization::Json),
        ),
    ];
    let mut times = vec![Vec::new(); subjects.len()];
    for round in 0..=ROUNDS {
        for ((_, subject), times) in subjects.iter().zip(&mut times) {
            let time = clients.block_on(subject.run());
            // The first round warms up.
            if round > 0 {
                times.push(time);
            }
        }
    }
    let mut rows = String::new();
    for ((what, _), times) in subjects.iter().zip(times) {
        let rate = (CONNECTIONS * REQUESTS) as f64 / median(times).as_secs_f64();
        let missed = if rate < LIMIT { ", **missed**" } else { "" };
        rows += &format!("| {what}, {CONNECTIONS} connections | {rate:.0}/s | ≥ {LIMIT}/s{missed} |\n");
    }
    let (floor, time) = clients.block_on(programs());
    let ratio = time.as_secs_f64() / floor.as_secs_f64();
    let missed = if ratio > PROGRAM_LIMIT { ", **missed**" } else { "" };
    let [floor, time] = [floor, time].map(|time| format!("{:.2} ms", time.as_secs_f64() * 1e3));
    rows += &format!(
        "| a tool that runs `cat`; its start alone {floor} | {time} | ratio {ratio:.2} ≤ {PROGRAM_LIMIT}{missed} |\n"
    );
    let head = "| what | measured | limit |\n| --- | --- | --- |\n";
    std::io::stdout().lock().write_all(format!("{head}{rows}").as_bytes()).unwrap();
}

/// A tool that returns a text.
fn search() -> Tool {
    let parameters = json!({
        "type": "object",
        "properties": {"query": {"type": "string"}, "limit": {"type": "integer"}},
        "required": ["query"],
    });
    Tool::from_fn("search", "Finds nothing.", parameters, |_| Ok("nothing was found")).unwrap()
}

fn endpoint(runtime: &Runtime) -> (SocketAddr, Registration) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let rootd = Rootd::new(RootdConfig::default());
    let tools = vec![search()];
    let registration = rootd.register("bench", RolloutConfig { tools, ..RolloutConfig::default() }).unwrap();
    let listener = Listener::from_tcp(listener).unwrap();
    runtime.spawn(async move { rootd.serve(listener, std::future::pending()).await });
    (address, registration)
}

fn bare(runtime: &Runtime) -> SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    runtime.spawn(async {
        let listener = tokio::net::TcpListener::from_std(listener).unwrap();
        let answer = post(async |_body: axum::body::Bytes| "{\"result\":\"nothing was found\"}");
        let app = Router::new().route("/rollout/{id}/v1/rlm/tools", answer);
        axum::serve(listener, app).await.unwrap();
    });
    address
}

/// The built program. It is killed on drop.
struct Program {
    child: Child,
    address: SocketAddr,
    registration: Registration,
}

impl Program {
    fn start() -> Self {
        let mut command = Command::new(rlm_tests::program("rlm-rootd"));
        command.args(["--rollout", "bench", "--base-url", "http://127.0.0.1:9/v1", "--model", "m"]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let line: Json = serde_json::from_str(&line).unwrap();
        let secret = Secret::new(line["rollouts"]["bench"]["secret"].as_str().unwrap());
        let address = line["url"].as_str().unwrap().strip_prefix("http://").unwrap().parse().unwrap();
        let registration = Registration { id: "bench".to_owned(), secret, tools: Vec::new() };
        Self { child, address, registration }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// A server, and the request to send to it.
struct Subject {
    address: SocketAddr,
    request: Vec<u8>,
}

impl Subject {
    fn new(address: SocketAddr, r: &Registration, tool: &str, serialization: Serialization) -> Self {
        let args = if tool == "search" {
            vec![Value::from("a line of a document"), Value::from(10)]
        } else {
            vec![]
        };
        let call = Call { tool: tool.to_owned(), args, kwargs: Dict::default() };
        let body = call.to_body(serialization).unwrap();
        let head = format!(
            "POST {} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {}\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n",
            r.tools_url(""),
            r.secret.reveal(),
            body.len()
        );
        Self { address, request: [head.as_bytes(), &body].concat() }
    }

    /// Time of [`REQUESTS`] requests on each of [`CONNECTIONS`].
    async fn run(&self) -> Duration {
        let mut streams = Vec::new();
        for _ in 0..CONNECTIONS {
            let stream = TcpStream::connect(self.address).await.unwrap();
            stream.set_nodelay(true).unwrap();
            streams.push(stream);
        }
        let began = Instant::now();
        futures_util::future::join_all(streams.into_iter().map(|stream| self.ask(stream))).await;
        began.elapsed()
    }

    async fn ask(&self, mut stream: TcpStream) {
        let mut buffer = vec![0; 16 << 10];
        for _ in 0..REQUESTS {
            stream.write_all(&self.request).await.unwrap();
            // A response is so small that it arrives in one piece.
            let count = stream.read(&mut buffer).await.unwrap();
            assert!(
                buffer[..count].starts_with(b"HTTP/1.1 200 OK\r\n"),
                "{:?}",
                String::from_utf8_lossy(&buffer[..count])
            );
            assert!(buffer[..count].ends_with(b"}"));
        }
    }
}

/// Time of starting `cat`, and of calling a tool that starts it.
async fn programs() -> (Duration, Duration) {
    let text = "[[tool]]\nname = 'cat'\ndescription = 'cat'\ncommand = ['cat']\noutput = 'json'\n";
    let environment = [("PATH".into(), "/usr/bin:/bin".into())].into();
    let tool = &load_tools(text, Path::new("/"), &environment).unwrap()[0];
    let (mut floors, mut times) = (Vec::new(), Vec::new());
    for _ in 0..PROGRAM_STARTS {
        let began = Instant::now();
        let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(b"{}").unwrap();
        child.wait_with_output().unwrap();
        floors.push(began.elapsed());
        let call = Call { tool: "cat".to_owned(), args: Vec::new(), kwargs: Dict::default() };
        let began = Instant::now();
        tool.inner().call(call, began + Duration::from_secs(60)).await.unwrap();
        times.push(began.elapsed());
    }
    (median(floors), median(times))
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}
