//! The fork server's side: it takes requests, forks, and cleans up after the servers that it has forked.

use std::io::IsTerminal as _;
use std::os::fd::{AsFd as _, AsRawFd as _, FromRawFd as _, OwnedFd, RawFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::libc;
use nix::poll::{PollFd, PollFlags, poll};
use nix::sys::prctl::set_child_subreaper;
use nix::sys::signal::{SigHandler, SigSet, Signal, signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::socket::{SockFlag, accept4};
use nix::unistd::{Pid, fchdir, setsid};

use super::{DESCRIPTORS, GO, MAX_BYTES, Wanted, peer, receive, send};
use crate::sys;
use crate::worker::events::{self, Above, Events};
use crate::worker::settings::{Environment, Settings};
use crate::worker::{ForwardFlag, descendants};

/// Time for a guard to send its request after it has connected.
const REQUEST_LIMIT: Duration = Duration::from_secs(2);

/// Pause after a connection that could not be accepted for lack of descriptors.
const PAUSE: Duration = Duration::from_millis(50);

/// The process that forks servers, with one thread.
#[derive(Debug)]
pub struct ForkServer {
    /// None once it takes no more requests.
    listener: Option<OwnedFd>,
    owner: Owner,
    signals: SignalFd,
    /// The mask of signals that interpreters get.
    mask: SigSet,
    connected: Vec<(OwnedFd, Instant)>,
    /// No connection is taken before this time.
    paused_until: Option<Instant>,
    servers: Vec<(Pid, OwnedFd)>,
    /// True until the servers have been looked at: one may have ended before this process watched signals.
    has_news: bool,
    /// The one buffer for requests. It is overwritten, as a later session could read what is left in memory.
    buffer: Vec<u8>,
}

/// The one for whom a fork server takes requests.
#[derive(Debug)]
enum Owner {
    /// Its end of file ends the fork server, after its last session.
    Descriptor(OwnedFd),
    /// One session alone is wanted, until this time.
    One(Instant),
}

/// The reason why a process can serve no session now.
#[derive(Debug)]
pub struct Obstacle {
    /// The reason, for the log of the session.
    pub reason: String,
    /// The process has to start anew.
    pub is_stale: bool,
}

/// The end of [`ForkServer::run`].
#[derive(Debug)]
pub enum End {
    /// This process is a new server.
    Forked(Box<Accepted>),
    /// The process cannot serve more sessions, and another program has to take its place.
    Stale,
    /// The last session has ended, and no more are wanted.
    Retired,
}

/// A server that was just forked, and has not looked at its request.
#[derive(Debug)]
pub struct Accepted {
    link: OwnedFd,
    descriptors: Vec<OwnedFd>,
    request: Vec<u8>,
    /// The file with the rest of a branch, and descriptors of its interpreter.
    branch: Option<(OwnedFd, Vec<RawFd>)>,
}

impl ForkServer {
    /// Takes requests at a socket that listens. `servers` are children of this process already, and their connections to guards.
    ///
    /// # Errors
    /// The system refuses.
    pub fn new(listener: OwnedFd, owner: OwnedFd, servers: Vec<(Pid, OwnedFd)>) -> Result<Self, Errno> {
        Self::of(listener, Owner::Descriptor(owner), servers)
    }

    /// Takes one request, up to this time.
    ///
    /// # Errors
    /// The system refuses.
    pub fn for_one(listener: OwnedFd, until: Instant) -> Result<Self, Errno> {
        Self::of(listener, Owner::One(until), Vec::new())
    }

    fn of(listener: OwnedFd, owner: Owner, servers: Vec<(Pid, OwnedFd)>) -> Result<Self, Errno> {
        let mut mask = SigSet::thread_get_mask()?;
        // They stay blocked while a process starts anew.
        Events::signals().iter().for_each(|signal| mask.remove(signal));
        events::block_signals()?;
        // A module may have changed it, and no signal would come then.
        // SAFETY: no handler is installed.
        unsafe { signal(Signal::SIGCHLD, SigHandler::SigDfl) }?;
        set_child_subreaper(true)?;
        let signals =
            SignalFd::with_flags(&Events::signals(), SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
        fcntl(&listener, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        let (listener, has_news, buffer) = (Some(listener), true, vec![0; MAX_BYTES]);
        let (connected, paused_until) = (Vec::new(), None);
        Ok(Self { listener, owner, signals, mask, connected, paused_until, servers, has_news, buffer })
    }

    /// The socket that listens, the owner, and the servers, for the program that takes this one's place.
    #[must_use]
    pub fn into_parts(self) -> (Option<OwnedFd>, Option<OwnedFd>, Vec<(Pid, OwnedFd)>) {
        let owner = match self.owner {
            Owner::Descriptor(owner) => Some(owner),
            Owner::One(_) => None,
        };
        (self.listener, owner, self.servers)
    }

    /// The mask of signals from before [`Self::new`], without those that it blocks.
    #[must_use]
    pub fn mask(&self) -> SigSet {
        self.mask
    }

    /// Takes requests until no more are wanted and the last session has ended. Returns in each new server, too: `fork` forks, and
    /// returns 0 there. `obstacle` says why this process cannot serve.
    ///
    /// # Errors
    /// The system refuses to wait.
    pub fn run(
        &mut self,
        mut obstacle: impl FnMut() -> Option<Obstacle>,
        mut fork: impl FnMut() -> Result<libc::pid_t, Errno>,
    ) -> Result<End, Errno> {
        while self.listener.is_some() || !self.servers.is_empty() {
            if !self.has_news {
                self.wait()?;
            }
            self.tend_servers()?;
            self.accept();
            while let Some((link, count, descriptors)) = self.next_request() {
                if let Some(Obstacle { reason, is_stale }) = obstacle() {
                    self.buffer[..count].fill(0);
                    refuse(&link, &reason);
                    if is_stale {
                        return Ok(End::Stale);
                    }
                    continue;
                }
                match fork() {
                    Ok(0) => {
                        let request = self.buffer[..count].to_vec();
                        return Ok(End::Forked(Box::new(Accepted {
                            link,
                            descriptors,
                            request,
                            branch: None,
                        })));
                    }
                    Ok(server) => {
                        self.servers.push((Pid::from_raw(server), link));
                        if let Owner::One(_) = self.owner {
                            self.retire();
                        }
                    }
                    Err(errno) => refuse(&link, &format!("it cannot fork ({})", errno.desc())),
                }
                self.buffer[..count].fill(0);
            }
        }
        Ok(End::Retired)
    }

    /// Takes no more requests.
    fn retire(&mut self) {
        self.listener = None;
        for (link, _) in self.connected.drain(..) {
            refuse(&link, "it takes no more sessions");
        }
    }

    fn wait(&mut self) -> Result<(), Errno> {
        let is_paused = self.paused_until.is_some_and(|until| Instant::now() < until);
        let mut fds = vec![PollFd::new(self.signals.as_fd(), PollFlags::POLLIN)];
        let (owner, until) = match &self.owner {
            _ if self.listener.is_none() => (None, None),
            Owner::Descriptor(owner) => (Some(owner), None),
            Owner::One(until) => (None, Some(*until)),
        };
        fds.extend(owner.map(|owner| {
            // A terminal is read by others, too: only its end counts.
            let events = if owner.is_terminal() { PollFlags::empty() } else { PollFlags::POLLIN };
            PollFd::new(owner.as_fd(), events)
        }));
        let listener = self.listener.iter().filter(|_| !is_paused);
        fds.extend(listener.map(|fd| PollFd::new(fd.as_fd(), PollFlags::POLLIN)));
        fds.extend(self.connected.iter().map(|(link, _)| PollFd::new(link.as_fd(), PollFlags::POLLIN)));
        let requests = self.connected.iter().map(|(_, since)| *since + REQUEST_LIMIT);
        let deadline = requests.chain(self.paused_until.filter(|_| is_paused)).chain(until).min();
        match poll(&mut fds, sys::timeout_until(deadline)) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno),
        }
        let owner_is_gone = owner.is_some_and(|owner| {
            fds[1].any().unwrap_or(false) && !matches!(nix::unistd::read(owner, &mut [0; 64]), Ok(1..))
        });
        if owner_is_gone || until.is_some_and(|until| Instant::now() >= until) {
            self.retire();
        }
        Ok(())
    }

    /// Resumes servers that a session has stopped, and cleans up after those that have ended.
    fn tend_servers(&mut self) -> Result<(), Errno> {
        let mut has_news = std::mem::take(&mut self.has_news);
        while let Some(info) = self.signals.read_signal()? {
            match i32::try_from(info.ssi_signo) {
                Ok(libc::SIGCHLD) => has_news = true,
                _ => self.retire(),
            }
        }
        if !has_news {
            return Ok(());
        }
        // Others may end during the cleanup, which takes their signals.
        loop {
            let (mut ended, mut alive) = (Vec::new(), Vec::new());
            for (server, link) in self.servers.drain(..) {
                match descendants::try_reap(server) {
                    Ok(None) | Err(Errno::EINTR) => {
                        descendants::resume(server);
                        alive.push((server, link));
                    }
                    Ok(Some(status)) => ended.push((link, status)),
                    Err(_) => ended.push((link, 128 + libc::SIGKILL)),
                }
            }
            self.servers = alive;
            if ended.is_empty() {
                return Ok(());
            }
            let servers: Vec<Pid> = self.servers.iter().map(|(server, _)| *server).collect();
            descendants::end_all_but(&servers);
            for (link, status) in ended {
                let _guard_is_gone = send(&link, &word_of_status(status), &[]);
            }
        }
    }

    fn accept(&mut self) {
        let Some(listener) = &self.listener else { return };
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        loop {
            let link = match accept4(listener.as_raw_fd(), flags) {
                Ok(link) => link,
                Err(Errno::EINTR | Errno::ECONNABORTED) => continue,
                Err(Errno::EAGAIN) => return,
                Err(_too_many_descriptors) => {
                    self.paused_until = Some(Instant::now() + PAUSE);
                    return;
                }
            };
            // SAFETY: the kernel has just made this descriptor, and nothing else owns it.
            let link = unsafe { OwnedFd::from_raw_fd(link) };
            if peer(&link).is_ok() {
                self.connected.push((link, Instant::now()));
            }
        }
    }

    /// Reads a request that has come, into the buffer. Its size and descriptors.
    fn next_request(&mut self) -> Option<(OwnedFd, usize, Vec<OwnedFd>)> {
        let mut at = 0;
        while let Some((link, since)) = self.connected.get(at) {
            match receive(link, &mut self.buffer) {
                Ok((count @ 1.., descriptors)) if descriptors.len() >= DESCRIPTORS => {
                    return Some((self.connected.swap_remove(at).0, count, descriptors));
                }
                Err(Errno::EAGAIN) if since.elapsed() < REQUEST_LIMIT => at += 1,
                received => {
                    self.buffer.fill(0);
                    let (link, _) = self.connected.swap_remove(at);
                    if received.is_ok_and(|(count, _)| count > 0) {
                        refuse(&link, "it is out of descriptors");
                    }
                }
            }
        }
        None
    }
}

fn refuse(link: &OwnedFd, reason: &str) {
    let _guard_is_gone = send(link, format!("-{reason}").as_bytes(), &[]);
}

fn word_of_status(status: i32) -> [u8; 5] {
    let [a, b, c, d] = status.to_le_bytes();
    [b'=', a, b, c, d]
}

impl Accepted {
    /// The server is that of a branch, for whose interpreter these descriptors stay open. This file is the rest of what it has from its
    /// origin.
    #[must_use]
    pub fn of_branch(self, saved: OwnedFd, descriptors: Vec<RawFd>) -> Self {
        Self { branch: Some((saved, descriptors)), ..self }
    }

    /// Makes this process the server that the guard wants, up to the guard's word. None: the guard starts one itself.
    /// `check` says why an interpreter like this one cannot serve a session with these variables.
    pub(in crate::worker) fn enter(
        self,
        check: impl FnOnce(&Environment) -> Option<String>,
    ) -> Option<Entered> {
        let Self { link, descriptors, request, branch } = self;
        let (saved, of_interpreter) = branch.unzip();
        let own = descriptors.iter().chain([&link]).chain(&saved).map(|fd| fd.as_raw_fd());
        close_descriptors(&own.chain(of_interpreter.unwrap_or_default()).collect::<Vec<_>>());
        let begun = Wanted::decode(&request, saved.is_some()).and_then(|wanted| {
            let in_words = |errno: Errno| errno.desc().to_owned();
            take_place(&link, &descriptors).map_err(in_words)?;
            check(&wanted.environment).map_or(Ok(()), Err)?;
            Ok((wanted, begin(&link).map_err(in_words)?))
        });
        let (Wanted { control_dir, environment }, guard) =
            begun.map_err(|reason| refuse(&link, &reason)).ok()?;
        let mut descriptors = descriptors.into_iter().skip(DESCRIPTORS - 1);
        let forwarding = ForwardFlag::of(descriptors.next()?.as_fd()).ok()?;
        let host = Settings::host(&environment).unwrap_or_default();
        let above = Above::of_forked(guard, host, forwarding);
        Some(Entered { control_dir, environment, ready: descriptors.next(), above, link, saved })
    }
}

/// A server whose guard waits for its end.
pub(in crate::worker) struct Entered {
    pub(in crate::worker) control_dir: std::path::PathBuf,
    pub(in crate::worker) environment: Environment,
    pub(in crate::worker) ready: Option<OwnedFd>,
    pub(in crate::worker) above: Above,
    pub(in crate::worker) link: OwnedFd,
    /// The file with the rest of a branch.
    pub(in crate::worker) saved: Option<OwnedFd>,
}

/// Tells the guard the status of this process, which ends now. The fork server tells it too, unless it was killed.
pub(in crate::worker) fn tell_status(link: &OwnedFd, status: i32) {
    let _guard_is_gone = send(link, &word_of_status(status), &[]);
}

/// Gives this process the guard's working directory and streams, and a session of its own.
fn take_place(link: &OwnedFd, descriptors: &[OwnedFd]) -> Result<(), Errno> {
    fcntl(link, FcntlArg::F_SETFL(OFlag::empty()))?;
    setsid()?;
    set_child_subreaper(true)?;
    fchdir(&descriptors[0])?;
    for (stream, fd) in descriptors[1..DESCRIPTORS - 1].iter().zip(0..) {
        // SAFETY: plain integers; nothing in this process uses the old streams.
        Errno::result(unsafe { libc::dup2(stream.as_raw_fd(), fd) })?;
    }
    Ok(())
}

/// Tells the guard the id of this process, and waits for its word. The guard's process id.
fn begin(link: &OwnedFd) -> Result<Pid, Errno> {
    let guard = peer(link)?;
    let [a, b, c, d] = Pid::this().as_raw().to_le_bytes();
    send(link, &[b'+', a, b, c, d], &[])?;
    let mut word = [0; 8];
    let (count, _) = receive(link, &mut word)?;
    if &word[..count] == GO { Ok(guard) } else { Err(Errno::ECONNRESET) }
}

/// Closes all descriptors from 3 on but these: those of a server in an interpreter that was forked from it, or those of the fork server
/// and of other sessions in a server.
pub fn close_descriptors(kept: &[RawFd]) {
    let mut kept = kept.to_vec();
    kept.sort_unstable();
    let mut first = 3;
    for fd in kept {
        close_range(first, fd - 1);
        first = fd + 1;
    }
    close_range(first, RawFd::MAX);
}

/// Closes the descriptors of a range. Nothing in this process may use them afterwards.
fn close_range(first: RawFd, last: RawFd) {
    if first > last {
        return;
    }
    // SAFETY: plain integers.
    let closed = unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
    if closed < 0 {
        // A kernel before 5.9.
        // SAFETY: plain integers.
        let limit = unsafe { libc::sysconf(libc::_SC_OPEN_MAX) };
        let last = last.min(RawFd::try_from(limit).unwrap_or(RawFd::MAX));
        (first..=last).for_each(|fd| {
            // SAFETY: a plain integer.
            unsafe { libc::close(fd) };
        });
    }
}
