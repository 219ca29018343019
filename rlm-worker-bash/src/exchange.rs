//! One exchange with the shell: the request that was sent, and the report so far.
//!
//! The report of a call that was stopped counts only once the shell has confirmed it by a second one: a signal may
//! still be on its way to the shell, which answers it with a line break, and that must not become output of the next
//! call.

use std::time::{Duration, Instant};

use nix::errno::Errno;

use crate::report::{self, Report, Snapshot};
use crate::shell::Pipes;

/// A shell that has started to report is stopped like any other after this long without a byte.
const REPORT_SILENCE: Duration = Duration::from_secs(5);

/// Time that a stopped shell has to confirm its report.
const CONFIRMATION_LIMIT: Duration = Duration::from_millis(250);

/// The kind of request that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Task {
    /// The set-up of a new shell.
    SetUp,
    /// The user's code.
    Code,
    /// Variables.
    Set,
}

/// The progress of the report.
#[derive(Debug)]
pub(crate) enum ReportProgress {
    Nothing,
    /// The state from before the code was handed on, and the code has started.
    State,
    /// Part of the report has arrived.
    Part {
        until: Instant,
    },
    /// The report of a stopped call has arrived, and has to be asked for again.
    Unconfirmed {
        until: Instant,
    },
    Report(Box<Report>),
}

/// A request that was sent to the shell, and what has arrived since.
#[derive(Debug)]
pub(crate) struct Exchange {
    pub(crate) task: Task,
    /// Nonce of the last line that asked for the report.
    nonce: u64,
    /// Nonce of the first such line.
    first_nonce: u64,
    /// Bytes from the report pipe.
    report: Vec<u8>,
    /// Bytes from the quiet pipe.
    quiet: Vec<u8>,
    /// Time of the last bytes from the report pipe.
    received_at: Instant,
    /// Size of `report` at the last call of [`Self::is_silent`].
    looked_at: usize,
    /// The report of a call that was stopped, and the deadline for its confirmation.
    unconfirmed: Option<(Box<Report>, Instant)>,
    /// True once the ladder has asked for the report again.
    pub(crate) was_asked_again: bool,
    /// A line of the driver that shows in the output, to be removed from it.
    pub(crate) shown_line: Option<String>,
}

impl Exchange {
    /// An exchange in which nothing was sent yet.
    pub(crate) fn new() -> Self {
        Self {
            task: Task::SetUp,
            nonce: 0,
            first_nonce: 0,
            report: Vec::new(),
            quiet: Vec::new(),
            received_at: Instant::now(),
            looked_at: 0,
            unconfirmed: None,
            was_asked_again: false,
            shown_line: None,
        }
    }

    /// Starts a new exchange, and returns the nonce to send.
    pub(crate) fn begin(&mut self, task: Task) -> u64 {
        let nonce = self.nonce + 1;
        *self = Self { task, nonce, first_nonce: nonce, ..Self::new() };
        nonce
    }

    /// The nonce for asking for the report again.
    pub(crate) fn ask_again(&mut self) -> u64 {
        self.nonce += 1;
        self.nonce
    }

    /// True if only the lines of the call itself asked for the report.
    pub(crate) fn was_asked_once(&self) -> bool {
        self.nonce == self.first_nonce
    }

    /// Nonce of the last line that asked for the report.
    pub(crate) fn nonce(&self) -> u64 {
        self.nonce
    }

    /// Reads the report pipe.
    pub(crate) fn receive(&mut self, pipes: &Pipes) -> Result<(), Errno> {
        pipes.read_report(&mut self.report)
    }

    /// Reads the quiet pipe. Data there does not wake the worker, so this keeps the pipe from filling up.
    pub(crate) fn receive_quiet(&mut self, pipes: &Pipes) -> Result<(), Errno> {
        pipes.read_quiet(&mut self.quiet)
    }

    /// Reads the report pipe, and returns the progress of the report.
    pub(crate) fn advance(&mut self, pipes: &Pipes, is_stopped: bool) -> Result<ReportProgress, Errno> {
        self.receive(pipes)?;
        self.received_at = Instant::now();
        if report::ends_with_state(&self.report) {
            return Ok(ReportProgress::State);
        }
        if let Some((_, until)) = &mut self.unconfirmed {
            *until = self.received_at + REPORT_SILENCE;
        }
        let Some(nonce) = report::complete_nonce(&self.report) else { return Ok(self.wait()) };
        if nonce < self.first_nonce || self.unconfirmed.is_some() && nonce != self.nonce {
            // This report answers an earlier question.
            self.report.clear();
            return Ok(self.wait());
        }
        self.receive_quiet(pipes)?;
        let parsed = report::parse(&self.report, &self.quiet, nonce, &pipes.scripts.exit_hook);
        let Some(report) = parsed else { return Ok(self.wait()) };
        // Frees the buffers, as the answer in the report may be large.
        (self.report, self.quiet) = (Vec::new(), Vec::new());
        if let Some((first, _)) = self.unconfirmed.take() {
            return Ok(ReportProgress::Report(first));
        }
        if !is_stopped {
            return Ok(ReportProgress::Report(Box::new(report)));
        }
        let until = Instant::now() + CONFIRMATION_LIMIT;
        self.unconfirmed = Some((Box::new(report), until));
        Ok(ReportProgress::Unconfirmed { until })
    }

    /// The progress of the report when nothing has arrived.
    pub(crate) fn wait(&mut self) -> ReportProgress {
        if let Some((report, _)) = self.unconfirmed.take_if(|(_, until)| Instant::now() >= *until) {
            return ReportProgress::Report(report);
        }
        match &self.unconfirmed {
            Some((_, until)) => ReportProgress::Part { until: *until },
            None if report::has_begun(&self.report) => {
                ReportProgress::Part { until: self.received_at + REPORT_SILENCE }
            }
            None => ReportProgress::Nothing,
        }
    }

    /// True while a report waits for its confirmation.
    pub(crate) fn is_unconfirmed(&self) -> bool {
        self.unconfirmed.is_some()
    }

    /// True if nothing has come through the report pipe since the last call of this.
    pub(crate) fn is_silent(&mut self) -> bool {
        std::mem::replace(&mut self.looked_at, self.report.len()) == self.report.len()
    }

    /// The state that the shell handed on when it ended.
    pub(crate) fn snapshot(&self) -> Option<Snapshot> {
        report::parse_snapshot(&self.report)
    }
}
