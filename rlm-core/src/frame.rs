//! Finds JSON documents in the bytes of the command FIFO.
//!
//! Hosts have two habits. Some open, write and close for each request, so that the worker sees end of file after each;
//! some keep the FIFO open and write one document after another. The decoder serves both: it follows brackets and
//! strings only as far as it must to see where a document ends; [`crate::protocol::Request::parse`] judges the content.
//! A document over the limit is read to its end without being stored, so that the stream stays in step.
//!
//! Bytes between documents that do not begin a JSON object or array are garbage. It extends to the next line that
//! begins a document, to end of file, or to the moment at which the host waits for an answer
//! ([`Decoder::stalled_garbage`], [`Decoder::resync`]).

use crate::protocol::UNKNOWN_SEQ;

/// A piece of the stream that the decoder found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// A complete document: an object or array whose brackets match.
    Document(Vec<u8>),
    /// A document over the limit. The decoder is in step again.
    TooLarge {
        /// Size of the document in bytes.
        bytes: usize,
        /// `seq` of the document if that came before the limit, otherwise -1.
        seq: i64,
    },
    /// Bytes that cannot begin a document.
    Garbage(Vec<u8>),
    /// A document that was cut short by end of file.
    Truncated(Vec<u8>),
}

/// An incremental decoder: bytes in, frames out.
#[derive(Debug)]
pub struct Decoder {
    limit: usize,
    buffer: Vec<u8>,
    /// Bytes of `buffer` that were already scanned.
    scanned: usize,
    /// Bytes of the current document that were dropped because it is over the limit.
    dropped: usize,
    state: Scan,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scan {
    Between,
    Inside { depth: usize, string: Str },
    Garbage { reported: bool, at_line_start: bool },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Str {
    Out,
    In,
    Escape,
}

/// Most bytes of garbage or a truncated document that are kept for the error message.
const EXCERPT_BYTES: usize = 64;

impl Decoder {
    /// A decoder that refuses documents of more than `limit` bytes.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self { limit, buffer: Vec::new(), scanned: 0, dropped: 0, state: Scan::Between }
    }

    /// Takes the next bytes of the stream.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// The next frame; None if more bytes are needed.
    pub fn next_frame(&mut self) -> Option<Frame> {
        loop {
            let Some(&byte) = self.buffer.get(self.scanned) else {
                self.bound_memory();
                return None;
            };
            match self.state {
                Scan::Between => {
                    if byte.is_ascii_whitespace() {
                        self.scanned += 1;
                        continue;
                    }
                    self.buffer.drain(..self.scanned);
                    self.scanned = 0;
                    self.state = match byte {
                        b'{' | b'[' => Scan::Inside { depth: 0, string: Str::Out },
                        _ => Scan::Garbage { reported: false, at_line_start: false },
                    };
                }
                Scan::Garbage { reported, at_line_start: true } if matches!(byte, b'{' | b'[') => {
                    let garbage = self.finish();
                    if !reported {
                        return Some(Frame::Garbage(garbage));
                    }
                }
                Scan::Garbage { reported, at_line_start } => self.step_garbage(reported, at_line_start, byte),
                Scan::Inside { depth, string } => {
                    let plain = if string == Str::In { self.plain_run() } else { 0 };
                    if plain > 0 {
                        self.scanned += plain;
                        continue;
                    }
                    self.scanned += 1;
                    let (depth, string) = step(depth, string, byte);
                    self.state = Scan::Inside { depth, string };
                    if depth == 0 {
                        return Some(self.finish_document());
                    }
                    if self.dropped == 0 && self.scanned > self.limit {
                        self.bound_memory();
                    }
                }
            }
        }
    }

    /// Marks the end of the stream, and returns the piece that it cut short.
    pub fn end_of_stream(&mut self) -> Option<Frame> {
        let rest = match self.state {
            Scan::Between => None,
            Scan::Garbage { reported: true, .. } => None,
            Scan::Garbage { reported: false, .. } => Some(Frame::Garbage(std::mem::take(&mut self.buffer))),
            Scan::Inside { .. } => Some(Frame::Truncated(std::mem::take(&mut self.buffer))),
        };
        *self = Self::new(self.limit);
        rest
    }

    /// Takes pending garbage without waiting for its line break: to be called when no byte has come for some time, as the
    /// host may be waiting for an answer. The rest of that garbage is dropped when it arrives.
    pub fn stalled_garbage(&mut self) -> Option<Frame> {
        let Scan::Garbage { reported: false, at_line_start } = self.state else { return None };
        self.state = Scan::Garbage { reported: true, at_line_start };
        Some(Frame::Garbage(self.buffer.clone()))
    }

    /// True inside garbage.
    #[must_use]
    pub fn in_garbage(&self) -> bool {
        matches!(self.state, Scan::Garbage { .. })
    }

    /// True if garbage was taken early and its end has not arrived yet.
    #[must_use]
    pub fn in_reported_garbage(&self) -> bool {
        matches!(self.state, Scan::Garbage { reported: true, .. })
    }

    /// Drops the rest of garbage that was taken early, up to the start of a document.
    pub fn skip_garbage(&mut self) {
        while let (Scan::Garbage { reported: true, at_line_start }, Some(&byte)) =
            (self.state, self.buffer.get(self.scanned))
        {
            if at_line_start && matches!(byte, b'{' | b'[') {
                drop(self.finish());
            } else {
                self.step_garbage(true, at_line_start, byte);
            }
        }
        self.bound_memory();
    }

    fn step_garbage(&mut self, reported: bool, at_line_start: bool, byte: u8) {
        self.scanned += 1;
        let at_line_start = byte == b'\n' || at_line_start && byte.is_ascii_whitespace();
        self.state = Scan::Garbage { reported, at_line_start };
    }

    /// Ends a request: to be called when all bytes that the host wrote before it began to wait for the answer have been
    /// pushed. Drops the rest of garbage that was taken early, and garbage that follows a document (`{"code": ""}}`):
    /// one request gets one answer. A document stays.
    pub fn resync(&mut self) {
        let pending = self.buffer[self.scanned..].trim_ascii_start();
        if self.state == Scan::Between && pending.first().is_some_and(|byte| !matches!(byte, b'{' | b'[')) {
            self.state = Scan::Garbage { reported: true, at_line_start: false };
        }
        self.skip_garbage();
        if self.in_reported_garbage() {
            drop(self.finish());
        }
    }

    /// True if no bytes of an unfinished document or of garbage are pending.
    #[must_use]
    pub fn is_between_documents(&self) -> bool {
        self.state == Scan::Between
    }

    fn finish_document(&mut self) -> Frame {
        let bytes = self.dropped + self.scanned;
        let head = self.finish();
        if bytes > self.limit {
            Frame::TooLarge { bytes, seq: scan_seq(&head) }
        } else {
            Frame::Document(head)
        }
    }

    /// Length of the next run of unscanned bytes that neither end a string nor escape.
    fn plain_run(&self) -> usize {
        let ahead = &self.buffer[self.scanned..];
        memchr::memchr2(b'"', b'\\', ahead).unwrap_or(ahead.len())
    }

    /// Takes the scanned bytes and starts over.
    fn finish(&mut self) -> Vec<u8> {
        let rest = self.buffer.split_off(self.scanned);
        let piece = std::mem::replace(&mut self.buffer, rest);
        self.scanned = 0;
        self.dropped = 0;
        self.state = Scan::Between;
        piece
    }

    /// Drops bytes that are not needed: all but the head of an oversize document, all but an excerpt of garbage.
    fn bound_memory(&mut self) {
        let keep = match self.state {
            Scan::Between => 0,
            Scan::Garbage { .. } => EXCERPT_BYTES,
            Scan::Inside { .. } if self.dropped > 0 || self.scanned > self.limit => self.limit.min(4096),
            Scan::Inside { .. } => return,
        };
        if self.scanned > keep {
            self.buffer.drain(keep..self.scanned);
            self.dropped += self.scanned - keep;
            self.scanned = keep;
            self.buffer.shrink_to(self.buffer.len().max(64 << 10));
        }
        if self.state == Scan::Between {
            self.dropped = 0;
        }
    }
}

/// Follows one byte of a document: bracket depth, and whether a string is open.
fn step(depth: usize, string: Str, byte: u8) -> (usize, Str) {
    match (string, byte) {
        (Str::Out, b'"') => (depth, Str::In),
        (Str::Out, b'{' | b'[') => (depth + 1, Str::Out),
        (Str::Out, b'}' | b']') => (depth - 1, Str::Out),
        (Str::In, b'"') => (depth, Str::Out),
        (Str::In, b'\\') => (depth, Str::Escape),
        (Str::In | Str::Escape, _) => (depth, Str::In),
        (Str::Out, _) => (depth, Str::Out),
    }
}

/// A short, printable excerpt of some bytes for an error message.
#[must_use]
pub fn excerpt(piece: &[u8]) -> String {
    let short = &piece[..piece.len().min(EXCERPT_BYTES)];
    let text = String::from_utf8_lossy(short);
    format!("{:?}{}", text.trim_end(), if piece.len() > short.len() { "…" } else { "" })
}

/// Looks for a top-level `"seq": INTEGER` in a document that is not valid JSON, so that its refusal can be matched to
/// the request.
#[must_use]
pub fn scan_seq(document: &[u8]) -> i64 {
    let (mut depth, mut string) = (0, Str::Out);
    let mut last_string = None;
    let mut string_start = 0;
    for (at, &byte) in document.iter().enumerate() {
        let before = string;
        if depth == 0 && matches!(byte, b'}' | b']') && string == Str::Out {
            break;
        }
        (depth, string) = step(depth, string, byte);
        match (before, string) {
            (Str::Out, Str::In) => string_start = at + 1,
            (Str::In, Str::Out) => last_string = Some(&document[string_start..at]),
            _ => {}
        }
        if byte == b':' && string == Str::Out && depth == 1 && last_string == Some(b"seq") {
            return leading_integer(&document[at + 1..]).unwrap_or(UNKNOWN_SEQ);
        }
    }
    UNKNOWN_SEQ
}

fn leading_integer(bytes: &[u8]) -> Option<i64> {
    let text = bytes.trim_ascii_start();
    let digits = text.iter().skip(1).take_while(|byte| byte.is_ascii_digit()).count() + 1;
    std::str::from_utf8(text.get(..digits)?).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn decode(chunks: &[&[u8]]) -> Vec<Frame> {
        let mut decoder = Decoder::new(64);
        let mut frames = Vec::new();
        for chunk in chunks {
            decoder.push(chunk);
            frames.extend(std::iter::from_fn(|| decoder.next_frame()));
        }
        frames.extend(decoder.end_of_stream());
        frames
    }

    fn document(text: &str) -> Frame {
        Frame::Document(text.as_bytes().to_vec())
    }

    #[test]
    fn documents_follow_each_other_with_or_without_space() {
        assert_eq!(
            decode(&[b" {\"a\":1}{\"b\":[\"}\"]}\n[2]\n\n"]),
            [document("{\"a\":1}"), document("{\"b\":[\"}\"]}"), document("[2]")]
        );
    }

    #[test]
    fn a_string_hides_brackets_and_escaped_quotes() {
        let text = r#"{"a":"}\"{\\"}"#;
        assert_eq!(decode(&[text.as_bytes()]), [document(text)]);
    }

    #[test]
    fn nothing_but_space_is_nothing() {
        assert_eq!(decode(&[b"", b" \n\t", b"\r\n"]), []);
    }

    #[test]
    fn end_of_file_inside_a_document_truncates_it() {
        assert_eq!(decode(&[b"{\"a\":"]), [Frame::Truncated(b"{\"a\":".to_vec())]);
    }

    #[test]
    fn garbage_ends_at_a_line_that_begins_a_document() {
        assert_eq!(
            decode(&[b"hello {world}\nagain\n {\"a\":1}"]),
            [Frame::Garbage(b"hello {world}\nagain\n ".to_vec()), document("{\"a\":1}")]
        );
        assert_eq!(decode(&[b"}{}"]), [Frame::Garbage(b"}{}".to_vec())]);
    }

    #[test]
    fn garbage_without_a_line_break_is_taken_when_the_host_waits() {
        let mut decoder = Decoder::new(64);
        decoder.push(b"hel");
        assert_eq!(decoder.next_frame(), None);
        assert_eq!(decoder.stalled_garbage(), Some(Frame::Garbage(b"hel".to_vec())));
        assert_eq!(decoder.stalled_garbage(), None);
        decoder.push(b"lo");
        decoder.resync();
        decoder.push(b"{}x");
        assert_eq!(decoder.next_frame(), Some(document("{}")));
        assert_eq!(decoder.next_frame(), None);
        assert_eq!(decoder.stalled_garbage(), Some(Frame::Garbage(b"x".to_vec())));
        decoder.push(b"y{\n{}");
        decoder.resync();
        assert_eq!(decoder.next_frame(), Some(document("{}")));
    }

    #[test]
    fn garbage_behind_a_document_is_part_of_the_same_request() {
        let mut decoder = Decoder::new(64);
        decoder.push(b"{}} ]x\n{\"next\":1}");
        assert_eq!(decoder.next_frame(), Some(document("{}")));
        decoder.resync();
        assert_eq!(decoder.next_frame(), Some(document("{\"next\":1}")));
    }

    #[test]
    fn an_oversize_document_is_skipped_and_the_next_one_read() {
        let large = format!("{{\"seq\": 7, \"code\": \"{}\"}}", "x".repeat(1000));
        let stream = format!("{large}{{\"a\":1}}");
        for size in [1, 7, 64, 65, 5000] {
            let chunks: Vec<&[u8]> = stream.as_bytes().chunks(size).collect();
            assert_eq!(
                decode(&chunks),
                [Frame::TooLarge { bytes: large.len(), seq: 7 }, document("{\"a\":1}")],
                "in chunks of {size}"
            );
        }
    }

    #[test]
    fn a_document_of_exactly_the_limit_passes() {
        let text = format!("[{}]", "1".repeat(62));
        assert_eq!(decode(&[text.as_bytes()]), [document(&text)]);
        let text = format!("[{}]", "1".repeat(63));
        assert_eq!(decode(&[text.as_bytes()]), [Frame::TooLarge { bytes: 65, seq: -1 }]);
    }

    #[test]
    fn memory_is_bounded_while_an_oversize_document_passes() {
        let mut decoder = Decoder::new(1000);
        decoder.push(b"{\"code\": \"");
        for _ in 0..1000 {
            decoder.push(&[b'x'; 4096]);
            assert_eq!(decoder.next_frame(), None);
            assert!(decoder.buffer.capacity() <= 128 << 10, "{}", decoder.buffer.capacity());
        }
        decoder.push(b"\"}");
        assert_eq!(decoder.next_frame(), Some(Frame::TooLarge { bytes: 4096 * 1000 + 12, seq: -1 }));
    }

    #[test]
    fn seq_is_found_in_invalid_json() {
        assert_eq!(scan_seq(br#"{"code": tru, "seq": 41}"#), 41);
        assert_eq!(scan_seq(br#"{"seq" : -3, "code": '"#), -3);
        assert_eq!(scan_seq(br#"{"x": {"seq": 5}}"#), -1);
        assert_eq!(scan_seq(br#"{"code": "\"seq\": 5"}"#), -1);
        assert_eq!(scan_seq(br#"{"seq": "5"}"#), -1);
        assert_eq!(scan_seq(b"]"), -1);
    }

    proptest! {
        #[test]
        fn any_cut_of_a_stream_gives_the_same_frames(
            codes in prop::collection::vec(".{0,20}", 1..6),
            separator in "[ \n]{0,2}",
            cuts in prop::collection::vec(1usize..9, 0..200),
        ) {
            let documents: Vec<String> =
                codes.iter().map(|code| serde_json::json!({"c": code}).to_string()).collect();
            let stream = documents.join(&separator).into_bytes();
            let whole = {
                let mut decoder = Decoder::new(1 << 20);
                decoder.push(&stream);
                std::iter::from_fn(|| decoder.next_frame()).collect::<Vec<_>>()
            };
            prop_assert_eq!(&whole, &documents.iter().map(|text| document(text)).collect::<Vec<_>>());

            let mut decoder = Decoder::new(1 << 20);
            let (mut frames, mut rest, mut cuts) = (Vec::new(), &stream[..], cuts.into_iter());
            while !rest.is_empty() {
                let (chunk, after) = rest.split_at(cuts.next().unwrap_or(1).min(rest.len()));
                rest = after;
                decoder.push(chunk);
                frames.extend(std::iter::from_fn(|| decoder.next_frame()));
            }
            prop_assert_eq!(frames, whole);
            prop_assert!(decoder.is_between_documents());
        }

        #[test]
        fn no_bytes_panic_and_memory_stays_bounded(bytes in prop::collection::vec(any::<u8>(), 0..500)) {
            let mut decoder = Decoder::new(64);
            decoder.push(&bytes);
            while let Some(frame) = decoder.next_frame() {
                if let Frame::Document(document) = frame {
                    prop_assert!(document.len() <= 64);
                }
            }
            let _rest = decoder.end_of_stream();
            prop_assert!(decoder.is_between_documents());
            let _seq = scan_seq(&bytes);
        }
    }
}
