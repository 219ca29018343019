//! The end of what the client sends, as an event.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, ReadBuf};
use tokio_util::sync::CancellationToken;

/// A reader that tells when there is nothing more to read.
#[derive(Debug)]
pub(super) struct UntilEnd<R> {
    reader: R,
    end: CancellationToken,
}

impl<R> UntilEnd<R> {
    /// The reader, and the event.
    pub(super) fn new(reader: R) -> (Self, CancellationToken) {
        let end = CancellationToken::new();
        (Self { reader, end: end.clone() }, end)
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for UntilEnd<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let (before, room) = (buffer.filled().len(), buffer.remaining());
        let read = ready!(Pin::new(&mut self.reader).poll_read(context, buffer));
        if read.is_err() || (room > 0 && buffer.filled().len() == before) {
            self.end.cancel();
        }
        Poll::Ready(read)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;

    use super::*;

    #[tokio::test]
    async fn the_end_is_told_when_it_is_read_and_not_before() {
        let (mut reader, end) = UntilEnd::new(&b"ab"[..]);
        let mut two = [0; 2];
        reader.read_exact(&mut two).await.unwrap();
        assert_eq!((&two, end.is_cancelled()), (b"ab", false));
        assert_eq!(reader.read(&mut two).await.unwrap(), 0);
        assert!(end.is_cancelled());
    }
}
