//! Notes beside a call's output.

use minijinja::context;
use rlm_core::protocol::{Outcome, Response, State};
use rlm_core::text::grouped;

use super::templates::{PromptError, Prompts};
use crate::terms::ReplLanguage;

/// The line that replaces the part cut out of an output.
pub(crate) struct OutputCut {
    /// The session's language. None: the output of a standard tool.
    pub(crate) language: Option<ReplLanguage>,
    /// Number of characters left out.
    pub(crate) cut: usize,
    /// Number of characters of the whole output.
    pub(crate) total: usize,
    /// Bytes that the worker had already dropped.
    pub(crate) dropped_bytes: u64,
}

impl OutputCut {
    pub(crate) fn render(&self, prompts: &Prompts) -> Result<String, PromptError> {
        let (cut, total) = (grouped(self.cut as u64), grouped(self.total as u64));
        let Some(language) = self.language else {
            return prompts.render("tool_output_cut.md", context! { cut, total });
        };
        let variables = context! {
            cut,
            total,
            dropped_bytes => (self.dropped_bytes > 0).then(|| grouped(self.dropped_bytes)),
        };
        prompts.render(&format!("{language}/output_cut.md"), variables)
    }
}

/// The notes on a call besides its output; empty if there is nothing to note.
pub(crate) fn note(response: &Response, prompts: &Prompts) -> Result<String, PromptError> {
    let outcome = match response.outcome {
        Outcome::Ok => "ok",
        Outcome::Error => "error",
        Outcome::TimedOut => "timed_out",
        Outcome::Interrupted => "interrupted",
        Outcome::Exited => "exited",
        Outcome::Crashed => "crashed",
    };
    let state = match response.state {
        State::Kept => "kept",
        State::Restored => "restored",
        State::Reset => "reset",
    };
    let variables = context! {
        outcome => outcome,
        state => state,
        hint => response.hint.as_deref(),
        exit_code => response.exit_code.unwrap_or_default(),
    };
    prompts.render("output_note.md", variables)
}
