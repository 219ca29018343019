//! Corrections to propose, made from the code itself.

use std::collections::HashMap;
use std::ops::Range;

use ruff_python_ast::{AnyNodeRef, Expr, ExprCall, Stmt};
use ruff_text_size::{Ranged, TextRange, TextSize};

use super::literal;
use super::rules::structure_fault;
use super::uses::{CallSite, Use, UseKind, Uses, has_body, is_block};
use crate::interception::names::{FreeNames, RESERVED_PREFIX};
use crate::interception::rejection::Fault;
use crate::interception::source::{Source, replaced};

/// Longest statement that is written out again, in bytes.
const MAX_STATEMENT_BYTES: usize = 2000;
/// Longest literal that is written in place of its variable, in bytes.
const MAX_LITERAL_BYTES: usize = 200;
/// The place of a literal that is still to be written.
const PLACEHOLDER: &str = "...";
/// Names not to propose for a value: keywords, and functions that code is likely to call.
const NO_NAMES: [&str; 65] = [
    "abs", "all", "and", "any", "as", "assert", "await", "bin", "bool", "break", "bytes", "class",
    "continue", "def", "del", "dict", "dir", "elif", "else", "eval", "except", "exec", "filter", "float",
    "for", "format", "from", "global", "hash", "help", "hex", "id", "if", "import", "in", "input", "int",
    "is", "iter", "lambda", "len", "list", "map", "max", "min", "next", "not", "object", "open", "or",
    "pass", "print", "range", "repr", "return", "round", "set", "sorted", "str", "sum", "try", "type",
    "while", "with", "zip",
];

pub(super) struct Fixer<'a, 'u> {
    source: &'u Source<'u>,
    body: &'a [Stmt],
    uses: &'u Uses<'a>,
    names: FreeNames,
    /// Names proposed for the values of the calls that begin there.
    proposed: HashMap<TextSize, String>,
}

impl<'a, 'u> Fixer<'a, 'u> {
    pub(super) fn new(source: &'u Source<'u>, body: &'a [Stmt], uses: &'u Uses<'a>, tools: &[&str]) -> Self {
        let names = FreeNames::of(source.text, tools);
        Self { source, body, uses, names, proposed: HashMap::new() }
    }

    pub(super) fn fixed(&mut self, found: &Use<'a>, fault: &Fault) -> String {
        let site = match &found.kind {
            UseKind::Call(site) => site,
            UseKind::Reference if !self.uses.bindings.contains_key(found.name) => {
                let name = self.free_name(found.name);
                return format!("{name} = {}({PLACEHOLDER})", found.name);
            }
            _ => return self.renamed(found),
        };
        if is_block(found.statement) {
            let name = self.name_of(found, site);
            return format!("{name} = {}", self.call_text(found, site.call));
        }
        match (fault, found.statement) {
            (Fault::Argument { .. }, statement) if self.uses.calls_in(statement).count() == 1 => {
                let (call, text) = (site.call.range(), self.call_text(found, site.call));
                self.statement_with(statement, vec![(call, text)])
            }
            (Fault::Annotated, Stmt::AnnAssign(statement)) if is_plain_name(&statement.target, self.uses) => {
                format!("{} = {}", self.text(statement.target.range()), self.call_text(found, site.call))
            }
            (Fault::SeveralTargets, Stmt::Assign(statement))
                if statement.targets.iter().all(|target| is_plain_name(target, self.uses)) =>
            {
                let names = statement.targets.iter().map(|target| self.text(target.range()));
                let names = names.collect::<Vec<_>>();
                let mut lines = vec![format!("{} = {}", names[0], self.call_text(found, site.call))];
                lines.extend(names[1..].iter().map(|name| format!("{name} = {}", names[0])));
                lines.join("\n")
            }
            (_, statement) => self.taken_out(statement),
        }
    }

    /// The statement with its calls before it, each by itself.
    fn taken_out(&mut self, statement: &'a Stmt) -> String {
        let mut sites = self.uses.calls_in(statement).collect::<Vec<_>>();
        sites.sort_by_key(|(_, site)| site.call.end());
        let mut lines = Vec::new();
        let mut pieces = Vec::<(TextRange, String)>::new();
        for (found, site) in sites {
            let call = self.call_text(found, site.call);
            let (range, text) = match structure_fault(site, statement) {
                None => (site.call.range(), call),
                Some(_) => {
                    let name = self.name_of(found, site);
                    lines.push(format!("{name} = {call}"));
                    (self.replaceable(site), name)
                }
            };
            pieces.retain(|(inner, _)| !range.contains_range(*inner));
            pieces.push((range, text));
        }
        pieces.sort_by_key(|(range, _)| range.start());
        let is_nothing_else = match (statement, &pieces[..]) {
            (Stmt::Expr(statement), [(range, _)]) => statement.value.range() == *range,
            (Stmt::Assign(assign), [(range, name)]) => {
                assign.value.range() == *range
                    && matches!(&assign.targets[..], [Expr::Name(target)] if target.id == **name)
            }
            _ => false,
        };
        if !is_nothing_else && statement.range().len().to_usize() <= MAX_STATEMENT_BYTES {
            lines.push(self.statement_with(statement, pieces));
        }
        lines.join("\n")
    }

    fn statement_with(&self, statement: &Stmt, pieces: Vec<(TextRange, String)>) -> String {
        let start = statement.start();
        let pieces = pieces.into_iter().map(|(range, text)| ((range - start).to_std_range(), text));
        replaced(self.text(statement.range()), &pieces.collect::<Vec<_>>())
    }

    /// The call on its own, with `...` or the known value in place of each argument that is not a literal.
    fn call_text(&self, found: &Use<'a>, call: &ExprCall) -> String {
        let arguments = call.arguments.range();
        let mut pieces = Vec::<(Range<usize>, String)>::new();
        let mut replace = |range: TextRange, text: String| {
            pieces.push(((range - arguments.start()).to_std_range(), text));
        };
        for argument in &call.arguments.args {
            if literal::value(argument, self.source.text).is_err() {
                replace(argument.range(), self.literal_of(argument, found.statement));
            }
        }
        for keyword in &call.arguments.keywords {
            if keyword.arg.is_none() {
                replace(keyword.range(), format!("name={PLACEHOLDER}"));
            } else if literal::value(&keyword.value, self.source.text).is_err() {
                replace(keyword.value.range(), self.literal_of(&keyword.value, found.statement));
            }
        }
        pieces.sort_by_key(|(range, _)| range.start);
        format!("{}{}", found.name, replaced(self.text(arguments), &pieces))
    }

    /// The literal that a variable is bound to before the statement, once and for all; else the placeholder.
    fn literal_of(&self, argument: &Expr, statement: &Stmt) -> String {
        self.known_literal(argument, statement).unwrap_or_else(|| PLACEHOLDER.to_owned())
    }

    fn known_literal(&self, argument: &Expr, statement: &Stmt) -> Option<String> {
        let name = argument.as_name_expr().filter(|_| self.is_bound_once(argument))?;
        if self.uses.bindings.contains_key("*") {
            return None;
        }
        let earlier = self.body.iter().take_while(|earlier| earlier.end() <= statement.start());
        let value =
            earlier.filter_map(Stmt::as_assign_stmt).find_map(|assign| match &assign.targets[..] {
                [Expr::Name(target)] if target.id == name.id => Some(&assign.value),
                _ => None,
            })?;
        let text = self.text(value.range());
        let is_short = text.len() <= MAX_LITERAL_BYTES && !text.contains(['\n', '\r', '\\']);
        if !is_short || !is_immutable(value) || literal::value(value, self.source.text).is_err() {
            return None;
        }
        match &**value {
            Expr::Tuple(tuple) if !tuple.parenthesized => Some(format!("({text})")),
            _ => Some(text.to_owned()),
        }
    }

    /// The line with another name in place of this one, or the statement, where that is of more lines and has no body.
    fn renamed(&self, found: &Use<'a>) -> String {
        let statement = found.innermost.range().to_std_range();
        let mut line = self.source.line_around(found.range.start().to_usize());
        if !has_body(found.innermost)
            && statement.len() <= MAX_STATEMENT_BYTES
            && !(line.start <= statement.start && statement.end <= line.end)
        {
            line = statement;
        }
        let name = match found.name.strip_prefix(RESERVED_PREFIX) {
            Some(_) => self.names.free("value"),
            None => self.names.free(&format!("my_{}", found.name)),
        };
        let same = self.uses.list.iter().filter(|other| other.name == found.name);
        let here = same.filter(|other| line.contains(&other.range.start().to_usize()));
        let pieces = here.filter_map(|other| {
            let range = other.range.to_std_range();
            let text = match &other.kind {
                UseKind::Call(_) => return None,
                UseKind::Import => format!("{} as {name}", self.text(other.range)),
                _ => name.clone(),
            };
            Some((range.start - line.start..range.end.min(line.end) - line.start, text))
        });
        replaced(&self.source.text[line.clone()], &pieces.collect::<Vec<_>>()).trim().to_owned()
    }

    /// The name that the code has for the value of a call, or a new one.
    fn name_of(&mut self, found: &Use<'a>, site: &CallSite<'a>) -> String {
        let target = match site.parent {
            Some(AnyNodeRef::ExprNamed(named)) if self.replaceable(site) == named.range() => {
                Some(&*named.target)
            }
            Some(AnyNodeRef::StmtAnnAssign(assign)) => {
                let is_value =
                    assign.value.as_deref().is_some_and(|value| value.range() == site.call.range());
                Some(&*assign.target).filter(|target| is_value && self.is_bound_once(target))
            }
            Some(AnyNodeRef::StmtAssign(assign)) => match &assign.targets[..] {
                [target] => Some(target).filter(|target| self.is_bound_once(target)),
                _ => None,
            },
            Some(AnyNodeRef::ExprAwait(_)) => match found.statement {
                Stmt::Assign(assign)
                    if assign.value.range() == self.replaceable(site) && assign.targets.len() == 1 =>
                {
                    assign.targets.first()
                }
                _ => None,
            },
            _ => None,
        };
        match target.filter(|target| is_plain_name(target, self.uses)) {
            Some(target) => self.text(target.range()).to_owned(),
            None => match self.proposed.get(&site.call.start()) {
                Some(name) => name.clone(),
                None => {
                    let name = self.free_name(found.name);
                    self.proposed.insert(site.call.start(), name.clone());
                    name
                }
            },
        }
    }

    /// The code that the variable replaces: an `await` goes with the call, and so does `name :=` if the call is all
    /// that the name stands for.
    fn replaceable(&self, site: &CallSite<'_>) -> TextRange {
        match site.parent {
            Some(AnyNodeRef::ExprAwait(parent)) => parent.range(),
            Some(AnyNodeRef::ExprNamed(parent))
                if parent.value.range() == site.call.range() && self.is_bound_once(&parent.target) =>
            {
                parent.range()
            }
            _ => site.call.range(),
        }
    }

    /// A name that nothing else in the code binds, so that its value can be bound elsewhere.
    fn is_bound_once(&self, target: &Expr) -> bool {
        target.as_name_expr().is_some_and(|name| self.uses.bindings.get(&*name.id) == Some(&1))
    }

    fn free_name(&mut self, tool: &str) -> String {
        let is_name = |name: &str| {
            name.starts_with(|char: char| char.is_ascii_alphabetic()) && !NO_NAMES.contains(&name)
        };
        self.names.take_for(tool, is_name)
    }

    fn text(&self, range: TextRange) -> &'u str {
        &self.source.text[range]
    }
}

/// True if a literal's value cannot be changed.
fn is_immutable(literal: &Expr) -> bool {
    match literal {
        Expr::Tuple(tuple) => tuple.elts.iter().all(is_immutable),
        Expr::List(_) | Expr::Set(_) | Expr::Dict(_) => false,
        _ => true,
    }
}

/// A name that the code may bind.
fn is_plain_name(target: &Expr, uses: &Uses<'_>) -> bool {
    target.is_name_expr() && !uses.list.iter().any(|found| found.range == target.range())
}
