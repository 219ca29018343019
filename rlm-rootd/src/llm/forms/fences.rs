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
pub(super) struct Fence<'a> {
    /// A backquote or a tilde.
    pub(super) char: char,
    pub(super) length: usize,
    /// The text behind the fence. That of backquotes has none of them.
    tag: &'a str,
}

impl<'a> Fence<'a> {
    pub(super) fn of(line: &'a str) -> Option<Self> {
        let line = without_indent(line);
        let char = line.chars().next().filter(|char| matches!(char, '`' | '~'))?;
        let length = line.len() - line.trim_start_matches(char).len();
        let tag = line[length..].split('\n').next().unwrap_or_default();
        let is_fence = length >= 3 && (char == '~' || !tag.contains('`'));
        is_fence.then(|| Self { char, length, tag: tag.trim() })
    }

    /// True if this fence closes a block.
    pub(super) fn closes(&self, open: Fence<'_>) -> bool {
        self.tag.is_empty() && self.char == open.char && self.length >= open.length
    }
}

/// A line without the white space at its start.
pub(super) fn without_indent(line: &str) -> &str {
    line.trim_start_matches(|char: char| char.is_whitespace() && char != '\n')
}
