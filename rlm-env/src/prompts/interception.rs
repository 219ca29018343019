//! Replies to code that the host intercepts.

use minijinja::context;

use super::templates::{PromptError, Prompts};
use crate::interception::Rejections;
use crate::terms::ReplLanguage;

/// The code was not run, because it calls tools in a way that cannot be intercepted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallsRejected<'a> {
    /// The session's language.
    pub(crate) language: ReplLanguage,
    /// The rejected calls.
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

/// The code was not run, because a call in it failed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallFailed<'a> {
    /// The session's language.
    pub(crate) language: ReplLanguage,
    /// The line of the call, from 1.
    pub(crate) line: usize,
    /// The call, shortened.
    pub(crate) call: &'a str,
    /// The tool's error.
    pub(crate) error: &'a str,
    /// Number of calls that were made before it.
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

/// The results of some calls were cut to their beginning.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ResultsCut<'a> {
    /// The calls, shortened.
    pub(crate) calls: &'a [String],
}

impl ResultsCut<'_> {
    pub(crate) fn render(&self, prompts: &Prompts) -> Result<String, PromptError> {
        prompts.render("interception/results_cut.md", context! { calls => self.calls.join(", ") })
    }
}
