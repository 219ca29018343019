//! A past session as a script that runs on its own.

mod bash;
mod literal;
mod python;
mod shell;

use rlm_core::ids::is_identifier;
use rlm_core::protocol::Outcome;
use rlm_core::text::counted;

use super::past::{PastCall, PastSession, Task};
use super::recording::Recording;
use crate::terms::ReplLanguage;

/// What a script has in it.
#[derive(Clone, Copy, Debug, Default)]
pub struct ScriptOptions<'a> {
    /// Calls that did not run to their end, too; they are comments else.
    pub all: bool,
    /// What root tools answered; calls of them are refused without it.
    pub recording: Option<&'a Recording>,
}

/// Writes a past session as a script: shebang, a header that says what it needs, the calls in their order, and the answer.
#[must_use]
pub fn script(past: &PastSession, options: ScriptOptions<'_>) -> String {
    match past.language {
        ReplLanguage::Bash => bash::script(past, options),
        ReplLanguage::Python => python::script(past, options),
    }
}

/// The header's lines, without what makes them comments.
fn header(past: &PastSession, options: ScriptOptions<'_>, tools: &[&str]) -> Vec<String> {
    let PastSession { language, calls, .. } = past;
    let (name, program, oldest) = match language {
        ReplLanguage::Bash => ("bash", "bash", "4.4"),
        ReplLanguage::Python => ("Python", "CPython", "3.10"),
    };
    let count = counted(calls.len() as u64, "call");
    let version = past.version.as_ref().map_or_else(String::new, |version| format!(" (it was {version})"));
    let mut lines = vec![
        format!("A {name} session of {count}, as a script of its own, written by `rlm script`."),
        String::new(),
        format!("Needs {program} {oldest} or newer{version}."),
        "Run it as a file, in a directory that holds the files which the session began with.".to_owned(),
    ];
    if let Some(fs_root) = &past.fs_root {
        lines.push(format!("The session's was {}", fs_root.display()));
    }
    if !tools.is_empty() {
        lines.push(match options.recording {
            Some(_) => format!("Root tools that it calls, answered from a recording: {}", tools.join(", ")),
            None => format!("Root tools that it calls, and that are refused here: {}", tools.join(", ")),
        });
    }
    let faults = calls.iter().filter_map(|call| call.fault().map(|fault| (call.number, fault)));
    for (number, fault) in faults {
        let what = if options.all { "Did not run to its end" } else { "Left out" };
        lines.push(format!("{what}: call {number}, which {fault}"));
    }
    for call in calls {
        if let Task::Set { omitted, .. } = &call.task
            && !omitted.is_empty()
        {
            lines.push(format!("Missing: variables of call {}: {}", call.number, omitted.join(", ")));
        }
    }
    lines
}

/// Root tools that the script has to stand in for, and those of them whose names occur in the code.
fn root_tools<'a>(past: &'a PastSession, options: ScriptOptions<'a>) -> (Vec<&'a str>, Vec<&'a str>) {
    let mut tools: Vec<&str> = past.root_tools.iter().map(String::as_str).collect();
    tools.extend(options.recording.iter().flat_map(|recording| recording.tools()));
    tools.retain(|name| is_identifier(name));
    let mut seen = std::collections::HashSet::new();
    tools.retain(|name| seen.insert(*name));
    let is_called =
        |name: &&str| past.calls.iter().filter_map(PastCall::code).any(|code| has_word(code, name));
    let called = tools.iter().copied().filter(is_called).collect();
    (tools, called)
}

/// Whether a name occurs in code, and not as a part of another.
fn has_word(code: &str, word: &str) -> bool {
    let in_name = |c: char| c.is_alphanumeric() || c == '_';
    code.match_indices(word)
        .any(|(at, _)| !code[..at].ends_with(in_name) && !code[at + word.len()..].starts_with(in_name))
}

/// What stands above a call, without what makes it a comment.
fn title(call: &PastCall, options: ScriptOptions<'_>) -> String {
    let what = match &call.task {
        Task::Run(_) => "",
        Task::Reset => ": a fresh session, with the files alone",
        Task::Set { .. } => ": variables from the host",
    };
    let fault = match (call.fault(), options.all) {
        (None, _) => String::new(),
        (Some(fault), false) => format!(". Left out: it {fault}"),
        (Some(fault), true) => format!(". It {fault}"),
    };
    format!("Call {}{what}{fault}", call.number)
}

/// What stands above a call: its title, and how it was written where that is not how it ran.
fn push_title(script: &mut String, title: &str, call: &PastCall, options: ScriptOptions<'_>) {
    push_comment(script, title);
    if let Some(source) = call.source.as_ref().filter(|_| !is_left_out(call, options)) {
        push_comment(script, "It was written so, and ran with what the calls in it had returned:");
        push_comment(script, source);
    }
}

/// Adds text as comments. Nothing in it can end them: Python takes a carriage return for the end of a line, and bash and
/// Python stop at NUL.
fn push_comment(script: &mut String, text: &str) {
    for line in text.strip_suffix('\n').unwrap_or(text).split(['\n', '\r']) {
        script.push('#');
        if !line.is_empty() {
            script.push(' ');
            script.push_str(&line.replace('\0', "␀"));
        }
        script.push('\n');
    }
}

/// Whether a call is written as a comment.
fn is_left_out(call: &PastCall, options: ScriptOptions<'_>) -> bool {
    !options.all && call.fault().is_some()
}

/// Whether the call's shell ended.
fn ended_the_shell(call: &PastCall) -> bool {
    call.response().is_some_and(|response| response.outcome == Outcome::Exited)
}
