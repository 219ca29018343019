//! The guard's side: a request, and the server that came of it.

use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, setsockopt, socket, sockopt};
use nix::sys::time::{TimeVal, TimeValLike as _};
use nix::unistd::Pid;

use super::{GO, MAX_BYTES, Request, peer, receive, send};
use crate::error::with_causes;
use crate::sys;

/// Longest wait for a fork server that many ask at once, or that starts anew, in seconds.
const PATIENCE: i64 = 3;

/// Time for a fork server to clean up after a server that has ended. It may be stopped, or busy with its start.
const CLEANUP_LIMIT: Duration = Duration::from_secs(2);

/// A server that was forked for this guard, which is not its parent.
pub(in crate::worker) struct Forked {
    link: OwnedFd,
    process: OwnedFd,
    /// The status that came last: the server's own word, and then its parent's.
    status: Option<i32>,
    /// The end of the wait for its parent's word. None: the server is alive.
    until: Option<Instant>,
}

impl Forked {
    /// The descriptors of which one can be read when there is news of the server, and the time at which to look in any case.
    pub(in crate::worker) fn news(&self) -> (Vec<BorrowedFd<'_>>, Option<Instant>) {
        let process = self.until.is_none().then(|| self.process.as_fd());
        ([self.link.as_fd()].into_iter().chain(process).collect(), self.until)
    }

    /// The server's status once it has ended and nothing is left of its session.
    pub(in crate::worker) fn status(&mut self) -> Option<i32> {
        let mut dead = [PollFd::new(self.process.as_fd(), PollFlags::POLLIN)];
        if self.until.is_none() && poll(&mut dead, PollTimeout::ZERO) == Ok(1) {
            self.until = Some(Instant::now() + CLEANUP_LIMIT);
        }
        let mut word = [0; 16];
        loop {
            match receive(&self.link, &mut word) {
                Ok((5, _)) if word[0] == b'=' => {
                    self.status = Some(i32::from_le_bytes([word[1], word[2], word[3], word[4]]));
                }
                Err(Errno::EAGAIN) if self.until.is_none_or(|until| Instant::now() < until) => return None,
                Err(Errno::EINTR) => {}
                // Both have closed the connection. A server that says nothing was killed, and so was its parent.
                _ => return Some(self.status.unwrap_or(128 + libc::SIGKILL)),
            }
        }
    }

    /// Signals the server, if it is alive.
    pub(in crate::worker) fn signal(&self, signal: Signal) {
        sys::signal_process(&self.process, signal);
    }
}

/// Asks a fork server for the server of a session. `flag` is the memory of the guard's flag.
///
/// # Errors
/// The reason why the fork server gives none. Nothing has been started then.
pub(in crate::worker) fn ask(
    name: &str,
    request: &Request<'_>,
    flag: BorrowedFd<'_>,
    ready: Option<BorrowedFd<'_>>,
) -> Result<Forked, String> {
    let in_words = |errno: Errno| match errno {
        Errno::ECONNREFUSED => "it does not run".to_owned(),
        Errno::EPERM => "it is another user's".to_owned(),
        Errno::EAGAIN => format!("it has not answered for {PATIENCE} s"),
        Errno::EMSGSIZE => "the environment is too large to be passed to it".to_owned(),
        errno => errno.desc().to_owned(),
    };
    let here = std::fs::File::open(".").map_err(|error| with_causes(&error))?;
    let link = open_link(name).map_err(in_words)?;
    let [stdin, stdout, stderr] = [
        io::stdin().as_fd().try_clone_to_owned(),
        io::stdout().as_fd().try_clone_to_owned(),
        io::stderr().as_fd().try_clone_to_owned(),
    ];
    let closed = |_error: io::Error| "a standard stream is closed".to_owned();
    let (stdin, stdout, stderr) = (stdin.map_err(closed)?, stdout.map_err(closed)?, stderr.map_err(closed)?);
    let mut descriptors = vec![here.as_fd(), stdin.as_fd(), stdout.as_fd(), stderr.as_fd(), flag];
    descriptors.extend(ready);
    let bytes = request.encode();
    if bytes.len() > MAX_BYTES {
        return Err(in_words(Errno::EMSGSIZE));
    }
    send(&link, &bytes, &descriptors).map_err(in_words)?;
    let mut answer = [0; 1024];
    let (count, _) = receive(&link, &mut answer).map_err(in_words)?;
    match &answer[..count] {
        [b'+', pid @ ..] if pid.len() == 4 => {
            let pid = Pid::from_raw(i32::from_le_bytes([pid[0], pid[1], pid[2], pid[3]]));
            // It waits for the word, so the id is its own.
            let process = sys::pidfd(pid).map_err(in_words)?;
            send(&link, GO, &[]).map_err(in_words)?;
            // From now on, news are waited for together with signals.
            setsockopt(&link, sockopt::ReceiveTimeout, &TimeVal::zero()).map_err(in_words)?;
            nix::fcntl::fcntl(&link, nix::fcntl::FcntlArg::F_SETFL(nix::fcntl::OFlag::O_NONBLOCK))
                .map_err(in_words)?;
            Ok(Forked { link, process, status: None, until: None })
        }
        [b'-', reason @ ..] => Err(String::from_utf8_lossy(reason).into_owned()),
        _ => Err("it has ended".to_owned()),
    }
}

fn open_link(name: &str) -> Result<OwnedFd, Errno> {
    let link = socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::SOCK_CLOEXEC, None)?;
    let patience = TimeVal::seconds(PATIENCE);
    setsockopt(&link, sockopt::SendTimeout, &patience)?;
    setsockopt(&link, sockopt::ReceiveTimeout, &patience)?;
    connect(link.as_raw_fd(), &UnixAddr::new_abstract(name.as_bytes())?)?;
    peer(&link)?;
    Ok(link)
}
