//! Corrections to propose, made from the code itself.

use std::collections::HashMap;
use std::ops::Range;

use rlm_core::ids::is_identifier;
use rlm_core::root_tool::is_query;
use rlm_core::root_tool::words::Word;

use super::tree::Tree;
use super::uses::{Use, UseKind, Uses};
use super::words::{requoted, words};
use crate::interception::names::{FreeNames, RESERVED_PREFIX};
use crate::interception::rejection::Fault;
use crate::interception::source::{Source, replaced};

/// The place of a word that is still to be written.
const PLACEHOLDER: &str = "<literal>";
/// Statements that have statements in them.
const BLOCKS: [&str; 8] = [
    "function_definition",
    "if_statement",
    "for_statement",
    "c_style_for_statement",
    "while_statement",
    "case_statement",
    "compound_statement",
    "subshell",
];

/// A correction, and the line that it goes before.
pub(super) type Fixed = (String, Option<usize>);

pub(super) struct Fixer<'a> {
    source: &'a Source<'a>,
    tree: &'a Tree,
    uses: &'a Uses,
    names: FreeNames,
    /// Names proposed for the values of the calls at these nodes.
    proposed: HashMap<usize, String>,
}

impl<'a> Fixer<'a> {
    pub(super) fn new(source: &'a Source<'a>, tree: &'a Tree, uses: &'a Uses, tools: &[&str]) -> Self {
        let names = FreeNames::of(source.text, tools);
        Self { source, tree, uses, names, proposed: HashMap::new() }
    }

    pub(super) fn fixed(&mut self, found: &'a Use, fault: &Fault) -> Fixed {
        match found.kind {
            UseKind::Defined | UseKind::Reserved => return (self.renamed(found), None),
            UseKind::Passed => {
                let name = self.name_of(found);
                return (format!("{name}=$({} {PLACEHOLDER})", found.name), None);
            }
            // The reason says what the words would have to be.
            UseKind::Call if matches!(fault, Fault::Words(_)) => return (String::new(), None),
            UseKind::Call => {}
        }
        let statement = self.statement_of(found.node);
        let range = self.tree.nodes[statement].range.clone();
        let is_one_line = !self.source.text[range.clone()].contains('\n');
        if *fault == Fault::SharesLine
            && let Some(apart) = self.apart(range.start)
        {
            return (apart, None);
        }
        let stands_alone = matches!(
            fault,
            Fault::SharesLine | Fault::Uncertain(_) | Fault::Argument { .. } | Fault::NoPrompt
        );
        if stands_alone || BLOCKS.contains(&self.tree.kind(statement)) || !is_one_line {
            let line = self.source.position(range.start).0;
            let fixed = format!("{}=$({})", self.name_of(found), self.call_text(found));
            return (fixed, (!stands_alone).then_some(line));
        }
        (self.taken_out(range), None)
    }

    /// The statements of a line, each on a line of its own. None where more than `;` stands between them.
    fn apart(&self, offset: usize) -> Option<String> {
        let line = self.source.line_around(offset);
        let (mut lines, mut end) = (Vec::new(), line.start);
        for statement in self.tree.named_children(0) {
            let range = self.tree.nodes[statement].range.clone();
            if range.start < line.start || range.start >= line.end {
                continue;
            }
            let between = self.source.text.get(end..range.start)?;
            lines.push(self.source.text[range.clone()].trim_end());
            end = range.end;
            if end > line.end || !between.chars().all(|char| matches!(char, ' ' | '\t' | ';')) {
                return None;
            }
        }
        let rest = self.source.text.get(end..line.end)?.trim_matches([' ', '\t', ';']);
        (rest.is_empty() && lines.len() > 1).then(|| lines.join("\n"))
    }

    /// The statement with its calls before it, each on a line of its own.
    fn taken_out(&mut self, range: Range<usize>) -> String {
        let uses = self.uses;
        let calls =
            uses.list.iter().filter(|call| call.kind == UseKind::Call && range.contains(&call.range.start));
        let (mut lines, mut pieces) = (Vec::new(), Vec::<(Range<usize>, String)>::new());
        for call in calls {
            let name = self.name_of(call);
            lines.push(format!("{name}=$({})", self.call_text(call)));
            let (place, text) = match self.substitution_of(call.node) {
                Some(place) => (place, format!("${{{name}}}")),
                None => (self.tree.nodes[call.node].range.clone(), format!("printf '%s\\n' \"${name}\"")),
            };
            if pieces.last().is_none_or(|(last, _)| last.end <= place.start) {
                pieces.push((place, text));
            }
        }
        let inner = pieces
            .into_iter()
            .map(|(place, text)| (place.start - range.start..place.end - range.start, text));
        let rest = replaced(&self.source.text[range.clone()], &inner.collect::<Vec<_>>());
        lines.push(rest);
        lines.join("\n")
    }

    /// `$(…)` around a command and nothing else.
    fn substitution_of(&self, command: usize) -> Option<Range<usize>> {
        let parent =
            self.tree.parent(command).filter(|parent| self.tree.kind(*parent) == "command_substitution")?;
        (self.tree.named_children(parent) == [command]).then(|| self.tree.nodes[parent].range.clone())
    }

    /// The call with a placeholder for each argument that is not a plain word.
    fn call_text(&self, found: &Use) -> String {
        let arguments =
            self.tree.children(found.node).filter(|child| self.tree.nodes[*child].field == Some("argument"));
        let is_argument =
            |word: &str| is_query(&found.name) || Word::of(&found.name, word.as_bytes()) == Word::Argument;
        let mut text = found.name.clone();
        for argument in arguments {
            let written = &self.source.text[self.tree.nodes[argument].range.clone()];
            text.push(' ');
            match words(written).as_deref() {
                Ok([word]) if is_argument(word) => text.push_str(written),
                _ => match requoted(written).filter(|quoted| is_argument(quoted.trim_matches('\''))) {
                    Some(quoted) => text.push_str(&quoted),
                    None => text.push_str(PLACEHOLDER),
                },
            }
        }
        text
    }

    /// The child of the whole that a node is in.
    fn statement_of(&self, node: usize) -> usize {
        self.tree.path_up(node).find(|at| self.tree.parent(*at) == Some(0)).unwrap_or(node)
    }

    /// The variable that the code has for the value of a call, or a new one.
    fn name_of(&mut self, found: &Use) -> String {
        if let Some(target) = self.target_of(found.node) {
            return target.to_owned();
        }
        if let Some(name) = self.proposed.get(&found.node) {
            return name.clone();
        }
        let name = self.names.take_for(&found.name, is_identifier);
        self.proposed.insert(found.node, name.clone());
        name
    }

    /// The variable whose whole value is the substitution of this command.
    fn target_of(&self, command: usize) -> Option<&'a str> {
        let substitution = self.substitution_of(command)?;
        let mut above = self.tree.path_up(command).skip(2).take(2);
        let assignment = above.find(|at| self.tree.kind(*at) == "variable_assignment")?;
        let (target, value) = self.source.text[self.tree.nodes[assignment].range.clone()].split_once('=')?;
        let is_whole = value.trim_matches('"') == &self.source.text[substitution];
        (is_whole && is_identifier(target) && !target.starts_with(RESERVED_PREFIX)).then_some(target)
    }

    /// The line with another name in place of this one.
    fn renamed(&self, found: &Use) -> String {
        let line = self.source.line_around(found.range.start);
        let name = match found.kind {
            UseKind::Reserved => self.names.free("value"),
            _ => self.names.free(&format!("my_{}", found.name)),
        };
        let here = found.range.start - line.start..found.range.end - line.start;
        replaced(&self.source.text[line], &[(here, name)]).trim().to_owned()
    }
}
