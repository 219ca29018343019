//! The symbols of a file: definitions and their positions.
//!
//! A file with errors yields the symbols that parse. A cursor walks the tree, so its depth does not cost stack.

use std::ops::{ControlFlow, Range};
use std::rc::Rc;
use std::time::{Duration, Instant};

use tree_sitter::{Node as Syntax, ParseOptions, Parser, Tree, TreeCursor};

use super::declared::{MAX_NAME_BYTES, first_line, is_of_function, line, names, signature, text};
use super::language::{Compiled, Language, Node};
use super::stop::Stop;

/// Largest file that is parsed, in bytes. In the worst case, with a file made for it, parsing takes hundreds of bytes
/// per byte of the file.
pub(super) const MAX_PARSED_BYTES: u64 = 512 << 10;

/// Time limit for parsing and walking one file.
pub(super) const MAX_PARSE_TIME: Duration = Duration::from_secs(5);

/// Bytes by which the process may grow while a file is parsed.
const MAX_GROWTH_BYTES: u64 = 160 << 20;

/// Calls of the progress callback between two checks of the memory.
const CALLS_PER_LOOK: u32 = 16;

/// Number of symbols that are kept per file.
const MAX_SYMBOLS: usize = 20_000;

/// Number of nested names in a symbol's path.
const MAX_LEVELS: usize = 16;

/// A definition in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Symbol {
    /// The symbol's names from the outermost holder on, separated by dots.
    pub(super) path: String,
    /// Length of the holder's part of `path` in bytes; 0 at the top level.
    holder_len: usize,
    pub(super) kind: &'static str,
    /// Line of the symbol's name, from 1.
    pub(super) line: usize,
    /// The last line of the symbol.
    pub(super) end_line: usize,
    /// Byte range in the source, including leading comments, attributes and decorators.
    pub(super) bytes: Range<usize>,
    /// First line of `bytes`.
    pub(super) first_line: usize,
    /// The symbol's declaration on one line, without the body.
    pub(super) signature: String,
}

impl Symbol {
    pub(super) fn name(&self) -> &str {
        &self.path[if self.holder_len == 0 { 0 } else { self.holder_len + 1 }..]
    }

    /// The path of the symbol's holder, empty at the top level.
    pub(super) fn holder(&self) -> &str {
        &self.path[..self.holder_len]
    }

    /// Number of symbols that contain this one.
    pub(super) fn depth(&self) -> usize {
        if self.holder_len == 0 { 0 } else { self.holder().split('.').count() }
    }
}

/// Why the symbols of a file are not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unparsed {
    /// The call is over.
    #[error("stopped")]
    Stopped,
    /// Parsing takes too long.
    #[error("parsing it takes longer than {} s", MAX_PARSE_TIME.as_secs())]
    TooSlow,
    /// The syntax tree takes too much memory.
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

/// The time and memory limits of one file.
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

/// Resident memory of the process in bytes; 0 if the system does not report it.
fn resident_bytes() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").ok();
    let pages = pages.and_then(|text| text.split(' ').nth(1)?.parse::<u64>().ok());
    pages.unwrap_or_default() * 4096
}

struct Finder<'a> {
    compiled: &'a Compiled,
    source: &'a [u8],
    cursor: TreeCursor<'a>,
    /// The levels from the root to the cursor.
    levels: Vec<Level<'a>>,
    found: Vec<Symbol>,
}

/// The state of the siblings that are being visited.
#[derive(Clone, Debug, Default)]
struct Level<'a> {
    /// The path of the siblings' holder.
    holder: Rc<str>,
    is_in_type: bool,
    /// The wrapper that contains the siblings, or the outermost of several.
    wrapper: Option<Wrapped<'a>>,
    /// Range of the comments and attributes right before the next sibling.
    leading: Option<LeadingComments>,
}

/// A wrapper, and the comments before it.
#[derive(Clone, Copy, Debug)]
struct Wrapped<'a> {
    syntax: Syntax<'a>,
    leading: Option<LeadingComments>,
}

#[derive(Clone, Copy, Debug)]
struct LeadingComments {
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

    /// Visits the node at the cursor. Returns the state for its children, or None to skip them.
    fn visit(&mut self) -> Option<Level<'a>> {
        let syntax = self.cursor.node();
        if !syntax.is_named() {
            return None;
        }
        let node = self.compiled.node(syntax.kind_id());
        let begins_line = node == Some(Node::Leading) && self.begins_line(syntax);
        let level = self.levels.last_mut().expect("the root's is never left");
        if node == Some(Node::Leading) {
            level.leading = begins_line.then(|| LeadingComments::with(level.leading, syntax));
            return None;
        }
        let leading = level.leading.take().filter(|leading| leading.end_line + 1 >= first_line(syntax));
        let level = level.clone();
        let inner = || Level { leading: None, wrapper: None, ..level.clone() };
        let wrapped = || Level { wrapper: level.wrapper.or(Some(Wrapped { syntax, leading })), ..inner() };
        // A comment before a block belongs to the first symbol in it.
        let Some(node) = node else { return Some(Level { leading, ..inner() }) };
        match node {
            Node::Wrapper => Some(wrapped()),
            Node::WrapperOfOne if syntax.named_child_count() == 1 => Some(wrapped()),
            Node::WrapperOfOne => Some(inner()),
            Node::Closed | Node::Leading => None,
            Node::HoldsIfBody(_) if syntax.child_by_field_name("body").is_none() => None,
            Node::Holds(kind) | Node::HoldsIfBody(kind) => {
                self.holder(syntax, kind, &level, leading).or_else(|| Some(inner()))
            }
            Node::Prototype if !is_of_function(syntax) => Some(inner()),
            Node::Function | Node::Prototype => {
                self.function(syntax, &level, leading);
                None
            }
            Node::Leaf(kind) => {
                let name = names(self.source, syntax)?;
                self.add(syntax, &name, kind, &level, leading);
                None
            }
            Node::Variable => self.variable(syntax, &level, leading),
        }
    }

    /// True if only blanks precede the node on its line.
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
        leading: Option<LeadingComments>,
    ) -> Option<Level<'a>> {
        let name = names(self.source, syntax)?;
        let holder = self.add(syntax, &name, kind, level, leading)?;
        let is_in_type = !matches!(kind, "module" | "namespace");
        Some(Level { holder: holder.into(), is_in_type, ..Level::default() })
    }

    fn function(&mut self, syntax: Syntax<'a>, level: &Level<'a>, leading: Option<LeadingComments>) {
        let Some(name) = names(self.source, syntax) else { return };
        if let Some(receiver) = syntax.child_by_field_name("receiver") {
            // Go: `(s *Server[T])`.
            let text = text(self.source, receiver);
            let before = text.split('[').next().unwrap_or_default().trim_end_matches([')', ' ']);
            let last = before.split_whitespace().last().unwrap_or_default();
            let name_of_type = last.trim_start_matches(['*', '(']);
            let name = vec![name_of_type.to_owned(), name.join(".")];
            self.add(syntax, &name, "method", level, leading);
            return;
        }
        let kind = if level.is_in_type || name.len() > 1 { "method" } else { "function" };
        self.add(syntax, &name, kind, level, leading);
    }

    fn variable(
        &mut self,
        syntax: Syntax<'a>,
        level: &Level<'a>,
        leading: Option<LeadingComments>,
    ) -> Option<Level<'a>> {
        let target = syntax.child_by_field_name("name").or_else(|| syntax.child_by_field_name("left"))?;
        if target.kind() != "identifier" {
            return None;
        }
        let name = vec![text(self.source, target)];
        let value = syntax.child_by_field_name("value").or_else(|| syntax.child_by_field_name("right"));
        match value.map_or("", |value| value.kind()) {
            "arrow_function" | "function_expression" | "generator_function" => {
                self.add(syntax, &name, "function", level, leading);
                None
            }
            "class" | "object" => {
                let kind = if value?.kind() == "class" { "class" } else { "variable" };
                let holder = self.add(syntax, &name, kind, level, leading)?;
                Some(Level { holder: holder.into(), is_in_type: true, ..Level::default() })
            }
            _ => {
                let path = joined(&level.holder, &name);
                let is_known =
                    self.found.iter().rev().take(64).any(|held| held.kind == "variable" && held.path == path);
                if !is_known {
                    self.add(syntax, &name, "variable", level, leading);
                }
                None
            }
        }
    }

    /// Adds a symbol and returns its path.
    fn add(
        &mut self,
        syntax: Syntax<'a>,
        names: &[String],
        kind: &'static str,
        level: &Level<'a>,
        leading: Option<LeadingComments>,
    ) -> Option<String> {
        let is_named = |name: &String| !name.is_empty() && name.len() <= MAX_NAME_BYTES;
        let levels = names.len() + level.holder.split('.').count();
        if names.is_empty() || !names.iter().all(is_named) || levels > MAX_LEVELS {
            return None;
        }
        let (last, above) = names.split_last()?;
        let holder = if above.is_empty() { level.holder.to_string() } else { joined(&level.holder, above) };
        let path = joined(&holder, std::slice::from_ref(last));
        let Wrapped { syntax: outer, leading } = level.wrapper.unwrap_or(Wrapped { syntax, leading });
        let start = leading.map_or(outer.start_byte(), |leading| leading.byte.min(outer.start_byte()));
        let first_line = leading.map_or(first_line(outer), |leading| leading.line.min(first_line(outer)));
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

impl LeadingComments {
    /// Extends a range by the next comment, unless an empty line separates them.
    fn with(before: Option<Self>, syntax: Syntax<'_>) -> Self {
        // The node of a line comment may include the line ending.
        let end_line = match syntax.end_position() {
            end if end.column == 0 => end.row.max(1),
            end => end.row + 1,
        };
        match before {
            Some(leading) if leading.end_line + 1 >= first_line(syntax) => Self { end_line, ..leading },
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
