//! Texts of a session that is a tool.

use std::path::Path;
use std::time::Duration;

use minijinja::context;
use rlm_core::protocol::{Confine, State};
use rlm_core::text::grouped;

use super::format::duration;
use super::templates::{PromptError, Prompts};
use super::tool_fault::ToolFault;
use crate::terms::ReplLanguage;

/// A fault, and advice on it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ToolFailureText<'a> {
    pub(crate) language: ReplLanguage,
    pub(crate) fault: &'a ToolFault,
}

impl ToolFailureText<'_> {
    pub(crate) fn render_error(&self, prompts: &Prompts) -> Result<String, PromptError> {
        let (number, limit) = match self.fault {
            ToolFault::CodeTooLarge { bytes, limit } | ToolFault::ScriptTooLarge { bytes, limit } => {
                (*bytes, *limit)
            }
            ToolFault::Busy { waiting } => (*waiting, 0),
            ToolFault::TooManySessions { limit, .. } => (0, *limit),
            _ => (0, 0),
        };
        let detail = match self.fault {
            ToolFault::NotStarted(detail)
            | ToolFault::Died(detail)
            | ToolFault::Broken(detail)
            | ToolFault::NoHistory(detail)
            | ToolFault::BadArguments(detail)
            | ToolFault::UnknownSession { name: detail, .. } => detail.as_str(),
            _ => "",
        };
        let variables = context! {
            fault => self.kind(),
            language => self.language.to_string(),
            number => grouped(number as u64),
            limit => grouped(limit as u64),
            detail,
        };
        prompts.render("tool/failure_error.md", variables)
    }

    pub(crate) fn render_hint(&self, prompts: &Prompts) -> Result<String, PromptError> {
        let known = match self.fault {
            ToolFault::UnknownSession { known, .. } | ToolFault::TooManySessions { known, .. } => {
                known.join(", ")
            }
            _ => String::new(),
        };
        let variables = context! { fault => self.kind(), language => self.language.to_string(), known };
        prompts.render("tool/failure_hint.md", variables)
    }

    fn kind(&self) -> &'static str {
        match self.fault {
            ToolFault::CodeTooLarge { .. } => "code_too_large",
            ToolFault::Busy { .. } => "busy",
            ToolFault::NotStarted(_) => "not_started",
            ToolFault::Died(_) => "died",
            ToolFault::Broken(_) => "broken",
            ToolFault::Closed => "closed",
            ToolFault::NoHistory(_) => "no_history",
            ToolFault::ScriptTooLarge { .. } => "script_too_large",
            ToolFault::UnknownSession { .. } => "unknown_session",
            ToolFault::TooManySessions { .. } => "too_many_sessions",
            ToolFault::BadArguments(_) => "bad_arguments",
        }
    }
}

/// Notice that the session's state was lost, or saved in part, out of the caller's sight.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StateLost<'a> {
    pub(crate) language: ReplLanguage,
    pub(crate) state: State,
    pub(crate) reason: &'a str,
}

impl StateLost<'_> {
    pub(crate) fn render(&self, prompts: &Prompts) -> Result<String, PromptError> {
        let variables = context! {
            language => self.language.to_string(),
            state => if self.state == State::Reset { "reset" } else { "restored" },
            reason => self.reason.trim_end_matches('.'),
        };
        prompts.render("tool/state_lost.md", variables)
    }
}

/// The line that replaces the part cut out of an output.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ToolOutputCut<'a> {
    pub(crate) language: ReplLanguage,
    /// Bytes left out.
    pub(crate) omitted_bytes: u64,
    /// Bytes that were too many even for the session and are lost.
    pub(crate) lost_bytes: u64,
    /// The file with the whole text.
    pub(crate) file: Option<&'a str>,
}

impl ToolOutputCut<'_> {
    pub(crate) fn render(&self, prompts: &Prompts) -> Result<String, PromptError> {
        let variables = context! {
            language => self.language.to_string(),
            omitted => grouped(self.omitted_bytes),
            lost => (self.lost_bytes > 0).then(|| grouped(self.lost_bytes)),
            file => self.file,
        };
        prompts.render("tool/output_cut.md", variables)
    }
}

/// A text of the MCP server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum McpText {
    /// The server's instructions.
    Instructions,
    /// The description of the tool `bash` or `python`.
    Repl(ReplLanguage),
    /// The description of the tool `reset`.
    Reset,
    /// The description of the tool `session_script`.
    SessionScript,
    /// The description of the tool `ask_directory`.
    AskDirectory,
}

/// The values in the MCP server's texts.
#[derive(Clone, Copy, Debug)]
pub struct McpDoc<'a> {
    /// The directory that sessions start in.
    pub root: &'a Path,
    /// Time limit of calls that do not set one.
    pub timeout: Duration,
    /// Largest output of a call, in bytes.
    pub max_output_bytes: usize,
    /// Number of sessions that may exist at once.
    pub max_sessions: usize,
    /// The confinement of sessions that is wanted.
    pub confine: Confine,
}

impl McpDoc<'_> {
    /// Renders one of the texts.
    ///
    /// # Errors
    /// [`PromptError`].
    pub fn render(&self, text: McpText, prompts: &Prompts) -> Result<String, PromptError> {
        let root = self.root.to_string_lossy();
        match text {
            McpText::Instructions => {
                let confine = self.confine.to_string();
                prompts.render("mcp/instructions.md", context! { root, confine })
            }
            McpText::Reset => prompts.render("mcp/reset.md", context! {}),
            McpText::SessionScript => prompts.render("mcp/session_script.md", context! {}),
            McpText::AskDirectory => prompts.render("mcp/ask_directory.md", context! {}),
            McpText::Repl(language) => {
                let variables = context! {
                    root,
                    timeout => duration(self.timeout),
                    max_output => grouped(self.max_output_bytes as u64),
                    max_sessions => grouped(self.max_sessions as u64),
                };
                prompts.render(&format!("mcp/{language}.md"), variables)
            }
        }
    }
}
