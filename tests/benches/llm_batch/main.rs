//! The cost of `llm_batch`, compared with the plain requests that it replaces.
//!
//! `cargo bench -p rlm-tests --bench llm_batch` sends 1,000 prompts, 64 at once, to a server that answers at once: by
//! the root tool, and by a loop of requests with the same client library, without order, budget, retries or deadlines.
//! The two take turns; the table has the median of each and their ratio. A missed limit is marked, but does not fail
//! the bench.

use std::ffi::OsStr;
use std::io::Write as _;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use axum::Router;
use futures_util::{StreamExt as _, stream};
use reqwest::Client;
use rlm_core::pickle::{Dict, Value};
use rlm_core::root_tool::{Call, ToolResult};
use rlm_rootd::{
    Budget, Ledger, LlmBatch, Models, ModelsConfig, Prices, RootTool as _, SubLlm, SubLlmOptions,
};
use serde_json::{Value as Json, json};
use tokio::runtime::Runtime;

const PROMPTS: usize = 1000;
const PARALLELISM: usize = 64;
const ROUNDS: usize = 31;
const LIMIT: f64 = 1.3;

fn main() {
    if !std::env::args_os().any(|argument| argument == OsStr::new("--bench")) {
        // `cargo test --all-targets` gets here too, but would not measure anything.
        return;
    }
    let base_url = serve();
    let runtime = Runtime::new().unwrap();
    let url = format!("{base_url}/chat/completions");
    let mut rows = String::new();
    for (what, budget) in [
        ("1,000 prompts", Budget::default()),
        ("the same, with a budget of tokens", Budget { tokens: Some(u64::MAX / 2), ..Budget::default() }),
    ] {
        let tool = tool(&base_url, budget);
        let client = Client::new();
        let (mut floors, mut times) = (Vec::new(), Vec::new());
        // The first round opens the connections.
        for round in 0..=ROUNDS {
            let floor = runtime.block_on(plain(&client, &url));
            let time = runtime.block_on(by_tool(&tool));
            if round > 0 {
                floors.push(floor);
                times.push(time);
            }
        }
        let (floor, time) = (median(floors), median(times));
        let ratio = time.as_secs_f64() / floor.as_secs_f64();
        let missed = if ratio > LIMIT { ", **missed**" } else { "" };
        let [floor, time] = [floor, time].map(|time| format!("{:.1} ms", time.as_secs_f64() * 1e3));
        rows += &format!(
            "| {what}, {PARALLELISM} at once | {floor} | {time} | {ratio:.2} | ≤ {LIMIT}{missed} |\n"
        );
    }
    let head = "| what | plain requests | `llm_batch` | ratio | limit |\n| --- | --- | --- | --- | --- |\n";
    std::io::stdout().lock().write_all(format!("{head}{rows}").as_bytes()).unwrap();
}

/// A server in a thread of its own that gives every request the same answer. Returns its base URL.
fn serve() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let base_url = format!("http://{}/v1", listener.local_addr().unwrap());
    let answer = json!({
        "id": "a",
        "object": "chat.completion",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": text()}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 50, "completion_tokens": 50, "total_tokens": 100},
    })
    .to_string();
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            let app = Router::new().fallback(async move || answer.clone());
            axum::serve(listener, app).await.unwrap();
        });
    });
    base_url
}

fn text() -> String {
    "A line of a document, of which there is a question. ".repeat(4)
}

fn tool(base_url: &str, budget: Budget) -> LlmBatch {
    let mut config = ModelsConfig::new(base_url, "m");
    config.parallelism = PARALLELISM;
    let models = Arc::new(Models::new(config).unwrap());
    let ledger = Arc::new(Ledger::new(budget, Prices::default()));
    let options = SubLlmOptions { parallelism: PARALLELISM, ..SubLlmOptions::default() };
    LlmBatch::new(Arc::new(SubLlm::new(models, ledger, options).unwrap()))
}

async fn by_tool(tool: &LlmBatch) -> Duration {
    let prompts = Value::list((0..PROMPTS).map(|at| Value::from(format!("{at}: {}", text()))));
    let call = Call { tool: "llm_batch".to_owned(), args: vec![prompts], kwargs: Dict::default() };
    let started = Instant::now();
    let reply = tool.call(call, started + Duration::from_secs(60)).await.unwrap();
    let time = started.elapsed();
    let ToolResult::Value(Value::List(answers)) = reply.result else { panic!("no list") };
    assert!(answers.len() == PROMPTS && answers.iter().all(|answer| *answer == Value::from(text())));
    time
}

async fn plain(client: &Client, url: &str) -> Duration {
    let prompts: Vec<_> = (0..PROMPTS).map(|at| format!("{at}: {}", text())).collect();
    let started = Instant::now();
    let requests = prompts.into_iter().map(|prompt| async move {
        let body = json!({"model": "m", "messages": [{"role": "user", "content": prompt}]});
        let answer: Json = client.post(url).json(&body).send().await.unwrap().json().await.unwrap();
        answer["choices"][0]["message"]["content"].as_str().unwrap().to_owned()
    });
    let answers: Vec<_> = stream::iter(requests).buffer_unordered(PARALLELISM).collect().await;
    let time = started.elapsed();
    assert!(answers.len() == PROMPTS && answers.iter().all(|answer| *answer == text()));
    time
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}
