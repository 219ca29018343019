//! Connections: accepting, time limits, the end.
//!
//! A connection is a task. The handler's future is dropped when its caller closes the connection, and with it whatever runs
//! for the request. Nothing here waits for one connection while others do.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::Request;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::connections::Connection;
use crate::http::{Service, keeping};
use crate::listener::{Kind, Listener, SocketFile};
use crate::rootd::{Rootd, RootdConfig, Shared};
use crate::stall::WriteLimited;
use crate::stream::Stream;

/// Largest head of a request, in bytes.
const HEAD_BYTES: usize = 32 << 10;

/// How long accepting rests after an error that is the system's: no descriptors left, say.
const REST: Duration = Duration::from_millis(50);

impl Rootd {
    /// Serves until `shutdown` is ready. Then nothing more is accepted, and what runs may go on for
    /// [`RootdConfig::shutdown_time_limit`]; what runs longer is dropped. Dropping this future drops everything at once.
    ///
    /// # Errors
    /// The listener cannot be used.
    pub async fn serve(&self, listener: Listener, shutdown: impl Future<Output = ()>) -> io::Result<()> {
        let base_url = listener.base_url().into();
        let acceptor = Acceptor::new(listener)?;
        let server = Server {
            service: Service::new(self.0.clone(), base_url),
            shared: self.0.clone(),
            places: Arc::new(Semaphore::new(self.0.config.max_connections)),
            closing: CancellationToken::new(),
            tasks: TaskTracker::new(),
            dropped: CancellationToken::new(),
        };
        // Also where this future is dropped.
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
                "calls still run after the shutdown's time limit"
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
    /// One permit per connection.
    places: Arc<Semaphore>,
    /// Connections end when they are idle.
    closing: CancellationToken,
    /// Connections end.
    dropped: CancellationToken,
    tasks: TaskTracker,
}

impl Server {
    async fn accept(&self, acceptor: &Acceptor) -> Infallible {
        loop {
            match acceptor.accept().await {
                Ok(stream) => {
                    let place = self.place().await;
                    let connection = self.connection(stream);
                    self.tasks.spawn(async move {
                        connection.await;
                        drop(place);
                    });
                }
                Err(error) if is_the_peers(&error) => {}
                Err(error) => {
                    tracing::warn!(%error, "no connection can be accepted");
                    if is_for_descriptors(&error) {
                        self.shared.connections.evict_one();
                    }
                    sleep(REST).await;
                }
            }
        }
    }

    /// A place for a connection: a free one, or that of the connection which has been idle for longest.
    async fn place(&self) -> OwnedSemaphorePermit {
        if let Ok(place) = self.places.clone().try_acquire_owned() {
            return place;
        }
        loop {
            self.shared.connections.evict_one();
            // Where none was idle, one may be soon.
            if let Ok(place) = timeout(REST, self.places.clone().acquire_owned()).await {
                return place.expect("nobody closes it");
            }
        }
    }

    fn connection(&self, stream: Stream) -> impl Future<Output = ()> + Send + 'static {
        let (service, shared) = (self.service.clone(), self.shared.clone());
        let (closing, dropped) = (self.closing.clone(), self.dropped.clone());
        let connection = self.shared.connections.add();
        async move {
            let evicted = connection.evicted.clone();
            let served = serve(stream, &shared.config, service, connection, closing);
            tokio::select! {
                biased;
                () = dropped.cancelled() => {}
                () = evicted.cancelled() => {}
                ended = served => if let Err(error) = ended {
                    tracing::debug!(%error, "connection ended");
                },
            }
        }
    }
}

async fn serve(
    stream: Stream,
    config: &RootdConfig,
    service: Service,
    connection: Arc<Connection>,
    closing: CancellationToken,
) -> Result<(), hyper::Error> {
    let answer = service_fn(|request: Request<Incoming>| {
        let (service, connection, stream) = (service.clone(), connection.clone(), stream.clone());
        async move {
            let busy = Arc::new(connection.busy());
            // hyper too looks for the end, but not once there are bytes after the request.
            let response = tokio::select! {
                biased;
                response = service.answer(request) => response,
                () = stream.closed() => return Err(CallerGone),
            };
            Ok(response.map(|body| {
                body.map_frame(move |frame| frame.map_data(|bytes| keeping(bytes, busy.clone())))
            }))
        }
    });
    let io = TokioIo::new(WriteLimited::new(stream.clone(), config.write_time_limit));
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(config.head_time_limit).max_header_size(HEAD_BYTES);
    let mut serving = pin!(builder.serve_connection(io, answer));
    tokio::select! {
        ended = serving.as_mut() => return ended,
        () = closing.cancelled() => {}
    }
    if connection.is_idle() {
        // Part of a head may have come, and the rest of it never.
        return Ok(());
    }
    serving.as_mut().graceful_shutdown();
    serving.await
}

/// The caller closed its connection before it was answered.
#[derive(Debug, thiserror::Error)]
#[error("the caller closed the connection")]
struct CallerGone;

/// A connection that ended before it was accepted: the next one may be fine.
fn is_the_peers(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}

/// The process, or the system, has no descriptor left.
fn is_for_descriptors(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(nix::libc::EMFILE | nix::libc::ENFILE))
}

enum Acceptor {
    Tcp(TcpListener),
    Unix(
        UnixListener,
        #[expect(dead_code, reason = "removes the socket's file when it is dropped")] SocketFile,
    ),
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
                Ok(stream.into())
            }
            Self::Unix(listener, _) => Ok(listener.accept().await?.0.into()),
        }
    }
}
