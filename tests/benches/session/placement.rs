//! The cores on which a pair of processes runs.

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use rlm_tests::children;

/// The calling thread.
const SELF: Pid = Pid::from_raw(0);

/// Keeps the host on the first core and its peers on the second, until dropped. Then the host may run anywhere again;
/// the peers stay.
pub(crate) struct Apart {
    anywhere: CpuSet,
    second: CpuSet,
}

impl Apart {
    /// Moves the host. None if the machine has one core.
    pub(crate) fn new() -> Option<Self> {
        let anywhere = sched_getaffinity(SELF).unwrap();
        let mut cores = (0..CpuSet::count()).filter(|core| anywhere.is_set(*core).unwrap_or(false)).map(only);
        let (first, second) = (cores.next()?, cores.next()?);
        sched_setaffinity(SELF, &first).unwrap();
        Some(Self { anywhere, second })
    }

    /// Moves a peer and all its descendants. They must not be starting processes at the moment.
    pub(crate) fn move_peer(&self, pid: Pid) {
        sched_setaffinity(pid, &self.second).unwrap();
        for child in children(pid) {
            self.move_peer(child);
        }
    }
}

impl Drop for Apart {
    fn drop(&mut self) {
        sched_setaffinity(SELF, &self.anywhere).unwrap();
    }
}

fn only(core: usize) -> CpuSet {
    let mut set = CpuSet::new();
    set.set(core).unwrap();
    set
}
