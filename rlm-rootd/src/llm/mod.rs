//! Sub-LLMs: models that code in a session asks, over an OpenAI-compatible endpoint.
//!
//! There is one [`Models`] per process: the client, the model and how many requests run at once. There is one [`SubLlm`] per
//! rollout: batches of prompts and the proxy, within the rollout's [`Ledger`](crate::Ledger). [`LlmBatch`] and [`BudgetTool`]
//! offer both to the session. The [`RootModel`] leads the rollout; [`HttpModel`] is one over HTTP.
//!
//! A request is repeated up to [`Retries::max`] times: on 429, 408 and 5xx, on a time-out, and where no connection is made or
//! it breaks. The pauses before grow, or are those that the server asks for. A reply that cannot be used is asked for once more.
//! An attempt that does not fit into the deadline of the call is not begun.
//!
//! A reply is streamed where the server can, so that the time limit is on its silence ([`ModelsConfig::stream`]).
//!
//! Everything here is cancelled by dropping its future. Nothing is sent after that, and what was sent is settled at its
//! estimate.

mod api;
mod batch_tool;
mod bounds;
mod boxed;
mod budget_tool;
mod chat;
mod error;
mod estimate;
mod exchange;
mod failure;
mod forms;
mod http_model;
mod key;
mod limits;
mod message;
mod models;
mod opaque;
mod record;
mod reply;
mod reply_end;
mod request_ids;
mod retry;
mod root_model;
mod rules;
mod server_error;
mod sse;
mod sub_llm;
mod tool_loop;
mod wire;

pub use api::Api;
pub use batch_tool::{LlmBatch, LlmQuery};
pub use bounds::{LEAST_COMPLETION, thinking_budget};
pub use budget_tool::BudgetTool;
pub use chat::ChatError;
pub use error::{SubCallError, SubLlmError};
pub use estimate::{image_urls, is_data_url};
pub use forms::{
    ArgumentsFault, Fenced, WrittenCall, arguments, fenced, thoughts, tool_named, without_thoughts,
    written_calls,
};
pub use http_model::HttpModel;
pub use key::Key;
pub use limits::{ModelLimits, is_same_model};
pub use message::{
    ChatMessage, call_arguments, message_text, reasoning_text, refusal, repeats_thought, reply_text,
};
pub use models::{Models, ModelsConfig, ModelsError, Streaming};
pub use record::{Recorder, SubCallRecord};
pub use reply_end::ReplyEnd;
pub use retry::Retries;
pub use root_model::{
    ChatReply, ChatRequest, ModelError, ModelErrorKind, ModelFuture, RetryObserver, RootModel,
};
pub use rules::{NullContent, Rules, ServerRules};
pub use sub_llm::{Completion, SubLlm, SubLlmOptions, check_sampling};
pub use tool_loop::ChatTools;
pub use wire::new_call_id;
