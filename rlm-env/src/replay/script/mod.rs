//! Past sessions as standalone scripts.

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

/// The options of a script.
#[derive(Clone, Copy, Debug, Default)]
pub struct ScriptOptions<'a> {
    /// Include calls that did not run to their end; otherwise they are comments.
    pub all: bool,
    /// Replies of root tools. Without a recording their calls are refused.
    pub recording: Option<&'a Recording>,
}

/// Writes a past session as a script: shebang, a header with its requirements, the calls in order, and the answer.
#[must_use]
pub fn script(past: &PastSession, options: ScriptOptions<'_>) -> String {
    match past.language {
        ReplLanguage::Bash => bash::script(past, options),
        ReplLanguage::Python => python::script(past, options),
    }
}

/// The header's lines, without comment marks.
fn header(past: &PastSession, options: ScriptOptions<'_>, tools: &[&str]) -> Vec<String> {
    let PastSession { language, calls, .. } = past;
    let (name, program, oldest) = match language {
        ReplLanguage::Bash => ("bash", "bash", "4.4"),
        ReplLanguage::Python => ("Python", "CPython", "3.10"),
    };
    let count = counted(calls.len() as u64, "call");
    let version =
        past.version.as_ref().map_or_else(String::new, |version| format!(" (the session's was {version})"));
    let mut lines = vec![
        format!("A {name} session of {count}, as a standalone script, written by `rlm script`."),
        String::new(),
        format!("Needs {program} {oldest} or newer{version}."),
        "Run it as a file, in a directory with the files that the session started with.".to_owned(),
    ];
    if let Some(fs_root) = &past.fs_root {
        lines.push(format!("The session's directory was {}", fs_root.display()));
    }
    if !tools.is_empty() {
        lines.push(match options.recording {
            Some(_) => format!("Root tools in the code, with recorded replies: {}", tools.join(", ")),
            None => format!("Root tools in the code, which fail in this script: {}", tools.join(", ")),
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

/// The root tools that the script must stand in for, and those of them whose names occur in the code.
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

/// True if a name occurs in code as a whole word.
fn has_word(code: &str, word: &str) -> bool {
    let in_name = |c: char| c.is_alphanumeric() || c == '_';
    code.match_indices(word)
        .any(|(at, _)| !code[..at].ends_with(in_name) && !code[at + word.len()..].starts_with(in_name))
}

/// The title of a call, without comment marks.
fn title(call: &PastCall, options: ScriptOptions<'_>) -> String {
    let what = match &call.task {
        Task::Run(_) => "",
        Task::Reset => ": a fresh session, with only the files",
        Task::Set { .. } => ": variables from the host",
    };
    let fault = match (call.fault(), options.all) {
        (None, _) => String::new(),
        (Some(fault), false) => format!(". Left out: it {fault}"),
        (Some(fault), true) => format!(". It {fault}"),
    };
    format!("Call {}{what}{fault}", call.number)
}

/// Appends a call's title, and the code as written if it differs from the code that ran.
fn push_title(script: &mut String, title: &str, call: &PastCall, options: ScriptOptions<'_>) {
    push_comment(script, title);
    if let Some(source) = call.source.as_ref().filter(|_| !is_left_out(call, options)) {
        push_comment(script, "As written; it ran with the results of its calls in their places:");
        push_comment(script, source);
    }
}

/// Appends text as comments that nothing in the text can end: Python ends a line at a carriage return, and both
/// languages stop at NUL.
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

/// True if a call is written as a comment.
fn is_left_out(call: &PastCall, options: ScriptOptions<'_>) -> bool {
    !options.all && call.fault().is_some()
}

/// True if the call ended its shell.
fn ended_the_shell(call: &PastCall) -> bool {
    call.response().is_some_and(|response| response.outcome == Outcome::Exited)
}
