//! Fenced blocks.

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
            (Some((begun, true)), _) => code.push_str(&begun.line_of(line).replace("\r\n", "\n")),
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
pub(super) struct Fence<'a> {
    /// A backquote or a tilde.
    pub(super) char: char,
    pub(super) length: usize,
    /// The text behind the fence. That of backquotes has none of them.
    tag: &'a str,
    /// Bytes before the fence: white space, and the mark of a list's item.
    indent: usize,
    begins_item: bool,
}

impl<'a> Fence<'a> {
    pub(super) fn of(line: &'a str) -> Option<Self> {
        let whole = line.len();
        let line = without_indent(line);
        let item = without_item(line);
        let (begins_item, line) = (item.is_some(), item.unwrap_or(line));
        let char = line.chars().next().filter(|char| matches!(char, '`' | '~'))?;
        let length = line.len() - line.trim_start_matches(char).len();
        let tag = line[length..].split('\n').next().unwrap_or_default();
        let is_fence = length >= 3 && (char == '~' || !tag.contains('`'));
        is_fence.then(|| Self { char, length, tag: tag.trim(), indent: whole - line.len(), begins_item })
    }

    /// True if this fence closes a block.
    pub(super) fn closes(&self, open: Fence<'_>) -> bool {
        !self.begins_item && self.tag.is_empty() && self.char == open.char && self.length >= open.length
    }

    /// A line of the block without the white space that stands before the fence as well.
    fn line_of<'b>(&self, line: &'b str) -> &'b str {
        let blanks = line.len() - line.trim_start_matches([' ', '\t']).len();
        &line[blanks.min(self.indent)..]
    }
}

/// The text of a list's item behind its mark, and behind those of lists within: `-`, `*`, `+`, `1.` or `1)` and white space. None if the
/// line begins none.
pub(super) fn without_item(line: &str) -> Option<&str> {
    let behind_mark = |line: &str| {
        let numbered = line.trim_start_matches(|char: char| char.is_ascii_digit());
        let marks: &[char] = if numbered.len() < line.len() { &['.', ')'] } else { &['-', '*', '+'] };
        let behind = numbered.strip_prefix(marks)?;
        let text = behind.trim_start_matches([' ', '\t']);
        (text.len() < behind.len()).then(|| line.len() - text.len())
    };
    let mut at = 0;
    while let Some(length) = behind_mark(&line[at..]) {
        at += length;
    }
    (at > 0).then(|| &line[at..])
}

/// The number of backquotes of the code span that is open behind this text, where so many are open before it. As many close it, in its line.
pub(super) fn open_quotes(text: &str, before: usize) -> usize {
    let mut quotes = if text.contains('\n') { 0 } else { before };
    let mut rest = text.rsplit('\n').next().unwrap_or_default();
    while let Some(at) = rest.find('`') {
        let run = &rest[at..];
        rest = run.trim_start_matches('`');
        let length = run.len() - rest.len();
        quotes = match quotes {
            0 => length,
            open if open == length => 0,
            open => open,
        };
    }
    quotes
}

/// A line without the white space at its start.
pub(super) fn without_indent(line: &str) -> &str {
    line.trim_start_matches(|char: char| char.is_whitespace() && char != '\n')
}
