//! A blocking HTTP/1.1 client for one endpoint, kept small because the helper starts anew for each call.
//!
//! It waits in one place, where the caller checks for signals, so that an interrupted call ends at once. Closing the
//! connection tells the endpoint that the call is cancelled.

mod head;

use std::fmt;
use std::io::{self, Write as _};
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockType, SockaddrStorage, UnixAddr, connect, getsockopt, recv, send,
    setsockopt, socket, sockopt,
};

use self::head::{Framing, Head};
use super::{ErrorBody, MAX_BODY_BYTES};
use crate::percent;

/// Largest head of a response, in bytes.
const MAX_HEAD_BYTES: usize = 64 << 10;

/// Largest body of a response, in bytes: a result of [`MAX_BODY_BYTES`] in base64, and the JSON around it.
pub const MAX_RESPONSE_BYTES: usize = MAX_BODY_BYTES / 3 * 4 + (1 << 20);

/// Longest wait before signals are checked again: one may arrive between a check and the wait.
const TICK: Duration = Duration::from_millis(100);

/// Most characters shown of an answer that is not one of ours.
const EXCERPT_CHARS: usize = 300;

/// A root-tool URL that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "root-tool URL {url:?} cannot be used: {fault}; expected http://HOST[:PORT]/PATH or http+unix://SOCKET/PATH with the \
     slashes of SOCKET as %2F"
)]
pub struct BadUrl {
    /// The URL as given.
    pub url: String,
    /// The fault in the URL.
    pub fault: &'static str,
}

/// The address that calls are sent to.
#[derive(Clone)]
pub struct Endpoint {
    address: Address,
    /// Value of the `Host` header.
    host: String,
    path: String,
    secret: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Address {
    Tcp { host: String, port: u16 },
    Unix(PathBuf),
}

/// Formats the endpoint without the secret.
impl fmt::Debug for Endpoint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Endpoint({self}{})", self.path)
    }
}

/// Formats the address alone.
impl fmt::Display for Endpoint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.address {
            Address::Tcp { .. } => write!(formatter, "http://{}", self.host),
            Address::Unix(path) => write!(formatter, "{}", path.display()),
        }
    }
}

impl Endpoint {
    /// Parses a URL. The secret, if any, is sent with each call as `Authorization: Bearer`.
    ///
    /// # Errors
    /// [`BadUrl`] names the fault.
    pub fn new(url: &str, secret: Option<String>) -> Result<Self, BadUrl> {
        let bad = |fault| BadUrl { url: url.to_owned(), fault };
        let (scheme, rest) = url.split_once("://").ok_or(bad("it has no scheme"))?;
        let (authority, path) = match rest.find('/') {
            Some(at) => rest.split_at(at),
            None => (rest, "/"),
        };
        let path = path.split('#').next().unwrap_or_default();
        if path.bytes().any(|byte| byte <= b' ' || byte == 0x7f) {
            return Err(bad("its path contains a space or control character"));
        }
        if secret.as_ref().is_some_and(|secret| secret.bytes().any(|byte| byte < b' ' || byte == 0x7f)) {
            return Err(bad("its secret contains a control character"));
        }
        let (address, host) = match scheme {
            "http" => (tcp_address(authority).map_err(bad)?, authority.to_owned()),
            "http+unix" => {
                let socket = percent::decoded(authority).and_then(|bytes| String::from_utf8(bytes).ok());
                let socket = socket.ok_or(bad("the socket's path is not percent-encoded"))?;
                if !socket.starts_with('/') {
                    return Err(bad("the socket's path is not absolute"));
                }
                (Address::Unix(socket.into()), "localhost".to_owned())
            }
            "https" => return Err(bad("https is not supported")),
            _ => return Err(bad("its scheme is not supported")),
        };
        Ok(Self { address, host, path: path.to_owned(), secret })
    }

    /// The Unix socket, if calls are sent to one.
    #[must_use]
    pub fn socket(&self) -> Option<&Path> {
        match &self.address {
            Address::Unix(path) => Some(path),
            Address::Tcp { .. } => None,
        }
    }

    /// Host and port, if calls are sent over TCP.
    #[must_use]
    pub fn tcp(&self) -> Option<(&str, u16)> {
        match &self.address {
            Address::Tcp { host, port } => Some((host, *port)),
            Address::Unix(_) => None,
        }
    }

    /// The URL that a request names, without the socket.
    #[must_use]
    pub fn http_url(&self) -> String {
        format!("http://{}{}", self.host, self.path)
    }

    /// Sends a body and reads the answer. A connection in `kept` is reused if it still can be, and the one that served
    /// the call is put there. `may_go_on` is called after every signal, and ten times a second.
    ///
    /// # Errors
    /// [`PostError`]; the connection is then closed.
    pub fn post(
        &self,
        body: &[u8],
        kept: &mut Option<Connection>,
        deadline: Option<Instant>,
        may_go_on: &mut dyn FnMut() -> bool,
    ) -> Result<Answer, PostError> {
        let fresh = || Ok(Connection { socket: open_socket(&self.address)?, is_connected: false });
        let connection = match kept.take().filter(Connection::is_quiet) {
            Some(connection) => connection,
            None => fresh().map_err(|source| self.unreachable(source))?,
        };
        let mut exchange = Exchange { connection, deadline, may_go_on };
        if !exchange.connection.is_connected {
            exchange.connect().map_err(|error| match error {
                PostError::Io(source) => self.unreachable(source),
                other => other,
            })?;
        }
        let mut head = Vec::with_capacity(512);
        write!(
            head,
            "POST {} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nUser-Agent: {}\r\n",
            self.path,
            self.host,
            body.len(),
            concat!("rlm/", env!("CARGO_PKG_VERSION")),
        )
        .map_err(PostError::Io)?;
        if let Some(secret) = &self.secret {
            write!(head, "Authorization: Bearer {secret}\r\n").map_err(PostError::Io)?;
        }
        head.extend_from_slice(b"\r\n");
        let sent = match body.len() < 32 << 10 {
            true => exchange.send(&[&head[..], body].concat()),
            false => exchange.send(&head).and_then(|()| exchange.send(body)),
        };
        // An endpoint that refuses a body answers before it has read all of it, and closes.
        if let Err(error) = sent
            && !matches!(&error, PostError::Io(source) if is_closed(source))
        {
            return Err(error);
        }
        let (answer, stays_open) = exchange.receive()?;
        if stays_open {
            *kept = Some(exchange.connection);
        }
        Ok(answer)
    }

    fn unreachable(&self, source: io::Error) -> PostError {
        PostError::Unreachable { endpoint: self.to_string(), source }
    }
}

/// An endpoint's response.
#[derive(Debug)]
pub struct Answer {
    /// HTTP status.
    pub status: u16,
    /// Response body.
    pub body: Vec<u8>,
}

impl Answer {
    /// The body of a response of status 200.
    ///
    /// # Errors
    /// For any other status, the message for the caller.
    pub fn into_ok(self) -> Result<Vec<u8>, String> {
        if self.status == 200 {
            return Ok(self.body);
        }
        match serde_json::from_slice::<ErrorBody>(&self.body) {
            Ok(body) => Err(body.error),
            Err(_) => {
                let text = String::from_utf8_lossy(&self.body);
                let excerpt = text.trim().chars().take(EXCERPT_CHARS).collect::<String>();
                Err(format!("the endpoint answered with HTTP status {}: {excerpt}", self.status))
            }
        }
    }
}

/// A call that got no response.
#[derive(Debug, thiserror::Error)]
pub enum PostError {
    /// The endpoint cannot be reached.
    #[error("cannot reach the root-tool endpoint {endpoint}: {source}")]
    Unreachable {
        /// Address of the endpoint.
        endpoint: String,
        /// Error of the connection attempt.
        #[source]
        source: io::Error,
    },
    /// The connection broke.
    #[error("the connection to the root-tool endpoint broke: {0}")]
    Io(#[source] io::Error),
    /// The deadline passed.
    #[error("the root-tool endpoint did not answer in time")]
    TimedOut,
    /// The caller asked to stop.
    #[error("interrupted")]
    Interrupted,
    /// The response is not HTTP, or is too large.
    #[error("the root-tool endpoint's answer cannot be read: {0}")]
    Malformed(String),
}

/// A connection to an endpoint.
#[derive(Debug)]
pub struct Connection {
    socket: OwnedFd,
    is_connected: bool,
}

impl Connection {
    /// True if the connection is open and has nothing to read: at an endpoint that has closed it, end of file is
    /// readable.
    fn is_quiet(&self) -> bool {
        let mut fds = [PollFd::new(self.socket.as_fd(), PollFlags::POLLIN)];
        poll(&mut fds, PollTimeout::ZERO) == Ok(0)
    }
}

/// One request and its answer.
struct Exchange<'a> {
    connection: Connection,
    deadline: Option<Instant>,
    may_go_on: &'a mut dyn FnMut() -> bool,
}

impl Exchange<'_> {
    /// Waits until the socket is ready, a signal arrives, or a tick has passed.
    fn wait(&mut self, events: PollFlags) -> Result<(), PostError> {
        let left = self.deadline.map_or(TICK, |deadline| deadline.saturating_duration_since(Instant::now()));
        if left.is_zero() {
            return Err(PostError::TimedOut);
        }
        // Rounded up: a wait of zero would spin.
        let milliseconds = u16::try_from(left.min(TICK).as_micros().div_ceil(1000)).unwrap_or(u16::MAX);
        let mut fds = [PollFd::new(self.connection.socket.as_fd(), events)];
        match poll(&mut fds, milliseconds) {
            Ok(ready) if ready > 0 => Ok(()),
            Ok(_) | Err(Errno::EINTR) if (self.may_go_on)() => Ok(()),
            Ok(_) | Err(Errno::EINTR) => Err(PostError::Interrupted),
            Err(errno) => Err(PostError::Io(errno.into())),
        }
    }

    fn connect(&mut self) -> Result<(), PostError> {
        loop {
            let mut fds = [PollFd::new(self.connection.socket.as_fd(), PollFlags::POLLOUT)];
            if poll(&mut fds, PollTimeout::ZERO) == Ok(1) {
                break;
            }
            self.wait(PollFlags::POLLOUT)?;
        }
        match getsockopt(&self.connection.socket, sockopt::SocketError) {
            Ok(0) => {
                self.connection.is_connected = true;
                Ok(())
            }
            Ok(error) => Err(PostError::Io(io::Error::from_raw_os_error(error))),
            Err(errno) => Err(PostError::Io(errno.into())),
        }
    }

    fn send(&mut self, mut bytes: &[u8]) -> Result<(), PostError> {
        while !bytes.is_empty() {
            match send(self.connection.socket.as_raw_fd(), bytes, MsgFlags::MSG_NOSIGNAL) {
                Ok(count) => bytes = &bytes[count..],
                Err(Errno::EAGAIN | Errno::EINTR) => self.wait(PollFlags::POLLOUT)?,
                Err(errno) => return Err(PostError::Io(errno.into())),
            }
        }
        Ok(())
    }

    /// Reads more; false at end of file.
    fn read(&mut self, bytes: &mut Vec<u8>) -> Result<bool, PostError> {
        const STEP: usize = 64 << 10;
        let old = bytes.len();
        bytes.resize(old + STEP, 0);
        let count = loop {
            match recv(self.connection.socket.as_raw_fd(), &mut bytes[old..], MsgFlags::empty()) {
                Ok(count) => break count,
                Err(Errno::EAGAIN | Errno::EINTR) => self.wait(PollFlags::POLLIN)?,
                Err(errno) => return Err(PostError::Io(errno.into())),
            }
        };
        bytes.truncate(old + count);
        Ok(count > 0)
    }

    fn read_or_break(&mut self, bytes: &mut Vec<u8>) -> Result<(), PostError> {
        match self.read(bytes)? {
            true => Ok(()),
            false => Err(PostError::Io(io::ErrorKind::UnexpectedEof.into())),
        }
    }

    /// Reads the response; true if the connection can be reused.
    fn receive(&mut self) -> Result<(Answer, bool), PostError> {
        let mut bytes = Vec::new();
        let head = loop {
            match Head::parse(&bytes).map_err(malformed)? {
                // An interim response (1xx).
                Some(head) if head.status < 200 => drop(bytes.drain(..head.length)),
                Some(head) => break head,
                None if bytes.len() > MAX_HEAD_BYTES => return Err(malformed("its head is too long")),
                None => self.read_or_break(&mut bytes)?,
            }
        };
        bytes.drain(..head.length);
        let body = match head.framing {
            Framing::Length(length) if length > MAX_RESPONSE_BYTES => {
                return Err(malformed(format!("{length} bytes exceed the limit of {MAX_RESPONSE_BYTES}")));
            }
            Framing::Length(length) => {
                bytes.reserve(length.saturating_sub(bytes.len()));
                while bytes.len() < length {
                    self.read_or_break(&mut bytes)?;
                }
                // Extra bytes would be taken for the next response.
                let is_exact = bytes.len() == length;
                bytes.truncate(length);
                return Ok((Answer { status: head.status, body: bytes }, head.keep_alive && is_exact));
            }
            Framing::Chunks => self.receive_chunks(bytes)?,
            Framing::ToTheEnd => {
                while self.read(&mut bytes)? {
                    check_size(bytes.len())?;
                }
                bytes
            }
        };
        let stays_open = head.keep_alive && head.framing == Framing::Chunks;
        Ok((Answer { status: head.status, body }, stays_open))
    }

    fn receive_chunks(&mut self, mut bytes: Vec<u8>) -> Result<Vec<u8>, PostError> {
        let mut body = Vec::new();
        loop {
            let (start, size) = loop {
                match httparse::parse_chunk_size(&bytes) {
                    Ok(httparse::Status::Complete(parsed)) => break parsed,
                    Ok(httparse::Status::Partial) => self.read_or_break(&mut bytes)?,
                    Err(_) => return Err(malformed("a chunk has no size")),
                }
            };
            let size = usize::try_from(size).unwrap_or(usize::MAX);
            check_size(body.len().saturating_add(size))?;
            let end = start + size;
            if size == 0 {
                // Trailers are ignored: an empty line ends them.
                while !bytes[start..].starts_with(b"\r\n")
                    && memchr::memmem::find(&bytes, b"\r\n\r\n").is_none()
                {
                    self.read_or_break(&mut bytes)?;
                }
                return Ok(body);
            }
            while bytes.len() < end + 2 {
                self.read_or_break(&mut bytes)?;
            }
            if bytes[end..end + 2] != *b"\r\n" {
                return Err(malformed("a chunk is longer than its size"));
            }
            body.extend_from_slice(&bytes[start..end]);
            bytes.drain(..end + 2);
        }
    }
}

fn malformed(fault: impl Into<String>) -> PostError {
    PostError::Malformed(fault.into())
}

fn check_size(bytes: usize) -> Result<(), PostError> {
    match bytes > MAX_RESPONSE_BYTES {
        true => Err(malformed(format!("it exceeds the limit of {MAX_RESPONSE_BYTES} bytes"))),
        false => Ok(()),
    }
}

fn is_closed(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset)
}

/// Starts to connect.
fn open_socket(address: &Address) -> io::Result<OwnedFd> {
    match address {
        Address::Unix(path) => {
            let address = UnixAddr::new(path)?;
            begin(AddressFamily::Unix, &address)
        }
        Address::Tcp { host, port } => {
            let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
            for address in (host.as_str(), *port).to_socket_addrs()? {
                let family = match address {
                    SocketAddr::V4(_) => AddressFamily::Inet,
                    SocketAddr::V6(_) => AddressFamily::Inet6,
                };
                match begin(family, &SockaddrStorage::from(address)) {
                    Ok(socket) => {
                        // A request is one write, and the response is awaited after it.
                        let _slower = setsockopt(&socket, sockopt::TcpNoDelay, &true);
                        return Ok(socket);
                    }
                    Err(error) => last = error,
                }
            }
            Err(last)
        }
    }
}

fn begin(family: AddressFamily, address: &dyn nix::sys::socket::SockaddrLike) -> io::Result<OwnedFd> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let socket = socket(family, SockType::Stream, flags, None)?;
    match connect(socket.as_raw_fd(), address) {
        Ok(()) | Err(Errno::EINPROGRESS | Errno::EINTR) => Ok(socket),
        Err(errno) => Err(errno.into()),
    }
}

fn tcp_address(authority: &str) -> Result<Address, &'static str> {
    if authority.contains('@') {
        return Err("it contains a user name");
    }
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => {
            (host, port.parse().map_err(|_| "its port is not a number from 0 to 65535")?)
        }
        _ => (authority, 80),
    };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    match host.is_empty() {
        true => Err("it has no host"),
        false => Ok(Address::Tcp { host: host.to_owned(), port }),
    }
}
