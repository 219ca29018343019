//! Python cells.
//!
//! The parser accepts what any current Python accepts. What it does not accept runs as it is, so that Python itself says
//! what is wrong. The rest of what Python finds wrong only after parsing (a late `from __future__`) it says when the code
//! runs, after the calls.

mod fixed;
mod levels;
mod literal;
mod rules;
mod uses;

use ruff_python_ast::{Mod, Stmt};
use ruff_python_parser::{Mode, ParseOptions, parse_unchecked};
use ruff_text_size::{Ranged, TextRange};
use unicode_normalization::UnicodeNormalization;

use super::names::{RESERVED_PREFIX, VariableNames};
use super::rejection::{Fault, MAX_LISTED, Rejection, Rejections};
use super::source::{Source, line_ends, preview, replaced};
use super::{InterceptedCall, Plan};
use fixed::Fixer;
use levels::Levels;
use rules::{Found, judged};
use uses::{UseKind, Uses};

/// Stack for parsing and walking code of [`levels::MAX_LEVELS`] levels, several times over, in an unoptimised build.
const STACK_BYTES: usize = 64 << 20;

pub(super) fn plan(code: &str, tools: &[&str], names: &mut VariableNames) -> Plan {
    let Some(mentioned) = mentioned(code, tools) else { return Plan::Untouched };
    match levels::of(code) {
        Levels::RefusedByPython => Plan::Untouched,
        Levels::TooMany => Plan::Rejected(too_deep(mentioned)),
        Levels::Few => stacker::grow(STACK_BYTES, || plan_parsed(code, tools, names)),
    }
}

/// A tool's name or the reserved prefix, if it occurs in the code at all, be it in a comment.
fn mentioned<'a>(code: &str, tools: &[&'a str]) -> Option<&'a str> {
    // Python takes neither, and offsets in the tree are of 32 bits.
    if code.starts_with('\u{feff}') || code.contains('\0') || u32::try_from(code.len()).is_err() {
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

fn plan_parsed(code: &str, tools: &[&str], names: &mut VariableNames) -> Plan {
    let parsed = parse_unchecked(code, ParseOptions::from(Mode::Module));
    if !parsed.has_valid_syntax() {
        return Plan::Untouched;
    }
    let Mod::Module(module) = parsed.syntax() else { return Plan::Untouched };
    let uses = Uses::of(&module.body, tools);
    if uses.list.is_empty() || uses.has_misplaced {
        return Plan::Untouched;
    }
    let source = Source::of_python(code);
    let mut calls = Vec::new();
    let mut faults = Vec::new();
    for found in &uses.list {
        match judged(found, code) {
            Ok(Found::Call { call, range }) => calls.push((call, range)),
            Ok(Found::RefusedByPython) => return Plan::Untouched,
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

/// Whether statements can be in it.
fn is_block(statement: &Stmt) -> bool {
    uses::block_keyword(statement).is_some()
        || statement.is_function_def_stmt()
        || statement.is_class_def_stmt()
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

/// Where a call is.
#[derive(Clone, Copy, Debug)]
struct CallRanges {
    whole: TextRange,
    /// With the parentheses.
    arguments: TextRange,
}
