//! The lines of the protocol on standard input and output.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::{Sink, Stream, sink, stream};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Stdin};
use tokio_util::sync::CancellationToken;

/// Bytes of an output buffer.
const BUFFER_BYTES: usize = 64 << 10;

/// Bytes of the longest message that is taken.
const MESSAGE_BYTES: usize = 64 << 20;

/// The lines of standard input. Bytes that are not UTF-8 are replaced, and a message that is too long by words that say so: either
/// gets an error, and the next one is read. `end` is cancelled at the end of input.
pub(super) fn incoming(end: CancellationToken) -> impl Stream<Item = io::Result<String>> + Send + Unpin {
    let input = BufReader::with_capacity(BUFFER_BYTES, tokio::io::stdin());
    let lines = stream::unfold((input, end), async |(mut input, end)| {
        let Some(line) = next(&mut input).await else {
            end.cancel();
            return None;
        };
        let text = match line.len() {
            0..=MESSAGE_BYTES => String::from_utf8_lossy(line.trim_ascii_end()).into_owned(),
            _ => format!("a message of more than {MESSAGE_BYTES} bytes"),
        };
        Some((Ok(text), (input, end)))
    });
    Box::pin(lines)
}

/// The next line, of which at most one byte too many is kept. None at the end of input.
async fn next(input: &mut BufReader<Stdin>) -> Option<Vec<u8>> {
    let mut line = Vec::new();
    loop {
        let piece = input.fill_buf().await.ok()?;
        if piece.is_empty() {
            return (!line.is_empty()).then_some(line);
        }
        let end = piece.iter().position(|byte| *byte == b'\n').map(|at| at + 1);
        let used = end.unwrap_or(piece.len());
        let room = (MESSAGE_BYTES + 1).saturating_sub(line.len());
        line.extend_from_slice(&piece[..used.min(room)]);
        input.consume(used);
        if end.is_some() {
            return Some(line);
        }
    }
}

/// Lines to standard output. `is_busy` is true while one is being written.
pub(super) fn outgoing(is_busy: Arc<AtomicBool>) -> impl Sink<String, Error = io::Error> + Send + 'static {
    sink::unfold(tokio::io::stdout(), move |mut output, line: String| {
        let is_busy = is_busy.clone();
        async move {
            let mut bytes = line.into_bytes();
            bytes.push(b'\n');
            is_busy.store(true, Ordering::Relaxed);
            output.write_all(&bytes).await?;
            output.flush().await?;
            is_busy.store(false, Ordering::Relaxed);
            Ok(output)
        }
    })
}
