//! The symbols of a file: what is defined in it, and where.
//!
//! A file with errors gives what parses. A tree is walked by a cursor, so no depth of it is one of the stack.

use std::ops::{ControlFlow, Range};
use std::rc::Rc;
use std::time::{Duration, Instant};

use tree_sitter::{Node as Syntax, ParseOptions, Parser, Tree, TreeCursor};

use super::declared::{MAX_NAME_BYTES, first_line, is_of_function, line, names, signature, text};
use super::language::{Compiled, Language, Node};
use super::stop::Stop;

/// Largest file that is parsed, in bytes. What parsing takes at worst, with a file that is made for it, is hundreds of bytes
/// for each of the file's.
pub(super) const MAX_PARSED_BYTES: u64 = 512 << 10;

/// Longest that a file is parsed and looked through.
pub(super) const MAX_PARSE_TIME: Duration = Duration::from_secs(5);

/// What the process may grow by while a file is parsed, in bytes.
const MAX_GROWTH_BYTES: u64 = 160 << 20;

/// Calls of the parser between two looks at the memory.
const CALLS_PER_LOOK: u32 = 16;

/// Symbols in a file; what is beyond is left out.
const MAX_SYMBOLS: usize = 20_000;

/// Names in a symbol's name.
const MAX_LEVELS: usize = 16;

/// What is defined in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Symbol {
    /// The names that lead to it, with dots between.
    pub(super) path: String,
    /// Bytes of `path` that are its holder's; 0 where nothing holds it.
    holder_len: usize,
    pub(super) kind: &'static str,
    /// Line where it is defined, from 1.
    pub(super) line: usize,
    /// Its last line.
    pub(super) end_line: usize,
    /// What it is in source: comments before it, decorators and all.
    pub(super) bytes: Range<usize>,
    /// Line on which `bytes` begins.
    pub(super) first_line: usize,
    /// How it is declared, in one line, without its body.
    pub(super) signature: String,
}

impl Symbol {
    pub(super) fn name(&self) -> &str {
        &self.path[if self.holder_len == 0 { 0 } else { self.holder_len + 1 }..]
    }

    /// The path of what holds it, empty at the top.
    pub(super) fn holder(&self) -> &str {
        &self.path[..self.holder_len]
    }

    /// How many symbols hold it.
    pub(super) fn depth(&self) -> usize {
        if self.holder_len == 0 { 0 } else { self.holder().split('.').count() }
    }
}

/// Why a file has no symbols that are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unparsed {
    /// The call is over.
    #[error("stopped")]
    Stopped,
    /// It takes too long.
    #[error("parsing it takes longer than {} s", MAX_PARSE_TIME.as_secs())]
    TooSlow,
    /// Its tree takes too much memory.
    #[error("parsing it takes more than {} MiB of memory", MAX_GROWTH_BYTES >> 20)]
    TooLarge,
}

/// The symbols of a source, in the order of their lines.
pub(super) fn symbols(language: &Language, source: &[u8], stop: &Stop) -> Result<Vec<Symbol>, Unparsed> {
    let compiled = language.compiled();
    let limit = Limit { stop, latest: Instant::now() + MAX_PARSE_TIME };
    let tree = parse(compiled, source, &limit)?;
    let finder =
        Finder { compiled, source, cursor: tree.walk(), levels: vec![Level::default()], found: Vec::new() };
    let mut found = finder.find(&limit)?;
    found.sort_by_key(|symbol| (symbol.line, symbol.bytes.start));
    Ok(found)
}

/// Until when a file may be worked on.
struct Limit<'a> {
    stop: &'a Stop,
    latest: Instant,
}

impl Limit<'_> {
    fn check(&self) -> Result<(), Unparsed> {
        self.stop.check().map_err(|_over| Unparsed::Stopped)?;
        if Instant::now() < self.latest { Ok(()) } else { Err(Unparsed::TooSlow) }
    }
}

fn parse(compiled: &Compiled, source: &[u8], limit: &Limit<'_>) -> Result<Tree, Unparsed> {
    let mut parser = Parser::new();
    parser.set_language(&compiled.grammar).expect("the grammars are made for this version of the library");
    let (before, mut calls, mut is_too_large) = (resident_bytes(), 0_u32, false);
    let mut go_on = |_: &tree_sitter::ParseState| {
        calls = calls.wrapping_add(1);
        is_too_large = calls.is_multiple_of(CALLS_PER_LOOK)
            && resident_bytes().saturating_sub(before) > MAX_GROWTH_BYTES;
        if is_too_large || limit.check().is_err() {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    };
    let options = ParseOptions::new().progress_callback(&mut go_on);
    let mut read = |offset: usize, _| source.get(offset..).unwrap_or_default();
    let parsed = parser.parse_with_options(&mut read, None, Some(options));
    let otherwise = if is_too_large { Unparsed::TooLarge } else { Unparsed::TooSlow };
    parsed.ok_or_else(|| limit.check().err().unwrap_or(otherwise))
}

/// Memory that the process has; 0 where the system does not say.
fn resident_bytes() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").ok();
    let pages = pages.and_then(|text| text.split(' ').nth(1)?.parse::<u64>().ok());
    pages.unwrap_or_default() * 4096
}

struct Finder<'a> {
    compiled: &'a Compiled,
    source: &'a [u8],
    cursor: TreeCursor<'a>,
    /// From the root to the siblings that the cursor is among.
    levels: Vec<Level<'a>>,
    found: Vec<Symbol>,
}

/// What is known of the siblings that are walked.
#[derive(Clone, Debug, Default)]
struct Level<'a> {
    /// The path of what holds them.
    holder: Rc<str>,
    is_in_type: bool,
    /// The wrapper that they are in, or the outermost of several.
    wrapper: Option<Wrapped<'a>>,
    /// Where the comments and attributes begin and end that stand right before the next of them.
    lead: Option<Lead>,
}

/// A wrapper, and what stands before it.
#[derive(Clone, Copy, Debug)]
struct Wrapped<'a> {
    syntax: Syntax<'a>,
    lead: Option<Lead>,
}

#[derive(Clone, Copy, Debug)]
struct Lead {
    byte: usize,
    line: usize,
    end_line: usize,
}

impl<'a> Finder<'a> {
    fn find(mut self, limit: &Limit<'_>) -> Result<Vec<Symbol>, Unparsed> {
        for visited in 0_usize.. {
            if visited.is_multiple_of(4096) {
                limit.check()?;
            }
            let inner = self.visit();
            if let Some(inner) = inner
                && self.cursor.goto_first_child()
            {
                self.levels.push(inner);
                continue;
            }
            while !self.cursor.goto_next_sibling() {
                if !self.cursor.goto_parent() {
                    return Ok(self.found);
                }
                self.levels.pop();
            }
            if self.found.len() >= MAX_SYMBOLS {
                return Ok(self.found);
            }
        }
        unreachable!("a tree ends before numbers do")
    }

    /// Takes the node of the cursor into account. Gives what its children are to know; None: they are not looked at.
    fn visit(&mut self) -> Option<Level<'a>> {
        let syntax = self.cursor.node();
        if !syntax.is_named() {
            return None;
        }
        let node = self.compiled.node(syntax.kind_id());
        let begins_line = node == Some(Node::Lead) && self.begins_line(syntax);
        let level = self.levels.last_mut().expect("the root's is never left");
        if node == Some(Node::Lead) {
            level.lead = begins_line.then(|| Lead::with(level.lead, syntax));
            return None;
        }
        let lead = level.lead.take().filter(|lead| lead.end_line + 1 >= first_line(syntax));
        let level = level.clone();
        let inner = || Level { lead: None, wrapper: None, ..level.clone() };
        let wrapped = || Level { wrapper: level.wrapper.or(Some(Wrapped { syntax, lead })), ..inner() };
        // A comment before a block is that of what comes first in it.
        let Some(node) = node else { return Some(Level { lead, ..inner() }) };
        match node {
            Node::Wrapper => Some(wrapped()),
            Node::WrapperOfOne if syntax.named_child_count() == 1 => Some(wrapped()),
            Node::WrapperOfOne => Some(inner()),
            Node::Closed | Node::Lead => None,
            Node::Holds(kind) => self.holder(syntax, kind, &level, lead).or_else(|| Some(inner())),
            Node::HoldsIfBody(kind) => match syntax.child_by_field_name("body") {
                Some(_) => self.holder(syntax, kind, &level, lead).or_else(|| Some(inner())),
                None => None,
            },
            Node::Function => {
                let kind = if level.is_in_type { "method" } else { "function" };
                self.function(syntax, kind, &level, lead);
                None
            }
            Node::Prototype if is_of_function(syntax) => {
                let kind = if level.is_in_type { "method" } else { "function" };
                self.function(syntax, kind, &level, lead);
                None
            }
            Node::Prototype => Some(inner()),
            Node::Leaf(kind) => {
                let name = names(self.source, syntax)?;
                self.add(syntax, &name, kind, &level, lead);
                None
            }
            Node::Variable => self.variable(syntax, &level, lead),
        }
    }

    /// Whether nothing but blanks stands before it on its line.
    fn begins_line(&self, syntax: Syntax<'a>) -> bool {
        let start = syntax.start_byte();
        let line = start.saturating_sub(syntax.start_position().column);
        self.source[line..start].iter().all(u8::is_ascii_whitespace)
    }

    fn holder(
        &mut self,
        syntax: Syntax<'a>,
        kind: &'static str,
        level: &Level<'a>,
        lead: Option<Lead>,
    ) -> Option<Level<'a>> {
        let name = names(self.source, syntax)?;
        let holder = self.add(syntax, &name, kind, level, lead)?;
        let is_in_type = !matches!(kind, "module" | "namespace");
        Some(Level { holder: holder.into(), is_in_type, ..Level::default() })
    }

    fn function(&mut self, syntax: Syntax<'a>, kind: &'static str, level: &Level<'a>, lead: Option<Lead>) {
        let Some(name) = names(self.source, syntax) else { return };
        if let Some(receiver) = syntax.child_by_field_name("receiver") {
            // Go: `(s *Server[T])`.
            let text = text(self.source, receiver);
            let before = text.split('[').next().unwrap_or_default().trim_end_matches([')', ' ']);
            let last = before.split_whitespace().last().unwrap_or_default();
            let name_of_type = last.trim_start_matches(['*', '(']);
            let name = vec![name_of_type.to_owned(), name.join(".")];
            self.add(syntax, &name, "method", level, lead);
            return;
        }
        let kind = if name.len() > 1 { "method" } else { kind };
        self.add(syntax, &name, kind, level, lead);
    }

    fn variable(&mut self, syntax: Syntax<'a>, level: &Level<'a>, lead: Option<Lead>) -> Option<Level<'a>> {
        let target = syntax.child_by_field_name("name").or_else(|| syntax.child_by_field_name("left"))?;
        if target.kind() != "identifier" {
            return None;
        }
        let name = vec![text(self.source, target)];
        let value = syntax.child_by_field_name("value").or_else(|| syntax.child_by_field_name("right"));
        match value.map_or("", |value| value.kind()) {
            "arrow_function" | "function_expression" | "generator_function" => {
                self.add(syntax, &name, "function", level, lead);
                None
            }
            "class" | "object" => {
                let kind = if value?.kind() == "class" { "class" } else { "variable" };
                let holder = self.add(syntax, &name, kind, level, lead)?;
                Some(Level { holder: holder.into(), is_in_type: true, ..Level::default() })
            }
            _ => {
                let path = joined(&level.holder, &name);
                let is_known =
                    self.found.iter().rev().take(64).any(|held| held.kind == "variable" && held.path == path);
                if !is_known {
                    self.add(syntax, &name, "variable", level, lead);
                }
                None
            }
        }
    }

    /// Adds a symbol. Gives its path.
    fn add(
        &mut self,
        syntax: Syntax<'a>,
        names: &[String],
        kind: &'static str,
        level: &Level<'a>,
        lead: Option<Lead>,
    ) -> Option<String> {
        let is_named = |name: &String| !name.is_empty() && name.len() <= MAX_NAME_BYTES;
        let levels = names.len() + level.holder.split('.').count();
        if names.is_empty() || !names.iter().all(is_named) || levels > MAX_LEVELS {
            return None;
        }
        let (last, above) = names.split_last()?;
        let holder = if above.is_empty() { level.holder.to_string() } else { joined(&level.holder, above) };
        let path = joined(&holder, std::slice::from_ref(last));
        let Wrapped { syntax: outer, lead } = level.wrapper.unwrap_or(Wrapped { syntax, lead });
        let start = lead.map_or(outer.start_byte(), |lead| lead.byte.min(outer.start_byte()));
        let first_line = lead.map_or(first_line(outer), |lead| lead.line.min(first_line(outer)));
        self.found.push(Symbol {
            path: path.clone(),
            holder_len: holder.len(),
            kind,
            line: line(syntax),
            end_line: last_line(outer),
            bytes: start..outer.end_byte(),
            first_line,
            signature: signature(self.source, syntax, outer),
        });
        Some(path)
    }
}

impl Lead {
    /// One that begins with another, where there is no empty line between.
    fn with(before: Option<Self>, syntax: Syntax<'_>) -> Self {
        // A line comment may end with its line.
        let end_line = match syntax.end_position() {
            end if end.column == 0 => end.row.max(1),
            end => end.row + 1,
        };
        match before {
            Some(lead) if lead.end_line + 1 >= first_line(syntax) => Self { end_line, ..lead },
            _ => Self { byte: syntax.start_byte(), line: first_line(syntax), end_line },
        }
    }
}

fn joined(holder: &str, names: &[String]) -> String {
    let names = names.join(".");
    if holder.is_empty() { names } else { format!("{holder}.{names}") }
}

fn last_line(syntax: Syntax<'_>) -> usize {
    let end = syntax.end_position();
    let line = if end.column == 0 { end.row } else { end.row + 1 };
    line.max(first_line(syntax))
}
