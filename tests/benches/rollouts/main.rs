//! The cost of everything around the calls of a rollout: whole rollouts with a model that answers at once.
//!
//! The floor is the same calls through sessions only, started, driven and ended with the same parallelism. They take
//! turns; the table has the best of each. Build the programs first: `cargo build --release --workspace`.

use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::{StreamExt as _, stream};
use rlm_env::model::{ChatReply, ChatRequest, ModelFuture, Usage};
use rlm_env::trajectory::Writer;
use rlm_env::{
    Control, Host, HostConfig, ReplLanguage, RolloutConfig, RootModel, Session, SessionConfig, StopReason,
};
use rlm_tests::program;
use serde_json::json;

const ROLLOUTS: usize = 50;
const CALLS: usize = 20;
const AT_ONCE: usize = 8;
const ROUNDS: usize = 5;

/// Least number of calls per second that we want.
const LIMIT: u32 = 2000;

/// Calls the REPL nineteen times, then answers.
#[derive(Debug)]
struct AtOnce;

impl RootModel for AtOnce {
    fn name(&self) -> &str {
        "at-once"
    }

    fn complete<'a>(&'a self, request: ChatRequest<'a>) -> ModelFuture<'a> {
        let turn = request.messages.len() / 2;
        let code = code(turn);
        Box::pin(async move {
            let arguments = json!({"code": code}).to_string();
            let function = json!({"name": ReplLanguage::Bash.tool_name(), "arguments": arguments});
            let call = json!({"id": format!("c{turn}"), "type": "function", "function": function});
            let message = json!({"role": "assistant", "content": null, "tool_calls": [call]});
            let usage = Usage::new(100, 10);
            Ok(ChatReply::new(message, usage))
        })
    }
}

/// Code of a turn, counted from 1.
fn code(turn: usize) -> String {
    if turn < CALLS {
        format!("x=$((x + {turn})); echo \"$x\"")
    } else {
        "RLM_CONTENT=$x RLM_READY=1".to_owned()
    }
}

fn main() {
    if !std::env::args_os().any(|argument| argument == "--bench") {
        // `cargo test --all-targets` gets here too, but would not measure anything.
        return;
    }
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (mut floor, mut measured) = (Duration::MAX, Duration::MAX);
    for _ in 0..ROUNDS {
        floor = floor.min(runtime.block_on(sessions()));
        measured = measured.min(runtime.block_on(rollouts()));
    }
    let rate = |time: Duration| (ROLLOUTS * CALLS) as f64 / time.as_secs_f64();
    let ratio = measured.as_secs_f64() / floor.as_secs_f64();
    let table = format!(
        "| {ROLLOUTS} rollouts of {CALLS} calls, {AT_ONCE} at once | measured | beside sessions alone | limit |\n\
         | --- | --- | --- | --- |\n\
         | sessions alone, start and end included | {:.0} calls/s | | |\n\
         | rollouts, with prompts, rendering, trajectory and metrics | {:.0} calls/s | {ratio:.2} | ≥ {LIMIT} calls/s |\n",
        rate(floor),
        rate(measured),
    );
    std::io::stdout().write_all(table.as_bytes()).unwrap();
}

async fn sessions() -> Duration {
    let dir = tempfile::tempdir().unwrap();
    let started = Instant::now();
    let path = dir.path();
    let session = |_| {
        let path = path.to_owned();
        tokio::spawn(async move {
            let env = vec![("PATH".into(), "/usr/bin:/bin".into())];
            let config = SessionConfig { env, ..SessionConfig::new(program("rlm-worker-bash"), &path) };
            let mut session = Session::start(config).await.unwrap();
            for turn in 1..=CALLS {
                session.execute(code(turn).as_str()).await.unwrap();
            }
            session.close().await.unwrap();
        })
    };
    stream::iter(0..ROLLOUTS)
        .map(session)
        .buffer_unordered(AT_ONCE)
        .for_each(async |ended| ended.unwrap())
        .await;
    started.elapsed()
}

async fn rollouts() -> Duration {
    let dir = tempfile::tempdir().unwrap();
    let host = Arc::new(host(dir.path()).await);
    let trajectory = Arc::new(Writer::append(&dir.path().join("trajectory.jsonl")).unwrap());
    let started = Instant::now();
    let rollout = |at: usize| {
        let mut config = RolloutConfig::new(format!("r{at}"), "What is the sum?");
        config.sinks = vec![trajectory.clone()];
        let host = host.clone();
        tokio::spawn(async move {
            let result = host.run(config, &Control::new()).await;
            assert_eq!((result.stop_reason, result.answer.as_deref()), (StopReason::Answered, Some("190")));
        })
    };
    stream::iter(0..ROLLOUTS)
        .map(rollout)
        .buffer_unordered(AT_ONCE)
        .for_each(async |ended| ended.unwrap())
        .await;
    let took = started.elapsed();
    Arc::into_inner(host).unwrap().close().await.unwrap();
    took
}

async fn host(dir: &Path) -> Host {
    let config = HostConfig {
        env: rlm_tests::variables(),
        dir: dir.to_owned(),
        ..HostConfig::new(rlm_tests::programs(), Arc::new(AtOnce))
    };
    Host::start(config).await.unwrap()
}
