//! A reply, split into text, thoughts and calls.

use std::collections::HashMap;
use std::ops::Range;

use super::fences::{Fence, open_quotes, without_indent, without_item};
use super::harmony::message_length;
use super::marks::{DSML_INVOKE, MESSAGE_ENDS, NAMES, THOUGHTS};
use super::written::{WrittenCall, checked};

/// Longest name of a tool or parameter, and longest header of a harmony message, in bytes.
pub(super) const NEAR_BYTES: usize = 256;

/// Reads calls after their opening mark, up to and including the closing mark.
type CallReader = fn(&mut Scanner<'_>, close: &'static str) -> Option<Vec<WrittenCall>>;

/// Marks before and after calls.
pub(super) const CALLS: &[(&str, &str, CallReader)] = &[
    ("<tool_call>", "</tool_call>", |scanner, close| scanner.tagged(close)),
    ("<seed:tool_call>", "</seed:tool_call>", |scanner, close| scanner.tagged(close)),
    ("<longcat_tool_call>", "</longcat_tool_call>", |scanner, close| scanner.tagged(close)),
    ("<function=", "</tool_call>", |scanner, close| scanner.bare_function(close)),
    ("<minimax:tool_call>", "</minimax:tool_call>", |scanner, close| scanner.invokes(close)),
    ("<function_calls>", "</function_calls>", |scanner, close| scanner.invokes(close)),
    ("<｜DSML｜function_calls>", "</｜DSML｜function_calls>", |scanner, close| scanner.invokes(close)),
    ("<｜DSML｜tool_calls>", "</｜DSML｜tool_calls>", |scanner, close| scanner.invokes(close)),
    // Without the section around it, as SGLang leaves it in the text (sgl-project/sglang#40236).
    (DSML_INVOKE, "</｜DSML｜tool_calls>", |scanner, close| scanner.bare_invokes(close)),
    ("[TOOL_CALLS]", "", |scanner, close| scanner.mistral(close)),
    ("<|python_tag|>", "", |scanner, close| scanner.listed(close)),
    ("<|START_ACTION|>", "<|END_ACTION|>", |scanner, close| scanner.listed(close)),
    ("<|tool_call_begin|>", "<|tool_call_end|>", |scanner, close| scanner.kimi(close)),
    ("<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>", |scanner, close| scanner.deepseek(close)),
];

/// Marks before the first of several calls, and before harmony messages.
const SECTIONS: [&str; 4] =
    ["<｜tool▁calls▁begin｜>", "<|tool_calls_section_begin|>", "<|start|>", "<|channel|>"];

/// A part of a reply.
#[derive(Debug)]
pub(super) enum Part<'a> {
    Text(&'a str),
    /// A thought; empty in place of a mark that is not text.
    Thought(&'a str),
    Calls(&'a str, Vec<WrittenCall>),
}

pub(super) fn parts(text: &str) -> Vec<Part<'_>> {
    // Most texts have no character that a mark begins with.
    if !text.contains(['<', '[', '◁']) {
        return vec![Part::Text(text)];
    }
    let mut scanner = Scanner::new(text);
    scanner.scan(text.len());
    scanner.parts
}

/// Splits a text into parts, in linear time: values are read once, searches are remembered, and JSON ends at the first mark
/// outside of a string.
pub(super) struct Scanner<'a> {
    pub(super) text: &'a str,
    /// The text in lower case, byte by byte.
    lower: String,
    pub(super) at: usize,
    /// End of the stretch that is scanned.
    pub(super) end: usize,
    /// Start of the text that is not yet in `parts`.
    kept: usize,
    parts: Vec<Part<'a>>,
    /// End of the last value that was read, even if its call could not be. No call begins before this.
    pub(super) values_end: usize,
    /// The last search for each mark: its start and its result.
    pub(super) found: HashMap<&'static str, (usize, Option<usize>)>,
    span: Span,
    /// True in a line of a quotation, as Markdown writes them: calls in it are text.
    is_quotation: bool,
}

/// The code span at a place of a line.
#[derive(Debug, Default)]
struct Span {
    at: usize,
    /// The number of backquotes that have opened it; 0 if none is open.
    quotes: usize,
}

/// An open fenced block.
struct Block<'a> {
    fence: Fence<'a>,
    /// True if its code opens a thought, so that the closing mark is code too.
    has_thought: bool,
}

impl<'a> Scanner<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self {
            text,
            lower: text.to_ascii_lowercase(),
            at: 0,
            end: text.len(),
            kept: 0,
            parts: Vec::new(),
            values_end: 0,
            found: HashMap::new(),
            span: Span::default(),
            is_quotation: false,
        }
    }

    fn scan(&mut self, end: usize) {
        let outer = std::mem::replace(&mut self.end, end);
        let mut block = None;
        let mut at_line_start = true;
        while self.at < end {
            if at_line_start && (self.at == 0 || self.text.as_bytes()[self.at - 1] == b'\n') {
                let line = self.rest().trim_start_matches([' ', '\t']);
                self.is_quotation = without_item(line).unwrap_or(line).starts_with('>');
            }
            at_line_start = (at_line_start && self.block_line(&mut block)) || self.step();
        }
        self.keep_text(end);
        self.end = outer;
    }

    /// Reads a line that is a fence or in a block. False if it is neither.
    fn block_line(&mut self, block: &mut Option<Block<'a>>) -> bool {
        let (begin, fence) = (self.at, Fence::of(self.rest()));
        if block.is_none() && fence.is_none() {
            return false;
        }
        let line = self.rest().split_inclusive('\n').next().unwrap_or_default();
        self.at += line.len();
        match (block.as_mut(), fence) {
            (None, Some(fence)) => *block = Some(Block { fence, has_thought: false }),
            (Some(open), Some(fence)) if fence.closes(open.fence) => *block = None,
            (Some(open), _) if let Some(call) = call_behind_fence(begin, line, open.fence) => {
                self.at = call;
                *block = None;
            }
            (Some(open), _) if !open.has_thought => match self.closing_mark(begin, line, Some(open.fence)) {
                Some(mark) => {
                    self.at = mark.end;
                    self.end_thought(mark.start);
                    *block = None;
                }
                None => open.has_thought = self.has_opening_mark(begin..self.at),
            },
            _ => {}
        }
        true
    }

    /// The mark in a line that ends a thought which began before the text: at the beginning of the line, behind a fence that could close
    /// the open block, or at the end of the line. In quotes and in the middle of a line it is code, or text.
    pub(super) fn closing_mark(
        &self,
        begin: usize,
        line: &str,
        open: Option<Fence<'_>>,
    ) -> Option<Range<usize>> {
        let place_of = |part: &str| begin + line.len() - part.len();
        let closing_at = |at: usize| {
            let mut marks = THOUGHTS.iter().map(|(_, close)| close);
            let close = marks.find(|close| self.in_any_case(close)[at..self.end].starts_with(**close))?;
            Some(at..at + close.len())
        };
        let code = without_indent(line);
        let behind_fence = |open: Fence<'_>| {
            let behind = without_indent(code.trim_start_matches(open.char));
            let length = code.bytes().take_while(|byte| char::from(*byte) == open.char).count();
            closing_at(place_of(behind)).filter(|_| length >= open.length)
        };
        let first = closing_at(place_of(code));
        first.or_else(|| open.and_then(behind_fence)).or_else(|| {
            let end = begin + line.trim_end().len();
            let is_last = |close: &str| self.in_any_case(close)[begin..end].ends_with(close);
            let (_, close) = THOUGHTS.iter().find(|(_, close)| is_last(close))?;
            let at = end - close.len();
            let is_code = ends_in_quotes(&self.text[begin..at]) || self.has_opening_mark(begin..at);
            (!is_code).then_some(at..end)
        })
    }

    pub(super) fn has_opening_mark(&self, part: Range<usize>) -> bool {
        THOUGHTS.iter().any(|(open, _)| {
            let text = &self.in_any_case(open)[part.clone()];
            let name = open.strip_suffix('>').unwrap_or(open);
            text.match_indices(name).any(|(at, _)| opening_length(&text[at..], open).is_some())
        })
    }

    /// The text in which a mark of thoughts is looked for.
    pub(super) fn in_any_case(&self, mark: &str) -> &str {
        let is_name = NAMES.iter().any(|(open, close)| [*open, *close].contains(&mark));
        if is_name || mark.bytes().any(|byte| byte.is_ascii_uppercase()) { self.text } else { &self.lower }
    }

    /// True if a line, or the text behind a thought, begins here.
    fn begins_line(&self, at: usize) -> bool {
        let follows_thought = || at == self.kept && matches!(self.parts.last(), Some(Part::Thought(_)));
        at == 0 || self.text.as_bytes()[at - 1] == b'\n' || follows_thought()
    }

    /// Reads a part, or text up to the next mark or line. True if a line begins after it.
    fn step(&mut self) -> bool {
        let (begin, rest) = (self.at, self.rest());
        // The first two bytes of marks: nothing else is compared with them.
        let [b'<' | b'[' | 0xe2, second @ (b'/' | b'|' | b'A'..=b'Z' | b'a'..=b'z' | 0x80..), ..] =
            *rest.as_bytes()
        else {
            return self.plain();
        };
        let is_here = |mark: &str| mark.as_bytes()[1] == second && rest.starts_with(mark);
        let may_be = |mark: &str| mark.as_bytes()[1].eq_ignore_ascii_case(&second);
        let names = if self.begins_line(begin) { NAMES } else { &[] };
        let thoughts = || THOUGHTS.iter().chain(names).filter(|(open, close)| may_be(open) || may_be(close));
        // Behind a word, a name with a capital is a type's: `Vec<Thinking>`.
        let follows_word = self.text[..begin].ends_with(char::is_alphanumeric);
        let opened = thoughts().find_map(|(open, close)| {
            let text = if follows_word { self.text } else { self.in_any_case(open) };
            Some((opening_length(&text[begin..self.end], open)?, *close))
        });
        if let Some((length, close)) = opened {
            return self.thought(length, close) || self.plain();
        }
        let is_closed = |close: &str| self.in_any_case(close)[begin..self.end].starts_with(close);
        let closed = thoughts().find(|(_, close)| is_closed(close));
        if let Some((_, close)) = closed {
            self.at += close.len();
            return if self.is_quoted(begin) { false } else { self.end_thought(begin) };
        }
        if let Some((open, close, read)) = CALLS.iter().find(|(open, ..)| is_here(open)) {
            let behind = begin + open.len();
            self.at = behind;
            let calls = if begin < self.values_end { None } else { read(self, close) };
            match calls.filter(|_| !self.is_quotation && !self.is_quoted(begin)) {
                Some(calls) => self.keep_calls(begin, calls),
                None => self.at = behind,
            }
            return self.text[..self.at].trim_end_matches([' ', '\t']).ends_with('\n');
        }
        if (is_here("<|start|>") || is_here("<|channel|>")) && self.message().is_some() {
            return true;
        }
        self.at = begin;
        self.plain()
    }

    /// Reads text up to the next place where a mark or a line can begin. True for a line.
    fn plain(&mut self) -> bool {
        let rest = self.rest();
        let first = usize::from(!rest.starts_with('\n'));
        let is_end = |byte: &u8| matches!(byte, b'<' | b'[' | 0xe2 | b'\n');
        let next = rest.as_bytes()[first..].iter().position(is_end).map_or(rest.len(), |next| first + next);
        let is_line_end = rest[next..].starts_with('\n');
        self.at += next + usize::from(is_line_end);
        is_line_end
    }

    /// Reads a thought whose opening mark has this length.
    fn thought(&mut self, length: usize, close: &'static str) -> bool {
        let begin = self.at;
        self.at += length;
        if self.is_quoted(begin) {
            return false;
        }
        self.keep_text(begin);
        let end = self.find(close).unwrap_or(self.end);
        self.parts.push(Part::Thought(&self.text[self.at..end]));
        self.at = self.end.min(end + close.len());
        self.kept = self.at;
        true
    }

    /// Makes all before a closing mark a thought: a template wrote the opening mark into the prompt.
    fn end_thought(&mut self, mark: usize) -> bool {
        self.parts = vec![Part::Thought(&self.text[..mark])];
        self.kept = self.at;
        true
    }

    /// Reads a harmony message: a call, an analysis or text.
    fn message(&mut self) -> Option<()> {
        let begin = self.at;
        let header = self.until("<|message|>")?;
        if header.split("<|").any(|words| words.contains(['<', '`', '[', '{', '\n'])) {
            return None;
        }
        let word = |mark: &str| header.split(mark).nth(1)?.trim_start().split([' ', '<']).next();
        match (word("<|channel|>"), word(" to=")) {
            (_, Some(name)) if name != "assistant" => {
                let call = WrittenCall { name: checked(name)?, arguments: self.payload(&MESSAGE_ENDS)? };
                self.skip_message_end();
                if self.is_quotation || self.is_quoted(begin) {
                    return None;
                }
                self.keep_calls(begin, vec![call]);
                return Some(());
            }
            _ if self.is_quoted(begin) => return None,
            (Some("analysis"), _) => {
                self.keep_text(begin);
                let end = self.at + message_length(self.rest());
                self.parts.push(Part::Thought(&self.text[self.at..end]));
                self.at = end;
            }
            (Some("final" | "commentary"), _) => {
                self.keep_text(begin);
                self.parts.push(Part::Thought(""));
                self.kept = self.at;
                let end = self.at + message_length(self.rest());
                let is_quotation = self.is_quotation;
                self.scan(end);
                self.is_quotation = is_quotation;
            }
            _ => return None,
        }
        self.skip_message_end();
        self.parts.push(Part::Thought(""));
        self.kept = self.at;
        Some(())
    }

    fn skip_message_end(&mut self) {
        let _is_closed = MESSAGE_ENDS[..3].iter().any(|mark| self.skip(mark));
    }

    fn keep_text(&mut self, end: usize) {
        if self.kept < end {
            self.parts.push(Part::Text(&self.text[self.kept..end]));
        }
        self.kept = end;
    }

    fn keep_calls(&mut self, begin: usize, calls: Vec<WrittenCall>) {
        self.keep_text(begin);
        self.parts.push(Part::Calls(&self.text[begin..self.at], calls));
        self.kept = self.at;
    }

    /// True if the part that begins here, and has just been read, is in a block that began within a line, or in a code span: a span is open before it in its line, and a
    /// backquote follows in the line. Backquotes in parts before it do not count.
    fn is_quoted(&mut self, begin: usize) -> bool {
        let Span { at, quotes } = std::mem::take(&mut self.span);
        let (from, quotes) = if at < self.kept { (self.kept, 0) } else { (at, quotes) };
        let quotes = open_quotes(&self.text[from..begin], quotes);
        self.span = Span { at: begin, quotes };
        quotes > 0
            && self.find("`").is_some_and(|quote| self.find("\n").is_none_or(|line_end| quote < line_end))
    }
}

/// The place of a call directly behind the fence that closes the open block (DeepSeek, ollama/ollama#14360).
fn call_behind_fence(begin: usize, line: &str, open: Fence<'_>) -> Option<usize> {
    let code = without_indent(line);
    let behind = code.trim_start_matches(open.char);
    let is_call =
        || CALLS.iter().map(|(mark, ..)| mark).chain(&SECTIONS).any(|mark| behind.starts_with(mark));
    (code.len() - behind.len() >= open.length && is_call()).then(|| begin + line.len() - behind.len())
}

/// True if the end of this part of a line of code is in quotes. The apostrophe of a word is not a quote.
fn ends_in_quotes(code: &str) -> bool {
    let (mut open, mut before) = (None, ' ');
    for char in code.chars() {
        match open {
            Some(quote) if char == quote => open = None,
            None if matches!(char, '"' | '`') || char == '\'' && !before.is_alphanumeric() => {
                open = Some(char)
            }
            _ => {}
        }
        before = char;
    }
    open.is_some()
}

/// The length of an opening mark at the start of a text. A tag may have attributes.
pub(super) fn opening_length(text: &str, mark: &str) -> Option<usize> {
    if text.starts_with(mark) {
        return Some(mark.len());
    }
    let name = mark.strip_suffix('>').filter(|name| !name.ends_with('|'))?;
    let behind = text.strip_prefix(name)?.strip_prefix([' ', '\t'])?;
    let near = &behind[..behind.floor_char_boundary(NEAR_BYTES)];
    let attributes = &near[..near.find(['>', '<', '\n', '`'])?];
    let end = text.len() - behind.len() + attributes.len();
    (attributes.contains('=') && text[end..].starts_with('>')).then_some(end + 1)
}
