//! The cost, for a run, of a page that shows it: rollouts under way at once, with a browser that reads and one that does not.
//!
//! The peer is the same batch without a page. They take turns; the table has medians of the rollouts' mean time.
//! Build the programs first: `cargo build --release --workspace`.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use axum::routing::post;
use axum::{Json, Router};
use serde_json::{Value, json};

/// Rollouts that run at once.
const ROLLOUTS: usize = 200;
/// Turns of each.
const TURNS: usize = 5;
/// Time in which the model answers.
const LATENCY: Duration = Duration::from_millis(1500);
const ROUNDS: usize = 7;

/// Answers on the last turn.
async fn complete(Json(request): Json<Value>) -> Json<Value> {
    // The time that a model takes.
    tokio::time::sleep(LATENCY).await;
    let replies =
        request["messages"].as_array().unwrap().iter().filter(|message| message["role"] == "assistant");
    let code = if replies.count() + 1 < TURNS {
        "for i in {1..200}; do echo a line of output $i; done"
    } else {
        "RLM_CONTENT=1 RLM_READY=1"
    };
    let function = json!({"name": "call_bash_repl", "arguments": json!({"code": code}).to_string()});
    let call = json!({"id": "c", "type": "function", "function": function});
    let message = json!({"role": "assistant", "content": null, "tool_calls": [call]});
    Json(json!({
        "id": "1", "object": "chat.completion", "model": "m",
        "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}],
        "usage": {"prompt_tokens": 100, "completion_tokens": 10},
    }))
}

fn main() {
    if !std::env::args_os().any(|argument| argument == "--bench") {
        // `cargo test --all-targets` gets here too, but would not measure anything.
        return;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    listener.set_nonblocking(true).unwrap();
    runtime.spawn(async move {
        let listener = tokio::net::TcpListener::from_std(listener).unwrap();
        axum::serve(listener, Router::new().route("/v1/chat/completions", post(complete))).await.unwrap();
    });
    let mut times: [Vec<f64>; 2] = Default::default();
    for round in 0..2 * ROUNDS {
        // Each page goes first in half of the rounds.
        let is_served = (round + round / 2) % 2 == 1;
        times[usize::from(is_served)].push(run(address, is_served));
    }
    let [plain, served] = times.map(|mut times| {
        times.sort_unstable_by(f64::total_cmp);
        times[ROUNDS / 2]
    });
    let table = format!(
        "| {ROLLOUTS} rollouts at once, {TURNS} turns, a model that answers in {} ms | mean time | beside no page | limit |\n\
         | --- | --- | --- | --- |\n\
         | no page | {plain:.3} s | | |\n\
         | a page that is read, and one that is not | {served:.3} s | {:.4} | ≤ 1.02 |\n",
        LATENCY.as_millis(),
        served / plain,
    );
    std::io::stdout().write_all(table.as_bytes()).unwrap();
}

/// The mean time of the rollouts of a batch.
fn run(model: SocketAddr, is_served: bool) -> f64 {
    let dir = tempfile::tempdir().unwrap();
    let questions = "{\"question\": \"count\"}\n".repeat(ROLLOUTS);
    std::fs::write(dir.path().join("questions"), questions).unwrap();
    let mut command = Command::new(rlm_tests::program("rlm"));
    command
        .args(["run", "--questions", "questions", "--results", "results", "--context", "", "--model", "m"])
        .args(["--base-url", &format!("http://{model}/v1"), "--jobs", &ROLLOUTS.to_string()])
        .args(is_served.then_some("--serve=0"))
        .current_dir(dir.path())
        .env("HOME", dir.path())
        .env_remove("XDG_STATE_HOME")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let mut batch = command.spawn().unwrap();
    let mut words = BufReader::new(batch.stderr.take().unwrap());
    let pages = is_served.then(|| {
        let mut line = String::new();
        while !line.contains("?token=") {
            line.clear();
            assert!(words.read_line(&mut line).unwrap() > 0, "it has no page");
        }
        let (_, address) = line.trim().split_once("http://").unwrap();
        let (host, path) = address.split_once('/').unwrap();
        let head = |path: &str| format!("GET /{path} HTTP/1.1\r\nHost: {host}\r\n");
        // The link gives the cookie with which the rest is had.
        let mut first = TcpStream::connect(host).unwrap();
        first.write_all((head(path) + "Connection: close\r\n\r\n").as_bytes()).unwrap();
        let answer = std::io::read_to_string(first).unwrap();
        let cookie = answer.lines().find_map(|line| line.strip_prefix("set-cookie: ")).unwrap();
        let (cookie, _) = cookie.split_once(';').unwrap();
        let (path, _) = path.split_once("?token=").unwrap();
        let request = format!("{}Cookie: {cookie}\r\n\r\n", head(&format!("{path}/events")));
        let open = || {
            let mut page = TcpStream::connect(host).unwrap();
            page.write_all(request.as_bytes()).unwrap();
            page
        };
        let (read, stalled) = (open(), open());
        let reader = std::thread::spawn(move || std::io::copy(&mut &read, &mut std::io::sink()).unwrap());
        (reader, stalled)
    });
    std::io::copy(&mut words, &mut std::io::sink()).unwrap();
    assert!(batch.wait().unwrap().success());
    if let Some((reader, stalled)) = pages {
        drop(stalled);
        assert!(reader.join().unwrap() > 100_000, "the page has got its rows");
    }
    mean(&dir.path().join("results"))
}

fn mean(results: &Path) -> f64 {
    let text = std::fs::read_to_string(results).unwrap();
    let times: Vec<f64> = text
        .lines()
        .map(|line| {
            serde_json::from_str::<Value>(line).unwrap()["metrics"]["total_time_seconds"].as_f64().unwrap()
        })
        .collect();
    assert_eq!(times.len(), ROLLOUTS);
    times.iter().sum::<f64>() / times.len() as f64
}
