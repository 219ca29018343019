//! Python cells.
//!
//! Code that the session's Python does not accept runs unchanged, so that Python itself reports the error: syntax errors,
//! syntax of a later version, and most errors that Python finds only after parsing (a late `from __future__`).

mod fixed;
mod levels;
mod literal;
mod rules;
mod semantics;
mod uses;

use ruff_python_ast::{Mod, PythonVersion};
use ruff_python_parser::{Mode, ParseOptions, parse_unchecked};
use ruff_text_size::Ranged;
use unicode_normalization::UnicodeNormalization;

use super::names::{RESERVED_PREFIX, VariableNames};
use super::rejection::{Fault, MAX_LISTED, Rejection, Rejections};
use super::source::{Source, line_ends, preview, replaced};
use super::{InterceptedCall, Plan};
use fixed::Fixer;
use levels::Levels;
use rules::{CallRanges, Judgement, judge};
use uses::{UseKind, Uses, is_block};

/// Stack for parsing and walking code of [`levels::MAX_LEVELS`] levels, several times over, in an unoptimised build.
const STACK_BYTES: usize = 64 << 20;

/// The byte order mark, one of which may be at the start of a cell.
const BYTE_ORDER_MARK: char = '\u{feff}';

/// Finds the calls in code for this version of Python, the newest by default.
pub(super) fn plan(code: &str, version: Option<(u8, u8)>, tools: &[&str], names: &mut VariableNames) -> Plan {
    let Some(marked) = code.strip_prefix(BYTE_ORDER_MARK) else {
        return plan_unmarked(code, version, tools, names);
    };
    match plan_unmarked(marked, version, tools, names) {
        Plan::Intercepted { calls, mut code } => {
            code.insert(0, BYTE_ORDER_MARK);
            Plan::Intercepted { calls, code }
        }
        other => other,
    }
}

fn plan_unmarked(code: &str, version: Option<(u8, u8)>, tools: &[&str], names: &mut VariableNames) -> Plan {
    let Some(mentioned) = mentioned(code, tools) else { return Plan::Untouched };
    let version = version.map_or_else(PythonVersion::latest_preview, PythonVersion::from);
    match levels::of(code) {
        Levels::RefusedByPython => Plan::Untouched,
        Levels::TooMany => Plan::Rejected(too_deep(mentioned)),
        Levels::Few => stacker::grow(STACK_BYTES, || plan_parsed(code, version, tools, names)),
    }
}

/// A tool's name or the reserved prefix that occurs in the code, even in a comment.
fn mentioned<'a>(code: &str, tools: &[&'a str]) -> Option<&'a str> {
    // Python refuses both, and offsets in the tree have 32 bits.
    if code.starts_with(BYTE_ORDER_MARK) || code.contains('\0') || u32::try_from(code.len()).is_err() {
        return None;
    }
    let normal: String = if code.is_ascii() { String::new() } else { code.nfkc().collect() };
    let occurs = |name: &str| code.contains(name) || normal.contains(name);
    tools.iter().copied().chain([RESERVED_PREFIX]).find(|name| !name.is_empty() && occurs(name))
}

fn too_deep(name: &str) -> Rejections {
    let fault = Fault::TooDeep { levels: levels::MAX_LEVELS };
    let rejection =
        Rejection { line: 1, column: 1, name: name.to_owned(), fault, before: None, fixed: String::new() };
    Rejections { listed: vec![rejection], more: 0 }
}

fn plan_parsed(code: &str, version: PythonVersion, tools: &[&str], names: &mut VariableNames) -> Plan {
    let options = ParseOptions::from(Mode::Module).with_target_version(version);
    let parsed = parse_unchecked(code, options);
    if parsed.has_syntax_errors() {
        return Plan::Untouched;
    }
    let Mod::Module(module) = parsed.syntax() else { return Plan::Untouched };
    let uses = Uses::of(&module.body, tools);
    if uses.list.is_empty() || semantics::are_refused(&module.body, code, version) {
        return Plan::Untouched;
    }
    let source = Source::of_python(code);
    let mut calls = Vec::new();
    let mut faults = Vec::new();
    for found in &uses.list {
        match judge(found, code) {
            Ok(Judgement::Call { call, range }) => calls.push((call, range)),
            Ok(Judgement::RefusedByPython) => return Plan::Untouched,
            Err(fault) => faults.push((found, fault)),
        }
    }
    if faults.is_empty() {
        return intercepted(&source, calls, names);
    }
    let more = faults.len().saturating_sub(MAX_LISTED);
    let mut fixer = Fixer::new(&source, &module.body, &uses, tools);
    let listed = faults.into_iter().take(MAX_LISTED).map(|(found, (at, fault))| {
        let (line, column) = source.position(at.to_usize());
        let is_call = matches!(found.kind, UseKind::Call(_));
        let before = (is_call && is_block(found.statement))
            .then(|| source.position(found.statement.start().to_usize()).0);
        let fixed = fixer.fixed(found, &fault);
        Rejection { line, column, name: found.name.to_owned(), fault, before, fixed }
    });
    Plan::Rejected(Rejections { listed: listed.collect(), more })
}

fn intercepted(
    source: &Source<'_>,
    calls: Vec<(rlm_core::root_tool::Call, CallRanges)>,
    names: &mut VariableNames,
) -> Plan {
    let mut pieces = Vec::with_capacity(calls.len());
    let calls = calls.into_iter().map(|(call, ranges)| {
        let (line, column) = source.position(ranges.whole.start().to_usize());
        let variable = names.take();
        let ends = line_ends(&source.text[ranges.whole]);
        let text = if ends.is_empty() { variable.clone() } else { format!("({variable}{ends})") };
        pieces.push((ranges.whole.to_std_range(), text));
        let arguments = &source.text[ranges.arguments];
        let inside = &arguments[1..arguments.len() - 1];
        InterceptedCall { call, variable, line, column, preview: preview(inside) }
    });
    let calls = calls.collect();
    Plan::Intercepted { calls, code: replaced(source.text, &pieces) }
}
