//! How a call is stopped: gently first, and the shell itself last.

use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::{Pid, getpgid};
use rlm_core::worker::{Process, descendants};

use crate::terminal::Terminal;

/// One rung: what is done, and how long the call has to end after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rung {
    /// SIGINT to the foreground process group: what Ctrl-C does, without its flushing of output.
    Interrupt,
    /// The report is asked for again, should the interrupt have met the driver.
    AskAgain,
    /// SIGINT once more: some programs want to hear it twice.
    InterruptAgain,
    /// SIGTERM to what runs in the foreground beside the shell, and SIGINT to the shell, which then leaves its loop.
    Terminate,
    /// SIGKILL to the same.
    Kill,
    /// SIGHUP to the shell: it ends, and hands on its state.
    HangUp,
    /// SIGKILL to the shell.
    KillShell,
}

const RUNGS: [(Rung, Duration); 7] = [
    (Rung::Interrupt, Duration::from_millis(20)),
    (Rung::AskAgain, Duration::from_millis(380)),
    (Rung::InterruptAgain, Duration::from_millis(200)),
    (Rung::Terminate, Duration::from_millis(300)),
    (Rung::Kill, Duration::from_millis(250)),
    (Rung::HangUp, Duration::from_millis(250)),
    (Rung::KillShell, Duration::from_secs(3600)),
];

/// What is left to do for the caller after a rung.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Nothing.
    Done,
    /// To send the driver's second line again.
    AskAgain,
}

/// A call that is being stopped.
pub(crate) type Ladder = rlm_core::worker::Ladder<Rung>;

/// A ladder where a call has to be stopped: it was interrupted, or its time is up.
pub(crate) fn start(is_interrupted: bool, time_is_up: Option<Instant>) -> Option<Ladder> {
    Ladder::start(&RUNGS, is_interrupted, time_is_up)
}

/// Whether the report was asked for again.
pub(crate) fn has_asked_again(ladder: &Ladder) -> bool {
    ladder.taken() > 1
}

/// Takes the rung that is due.
pub(crate) fn step(ladder: &mut Ladder, shell: &mut Process, terminal: &Terminal) -> Step {
    let rung = ladder.take();
    match rung {
        Rung::Interrupt | Rung::InterruptAgain => interrupt_foreground(shell, terminal),
        Rung::AskAgain => return Step::AskAgain,
        Rung::Terminate | Rung::Kill => {
            let signal = if rung == Rung::Kill { Signal::SIGKILL } else { Signal::SIGTERM };
            if !signal_programs(signal, shell, terminal) {
                // Nothing runs but the shell itself: nothing to wait for.
                ladder.next = Instant::now();
            }
            shell.signal(Signal::SIGINT);
        }
        Rung::HangUp => shell.signal(Signal::SIGHUP),
        Rung::KillShell => shell.signal(Signal::SIGKILL),
    }
    Step::Done
}

fn interrupt_foreground(shell: &mut Process, terminal: &Terminal) {
    match terminal.foreground() {
        // A group that has just ended is no failure: the call goes on to its end.
        Some(group) => drop(killpg(group, Signal::SIGINT)),
        None => shell.signal(Signal::SIGINT),
    }
}

/// Signals the foreground job, or, where the shell is in the foreground itself, the processes that it waits for in its
/// own group: command substitutions. Returns whether there was any.
fn signal_programs(signal: Signal, shell: &Process, terminal: &Terminal) -> bool {
    if let Some(group) = terminal.foreground().filter(|group| *group != shell.pid()) {
        return killpg(group, signal).is_ok();
    }
    let in_group = |pid: &Pid| getpgid(Some(*pid)) == Ok(shell.pid());
    let programs: Vec<Pid> = descendants::below(shell.pid()).into_iter().filter(in_group).collect();
    for pid in &programs {
        // Gone in the meantime is as good.
        let _gone = kill(*pid, signal);
    }
    !programs.is_empty()
}
