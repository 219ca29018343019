//! Splits a text into chunks of whole lines.

use std::ops::RangeInclusive;

/// Largest chunk in characters. It holds as many whole lines as fit; a longer line is cut.
pub(super) const CHUNK_CHARS: usize = 8000;

/// Cuts a text that arrives in pieces, and keeps one chunk of it.
#[derive(Debug)]
pub(super) struct Chunker {
    wanted: usize,
    /// Index of the current chunk.
    at: usize,
    chars: usize,
    /// The current line so far, and its length in characters.
    line: String,
    line_chars: usize,
    /// Number of the current line.
    number: usize,
    chunk: String,
    lines: Vec<RangeInclusive<usize>>,
    /// True if the next line begins another part.
    is_new_part: bool,
}

/// A chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Chunk {
    pub(super) text: String,
    /// The range of lines of each part.
    pub(super) lines: Vec<RangeInclusive<usize>>,
    /// Number of chunks in the whole text.
    pub(super) count: usize,
}

impl Chunker {
    /// Keeps the chunk with this index.
    pub(super) fn new(wanted: usize) -> Self {
        Self {
            wanted,
            at: 0,
            chars: 0,
            line: String::new(),
            line_chars: 0,
            number: 1,
            chunk: String::new(),
            lines: Vec::new(),
            is_new_part: true,
        }
    }

    /// Begins a part at this line. An empty line separates it from the previous part in the chunk.
    pub(super) fn begin_part(&mut self, line: usize) {
        if self.line_chars > 0 {
            self.end_line();
        }
        if self.chars > 0 && self.chars < CHUNK_CHARS {
            self.chars += 1;
            if self.at == self.wanted {
                self.chunk.push('\n');
            }
        }
        self.number = line;
        self.is_new_part = true;
    }

    /// Adds text.
    pub(super) fn push(&mut self, text: &str) {
        for piece in text.split_inclusive('\n') {
            self.push_piece(piece);
            if piece.ends_with('\n') {
                self.end_line();
                self.number += 1;
            }
        }
    }

    /// The wanted chunk, or None if there is no such index; and the number of chunks.
    pub(super) fn finish(mut self) -> (Option<Chunk>, usize) {
        if self.line_chars > 0 {
            self.end_line();
        }
        let count = self.at + usize::from(self.chars > 0 || self.at == 0);
        let chunk = Chunk { text: self.chunk, lines: self.lines, count };
        ((self.wanted < count).then_some(chunk), count)
    }

    fn push_piece(&mut self, mut piece: &str) {
        let mut chars = piece.chars().count();
        while self.line_chars + chars > CHUNK_CHARS {
            self.next_chunk();
            let room = CHUNK_CHARS - self.line_chars;
            let end = piece.char_indices().nth(room).map_or(piece.len(), |(end, _)| end);
            let (fits, rest) = piece.split_at(end);
            self.line.push_str(fits);
            self.line_chars = CHUNK_CHARS;
            self.end_line();
            (piece, chars) = (rest, chars - room);
        }
        self.line.push_str(piece);
        self.line_chars += chars;
        if self.chars + self.line_chars > CHUNK_CHARS {
            self.next_chunk();
        }
    }

    /// Adds the current line to the chunk.
    fn end_line(&mut self) {
        if self.chars + self.line_chars > CHUNK_CHARS {
            self.next_chunk();
        }
        if self.at == self.wanted {
            self.chunk.push_str(&self.line);
            match self.lines.last_mut() {
                Some(lines) if !self.is_new_part => *lines = *lines.start()..=self.number,
                _ => self.lines.push(self.number..=self.number),
            }
            self.is_new_part = false;
        }
        self.chars += self.line_chars;
        self.line.clear();
        self.line_chars = 0;
    }

    fn next_chunk(&mut self) {
        if self.chars > 0 {
            self.at += 1;
            self.chars = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// All chunks of a text that arrives in pieces.
    fn chunks(pieces: &[&str]) -> Vec<Chunk> {
        let chunk = |wanted| {
            let mut chunker = Chunker::new(wanted);
            pieces.iter().for_each(|piece| chunker.push(piece));
            chunker.finish()
        };
        let (_, count) = chunk(0);
        assert_eq!(chunk(count), (None, count));
        (0..count).map(|wanted| chunk(wanted).0.unwrap()).collect()
    }

    #[test]
    fn whole_lines_fill_a_chunk_and_longer_ones_are_cut() {
        let line = format!("{}\n", "x".repeat(2999));
        let text = line.repeat(3) + &"é".repeat(8001) + "\nend";
        let chunks = chunks(&[&text]);
        let shape: Vec<_> = chunks
            .iter()
            .map(|chunk| (chunk.text.chars().count(), chunk.lines.clone(), chunk.count))
            .collect();
        assert_eq!(
            shape,
            [(6000, vec![1..=2], 4), (3000, vec![3..=3], 4), (8000, vec![4..=4], 4), (5, vec![4..=5], 4)]
        );
        assert_eq!(chunks.iter().map(|chunk| chunk.text.as_str()).collect::<String>(), text);
    }

    #[test]
    fn an_empty_text_is_one_empty_chunk() {
        assert_eq!(chunks(&[]), [Chunk { text: String::new(), lines: vec![], count: 1 }]);
    }

    proptest! {
        #[test]
        fn chunks_are_the_text_whatever_pieces_it_comes_in(
            lines in prop::collection::vec(prop_oneof![0_usize..200, 3000_usize..9000, 20_000_usize..20_001], 0..12),
            cut in 1_usize..5000,
        ) {
            let text: String = lines.iter().map(|chars| "y".repeat(*chars) + "\n").collect();
            let pieces: Vec<&str> = text.as_bytes().chunks(cut).map(|piece| str::from_utf8(piece).unwrap()).collect();
            let whole = chunks(&[&text]);
            prop_assert_eq!(&chunks(&pieces), &whole);
            prop_assert_eq!(whole.iter().map(|chunk| chunk.text.as_str()).collect::<String>(), text);
            prop_assert!(whole.iter().all(|chunk| chunk.text.chars().count() <= CHUNK_CHARS));
        }
    }
}
