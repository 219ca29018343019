//! The cost of a root-tool call from a shell and from Python.
//!
//! `cargo bench -p rlm-tests --bench root_tools`, after `cargo build --release --workspace`. The tool does nothing; the
//! floors are the costs of any program in a shell loop, and of a POST on a persistent connection in a Python loop.
//! Floor and measurement take turns in one session; the table has the median of each and their ratio. A missed limit is
//! marked, but does not fail the bench.

#[path = "../shared/endpoint.rs"]
mod endpoint;

use std::ffi::OsStr;
use std::io::Write as _;
use std::time::Instant;

use rlm_tests::{Setup, Worker};

use self::endpoint::serve;

const ROUNDS: usize = 21;
const SHELL_CALLS: usize = 100;
const PYTHON_CALLS: usize = 1000;

fn main() {
    if !std::env::args_os().any(|argument| argument == OsStr::new("--bench")) {
        // `cargo test --all-targets` gets here too, but would not measure anything.
        return;
    }
    let (url, secret) = serve(false);
    let worker = |setup: Setup| {
        setup
            .env("RLM_ROOT_TOOL_URL", &url)
            .env("RLM_ROOT_TOOL_NAMES", r#"["noop"]"#)
            .env("RLM_INTERCEPTION_SECRET", &secret)
            .start()
    };
    let mut bash = worker(Setup::bash());
    let row = compare(
        &mut bash,
        &format!("for i in {{1..{SHELL_CALLS}}}; do /bin/true; done"),
        &format!("for i in {{1..{SHELL_CALLS}}}; do noop; done >/dev/null"),
    );
    let mut rows = line("a loop of 100 in bash, beside `/bin/true`", row, 3.0);
    bash.end();
    let mut python = worker(Setup::python());
    python.output(POST);
    let row = compare(
        &mut python,
        &format!("for n in range({PYTHON_CALLS}): post()"),
        &format!("for n in range({PYTHON_CALLS}): noop()"),
    );
    rows += &line("a loop of 1,000 in Python, beside `http.client`", row, 1.5);
    let row = compare(
        &mut python,
        &format!("for n in range({PYTHON_CALLS}): raw()"),
        &format!("for n in range({PYTHON_CALLS}): noop()"),
    );
    rows += &line("the same, beside a bare socket", row, 1.5);
    python.end();
    let head = "| what | floor | measured | ratio | limit |\n| --- | --- | --- | --- | --- |\n";
    std::io::stdout().lock().write_all(format!("{head}{rows}").as_bytes()).unwrap();
}

/// Two ways to send the request that `noop()` sends.
const POST: &str = r#"
import base64, http.client, json, os, pickle, socket, urllib.parse
parts = urllib.parse.urlsplit(os.environ["RLM_ROOT_TOOL_URL"])
body = json.dumps({
    "tool_name": "noop", "serialization": "pickle",
    "args": base64.b64encode(pickle.dumps(())).decode(), "kwargs": base64.b64encode(pickle.dumps({})).decode(),
}).encode()
headers = {"Authorization": "Bearer " + os.environ["RLM_INTERCEPTION_SECRET"], "Content-Type": "application/json"}
client = http.client.HTTPConnection(parts.hostname, parts.port)
client.connect()
client.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

def post():
    client.request("POST", parts.path, body, headers)
    assert client.getresponse().read()

lines = [f"POST {parts.path} HTTP/1.1", f"Host: {parts.netloc}", f"Content-Length: {len(body)}"]
request = "\r\n".join(lines + [f"{name}: {value}" for name, value in headers.items()] + ["", ""]).encode() + body
raw_socket = socket.create_connection((parts.hostname, parts.port))
raw_socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

def raw():
    raw_socket.sendall(request)
    assert raw_socket.recv(65536).startswith(b"HTTP/1.1 200")
"#;

/// Medians in seconds: the floor's code, and the measured code.
fn compare(worker: &mut Worker, floor: &str, measured: &str) -> (f64, f64) {
    let (mut floors, mut times) = (Vec::new(), Vec::new());
    // The first round warms up.
    for round in 0..=ROUNDS {
        for (code, into) in [(floor, &mut floors), (measured, &mut times)] {
            let started = Instant::now();
            worker.output(code);
            if round > 0 {
                into.push(started.elapsed().as_secs_f64());
            }
        }
    }
    (median(floors), median(times))
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn line(what: &str, (floor, time): (f64, f64), limit: f64) -> String {
    let ratio = time / floor;
    let missed = if ratio > limit { ", **missed**" } else { "" };
    format!("| {what} | {:.1} ms | {:.1} ms | {ratio:.2} | ≤ {limit}{missed} |\n", floor * 1e3, time * 1e3)
}
