//! The cost of children: rollouts that code in a session starts, with a model that answers at once.
//!
//! The peer of many children is a batch of as many rollouts without a parent. They take turns; the table has medians.
//! Build the programs first: `cargo build --release --workspace`.

use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::{StreamExt as _, stream};
use rlm_env::model::{ChatReply, ChatRequest, ModelFuture, Usage};
use rlm_env::rollout::Recursion;
use rlm_env::{Control, Host, HostConfig, ReplLanguage, RolloutConfig, RootModel, StopReason};
use serde_json::json;

/// Children that are started one after the other.
const IN_TURN: u32 = 20;
/// Children of one call.
const AT_ONCE: usize = 200;
/// Number of children that run at once.
const RUNNING: usize = 8;
const ROUNDS: usize = 5;

/// Runs the code that its question names.
#[derive(Debug)]
struct Coder;

impl RootModel for Coder {
    fn name(&self) -> &str {
        "coder"
    }

    fn complete<'a>(&'a self, request: ChatRequest<'a>) -> ModelFuture<'a> {
        let asked =
            request.messages.last().and_then(|message| message["content"].as_str()).unwrap_or_default();
        let code = match asked {
            "in turn" => format!(
                "for i in {{1..{IN_TURN}}}; do rlm_query child; done >/dev/null; RLM_CONTENT=1 RLM_READY=1"
            ),
            "at once" => format!(
                "RLM_CONTENT=$(rlm_query_batch $(yes child | head -{AT_ONCE}) | grep -c 1) RLM_READY=1"
            ),
            _ => "RLM_CONTENT=1 RLM_READY=1".to_owned(),
        };
        Box::pin(async move {
            let arguments = json!({"code": code}).to_string();
            let function = json!({"name": ReplLanguage::Bash.tool_name(), "arguments": arguments});
            let call = json!({"id": "c", "type": "function", "function": function});
            let message = json!({"role": "assistant", "content": null, "tool_calls": [call]});
            let usage = Usage::new(100, 10);
            Ok(ChatReply::new(message, usage))
        })
    }
}

fn main() {
    if !std::env::args_os().any(|argument| argument == "--bench") {
        // `cargo test --all-targets` gets here too, but would not measure anything.
        return;
    }
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let host = Arc::new(runtime.block_on(host(dir.path())));
    let rounds: Vec<_> = (0..ROUNDS)
        .map(|_| {
            let alone = runtime.block_on(run(&host, "alone", "1"));
            let in_turn = runtime.block_on(run(&host, "in turn", "1"));
            let batch = runtime.block_on(batch(&host));
            let at_once = runtime.block_on(run(&host, "at once", &AT_ONCE.to_string()));
            [alone, (in_turn - alone) / IN_TURN, batch, at_once]
        })
        .collect();
    let [alone, child, batch, at_once] = [0, 1, 2, 3].map(|which| {
        let mut times: Vec<_> = rounds.iter().map(|round| round[which]).collect();
        times.sort_unstable();
        times[ROUNDS / 2].as_secs_f64()
    });
    let table = format!(
        "| children in bash, a model that answers at once | measured | beside rollouts without a parent | limit |\n\
         | --- | --- | --- | --- |\n\
         | a rollout of one turn | {:.1} ms | | |\n\
         | a child of one turn, with the call of `rlm_query` | {:.1} ms | {:.2} | ≤ 25 ms |\n\
         | {AT_ONCE} rollouts without a parent, {RUNNING} running | {:.0}/s | | |\n\
         | {AT_ONCE} children of one call, {RUNNING} running | {:.0}/s | {:.2} | ≥ 0.8 |\n",
        alone * 1e3,
        child * 1e3,
        child / alone,
        AT_ONCE as f64 / batch,
        AT_ONCE as f64 / at_once,
        batch / at_once,
    );
    std::io::stdout().write_all(table.as_bytes()).unwrap();
    runtime.block_on(async { Arc::into_inner(host).unwrap().close().await.unwrap() });
}

/// Runs a rollout, and returns the time that it takes.
async fn run(host: &Host, question: &str, answer: &str) -> Duration {
    let mut config = RolloutConfig::new("root", question);
    let mut recursion = Recursion::new(1);
    recursion.max_running = RUNNING;
    config.recursion = Some(recursion);
    let started = Instant::now();
    let result = host.run(config, &Control::new()).await;
    assert_eq!(
        (result.stop_reason, result.answer.as_deref()),
        (StopReason::Answered, Some(answer)),
        "{result:?}"
    );
    started.elapsed()
}

/// Runs many rollouts without a parent, and returns the time that they take.
async fn batch(host: &Arc<Host>) -> Duration {
    let started = Instant::now();
    let rollout = |at: usize| {
        let host = host.clone();
        tokio::spawn(async move {
            let result = host.run(RolloutConfig::new(format!("r{at}"), "child"), &Control::new()).await;
            assert_eq!(result.stop_reason, StopReason::Answered);
        })
    };
    stream::iter(0..AT_ONCE)
        .map(rollout)
        .buffer_unordered(RUNNING)
        .for_each(async |ended| ended.unwrap())
        .await;
    started.elapsed()
}

async fn host(dir: &Path) -> Host {
    let config = HostConfig {
        env: rlm_tests::variables(),
        dir: dir.to_owned(),
        ..HostConfig::new(rlm_tests::programs(), Arc::new(Coder))
    };
    Host::start(config).await.unwrap()
}
