//! The way to an endpoint that a confined session cannot reach: one on `127.0.0.1` if the session has a network of its own, and
//! otherwise a Unix socket.
//!
//! The server listens on a port, and hands the listening socket to the guard: a socket stays in the namespace in which it was
//! made. The guard accepts there, connects outside, and copies bytes.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice, IoSliceMut, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;

use nix::cmsg_space;
use nix::libc;
use nix::sys::socket::{ControlMessage, ControlMessageOwned, MsgFlags, recvmsg, sendmsg};

use super::failed::Failed;

/// The word by which a server says that it is confined.
pub(super) const ENTERED: &[u8] = b"+";

/// Most connections at once, each of which has four descriptors.
const MOST_CONNECTIONS: usize = 128;

/// Stack of a thread that copies bytes.
const STACK_BYTES: usize = 64 << 10;

/// An endpoint outside of the session.
#[derive(Debug)]
pub(in super::super) enum Target {
    /// A port of the host's loopback device.
    Port(u16),
    Socket(PathBuf),
}

impl Target {
    /// A socket's path begins with a slash, and a port is a number.
    fn to_bytes(&self) -> Vec<u8> {
        match self {
            Self::Port(port) => port.to_string().into_bytes(),
            Self::Socket(path) => path.as_os_str().as_bytes().to_vec(),
        }
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        match bytes {
            [b'/', ..] => Some(Self::Socket(OsStr::from_bytes(bytes).into())),
            _ => std::str::from_utf8(bytes).ok()?.parse().ok().map(Self::Port),
        }
    }

    /// Opens the socket, before code could put something else in its place.
    fn open(self) -> io::Result<Outside> {
        let flags = libc::O_PATH | libc::O_NOFOLLOW;
        Ok(match self {
            Self::Port(port) => Outside::Port(port),
            Self::Socket(path) => {
                Outside::Socket(OpenOptions::new().read(true).custom_flags(flags).open(path)?)
            }
        })
    }
}

/// An endpoint outside of the session that was found.
enum Outside {
    Port(u16),
    Socket(File),
}

impl Outside {
    fn connect(&self) -> io::Result<TcpStream> {
        match self {
            Self::Port(port) => TcpStream::connect(("127.0.0.1", *port)),
            Self::Socket(socket) => {
                let stream = UnixStream::connect(format!("/proc/self/fd/{}", socket.as_raw_fd()))?;
                // Reading, writing and shutting down are the same for all kinds of streams.
                Ok(OwnedFd::from(stream).into())
            }
        }
    }
}

/// A server's report on its confinement.
#[derive(Debug)]
pub(in super::super) enum Relay {
    /// The server is confined. Connections to the listener, if there is one, go to this endpoint.
    Entered(Option<(TcpListener, Target)>),
    /// The host does not allow it.
    Failed(Failed),
}

/// Hands the listener of an endpoint to the guard.
pub(super) fn hand_over(link: &UnixStream, listener: &TcpListener, target: &Target) -> io::Result<()> {
    let (word, descriptors) = ([ENTERED, &target.to_bytes()].concat(), [listener.as_raw_fd()]);
    let rights = ControlMessage::ScmRights(&descriptors);
    sendmsg::<()>(link.as_raw_fd(), &[IoSlice::new(&word)], &[rights], MsgFlags::empty(), None)?;
    Ok(())
}

/// Reads the server's report. None: the server has ended before.
pub(in super::super) fn receive(link: &UnixStream) -> Option<Relay> {
    let mut word = [0; 4096];
    let mut space = cmsg_space!([i32; 1]);
    let (count, descriptor) = {
        let mut into = [IoSliceMut::new(&mut word)];
        let flags = MsgFlags::MSG_CMSG_CLOEXEC;
        let message = recvmsg::<()>(link.as_raw_fd(), &mut into, Some(&mut space), flags).ok()?;
        let descriptors = message.cmsgs().ok()?.find_map(|control| match control {
            ControlMessageOwned::ScmRights(descriptors) => descriptors.first().copied(),
            _ => None,
        });
        (message.bytes, descriptors)
    };
    // SAFETY: the kernel has just made this descriptor, and nothing else owns it.
    let listener = descriptor.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }.into());
    match (&word[..count], listener) {
        ([b'+', target @ ..], Some(listener)) => {
            Some(Relay::Entered(Target::from_bytes(target).map(|target| (listener, target))))
        }
        (b"+", None) => Some(Relay::Entered(None)),
        (other, _) => Failed::from_bytes(other).map(Relay::Failed),
    }
}

/// Serves connections to the listener, in threads, as long as this process lives.
pub(in super::super) fn serve(listener: TcpListener, target: Target) -> io::Result<()> {
    let target = target.open()?;
    let open = Arc::new(());
    let accept = move || {
        for inside in listener.incoming().flatten() {
            // A Unix socket is closed to other users, and so must be the port in its place.
            if matches!(target, Outside::Socket(_)) && !is_ours(&inside) {
                continue;
            }
            // Each connection has two threads. Connections beyond the bound, and those without a peer, end: their clients say so.
            if Arc::strong_count(&open) > 2 * MOST_CONNECTIONS {
                continue;
            }
            let Ok(outside) = target.connect() else { continue };
            let _no_delay_or_no_tcp = inside.set_nodelay(true).and_then(|()| outside.set_nodelay(true));
            let (Ok(from), Ok(to)) = (inside.try_clone(), outside.try_clone()) else { continue };
            for (from, to) in [(from, to), (outside, inside)] {
                let open = open.clone();
                let copy = move || {
                    copy(from, to);
                    drop(open);
                };
                let _too_many = thread::Builder::new().stack_size(STACK_BYTES).spawn(copy);
            }
        }
    };
    thread::Builder::new().stack_size(STACK_BYTES).spawn(accept).map(drop)
}

/// True if this user has made the connection.
fn is_ours(connection: &TcpStream) -> bool {
    let (Ok(theirs), Ok(ours)) = (connection.peer_addr(), connection.local_addr()) else { return false };
    let Ok(sockets) = std::fs::read_to_string("/proc/self/net/tcp") else { return false };
    let user = nix::unistd::getuid().to_string();
    sockets.lines().map(|line| line.split_whitespace().collect::<Vec<_>>()).any(|fields| {
        let is_port = |at: usize, port: u16| {
            fields.get(at).is_some_and(|field| field.ends_with(&format!(":{port:04X}")))
        };
        is_port(1, theirs.port())
            && is_port(2, ours.port())
            && fields.get(7).is_some_and(|uid| **uid == *user)
    })
}

/// Copies until one side ends, and then tells the other.
fn copy(mut from: TcpStream, mut to: TcpStream) {
    let mut bytes = [0; 16 << 10];
    loop {
        match from.read(&mut bytes) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Ok(count) if count > 0 && to.write_all(&bytes[..count]).is_ok() => {}
            _ => break,
        }
    }
    let _ended_already = to.shutdown(Shutdown::Write);
    let _ended_already = from.shutdown(Shutdown::Read);
}
