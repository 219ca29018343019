//! Interception of tool calls, for sessions that cannot reach the host.
//!
//! Code in a sandbox without a network cannot call a tool, so the host finds the calls before the code runs.
//! [`Planner::plan`] finds the statements `name = tool(literal, …)` and returns the calls, and the same code with the
//! text of each call replaced by a variable. The host makes the calls in order, sets the variables in the session, and
//! runs that code. It never guesses: a call that cannot be intercepted is a [`Rejection`] that says where, why, and
//! what to write instead, and then none of the code runs.
//!
//! This module is pure: from code to a plan. It calls no tools, starts no programs and reads no files.

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

/// The plan for a piece of code.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Plan {
    /// No tool is called, or the code has a syntax error, which the interpreter will report: run it unchanged.
    Untouched,
    /// Make these calls first, then run this code.
    Intercepted {
        /// The calls in source order; at least one.
        calls: Vec<InterceptedCall>,
        /// The code with the text of each call replaced by its variable. Line numbers do not change.
        code: String,
    },
    /// Make no call and run nothing.
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
    /// The arguments as written, on one line and shortened, for messages.
    pub preview: String,
}

/// Finds the calls of tools in a session's code.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Planner<'a> {
    /// The session's language.
    pub language: ReplLanguage,
    /// Major and minor version of the session's Python; None: the newest. Code that this version does not accept is
    /// [`Plan::Untouched`].
    pub python: Option<(u8, u8)>,
    /// Names of the tools.
    pub tools: &'a [&'a str],
}

impl Planner<'_> {
    /// Plans a piece of code.
    ///
    /// Takes names from `names` only for calls that are intercepted.
    #[must_use]
    pub(crate) fn plan(&self, code: &str, names: &mut VariableNames) -> Plan {
        match self.language {
            ReplLanguage::Python => python::plan(code, self.python, self.tools, names),
            ReplLanguage::Bash => bash::plan(code, self.tools, names),
        }
    }
}
