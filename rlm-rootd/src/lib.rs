//! The endpoint on the host that code in a session calls back into.
//!
//! A [`Rootd`] holds rollouts. Each has a secret, tools and limits; code in its session calls the tools over HTTP and
//! cannot reach another rollout. [`Rootd::serve`] takes a bound [`Listener`] and a future that ends it.
//!
//! A call ends when its tool does, at the rollout's time limit, when its caller goes away, or with the rollout: the tool's
//! future is dropped in the last three cases, and a tool that is a program is killed.
//!
//! Every refusal is `{"error": "…"}`. What a request may take is limited, and a request over a limit costs its sender an
//! error.

mod call;
mod callback;
pub mod daemon;
mod error;
mod host_process;
mod http;
mod http_client;
mod ledger;
mod listener;
mod llm;
mod log_lines;
mod mcp;
mod memory;
mod metrics;
pub mod nav;
mod offload;
mod paid;
mod program;
mod proxy;
mod rollout;
mod rootd;
mod secret;
mod server;
mod signature;
mod tool;
mod tools_file;

pub use error::CallError;
pub use host_process::{BadHostPid, HostProcess};
pub use ledger::{
    Amounts, Budget, Estimate, Exhausted, Ledger, LedgerSnapshot, Left, Price, Prices, PricesError,
    RemoteLedger, Resource, Share, Unpriced, Usage, Whose,
};
pub use listener::Listener;
pub use llm::{
    Api, ArgumentsFault, BudgetTool, ChatError, ChatMessage, ChatReply, ChatRequest, ChatTools, Completion,
    Fenced, HttpModel, Key, LEAST_COMPLETION, LlmBatch, LlmQuery, ModelError, ModelErrorKind, ModelFuture,
    ModelLimits, Models, ModelsConfig, ModelsError, NullContent, Recorder, ReplyEnd, Retries, RetryObserver,
    RootModel, Rules, ServerRules, Streaming, SubCallError, SubCallRecord, SubLlm, SubLlmError,
    SubLlmOptions, WrittenCall, arguments, call_arguments, check_sampling, fenced, image_urls, is_data_url,
    is_same_model, message_text, new_call_id, reasoning_text, refusal, repeats_thought, reply_text,
    thinking_budget, thoughts, tool_named, without_thoughts, written_calls,
};
pub use log_lines::{LogLines, LogWriter};
pub use mcp::{McpError, McpFileError, McpServer, McpServers, McpTransport, load_mcp_servers};
pub use memory::free_large_values_at_once;
pub use metrics::CallCounts;
pub use paid::{OnTheWay, Paid, Receipt};
pub use program::{Program, ProgramError, ProgramOutput};
pub use proxy::Proxy;
pub use rollout::{
    MAX_TOOL_TIME_LIMIT, RegisterError, Registration, RolloutConfig, RolloutMetrics, TOOL_TIME_LIMIT,
};
pub use rootd::{Rootd, RootdConfig};
pub use secret::Secret;
pub use tool::{DefinitionError, PaidToolFuture, RootTool, Tool, ToolError, ToolFuture, delivered};
pub use tools_file::{ToolsFileError, load_tools};
