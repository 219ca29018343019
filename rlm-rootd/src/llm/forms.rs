//! The forms in which models write calls and thoughts that their server did not parse. Reading is lenient, but nothing
//! is guessed where two readings are possible.
//!
//! A reply is split into text, thoughts and calls. Thoughts and calls begin with marks that no model writes by chance;
//! forms without such marks are not read: a bare JSON object, a pythonic list, `python_tag` with Python code. A mark
//! in a fenced block or in a code span of its line is text, and so is one in the arguments of a call. A call that is not
//! complete is not a call. The end of a thought that the prompt has opened is read in blocks as well, where code does not
//! have it: see [`Scanner::closing_mark`].

use std::borrow::Cow;
use std::collections::HashMap;
use std::io::Read;
use std::ops::Range;

use serde_json::{Deserializer, Map, Value as Json};

/// Longest name of a tool or parameter, and longest header of a harmony message, in bytes.
const NEAR_BYTES: usize = 256;

/// Marks around thoughts: those of SGLang's `reasoning_parser.py` and Open WebUI's `middleware.py`. Those in lower case are read in
/// any, and tags may have attributes.
const THOUGHTS: &[(&str, &str)] = &[
    ("<think>", "</think>"),
    ("<thinking>", "</thinking>"),
    ("<thought>", "</thought>"),
    ("<reason>", "</reason>"),
    ("<reasoning>", "</reasoning>"),
    ("<seed:think>", "</seed:think>"),
    ("<mm:think>", "</mm:think>"),
    ("[THINK]", "[/THINK]"),
    ("◁think▷", "◁/think▷"),
    ("<|begin_of_thought|>", "<|end_of_thought|>"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
    ("<|channel>thought", "<channel|>"),
    ("<|open|>think<|sep|>", "<|close|>think<|sep|>"),
];

/// Reads calls after their opening mark, up to and including the closing mark.
type CallReader = fn(&mut Scanner<'_>, close: &'static str) -> Option<Vec<WrittenCall>>;

/// Marks before and after calls.
const CALLS: &[(&str, &str, CallReader)] = &[
    ("<tool_call>", "</tool_call>", |scanner, close| scanner.tagged(close)),
    ("<seed:tool_call>", "</seed:tool_call>", |scanner, close| scanner.tagged(close)),
    ("<longcat_tool_call>", "</longcat_tool_call>", |scanner, close| scanner.tagged(close)),
    ("<function=", "</tool_call>", |scanner, close| scanner.bare_function(close)),
    ("<minimax:tool_call>", "</minimax:tool_call>", |scanner, close| scanner.invokes(close)),
    ("<function_calls>", "</function_calls>", |scanner, close| scanner.invokes(close)),
    ("<｜DSML｜function_calls>", "</｜DSML｜function_calls>", |scanner, close| scanner.invokes(close)),
    ("<｜DSML｜tool_calls>", "</｜DSML｜tool_calls>", |scanner, close| scanner.invokes(close)),
    ("[TOOL_CALLS]", "", |scanner, close| scanner.mistral(close)),
    ("<|python_tag|>", "", |scanner, close| scanner.listed(close)),
    ("<|START_ACTION|>", "<|END_ACTION|>", |scanner, close| scanner.listed(close)),
    ("<|tool_call_begin|>", "<|tool_call_end|>", |scanner, close| scanner.kimi(close)),
    ("<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>", |scanner, close| scanner.deepseek(close)),
];

/// Marks that may follow the end of a parameter's value. Elsewhere, the same mark belongs to the value.
const AFTER_VALUES: &[(&str, &[&str])] = &[
    ("</parameter>", &["<parameter=", "</function>", "<parameter name=", "</invoke>"]),
    ("</｜DSML｜parameter>", &["<｜DSML｜parameter name=", "</｜DSML｜invoke>"]),
    ("</arg_value>", &["<arg_key>", "</tool_call>", "\\n<arg_key>", "\\n</tool_call>"]),
];

/// Marks that end a harmony message. The last two begin the next one.
const MESSAGE_ENDS: [&str; 5] = ["<|end|>", "<|call|>", "<|return|>", "<|start|>", "<|channel|>"];

/// Prefixes of tools: OpenAI's and Kimi's namespace, and Gemini's.
const PREFIXES: [&str; 4] = ["functions.", "tools.", "default_api.", "default_api:"];

/// A call that a model wrote into its text.
#[derive(Clone, Debug, PartialEq)]
pub struct WrittenCall {
    /// Name as written.
    pub name: String,
    /// JSON text: as written, or an object of named parameters, which are strings unless the form says otherwise.
    pub arguments: String,
}

/// The text without the model's thoughts, so that code in them is never run. Line breaks between a thought and the text after it
/// are also removed.
pub fn without_thoughts(text: &str) -> Cow<'_, str> {
    let parts = parts(text);
    if !parts.iter().any(|part| matches!(part, Part::Thought(_))) {
        return Cow::Borrowed(text);
    }
    let (mut kept, mut has_gap) = (String::new(), false);
    for part in parts {
        let (Part::Text(text) | Part::Calls(text, _)) = part else {
            has_gap = true;
            continue;
        };
        let follows_thought = std::mem::take(&mut has_gap);
        if follows_thought && kept.is_empty() {
            kept.push_str(text.trim_start_matches(['\n', '\r']));
            continue;
        }
        // A fence after a thought begins a line.
        if follows_thought && !kept.ends_with('\n') && !text.starts_with('\n') {
            kept.push('\n');
        }
        kept.push_str(text);
    }
    Cow::Owned(kept)
}

/// The model's thoughts in a text, to show them. None if there are none.
pub fn thoughts(text: &str) -> Option<String> {
    let thoughts = parts(text).into_iter().filter_map(|part| match part {
        Part::Thought(thought) if !thought.trim().is_empty() => Some(thought.trim()),
        _ => None,
    });
    let thoughts = thoughts.collect::<Vec<_>>().join("\n\n");
    (!thoughts.is_empty()).then_some(thoughts)
}

/// The calls in a text, in order. Thoughts in it are skipped.
pub fn written_calls(text: &str) -> Vec<WrittenCall> {
    let calls = parts(text).into_iter().filter_map(|part| match part {
        Part::Calls(_, calls) => Some(calls),
        _ => None,
    });
    calls.flatten().collect()
}

/// The tool that a written name means: itself, or with the prefixes and suffixes that servers and models add.
pub fn tool_named<'a>(written: &str, names: &[&'a str]) -> Option<&'a str> {
    let written = written.trim();
    if let Some(exact) = names.iter().find(|name| **name == written) {
        return Some(exact);
    }
    let name = written.split("<|").next().unwrap_or_default().trim();
    let unnumbered = match name.rsplit_once(':') {
        Some((name, number)) if number.parse::<u32>().is_ok() => name,
        _ => name,
    };
    let readings = [name, unnumbered].into_iter().flat_map(|name| {
        let unprefixed = PREFIXES.iter().find_map(|prefix| name.strip_prefix(prefix));
        [name, unprefixed.unwrap_or(name)]
    });
    let readings: Vec<_> = readings.collect();
    let mut meant = names.iter().filter(|name| readings.contains(name));
    let first = meant.next()?;
    meant.all(|other| other == first).then_some(first)
}

/// The fault of arguments that are not an object.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ArgumentsFault {
    /// Not JSON; the parser's message.
    #[error("not JSON: {0}")]
    NotJson(String),
    /// JSON, but not an object.
    #[error("not an object")]
    NotAnObject,
}

/// The arguments of a call: as JSON, or with raw line breaks and tabs in its strings. Blank text is an empty object,
/// and a string that contains an object is that object.
pub fn arguments(text: &str) -> Result<Map<String, Json>, ArgumentsFault> {
    if text.trim().is_empty() {
        return Ok(Map::new());
    }
    match whole_json(text).map_err(ArgumentsFault::NotJson)? {
        Json::Object(arguments) => Ok(arguments),
        Json::String(inner) => match whole_json(&inner) {
            Ok(Json::Object(arguments)) => Ok(arguments),
            _ => Err(ArgumentsFault::NotAnObject),
        },
        _ => Err(ArgumentsFault::NotAnObject),
    }
}

/// The fenced blocks of a text.
#[derive(Debug, PartialEq)]
pub enum Fenced {
    /// No block has one of the tags.
    Nothing,
    /// The contents of all blocks with one of our tags.
    Code(String),
    /// The last block is ours and is not closed.
    Open,
    /// No block has one of our tags, but one has this tag of the other language.
    OtherLanguage(String),
}

/// Reads the fenced blocks of a text that have one of `tags`.
pub fn fenced(text: &str, tags: &[&str], other_tags: &[&str]) -> Fenced {
    let (mut code, mut found, mut other) = (String::new(), false, None);
    // The open fence, and whether its tag is one of ours.
    let mut open: Option<(Fence<'_>, bool)> = None;
    for line in text.split_inclusive('\n') {
        match (open, Fence::of(line)) {
            (Some((begun, is_ours)), Some(fence)) if fence.closes(begun) => {
                open = None;
                found |= is_ours;
            }
            (Some((_, true)), _) => code.push_str(&line.replace("\r\n", "\n")),
            (None, Some(fence)) => {
                let tag = fence.tag.to_ascii_lowercase();
                open = Some((fence, tags.contains(&tag.as_str())));
                if other.is_none() && other_tags.contains(&tag.as_str()) {
                    other = Some(tag);
                }
                if !code.is_empty() && !code.ends_with('\n') {
                    code.push('\n');
                }
            }
            _ => {}
        }
    }
    match (open, other) {
        (Some((_, true)), _) => Fenced::Open,
        _ if found => Fenced::Code(code),
        (_, Some(tag)) => Fenced::OtherLanguage(tag),
        _ => Fenced::Nothing,
    }
}

/// A fence at the start of a line.
#[derive(Clone, Copy, Debug)]
struct Fence<'a> {
    /// A backquote or a tilde.
    char: char,
    length: usize,
    /// The text behind the fence. That of backquotes has none of them.
    tag: &'a str,
}

impl<'a> Fence<'a> {
    fn of(line: &'a str) -> Option<Self> {
        let line = without_indent(line);
        let char = line.chars().next().filter(|char| matches!(char, '`' | '~'))?;
        let length = line.len() - line.trim_start_matches(char).len();
        let tag = line[length..].split('\n').next().unwrap_or_default();
        let is_fence = length >= 3 && (char == '~' || !tag.contains('`'));
        is_fence.then(|| Self { char, length, tag: tag.trim() })
    }

    /// True if this fence closes a block.
    fn closes(&self, open: Fence<'_>) -> bool {
        self.tag.is_empty() && self.char == open.char && self.length >= open.length
    }
}

/// A line without the white space at its start.
fn without_indent(line: &str) -> &str {
    line.trim_start_matches(|char: char| char.is_whitespace() && char != '\n')
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
fn opening_length(text: &str, mark: &str) -> Option<usize> {
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

/// A part of a reply.
#[derive(Debug)]
enum Part<'a> {
    Text(&'a str),
    /// A thought; empty in place of a mark that is not text.
    Thought(&'a str),
    Calls(&'a str, Vec<WrittenCall>),
}

fn parts(text: &str) -> Vec<Part<'_>> {
    // Most texts have no character that a mark begins with.
    if !text.contains(['<', '[', '◁']) {
        return vec![Part::Text(text)];
    }
    let mut scanner = Scanner {
        text,
        lower: text.to_ascii_lowercase(),
        at: 0,
        end: 0,
        kept: 0,
        parts: Vec::new(),
        values_end: 0,
        found: HashMap::new(),
        span: Span::default(),
    };
    scanner.scan(text.len());
    scanner.parts
}

/// Splits a text into parts, in linear time: values are read once, searches are remembered, and JSON ends at the first mark
/// outside of a string.
struct Scanner<'a> {
    text: &'a str,
    /// The text in lower case, byte by byte.
    lower: String,
    at: usize,
    /// End of the stretch that is scanned.
    end: usize,
    /// Start of the text that is not yet in `parts`.
    kept: usize,
    parts: Vec<Part<'a>>,
    /// End of the last value that was read, even if its call could not be. No call begins before this.
    values_end: usize,
    /// The last search for each mark: its start and its result.
    found: HashMap<&'static str, (usize, Option<usize>)>,
    span: Span,
}

/// The backquotes of a line up to a place.
#[derive(Debug, Default)]
struct Span {
    at: usize,
    /// True if the runs of backquotes are odd in number.
    is_open: bool,
}

/// An open fenced block.
struct Block<'a> {
    fence: Fence<'a>,
    /// True if its code opens a thought, so that the closing mark is code too.
    has_thought: bool,
}

impl<'a> Scanner<'a> {
    fn scan(&mut self, end: usize) {
        let outer = std::mem::replace(&mut self.end, end);
        let mut block = None;
        let mut at_line_start = true;
        while self.at < end {
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
            (Some(open), _) if !open.has_thought => match self.closing_mark(begin, line, open.fence) {
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

    /// The mark in a line of an open block that ends a thought which the prompt has opened: at the beginning of the line, behind a
    /// fence that could close the block, or at the end of the line. In quotes and in the middle of a line it is code.
    fn closing_mark(&self, begin: usize, line: &str, open: Fence<'_>) -> Option<Range<usize>> {
        let place_of = |part: &str| begin + line.len() - part.len();
        let closing_at = |at: usize| {
            let mut marks = THOUGHTS.iter().map(|(_, close)| close);
            let close = marks.find(|close| self.in_any_case(close)[at..self.end].starts_with(**close))?;
            Some(at..at + close.len())
        };
        let code = without_indent(line);
        let behind_fence = without_indent(code.trim_start_matches(open.char));
        let is_fence = code.bytes().take_while(|byte| char::from(*byte) == open.char).count() >= open.length;
        let first = closing_at(place_of(code));
        first.or_else(|| closing_at(place_of(behind_fence)).filter(|_| is_fence)).or_else(|| {
            let end = begin + line.trim_end().len();
            let is_last = |close: &str| self.in_any_case(close)[begin..end].ends_with(close);
            let (_, close) = THOUGHTS.iter().find(|(_, close)| is_last(close))?;
            let at = end - close.len();
            let is_code = ends_in_quotes(&self.text[begin..at]) || self.has_opening_mark(begin..at);
            (!is_code).then_some(at..end)
        })
    }

    fn has_opening_mark(&self, part: Range<usize>) -> bool {
        THOUGHTS.iter().any(|(open, _)| {
            let text = &self.in_any_case(open)[part.clone()];
            let name = open.strip_suffix('>').unwrap_or(open);
            text.match_indices(name).any(|(at, _)| opening_length(&text[at..], open).is_some())
        })
    }

    /// The text in which a mark of thoughts is looked for.
    fn in_any_case(&self, mark: &str) -> &str {
        if mark.bytes().any(|byte| byte.is_ascii_uppercase()) { self.text } else { &self.lower }
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
        let thoughts = || THOUGHTS.iter().filter(|(open, close)| may_be(open) || may_be(close));
        let opened = thoughts().find_map(|(open, close)| {
            Some((opening_length(&self.in_any_case(open)[begin..self.end], open)?, *close))
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
            match calls.filter(|_| !self.is_quoted(begin)) {
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
        self.thought_until(&[close]);
        self.at = self.end.min(self.at + close.len());
        self.kept = self.at;
        true
    }

    /// Makes all before a closing mark a thought: a template wrote the opening mark into the prompt.
    fn end_thought(&mut self, mark: usize) -> bool {
        self.parts = vec![Part::Thought(&self.text[..mark])];
        self.kept = self.at;
        true
    }

    /// Adds a thought up to the first of these marks, or to the end.
    fn thought_until(&mut self, marks: &[&'static str]) {
        let end = self.find_any(marks).unwrap_or(self.end);
        self.parts.push(Part::Thought(&self.text[self.at..end]));
        self.at = end;
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
                self.keep_calls(begin, vec![call]);
                return Some(());
            }
            (Some("analysis"), _) => {
                self.keep_text(begin);
                self.thought_until(&MESSAGE_ENDS);
            }
            (Some("final" | "commentary"), _) => {
                self.keep_text(begin);
                self.parts.push(Part::Thought(""));
                self.kept = self.at;
                let end = self.find_any(&MESSAGE_ENDS).unwrap_or(self.end);
                self.scan(end);
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

    /// True if the part that begins here, and has just been read, is in a code span: a span is open before it in its line, and a
    /// backquote follows in the line. Backquotes in parts before it do not count.
    fn is_quoted(&mut self, begin: usize) -> bool {
        let Span { at, is_open } = std::mem::take(&mut self.span);
        let (from, mut is_open) = if at < self.kept { (self.kept, false) } else { (at, is_open) };
        let bytes = self.text.as_bytes();
        for at in from..begin {
            let begins_run = bytes[at] == b'`' && (at == self.kept || bytes[at - 1] != b'`');
            is_open = bytes[at] != b'\n' && is_open != begins_run;
        }
        self.span = Span { at: begin, is_open };
        is_open && self.find("`").is_some_and(|quote| self.find("\n").is_none_or(|line_end| quote < line_end))
    }
}

/// The forms of calls.
impl Scanner<'_> {
    /// Hermes and Qwen: JSON. Qwen3-Coder: functions with parameters. GLM: a name with keys and values.
    fn tagged(&mut self, close: &'static str) -> Option<Vec<WrittenCall>> {
        if self.rest().trim_start().starts_with(['{', '[']) {
            return self.listed(close);
        }
        let mut calls = Vec::new();
        while self.skip("<function=") {
            calls.push(self.function()?);
        }
        if calls.is_empty() {
            return Some(vec![self.keys_and_values(close)?]);
        }
        self.skip(close);
        Some(calls)
    }

    /// Qwen3-Coder without the opening tag, and Llama 3.1's custom calls.
    fn bare_function(&mut self, close: &'static str) -> Option<Vec<WrittenCall>> {
        let call = self.function()?;
        self.skip(close);
        Some(vec![call])
    }

    fn function(&mut self) -> Option<WrittenCall> {
        let name = checked(self.until(">")?)?;
        let arguments = self.object().or_else(|| self.parameters("<parameter=", "</parameter>"))?;
        self.skip("</function>").then_some(WrittenCall { name, arguments })
    }

    fn keys_and_values(&mut self, close: &'static str) -> Option<WrittenCall> {
        let name = checked(self.before(['\n', '<', '\\'])?)?;
        let mut values = Map::new();
        while self.skip_breaks("<arg_key>") {
            let key = checked(self.until("</arg_key>")?)?;
            let value = self.skip_breaks("<arg_value>").then(|| self.value("</arg_value>"))??;
            if values.insert(key, without_breaks(value).into()).is_some() {
                return None;
            }
        }
        self.skip_breaks(close).then(|| WrittenCall { name, arguments: Json::Object(values).to_string() })
    }

    /// MiniMax M2, DeepSeek V3.2 and V4.
    fn invokes(&mut self, close: &'static str) -> Option<Vec<WrittenCall>> {
        let [open, end, parameter, parameter_end] = if close.contains("DSML") {
            [
                "<｜DSML｜invoke name=\"",
                "</｜DSML｜invoke>",
                "<｜DSML｜parameter name=\"",
                "</｜DSML｜parameter>",
            ]
        } else {
            ["<invoke name=\"", "</invoke>", "<parameter name=\"", "</parameter>"]
        };
        let mut calls = Vec::new();
        while self.skip(open) {
            let name = checked(self.until("\"")?)?;
            self.until(">")?;
            let arguments = self.object().or_else(|| self.parameters(parameter, parameter_end))?;
            calls.push(self.skip(end).then_some(WrittenCall { name, arguments })?);
        }
        self.skip(close);
        (!calls.is_empty()).then_some(calls)
    }

    /// JSON objects or lists: Llama, Cohere, older Mistral models.
    fn listed(&mut self, close: &'static str) -> Option<Vec<WrittenCall>> {
        let mut calls = Vec::new();
        while let Some((json, bytes)) = first_json(self.rest()) {
            let Some(more) = calls_of(&json) else { break };
            calls.extend(more);
            self.at += bytes;
            let _is_separated = self.skip(";") || self.skip(",");
        }
        self.skip(close);
        (!calls.is_empty()).then_some(calls)
    }

    /// `NAME[ARGS]{…}` or `NAME[CALL_ID]ID[ARGS]{…}`, or a list.
    fn mistral(&mut self, close: &'static str) -> Option<Vec<WrittenCall>> {
        let name = self.before(['[', '{'])?.trim();
        if name.is_empty() {
            return self.listed(close);
        }
        if self.skip("[CALL_ID]") {
            self.until("[ARGS]")?;
        } else {
            self.skip("[ARGS]");
        }
        Some(vec![WrittenCall { name: checked(name)?, arguments: self.object()? }])
    }

    fn kimi(&mut self, close: &'static str) -> Option<Vec<WrittenCall>> {
        let name = checked(self.until("<|tool_call_argument_begin|>")?)?;
        let arguments = self.payload(&[close])?;
        self.skip(close);
        Some(vec![WrittenCall { name, arguments }])
    }

    /// V3 and R1: `function`, the name, a fence. V3.1: the name.
    fn deepseek(&mut self, close: &'static str) -> Option<Vec<WrittenCall>> {
        let mut name = self.until("<｜tool▁sep｜>")?;
        if name.trim() == "function" && !self.rest().starts_with('{') {
            name = self.until("\n")?;
        }
        let name = checked(name)?;
        self.skip("```json");
        let arguments = self.payload(&[close])?.trim_end_matches('`').trim_end().to_owned();
        self.skip("```");
        self.skip(close);
        Some(vec![WrittenCall { name, arguments }])
    }
}

/// The pieces of calls.
impl<'a> Scanner<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..self.end]
    }

    /// Skips a mark and the white space before it, or nothing.
    fn skip(&mut self, mark: &str) -> bool {
        let behind = self.rest().trim_start().strip_prefix(mark);
        self.at = behind.map_or(self.at, |behind| self.end - behind.len());
        behind.is_some()
    }

    /// Skips a mark behind line breaks, some of which GLM writes as a backslash and an `n`.
    fn skip_breaks(&mut self, mark: &str) -> bool {
        while self.skip("\\n") {}
        self.skip(mark)
    }

    /// The text before a mark, if that is near.
    fn until(&mut self, mark: &str) -> Option<&'a str> {
        let near = &self.rest()[..self.rest().floor_char_boundary(NEAR_BYTES)];
        let (before, _) = near.split_once(mark)?;
        self.at += before.len() + mark.len();
        Some(before)
    }

    /// The text before the first of these characters, if that is near.
    fn before<const N: usize>(&mut self, chars: [char; N]) -> Option<&'a str> {
        let near = &self.rest()[..self.rest().floor_char_boundary(NEAR_BYTES)];
        let before = &near[..near.find(chars)?];
        self.at += before.len();
        Some(before)
    }

    fn find_any(&mut self, marks: &[&'static str]) -> Option<usize> {
        marks.iter().filter_map(|mark| self.find(mark)).min()
    }

    /// The next place of a mark. The end of a value is found only where a value can end.
    fn find(&mut self, mark: &'static str) -> Option<usize> {
        let (text, from) = (self.text, self.at);
        let known = self.found.get(mark).copied();
        let known = known.filter(|(start, found)| *start <= from && found.is_none_or(|found| from <= found));
        let known = known.unwrap_or_else(|| {
            let after = AFTER_VALUES.iter().find(|(end, _)| *end == mark).map(|(_, after)| *after);
            let is_of_thought = THOUGHTS.iter().any(|(_, close)| *close == mark);
            let searched = if is_of_thought { self.in_any_case(mark) } else { text };
            let mut places = searched[from..].match_indices(mark).map(|(place, _)| from + place);
            let found = places.find(|place| {
                let behind = text[place + mark.len()..].trim_start();
                after.is_none_or(|after| after.iter().any(|after| behind.starts_with(after)))
            });
            (from, found)
        });
        self.found.insert(mark, known);
        known.1.filter(|found| found + mark.len() <= self.end)
    }

    fn value(&mut self, close: &'static str) -> Option<&'a str> {
        let end = self.find(close)?;
        let value = &self.text[self.at..end];
        self.at = end + close.len();
        self.values_end = self.at;
        Some(value)
    }

    /// Named parameters as a JSON object. Without the tool's schema, values are strings, unless an attribute says so.
    fn parameters(&mut self, open: &str, close: &'static str) -> Option<String> {
        let mut parameters = Map::new();
        while self.skip(open) {
            let head = self.until(">")?;
            let (key, attributes) = head.split_once('"').unwrap_or((head, ""));
            let value = self.value(close)?;
            let value = match attributes.trim() {
                r#"string="true""# => value.into(),
                r#"string="false""# => whole_json(value).unwrap_or_else(|_| value.into()),
                _ => without_breaks(value).into(),
            };
            if parameters.insert(checked(key)?, value).is_some() {
                return None;
            }
        }
        Some(Json::Object(parameters).to_string())
    }

    /// A JSON object as written, or the faulty text before the closing mark, so that the model learns of the fault.
    fn payload(&mut self, closes: &[&'static str]) -> Option<String> {
        self.object().or_else(|| {
            let end = self.find_any(closes)?;
            let written = self.text[self.at..end].trim();
            self.at = end;
            Some(written.to_owned())
        })
    }

    fn object(&mut self) -> Option<String> {
        let (json, bytes) = first_json(self.rest())?;
        let written = json.is_object().then(|| self.rest()[..bytes].trim_start())?;
        self.at += bytes;
        Some(written.to_owned())
    }
}

/// A name without surrounding white space. None if it does not look like a name.
fn checked(name: &str) -> Option<String> {
    let name = name.trim();
    let is_name = |char: char| char.is_alphanumeric() || "_-.:/".contains(char);
    (!name.is_empty() && name.chars().all(is_name)).then(|| name.to_owned())
}

/// A value without the line breaks between it and its tags.
fn without_breaks(value: &str) -> &str {
    let value = value.strip_prefix("\r\n").or_else(|| value.strip_prefix('\n')).unwrap_or(value);
    value.strip_suffix("\r\n").or_else(|| value.strip_suffix('\n')).unwrap_or(value)
}

/// The calls in a JSON object or list. None if anything else is in it.
fn calls_of(json: &Json) -> Option<Vec<WrittenCall>> {
    json.as_array().map_or(std::slice::from_ref(json), Vec::as_slice).iter().map(call_of).collect()
}

fn call_of(call: &Json) -> Option<WrittenCall> {
    let name = call.get("name").or_else(|| call.get("tool_name"))?.as_str()?;
    let arguments = match (call.get("arguments"), call.get("parameters")) {
        (Some(_), Some(_)) => return None,
        (Some(Json::String(text)), None) | (None, Some(Json::String(text))) => text.clone(),
        (Some(json), None) | (None, Some(json)) => json.to_string(),
        (None, None) => "{}".to_owned(),
    };
    (!name.is_empty()).then(|| WrittenCall { name: name.to_owned(), arguments })
}

/// A text that is JSON, strictly or leniently. The error is that of the strict reading.
fn whole_json(text: &str) -> Result<Json, String> {
    serde_json::from_str(text).or_else(|error: serde_json::Error| match first_json(text) {
        Some((json, bytes)) if text[bytes..].trim().is_empty() => Ok(json),
        _ => Err(error.to_string()),
    })
}

/// The object, list or string at the start of a text, with raw line breaks and tabs in strings, and where it ends.
fn first_json(text: &str) -> Option<(Json, usize)> {
    if !text.trim_start().starts_with(['{', '[', '"']) {
        return None;
    }
    let mut bytes =
        LenientBytes { bytes: text.as_bytes(), at: 0, in_string: false, escaped: false, escape: None };
    let json = Deserializer::from_reader(&mut bytes).into_iter().next()?.ok()?;
    Some((json, bytes.at))
}

/// JSON whose raw line breaks and tabs in strings are escaped.
struct LenientBytes<'a> {
    bytes: &'a [u8],
    at: usize,
    in_string: bool,
    /// True behind a backslash, where an escaped line break would be a backslash and an `n`.
    escaped: bool,
    /// Second byte of an escape.
    escape: Option<u8>,
}

impl Read for LenientBytes<'_> {
    /// Reads one byte at most: so `at` is where the parser stopped.
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let Some(slot) = buffer.first_mut() else { return Ok(0) };
        let Some(byte) = self.escape.take().or_else(|| self.next_byte()) else { return Ok(0) };
        *slot = byte;
        Ok(1)
    }
}

impl LenientBytes<'_> {
    fn next_byte(&mut self) -> Option<u8> {
        let byte = *self.bytes.get(self.at)?;
        self.at += 1;
        let escaped = std::mem::take(&mut self.escaped);
        self.escape = match byte {
            _ if escaped || !self.in_string => None,
            b'\n' => Some(b'n'),
            b'\r' => Some(b'r'),
            b'\t' => Some(b't'),
            _ => None,
        };
        self.escaped = byte == b'\\' && self.in_string && !escaped;
        self.in_string ^= byte == b'"' && !escaped;
        Some(self.escape.map_or(byte, |_| b'\\'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CODE: &str = r#"{"code":"ls"}"#;

    /// Texts that are calls of `call_bash_repl` with the code `ls`.
    const CALLS_OF_LS: &[&str] = &[
        // Hermes: vllm-project/vllm, vllm/tool_parsers/hermes_tool_parser.py.
        r#"<tool_call>{"name": "call_bash_repl", "arguments": {"code": "ls"}}</tool_call>"#,
        "<tool_call>\n{\"name\": \"call_bash_repl\", \"arguments\": {\"code\": \"ls\"}}\n</tool_call>",
        // Without the closing tag at the end: the same file, `<tool_call>(.*)`.
        r#"<tool_call>{"name": "call_bash_repl", "arguments": {"code": "ls"}}"#,
        // Arguments as JSON text, Granite 4: https://github.com/vllm-project/vllm/pull/54964.
        r#"<tool_call>{"name": "call_bash_repl", "arguments": "{\"code\":\"ls\"}"}</tool_call>"#,
        // LongCat: sgl-project/sglang, python/sglang/srt/function_call/longcat_detector.py.
        "<longcat_tool_call>\n{\"name\": \"call_bash_repl\", \"arguments\": {\"code\": \"ls\"}}\n</longcat_tool_call>",
        // Qwen3-Coder: vllm-project/vllm, vllm/tool_parsers/qwen3coder_tool_parser.py.
        "<tool_call>\n<function=call_bash_repl>\n<parameter=code>\nls\n</parameter>\n</function>\n</tool_call>",
        // Without the opening tag: https://github.com/ollama/ollama/issues/16686.
        "I look.\n\n<function=call_bash_repl>\n<parameter=code>\nls\n</parameter>\n</function>\n</tool_call>",
        // Llama 3.1's custom calls: https://www.llama.com/docs/model-cards-and-prompt-formats/llama3_1.
        r#"<function=call_bash_repl>{"code":"ls"}</function>"#,
        // Seed-OSS: vllm-project/vllm, vllm/tool_parsers/seed_oss_tool_parser.py.
        "<seed:tool_call>\n<function=call_bash_repl>\n<parameter=code>ls</parameter>\n</function>\n</seed:tool_call>",
        // GLM-4.5 and 4.6: sgl-project/sglang, python/sglang/srt/function_call/glm4_moe_detector.py.
        "<tool_call>call_bash_repl\n<arg_key>code</arg_key>\n<arg_value>ls</arg_value>\n</tool_call>",
        // With backslashes for line breaks: https://github.com/sgl-project/sglang/pull/12456.
        r"<tool_call>call_bash_repl\n<arg_key>code</arg_key>\n<arg_value>ls</arg_value>\n</tool_call>",
        // GLM-4.7 and 5: sgl-project/sglang, python/sglang/srt/function_call/glm47_moe_detector.py.
        "<tool_call>call_bash_repl<arg_key>code</arg_key><arg_value>ls</arg_value></tool_call>",
        // Mistral before and from tokenizer 11 on: vllm-project/vllm, vllm/tool_parsers/mistral_tool_parser.py.
        r#"[TOOL_CALLS] [{"name": "call_bash_repl", "arguments": {"code": "ls"}}]"#,
        r#"[TOOL_CALLS]call_bash_repl{"code":"ls"}"#,
        r#"[TOOL_CALLS]call_bash_repl[ARGS]{"code":"ls"}"#,
        // Tokenizer 11: mistralai/mistral-common, src/mistral_common/tokens/tokenizers/instruct.py.
        r#"[TOOL_CALLS]call_bash_repl[CALL_ID]a1b2c3d4e[ARGS]{"code":"ls"}"#,
        // DeepSeek V3 and R1: sgl-project/sglang, python/sglang/srt/function_call/deepseekv3_detector.py.
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>call_bash_repl\n```json\n{\"code\":\"ls\"}\n```\
         <｜tool▁call▁end｜><｜tool▁calls▁end｜><｜end▁of▁sentence｜>",
        // DeepSeek V3.1: the same folder, deepseekv31_detector.py.
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>call_bash_repl<｜tool▁sep｜>{\"code\":\"ls\"}<｜tool▁call▁end｜>",
        // DeepSeek V3.2, three of its forms: the same folder, deepseekv32_detector.py.
        "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"call_bash_repl\">\n<｜DSML｜parameter name=\"code\" \
         string=\"true\">ls</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>",
        "<｜DSML｜function_calls><｜DSML｜invoke name=\"call_bash_repl\">{\"code\":\"ls\"}</｜DSML｜invoke>",
        "<function_calls>\n<invoke name=\"call_bash_repl\">\n<parameter name=\"code\" string=\"true\">ls</parameter>\n\
         </invoke>\n</function_calls>",
        // DeepSeek V4: vllm-project/vllm, vllm/tool_parsers/deepseekv4_tool_parser.py.
        "<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"call_bash_repl\">\n<｜DSML｜parameter name=\"code\" \
         string=\"true\">ls</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>",
        // MiniMax M2: sgl-project/sglang, python/sglang/srt/function_call/minimax_m2.py.
        "<minimax:tool_call>\n<invoke name=\"call_bash_repl\">\n<parameter name=\"code\">ls</parameter>\n</invoke>\n\
         </minimax:tool_call>",
        // Llama 3: sgl-project/sglang, python/sglang/srt/function_call/llama32_detector.py.
        r#"<|python_tag|>{"type": "function", "name": "call_bash_repl", "parameters": {"code": "ls"}}"#,
        // Cohere: the same folder, cohere_command4_detector.py.
        "<|START_ACTION|>[\n{\"tool_call_id\": \"0\", \"tool_name\": \"call_bash_repl\", \"parameters\": \
         {\"code\": \"ls\"}}\n]<|END_ACTION|>",
    ];

    /// Calls of `call_bash_repl` by names that need `tool_named`.
    const CALLS_WITH_PREFIXES: &[&str] = &[
        // Kimi K2: https://huggingface.co/moonshotai/Kimi-K2-Instruct/blob/main/docs/tool_call_guidance.md.
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.call_bash_repl:0<|tool_call_argument_begin|>\
         {\"code\":\"ls\"}<|tool_call_end|><|tool_calls_section_end|>",
        // gpt-oss: https://github.com/openai/harmony/blob/main/docs/format.md, "Receiving tool calls".
        "<|channel|>analysis<|message|>Need ls.<|end|><|start|>assistant<|channel|>commentary \
         to=functions.call_bash_repl <|constrain|>json<|message|>{\"code\":\"ls\"}<|call|>",
        "<|start|>assistant to=functions.call_bash_repl<|channel|>commentary json<|message|>{\"code\":\"ls\"}",
        // On the analysis channel: https://github.com/openvinotoolkit/model_server/pull/3863.
        "<|channel|>analysis to=functions.call_bash_repl code<|message|>{\"code\":\"ls\"}<|call|>",
    ];

    fn call(name: &str, arguments: &str) -> WrittenCall {
        WrittenCall { name: name.to_owned(), arguments: arguments.to_owned() }
    }

    #[test]
    fn every_form_is_one_call() {
        for text in CALLS_OF_LS.iter().chain(CALLS_WITH_PREFIXES) {
            let calls = written_calls(text);
            assert_eq!(calls.len(), 1, "{text}");
            assert_eq!(tool_named(&calls[0].name, &["call_bash_repl"]), Some("call_bash_repl"), "{text}");
            assert_eq!(calls[0].arguments, CODE, "{text}");
            // Behind thoughts and text, and among other calls.
            let text = format!("<think>```\n<tool_call></think>\nI look.\n{text}\n{text}");
            assert_eq!(written_calls(&text).len(), 2, "{text}");
            assert_eq!(written_calls(&without_thoughts(&text)).len(), 2, "{text}");
        }
        for text in CALLS_OF_LS {
            assert_eq!(written_calls(text), [call("call_bash_repl", CODE)], "{text}");
        }
    }

    #[test]
    fn several_calls_stand_in_one_mark() {
        let expected = [call("a", r#"{"x":1}"#), call("b", "{}")];
        for text in [
            r#"<tool_call>{"name": "a", "arguments": {"x": 1}}</tool_call> <tool_call>{"name": "b"}</tool_call>"#,
            r#"<tool_call>{"name": "a", "arguments": {"x": 1}}<tool_call>{"name": "b"}"#,
            r#"[TOOL_CALLS][{"name": "a", "arguments": {"x": 1}}, {"name": "b", "arguments": {}}]"#,
            r#"[TOOL_CALLS]a[ARGS]{"x":1}[TOOL_CALLS]b[ARGS]{}"#,
            r#"<|python_tag|>{"name": "a", "parameters": {"x": 1}}; {"name": "b", "parameters": {}}"#,
            r#"<function_calls><invoke name="a">{"x":1}</invoke><invoke name="b"></invoke></function_calls>"#,
            r#"<tool_call><function=a>{"x":1}</function><function=b></function></tool_call>"#,
        ] {
            assert_eq!(written_calls(text), expected, "{text}");
        }
        let glm = "<tool_call>look\n</tool_call>\n<tool_call>list_all</tool_call>";
        assert_eq!(written_calls(glm), [call("look", "{}"), call("list_all", "{}")]);
    }

    #[test]
    fn values_are_as_written() {
        let qwen = |value: &str| {
            let text =
                format!("<tool_call><function=f><parameter=code>{value}</parameter></function></tool_call>");
            let calls = written_calls(&text);
            assert_eq!(calls.len(), 1, "{text}");
            arguments(&calls[0].arguments).unwrap()["code"].as_str().unwrap().to_owned()
        };
        for (written, value) in [
            ("\n  if x:\n    y\n", "  if x:\n    y"),
            ("\r\nls\r\n", "ls"),
            ("\n\nls\n\n", "\nls\n"),
            ("", ""),
            ("3", "3"),
            ("null", "null"),
            (r#"{"a": 1}"#, r#"{"a": 1}"#),
            ("print('</parameter>')", "print('</parameter>')"),
            (
                "print('<think>', '</function>', '</tool_call>')",
                "print('<think>', '</function>', '</tool_call>')",
            ),
            ("```bash\nls\n```", "```bash\nls\n```"),
            (
                "print('<tool_call>{\"name\": \"a\"}</tool_call>')",
                "print('<tool_call>{\"name\": \"a\"}</tool_call>')",
            ),
        ] {
            assert_eq!(qwen(written), value);
        }
        // DeepSeek says which values are JSON.
        let deepseek = "<｜DSML｜function_calls><｜DSML｜invoke name=\"f\"><｜DSML｜parameter name=\"n\" string=\"false\">3\
                        </｜DSML｜parameter><｜DSML｜parameter name=\"s\" string=\"true\">\n3</｜DSML｜parameter></｜DSML｜invoke>";
        assert_eq!(written_calls(deepseek), [call("f", r#"{"n":3,"s":"\n3"}"#)]);
        // Marks in the strings of JSON are text.
        let hermes =
            r#"<tool_call>{"name": "f", "arguments": {"code": "echo '</tool_call><think>```'"}}</tool_call>"#;
        assert_eq!(written_calls(hermes), [call("f", r#"{"code":"echo '</tool_call><think>```'"}"#)]);
        assert_eq!(thoughts(hermes), None);
        // Raw line breaks in strings.
        let raw = "<tool_call>{\"name\": \"f\", \"arguments\": {\"code\": \"ls\n\tpwd\"}}</tool_call>";
        assert_eq!(written_calls(raw), [call("f", r#"{"code":"ls\n\tpwd"}"#)]);
    }

    #[test]
    fn faulty_arguments_between_marks_are_a_call() {
        // The model is told of the fault in its JSON, as in vLLM's mistral_tool_parser.py.
        let faulty = r#"{"code": "echo "hi""}"#;
        for text in [
            format!("<|tool_call_begin|>f:0<|tool_call_argument_begin|>{faulty}<|tool_call_end|>"),
            format!("<｜tool▁call▁begin｜>f<｜tool▁sep｜>{faulty}<｜tool▁call▁end｜>"),
            format!(
                "<｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{faulty}\n```<｜tool▁call▁end｜>"
            ),
            format!("<|channel|>commentary to=functions.f<|message|>{faulty}<|call|>"),
        ] {
            let calls = written_calls(&text);
            assert_eq!(calls.len(), 1, "{text}");
            assert_eq!(tool_named(&calls[0].name, &["f"]), Some("f"));
            assert_eq!(calls[0].arguments, faulty);
        }
    }

    #[test]
    fn what_is_not_a_call_is_text() {
        for text in [
            r#"{"name": "f", "arguments": {}}"#,
            "[f(code='ls')]",
            "<|python_tag|>print(1)",
            "<tool_call>",
            "<tool_call>do it now</tool_call>",
            "<tool_call></tool_call>",
            r#"<tool_call>{"name": "f", "arguments": {"code": "l"#,
            r#"<tool_call>{"arguments": {}}</tool_call>"#,
            r#"<tool_call>{"name": "f", "arguments": {}, "parameters": {}}</tool_call>"#,
            "<tool_call><function=f><parameter=code>ls</tool_call>",
            "<tool_call><function=f><parameter=code>ls</parameter></tool_call>",
            "<tool_call><function=f><parameter=a>1</parameter><parameter=a>2</parameter></function></tool_call>",
            "<tool_call>f<arg_key>code</arg_key><arg_value>ls</arg_value>",
            "[TOOL_CALLS] are the mark of Mistral",
            "<|channel|>commentary to=functions.f<|message|>{\"code\": \"l",
            "Write `<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>` to call.",
            "```xml\n<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>\n```\n",
            "````\n```\n<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>\n```\n````\n",
            "The log has `x = <tool_call>{\"name\": \"f\"}</tool_call> ` in it.",
            "Not ``<tool_call>{\"name\": \"f\"}</tool_call>``, and not `a <tool_call>{\"name\": \"f\"}</tool_call>`.",
            "~~~\n<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>\n```\n~~~\n",
            "<think><tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>",
            "[TOOL_CALLS] I <think> of <tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call> [1]",
            "<function=f><parameter=a>1 <think> 2</parameter> <tool_call>{\"name\": \"f\"}</tool_call>",
        ] {
            assert_eq!(written_calls(text), [], "{text}");
        }
    }

    #[test]
    fn calls_beside_code_spans_are_calls() {
        let call_of =
            |code: &str| format!("<tool_call>{{\"name\": \"f\", \"arguments\": \"{code}\"}}</tool_call>");
        for text in [
            format!("I run `f`: {}, then `g`.", call_of("`a`")),
            format!("It has a ` in it. {}", call_of("")),
            format!("It has a ` in it.\n{} `", call_of("")),
            format!("{}{}{} `f`", call_of("```"), call_of("a"), call_of("`b`")),
        ] {
            assert_eq!(written_calls(&text).len(), text.matches("<tool_call>").count(), "{text}");
        }
    }

    #[test]
    fn thoughts_are_taken_out() {
        for (text, rest, thought) in [
            ("No thought, x < y and [1].", "No thought, x < y and [1].", None),
            ("<think>hm</think>Yes", "Yes", Some("hm")),
            ("<think>a</think>b\n<think>c</think>\nd", "b\n\nd", Some("a\n\nc")),
            ("<think></think>Yes", "Yes", None),
            // Not closed.
            ("Well.\n<think>```bash\nls\n```", "Well.\n", Some("```bash\nls\n```")),
            // Opened by the prompt: DeepSeekR1Detector in SGLang's python/sglang/srt/parser/reasoning_parser.py.
            ("hm</think>Yes", "Yes", Some("hm")),
            ("a</think>b</think>c", "c", Some("a</think>b")),
            ("a</think>b<think>c</think>d", "b\nd", Some("a\n\nc")),
            (
                "<think>use <think> and </think> here</think>Yes",
                "Yes",
                Some("<think>use <think> and </think> here"),
            ),
            // Blocks in thoughts are thoughts, also those left open.
            (
                "<think>\n```bash\nrm x\n```\n</think>\n```bash\nls\n```",
                "```bash\nls\n```",
                Some("```bash\nrm x\n```"),
            ),
            (
                "I try\n```bash\nrm x\n</think>\n```bash\nls\n```",
                "```bash\nls\n```",
                Some("I try\n```bash\nrm x"),
            ),
            // The mark behind the closing fence of a block, and at either end of a line of an open one.
            ("I try\n```bash\nrm x\n```</think>\nYes", "Yes", Some("I try\n```bash\nrm x\n```")),
            ("I try\n~~~bash\nrm x\n~~~~ </think>Use `x`", "Use `x`", Some("I try\n~~~bash\nrm x\n~~~~")),
            ("```bash\nrm x </think>\nYes", "Yes", Some("```bash\nrm x")),
            ("```bash\nI don't know.</think>\nYes", "Yes", Some("```bash\nI don't know.")),
            ("```bash\nrm x\n</think>```bash\nls\n```", "```bash\nls\n```", Some("```bash\nrm x")),
            // Code has it in the middle of a line, in quotes, or behind an opening mark.
            ("```bash\nx </think> y\n```", "```bash\nx </think> y\n```", None),
            ("```bash\nx='a\nb' y='</think>\n'\n```", "```bash\nx='a\nb' y='</think>\n'\n```", None),
            ("```xml\n<think>hm</think>\n```", "```xml\n<think>hm</think>\n```", None),
            // Between two code spans, a mark is none of them.
            ("Maybe `ls`</think>`pwd` it is.", "`pwd` it is.", Some("Maybe `ls`")),
            ("Maybe `ls</think>\n`pwd` it is.", "`pwd` it is.", Some("Maybe `ls")),
            ("Use `a </think> b` and `<think> c`.", "Use `a </think> b` and `<think> c`.", None),
            // Any letter case, and attributes.
            ("<THINK>hm</THINK>Yes", "Yes", Some("hm")),
            ("<Thinking>hm</thinking>Yes", "Yes", Some("hm")),
            ("hm</Think>Yes", "Yes", Some("hm")),
            ("<think lang=\"en\">hm</think>Yes", "Yes", Some("hm")),
            ("<THOUGHT a='1' b=\"2\">\nhm", "", Some("hm")),
            (
                "Vec<Thinker>, <think of it>, [think] and <thinker a=1>",
                "Vec<Thinker>, <think of it>, [think] and <thinker a=1>",
                None,
            ),
            // A fence behind a thought begins a line.
            ("Now<think>hm</think>```bash\nls\n```", "Now\n```bash\nls\n```", Some("hm")),
            // Marks in the code of blocks and in backquotes are text.
            ("```python\nprint('<think>')\n```", "```python\nprint('<think>')\n```", None),
            ("```python\nprint('</think>')\n```", "```python\nprint('</think>')\n```", None),
            ("```\n<think>\nhm\n</think>\n```\n", "```\n<think>\nhm\n</think>\n```\n", None),
            // https://github.com/nesquena/hermes-webui/issues/2152.
            (
                "Use `<think>` to start and `</think>` to end.",
                "Use `<think>` to start and `</think>` to end.",
                None,
            ),
            // Other marks. `<thinking>`, `<reasoning>` and others: Open WebUI, backend/open_webui/utils/middleware.py.
            ("<thinking>hm</thinking>Yes", "Yes", Some("hm")),
            ("<reasoning>hm</reasoning>Yes", "Yes", Some("hm")),
            ("<reason>hm</reason>Yes", "Yes", Some("hm")),
            ("<|begin_of_thought|>hm<|end_of_thought|>Yes", "Yes", Some("hm")),
            // https://github.com/HKUDS/nanobot/pull/2991.
            ("<thought>hm</thought>Yes", "Yes", Some("hm")),
            // Magistral, Kimi, Gemma 4, MiniMax M3, Cohere, Kimi K3: SGLang's reasoning_parser.py.
            ("[THINK]hm[/THINK]Yes", "Yes", Some("hm")),
            ("◁think▷hm◁/think▷Yes", "Yes", Some("hm")),
            ("<|channel>thought\nhm<channel|>Yes", "Yes", Some("hm")),
            ("<mm:think>hm</mm:think>Yes", "Yes", Some("hm")),
            ("<|START_THINKING|>hm<|END_THINKING|>Yes", "Yes", Some("hm")),
            ("<|open|>think<|sep|>hm<|close|>think<|sep|>Yes", "Yes", Some("hm")),
            // Seed-OSS: vllm-project/vllm, vllm/tool_parsers/seed_oss_tool_parser.py.
            ("<seed:think>hm</seed:think>Yes", "Yes", Some("hm")),
            // gpt-oss: https://github.com/openai/harmony/blob/main/docs/format.md.
            (
                "<|channel|>analysis<|message|>hm<|end|>\n<|start|>assistant<|channel|>final<|message|>Yes<|return|>",
                "Yes",
                Some("hm"),
            ),
            (
                "<|channel|>analysis<|message|>hm<|start|>assistant<|channel|>commentary<|message|>Plan<|end|>\
                 <|start|>assistant<|channel|>final<|message|>```bash\nls\n```<|return|>",
                "Plan\n```bash\nls\n```",
                Some("hm"),
            ),
            ("<|channel|>analysis<|message|>hm", "", Some("hm")),
            (
                "```\n<|channel|>analysis<|message|>hm\n```",
                "```\n<|channel|>analysis<|message|>hm\n```",
                None,
            ),
        ] {
            assert_eq!(without_thoughts(text), rest, "{text}");
            assert_eq!(thoughts(text).as_deref(), thought, "{text}");
        }
        assert!(matches!(without_thoughts("Yes"), Cow::Borrowed("Yes")));
    }

    #[test]
    fn names_have_prefixes_and_suffixes() {
        let names = ["call_bash_repl", "look", "look:1", "functions.look"];
        for (written, tool) in [
            ("look", Some("look")),
            (" look\n", Some("look")),
            ("look:1", Some("look:1")),
            ("functions.look", Some("functions.look")),
            // Kimi: SGLang's kimik2_detector.py. gpt-oss and later models: https://github.com/tontinton/maki/pull/518.
            ("functions.call_bash_repl", Some("call_bash_repl")),
            ("functions.call_bash_repl:0", Some("call_bash_repl")),
            ("call_bash_repl:12", Some("call_bash_repl")),
            // Gemini: https://github.com/tya5/reyn/issues/1989, https://github.com/bayesimpact/bayes-platform/pull/731.
            ("default_api.call_bash_repl", Some("call_bash_repl")),
            ("default_api:call_bash_repl", Some("call_bash_repl")),
            // https://github.com/anomalyco/opencode/pull/50438.
            ("tools.call_bash_repl", Some("call_bash_repl")),
            // Harmony: https://github.com/vllm-project/vllm/issues/32587, https://github.com/pydantic/pydantic-ai/pull/7168.
            ("call_bash_repl<|channel|>commentary", Some("call_bash_repl")),
            ("functions.call_bash_repl <|constrain|>json", Some("call_bash_repl")),
            ("look<|channel|>commentary", Some("look")),
            // Two tools fit.
            ("functions.look:1", None),
            ("call_bash_rep", None),
            ("Call_bash_repl", None),
            ("my.call_bash_repl", None),
            ("call_bash_repl:a", None),
            ("", None),
        ] {
            assert_eq!(tool_named(written, &names), tool, "{written}");
        }
        assert_eq!(tool_named("functions.a", &["a", "a"]), Some("a"));
    }

    #[test]
    fn arguments_are_lenient_json() {
        let code = |code: &str| Ok(Map::from_iter([("code".to_owned(), Json::from(code))]));
        assert_eq!(arguments(r#"{"code": "ls\n"}"#), code("ls\n"));
        assert_eq!(arguments(" \n"), Ok(Map::new()));
        // Raw control characters: https://github.com/MoonshotAI/kimi-cli/pull/1460.
        assert_eq!(arguments("{\n\t\"code\": \"a\n\tb\r\n\\\"c\\\"\"}\n"), code("a\n\tb\r\n\"c\""));
        // Doubled: https://github.com/livekit/agents/pull/5409, https://github.com/tailcallhq/forgecode/pull/2764.
        assert_eq!(arguments(r#""{\"code\": \"ls\"}""#), code("ls"));
        assert_eq!(arguments("\"{\\\"code\\\": \\\"l\ns\\\"}\""), code("l\ns"));
        for text in ["[1]", "3", "null", r#""ls""#, r#""""#, r#""[1]""#] {
            assert_eq!(arguments(text), Err(ArgumentsFault::NotAnObject), "{text}");
        }
        for (text, error) in [
            (r#"{"code": "ls"#, "EOF while parsing a string at line 1 column 12"),
            (
                "{\"code\": \"a\nb\"} and",
                "control character (\\u0000-\\u001F) found while parsing a string at line 2 column 0",
            ),
            ("{\"code\": \"a \\\nb\"}", "invalid escape at line 2 column 0"),
            ("{'code': 1}", "key must be a string at line 1 column 2"),
            ("ls", "expected value at line 1 column 1"),
            (
                "{\"code\": \"\u{1}\"}",
                "control character (\\u0000-\\u001F) found while parsing a string at line 1 column 11",
            ),
        ] {
            assert_eq!(arguments(text), Err(ArgumentsFault::NotJson(error.to_owned())), "{text}");
        }
        assert!(matches!(arguments(&"[".repeat(1 << 20)), Err(ArgumentsFault::NotJson(_))));
    }

    #[test]
    fn fenced_blocks_are_code_of_one_language() {
        let read = |text: &str| fenced(text, &["bash", "sh"], &["python", "py"]);
        let code = |code: &str| Fenced::Code(code.to_owned());
        let other = |tag: &str| Fenced::OtherLanguage(tag.to_owned());
        for (text, expected) in [
            (
                "First\n```bash\nls\n```\nthen\n````sh\necho '```'\n```\n````\n```python\n1\n```\n",
                code("ls\necho '```'\n```\n"),
            ),
            ("```bash\r\nls\r\n```\r\n", code("ls\n")),
            ("  ``` Bash \n  ls\n  ```", code("  ls\n")),
            ("no code, and `ls` alone", Fenced::Nothing),
            ("```\nls\n```", Fenced::Nothing),
            ("```json\n{}\n```", Fenced::Nothing),
            ("```bash\nls\n```\n```bash\nls", Fenced::Open),
            ("```python\n1\n```\n```py\n2\n```", other("python")),
            ("```Py\n1", other("py")),
            ("```bash\n```", code("")),
            ("```ls```\n```bash\nls\n```", code("ls\n")),
            ("~~~bash\nls\n```\n~~~", code("ls\n```\n")),
            ("```bash\nls\n~~~\n```", code("ls\n~~~\n")),
            ("~~~markdown\n```bash\nls\n```\n~~~\n", Fenced::Nothing),
            ("~~bash\nls\n~~", Fenced::Nothing),
        ] {
            assert_eq!(read(text), expected, "{text}");
        }
    }

    #[test]
    fn cut_texts_make_no_new_calls() {
        for text in CALLS_OF_LS.iter().chain(CALLS_WITH_PREFIXES) {
            let calls = written_calls(text);
            for (at, _) in text.char_indices() {
                let found = written_calls(&text[..at]);
                assert!(found.is_empty() || found == calls, "{}", &text[..at]);
            }
        }
    }

    #[test]
    fn every_mark_begins_with_one_of_three_characters() {
        let opening = THOUGHTS.iter().map(|(open, _)| open).chain(CALLS.iter().map(|(open, ..)| open));
        let all = opening.chain(THOUGHTS.iter().map(|(_, close)| close)).chain(&MESSAGE_ENDS);
        assert!(all.into_iter().all(|mark| mark.starts_with(['<', '[', '◁'])));
    }

    #[test]
    fn no_text_panics() {
        let thoughts = THOUGHTS
            .iter()
            .map(|(open, close)| format!("{open}a`{close}`b{close}{open}c\n```sh\n{close}\nd"));
        let marks = CALLS.iter().map(|(open, close, _)| format!("{open} é {{[ {close}{close}{open}"));
        let samples = CALLS_OF_LS
            .iter()
            .chain(CALLS_WITH_PREFIXES)
            .map(|text| format!("ä`{text}`\n```bash\n{text}\n```\n{text}"));
        for text in samples.chain(thoughts).chain(marks) {
            for (at, _) in text.char_indices() {
                for text in [&text[..at], &text[at..]] {
                    let rest = without_thoughts(text);
                    assert_eq!(without_thoughts(&rest), rest, "{text}");
                    drop((super::thoughts(text), written_calls(text), arguments(text).ok()));
                    drop((fenced(text, &["bash"], &["python"]), tool_named(text, &["bash"])));
                }
            }
        }
    }

    #[test]
    fn hostile_texts_end_without_a_call_of_another_name() {
        // In quadratic time, these would take hours, and the test runner would end them.
        let parameter = "<tool_call><function=f><parameter=a>";
        let patterns = [
            "<",
            "<tool_call>",
            "<t",
            "`",
            "```\n",
            "\n",
            "◁",
            "[TOOL_CALLS]",
            "[TOOL_CALLS][",
            "[TOOL_CALLS][{\"name\":\"",
            "<tool_call>{",
            "<tool_call>{\"",
            "<tool_call>{\"a\":\"",
            "<tool_call>{\"a\\\":",
            "<tool_call>\n",
            "<think>",
            "</think>",
            "<think></think>",
            "```<think></think>",
            "`<think>`",
            "```sh\n</think>\n",
            "```sh\n\"</think>\n",
            "```</think>",
            "~~~\n",
            "`<tool_call>{\"name\":\"f\"}</tool_call>",
            "`</think>",
            "<think a",
            "<think a=",
            "<|channel|>",
            "<|start|>",
            "<|channel|>final<|message|>",
            "<|channel|>analysis<|message|>",
            "<|channel|>x to=f<|message|>",
            "<|message|>",
            "<function=f>",
            parameter,
            "</parameter>",
            "<tool_call>f<arg_key>a</arg_key><arg_value>",
            "<minimax:tool_call><invoke name=\"a\">",
            "<function_calls><invoke name=\"a\"><parameter name=\"a\">",
            "<|tool_call_begin|>f<|tool_call_argument_begin|>",
            "<｜tool▁call▁begin｜>f<｜tool▁sep｜>",
            "<tool_call>{\"name\":\"f\"}",
            "<|python_tag|>{\"name\":\"f\"};",
        ];
        let mut texts: Vec<_> =
            patterns.iter().map(|pattern| pattern.repeat((1 << 17) / pattern.len())).collect();
        texts.extend(["<", "<tool_call>"].map(|pattern| pattern.repeat((1 << 20) / pattern.len())));
        texts.push(parameter.repeat(1 << 12) + &"</parameter>x".repeat(1 << 14));
        texts
            .push(parameter.repeat(1 << 12) + "</parameter>" + &"<parameter=a>x</parameter>".repeat(1 << 13));
        texts.push("<tool_call>{\"name\": \"".to_owned() + &"<tool_call>\\\"".repeat(1 << 14));
        for text in texts {
            let beginning = &text[..text.floor_char_boundary(60)];
            let calls = written_calls(&text);
            assert!(calls.iter().all(|call| call.name.starts_with('f')), "{beginning}: {:?}", calls.first());
        }
    }

    #[test]
    fn large_code_is_read() {
        let code = "\n".repeat(1 << 20);
        let text =
            format!("<tool_call>{{\"name\": \"f\", \"arguments\": {{\"code\": \"{code}\"}}}}</tool_call>");
        let calls = written_calls(&text);
        assert_eq!(arguments(&calls[0].arguments).unwrap()["code"], code);
    }
}
