//! The ladder by which a cell is stopped: gently first, and the interpreter itself last.

use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use rlm_core::worker::Process;
use rlm_core::worker::descendants::{self, BootTime};

use crate::wire::hard_stop_signal;

/// One rung: an action, after which the cell gets some time to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rung {
    /// SIGINT to the main thread: Python raises KeyboardInterrupt there.
    Interrupt,
    /// SIGINT to the programs that the cell started: some C library calls wait for them and ignore signals.
    InterruptPrograms,
    /// The hard stop signal, which cells cannot handle or ignore.
    HardStop,
    /// SIGKILL to the programs that the cell started.
    KillPrograms,
    /// SIGKILL to the interpreter.
    Kill,
}

pub(crate) const LADDER: [(Rung, Duration); 8] = [
    (Rung::Interrupt, Duration::from_millis(600)),
    (Rung::InterruptPrograms, Duration::from_millis(100)),
    (Rung::HardStop, Duration::from_millis(400)),
    (Rung::HardStop, Duration::from_millis(200)),
    (Rung::KillPrograms, Duration::from_millis(100)),
    (Rung::HardStop, Duration::from_millis(200)),
    (Rung::HardStop, Duration::from_millis(300)),
    (Rung::Kill, Duration::from_secs(3600)),
];

/// Carries out a rung. `since` is the start of the cell: older programs are not the cell's.
pub(crate) fn climb(rung: Rung, interpreter: &Process, since: BootTime) {
    match rung {
        Rung::Interrupt => interpreter.signal_main_thread(Signal::SIGINT as i32),
        Rung::InterruptPrograms => signal_programs(Signal::SIGINT, interpreter, since),
        Rung::HardStop => interpreter.signal_main_thread(hard_stop_signal()),
        Rung::KillPrograms => signal_programs(Signal::SIGKILL, interpreter, since),
        Rung::Kill => interpreter.signal(Signal::SIGKILL),
    }
}

fn signal_programs(signal: Signal, interpreter: &Process, since: BootTime) {
    for pid in descendants::below(interpreter.pid()) {
        if descendants::started_since(pid, since) {
            // It does not matter if the process is already gone.
            let _gone = kill(pid, signal);
        }
    }
}
