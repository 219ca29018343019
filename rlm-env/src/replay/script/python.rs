//! A Python session as a script.
//!
//! A call appears verbatim if it means the same in a file. Otherwise its text is passed to a function that runs it as
//! the session did.

use std::fmt::Write as _;

use rlm_core::root_tool::{MAX_BODY_BYTES, Reply, ToolResult};

use super::literal;
use super::{ScriptOptions, has_word, header, is_left_out, push_comment, push_title, root_tools, title};
use crate::replay::past::{KnownOutput, PastCall, PastSession, Task};
use crate::replay::recording::{RecordedCall, Recording, key};

const BEGIN: &str = include_str!("begin.py");
const CELL: &str = include_str!("cell.py");
const ATTEMPT: &str = include_str!("attempt.py");
const RECORDED: &str = include_str!("recorded.py");
const FINAL: &str = include_str!("final.py");
const REFUSED: &str = include_str!("refused.py");
const END: &str = include_str!("end.py");

/// Signs of code that may replace the standard streams.
const OF_STREAMS: [&str; 4] = ["sys.std", "import std", "dup2", "closerange"];

pub(super) fn script(past: &PastSession, options: ScriptOptions<'_>) -> String {
    let (tools, called) = root_tools(past, options);
    let mut calls = String::new();
    let mut has_cells = false;
    let mut later_are_cells = false;
    for call in &past.calls {
        calls.push('\n');
        push_title(&mut calls, &format!("%% {}", title(call, options)), call, options);
        if call.is_first {
            calls.push_str("__rlm_begin() # a new worker, with only the files\n");
        }
        match &call.task {
            Task::Reset if call.fault().is_none() => calls.push_str("__rlm_begin()\n"),
            Task::Set { variables, .. } if call.fault().is_none() => {
                for (name, json) in variables {
                    push_assignment(&mut calls, name, &literal::value(json));
                }
            }
            Task::Reset | Task::Set { .. } => {}
            Task::Run(code) if is_left_out(call, options) => {
                push_comment(&mut calls, call.source.as_ref().unwrap_or(code))
            }
            Task::Run(code) if call.fault().is_some() => {
                has_cells = true;
                later_are_cells |= code.contains("__future__");
                push(&mut calls, format_args!("__rlm_attempt({}, {})\n", call.number, literal::code(code)));
            }
            Task::Run(code) => {
                later_are_cells |= code.contains("__future__");
                if later_are_cells || is_more_in_a_session(call, code) {
                    has_cells = true;
                    push(&mut calls, format_args!("__rlm_cell({}, {})\n", call.number, literal::code(code)));
                } else {
                    calls.push_str(code);
                    calls.push_str(if code.ends_with('\n') { "" } else { "\n" });
                }
                if OF_STREAMS.iter().any(|word| code.contains(word)) {
                    calls.push_str("__rlm_streams()\n");
                }
            }
        }
    }
    let mut script = String::from("#!/usr/bin/env python3\n");
    push_comment(&mut script, &header(past, options, &called).join("\n"));
    script.push('\n');
    let metadata = past.fs_metadata.as_ref().map_or_else(|| "null".to_owned(), ToString::to_string);
    push(&mut script, format_args!("__rlm_metadata = {}\n", literal::text(&metadata)));
    let names: Vec<_> = tools.iter().map(|tool| literal::text(tool)).collect();
    push(&mut script, format_args!("__rlm_tools = [{}]\n", names.join(", ")));
    push_functions(&mut script, BEGIN);
    match has_final_functions(past) {
        true => push_functions(&mut script, FINAL),
        false => script.push_str("__rlm_finals = {}\n\n\n"),
    }
    match options.recording {
        _ if tools.is_empty() => {}
        None => push_functions(&mut script, REFUSED),
        Some(recording) => {
            script.push_str(RECORDED);
            push_recorded(&mut script, recording);
        }
    }
    if has_cells {
        push_functions(&mut script, CELL);
    }
    if options.all {
        push_functions(&mut script, ATTEMPT);
    }
    script.push_str("__rlm_begin()\n__rlm_streams()\n");
    script.push_str(&calls);
    script.push_str("\n# %% The end of the session, and its answer\n");
    script.push_str(END);
    script
}

/// True if code had `FINAL` and `FINAL_VAR` or, if unknown, mentions one of them.
fn has_final_functions(past: &PastSession) -> bool {
    let names_one = |code: &str| ["FINAL", "FINAL_VAR"].iter().any(|name| has_word(code, name));
    past.has_final_functions.unwrap_or_else(|| past.calls.iter().filter_map(PastCall::code).any(names_one))
}

/// Appends functions and two empty lines.
fn push_functions(script: &mut String, text: &str) {
    script.push_str(text);
    script.push_str("\n\n");
}

fn push(script: &mut String, text: std::fmt::Arguments<'_>) {
    // Writing to a String never fails.
    let _infallible = script.write_fmt(text);
}

/// Appends an assignment; Python may spell the name in another way.
fn push_assignment(script: &mut String, name: &str, value: &str) {
    if super::is_identifier(name) {
        push(script, format_args!("{name} = {value}\n"));
    } else {
        let name = literal::text(name);
        push(
            script,
            format_args!("globals()[__import__(\"unicodedata\").normalize(\"NFKC\", {name})] = {value}\n"),
        );
    }
}

/// True if code that ran to its end could behave differently in a file.
fn is_more_in_a_session(call: &PastCall, code: &str) -> bool {
    let shows_a_value = match (call.response(), &call.known) {
        (Some(_), KnownOutput::Digest { has_result, .. }) => *has_result,
        (Some(response), KnownOutput::All) => response.result.is_some(),
        // Unknown, so it may.
        (Some(_), KnownOutput::Nothing) | (None, _) => true,
    };
    // Aimed at `async for` and `async with`; `async def` is caught as well.
    let awaits = has_word(code, "await") || has_word(code, "async");
    // In one file, a name that is already bound cannot be declared global.
    let declares = has_word(code, "global");
    let is_odd = code.contains(['\0', '\u{c}', '\r']);
    shows_a_value || awaits || declares || is_odd
}

/// Appends the recorded replies, by call.
fn push_recorded(script: &mut String, recording: &Recording) {
    script.push_str("__rlm_recorded = {}\n");
    for RecordedCall { call, reply } in &recording.calls {
        let entry = match reply {
            Err(error) => format!("({}, [], None)", literal::text(error)),
            Ok(Reply { result, print_lines }) => {
                let lines: Vec<_> = print_lines.iter().map(|line| literal::text(line)).collect();
                let value = match result {
                    ToolResult::Repr(text) => literal::text(text),
                    ToolResult::Value(value) => {
                        let repr = value.repr(MAX_BODY_BYTES).unwrap_or_else(|error| format!("'{error}'"));
                        format!("__rlm_literal({})", literal::text(&repr))
                    }
                };
                format!("(None, [{}], {value})", lines.join(", "))
            }
        };
        let key = literal::text(&key(call));
        push(script, format_args!("__rlm_recorded.setdefault({key}, []).append({entry})\n"));
    }
    script.push_str("\n\n");
}
