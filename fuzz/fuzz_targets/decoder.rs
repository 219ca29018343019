//! Whatever comes through the command FIFO, cut anywhere: no panic, no frame over the limit, and the same frames as when
//! it comes in one piece.

#![no_main]

use libfuzzer_sys::fuzz_target;
use rlm_core::frame::{Decoder, Frame};
use rlm_core::protocol::Request;

const LIMIT: usize = 256;

fuzz_target!(|input: (Vec<u8>, Vec<u8>)| {
    let (stream, cuts) = input;
    let whole = decode(&[&stream]);
    let mut pieces = Vec::new();
    let (mut rest, mut cuts) = (&stream[..], cuts.iter().map(|cut| usize::from(*cut) % 16 + 1));
    while !rest.is_empty() {
        let (piece, after) = rest.split_at(cuts.next().unwrap_or(7).min(rest.len()));
        pieces.push(piece);
        rest = after;
    }
    assert_eq!(decode(&pieces).len(), whole.len());
});

fn decode(pieces: &[&[u8]]) -> Vec<Frame> {
    let mut decoder = Decoder::new(LIMIT);
    let mut frames = Vec::new();
    for piece in pieces {
        decoder.push(piece);
        frames.extend(std::iter::from_fn(|| decoder.next_frame()));
    }
    frames.extend(decoder.end_of_stream());
    for frame in &frames {
        if let Frame::Document(document) = frame {
            assert!(document.len() <= LIMIT);
            let _refused = Request::parse(document);
        }
    }
    frames
}
