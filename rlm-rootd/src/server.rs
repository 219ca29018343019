//! Connections: accepting, time limits, shutdown.
//!
//! Each connection is a task. hyper drops the handler's future when its caller closes the connection, and with it whatever
//! runs for the request. It does not notice a caller that has sent bytes after its request: such a call runs to its end.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::extract::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::time::{sleep, timeout};
use tokio_io_timeout::TimeoutStream;
use tokio_util::either::Either;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::http::Service;
use crate::listener::{Kind, Listener, SocketFile};
use crate::paid::Receipt;
use crate::rootd::{Rootd, RootdConfig, Shared};

/// Largest head of a request, in bytes.
const HEAD_BYTES: usize = 32 << 10;

/// Pause after an error of accepting that lies with the system: no descriptors left, for example.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

impl Rootd {
    /// Serves until `shutdown` is ready. Then no more connections are accepted, and running calls may continue for
    /// [`RootdConfig::shutdown_time_limit`]; calls that take longer are dropped. Dropping this future drops everything
    /// at once.
    ///
    /// # Errors
    /// The listener cannot be used.
    pub async fn serve(&self, listener: Listener, shutdown: impl Future<Output = ()>) -> io::Result<()> {
        let base_url = listener.base_url().into();
        let acceptor = Acceptor::new(listener)?;
        let server = Server {
            service: Service::new(self.0.clone(), base_url),
            shared: self.0.clone(),
            closing: CancellationToken::new(),
            dropped: CancellationToken::new(),
            tasks: TaskTracker::new(),
        };
        // Connections also end where this future is dropped.
        let dropped = server.dropped.clone().drop_guard();
        tokio::select! {
            biased;
            () = shutdown => {}
            never = server.accept(&acceptor) => match never {},
        }
        drop(acceptor);
        server.closing.cancel();
        server.tasks.close();
        if timeout(self.0.config.shutdown_time_limit, server.tasks.wait()).await.is_err() {
            tracing::warn!(
                connections = server.tasks.len(),
                "connections are still open after the shutdown's time limit"
            );
        }
        drop(dropped);
        server.tasks.wait().await;
        Ok(())
    }
}

struct Server {
    service: Service,
    shared: Arc<Shared>,
    /// Cancelled when connections are to end after their current request.
    closing: CancellationToken,
    /// Cancelled when connections are to end at once.
    dropped: CancellationToken,
    tasks: TaskTracker,
}

impl Server {
    async fn accept(&self, acceptor: &Acceptor) -> Infallible {
        loop {
            match acceptor.accept().await {
                Ok(stream) => {
                    let permit = self.shared.connections.clone().acquire_owned().await;
                    let connection = self.connection(stream);
                    self.tasks.spawn(async move {
                        connection.await;
                        drop(permit);
                    });
                }
                Err(error) if is_the_peers(&error) => {}
                Err(error) => {
                    tracing::warn!(%error, "no connection can be accepted");
                    sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    fn connection(&self, stream: Stream) -> impl Future<Output = ()> + Send + 'static {
        let (service, shared) = (self.service.clone(), self.shared.clone());
        let (closing, dropped) = (self.closing.clone(), self.dropped.clone());
        async move {
            let served = serve(stream, &shared.config, service, closing);
            if let Some(Err(error)) = dropped.run_until_cancelled(served).await {
                tracing::debug!(%error, "connection ended");
            }
        }
    }
}

async fn serve(
    stream: Stream,
    config: &RootdConfig,
    service: Service,
    closing: CancellationToken,
) -> Result<(), hyper::Error> {
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(config.write_time_limit));
    // The receipt of the last response. The caller has read that if it sends another request, or ends the connection cleanly.
    let receipt = Mutex::new(None::<Receipt>);
    let sign = || {
        if let Some(receipt) = receipt.lock().unwrap_or_else(PoisonError::into_inner).take() {
            receipt.sign();
        }
    };
    let answer = service_fn(|request: Request<Incoming>| {
        sign();
        let (service, receipt) = (service.clone(), &receipt);
        async move {
            let mut response = service.answer(request).await;
            *receipt.lock().unwrap_or_else(PoisonError::into_inner) = response.extensions_mut().remove();
            Ok::<_, Infallible>(response)
        }
    });
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(config.head_time_limit).max_header_size(HEAD_BYTES);
    let mut serving = pin!(builder.serve_connection(TokioIo::new(Box::pin(stream)), answer));
    let ended = tokio::select! {
        ended = serving.as_mut() => ended,
        () = closing.cancelled() => {
            serving.as_mut().graceful_shutdown();
            serving.await
        }
    };
    if ended.is_ok() {
        sign();
    }
    ended
}

type Stream = Either<TcpStream, UnixStream>;

/// True for errors of a connection that ended before it was accepted: the next one may be fine.
fn is_the_peers(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}

enum Acceptor {
    Tcp(TcpListener),
    Unix(UnixListener, #[expect(dead_code, reason = "removes the socket's file on drop")] SocketFile),
}

impl Acceptor {
    fn new(listener: Listener) -> io::Result<Self> {
        Ok(match listener.kind {
            Kind::Tcp(listener) => {
                listener.set_nonblocking(true)?;
                Self::Tcp(TcpListener::from_std(listener)?)
            }
            Kind::Unix(listener, file) => {
                listener.set_nonblocking(true)?;
                Self::Unix(UnixListener::from_std(listener)?, file)
            }
        })
    }

    async fn accept(&self) -> io::Result<Stream> {
        match self {
            Self::Tcp(listener) => {
                let (stream, _peer) = listener.accept().await?;
                stream.set_nodelay(true)?;
                Ok(Either::Left(stream))
            }
            Self::Unix(listener, _) => Ok(Either::Right(listener.accept().await?.0)),
        }
    }
}
