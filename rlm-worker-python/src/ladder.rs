//! How a cell is stopped: gently first, and the interpreter itself last.

use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use rlm_core::worker::{Process, descendants};

use crate::wire::hard_stop_signal;

/// One rung: what is done, and how long the cell has to end after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rung {
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

const RUNGS: [(Rung, Duration); 8] = [
    (Rung::Interrupt, Duration::from_millis(600)),
    (Rung::InterruptPrograms, Duration::from_millis(100)),
    (Rung::HardStop, Duration::from_millis(400)),
    (Rung::HardStop, Duration::from_millis(200)),
    (Rung::KillPrograms, Duration::from_millis(100)),
    (Rung::HardStop, Duration::from_millis(200)),
    (Rung::HardStop, Duration::from_millis(300)),
    (Rung::Kill, Duration::from_secs(3600)),
];

/// A cell that is being stopped.
pub(crate) type Ladder = rlm_core::worker::Ladder<Rung>;

/// A ladder where a cell has to be stopped: it was interrupted, or its time is up.
pub(crate) fn start(is_interrupted: bool, time_is_up: Option<Instant>) -> Option<Ladder> {
    Ladder::start(&RUNGS, is_interrupted, time_is_up)
}

/// Whether it has come to the last rung.
pub(crate) fn has_killed(ladder: &Ladder) -> bool {
    ladder.taken() >= RUNGS.len()
}

/// Takes the rung that is due. `since` is when the cell began: what runs for longer is not the cell's.
pub(crate) fn step(ladder: &mut Ladder, interpreter: &mut Process, since: descendants::BootTime) {
    match ladder.take() {
        Rung::Interrupt => interpreter.signal_main_thread(Signal::SIGINT as i32),
        Rung::InterruptPrograms => signal_programs(Signal::SIGINT, interpreter, since),
        Rung::HardStop => interpreter.signal_main_thread(hard_stop_signal()),
        Rung::KillPrograms => signal_programs(Signal::SIGKILL, interpreter, since),
        Rung::Kill => interpreter.signal(Signal::SIGKILL),
    }
}

fn signal_programs(signal: Signal, interpreter: &Process, since: descendants::BootTime) {
    for pid in descendants::below(interpreter.pid()) {
        if descendants::started_since(pid, since) {
            // Gone in the meantime is as good.
            let _gone = kill(pid, signal);
        }
    }
}
