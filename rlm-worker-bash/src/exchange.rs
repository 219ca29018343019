//! One exchange with the shell: the request that was sent, and the report so far.
//!
//! The report of a call that was stopped counts only once the shell has confirmed it by a second one: a signal may
//! still be on its way to the shell, which answers it with a line break, and that must not become output of the next
//! call.

use std::time::{Duration, Instant};

use nix::errno::Errno;

use crate::completion::Word;
use crate::report::{self, Marks, Report, Snapshot};
use crate::shell::Pipes;

/// A shell that has started to report is stopped like any other after this long without a byte.
const REPORT_SILENCE: Duration = Duration::from_secs(5);

/// Time that a stopped shell has to confirm its report.
const CONFIRMATION_LIMIT: Duration = Duration::from_millis(250);

/// A shell that has read this many questions in a row, each once it was done with the one before, cannot answer. An
/// interrupt swallows one, or a few.
const MAX_UNANSWERED: u32 = 4;

/// The kind of request that was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Task {
    /// The set-up of a new shell.
    SetUp,
    /// The user's code.
    Code,
    /// Variables.
    Set,
    /// The state of a shell that goes on.
    Save,
    /// The state of another session, in place of a new shell's own.
    Load,
    /// The words that can complete a word.
    Complete(Word),
}

/// The progress of the report.
#[derive(Debug, PartialEq, Eq)]
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
    marks: Marks,
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
    /// Number of lines that asked again since anything has arrived.
    unanswered: u32,
    /// The report of a call that was stopped, and the deadline for its confirmation.
    unconfirmed: Option<(Box<Report>, Instant)>,
    /// The state that a shell which goes on has handed on.
    pub(crate) saved: Option<Snapshot>,
    /// A line of the driver that shows in the output, to be removed from it.
    pub(crate) shown_line: Option<String>,
}

impl Exchange {
    /// An exchange in which nothing was sent yet.
    pub(crate) fn new(marks: Marks) -> Self {
        Self {
            task: Task::SetUp,
            marks,
            nonce: 0,
            first_nonce: 0,
            report: Vec::new(),
            quiet: Vec::new(),
            received_at: Instant::now(),
            looked_at: 0,
            unanswered: 0,
            unconfirmed: None,
            saved: None,
            shown_line: None,
        }
    }

    /// Starts a new exchange, and returns the nonce to send.
    pub(crate) fn begin(&mut self, task: Task) -> u64 {
        let nonce = self.nonce + 1;
        let (marks, mut report) = (std::mem::take(&mut self.marks), std::mem::take(&mut self.report));
        // A shell that is ending hands on its state, and a new shell has it already.
        if task == Task::SetUp || !marks.holds_state(&report) {
            report = Vec::new();
        }
        *self = Self { task, nonce, first_nonce: nonce, report, ..Self::new(marks) };
        nonce
    }

    /// The nonce for asking for the report again.
    pub(crate) fn ask_again(&mut self) -> u64 {
        self.nonce += 1;
        self.unanswered += 1;
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
        // This order matters: the data that a report needs from the quiet pipe was written before the report's end.
        self.receive_quiet(pipes)?;
        Ok(self.judge(is_stopped, Instant::now()))
    }

    /// The progress of the report after bytes have arrived.
    fn judge(&mut self, is_stopped: bool, now: Instant) -> ReportProgress {
        self.received_at = now;
        self.unanswered = 0;
        if self.marks.ends_with_state(&self.report) {
            return ReportProgress::State;
        }
        let Some((nonce, report)) = report::complete(&self.report) else { return self.wait(now) };
        if nonce < self.first_nonce || self.unconfirmed.is_some() && nonce != self.nonce {
            // This report answers an earlier question.
            self.report.clear();
            return self.wait(now);
        }
        if self.task == Task::Save {
            self.saved = self.marks.snapshot(&self.report);
        }
        // Frees the buffers, as the answer in the report may be large.
        self.report = Vec::new();
        let quiet = std::mem::take(&mut self.quiet);
        let first = self.unconfirmed.take().map(|(first, _)| first);
        let is_final = first.is_some() || !is_stopped;
        // The first report counts. An interrupt may have cut off the part before it: then only the confirmation has that.
        let mut report = first.unwrap_or_else(|| Box::new(report));
        self.marks.read_quiet(&quiet, &mut report);
        if is_final {
            return ReportProgress::Report(report);
        }
        let until = now + CONFIRMATION_LIMIT;
        self.unconfirmed = Some((report, until));
        ReportProgress::Unconfirmed { until }
    }

    /// The progress of the report when nothing has arrived.
    pub(crate) fn wait(&mut self, now: Instant) -> ReportProgress {
        let silent_at = self.is_arriving().then(|| self.received_at + REPORT_SILENCE);
        let Some((report, limit)) = self.unconfirmed.take() else {
            return silent_at.map_or(ReportProgress::Nothing, |until| ReportProgress::Part { until });
        };
        // A confirmation that has begun may take as long as any report. One that was dropped gives no more time.
        let until = silent_at.unwrap_or(limit);
        if now >= until {
            return ReportProgress::Report(report);
        }
        self.unconfirmed = Some((report, limit));
        ReportProgress::Part { until }
    }

    /// True while a report is on its way.
    pub(crate) fn is_arriving(&self) -> bool {
        self.marks.has_begun(&self.report)
    }

    /// True while a report waits for its confirmation.
    pub(crate) fn is_unconfirmed(&self) -> bool {
        self.unconfirmed.is_some()
    }

    /// True if nothing has come through the report pipe since the last call of this function.
    pub(crate) fn is_silent(&mut self) -> bool {
        std::mem::replace(&mut self.looked_at, self.report.len()) == self.report.len()
    }

    /// True if the shell was asked often enough, provided that it waits for commands.
    pub(crate) fn is_unanswerable(&self) -> bool {
        self.unanswered >= MAX_UNANSWERED
    }

    /// The state that the shell handed on when it ended.
    pub(crate) fn snapshot(&self) -> Option<Snapshot> {
        self.marks.snapshot(&self.report)
    }
}

/// Removes the line of the driver that `set -v` shows if the code was aborted.
pub(crate) fn remove_echo(text: &mut String, line: &str) {
    if let Some(at) = text.rfind(line) {
        let start = if text[..at].ends_with('\n') { at - 1 } else { at };
        text.replace_range(start..at + line.len(), "");
    }
}

/// Simulated clocks and every order of events. An exchange is plain data without threads or shared memory, so a loop over the
/// orders covers everything; a model checker for threads has nothing to add.
#[cfg(test)]
mod tests {
    use super::*;

    /// Something that happens after the report of a stopped call has arrived.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Event {
        /// The report that the ladder had asked for before.
        Earlier,
        /// The first half of the confirmation.
        Half,
        /// The confirmation, or the rest of it.
        Confirmation,
        /// Time passes, until the deadline at most.
        Milliseconds(u64),
    }

    const EVENTS: [Event; 5] = [
        Event::Earlier,
        Event::Half,
        Event::Confirmation,
        Event::Milliseconds(100),
        Event::Milliseconds(10_000),
    ];

    fn record(nonce: u64) -> Vec<u8> {
        format!("|\0B{nonce}\x000\0\0|\0hB\0\0t\0\0\0/\0\0report {nonce}\0E{nonce}\0").into_bytes()
    }

    fn exchange() -> Exchange {
        let marks = Marks { key: "0f1e2d3c".to_owned(), exit_hook: "HOOK".to_owned() };
        let mut exchange = Exchange::new(marks);
        exchange.begin(Task::Code);
        exchange
    }

    fn content(progress: &ReportProgress) -> Option<&[u8]> {
        match progress {
            ReportProgress::Report(report) => Some(&report.content),
            _ => None,
        }
    }

    #[test]
    fn what_an_interrupt_cut_off_before_the_report_comes_with_the_confirmation() {
        let exit_trap = |first: &[u8], confirmation: &[u8]| {
            let mut exchange = exchange();
            (exchange.report, exchange.quiet) = (record(1), first.to_vec());
            assert!(matches!(exchange.judge(true, Instant::now()), ReportProgress::Unconfirmed { .. }));
            let nonce = exchange.ask_again();
            (exchange.report, exchange.quiet) = (record(nonce), confirmation.to_vec());
            let ReportProgress::Report(report) = exchange.judge(true, Instant::now()) else { panic!() };
            String::from_utf8(report.user.exit_trap).unwrap()
        };
        let (user, hook) = (b"trap -- 'bye' EXIT\n", b"trap -- 'HOOK' EXIT\n");
        assert_eq!(exit_trap(b"", user), "trap -- 'bye' EXIT\n");
        assert_eq!(exit_trap(user, hook), "trap -- 'bye' EXIT\n");
    }

    /// Lets these events happen, and then only time pass. Returns the time from the first report to the end of the call.
    fn end_after(events: &[Event]) -> Duration {
        let start = Instant::now();
        let mut exchange = exchange();
        exchange.ask_again();
        exchange.report = record(1);
        let first = exchange.judge(true, start);
        let ReportProgress::Unconfirmed { mut until } = first else { panic!("{first:?}") };
        exchange.ask_again();
        let confirmation = record(3);
        let (half, rest) = confirmation.split_at(confirmation.len() / 2);
        let mut now = start;
        let mut has_half = false;
        for event in events.iter().chain(&[Event::Milliseconds(10_000); 3]) {
            let progress = match event {
                Event::Earlier => {
                    has_half = false;
                    exchange.report.extend_from_slice(&record(2));
                    exchange.judge(true, now)
                }
                Event::Half => {
                    has_half = true;
                    exchange.report.extend_from_slice(half);
                    exchange.judge(true, now)
                }
                Event::Confirmation => {
                    exchange.report.extend_from_slice(if has_half { rest } else { &confirmation });
                    exchange.judge(true, now)
                }
                Event::Milliseconds(pause) => {
                    now = (now + Duration::from_millis(*pause)).min(until);
                    exchange.wait(now)
                }
            };
            match progress {
                ReportProgress::Part { until: next } => until = next,
                progress => {
                    assert_eq!(content(&progress), Some(&b"report 1"[..]), "{events:?}");
                    return now - start;
                }
            }
        }
        panic!("the call does not end: {events:?}");
    }

    #[test]
    fn a_stopped_call_ends_in_time_whatever_arrives_in_whatever_order() {
        for number in 0..EVENTS.len().pow(6) {
            let events: Vec<Event> =
                (0..6).map(|place| EVENTS[number / EVENTS.len().pow(place) % EVENTS.len()]).collect();
            let took = end_after(&events);
            let limit = if events.contains(&Event::Half) {
                REPORT_SILENCE * 6 + CONFIRMATION_LIMIT
            } else {
                CONFIRMATION_LIMIT
            };
            assert!(took <= limit, "{took:?}: {events:?}");
        }
    }

    #[test]
    fn a_report_that_was_dropped_gives_no_more_time() {
        assert_eq!(end_after(&[Event::Milliseconds(100), Event::Earlier]), CONFIRMATION_LIMIT);
        assert_eq!(end_after(&[Event::Half, Event::Earlier]), CONFIRMATION_LIMIT);
        let slow = [Event::Milliseconds(100), Event::Half, Event::Milliseconds(10_000)];
        assert_eq!(end_after(&slow), Duration::from_millis(100) + REPORT_SILENCE);
    }

    #[test]
    fn a_state_that_is_being_handed_on_outlives_the_next_request() {
        let state = b"\0X0f1e2d3c\x001\0hi\0/tmp\0\0\0declare -- x\n\0Y0f1e2d3c\0";
        for cut in b"\0X0f1e2d3c\0".len()..=state.len() {
            let mut exchange = exchange();
            exchange.report = state[..cut].to_vec();
            exchange.begin(Task::Code);
            exchange.report.extend_from_slice(&state[cut..]);
            assert!(exchange.snapshot().is_some_and(|snapshot| !snapshot.is_early), "{cut}");
            exchange.begin(Task::SetUp);
            assert_eq!(exchange.snapshot(), None, "{cut}");
        }
    }

    #[test]
    fn a_shell_that_is_asked_again_and_again_without_a_byte_cannot_answer() {
        let mut exchange = exchange();
        for _ in 0..MAX_UNANSWERED {
            assert!(!exchange.is_unanswerable());
            exchange.ask_again();
        }
        assert!(exchange.is_unanswerable());
        exchange.report = b"|\0".to_vec();
        exchange.judge(false, Instant::now());
        assert!(!exchange.is_unanswerable());
    }
}
