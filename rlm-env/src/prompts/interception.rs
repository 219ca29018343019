//! Replies to code whose calls of root tools the host makes before it runs.

use minijinja::context;

use super::templates::{PromptError, Prompts};
use crate::interception::Rejections;
use crate::terms::ReplLanguage;

/// Code was not run, since tools are called in it as they cannot be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallsRejected<'a> {
    /// The session's language.
    pub(crate) language: ReplLanguage,
    /// What is wrong.
    pub(crate) rejections: &'a Rejections,
}

impl CallsRejected<'_> {
    pub(crate) fn render(&self, prompts: &Prompts) -> Result<String, PromptError> {
        let variables = context! {
            language => self.language.to_string(),
            rejections => self.rejections.to_string(),
        };
        prompts.render("interception/calls_rejected.md", variables)
    }
}

/// Code was not run, since a call in it failed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallFailed<'a> {
    /// The session's language.
    pub(crate) language: ReplLanguage,
    /// The line of the call, from 1.
    pub(crate) line: usize,
    /// The call, in short.
    pub(crate) call: &'a str,
    /// What the tool said.
    pub(crate) error: &'a str,
    /// How many calls of the code were made before.
    pub(crate) calls_before: usize,
}

impl CallFailed<'_> {
    pub(crate) fn render(&self, prompts: &Prompts) -> Result<String, PromptError> {
        let variables = context! {
            language => self.language.to_string(),
            line => self.line,
            call => self.call,
            error => self.error,
            calls_before => self.calls_before,
        };
        prompts.render("interception/call_failed.md", variables)
    }
}

/// Of what some calls returned only the beginning is there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ResultsCut<'a> {
    /// The calls, in short.
    pub(crate) calls: &'a [String],
}

impl ResultsCut<'_> {
    pub(crate) fn render(&self, prompts: &Prompts) -> Result<String, PromptError> {
        prompts.render("interception/results_cut.md", context! { calls => self.calls.join(", ") })
    }
}
