//! Files as text, read in bounded pieces.

use std::fs::File;
use std::io::{self, Read, Take};

use memchr::{memchr, memchr_iter};

use super::context::OpenFile;
use super::stop::{Stop, Stoppable};

/// A NUL byte within this many first bytes makes a file binary.
const PROBED_BYTES: usize = 8000;

/// Bytes per read.
pub(super) const BLOCK_BYTES: usize = 64 << 10;

/// Bytes that are read of a file that reports no size, as in /proc.
const SIZELESS_BYTES: u64 = 1 << 20;

/// A file's bytes, up to its size when it was opened, so that a growing file has an end.
pub(super) type Bytes<'a> = Stoppable<'a, Take<File>>;

pub(super) fn bytes(open: OpenFile, stop: &Stop) -> Bytes<'_> {
    let most = if open.size == 0 { SIZELESS_BYTES } else { open.size };
    Stoppable { inner: open.file.take(most), stop }
}

/// Reads until a buffer holds this many bytes, or to the end.
pub(super) fn fill(reader: &mut impl Read, buffer: &mut Vec<u8>, most: usize) -> io::Result<()> {
    let most = most.saturating_sub(buffer.len());
    reader.take(most as u64).read_to_end(buffer)?;
    Ok(())
}

/// True if a file that begins with these bytes is binary.
pub(super) fn is_binary(head: &[u8]) -> bool {
    memchr(0, &head[..head.len().min(PROBED_BYTES)]).is_some()
}

/// Counts the lines of a file; None if it is binary. `buffer` is scratch space.
pub(super) fn count_lines(open: OpenFile, stop: &Stop, buffer: &mut Vec<u8>) -> io::Result<Option<u64>> {
    let mut reader = bytes(open, stop);
    let mut lines = 0;
    let mut last = b'\n';
    for block in 0.. {
        buffer.clear();
        fill(&mut reader, buffer, BLOCK_BYTES)?;
        if block == 0 && is_binary(buffer) {
            return Ok(None);
        }
        let Some(end) = buffer.last() else { break };
        last = *end;
        lines += memchr_iter(b'\n', buffer).count() as u64;
    }
    Ok(Some(lines + u64::from(last != b'\n')))
}

/// Decodes bytes that arrive in blocks; bytes that are not UTF-8 are replaced.
#[derive(Debug, Default)]
pub(super) struct Decoder {
    /// The first bytes of an incomplete character.
    cut: Vec<u8>,
}

impl Decoder {
    /// The text of a block, up to its last whole character.
    pub(super) fn decode(&mut self, block: &[u8]) -> String {
        let mut bytes = std::mem::take(&mut self.cut);
        bytes.extend_from_slice(block);
        let whole = bytes.len() - cut_off(&bytes);
        self.cut = bytes[whole..].to_vec();
        String::from_utf8_lossy(&bytes[..whole]).into_owned()
    }

    /// The text of any bytes left at the end.
    pub(super) fn finish(self) -> String {
        String::from_utf8_lossy(&self.cut).into_owned()
    }
}

/// Number of bytes at the end that are an incomplete character.
fn cut_off(bytes: &[u8]) -> usize {
    let tail = &bytes[bytes.len().saturating_sub(3)..];
    let begins = |byte: &u8| match *byte {
        0xC0..=0xDF => Some(2),
        0xE0..=0xEF => Some(3),
        0xF0..=0xF7 => Some(4),
        _ => None,
    };
    let found = tail.iter().enumerate().rev().find_map(|(at, byte)| Some((tail.len() - at, begins(byte)?)));
    match found {
        Some((held, needed)) if held < needed => held,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn blocks_decode_as_the_whole_does_where_it_is_text(text in "\\PC{0,40}", cuts in prop::collection::vec(1_usize..9, 1..40)) {
            let (mut decoder, mut decoded, mut rest) = (Decoder::default(), String::new(), text.as_bytes());
            for cut in cuts.iter().cycle() {
                if rest.is_empty() {
                    break;
                }
                let (block, behind) = rest.split_at((*cut).min(rest.len()));
                decoded.push_str(&decoder.decode(block));
                rest = behind;
            }
            decoded.push_str(&decoder.finish());
            prop_assert_eq!(decoded, text);
        }

        #[test]
        fn no_bytes_are_refused(blocks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..9), 0..9)) {
            let mut decoder = Decoder::default();
            let decoded: String = blocks.iter().map(|block| decoder.decode(block)).collect();
            let whole = blocks.concat();
            prop_assert!(decoded.chars().count() + decoder.finish().chars().count() <= whole.len());
        }
    }
}
