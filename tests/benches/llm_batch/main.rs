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
use axum::body::to_bytes;
use axum::extract::Request;
use futures_util::{StreamExt as _, stream};
use nix::time::{ClockId, clock_gettime};
use reqwest::Client;
use rlm_core::pickle::{Dict, Value};
use rlm_core::root_tool::{Call, ToolResult};
use rlm_rootd::{
    Api, Budget, ChatMessage, ChatRequest, HttpModel, Ledger, LlmBatch, Models, ModelsConfig, Prices,
    RootModel as _, RootTool as _, SubLlm, SubLlmOptions,
};
use serde_json::{Value as Json, json};
use tokio::runtime::Runtime;

const PROMPTS: usize = 1000;
const PARALLELISM: usize = 64;
const ROUNDS: usize = 31;
const LIMIT: f64 = 1.3;

/// Turns of the long conversation, and the size of each output, in bytes: 1 MB in all.
const TURNS: usize = 100;
const OUTPUT_BYTES: usize = 10_000;

/// Most CPU time of ours that a turn of it may take, beside that of sending the same bytes.
const TURN_LIMIT: Duration = Duration::from_millis(2);

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
    rows += "\n| a turn of a conversation of 1 MB | plain request, CPU | by the root model, CPU | difference | limit |\n\
             | --- | --- | --- | --- | --- |\n";
    for api in [Api::Chat, Api::Responses, Api::Anthropic] {
        let (floor, time) = long_turn(&base_url, api);
        let more = time.saturating_sub(floor);
        let missed = if more > TURN_LIMIT { ", **missed**" } else { "" };
        let [floor, time, more] =
            [floor, time, more].map(|time| format!("{:.2} ms", time.as_secs_f64() * 1e3));
        rows += &format!("| over {api} | {floor} | {time} | {more} | ≤ {TURN_LIMIT:?}{missed} |\n");
    }
    let head = "| what | plain requests | `llm_batch` | ratio | limit |\n| --- | --- | --- | --- | --- |\n";
    std::io::stdout().lock().write_all(format!("{head}{rows}").as_bytes()).unwrap();
}

/// A reply of Anthropic's Messages.
const MESSAGE: &str = r#"{"type": "message", "role": "assistant", "content": [{"type": "text", "text": "a"}],
    "stop_reason": "end_turn", "usage": {"input_tokens": 1, "output_tokens": 1}}"#;

/// A reply of OpenAI's Responses.
const RESPONSE: &str = r#"{"object": "response", "status": "completed", "output": [{"type": "message", "role": "assistant",
    "content": [{"type": "output_text", "text": "a"}]}], "usage": {"input_tokens": 1, "output_tokens": 1}}"#;

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
            let app = Router::new().fallback(async move |request: Request| {
                let answer = match request.uri().path() {
                    "/v1/messages" => MESSAGE.to_owned(),
                    "/v1/responses" => RESPONSE.to_owned(),
                    _ => answer.clone(),
                };
                to_bytes(request.into_body(), usize::MAX).await.unwrap();
                answer
            });
            axum::serve(listener, app).await.unwrap();
        });
    });
    base_url
}

/// CPU time of a plain request with the bytes of a long conversation, and of a turn of it with a budget.
fn long_turn(base_url: &str, api: Api) -> (Duration, Duration) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut config = ModelsConfig::new(base_url, "m");
    (config.api, config.stream) = (Some(api), false);
    let model = HttpModel::new(Arc::new(Models::new(config).unwrap()));
    let ledger =
        Arc::new(Ledger::new(Budget { tokens: Some(u64::MAX / 2), ..Budget::default() }, Prices::default()));
    let output = "A line of an output, with \"quotes\" in it.\n".repeat(OUTPUT_BYTES / 43);
    let mut messages: Vec<ChatMessage> = vec![json!({"role": "user", "content": "?"}).into()];
    for turn in 0..TURNS {
        let function = json!({"name": "call_bash_repl", "arguments": "{\"code\": \"ls\"}"});
        let id = format!("call{turn}");
        let calls = json!([{"id": id, "type": "function", "function": function}]);
        messages.push(json!({"role": "assistant", "content": "I look.", "tool_calls": calls}).into());
        messages.push(json!({"role": "tool", "tool_call_id": id, "content": output}).into());
    }
    let body = serde_json::to_vec(&json!({"messages": messages, "model": "m"})).unwrap();
    let client = Client::new();
    let (mut floors, mut times) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        floors.push(cpu_time(|| {
            runtime.block_on(async {
                client.post(base_url).body(body.clone()).send().await.unwrap().bytes().await.unwrap()
            })
        }));
        let request = || ChatRequest::new(&messages, Instant::now() + Duration::from_secs(60), &ledger);
        times.push(cpu_time(|| {
            // The driver looks at the budget before and after each turn.
            for _ in 0..3 {
                model.estimate(request()).unwrap();
            }
            runtime.block_on(model.complete(request())).unwrap()
        }));
    }
    (median(floors), median(times))
}

/// CPU time of this thread.
fn cpu_time<T>(run: impl FnOnce() -> T) -> Duration {
    let now = || {
        let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap();
        Duration::new(time.tv_sec() as u64, time.tv_nsec() as u32)
    };
    let began = now();
    std::hint::black_box(run());
    now() - began
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
