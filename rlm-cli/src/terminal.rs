//! Settings of a terminal that are in force for a while.

use std::io::{Stderr, Stdin};
use std::os::fd::AsFd;

use nix::sys::termios::{LocalFlags, SetArg, Termios, tcgetattr, tcsetattr};
use nix::unistd::{getpgrp, tcgetpgrp};

/// The settings of a terminal, restored on drop.
pub(crate) struct TerminalSettings<F: AsFd> {
    terminal: F,
    /// The terminal's settings; None if it is not a terminal, or not ours to change.
    settings: Option<Termios>,
}

impl TerminalSettings<Stdin> {
    /// The settings of standard input: a signal may arrive while a line editor has changed them.
    pub(crate) fn keep() -> Self {
        Self::of(std::io::stdin())
    }
}

impl TerminalSettings<Stderr> {
    /// Lets standard error show no `^C`: it would move the lines of a progress bar, which then cannot be taken away.
    pub(crate) fn hide_control_keys() -> Self {
        let kept = Self::of(std::io::stderr());
        if let Some(settings) = &kept.settings {
            let mut settings = settings.clone();
            settings.local_flags.remove(LocalFlags::ECHOCTL);
            kept.set(&settings);
        }
        kept
    }
}

impl<F: AsFd> TerminalSettings<F> {
    fn of(terminal: F) -> Self {
        let settings = tcgetattr(&terminal).ok().filter(|_| is_in_foreground(&terminal));
        Self { terminal, settings }
    }

    fn set(&self, settings: &Termios) {
        // A process in the background would be stopped.
        if is_in_foreground(&self.terminal) {
            // A terminal that is gone needs no settings.
            let _gone = tcsetattr(&self.terminal, SetArg::TCSANOW, settings);
        }
    }
}

impl<F: AsFd> Drop for TerminalSettings<F> {
    fn drop(&mut self) {
        if let Some(settings) = &self.settings {
            self.set(settings);
        }
    }
}

fn is_in_foreground(terminal: &impl AsFd) -> bool {
    tcgetpgrp(terminal) == Ok(getpgrp())
}
