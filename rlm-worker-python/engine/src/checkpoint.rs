//! Copies of this process, of which the last one waits to take its place.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::fd::AsRawFd as _;

use nix::errno::Errno;
use nix::libc;
use nix::sys::signal::Signal;
use nix::unistd::{Pid, getppid};
use rlm_core::sys::tie_to_parent;
use rlm_core::worker::descendants::own_bytes;
use rlm_worker_python::wire::{Announcement, Command, CopySettings, LOST_STATUS};

use crate::descriptors::disconnect;
use crate::fork::{Leaving, leave};
use crate::{pipes, signals};

/// The score by which the kernel takes a copy before all else when memory runs out.
const FIRST_TO_GO: &str = "1000";

const OWN_SCORE: &str = "/proc/self/oom_score_adj";

/// The means to copy this process.
pub(crate) struct Copies {
    settings: CopySettings,
    supervisor: Pid,
    /// The error of the last try.
    failure: Option<Errno>,
}

impl Copies {
    pub(crate) fn new(settings: CopySettings) -> Self {
        Self { settings, supervisor: getppid(), failure: None }
    }

    /// The reason why no copy can be taken now, in the same words for as long as it lasts.
    pub(crate) fn obstacle(&self) -> Option<String> {
        if let Some(errno) = self.failure {
            return Some(format!("the process could not be copied after the call before ({})", errno.desc()));
        }
        let limit = self.settings.max_bytes >> 20;
        (own_bytes(Pid::this()) > self.settings.max_bytes)
            .then(|| format!("the interpreter has more memory than checkpoints may have, {limit} MiB"))
    }

    /// True if a copy is to be tried although the last one failed.
    pub(crate) fn is_retried(&self) -> bool {
        self.failure.is_some()
    }

    /// Leaves a copy of this process. Returns None here, and in the copy, which waits in this function, the command by which it takes
    /// over.
    pub(crate) fn take(&mut self, number: u64) -> Option<Command> {
        let left = leave(self.supervisor, |leaving| self.wait(number, leaving));
        self.failure = left.as_ref().err().copied();
        left.ok().flatten()
    }

    /// Waits, in the copy, until it has to take over.
    fn wait(&self, number: u64, leaving: Leaving) -> Command {
        let mut files = Vec::new();
        let prepare = || -> io::Result<File> {
            leaving.become_child()?;
            let gate = pipes::open(&self.settings.gate, libc::O_RDONLY)?;
            files = disconnect(&[gate.as_raw_fd(), leaving.descriptor()])?;
            let pid = Pid::this().as_raw();
            let announcement = Announcement { number, pid }.encode();
            pipes::open(&self.settings.announcements, libc::O_WRONLY)?.write_all(&announcement)?;
            leaving.settle()?;
            Ok(gate)
        };
        let Ok(gate) = prepare() else { pipes::end_process(LOST_STATUS) };
        // A confined session does not reach it.
        let score =
            fs::read_to_string(OWN_SCORE).and_then(|score| fs::write(OWN_SCORE, FIRST_TO_GO).map(|()| score));
        let hang_up = signals::end_by(Signal::SIGHUP);
        let mut bytes = [0; Command::BYTES];
        if pipes::read_command(&gate, &mut bytes).is_err() {
            // The supervisor has ended.
            pipes::end_process(0);
        }
        hang_up.restore();
        if tie_to_parent(self.supervisor, Signal::SIGKILL).is_err() {
            pipes::end_process(LOST_STATUS);
        }
        if let Ok(score) = score {
            // A copy that the kernel takes before others is better than none.
            let _refused = fs::write(OWN_SCORE, score.trim());
        }
        files.iter().for_each(|file| file.reopen(None));
        Command::decode(&bytes)
    }
}
