//! The output of one call: all of it if it fits, otherwise head and tail. On the way there, it can be watched.

use std::collections::VecDeque;
use std::fs::File;
use std::io::Write as _;

/// Collects bytes in bounded memory. They are decoded once, at the end, so that a character that arrived in two pieces
/// stays whole.
#[derive(Debug)]
pub struct HeadTail {
    limit: usize,
    head: Vec<u8>,
    /// Set once the limit has been exceeded.
    tail: Option<VecDeque<u8>>,
    dropped: u64,
    /// Gets everything as it comes, until it is full.
    live: Option<File>,
}

impl HeadTail {
    /// A buffer that keeps at most `limit` bytes.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self { limit, head: Vec::new(), tail: None, dropped: 0, live: None }
    }

    /// True if nothing was collected.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.head.is_empty()
    }

    /// Changes the limit. Bytes that were already dropped stay dropped.
    pub fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
        if self.head.len() > limit || self.tail.is_some() {
            self.push(&[]);
        }
    }

    /// Lets a pipe have everything that is collected, from the beginning, as it comes. One that takes no more for now gets
    /// no more at all.
    pub fn watch(&mut self, live: Option<File>) {
        self.live = live;
        let head = std::mem::take(&mut self.head);
        self.show(&head);
        self.head = head;
    }

    fn show(&mut self, bytes: &[u8]) {
        if let Some(live) = &mut self.live
            && !live.write(bytes).is_ok_and(|count| count == bytes.len())
        {
            self.live = None;
        }
    }

    /// Appends bytes, dropping bytes from the middle if they no longer fit.
    pub fn push(&mut self, bytes: &[u8]) {
        self.show(bytes);
        if self.tail.is_none() && self.head.len() + bytes.len() <= self.limit {
            self.head.extend_from_slice(bytes);
            return;
        }
        let head_limit = self.limit / 2;
        let tail_limit = self.limit - head_limit;
        if self.tail.is_none() {
            let missing = head_limit.saturating_sub(self.head.len()).min(bytes.len());
            self.head.extend_from_slice(&bytes[..missing]);
            let mut tail = VecDeque::from(self.head.split_off(head_limit.min(self.head.len())));
            self.dropped += append_bounded(&mut tail, &bytes[missing..], tail_limit);
            self.tail = Some(tail);
        } else if let Some(tail) = &mut self.tail {
            self.dropped += append_bounded(tail, bytes, tail_limit);
        }
    }

    /// The text, and the number of bytes dropped from its middle; a line between head and tail states that number too.
    /// Bytes that are not UTF-8 become replacement characters.
    #[must_use]
    pub fn into_text(self) -> (String, u64) {
        let Some(tail) = self.tail else { return (into_string(self.head), 0) };
        let mut tail = Vec::from(tail);
        let mut head = self.head;
        let cut_head = incomplete_end(&head);
        head.truncate(head.len() - cut_head);
        let cut_tail = continuation_start(&tail);
        tail.drain(..cut_tail);
        let dropped = self.dropped + (cut_head + cut_tail) as u64;
        let mut text = into_string(head);
        text.push_str(&format!("\n[{dropped} bytes of output dropped here]\n"));
        text.push_str(&into_string(tail));
        (text, dropped)
    }
}

/// Appends to a tail of at most `limit` bytes, and returns the number of bytes that fell out at the front.
fn append_bounded(tail: &mut VecDeque<u8>, bytes: &[u8], limit: usize) -> u64 {
    let fresh = &bytes[bytes.len().saturating_sub(limit)..];
    let excess = (tail.len() + fresh.len()).saturating_sub(limit);
    tail.drain(..excess);
    tail.extend(fresh);
    (excess + bytes.len() - fresh.len()) as u64
}

/// Bytes as text, without a copy if they are UTF-8.
#[must_use]
pub fn into_string(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

/// Length of the incomplete character at the end of `bytes`, at most 3.
fn incomplete_end(bytes: &[u8]) -> usize {
    for back in 1..=3.min(bytes.len()) {
        let byte = bytes[bytes.len() - back];
        let length = match byte {
            0x80..=0xbf => continue,
            0xc2..=0xdf => 2,
            0xe0..=0xef => 3,
            0xf0..=0xf4 => 4,
            _ => 0,
        };
        return if length > back { back } else { 0 };
    }
    0
}

/// Number of continuation bytes at the start of `bytes`, at most 3.
fn continuation_start(bytes: &[u8]) -> usize {
    bytes.iter().take(3).take_while(|byte| matches!(byte, 0x80..=0xbf)).count()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn collect(limit: usize, pieces: &[&[u8]]) -> (String, u64) {
        let mut buffer = HeadTail::new(limit);
        for piece in pieces {
            buffer.push(piece);
        }
        buffer.into_text()
    }

    #[test]
    fn output_within_the_limit_is_kept_whole() {
        assert_eq!(collect(8, &[b"abcd", b"efgh"]), ("abcdefgh".into(), 0));
    }

    #[test]
    fn output_over_the_limit_keeps_head_and_tail() {
        let expected = ("abcd\n[3 bytes of output dropped here]\nhijk".to_owned(), 3);
        assert_eq!(collect(8, &[b"abcdefghijk"]), expected);
        assert_eq!(collect(8, &[b"abcdefgh", b"i", b"jk"]), expected);
        assert_eq!(collect(8, &[b"ab", b"cdefghij", b"k"]), expected);
    }

    #[test]
    fn a_character_in_two_pieces_stays_whole() {
        assert_eq!(collect(8, &[b"\xc3", b"\xa9"]), ("é".into(), 0));
        assert_eq!(collect(8, &[b"a\xffb"]), ("a\u{fffd}b".into(), 0));
    }

    #[test]
    fn the_cut_never_creates_replacement_characters() {
        let euros = "€".repeat(100);
        let (text, dropped) = collect(20, &[euros.as_bytes()]);
        assert_eq!(text, format!("€€€\n[{dropped} bytes of output dropped here]\n€€€"));
        assert_eq!(dropped, 300 - 18);
    }

    #[test]
    fn a_smaller_limit_applies_to_collected_output() {
        let mut buffer = HeadTail::new(100);
        buffer.push(&[b'x'; 90]);
        buffer.set_limit(10);
        assert_eq!(buffer.into_text(), ("xxxxx\n[80 bytes of output dropped here]\nxxxxx".into(), 80));
    }

    proptest! {
        #[test]
        fn every_byte_is_kept_or_counted(pieces in prop::collection::vec("[a-z]{0,30}", 0..20), limit in 2usize..60) {
            let whole = pieces.concat();
            let slices: Vec<&[u8]> = pieces.iter().map(|piece| piece.as_bytes()).collect();
            let (text, dropped) = collect(limit, &slices);
            if whole.len() <= limit {
                prop_assert_eq!((text, dropped), (whole, 0));
            } else {
                prop_assert_eq!(dropped as usize, whole.len() - limit);
                prop_assert!(text.starts_with(&whole[..limit / 2]));
                prop_assert!(text.ends_with(&whole[whole.len() - (limit - limit / 2)..]));
            }
        }
    }
}
