//! Bash cells.
//!
//! A call is served where it is a line of its own, `name=$(tool word …)` with plain words, at the top level of the code.
//! The parser alone is not trusted: a line counts only where its text on its own parses to the same, and where the code
//! between such lines parses on its own. Code that cannot be read for certain is rejected if it may call a tool.

mod fixed;
mod tree;
mod uses;
mod words;

use super::names::VariableNames;
use super::rejection::{Fault, MAX_LISTED, Rejection, Rejections};
use super::source::{Source, preview, replaced};
use super::{InterceptedCall, Plan};
use fixed::{Fixed, Fixer};
use tree::Tree;
#[cfg(test)]
pub(super) use uses::OfCode;
use uses::{Served, Use, Uses};

/// Longest code that is parsed, in bytes; the parser's time for code with errors grows faster than the code.
const MAX_BYTES: usize = 16 << 10;

pub(super) fn plan(code: &str, tools: &[&str], names: &mut VariableNames) -> Plan {
    let source = Source::of_bash(code);
    let suspects = uses::suspects(code, tools);
    if suspects.is_empty() {
        return Plan::Untouched;
    }
    let doubt = |reason| match uses::in_doubt(code, &suspects) {
        Some((at, name)) => rejected(&source, vec![(at, name.to_owned(), Fault::Uncertain(reason), None)]),
        None => Plan::Untouched,
    };
    if code.len() > MAX_BYTES {
        return doubt("is longer than 16 KiB");
    }
    let tree = Tree::of(code);
    if tree.is_faulty {
        return doubt("the host's parser does not understand");
    }
    let uses = Uses::of(&tree, code, tools);
    if uses.list.is_empty() {
        return Plan::Untouched;
    }
    let (mut served, mut faults) = (Vec::new(), Vec::new());
    for found in &uses.list {
        match uses::judge(found, &tree, &source) {
            Ok(call) => served.push((found, call)),
            Err((at, fault)) => faults.push((at, found, fault)),
        }
    }
    if faults.is_empty()
        && let Some(reason) = doubtful_surroundings(code, &tree, &served)
    {
        faults.extend(
            served.iter().map(|(found, call)| (call.substitution.start, *found, Fault::Uncertain(reason))),
        );
    }
    if faults.is_empty() {
        return intercepted(&source, served.into_iter().map(|(_, call)| call).collect(), names);
    }
    let mut fixer = Fixer::new(&source, &tree, &uses, tools);
    let faults = faults.into_iter().enumerate().map(|(number, (at, found, fault))| {
        let fixed = (number < MAX_LISTED).then(|| fixer.fixed(found, &fault));
        (at, found.name.clone(), fault, fixed)
    });
    rejected(&source, faults.collect())
}

fn rejected(source: &Source<'_>, faults: Vec<(usize, String, Fault, Option<Fixed>)>) -> Plan {
    let more = faults.len().saturating_sub(MAX_LISTED);
    let listed = faults.into_iter().take(MAX_LISTED).map(|(at, name, fault, fixed)| {
        let (line, column) = source.position(at);
        let (fixed, before) = fixed.unwrap_or_default();
        Rejection { line, column, name, fault, before, fixed }
    });
    Plan::Rejected(Rejections { listed: listed.collect(), more })
}

/// The reason why the lines may mean something else together with the code around them.
fn doubtful_surroundings(code: &str, tree: &Tree, served: &[(&Use, Served)]) -> Option<&'static str> {
    let changes_reading = |node: &tree::Node| {
        node.kind == "command_name"
            && ["alias", "shopt"].contains(&code[node.range.clone()].trim_start_matches('\\'))
    };
    if tree.nodes.iter().any(changes_reading) {
        return Some("has an alias or shopt, which change how bash reads");
    }
    let mut start = 0;
    let lines = served.iter().map(|(_, call)| call.line.clone());
    for line in lines.chain(std::iter::once(code.len()..code.len())) {
        let between = &code[start..line.start];
        if between.contains("<<") {
            return Some("has a here-document or `<<`");
        }
        if between.ends_with("\\\n") {
            return Some("has a line that goes on after a backslash, before this one");
        }
        if !between.trim().is_empty() && Tree::of(between).is_faulty {
            return Some("the host's parser does not understand part by part");
        }
        start = line.end;
    }
    None
}

fn intercepted(source: &Source<'_>, served: Vec<Served>, names: &mut VariableNames) -> Plan {
    let mut pieces = Vec::with_capacity(served.len());
    let calls = served.into_iter().map(|served| {
        let (line, column) = source.position(served.substitution.start);
        let variable = names.take();
        pieces.push((served.substitution, format!("${{{variable}}}")));
        let preview = preview(&source.text[served.arguments]);
        InterceptedCall { call: served.call, variable, line, column, preview }
    });
    let calls = calls.collect();
    Plan::Intercepted { calls, code: replaced(source.text, &pieces) }
}
