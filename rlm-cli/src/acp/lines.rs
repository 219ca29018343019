//! The lines of the protocol on standard input and output.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::{Sink, Stream, sink, stream};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio_util::sync::CancellationToken;

/// Bytes of an output buffer.
const BUFFER_BYTES: usize = 64 << 10;

/// The lines of standard input. Bytes that are not UTF-8 are replaced: such a message gets an error, and the next one is read.
/// `end` is cancelled at the end of input.
pub(super) fn incoming(end: CancellationToken) -> impl Stream<Item = io::Result<String>> + Send + Unpin {
    let input = BufReader::with_capacity(BUFFER_BYTES, tokio::io::stdin());
    let lines = stream::unfold((input, end), async |(mut input, end)| {
        let mut line = Vec::new();
        match input.read_until(b'\n', &mut line).await {
            Ok(count) if count > 0 => {
                let text = String::from_utf8_lossy(line.trim_ascii_end()).into_owned();
                Some((Ok(text), (input, end)))
            }
            _ => {
                end.cancel();
                None
            }
        }
    });
    Box::pin(lines)
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
