//! The way to an endpoint on `127.0.0.1`: a confined session has a loopback device of its own.
//!
//! The server listens on the endpoint's port inside, and hands the listening socket to the guard: a socket stays in the namespace
//! in which it was made. The guard accepts there, connects outside, and copies bytes.

use std::io::{self, IoSlice, IoSliceMut, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread;

use nix::cmsg_space;
use nix::sys::socket::{ControlMessage, ControlMessageOwned, MsgFlags, recvmsg, sendmsg};

use super::Failed;

/// The word of a server that is confined.
pub(super) const ENTERED: &[u8] = b"+";

/// Most connections at once, each of which has four descriptors.
const MOST_CONNECTIONS: usize = 128;

/// Stack of a thread that copies.
const STACK_BYTES: usize = 64 << 10;

/// What a server says of its confinement.
#[derive(Debug)]
pub(in super::super) enum Relay {
    /// It is confined, and has an endpoint there if there is a listener: connections to it go to this port of the host.
    Entered(Option<(TcpListener, u16)>),
    /// The host does not allow it.
    Failed(Failed),
}

/// Hands the listener of an endpoint at a port to the guard.
pub(super) fn hand_over(link: &UnixStream, listener: &TcpListener, port: u16) -> io::Result<()> {
    let (word, descriptors) = ([ENTERED, &port.to_be_bytes()].concat(), [listener.as_raw_fd()]);
    let rights = ControlMessage::ScmRights(&descriptors);
    sendmsg::<()>(link.as_raw_fd(), &[IoSlice::new(&word)], &[rights], MsgFlags::empty(), None)?;
    Ok(())
}

/// Reads what the server says. None: it has ended before.
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
        ([b'+', high, low], Some(listener)) => {
            Some(Relay::Entered(Some((listener, u16::from_be_bytes([*high, *low])))))
        }
        (b"+", _) => Some(Relay::Entered(None)),
        (other, _) => Failed::from_bytes(other).map(Relay::Failed),
    }
}

/// Serves connections to the listener, in threads, as long as this process lives.
pub(in super::super) fn serve(listener: TcpListener, port: u16) -> io::Result<()> {
    let open = Arc::new(());
    let accept = move || {
        for inside in listener.incoming().flatten() {
            // Each has two threads. Those beyond the bound, and those without a peer, end: their clients say so.
            if Arc::strong_count(&open) > 2 * MOST_CONNECTIONS {
                continue;
            }
            let Ok(outside) = TcpStream::connect(("127.0.0.1", port)) else { continue };
            let _no_delay = inside.set_nodelay(true).and_then(|()| outside.set_nodelay(true));
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
