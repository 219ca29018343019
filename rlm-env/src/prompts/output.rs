//! What is said beside a call's output.

use minijinja::context;
use rlm_core::protocol::{Outcome, Response, State};
use rlm_core::text::grouped;

use super::templates::{PromptError, Prompts};
use crate::terms::ReplLanguage;

/// The line in the place of what was cut out of an output.
pub(crate) struct OutputCut {
    /// None: it is the output of another tool than the REPL.
    pub(crate) language: Option<ReplLanguage>,
    /// Characters that are left out.
    pub(crate) cut: usize,
    /// Characters that there were.
    pub(crate) total: usize,
    /// Bytes that the worker had dropped before.
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

/// What the model must know of a call beside its output; empty where that is nothing.
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
