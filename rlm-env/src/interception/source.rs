//! Source positions, and pieces of source for messages.

use std::ops::Range;

use rlm_core::text::{cut, one_line};

/// Longest preview of a call's arguments, in characters.
const MAX_PREVIEW_CHARS: usize = 80;

/// A piece of code with its line starts.
#[derive(Debug)]
pub(super) struct Source<'a> {
    pub(super) text: &'a str,
    starts: Vec<usize>,
}

impl<'a> Source<'a> {
    /// Lines end as in Python: at `\n`, `\r\n` or `\r`.
    pub(super) fn of_python(text: &'a str) -> Self {
        let bytes = text.as_bytes();
        let ends = bytes.iter().enumerate().filter(|&(at, byte)| match byte {
            b'\n' => true,
            b'\r' => bytes.get(at + 1) != Some(&b'\n'),
            _ => false,
        });
        let starts = std::iter::once(0).chain(ends.map(|(at, _)| at + 1)).collect();
        Self { text, starts }
    }

    /// Lines end as in bash: at `\n`.
    pub(super) fn of_bash(text: &'a str) -> Self {
        let starts = std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect();
        Self { text, starts }
    }

    /// Line and column of an offset, both from 1, the column in characters.
    pub(super) fn position(&self, offset: usize) -> (usize, usize) {
        let line = self.starts.partition_point(|start| *start <= offset);
        let start = self.starts[line - 1];
        (line, self.text[start..offset].chars().count() + 1)
    }

    /// The line that contains an offset, without its line ending and a CR before it.
    pub(super) fn line_around(&self, offset: usize) -> Range<usize> {
        let (line, _) = self.position(offset);
        let end = self.starts.get(line).copied().unwrap_or(self.text.len());
        let start = self.starts[line - 1];
        start..start + self.text[start..end].trim_end_matches(['\n', '\r']).len()
    }
}

/// The line endings in a text, concatenated.
pub(super) fn line_ends(text: &str) -> String {
    text.chars().filter(|char| matches!(char, '\n' | '\r')).collect()
}

/// A text on one line, shortened.
pub(super) fn preview(text: &str) -> String {
    cut(&one_line(text), MAX_PREVIEW_CHARS)
}

/// The text with these ranges replaced; they must be sorted and not overlap.
pub(super) fn replaced(text: &str, pieces: &[(Range<usize>, String)]) -> String {
    let mut result = String::with_capacity(text.len());
    let mut copied = 0;
    for (range, piece) in pieces {
        result.push_str(&text[copied..range.start]);
        result.push_str(piece);
        copied = range.end;
    }
    result.push_str(&text[copied..]);
    result
}
