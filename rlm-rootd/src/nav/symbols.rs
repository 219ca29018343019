//! The symbols of a file: what is defined in it, and where.
//!
//! A file with errors gives what parses. A tree is walked by a cursor, so no depth of it is one of the stack.

use std::ops::{ControlFlow, Range};
use std::rc::Rc;
use std::time::{Duration, Instant};

use tree_sitter::{Node as Syntax, ParseOptions, Parser, Tree, TreeCursor};

use super::language::{Compiled, Language, Node};
use super::stop::Stop;

/// Largest file that is parsed, in bytes. A tree takes some 250 bytes for each of the file's at worst.
pub(super) const MAX_PARSED_BYTES: u64 = 1 << 20;

/// Longest that a file is parsed and looked through.
pub(super) const MAX_PARSE_TIME: Duration = Duration::from_secs(5);

/// Symbols in a file; what is beyond is left out.
const MAX_SYMBOLS: usize = 20_000;

/// Names in a symbol's name.
const MAX_LEVELS: usize = 16;

/// Longest single name, in bytes; what is longer is no symbol.
const MAX_NAME_BYTES: usize = 256;

/// Longest signature, in characters.
const SIGNATURE_CHARS: usize = 200;

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
    let mut go_on = |_: &tree_sitter::ParseState| match limit.check() {
        Ok(()) => ControlFlow::Continue(()),
        Err(_) => ControlFlow::Break(()),
    };
    let options = ParseOptions::new().progress_callback(&mut go_on);
    let mut read = |offset: usize, _| source.get(offset..).unwrap_or_default();
    let parsed = parser.parse_with_options(&mut read, None, Some(options));
    parsed.ok_or_else(|| limit.check().err().unwrap_or(Unparsed::TooSlow))
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
            if visited % 4096 == 0 {
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
                let name = self.name(syntax)?;
                self.add(syntax, &name, kind, &level, lead);
                None
            }
            Node::Variable => self.variable(syntax, &level, lead),
        }
    }

    /// Whether nothing but blanks stands before it on its line.
    fn begins_line(&self, syntax: Syntax<'a>) -> bool {
        let before = &self.source[..syntax.start_byte()];
        let line = memchr::memrchr(b'\n', before).map_or(0, |at| at + 1);
        before[line..].iter().all(u8::is_ascii_whitespace)
    }

    fn holder(
        &mut self,
        syntax: Syntax<'a>,
        kind: &'static str,
        level: &Level<'a>,
        lead: Option<Lead>,
    ) -> Option<Level<'a>> {
        let name = self.name(syntax)?;
        let holder = self.add(syntax, &name, kind, level, lead)?;
        let is_in_type = !matches!(kind, "module" | "namespace");
        Some(Level { holder: holder.into(), is_in_type, ..Level::default() })
    }

    fn function(&mut self, syntax: Syntax<'a>, kind: &'static str, level: &Level<'a>, lead: Option<Lead>) {
        let Some(name) = self.name(syntax) else { return };
        if let Some(receiver) = syntax.child_by_field_name("receiver") {
            // Go: `(s *Server[T])`.
            let text = self.text(receiver);
            let last = text.trim_end_matches(')').split_whitespace().last().unwrap_or_default();
            let name_of_type = last.trim_start_matches(['*', '(']).split('[').next().unwrap_or_default();
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
        let name = vec![self.text(target)];
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
            line: self.line(syntax),
            end_line: last_line(outer),
            bytes: start..outer.end_byte(),
            first_line,
            signature: self.signature(syntax, outer),
        });
        Some(path)
    }

    /// The line that a symbol is defined on: that of its name.
    fn line(&self, syntax: Syntax<'a>) -> usize {
        let named = syntax.child_by_field_name("name").or_else(|| syntax.child_by_field_name("declarator"));
        first_line(named.unwrap_or(syntax))
    }

    /// The names of a symbol: several where it is defined from outside of its holder, `A::b`.
    fn name(&self, syntax: Syntax<'a>) -> Option<Vec<String>> {
        if let Some(name) = syntax.child_by_field_name("name") {
            return Some(self.parts(name));
        }
        if let Some(mut declarator) = syntax.child_by_field_name("declarator") {
            loop {
                let inner = declarator.child_by_field_name("declarator").or_else(|| {
                    (declarator.kind() == "reference_declarator").then(|| declarator.named_child(0))?
                });
                match inner {
                    Some(inner) => declarator = inner,
                    None => return Some(self.parts(declarator)),
                }
            }
        }
        // `impl Trait for Type<T>`.
        let mut of_type = syntax.child_by_field_name("type")?;
        while let Some(inner) = of_type.child_by_field_name("type") {
            of_type = inner;
        }
        Some(vec![self.parts(of_type).pop()?])
    }

    fn parts(&self, name: Syntax<'a>) -> Vec<String> {
        let text = self.text(name);
        if name.kind() == "operator_cast" || name.kind() == "operator_name" || !text.contains("::") {
            return vec![text];
        }
        let plain = without_angles(&text);
        plain.split("::").map(|part| part.trim().to_owned()).filter(|part| !part.is_empty()).collect()
    }

    /// A name's text, in one line.
    fn text(&self, syntax: Syntax<'a>) -> String {
        let bytes = &self.source[syntax.byte_range()];
        one_line(&String::from_utf8_lossy(&bytes[..bytes.len().min(4 * MAX_NAME_BYTES)]))
    }

    fn signature(&self, syntax: Syntax<'a>, outer: Syntax<'a>) -> String {
        let start = if outer.kind() == "decorated_definition" { syntax } else { outer }.start_byte();
        let value = || syntax.child_by_field_name("value");
        let body = syntax.child_by_field_name("body").or_else(|| value()?.child_by_field_name("body"));
        let end = body.map_or(outer.end_byte(), |body| body.start_byte()).max(start);
        let bytes = &self.source[start..end.min(start + 16 * SIGNATURE_CHARS)];
        let text = String::from_utf8_lossy(bytes);
        let is_many_lines = body.is_none() && !is_of_function(syntax);
        let text = if is_many_lines { text.lines().next().unwrap_or_default() } else { &text };
        let line = one_line(text);
        let line = line.strip_suffix("=>").unwrap_or(&line);
        cut(line.trim_end_matches([' ', '{', ':', ';', '=', '\\']), SIGNATURE_CHARS)
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

/// Whether a declaration is that of a function: whether its declarator, inside of pointers and references, is one.
fn is_of_function(syntax: Syntax<'_>) -> bool {
    let mut declarator = syntax.child_by_field_name("declarator");
    while let Some(at) = declarator {
        if at.kind() == "function_declarator" {
            // `int (*f)(void)` is a variable.
            return at
                .child_by_field_name("declarator")
                .is_none_or(|inner| inner.kind() != "parenthesized_declarator");
        }
        let is_reference = at.kind() == "reference_declarator";
        declarator =
            at.child_by_field_name("declarator").or_else(|| is_reference.then(|| at.named_child(0))?);
    }
    syntax.child_by_field_name("parameters").is_some()
}

fn joined(holder: &str, names: &[String]) -> String {
    let names = names.join(".");
    if holder.is_empty() { names } else { format!("{holder}.{names}") }
}

fn first_line(syntax: Syntax<'_>) -> usize {
    syntax.start_position().row + 1
}

fn last_line(syntax: Syntax<'_>) -> usize {
    let end = syntax.end_position();
    let line = if end.column == 0 { end.row } else { end.row + 1 };
    line.max(first_line(syntax))
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A text of at most so many characters.
pub(super) fn cut(text: &str, chars: usize) -> String {
    match text.char_indices().nth(chars) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// `A<B, C>::d` without what is in angles.
fn without_angles(text: &str) -> String {
    let mut depth = 0_usize;
    let mut plain = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '<' => depth += 1,
            '>' => depth = depth.saturating_sub(1),
            _ if depth == 0 => plain.push(letter),
            _ => {}
        }
    }
    plain
}
