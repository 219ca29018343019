//! The ladder by which a call is stopped: gently first, and the shell itself last.

use std::time::Duration;

use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::{Pid, getpgid};
use rlm_core::worker::{Process, descendants};

use crate::terminal::Terminal;

/// One rung: an action, after which the call gets some time to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rung {
    /// SIGINT to the foreground process group: what Ctrl-C does, without its flushing of output.
    Interrupt,
    /// Asks for the report again, in case the interrupt hit the driver.
    AskAgain,
    /// SIGINT again: some programs need it twice.
    InterruptAgain,
    /// SIGTERM to the foreground programs other than the shell, and SIGINT to the shell, which then leaves its loop.
    Terminate,
    /// SIGKILL to the same programs.
    Kill,
    /// SIGHUP to the shell: it ends, and hands on its state.
    HangUp,
    /// SIGKILL to the shell.
    KillShell,
}

pub(crate) const LADDER: [(Rung, Duration); 7] = [
    (Rung::Interrupt, Duration::from_millis(20)),
    (Rung::AskAgain, Duration::from_millis(380)),
    (Rung::InterruptAgain, Duration::from_millis(200)),
    (Rung::Terminate, Duration::from_millis(300)),
    (Rung::Kill, Duration::from_millis(250)),
    (Rung::HangUp, Duration::from_millis(250)),
    (Rung::KillShell, Duration::from_secs(3600)),
];

/// Takes a rung.
pub(crate) fn climb(rung: Rung, shell: &Process, terminal: &Terminal) {
    match rung {
        Rung::Interrupt | Rung::InterruptAgain => interrupt_foreground(shell, terminal),
        // The session sends the request.
        Rung::AskAgain => {}
        Rung::Terminate | Rung::Kill => {
            let signal = if rung == Rung::Kill { Signal::SIGKILL } else { Signal::SIGTERM };
            signal_programs(signal, shell, terminal);
            shell.signal(Signal::SIGINT);
        }
        Rung::HangUp => shell.signal(Signal::SIGHUP),
        Rung::KillShell => shell.signal(Signal::SIGKILL),
    }
}

fn interrupt_foreground(shell: &Process, terminal: &Terminal) {
    match terminal.foreground() {
        // It does not matter if the group has just ended: the call goes on to its end.
        Some(group) => drop(killpg(group, Signal::SIGINT)),
        None => shell.signal(Signal::SIGINT),
    }
}

/// Signals the foreground job or, if the shell itself is in the foreground, the processes that it waits for in its own
/// group: command substitutions.
fn signal_programs(signal: Signal, shell: &Process, terminal: &Terminal) {
    // It does not matter if a process is already gone.
    if let Some(group) = terminal.foreground().filter(|group| *group != shell.pid()) {
        let _gone = killpg(group, signal);
        return;
    }
    let in_group = |pid: &Pid| getpgid(Some(*pid)) == Ok(shell.pid());
    for pid in descendants::below(shell.pid()).into_iter().filter(in_group) {
        let _gone = kill(pid, signal);
    }
}
