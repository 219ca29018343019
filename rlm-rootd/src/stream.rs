//! A connection's socket, which is read and written in one place and watched for its end in another.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use nix::sys::socket::{Shutdown, shutdown};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::{TcpStream, UnixStream};

/// A socket. A clone is the same socket.
#[derive(Clone, Debug)]
pub(crate) enum Stream {
    Tcp(Arc<TcpStream>),
    Unix(Arc<UnixStream>),
}

impl From<TcpStream> for Stream {
    fn from(stream: TcpStream) -> Self {
        Self::Tcp(Arc::new(stream))
    }
}

impl From<UnixStream> for Stream {
    fn from(stream: UnixStream) -> Self {
        Self::Unix(Arc::new(stream))
    }
}

/// Both kinds of sockets have the same methods, and no common trait.
macro_rules! on_either {
    ($self:expr, $stream:ident => $action:expr) => {
        match $self {
            Stream::Tcp($stream) => $action,
            Stream::Unix($stream) => $action,
        }
    };
}

impl Stream {
    /// Ready once the other side sends no more, or is gone, though bytes of its may still be unread.
    pub(crate) async fn closed(&self) {
        loop {
            // Of all interests this one wakes for the end and not for bytes: none are ever urgent, as nobody asks the
            // kernel for those.
            let ready = on_either!(self, stream => stream.ready(Interest::PRIORITY).await);
            match ready {
                Ok(ready) if !ready.is_read_closed() => tokio::task::yield_now().await,
                _ => return,
            }
        }
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            ready!(on_either!(&*self, stream => stream.poll_read_ready(cx)))?;
            match on_either!(&*self, stream => stream.try_read_buf(buffer)) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => return Poll::Ready(read.map(drop)),
            }
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[io::IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(on_either!(&*self, stream => stream.poll_write_ready(cx)))?;
            match on_either!(&*self, stream => stream.try_write_vectored(pieces)) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                written => return Poll::Ready(written),
            }
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        use std::os::fd::AsRawFd as _;
        let descriptor = on_either!(&*self, stream => stream.as_raw_fd());
        Poll::Ready(shutdown(descriptor, Shutdown::Write).map_err(io::Error::from))
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt as _;

    use super::*;

    #[tokio::test]
    async fn the_end_is_seen_behind_bytes_that_nobody_reads() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let ours = Stream::from(ours);
        theirs.write_all(b"more").await.unwrap();
        let early = tokio::time::timeout(std::time::Duration::from_millis(50), ours.closed()).await;
        assert!(early.is_err(), "bytes are no end");
        drop(theirs);
        ours.closed().await;
    }
}
