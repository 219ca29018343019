//! Notices to a root model during a rollout.

use minijinja::context;
use rlm_core::text::grouped;
use serde_json::json;

use super::templates::{PromptError, Prompts};
use crate::terms::{CallForm, ReplLanguage, StopReason};

/// Notice that few tokens are left in the conversation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ContextLow {
    /// The session's language.
    pub language: ReplLanguage,
    /// Tokens that are left.
    pub left_tokens: u64,
    /// The model's context window in tokens.
    pub total_tokens: u64,
}

impl ContextLow {
    pub(crate) fn render(&self, prompts: &Prompts) -> Result<String, PromptError> {
        let variables = context! {
            language => self.language.to_string(),
            left => grouped(self.left_tokens),
            total => grouped(self.total_tokens),
        };
        prompts.render("notices/context_low.md", variables)
    }
}

/// Notice that this is the last turn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LastTurn {
    /// The session's language.
    pub language: ReplLanguage,
    /// How the model has its code run.
    pub call_form: CallForm,
    /// The limit that was reached.
    pub reason: StopReason,
}

impl LastTurn {
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

/// Why a reply contained no call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NoCallReason {
    /// The reply is a text, or empty.
    NoCode,
    /// The reply's code is of another language; the tag of the block.
    OtherLanguage(String),
    /// The reply was cut off at the limit of its tokens.
    Cut,
    /// The model or a filter refused; a sentence without a full stop.
    Refused(String),
}

/// Notice that the model's reply contained no call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NoToolCall<'a> {
    /// The session's language.
    pub language: ReplLanguage,
    /// How the model has its code run.
    pub call_form: CallForm,
    /// Why there is no call.
    pub reason: &'a NoCallReason,
    /// True if another reply without a call ends the rollout.
    pub is_last_warning: bool,
}

impl NoToolCall<'_> {
    pub(crate) fn render(&self, prompts: &Prompts) -> Result<String, PromptError> {
        let (reason, detail) = match self.reason {
            NoCallReason::NoCode => ("no_code", ""),
            NoCallReason::OtherLanguage(tag) => ("other_language", tag.as_str()),
            NoCallReason::Cut => ("cut", ""),
            NoCallReason::Refused(words) => ("refused", words.as_str()),
        };
        let variables = context! {
            language => self.language.to_string(),
            is_fenced => self.call_form == CallForm::Fenced,
            reason => reason,
            detail => detail,
            is_last_warning => self.is_last_warning,
        };
        prompts.render("notices/no_tool_call.md", variables)
    }
}

/// Notice that a reply was cut off behind code that was run.
///
/// # Errors
/// [`PromptError`].
pub(crate) fn reply_cut(prompts: &Prompts) -> Result<String, PromptError> {
    prompts.render("notices/reply_cut.md", context! {})
}

/// Notice that a final answer is empty.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AnswerEmpty {
    /// The session's language.
    pub language: ReplLanguage,
}

impl AnswerEmpty {
    pub(crate) fn render(&self, prompts: &Prompts) -> Result<String, PromptError> {
        prompts.render("notices/answer_empty.md", context! { language => self.language.to_string() })
    }
}

/// The text beside images that code has shown, or in their place.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Images<'a> {
    /// The images are shown; their names.
    Shown(&'a str),
    /// The model's server refused the images; its reason.
    Refused(&'a str),
}

impl Images<'_> {
    pub(crate) fn render(&self, prompts: &Prompts) -> Result<String, PromptError> {
        let variables = match *self {
            Self::Shown(names) => context! { names, refusal => "" },
            Self::Refused(refusal) => context! { names => "", refusal },
        };
        prompts.render("notices/images.md", variables)
    }
}

/// Notice that a final answer does not fit its schema.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AnswerUnfit<'a> {
    /// The session's language.
    pub language: ReplLanguage,
    /// The first faults, each with its place.
    pub faults: &'a [String],
}

impl AnswerUnfit<'_> {
    pub(crate) fn render(&self, prompts: &Prompts) -> Result<String, PromptError> {
        let variables = context! { language => self.language.to_string(), faults => self.faults.to_vec() };
        prompts.render("notices/answer_unfit.md", variables)
    }
}

/// Why a call is malformed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CallFault {
    /// No tool has this name.
    UnknownTool,
    /// The arguments are not JSON; the parser's message.
    NotJson(String),
    /// The arguments are JSON but not an object; a noun phrase for what they are, `a list`.
    NotAnObject(String),
    /// This argument is missing.
    Missing(String),
    /// This argument is not a string.
    NotAString(String),
    /// No parameter has this name.
    UnknownArgument(String),
    /// The code is too large.
    TooLarge {
        /// The size of the code in bytes.
        bytes: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// The block of code is not closed.
    OpenBlock,
    /// The reply was cut off within the call.
    Cut,
    /// The model or a filter ended the reply within the call; a sentence without a full stop.
    Refused(String),
    /// Any other fault, as a sentence.
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
            Self::Cut => "cut",
            Self::Refused(_) => "refused",
            Self::Other(_) => "other",
        }
    }

    fn limit(&self) -> Option<String> {
        if let Self::TooLarge { limit, .. } = self { Some(grouped(*limit)) } else { None }
    }

    fn detail(&self) -> String {
        match self {
            Self::UnknownTool | Self::OpenBlock | Self::Cut => String::new(),
            Self::NotJson(detail)
            | Self::NotAnObject(detail)
            | Self::Missing(detail)
            | Self::NotAString(detail)
            | Self::UnknownArgument(detail)
            | Self::Refused(detail)
            | Self::Other(detail) => detail.clone(),
            Self::TooLarge { bytes, .. } => grouped(*bytes),
        }
    }
}

/// Reply to a malformed call. Nothing was run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MalformedCall<'a> {
    /// The session's language.
    pub language: ReplLanguage,
    /// The name in the call.
    pub tool: &'a str,
    /// The names of the existing tools.
    pub tools: &'a [&'a str],
    /// The fault.
    pub fault: &'a CallFault,
}

impl MalformedCall<'_> {
    /// Renders the call's result as JSON: `{"ok": false, "error", "hint"}`.
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

/// Notice that the worker died and was replaced.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SessionReset<'a> {
    /// The session's language.
    pub language: ReplLanguage,
    /// The worker's death, as a sentence.
    pub reason: &'a str,
    /// True if the host has an earlier answer.
    pub has_answer: bool,
}

impl SessionReset<'_> {
    /// Renders the text, which is the result of the call in which the worker died.
    pub(crate) fn render(&self, prompts: &Prompts) -> Result<String, PromptError> {
        let variables = context! {
            language => self.language.to_string(),
            reason => self.reason,
            has_answer => self.has_answer,
        };
        prompts.render("notices/session_reset.md", variables)
    }
}

/// Request for a summary of the oldest turns.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SummaryRequest {
    /// The session's language.
    pub language: ReplLanguage,
    /// Longest summary in words.
    pub max_words: u32,
    /// True if no turn is kept.
    pub is_all: bool,
    /// True if an earlier summary is among the messages to summarise.
    pub has_summary: bool,
}

impl SummaryRequest {
    pub(crate) fn render(&self, prompts: &Prompts) -> Result<String, PromptError> {
        let variables = context! {
            language => self.language.to_string(),
            max_words => grouped(self.max_words.into()),
            is_all => self.is_all,
            has_summary => self.has_summary,
        };
        prompts.render("summary_request.md", variables)
    }
}

/// The message that replaces summarised turns.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Summary<'a> {
    /// Number of turns, summed over all summaries.
    pub turns: u32,
    /// The model's summary.
    pub summary: &'a str,
}

impl Summary<'_> {
    pub(crate) fn render(&self, prompts: &Prompts) -> Result<String, PromptError> {
        prompts.render("summary.md", context! { turns => self.turns, summary => self.summary.trim() })
    }
}
