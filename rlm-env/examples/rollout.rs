//! A rollout, with a function of this program as a root tool.
//!
//! `cargo run -p rlm-env --example rollout -- target/release`, where the workers are built.
#![expect(clippy::print_stdout, reason = "a main, for people")]

use std::sync::Arc;

use rlm_env::model::{ChatReply, ChatRequest, ModelFuture, Usage};
use rlm_env::root_tool::Value;
use rlm_env::{Context, Control, Host, HostConfig, RolloutConfig, RootModel, Tool};
use serde_json::json;

/// A root model that knows what to do. For a real one: `rlm_env::model::HttpModel`.
#[derive(Debug)]
struct Scripted;

impl RootModel for Scripted {
    fn name(&self) -> &str {
        "scripted"
    }

    fn complete<'a>(&'a self, _request: ChatRequest<'a>) -> ModelFuture<'a> {
        let code = "RLM_CONTENT=$(shout \"$(head -n 1 letter.txt)\"); RLM_READY=1";
        let call = json!({"name": "call_bash_repl", "arguments": json!({"code": code}).to_string()});
        let calls = json!([{"id": "1", "type": "function", "function": call}]);
        let message = json!({"role": "assistant", "content": "", "tool_calls": calls});
        Box::pin(async { Ok(ChatReply::new(message, Usage::default())) })
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let programs = std::env::args_os().nth(1).unwrap_or_else(|| "target/release".into());

    // A function of this program, which code in the session calls by its name.
    let text = json!({"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]});
    let shout =
        Tool::from_fn("shout", "Returns a text in capitals.", text, |call| match call.argument(0, "text") {
            Some(Value::Str(text)) => Ok(text.to_uppercase()),
            _ => Err("text must be a str".into()),
        })?;

    // One host serves any number of rollouts side by side.
    let host = Host::start(HostConfig::new(programs, Arc::new(Scripted))).await?;
    let rollout = RolloutConfig {
        context: Context::Files(vec![("letter.txt".to_owned(), b"Dear all,\nthe end.\n".to_vec())]),
        root_tools: vec![shout],
        ..RolloutConfig::new("one", "How does the letter begin?")
    };
    let result = host.run(rollout, &Control::new()).await;
    println!("{:?}: {}", result.stop_reason, result.answer.unwrap_or_default());
    host.close().await?;
    Ok(())
}
