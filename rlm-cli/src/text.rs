//! Text of a trajectory. Models wrote it, so it is made safe before it reaches a terminal or a page.

use rlm_core::text::cut;
use unicode_width::UnicodeWidthChar;

/// The length at which the middle of a text is left out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Length {
    pub(crate) lines: usize,
    pub(crate) characters: usize,
}

/// Lengths of texts by kind. None: the whole text.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Lengths {
    /// Most characters of outputs, messages and answers.
    pub(crate) text: Option<Length>,
    /// Most characters of code and arguments.
    pub(crate) code: Option<Length>,
    /// Most characters of prompts of sub-LLMs and their replies.
    pub(crate) sub_call: Option<Length>,
}

/// A text without its middle, if it is long, and with its control characters made visible.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Text {
    pub(crate) head: String,
    pub(crate) left_out: Option<LeftOut>,
    /// Empty where nothing is left out.
    pub(crate) tail: String,
}

/// The size of the part that is left out of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LeftOut {
    /// Whole lines.
    pub(crate) lines: usize,
    pub(crate) bytes: usize,
}

impl Text {
    /// A text cut to a length. A line break at its end is dropped.
    pub(crate) fn new(text: &str, length: Option<Length>) -> Self {
        let text = text.strip_suffix('\n').unwrap_or(text);
        let (head, left_out, tail) = match length {
            Some(length) if is_longer(text, length) => {
                let tail = Length { lines: length.lines / 3, characters: length.characters / 3 };
                let head = Length {
                    lines: length.lines - tail.lines,
                    characters: length.characters - tail.characters,
                };
                let (head, tail) = (&text[..head_end(text, head)], &text[tail_start(text, tail)..]);
                let middle = &text[head.len()..text.len() - tail.len()];
                let lines = middle.matches('\n').count().saturating_sub(1);
                (head, Some(LeftOut { lines, bytes: middle.len() }), tail)
            }
            _ => (text, None, ""),
        };
        Self { head: visible(head), left_out, tail: visible(tail) }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.head.is_empty() && self.left_out.is_none()
    }
}

fn is_longer(text: &str, length: Length) -> bool {
    head_end(text, length) < text.len()
}

/// The end of the head: before a line break, or inside a line.
fn head_end(text: &str, length: Length) -> usize {
    let mut lines = 0;
    for (count, (at, c)) in text.char_indices().enumerate() {
        lines += usize::from(c == '\n');
        if count == length.characters || lines == length.lines {
            return at;
        }
    }
    text.len()
}

/// The start of the tail: after a line break, or inside a line.
fn tail_start(text: &str, length: Length) -> usize {
    let mut lines = 0;
    for (count, (at, c)) in text.char_indices().rev().enumerate() {
        lines += usize::from(c == '\n');
        if count == length.characters || lines == length.lines {
            return at + c.len_utf8();
        }
    }
    0
}

/// The texts that are not empty, each of which begins a line.
pub(crate) fn joined<'t>(texts: impl IntoIterator<Item = Option<&'t String>>) -> String {
    let mut joined = String::new();
    for text in texts.into_iter().flatten().filter(|text| !text.is_empty()) {
        if !joined.is_empty() && !joined.ends_with('\n') {
            joined.push('\n');
        }
        joined += text;
    }
    joined
}

/// A name in one line, cut if it is long.
pub(crate) fn word(text: &str) -> String {
    const LONGEST: usize = 200;
    one_line(&cut(text, LONGEST))
}

/// A text in one line that steers no terminal.
pub(crate) fn one_line(text: &str) -> String {
    visible(text).replace(['\n', '\t'], " ")
}

/// The text with a symbol or the code point in place of each character that controls a terminal or the writing direction,
/// and of each that cannot be seen. Line breaks and tabs stay, and so do the joiners and selectors within emoji and words.
pub(crate) fn visible(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' | '\t' => shown.push(c),
            '\0'..='\u{1f}' => shown.extend(char::from_u32(0x2400 + u32::from(c))),
            '\u{7f}' => shown.push('␡'),
            '\u{80}'..='\u{9f}'
            | '\u{ad}'
            | '\u{34f}'
            | '\u{61c}'
            | '\u{115f}'
            | '\u{1160}'
            | '\u{180e}'
            | '\u{200b}'
            | '\u{200e}'
            | '\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{3164}'
            | '\u{feff}'
            | '\u{ffa0}'
            | '\u{fff9}'..='\u{fffb}'
            // Tags: letters that models read and people do not see.
            | '\u{e0000}'..='\u{e007f}' => shown.push_str(&format!("<U+{:04X}>", u32::from(c))),
            _ => shown.push(c),
        }
    }
    shown
}

/// Wraps a line to rows of this many columns, at blanks if possible.
pub(crate) fn wrap(line: &str, width: usize) -> Vec<&str> {
    let mut rows = Vec::new();
    let (mut start, mut column) = (0, 0);
    // Offset and column after the last blank of the row.
    let mut blank: Option<(usize, usize)> = None;
    for (at, c) in line.char_indices() {
        let columns = c.width().unwrap_or(0);
        while column + columns > width && at > start {
            let (end, at_column) = blank.take().unwrap_or((at, column));
            rows.push(&line[start..end]);
            start = end;
            column -= at_column;
        }
        column += columns;
        if c == ' ' && !line[start..at].trim_start().is_empty() {
            blank = Some((at + 1, column));
        }
    }
    rows.push(&line[start..]);
    rows
}

/// A line with its tabs expanded to blanks.
pub(crate) fn without_tabs(line: &str) -> String {
    const STOP: usize = 8;
    let mut expanded = String::with_capacity(line.len());
    let mut column = 0;
    for c in line.chars() {
        let columns = if c == '\t' { STOP - column % STOP } else { c.width().unwrap_or(0) };
        if c == '\t' {
            expanded.extend(std::iter::repeat_n(' ', columns));
        } else {
            expanded.push(c);
        }
        column += columns;
    }
    expanded
}

#[cfg(test)]
mod tests {
    use super::*;

    fn short(text: &str, lines: usize, characters: usize) -> (String, Option<(usize, usize)>, String) {
        let text = Text::new(text, Some(Length { lines, characters }));
        (text.head, text.left_out.map(|left_out| (left_out.lines, left_out.bytes)), text.tail)
    }

    #[test]
    fn a_text_loses_its_middle_if_it_has_too_many_lines() {
        assert_eq!(short("1\n2\n3\n", 3, 99), ("1\n2\n3".to_owned(), None, String::new()));
        assert_eq!(short("1\n2\n3\n4\n5\n", 3, 99), ("1\n2".to_owned(), Some((2, 5)), "5".to_owned()));
        assert_eq!(short("1\n2\n3\n4", 3, 99), ("1\n2".to_owned(), Some((1, 3)), "4".to_owned()));
    }

    #[test]
    fn a_text_loses_its_middle_if_it_has_too_many_characters() {
        assert_eq!(short("€€€€€€", 9, 6), ("€€€€€€".to_owned(), None, String::new()));
        assert_eq!(short("abcdefgh", 9, 6), ("abcd".to_owned(), Some((0, 2)), "gh".to_owned()));
        assert_eq!(short("€€€€€€€", 9, 6), ("€€€€".to_owned(), Some((0, 3)), "€€".to_owned()));
    }

    #[test]
    fn the_shown_and_the_left_out_parts_add_up_to_the_text() {
        let text = "one\n\ntwo three\nfour\n".repeat(5);
        let whole = text.strip_suffix('\n').unwrap();
        for lines in 1..25 {
            for characters in 1..120 {
                let (head, left_out, tail) = short(&text, lines, characters);
                let bytes = left_out.map_or(0, |(_, bytes)| bytes);
                assert_eq!(head.len() + bytes + tail.len(), whole.len(), "{lines} {characters}");
                assert!(whole.starts_with(&head) && whole.ends_with(&tail));
                assert!(head.chars().count() + tail.chars().count() <= characters || left_out.is_none());
            }
        }
    }

    #[test]
    fn nothing_that_steers_a_terminal_is_left() {
        let hostile = "\u{1b}]0;title\u{7}\u{1b}[2J\r\u{8}\u{9b}31m\u{7f}\0\u{202e}abc\u{2066}\u{85}";
        let shown = visible(hostile);
        assert_eq!(shown, "␛]0;title␇␛[2J␍␈<U+009B>31m␡␀<U+202E>abc<U+2066><U+0085>");
        assert!(!shown.chars().any(char::is_control));
        assert_eq!(visible("a\n\tb é 👩‍👧"), "a\n\tb é 👩‍👧");
        assert_eq!(one_line("a\tb\u{200b}\u{1b}"), "a b<U+200B>␛");
        assert_eq!(word("a\nb\u{1b}"), "a b␛");
        assert_eq!(word(&"x".repeat(1000)).chars().count(), 201);
    }

    #[test]
    fn what_cannot_be_seen_is_shown() {
        let hidden = "a\u{200b}b\u{feff}c\u{2060}d\u{ad}e\u{e0041}f\u{3164}";
        assert_eq!(visible(hidden), "a<U+200B>b<U+FEFF>c<U+2060>d<U+00AD>e<U+E0041>f<U+3164>");
        let written = "نمی\u{200c}خواهم ❤\u{fe0f} e\u{301}";
        assert_eq!(visible(written), written);
    }

    #[test]
    fn lines_are_divided_at_blanks_and_by_columns() {
        assert_eq!(wrap("", 5), [""]);
        assert_eq!(wrap("hello", 5), ["hello"]);
        assert_eq!(wrap("one two three", 8), ["one two ", "three"]);
        assert_eq!(wrap("abcdefghijk", 4), ["abcd", "efgh", "ijk"]);
        assert_eq!(wrap("日本語日本", 4), ["日本", "語日", "本"]);
        assert_eq!(wrap("    indented far", 10), ["    indent", "ed far"]);
        assert_eq!(wrap("a日", 1), ["a", "日"]);
        let long = "word ".repeat(200_000);
        assert_eq!(wrap(&long, 80).concat(), long);
    }

    #[test]
    fn tabs_become_blanks() {
        assert_eq!(without_tabs("a\tb\t\tc"), "a       b               c");
        assert_eq!(without_tabs("日\tx"), "日      x");
    }
}
