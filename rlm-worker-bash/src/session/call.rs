//! One call in the shell: from its two lines to its report, or to the shell's death.

use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rlm_core::limits::SET_LIMIT;
use rlm_core::protocol::{Execute, Outcome};
use rlm_core::worker::pipes::{memory_file, path_of};
use rlm_core::worker::{Events, Exit, descendants};

use super::BashSession;
use crate::code::{Appendable, Driver, Suffix, appendable};
use crate::ladder::{self, Ladder, Step};
use crate::report::{self, Report, Snapshot};
use crate::terminal::EOF_INTERVAL;
use crate::variables::Value;

/// How long after each piece of a report the call is left alone.
const REPORT_PAUSE: Duration = Duration::from_millis(250);

/// A shell that began to report and says nothing for so long is stopped like any other.
const REPORT_SILENCE: Duration = Duration::from_secs(5);

/// How long a shell that was interrupted may take to report for a second time.
const SETTLE_LIMIT: Duration = Duration::from_millis(250);

/// How the shell's part of a call ended.
pub(super) enum End {
    Reported(Box<Report>),
    Died { status: i32, will: Option<Snapshot> },
}

/// What is known of a call while it runs.
pub(super) struct Running {
    /// Whether an interrupt stops it.
    heeds_interrupts: bool,
    /// The nonce that the call began with; it may have been asked again since.
    first_nonce: u64,
    limit: Option<Duration>,
    time_is_up: Option<Instant>,
    /// When the shell last said something on the report pipe.
    heard_at: Instant,
    /// How much it had said at the last look.
    heard_bytes: usize,
    eof_at: Instant,
    /// Set once the call has to be stopped.
    ladder: Option<Ladder>,
    /// What came of the report.
    report: Vec<u8>,
    /// What came on the quiet pipe.
    quiet: Vec<u8>,
    /// The report of a call that was stopped, and how long the second one is waited for.
    settling: Option<(Report, Instant)>,
}

impl Running {
    /// A call of the user's code.
    pub(super) fn code(first_nonce: u64, limit: Option<Duration>) -> Self {
        let now = Instant::now();
        Self {
            heeds_interrupts: true,
            first_nonce,
            limit,
            heard_at: now,
            heard_bytes: 0,
            time_is_up: limit.and_then(|limit| now.checked_add(limit)),
            eof_at: now + EOF_INTERVAL,
            ladder: None,
            report: Vec::new(),
            quiet: Vec::new(),
            settling: None,
        }
    }

    /// A call that gives the shell variables: an interrupt must not come between two of them.
    pub(super) fn set(first_nonce: u64, limit: Duration) -> Self {
        Self { heeds_interrupts: false, ..Self::code(first_nonce, Some(limit)) }
    }

    /// When there is something to do though nothing happens.
    fn wake_at(&self) -> Instant {
        if let Some((_, until)) = &self.settling {
            return *until;
        }
        let limit_at = self.time_is_up.filter(|_| !self.is_reporting());
        let stop_at = self.ladder.as_ref().map_or(limit_at, |ladder| Some(ladder.next));
        stop_at.map_or(self.eof_at, |stop_at| stop_at.min(self.eof_at))
    }

    /// Whether the shell is saying something: then there is nothing to stop, for the code is over or has not begun.
    fn is_reporting(&self) -> bool {
        report::has_begun(&self.report) && self.heard_at.elapsed() < REPORT_SILENCE
    }

    /// Why the call was stopped, if it was.
    fn cause(&self) -> Option<Outcome> {
        self.ladder.as_ref().map(|ladder| ladder.cause)
    }
}

impl BashSession {
    /// Runs the user's code.
    pub(super) fn run_code(
        &mut self,
        call: &Execute,
        events: &Events,
    ) -> Result<(End, Option<Outcome>), Exit> {
        self.send_code(&call.code)?;
        let limit = call.timeout.or(self.config.exec_timeout);
        self.run(Running::code(self.nonce, limit), events)
    }

    /// Gives the shell variables.
    pub(super) fn run_set(
        &mut self,
        variables: &[(&str, Value)],
        events: &Events,
    ) -> Result<(End, Option<Outcome>), Exit> {
        self.nonce += 1;
        let call = self.pipes.scripts.set(variables, self.nonce);
        self.terminal.begin_call();
        self.pipes.send(&call).map_err(Exit::failed)?;
        let limit = self.config.exec_timeout.map_or(SET_LIMIT, |limit| limit.min(SET_LIMIT));
        self.run(Running::set(self.nonce, limit), events)
    }

    /// Waits for what was sent to the shell, until it reports or dies. The second value says why it was stopped, if it was.
    fn run(&mut self, mut running: Running, events: &Events) -> Result<(End, Option<Outcome>), Exit> {
        loop {
            let wake = events.wait(self.descriptors(), Some(running.wake_at()))?;
            let [has_output, has_report, is_dead] = [wake.ready[0], wake.ready[1], wake.ready[2]];
            if has_output {
                self.terminal.read_available(&mut self.output)?;
            }
            if has_report && let Some(report) = self.hear_report(&mut running)? {
                return Ok((End::Reported(Box::new(report)), running.cause()));
            }
            if is_dead && let Some(status) = self.shell.status() {
                self.pipes.read_report(&mut running.report)?;
                let will = report::parse_snapshot(&running.report);
                return Ok((End::Died { status, will }, running.cause()));
            }
            match running.settling.take_if(|(_, until)| Instant::now() >= *until) {
                Some((report, _)) => return Ok((End::Reported(Box::new(report)), running.cause())),
                None if running.settling.is_some() => continue,
                None => {}
            }
            self.stop_where_due(&mut running, wake.interrupt)?;
            self.tend_call(&mut running)?;
        }
    }

    /// Hands the code to the shell.
    fn send_code(&mut self, code: &str) -> Result<(), Exit> {
        let suffix = match appendable(code) {
            Appendable::Yes => Suffix::PipeStatus,
            Appendable::AskBash if self.is_complete(code) => Suffix::PipeStatus,
            Appendable::AskBash | Appendable::NotNeeded => Suffix::None,
        };
        self.nonce += 1;
        self.driver = self.driver.after(code);
        let is_shadowed = self.user.builtin_function.is_some() || code.contains("builtin");
        let driver = if is_shadowed { Driver::Shadowed } else { self.driver };
        let ended = std::mem::take(&mut self.of_one_call);
        let call = self.pipes.scripts.call(code, suffix, &self.user, &ended.used, driver, self.nonce);
        self.of_one_call.used = ended.unused;
        self.terminal.begin_call();
        self.pipes.send(&call).map_err(Exit::failed)
    }

    /// Reads what came of the report; returns it once it is complete and, where the call was stopped, once the shell has
    /// settled.
    fn hear_report(&mut self, running: &mut Running) -> Result<Option<Report>, Exit> {
        self.pipes.read_report(&mut running.report)?;
        running.heard_at = Instant::now();
        if report::ends_with_state(&running.report) {
            // The state before the code was handed on; the code's time begins now.
            running.time_is_up = running.limit.and_then(|limit| running.heard_at.checked_add(limit));
        }
        if let Some((_, until)) = &mut running.settling {
            *until = running.heard_at + REPORT_SILENCE;
        }
        let Some(nonce) =
            report::complete_nonce(&running.report).filter(|nonce| *nonce >= running.first_nonce)
        else {
            return Ok(None);
        };
        if running.settling.is_some() && nonce != self.nonce {
            running.report.clear();
            return Ok(None);
        }
        let Some(report) = self.take_report(&running.report, &mut running.quiet, nonce)? else {
            return Ok(None);
        };
        if let Some((first, _)) = running.settling.take() {
            return Ok(Some(first));
        }
        if running.ladder.is_none() {
            return Ok(Some(report));
        }
        // A signal may still be on its way to the shell, which answers it with a line break. Once it has reported for a
        // second time, that has been printed: it is not for the next call.
        running.settling = Some((report, Instant::now() + SETTLE_LIMIT));
        running.report.clear();
        self.ask_again()?;
        Ok(None)
    }

    /// The report with this nonce, which is complete.
    pub(super) fn take_report(
        &self,
        bytes: &[u8],
        quiet: &mut Vec<u8>,
        nonce: u64,
    ) -> Result<Option<Report>, Exit> {
        self.pipes.read_quiet(quiet)?;
        Ok(report::parse(bytes, quiet, nonce, &self.pipes.scripts.exit_hook))
    }

    /// Stops the call where an interrupt came or its time is up, or goes on stopping it.
    fn stop_where_due(&mut self, running: &mut Running, interrupt: bool) -> Result<(), Exit> {
        let now = Instant::now();
        if running.ladder.is_none() && !running.is_reporting() {
            running.ladder = ladder::start(interrupt && running.heeds_interrupts, running.time_is_up);
        }
        let is_reporting = running.is_reporting();
        let Some(ladder) = &mut running.ladder else { return Ok(()) };
        if is_reporting {
            ladder.next = ladder.next.max(now + REPORT_PAUSE);
        }
        if now >= ladder.next && ladder::step(ladder, &mut self.shell, &self.terminal) == Step::AskAgain {
            self.ask_again()?;
        }
        Ok(())
    }

    /// What has to be done from time to time while a call runs.
    fn tend_call(&mut self, running: &mut Running) -> Result<(), Exit> {
        let now = Instant::now();
        if now < running.eof_at {
            return Ok(());
        }
        running.eof_at = now + EOF_INTERVAL;
        // A shell that an interrupt threw back may read its commands from the terminal, and end of file ends it.
        if running.ladder.as_ref().is_none_or(ladder::has_asked_again) {
            self.terminal.send_eof()?;
        }
        // A shell that stopped itself (`suspend`) has nobody at another terminal to let it go on.
        self.shell.resume();
        // A shell that waits for commands and has not reported was interrupted from within the session, in the driver.
        let is_silent = running.report.len() == running.heard_bytes;
        running.heard_bytes = running.report.len();
        if is_silent && running.ladder.is_none() && self.pipes.is_waited_for(self.shell.pid()) {
            self.ask_again()?;
        }
        // Nobody is woken by the quiet pipe, so it must not fill up.
        self.pipes.read_quiet(&mut running.quiet)?;
        descendants::reap_orphans(Some(self.shell.pid()));
        Ok(())
    }

    /// Asks for the report once more: the interrupt may have met the driver in its second line. A shell that was thrown
    /// back before it had taken its commands from our pipe again reads them from the terminal, so there the line is typed.
    fn ask_again(&mut self) -> Result<(), Exit> {
        self.nonce += 1;
        let line = self.pipes.scripts.ask_again(self.nonce);
        let stdin = std::fs::read_link(format!("/proc/{}/fd/0", self.shell.pid()));
        let reads_terminal = stdin.is_ok_and(|stdin| stdin == self.terminal.name());
        if reads_terminal && self.terminal.foreground() == Some(self.shell.pid()) {
            self.terminal.type_text(&line)?;
        }
        self.pipes.send_lines(&line).map_err(Exit::failed)
    }

    /// Asks another bash whether the code is complete. A shell that cannot be asked means no.
    fn is_complete(&self, code: &str) -> bool {
        let ask = || -> io::Result<bool> {
            let file = memory_file()?;
            file.write_all_at(code.as_bytes(), 0)?;
            let checked = Command::new(&self.config.bash)
                .args(["--noprofile", "--norc", "-n", "-O", "extglob"])
                .arg(path_of(file.as_raw_fd()))
                .env_clear()
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .output()?;
            Ok(checked.status.success() && checked.stderr.is_empty())
        };
        !code.trim_end().ends_with('\\') && ask().unwrap_or(false)
    }
}
