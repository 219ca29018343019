//! Every text that a model reads: a template in `prompts/` and, here, a type that says what it is rendered with.
//!
//! A template is given exactly the variables that it names: one that is missing and one that is not used are both
//! errors. Templates may be replaced by those of a directory, [`Prompts::with_overrides`].

mod format;
mod interception;
mod notices;
pub(crate) mod output;
mod samples;
mod system;
mod templates;
mod tool;
mod tools;

pub(crate) use interception::{CallFailed, CallsRejected, ResultsCut};
pub use notices::{
    CallFault, ContextLow, LastTurn, LastTurnReason, MalformedCall, NoToolCall, SessionReset, Summary,
    SummaryRequest,
};
pub use system::{CallForm, ReplTool, SubLlmPrompt, SystemPrompt, repl_tool_name};
pub use templates::{PromptError, Prompts};
pub use tool::{McpDoc, McpText};
pub(crate) use tool::{StateLost, ToolFailureText, ToolOutputCut};
pub use tools::{RootToolsDoc, ToolDoc};

#[cfg(test)]
mod tests;
