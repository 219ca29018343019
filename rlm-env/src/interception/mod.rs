//! Tool calls that are served without a way from the session to the host.
//!
//! Code in a sandbox without a network cannot call a tool. So the host looks for the calls before the code runs: [`Planner::plan`]
//! finds the statements `name = tool(literal, …)`, says which calls they are, and gives the same code back with each call's
//! text replaced by a variable. The host makes the calls in their order, sets the variables in the session, and runs that
//! code. Nothing is guessed: what cannot be served this way is a [`Rejection`] that says where, why, and what to write
//! instead, and then nothing of the code runs.
//!
//! This module is pure: code goes in and a plan comes out. It calls no tool, starts no program and reads no file.

mod bash;
mod names;
mod python;
mod rejection;
mod source;

#[cfg(test)]
mod tests;

pub(crate) use names::VariableNames;
pub(crate) use rejection::Rejections;

use rlm_core::root_tool::Call;

use crate::terms::ReplLanguage;

/// What is to be done with a piece of code.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Plan {
    /// No tool is called, or the code has a syntax error, which is the interpreter's to tell: it runs as it is.
    Untouched,
    /// These calls are made first; then this code runs.
    Intercepted {
        /// The calls, in the order of the source; at least one.
        calls: Vec<InterceptedCall>,
        /// The code with each call's text replaced by its variable. Every line keeps its number.
        code: String,
    },
    /// Nothing is called and nothing runs.
    Rejected(Rejections),
}

/// A call that the host makes before the code runs.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct InterceptedCall {
    /// The tool and its arguments.
    pub call: Call,
    /// The variable that the code reads the result from.
    pub variable: String,
    /// Line of the call, from 1.
    pub line: usize,
    /// Column of the call in characters, from 1.
    pub column: usize,
    /// The arguments as they are written, on one line and cut, for messages.
    pub preview: String,
}

/// Finds the calls of tools in a session's code.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Planner<'a> {
    /// The session's language.
    pub language: ReplLanguage,
    /// Major and minor version of the session's Python; the newest where it is not known. What that version does not accept
    /// is [`Plan::Untouched`].
    pub python: Option<(u8, u8)>,
    /// Names of the tools.
    pub tools: &'a [&'a str],
}

impl Planner<'_> {
    /// What is to be done with a piece of code.
    ///
    /// Names are taken only for calls that are intercepted.
    #[must_use]
    pub(crate) fn plan(&self, code: &str, names: &mut VariableNames) -> Plan {
        match self.language {
            ReplLanguage::Python => python::plan(code, self.python, self.tools, names),
            ReplLanguage::Bash => bash::plan(code, self.tools, names),
        }
    }
}
