//! The uses of tools in the code, and the calls among them that are served.

use std::ops::Range;

use rlm_core::ids::is_identifier;
use rlm_core::root_tool::print::Output;
use rlm_core::root_tool::query_words::{self, Surroundings};
use rlm_core::root_tool::words::Word;
use rlm_core::root_tool::{self, Call, LLM_BATCH, is_query};

use super::tree::Tree;
use super::words::{self, NotPlain};
use crate::interception::names::RESERVED_PREFIX;
use crate::interception::rejection::{ArgumentFault, Fault, Place};
use crate::interception::source::Source;

/// Commands that run one of their words as a command.
const RUNNERS: [&str; 9] = ["builtin", "command", "env", "exec", "nohup", "sudo", "time", "timeout", "xargs"];
/// Commands that take words as code.
const READERS: [&str; 3] = ["alias", "eval", "trap"];
/// Words after which a command begins.
const OPENERS: [&str; 10] = ["then", "do", "else", "elif", "if", "while", "until", "time", "!", "{"];

#[derive(Debug)]
pub(super) struct Uses {
    pub(super) list: Vec<Use>,
}

/// A tool that is called, passed on or defined, or a reserved name.
#[derive(Debug)]
pub(super) struct Use {
    pub(super) name: String,
    pub(super) range: Range<usize>,
    /// The command, or the node that has the name.
    pub(super) node: usize,
    pub(super) kind: UseKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UseKind {
    Call,
    Passed,
    Defined,
    Reserved,
}

/// A call that can be served.
pub(super) struct Served {
    pub(super) call: Call,
    /// `$(tool …)`
    pub(super) substitution: Range<usize>,
    pub(super) arguments: Range<usize>,
    pub(super) line: Range<usize>,
}

/// The names that occur as words of the code, each with its places.
pub(super) fn suspects<'a>(code: &str, tools: &[&'a str]) -> Vec<(usize, &'a str)> {
    let is_part = |char: char| char.is_alphanumeric() || char == '_';
    let mut places = Vec::new();
    for name in tools.iter().copied().chain([RESERVED_PREFIX]).filter(|name| !name.is_empty()) {
        let whole = |at: &usize| {
            let ends = name == RESERVED_PREFIX || !code[at + name.len()..].starts_with(is_part);
            ends && !code[..*at].ends_with(is_part)
        };
        places.extend(code.match_indices(name).map(|(at, _)| at).filter(whole).map(|at| (at, name)));
    }
    places.sort_unstable();
    places
}

/// The first of these places at which a command may begin, by the text before it alone.
pub(super) fn in_doubt<'a>(code: &str, suspects: &[(usize, &'a str)]) -> Option<(usize, &'a str)> {
    suspects.iter().copied().find(|(at, name)| {
        let line = code[..*at].rsplit('\n').next().unwrap_or_default();
        let before = line.trim_end_matches([' ', '\t', '\\', '"', '\'']);
        let word = before.rsplit([' ', '\t', ';', '&', '|', '(']).next().unwrap_or_default();
        *name == RESERVED_PREFIX
            || before.is_empty()
            || before.ends_with([';', '&', '|', '(', '`', ')'])
            || OPENERS.contains(&word)
            || RUNNERS.contains(&word)
            || READERS.contains(&word)
    })
}

impl Uses {
    pub(super) fn of(tree: &Tree, code: &str, tools: &[&str]) -> Self {
        let mut list = Vec::new();
        for (at, node) in tree.nodes.iter().enumerate() {
            let text = &code[node.range.clone()];
            let named = |text: &str| {
                let plain = text.replace(['\\', '\'', '"'], "");
                tools.iter().find(|tool| **tool == plain).map(|tool| (*tool).to_owned())
            };
            let found = match node.kind {
                "command_name" => match (named(text), node.parent) {
                    (Some(name), Some(command)) => Some((name, UseKind::Call, command)),
                    (None, Some(command)) if RUNNERS.contains(&text) || READERS.contains(&text) => {
                        list.extend(passed(tree, code, command, tools, READERS.contains(&text)));
                        None
                    }
                    _ => None,
                },
                "word" if node.field == Some("name") => named(text).map(|name| (name, UseKind::Defined, at)),
                _ => None,
            };
            list.extend(found.map(|(name, kind, node_at)| Use {
                name,
                range: node.range.clone(),
                node: node_at,
                kind,
            }));
        }
        let reserved = suspects(code, &[]).into_iter().map(|(start, prefix)| {
            let rest = &code[start + prefix.len()..];
            let tail = rest.find(|char: char| !char.is_alphanumeric() && char != '_').unwrap_or(rest.len());
            let range = start..start + prefix.len() + tail;
            Use { name: code[range.clone()].to_owned(), range, node: 0, kind: UseKind::Reserved }
        });
        list.extend(reserved);
        list.sort_by_key(|found| found.range.start);
        Self { list }
    }
}

/// Tools among the arguments of a command that runs them, as whole words or as code.
fn passed(tree: &Tree, code: &str, command: usize, tools: &[&str], is_code: bool) -> Vec<Use> {
    let arguments = tree.children(command).filter(|child| tree.nodes[*child].field == Some("argument"));
    let uses = arguments.filter_map(|node| {
        let range = tree.nodes[node].range.clone();
        let text = &code[range.clone()];
        let name = match is_code {
            true => {
                suspects(text, tools).into_iter().map(|(_, name)| name).find(|name| *name != RESERVED_PREFIX)
            }
            false => tools.iter().copied().find(|tool| *tool == text.replace(['\\', '\'', '"'], "")),
        };
        Some(Use { name: name?.to_owned(), range, node, kind: UseKind::Passed })
    });
    uses.collect()
}

/// The call, or its fault and the fault's offset.
pub(super) fn judge(found: &Use, tree: &Tree, source: &Source<'_>) -> Result<Served, (usize, Fault)> {
    let here = |fault| (found.range.start, fault);
    match found.kind {
        UseKind::Call => {}
        UseKind::Passed => return Err(here(Fault::Reference)),
        UseKind::Defined => return Err(here(Fault::Rebound)),
        UseKind::Reserved => return Err(here(Fault::Reserved)),
    }
    let command = found.node;
    if let Some(place) = tree.path_up(command).find_map(|at| place(tree, at, source.text)) {
        return Err(here(Fault::Inside(place)));
    }
    if tree.parent(command).is_some_and(|parent| tree.kind(parent) == "program") {
        return Err(here(Fault::Unnamed));
    }
    let Some((assignment, substitution)) = assignment_of(tree, command) else {
        return Err(here(Fault::Nested));
    };
    let text = |at: usize| &source.text[tree.nodes[at].range.clone()];
    let name = tree.children(assignment).next().expect("an assignment begins with a name");
    let equals = &source.text[tree.nodes[name].range.end..];
    if equals.starts_with("+=") {
        return Err(here(Fault::Augmented));
    }
    if !is_identifier(text(name)) || !equals.starts_with('=') {
        return Err(here(Fault::TargetNotName));
    }
    let start = tree.nodes[command].range.start;
    let call = call(&found.name, text(command)).map_err(|(at, fault)| (start + at, fault))?;
    let range = tree.nodes[assignment].range.clone();
    let line = source.line_around(range.start);
    let line =
        line.start..source.text[line.start..].find('\n').map_or(source.text.len(), |end| line.start + end);
    if !is_whole_line(&source.text[line.clone()], text(name), text(command)) {
        return Err(here(Fault::SharesLine));
    }
    let arguments = tree.nodes[command].range.start + found.range.len()..tree.nodes[command].range.end;
    Ok(Served { call, substitution: tree.nodes[substitution].range.clone(), arguments, line })
}

/// True if the line is `name=$(command)`, maybe in double quotes, and maybe with a comment.
fn is_whole_line(line: &str, name: &str, command: &str) -> bool {
    let line = line.trim_start_matches([' ', '\t']);
    let Some(value) = line.strip_prefix(name).and_then(|rest| rest.strip_prefix('=')) else { return false };
    let (quote, value) = value.strip_prefix('"').map_or(("", value), |value| ("\"", value));
    let inside = value.strip_prefix("$(").map(|rest| rest.trim_start_matches([' ', '\t']));
    let after =
        inside.and_then(|rest| rest.strip_prefix(command)).map(|rest| rest.trim_start_matches([' ', '\t']));
    let after = after.and_then(|rest| rest.strip_prefix(')')).and_then(|rest| rest.strip_prefix(quote));
    after.is_some_and(words::is_blank_or_comment)
}

/// The assignment at the top whose whole value is the substitution of this command, and that substitution.
pub(super) fn assignment_of(tree: &Tree, command: usize) -> Option<(usize, usize)> {
    let only_child_of = |child: usize, kind: &str| {
        let parent = tree.parent(child).filter(|parent| tree.kind(*parent) == kind)?;
        (tree.named_children(parent) == [child]).then_some(parent)
    };
    let substitution = only_child_of(command, "command_substitution")?;
    let value = only_child_of(substitution, "string").unwrap_or(substitution);
    let assignment = tree.parent(value).filter(|parent| tree.kind(*parent) == "variable_assignment")?;
    let is_top = tree.parent(assignment).is_some_and(|parent| tree.kind(parent) == "program");
    (is_top && tree.nodes[assignment].range.end == tree.nodes[value].range.end)
        .then_some((assignment, substitution))
}

/// The kind of this node, if a command in it does not run exactly once.
fn place(tree: &Tree, at: usize, code: &str) -> Option<Place> {
    Some(match tree.kind(at) {
        "function_definition" => Place::Function,
        "if_statement" => Place::Block("if"),
        "for_statement" if code[tree.nodes[at].range.clone()].starts_with("select") => Place::Block("select"),
        "for_statement" | "c_style_for_statement" => Place::Block("for"),
        "while_statement" if code[tree.nodes[at].range.clone()].starts_with("until") => Place::Block("until"),
        "while_statement" => Place::Block("while"),
        "case_statement" => Place::Block("case"),
        "compound_statement" => Place::Block("{ }"),
        "subshell" => Place::Block("( )"),
        _ => return None,
    })
}

/// Code before it runs.
pub(in crate::interception) struct OfCode;

impl Surroundings for OfCode {
    fn standard_input(&mut self) -> Result<String, String> {
        Err("standard input is not known before the code runs".to_owned())
    }

    /// Relative paths begin at the session's directory.
    fn file(&self, path: String) -> String {
        path
    }
}

/// The call that a command of plain words is, as the tools' helper in a session reads them.
fn call(tool: &str, text: &str) -> Result<Call, (usize, Fault)> {
    let words = words::words(text).map_err(|NotPlain { found, at, word }| {
        let fault = ArgumentFault::NotLiteral(found.to_owned());
        (at, Fault::Argument { argument: format!("argument {word}"), fault })
    })?;
    let Some((_, arguments)) = words.split_first().filter(|(first, _)| *first == tool) else {
        return Err((0, Fault::Nested));
    };
    if is_query(tool) {
        return match query_words::parse(tool, arguments.to_vec(), &mut OfCode) {
            Ok(Some((call, output))) if output != Output::Nul => Ok(call),
            Ok(Some(_)) => Err("a variable cannot hold NUL".to_owned()),
            Ok(None) => Err("there is no help here".to_owned()),
            Err(reason) => Err(reason),
        }
        .map_err(|reason| (0, Fault::Words(reason)));
    }
    let mut values = Vec::with_capacity(arguments.len());
    for (at, argument) in arguments.iter().enumerate() {
        let fault = match Word::of(tool, argument.as_bytes()) {
            Word::Argument => {
                values.push(root_tool::words::value(tool, argument));
                continue;
            }
            Word::Option => ArgumentFault::Option(argument.clone()),
            Word::File(_) => ArgumentFault::File(argument.clone()),
        };
        return Err((0, Fault::Argument { argument: format!("argument {}", at + 1), fault }));
    }
    if tool == LLM_BATCH && values.is_empty() {
        return Err((0, Fault::NoPrompt));
    }
    Ok(root_tool::words::call(tool, values))
}
