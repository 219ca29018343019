//! One exchange with the shell: what was sent, and what has arrived of the report.
//!
//! The report of a call that was stopped counts only once the shell has confirmed it by a second one: a signal may still be
//! on its way to the shell, which answers it with a line break, and that is not output of the next call.

use std::time::{Duration, Instant};

use nix::errno::Errno;

use crate::report::{self, Report, Snapshot};
use crate::shell::Pipes;

/// A shell that has begun to report and says nothing for so long is stopped like any other.
const REPORT_SILENCE: Duration = Duration::from_secs(5);

/// How long a shell that was stopped may take to confirm its report.
const CONFIRMATION_LIMIT: Duration = Duration::from_millis(250);

/// What was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Task {
    /// The set-up of a new shell.
    SetUp,
    /// The user's code.
    Code,
    /// Variables.
    Set,
}

/// How far the report has come.
#[derive(Debug)]
pub(crate) enum Heard {
    Nothing,
    /// The state from before the code is handed on, and the code begins.
    State,
    /// A part of the report.
    Part {
        until: Instant,
    },
    /// The report of a call that was stopped, to be asked for once more.
    Unconfirmed {
        until: Instant,
    },
    Report(Box<Report>),
}

/// What was sent to the shell, and what has arrived since.
#[derive(Debug)]
pub(crate) struct Exchange {
    pub(crate) task: Task,
    /// Nonce of the last line that asked for the report.
    nonce: u64,
    /// Nonce of the first.
    first_nonce: u64,
    /// From the report pipe.
    report: Vec<u8>,
    /// From the quiet pipe.
    quiet: Vec<u8>,
    /// When something last came through the report pipe.
    heard_at: Instant,
    /// Size of `report` when [`Self::is_silent`] last looked.
    looked_at: usize,
    /// The report of a call that was stopped, and until when its confirmation is waited for.
    unconfirmed: Option<(Box<Report>, Instant)>,
    /// Set once the ladder has had the report asked for again.
    pub(crate) was_asked_again: bool,
    /// A line of the driver's that the output shows, to be removed from it.
    pub(crate) shown_line: Option<String>,
}

impl Exchange {
    /// Before anything was sent.
    pub(crate) fn new() -> Self {
        Self {
            task: Task::SetUp,
            nonce: 0,
            first_nonce: 0,
            report: Vec::new(),
            quiet: Vec::new(),
            heard_at: Instant::now(),
            looked_at: 0,
            unconfirmed: None,
            was_asked_again: false,
            shown_line: None,
        }
    }

    /// Begins anew, and returns the nonce to send.
    pub(crate) fn begin(&mut self, task: Task) -> u64 {
        let nonce = self.nonce + 1;
        *self = Self { task, nonce, first_nonce: nonce, ..Self::new() };
        nonce
    }

    /// The nonce with which to ask for the report once more.
    pub(crate) fn ask_again(&mut self) -> u64 {
        self.nonce += 1;
        self.nonce
    }

    /// Whether the report was asked for once, by the lines of the call itself.
    pub(crate) fn was_asked_once(&self) -> bool {
        self.nonce == self.first_nonce
    }

    /// The nonce of the last line that asked for the report.
    pub(crate) fn nonce(&self) -> u64 {
        self.nonce
    }

    /// Takes what has arrived on the report pipe.
    pub(crate) fn receive(&mut self, pipes: &Pipes) -> Result<(), Errno> {
        pipes.read_report(&mut self.report)
    }

    /// Takes what has arrived on the quiet pipe. Nothing wakes the worker for that, so it must not fill up.
    pub(crate) fn receive_quiet(&mut self, pipes: &Pipes) -> Result<(), Errno> {
        pipes.read_quiet(&mut self.quiet)
    }

    /// Takes what has arrived for the report.
    pub(crate) fn hear(&mut self, pipes: &Pipes, is_stopped: bool) -> Result<Heard, Errno> {
        self.receive(pipes)?;
        self.heard_at = Instant::now();
        if report::ends_with_state(&self.report) {
            return Ok(Heard::State);
        }
        if let Some((_, until)) = &mut self.unconfirmed {
            *until = self.heard_at + REPORT_SILENCE;
        }
        let Some(nonce) = report::complete_nonce(&self.report) else { return Ok(self.wait()) };
        if nonce < self.first_nonce || self.unconfirmed.is_some() && nonce != self.nonce {
            // It was asked for before.
            self.report.clear();
            return Ok(self.wait());
        }
        self.receive_quiet(pipes)?;
        let parsed = report::parse(&self.report, &self.quiet, nonce, &pipes.scripts.exit_hook);
        let Some(report) = parsed else { return Ok(self.wait()) };
        // A large answer came with it.
        (self.report, self.quiet) = (Vec::new(), Vec::new());
        if let Some((first, _)) = self.unconfirmed.take() {
            return Ok(Heard::Report(first));
        }
        if !is_stopped {
            return Ok(Heard::Report(Box::new(report)));
        }
        let until = Instant::now() + CONFIRMATION_LIMIT;
        self.unconfirmed = Some((Box::new(report), until));
        Ok(Heard::Unconfirmed { until })
    }

    /// How far the report has come though nothing has arrived.
    pub(crate) fn wait(&mut self) -> Heard {
        if let Some((report, _)) = self.unconfirmed.take_if(|(_, until)| Instant::now() >= *until) {
            return Heard::Report(report);
        }
        match &self.unconfirmed {
            Some((_, until)) => Heard::Part { until: *until },
            None if report::has_begun(&self.report) => Heard::Part { until: self.heard_at + REPORT_SILENCE },
            None => Heard::Nothing,
        }
    }

    /// Whether a report is to be confirmed.
    pub(crate) fn is_unconfirmed(&self) -> bool {
        self.unconfirmed.is_some()
    }

    /// Whether nothing has come through the report pipe since this was last asked.
    pub(crate) fn is_silent(&mut self) -> bool {
        std::mem::replace(&mut self.looked_at, self.report.len()) == self.report.len()
    }

    /// The state that the shell handed on as it ended.
    pub(crate) fn snapshot(&self) -> Option<Snapshot> {
        report::parse_snapshot(&self.report)
    }
}
