//! Checkpoints: a copy of the interpreter from before the last request, which waits to take its place when it dies.
//!
//! The engine forks the copy after its report. Once the copy waits at the gate, it announces itself; then the one before it is ended.
//! A copy of an older state than that of the last report never takes over.

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::signal::Signal;
use nix::unistd::{Pid, pipe2, read, write};
use rlm_core::worker::pipes::{Pipe, path_of};
use rlm_core::worker::{Events, Exit, Process};

use crate::wire::{Announcement, Command, CopySettings};

/// The copies of a session's interpreter.
#[derive(Debug)]
pub(crate) struct Checkpoints {
    /// The end that copies open, by its path.
    gate: OwnedFd,
    /// Only this process has it: its death ends the copy that waits.
    opener: OwnedFd,
    announcements: Pipe,
    max_bytes: u64,
    /// The copy that waits, and the number of the request after which it was taken.
    waiting: Option<(u64, Process)>,
    /// Older copies, until they are dead.
    ended: Vec<Process>,
    /// The number of the last request that was reported, unless no copy was to be taken after it.
    settled: Option<u64>,
    /// The reason why there is no copy, as the caller was told.
    told: Option<String>,
}

impl Checkpoints {
    pub(crate) fn new(max_bytes: u64) -> io::Result<Self> {
        let (gate, opener) = pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK)?;
        let announcements = Pipe::new()?;
        let (waiting, ended, settled, told) = (None, Vec::new(), None, None);
        Ok(Self { gate, opener, announcements, max_bytes, waiting, ended, settled, told })
    }

    /// The settings of the engine.
    pub(crate) fn settings(&self) -> CopySettings {
        CopySettings {
            max_bytes: self.max_bytes,
            gate: path_of(self.gate.as_raw_fd()),
            announcements: self.announcements.path(),
        }
    }

    /// Polls readable when a copy has announced itself.
    pub(crate) fn announced(&self) -> BorrowedFd<'_> {
        self.announcements.reader()
    }

    /// Takes note of the report of a request, and of the reason why no copy will be taken. Returns the reason if it is new.
    /// `is_shown`: somebody sees it.
    pub(crate) fn settle(&mut self, number: u64, obstacle: Option<String>, is_shown: bool) -> Option<String> {
        self.settled = obstacle.is_none().then_some(number);
        if obstacle.is_some() {
            self.end_waiting();
        }
        let is_new = obstacle != self.told;
        if is_shown {
            self.told.clone_from(&obstacle);
        }
        obstacle.filter(|_| is_new)
    }

    /// Reads the announcements. The last copy replaces those before it.
    pub(crate) fn absorb(&mut self) -> Result<(), Errno> {
        let mut bytes = Vec::new();
        self.announcements.read_available(&mut bytes)?;
        for announcement in bytes.as_chunks().0 {
            let Announcement { number, pid } = Announcement::decode(announcement);
            self.end_waiting();
            // A copy that has ended since is none.
            self.waiting = Process::adopt(Pid::from_raw(pid)).ok().map(|copy| (number, copy));
        }
        Ok(())
    }

    /// The process of the copy that could take over.
    pub(crate) fn copy(&self) -> Option<Pid> {
        let (number, copy) = self.waiting.as_ref()?;
        (Some(*number) == self.settled && copy.status().is_none()).then(|| copy.pid())
    }

    /// The copy, which only has to be called by [`Self::call`]. No other waits at the gate.
    pub(crate) fn take(&mut self, events: &Events) -> Result<Option<Process>, Exit> {
        self.absorb()?;
        let copy = if self.copy().is_some() { self.waiting.take() } else { None };
        self.end_waiting();
        self.settled = None;
        for ended in self.ended.drain(..) {
            ended.kill(events)?;
        }
        Ok(copy.map(|(_, copy)| copy))
    }

    /// Forgets a call that a copy has not taken before it died: another one would take it.
    pub(crate) fn take_back(&self) {
        let _taken = read(&self.gate, &mut [0; 4096]);
    }

    /// Has the copy take over: it reports under the number of the command.
    pub(crate) fn call(&self, copy: &Process, command: Command) -> Result<(), Errno> {
        write(&self.opener, &command.encode())?;
        // A program of the session may have stopped it.
        copy.signal(Signal::SIGCONT);
        Ok(())
    }

    fn end_waiting(&mut self) {
        self.ended.retain(|copy| copy.status().is_none());
        if let Some((_, copy)) = self.waiting.take() {
            copy.signal(Signal::SIGKILL);
            self.ended.push(copy);
        }
    }
}
