//! A session as an agent's tool.
//!
//! `cargo run -p rlm-env --example session_tool -- target/release/rlm-worker-bash DIRECTORY`, where the worker is built.
#![expect(clippy::print_stdout, reason = "a main, for people")]

use std::time::Duration;

use rlm_env::tool::{ToolCall, ToolResult};
use rlm_env::{ReplLanguage, SessionConfig, SessionTool, SessionToolConfig};

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let mut arguments = std::env::args_os().skip(1);
    let worker = arguments.next().unwrap_or_else(|| "rlm-worker-bash".into());
    let directory = arguments.next().unwrap_or_else(|| ".".into());

    // The worker starts with the first call. Whole outputs are kept below the last argument, until the tool is closed.
    let session = SessionConfig::new(worker, directory);
    let tool = SessionTool::new(SessionToolConfig::new(ReplLanguage::Bash, session, std::env::temp_dir()));

    for code in ["x=1; echo $x", "kill -9 $PPID; sleep 1000", "echo ${x-no x}"] {
        let call = ToolCall { timeout: Some(Duration::from_secs(5)), ..ToolCall::from(code) };
        let reply = tool.call(call).await;
        match &reply.result {
            // `reply.text` is the same as a model reads it.
            ToolResult::Ok(value) => print!("{:?}: {}", value.state, value.stdout),
            ToolResult::Failed(failure) => println!("failed. {}", failure.hint),
        }
    }
    tool.close().await;
}
