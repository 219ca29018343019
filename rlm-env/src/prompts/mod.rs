//! Texts for models: each is a template in `prompts/` and, here, a type with the values that it is rendered with.
//!
//! A template must use exactly the variables that it is given: a missing one and an unused one are both errors.
//! [`Prompts::with_overrides`] replaces templates by those of a directory.

mod format;
mod interception;
mod notices;
pub(crate) mod output;
mod overrides;
mod samples;
mod system;
mod templates;
mod tool;
mod tool_fault;
mod tools;

pub(crate) use self::interception::{CallFailed, CallsRejected, ResultsCut};
pub(crate) use self::notices::{
    AnswerEmpty, AnswerUnfit, CallFault, ContextLow, Images, LastTurn, MalformedCall, NoCallReason,
    NoToolCall, SessionReset, Summary, SummaryRequest, reply_cut,
};
pub use self::system::SubLlmPrompt;
pub(crate) use self::system::{ReplTool, SystemPrompt, WorkingDir};
pub use self::templates::{PromptError, Prompts};
pub use self::tool::{McpDoc, McpText};
pub(crate) use self::tool::{StateLost, ToolFailureText, ToolOutputCut};
pub use self::tool_fault::ToolFault;
pub(crate) use self::tools::ToolDoc;

#[cfg(test)]
mod tests;
