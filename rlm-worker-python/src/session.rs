//! The session: one interpreter after another, and the cells that run in them.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags};
use nix::sys::signal::Signal;
use rlm_core::json::JsonText;
use rlm_core::limits::{SET_LIMIT, START_LIMIT};
use rlm_core::protocol::{Answer, Execute, Outcome, State, Truncated};
use rlm_core::worker::descendants::{self, BootTime};
use rlm_core::worker::{CallReport, Description, Events, Exit, Interpreter as Worker, Process, serve};

use crate::interpreter::Interpreter;
use crate::ladder::{self, Ladder};
use crate::process::{self, Outputs, Pipes, StartError};
use crate::wire::{Command, LOST_STATUS, Report, Setup, Task, complete_report};

/// How often a running cell is looked after though nothing happens.
const TEND_INTERVAL: Duration = Duration::from_millis(100);

/// How much of what an interpreter printed before it failed to start is told.
const WORDS_BYTES: usize = 4096;

/// What a session is made of.
#[derive(Clone, Debug)]
pub struct SessionConfig {
    /// The Python to run.
    pub interpreter: Interpreter,
    /// The cell engine's file.
    pub engine: PathBuf,
    /// The session's environment, complete.
    pub env: Vec<(OsString, OsString)>,
    /// What the namespace begins with, and the guard rails.
    pub setup: Setup,
    /// Time limit of a call that brings none.
    pub exec_timeout: Option<Duration>,
    /// Bound on a call's output per stream, in bytes.
    pub max_output_bytes: usize,
}

/// A persistent Python session.
#[derive(Debug)]
pub struct PythonSession {
    config: SessionConfig,
    pipes: Pipes,
    interpreter: Process,
    /// What the interpreter says that it is.
    version: String,
    /// What [`process::image`] said of the interpreter.
    image: Option<[u64; 3]>,
    nonce: u64,
    /// Number of cells run so far, over all interpreters.
    cells: u64,
    /// Output that came since the last call ended: it belongs to the next.
    outputs: Outputs,
    /// Set when the interpreter is gone: no call can run until a new one is there.
    is_dead: bool,
    /// Set when the session was to begin anew and no interpreter could be started.
    reset_failed: bool,
}

/// How the interpreter's part of a call ended.
#[derive(Debug)]
enum End {
    Reported(Box<Report>),
    Died(Death),
}

/// What became of an interpreter.
#[derive(Debug)]
enum Death {
    /// It ended, or was ended, with this status, as a shell shows it.
    Ended(i32),
    /// It was ended by us, for a cell that did not stop.
    Killed,
    /// It executed another program.
    Replaced,
}

/// What an interpreter is given to do, and for how long.
struct Assignment<'a> {
    task: Task,
    payload: &'a [u8],
    /// How much of it, at the end, is what was written in place of a cell's code.
    written_bytes: usize,
    /// Bound on the report's `result`.
    max_result_bytes: usize,
    limit: Option<Duration>,
}

impl<'a> Assignment<'a> {
    /// What runs no code of a cell's.
    fn of_worker(task: Task, payload: &'a [u8], limit: Option<Duration>) -> Self {
        Self { task, payload, written_bytes: 0, max_result_bytes: 0, limit }
    }
}

/// What is known of a call while it runs.
struct Running {
    /// Whether an interrupt stops it.
    heeds_interrupts: bool,
    began: BootTime,
    time_is_up: Option<Instant>,
    tend_at: Instant,
    ladder: Option<Ladder>,
    report: Vec<u8>,
}

impl Running {
    fn new(assignment: &Assignment<'_>) -> Self {
        let now = Instant::now();
        Self {
            // The host's interrupt means a cell.
            heeds_interrupts: assignment.task != Task::Set,
            began: BootTime::now(),
            time_is_up: assignment.limit.and_then(|limit| now.checked_add(limit)),
            tend_at: now + TEND_INTERVAL,
            ladder: None,
            report: Vec::new(),
        }
    }

    /// When there is something to do though nothing happens.
    fn wake_at(&self) -> Instant {
        let stop_at = self.ladder.as_ref().map_or(self.time_is_up, |ladder| Some(ladder.next));
        stop_at.map_or(self.tend_at, |stop_at| stop_at.min(self.tend_at))
    }
}

impl PythonSession {
    /// Starts the first interpreter and waits until it can take a cell.
    ///
    /// # Errors
    /// [`Exit::Failed`] says why there is none.
    pub fn start(config: SessionConfig, events: &Events) -> Result<Self, Exit> {
        let pipes = Pipes::new().map_err(StartError::Pipes).map_err(Exit::failed)?;
        let outputs = Outputs::new(WORDS_BYTES);
        let interpreter = start(&config, &pipes, &config.setup.fs_root).map_err(Exit::failed)?;
        let mut session = Self {
            config,
            pipes,
            interpreter,
            version: String::new(),
            image: None,
            nonce: 0,
            cells: 0,
            outputs,
            is_dead: false,
            reset_failed: false,
        };
        session.set_up(events)?;
        session.outputs.set_limit(session.config.max_output_bytes);
        Ok(session)
    }

    /// Makes an interpreter that has just been started ready for cells.
    fn set_up(&mut self, events: &Events) -> Result<(), Exit> {
        let setup = serde_json::to_vec(&self.config.setup).map_err(Exit::failed)?;
        self.send(&Assignment::of_worker(Task::SetUp, &setup, None))?;
        let mut report = Vec::new();
        let deadline = Instant::now() + START_LIMIT;
        loop {
            // An interrupt means the call, and there is none yet.
            events.wait(self.descriptors(), Some(deadline))?;
            self.pipes.read_outputs(&mut self.outputs)?;
            self.pipes.read_report(&mut report)?;
            if let Some(report) = complete_report(&report, self.nonce) {
                let report: Report = serde_json::from_slice(report).map_err(Exit::failed)?;
                self.version = report.result.unwrap_or_default();
                break;
            }
            let python = || self.config.interpreter.program.clone();
            if let Some(status) = self.interpreter.status() {
                self.pipes.drain_outputs(&mut self.outputs)?;
                let (python, words) = (python(), self.last_words());
                return Err(Exit::failed(StartError::EndedEarly { python, status, words }));
            }
            if Instant::now() >= deadline {
                let (python, words) = (python(), self.last_words());
                return Err(Exit::failed(StartError::Mute { python, limit: START_LIMIT, words }));
            }
        }
        self.image = process::image(self.interpreter.pid());
        self.is_dead = false;
        Ok(())
    }

    fn send(&mut self, assignment: &Assignment<'_>) -> Result<(), Exit> {
        let Assignment { task, payload, written_bytes, max_result_bytes, .. } = *assignment;
        self.nonce += 1;
        let [payload_bytes, written_bytes, max_result_bytes] =
            [payload.len(), written_bytes, max_result_bytes].map(|bytes| bytes as u64);
        let command = Command { nonce: self.nonce, task, payload_bytes, written_bytes, max_result_bytes };
        self.pipes.send(command, payload).map_err(Exit::failed)
    }

    /// What is waited for while a cell runs: its report, its output, its interpreter's death.
    fn descriptors(&self) -> Vec<PollFd<'_>> {
        let pipes = &self.pipes;
        [pipes.report(), pipes.stdout.reader(), pipes.stderr.reader(), self.interpreter.pidfd()]
            .map(|fd| PollFd::new(fd, PollFlags::POLLIN))
            .into()
    }

    fn last_words(&mut self) -> String {
        let words = std::mem::replace(&mut self.outputs, Outputs::new(WORDS_BYTES));
        let words = [words.stderr, words.stdout].map(|output| output.into_text().0);
        words.map(|text| text.trim().to_owned()).join("\n").trim().to_owned()
    }

    /// Has the interpreter do something: a new one where the last one died before it had heard of it, for then nothing of
    /// it was done; `notice` says what is lost with it. The second value says why it was stopped, if it was.
    fn perform(
        &mut self,
        assignment: &Assignment<'_>,
        notice: &mut Option<String>,
        events: &Events,
    ) -> Result<(End, Option<Outcome>), Exit> {
        self.send(assignment)?;
        let done = self.run(Running::new(assignment), events)?;
        let has_died = matches!(done, (End::Died(Death::Ended(_)), None));
        if !has_died || notice.is_some() || !self.pipes.has_unread_command()? {
            return Ok(done);
        }
        *notice = Some(self.replace_idle_interpreter(events)?);
        self.send(assignment)?;
        self.run(Running::new(assignment), events)
    }

    /// Waits for what was sent to the engine, until it reports or its interpreter dies. The second value says why it was
    /// stopped, if it was.
    fn run(&mut self, mut running: Running, events: &Events) -> Result<(End, Option<Outcome>), Exit> {
        let end = loop {
            let wake = events.wait(self.descriptors(), Some(running.wake_at()))?;
            let [has_report, prints, complains, is_dead] = [0, 1, 2, 3].map(|at| wake.ready[at]);
            // What dies may have reported first.
            if has_report || is_dead {
                self.pipes.read_report(&mut running.report)?;
                if let Some(report) = complete_report(&running.report, self.nonce) {
                    let report = serde_json::from_slice(report).map_err(Exit::failed)?;
                    break End::Reported(Box::new(report));
                }
            }
            if prints || complains {
                self.pipes.read_outputs(&mut self.outputs)?;
            }
            if is_dead && let Some(status) = self.interpreter.status() {
                let was_killed = running.ladder.as_ref().is_some_and(ladder::has_killed);
                break End::Died(if was_killed { Death::Killed } else { Death::Ended(status) });
            }
            if let Some(death) = self.tend_cell(&mut running) {
                break End::Died(death);
            }
            self.stop_where_due(&mut running, wake.interrupt);
        };
        Ok((end, running.ladder.map(|ladder| ladder.cause)))
    }

    /// Stops the cell where an interrupt came or its time is up, or goes on stopping it.
    fn stop_where_due(&mut self, running: &mut Running, interrupt: bool) {
        let now = Instant::now();
        if running.ladder.is_none() {
            running.ladder = ladder::start(interrupt && running.heeds_interrupts, running.time_is_up);
        }
        if let Some(ladder) = running.ladder.as_mut().filter(|ladder| now >= ladder.next) {
            ladder::step(ladder, &mut self.interpreter, running.began);
        }
    }

    /// What has to be done from time to time while a cell runs.
    fn tend_cell(&mut self, running: &mut Running) -> Option<Death> {
        let now = Instant::now();
        if now < running.tend_at {
            return None;
        }
        running.tend_at = now + TEND_INTERVAL;
        // An interpreter that stopped itself has nobody to let it go on.
        self.interpreter.resume();
        descendants::reap_orphans(Some(self.interpreter.pid()));
        let image = process::image(self.interpreter.pid());
        let is_replaced = image.is_some() && self.image.is_some() && image != self.image;
        is_replaced.then_some(Death::Replaced)
    }

    /// Ends all that is left of an interpreter, its programs included. Returns whether nothing is left.
    fn end_interpreter(&mut self, events: &Events) -> Result<bool, Exit> {
        self.is_dead = true;
        self.interpreter.signal(Signal::SIGKILL);
        // It is reaped by its owner; the sweep takes everything else that it had started.
        while self.interpreter.status().is_none() {
            events.wait(vec![PollFd::new(self.interpreter.pidfd(), PollFlags::POLLIN)], None)?;
        }
        let have_ended = descendants::end_all();
        self.pipes.drain_outputs(&mut self.outputs)?;
        Ok(have_ended)
    }

    /// Ends what is left of an interpreter, and starts a new one.
    fn restart(&mut self, events: &Events) -> Result<(), Exit> {
        self.end_interpreter(events)?;
        let places = [&*self.config.setup.fs_root, Path::new("/")];
        let cwd = places.into_iter().find(|dir| dir.is_dir()).unwrap_or(places[0]);
        self.interpreter = start(&self.config, &self.pipes, cwd).map_err(Exit::failed)?;
        let outputs = std::mem::replace(&mut self.outputs, Outputs::new(WORDS_BYTES));
        self.set_up(events)?;
        self.outputs = outputs;
        Ok(())
    }

    /// The interpreter died between calls. What the next call has to say of that.
    fn replace_idle_interpreter(&mut self, events: &Events) -> Result<String, Exit> {
        if self.reset_failed {
            self.restart(events)?;
            self.reset_failed = false;
            let notice = "the session was reset before, and its new interpreter could be started only now";
            return Ok(notice.to_owned());
        }
        let death = Death::Ended(self.interpreter.status().unwrap_or(-1));
        self.restart(events)?;
        Ok(format!("since the last call the interpreter {}; {LEGACY}", death.describe()))
    }

    fn take_outputs(&mut self, report: &mut CallReport) {
        let outputs = std::mem::replace(&mut self.outputs, Outputs::new(self.config.max_output_bytes));
        (report.stdout, report.truncated.stdout) = outputs.stdout.into_text();
        (report.stderr, report.truncated.stderr) = outputs.stderr.into_text();
    }

    /// The cell's report came: the interpreter goes on.
    fn after_report(
        &mut self,
        report: Report,
        stopped: Option<Outcome>,
        limit: Option<Duration>,
    ) -> CallReport {
        let Report { result, dropped, exception, answer } = report;
        let ended = if exception.is_some() { Outcome::Error } else { Outcome::Ok };
        let kind = exception.as_ref().map(|exception| exception.kind.as_str());
        let hint = match (stopped, kind) {
            (Some(Outcome::TimedOut), Some("KeyboardInterrupt")) => Some(serve::timed_out_hint(limit)),
            (Some(_), Some("KeyboardInterrupt")) => None,
            (Some(Outcome::TimedOut), _) => {
                let seconds = limit.unwrap_or_default().as_secs_f64();
                Some(format!("the time limit of {seconds} s was reached; {CAME_TO_ITS_END}"))
            }
            (Some(_), _) => Some(CAME_TO_ITS_END.to_owned()),
            (None, Some("SystemExit")) => {
                Some("exit ends the cell and nothing else: the session goes on".to_owned())
            }
            (None, _) => None,
        };
        if let Some(answer) = &answer {
            self.config.setup.answer = answer.clone();
        }
        CallReport {
            result,
            exception,
            hint,
            answer,
            truncated: Truncated { result: dropped, ..Truncated::default() },
            ..CallReport::new(stopped.unwrap_or(ended), State::Kept)
        }
    }

    /// The interpreter died in the call: a new one takes over.
    fn after_death(
        &mut self,
        death: &Death,
        stopped: Option<Outcome>,
        events: &Events,
    ) -> Result<CallReport, Exit> {
        self.restart(events)?;
        Ok(CallReport {
            hint: Some(format!("the interpreter {}; {LEGACY}", death.describe())),
            ..CallReport::new(stopped.unwrap_or(Outcome::Crashed), State::Reset)
        })
    }
}

impl Worker for PythonSession {
    fn execute(&mut self, call: &Execute, events: &Events) -> Result<CallReport, Exit> {
        self.tend()?;
        let mut notice = if self.is_dead { Some(self.replace_idle_interpreter(events)?) } else { None };
        let max_output_bytes = call.max_output_bytes.unwrap_or(self.config.max_output_bytes);
        self.outputs.set_limit(max_output_bytes);
        let limit = call.timeout.or(self.config.exec_timeout);
        self.cells += 1;
        let (payload, written_bytes) = code_and_written(call);
        let assignment = Assignment {
            task: Task::Cell(self.cells),
            payload: &payload,
            written_bytes,
            max_result_bytes: max_output_bytes,
            limit,
        };

        let (end, stopped) = self.perform(&assignment, &mut notice, events)?;

        self.pipes.drain_outputs(&mut self.outputs)?;
        let mut report = match end {
            End::Reported(report) => self.after_report(*report, stopped, limit),
            End::Died(death) => self.after_death(&death, stopped, events)?,
        };
        self.take_outputs(&mut report);
        if let Some(notice) = notice
            && report.state == State::Kept
        {
            (report.state, report.hint) = (State::Reset, Some(notice));
        }
        Ok(report)
    }

    fn reset(&mut self, events: &Events) -> Result<CallReport, Exit> {
        let have_ended = self.end_interpreter(events)?;
        let mut report = CallReport {
            answer: Some(Answer::default()),
            hint: (!have_ended).then(|| serve::SURVIVORS.to_owned()),
            ..CallReport::new(Outcome::Ok, State::Reset)
        };
        self.take_outputs(&mut report);
        self.config.setup.answer = Answer::default();
        match Self::start(self.config.clone(), events) {
            // The number of a cell is that of the call, over all interpreters.
            Ok(fresh) => *self = Self { cells: self.cells, ..fresh },
            Err(Exit::Failed(error)) => {
                descendants::end_all();
                self.reset_failed = true;
                report.outcome = Outcome::Error;
                report.hint = Some(serve::no_interpreter("interpreter", &*error));
            }
            Err(stop) => return Err(stop),
        }
        Ok(report)
    }

    fn set(&mut self, variables: &BTreeMap<String, JsonText>, events: &Events) -> Result<CallReport, Exit> {
        self.tend()?;
        let mut notice = if self.is_dead { Some(self.replace_idle_interpreter(events)?) } else { None };
        let payload = serde_json::to_vec(variables).map_err(Exit::failed)?;
        let limit = self.config.exec_timeout.map_or(SET_LIMIT, |limit| limit.min(SET_LIMIT));
        let assignment = Assignment::of_worker(Task::Set, &payload, Some(limit));
        let (end, stopped) = self.perform(&assignment, &mut notice, events)?;
        // What was printed meanwhile stays for the next call: a thread printed it, or an old value as it went.
        let mut report = match end {
            End::Reported(report) => match report.result {
                None => CallReport::new(Outcome::Ok, State::Kept),
                Some(refusal) => CallReport::refused(refusal),
            },
            End::Died(death) => {
                let report = self.after_death(&death, stopped, events)?;
                let hint = report.hint.map(|hint| format!("{hint}; nothing was set"));
                CallReport { hint, ..report }
            }
        };
        if let Some(notice) = notice
            && report.state == State::Kept
        {
            report.state = State::Reset;
            report.hint = Some(report.hint.map_or(notice.clone(), |hint| format!("{hint}; {notice}")));
        }
        Ok(report)
    }

    fn describe(&mut self) -> Result<Description, Exit> {
        self.tend()?;
        let pid = (!self.is_dead).then(|| self.interpreter.pid());
        let has_final_functions = self.config.setup.has_final_functions;
        Ok(Description { has_final_functions, ..Description::new("python", &self.version, pid, None) })
    }

    fn watch<'fds>(&'fds self, fds: &mut Vec<PollFd<'fds>>) {
        fds.push(PollFd::new(self.pipes.stdout.reader(), PollFlags::POLLIN));
        fds.push(PollFd::new(self.pipes.stderr.reader(), PollFlags::POLLIN));
        if !self.is_dead {
            fds.push(PollFd::new(self.interpreter.pidfd(), PollFlags::POLLIN));
        }
    }

    fn tend(&mut self) -> Result<(), Exit> {
        self.pipes.read_outputs(&mut self.outputs)?;
        self.is_dead = self.is_dead || self.interpreter.status().is_some();
        descendants::reap_orphans((!self.is_dead).then(|| self.interpreter.pid()));
        Ok(())
    }
}

/// The code of a call, with what was written behind it where that is something else; and the size of the latter.
fn code_and_written(call: &Execute) -> (Cow<'_, [u8]>, usize) {
    match call.source.as_ref().filter(|source| **source != call.code) {
        None => (Cow::Borrowed(call.code.as_bytes()), 0),
        Some(source) => (Cow::Owned([call.code.as_bytes(), source.as_bytes()].concat()), source.len()),
    }
}

/// What is said of a cell that was to be stopped and has its own result.
const CAME_TO_ITS_END: &str =
    "the cell handled the interrupt or ended by itself at that moment; the session's state is kept";

/// What a new interpreter has of the old one, as a sentence for the caller.
const LEGACY: &str = "a new one has the answer and nothing else: variables and imports are lost, programs that cells started are ended";

impl Death {
    /// As the rest of a sentence on the interpreter.
    fn describe(&self) -> String {
        match self {
            Self::Killed => "was killed, for the cell did not stop".to_owned(),
            Self::Ended(LOST_STATUS) => {
                "lost its way to the worker (by chroot, another user id, or a limit on descriptors) and ended"
                    .to_owned()
            }
            Self::Replaced => "executed another program".to_owned(),
            Self::Ended(status) => match Signal::try_from(status - 128) {
                Ok(signal) => format!("was ended by {signal}"),
                Err(_) => format!("ended with status {status}"),
            },
        }
    }
}

fn start(config: &SessionConfig, pipes: &Pipes, cwd: &Path) -> Result<Process, StartError> {
    process::start(&config.interpreter.program, &config.engine, &config.env, pipes, cwd)
}
