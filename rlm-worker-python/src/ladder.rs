//! How a cell is stopped: gently first, and the interpreter itself last.

use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use rlm_core::worker::Process;
use rlm_core::worker::descendants::{self, BootTime};

use crate::wire::hard_stop_signal;

/// One rung: what is done, and how long the cell has to end after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rung {
    /// SIGINT to the main thread: Python raises KeyboardInterrupt there.
    Interrupt,
    /// SIGINT to the programs that the cell has started: some calls of the C library wait for them, deaf to signals.
    InterruptPrograms,
    /// The hard stop signal, which no cell handles or ignores.
    HardStop,
    /// SIGKILL to the programs that the cell has started.
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

/// Takes a rung. `since` is when the cell began: programs that run for longer are not the cell's.
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
            // Gone in the meantime is as good.
            let _gone = kill(pid, signal);
        }
    }
}
