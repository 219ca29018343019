//! What the host says to a root model in the course of a rollout.

use minijinja::context;
use rlm_core::text::grouped;
use serde_json::json;

use super::templates::{PromptError, Prompts};
use crate::terms::{CallForm, ReplLanguage, StopReason};

/// Few tokens are left in the conversation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ContextLow {
    /// The session's language.
    pub language: ReplLanguage,
    /// Tokens that are left.
    pub left_tokens: u64,
    /// Tokens that the model takes.
    pub total_tokens: u64,
}

impl ContextLow {
    /// The text.
    ///
    /// # Errors
    /// [`PromptError`].
    pub(crate) fn render(&self, prompts: &Prompts) -> Result<String, PromptError> {
        let variables = context! {
            language => self.language.to_string(),
            left => grouped(self.left_tokens),
            total => grouped(self.total_tokens),
        };
        prompts.render("notices/context_low.md", variables)
    }
}

/// This turn is the last one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LastTurn {
    /// The session's language.
    pub language: ReplLanguage,
    /// How code is run.
    pub call_form: CallForm,
    /// The limit that is reached.
    pub reason: StopReason,
}

impl LastTurn {
    /// The text.
    ///
    /// # Errors
    /// [`PromptError`].
    pub(crate) fn render(&self, prompts: &Prompts) -> Result<String, PromptError> {
        let reason = match self.reason {
            StopReason::TimedOut => "time",
            StopReason::BudgetExhausted => "budget",
            StopReason::ContextFull => "context",
            _ => "turns",
        };
        let variables = context! {
            language => self.language.to_string(),
            is_fenced => self.call_form == CallForm::Fenced,
            reason => reason,
        };
        prompts.render("notices/last_turn.md", variables)
    }
}

/// The model's reply had no call in it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NoToolCall {
    /// The session's language.
    pub language: ReplLanguage,
    /// How code is run.
    pub call_form: CallForm,
    /// Whether the next one without a call ends the rollout.
    pub is_last_warning: bool,
}

impl NoToolCall {
    /// The text.
    ///
    /// # Errors
    /// [`PromptError`].
    pub(crate) fn render(&self, prompts: &Prompts) -> Result<String, PromptError> {
        let variables = context! {
            language => self.language.to_string(),
            is_fenced => self.call_form == CallForm::Fenced,
            is_last_warning => self.is_last_warning,
        };
        prompts.render("notices/no_tool_call.md", variables)
    }
}

/// What is wrong with a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CallFault {
    /// There is no tool of that name.
    UnknownTool,
    /// The arguments are no JSON: the parser's message.
    NotJson(String),
    /// The arguments are JSON, and no object: what they are, `a list`.
    NotAnObject(String),
    /// This argument is missing.
    Missing(String),
    /// This argument is no string.
    NotAString(String),
    /// There is no argument of that name.
    UnknownArgument(String),
    /// The code is too large.
    TooLarge {
        /// Its size.
        bytes: u64,
        /// The largest there may be.
        limit: u64,
    },
    /// The block of code has no end.
    OpenBlock,
    /// Anything else, in a sentence.
    Other(String),
}

impl CallFault {
    fn kind(&self) -> &'static str {
        match self {
            Self::UnknownTool => "unknown_tool",
            Self::NotJson(_) => "not_json",
            Self::NotAnObject(_) => "not_an_object",
            Self::Missing(_) => "missing",
            Self::NotAString(_) => "not_a_string",
            Self::UnknownArgument(_) => "unknown_argument",
            Self::TooLarge { .. } => "too_large",
            Self::OpenBlock => "open_block",
            Self::Other(_) => "other",
        }
    }

    fn limit(&self) -> Option<String> {
        if let Self::TooLarge { limit, .. } = self { Some(grouped(*limit)) } else { None }
    }

    fn detail(&self) -> String {
        match self {
            Self::UnknownTool | Self::OpenBlock => String::new(),
            Self::NotJson(detail)
            | Self::NotAnObject(detail)
            | Self::Missing(detail)
            | Self::NotAString(detail)
            | Self::UnknownArgument(detail)
            | Self::Other(detail) => detail.clone(),
            Self::TooLarge { bytes, .. } => grouped(*bytes),
        }
    }
}

/// A call that could not be understood. Nothing was run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MalformedCall<'a> {
    /// The session's language.
    pub language: ReplLanguage,
    /// The tool that was called.
    pub tool: &'a str,
    /// The names of the tools that there are.
    pub tools: &'a [&'a str],
    /// What is wrong.
    pub fault: &'a CallFault,
}

impl MalformedCall<'_> {
    /// The result of the call, as JSON: `{"ok": false, "error", "hint"}`.
    ///
    /// # Errors
    /// [`PromptError`].
    pub(crate) fn render(&self, prompts: &Prompts) -> Result<String, PromptError> {
        let fault = self.fault.kind();
        let error = context! {
            fault => fault,
            tool => self.tool,
            detail => self.fault.detail(),
            limit => self.fault.limit(),
        };
        let hint = context! {
            fault => fault,
            tool => self.tool,
            tools => self.tools.join(", "),
            is_repl => self.tool == self.language.tool_name(),
        };
        let data = json!({
            "ok": false,
            "error": prompts.render("notices/malformed_call_error.md", error)?,
            "hint": prompts.render("notices/malformed_call_hint.md", hint)?,
        });
        Ok(data.to_string())
    }
}

/// The worker died, and another took its place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SessionReset<'a> {
    /// The session's language.
    pub language: ReplLanguage,
    /// How it died.
    pub reason: &'a str,
    /// Whether the host holds an answer from before.
    pub has_answer: bool,
}

impl SessionReset<'_> {
    /// The text, as the result of the call that it died in.
    ///
    /// # Errors
    /// [`PromptError`].
    pub(crate) fn render(&self, prompts: &Prompts) -> Result<String, PromptError> {
        let variables = context! {
            language => self.language.to_string(),
            reason => self.reason,
            has_answer => self.has_answer,
        };
        prompts.render("notices/session_reset.md", variables)
    }
}

/// Asks the model for a summary of the oldest turns.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SummaryRequest {
    /// The session's language.
    pub language: ReplLanguage,
    /// How long it may be.
    pub max_words: u32,
    /// Whether an earlier summary is among what is summarised.
    pub has_summary: bool,
}

impl SummaryRequest {
    /// The text.
    ///
    /// # Errors
    /// [`PromptError`].
    pub(crate) fn render(&self, prompts: &Prompts) -> Result<String, PromptError> {
        let variables = context! {
            language => self.language.to_string(),
            max_words => grouped(self.max_words.into()),
            has_summary => self.has_summary,
        };
        prompts.render("summary_request.md", variables)
    }
}

/// The message that stands for turns which were summarised.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Summary<'a> {
    /// How many turns, of all summaries together.
    pub turns: u32,
    /// The model's summary.
    pub summary: &'a str,
}

impl Summary<'_> {
    /// The text.
    ///
    /// # Errors
    /// [`PromptError`].
    pub(crate) fn render(&self, prompts: &Prompts) -> Result<String, PromptError> {
        prompts.render("summary.md", context! { turns => self.turns, summary => self.summary.trim() })
    }
}
