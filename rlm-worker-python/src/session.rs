//! The Python session: one interpreter after another, and the cells that run in them.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::poll::{PollFd, PollFlags};
use nix::sys::signal::Signal;
use nix::unistd::Pid;
use rlm_core::env;
use rlm_core::json::JsonText;
use rlm_core::protocol::{Answer, Execute, Outcome, State, Truncated};
use rlm_core::worker::descendants::BootTime;
use rlm_core::worker::pipes::path_of;
use rlm_core::worker::supervisor::{start_until_ready, wait_until_ready, wait_until_ready_within};
use rlm_core::worker::{
    CallReport, Death, Description, Events, Exit, Interpreter, LiveOutput, Process, Progress, ResourceLimits,
};

use crate::checkpoint::Checkpoints;
use crate::ladder::{self, LADDER, Rung};
use crate::process::{self, Forking, Outputs, Pipes, StartError};
use crate::python::Python;
use crate::wire::{Branch, Command, LOST_STATUS, Report, Saved, Setup, Task};

/// Interval at which the interpreter of a running cell is checked even if nothing happens.
const UPKEEP_INTERVAL: Duration = Duration::from_millis(100);

/// Longest time until a copy has taken over. It takes a moment, unless a function of the session that it calls then hangs.
const TAKE_OVER_LIMIT: Duration = Duration::from_secs(2);

/// The configuration of a Python session.
#[derive(Clone, Debug)]
pub struct PythonConfig {
    /// The Python to run.
    pub python: Python,
    /// Path of the cell engine.
    pub engine: PathBuf,
    /// Forks interpreters from this process, in place of starting the program.
    pub forking: Option<Forking>,
    /// Environment of the session, complete.
    pub env: Vec<(OsString, OsString)>,
    /// Limits of the session's processes.
    pub resource_limits: ResourceLimits,
    /// Initial namespace, and guard rails.
    pub setup: Setup,
    /// Most bytes of output returned for a call, per stream.
    pub max_output_bytes: usize,
    /// Most memory of an interpreter of which a checkpoint is taken, in bytes. None: no checkpoints.
    pub checkpoint: Option<u64>,
    /// FIFOs for output as it comes.
    pub live: LiveOutput,
}

/// A persistent Python session.
#[derive(Debug)]
pub struct PythonSession {
    /// The configuration. Its answer is the last one that was reported.
    config: PythonConfig,
    pipes: Pipes,
    checkpoints: Option<Checkpoints>,
    process: Process,
    /// Version of Python.
    version: String,
    /// Identity of the program that the process runs, see [`process::image`].
    image: Option<[u64; 3]>,
    /// Output since the end of the last call, which belongs to the next one.
    outputs: Outputs,
    exchange: Exchange,
}

/// A command that was sent to the engine, and what has arrived of its report.
#[derive(Debug)]
struct Exchange {
    nonce: u64,
    task: Task,
    began: BootTime,
    report: Vec<u8>,
}

impl Interpreter for PythonSession {
    type Config = PythonConfig;
    type Rung = Rung;

    const NOUN: &'static str = "interpreter";
    const LADDER: &'static [(Rung, Duration)] = &LADDER;
    const UPKEEP_INTERVAL: Duration = UPKEEP_INTERVAL;
    const ENDS_PROGRAMS: bool = true;
    const HAS_RESULTS: bool = true;

    fn start(config: PythonConfig, events: &Events) -> Result<Self, Exit> {
        let cwd = config.setup.fs_root.clone();
        Self::start_in(&cwd, config, events)
    }

    fn restart(&mut self, events: &Events) -> Result<State, Exit> {
        self.pipes.drain_outputs(&mut self.outputs)?;
        if self.take_over(events)? {
            return Ok(State::Restored);
        }
        let dirs = [&*self.config.setup.fs_root, Path::new("/")];
        let cwd = dirs.into_iter().find(|dir| dir.is_dir()).unwrap_or(dirs[0]);
        let cwd = cwd.to_owned();
        let outputs = std::mem::replace(&mut self.outputs, Outputs::new(self.config.max_output_bytes));
        let started = start_until_ready(|| {
            self.process = start(&self.config, &self.pipes, &cwd).map_err(Exit::failed)?;
            self.set_up(events)
        });
        self.outputs = outputs;
        started.map(|()| State::Reset)
    }

    fn start_anew(&mut self, events: &Events) -> Result<(), Exit> {
        self.config.setup.answer = Answer::default();
        *self = Self::start(self.config.clone(), events)?;
        Ok(())
    }

    fn start_beside(&self, cwd: &Path, events: &Events) -> Result<Self, Exit> {
        Self::start_in(cwd, self.config.clone(), events)
    }

    fn process(&self) -> &Process {
        &self.process
    }

    fn copy(&mut self) -> Option<Pid> {
        let checkpoints = self.checkpoints.as_mut()?;
        // The last one may have announced itself right before the interpreter died.
        checkpoints.absorb().ok()?;
        checkpoints.copy()
    }

    fn describe(&self) -> Description {
        Description {
            language: "python",
            version: self.version.clone(),
            is_builtin: self.config.python.is_builtin,
            pid: None,
            cwd: None,
            has_final_functions: self.config.setup.has_final_functions,
        }
    }

    fn answer(&self) -> Answer {
        self.config.setup.answer.clone()
    }

    fn poll_fds<'fds>(&'fds self, fds: &mut Vec<PollFd<'fds>>) {
        let Pipes { report, stdout, stderr, .. } = &self.pipes;
        fds.extend([report, stdout, stderr].map(|pipe| PollFd::new(pipe.reader(), PollFlags::POLLIN)));
        let announced = self.checkpoints.as_ref().map(Checkpoints::announced);
        fds.extend(announced.map(|pipe| PollFd::new(pipe, PollFlags::POLLIN)));
    }

    fn absorb(&mut self, ready: &[bool]) -> Result<(), Exit> {
        if ready[0] {
            // Nobody asked for this report.
            self.pipes.read_report(&mut Vec::new())?;
        }
        if ready[1] || ready[2] {
            self.pipes.read_outputs(&mut self.outputs)?;
        }
        self.absorb_announcements(ready)?;
        Ok(())
    }

    fn send_code(&mut self, call: &Execute, number: u64) -> Result<Option<String>, Exit> {
        let max_output_bytes = call.max_output_bytes.unwrap_or(self.config.max_output_bytes);
        self.outputs.watch(&self.config.live);
        self.outputs.set_limit(max_output_bytes);
        let (payload, written_bytes) = code_and_written(call);
        self.send(Task::Cell(number), &payload, written_bytes, max_output_bytes)
    }

    fn send_variables(&mut self, variables: &BTreeMap<String, JsonText>) -> Result<Option<String>, Exit> {
        let payload = serde_json::to_vec(variables).map_err(Exit::failed)?;
        self.send(Task::Set, &payload, 0, 0)
    }

    fn send_completion(&mut self, code: &str) -> Result<Option<String>, Exit> {
        self.send(Task::Complete, code.as_bytes(), 0, 0)
    }

    fn send_save(&mut self) -> Result<Option<String>, Exit> {
        self.pipes.lend_payload();
        self.command(Task::Save, 0, 0, 0).map(|()| None)
    }

    fn send_load(&mut self, bytes: u64) -> Result<Option<String>, Exit> {
        self.pipes.lend_payload();
        self.command(Task::Load, bytes, 0, 0).map(|()| None)
    }

    fn send_branch(&mut self, name: &str, saved: &File) -> Result<Option<String>, Exit> {
        if self.config.setup.jail.is_some() {
            return Ok(Some(format!(
                "the session has {}, which is for its own directory alone",
                env::FS_JAIL
            )));
        }
        let branch = Branch { name: name.to_owned(), saved: path_of(saved.as_raw_fd()) };
        let payload = serde_json::to_vec(&branch).map_err(Exit::failed)?;
        self.send(Task::Branch, &payload, 0, 0)
    }

    fn state_file(&self) -> &File {
        self.pipes.payload()
    }

    fn has_unread_request(&self) -> Result<bool, Exit> {
        Ok(self.pipes.has_unread_command()?)
    }

    fn advance(&mut self, ready: &[bool], stopped: Option<Outcome>) -> Result<Progress, Exit> {
        if ready[0] {
            let Exchange { nonce, report, .. } = &mut self.exchange;
            self.pipes.read_report(report)?;
            if let Some(report) = Report::take(report, *nonce).map_err(Exit::failed)? {
                self.absorb_announcements(ready)?;
                return Ok(Progress::Done(Box::new(self.after_report(report, stopped))));
            }
        }
        if ready[1] || ready[2] {
            self.pipes.read_outputs(&mut self.outputs)?;
        }
        self.absorb_announcements(ready)?;
        Ok(Progress::Running)
    }

    fn upkeep(&mut self, _is_stopped: bool) -> Result<Option<Death>, Exit> {
        let image = process::image(self.process.pid());
        let is_replaced = image.is_some() && self.image.is_some() && image != self.image;
        Ok(is_replaced.then(|| death("executed another program".to_owned())))
    }

    fn climb(&mut self, rung: Rung) -> Result<(), Exit> {
        ladder::climb(rung, &self.process, self.exchange.began);
        Ok(())
    }

    fn take_output(&mut self, report: &mut CallReport) -> Result<(), Exit> {
        self.pipes.drain_outputs(&mut self.outputs)?;
        let outputs = std::mem::replace(&mut self.outputs, Outputs::new(self.config.max_output_bytes));
        (report.stdout, report.truncated.stdout) = outputs.stdout.into_text();
        (report.stderr, report.truncated.stderr) = outputs.stderr.into_text();
        Ok(())
    }

    fn death(&self, status: i32) -> Death {
        death(match (status, Signal::try_from(status - 128)) {
            (LOST_STATUS, _) => {
                "lost its connection to the worker (by chroot, another user id, or a limit on descriptors) and ended"
                    .to_owned()
            }
            (_, Ok(signal)) => format!("was ended by {signal}"),
            (status, Err(_)) => format!("ended with status {status}"),
        })
    }

    fn what_survives(&self, state: State) -> &'static str {
        if state == State::Restored {
            return "a copy from before the call goes on: variables, functions and imports are as they were then, but not files, \
                    what was read of them, connections, and programs that cells started, which were ended";
        }
        "a new one has only the answer: variables and imports are lost, and programs that cells started were ended"
    }
}

impl PythonSession {
    /// Starts a session in a directory.
    fn start_in(cwd: &Path, mut config: PythonConfig, events: &Events) -> Result<Self, Exit> {
        let pipes = Pipes::new().map_err(StartError::Pipes).map_err(Exit::failed)?;
        let checkpoints = config.checkpoint.map(Checkpoints::new).transpose();
        let checkpoints = checkpoints.map_err(StartError::Pipes).map_err(Exit::failed)?;
        config.setup.copies = checkpoints.as_ref().map(Checkpoints::settings);
        let process = start(&config, &pipes, cwd).map_err(Exit::failed)?;
        config.forking = config.forking.filter(|forking| !forking.is_for_the_first);
        let mut session = Self {
            pipes,
            checkpoints,
            process,
            version: String::new(),
            image: None,
            outputs: Outputs::new(config.max_output_bytes),
            exchange: Exchange { nonce: 0, task: Task::SetUp, began: BootTime::now(), report: Vec::new() },
            config,
        };
        session.set_up(events)?;
        Ok(session)
    }

    /// Makes a newly started interpreter ready for cells.
    fn set_up(&mut self, events: &Events) -> Result<(), Exit> {
        let setup = serde_json::to_vec(&self.config.setup).map_err(Exit::failed)?;
        if let Some(fault) = self.send(Task::SetUp, &setup, 0, 0)? {
            return Err(Exit::failed(fault));
        }
        wait_until_ready(self, &self.config.python.program.clone(), events)?;
        self.image = process::image(self.process.pid());
        Ok(())
    }

    /// Wakes the copy that waits, which takes the place of the dead interpreter. Returns false if no copy waits, or if it cannot.
    fn take_over(&mut self, events: &Events) -> Result<bool, Exit> {
        let nonce = self.begin(Task::TakeOver);
        let Some(checkpoints) = &mut self.checkpoints else { return Ok(false) };
        let Some(copy) = checkpoints.take(events)? else { return Ok(false) };
        self.pipes.renew()?;
        let command =
            Command { nonce, task: Task::TakeOver, payload_bytes: 0, written_bytes: 0, max_result_bytes: 0 };
        checkpoints.call(&copy, command)?;
        self.process = copy;
        let outputs = std::mem::replace(&mut self.outputs, Outputs::new(self.config.max_output_bytes));
        let program = self.config.python.program.clone();
        let taken_over = wait_until_ready_within(TAKE_OVER_LIMIT, self, &program, events);
        self.outputs = outputs;
        match taken_over {
            Ok(()) => Ok(true),
            Err(Exit::Failed(_)) => {
                self.process.kill(events)?;
                if let Some(checkpoints) = &self.checkpoints {
                    checkpoints.take_back();
                }
                Ok(false)
            }
            Err(exit) => Err(exit),
        }
    }

    /// `ready` has a value for each descriptor of [`Interpreter::poll_fds`].
    fn absorb_announcements(&mut self, ready: &[bool]) -> Result<(), Exit> {
        if let Some(checkpoints) = &mut self.checkpoints
            && ready[3]
        {
            checkpoints.absorb()?;
        }
        Ok(())
    }

    /// Sends a command. Returns the reason if its payload cannot be written. The last `written_bytes` of a cell's payload are its source as written, if that is not the
    /// code.
    fn send(
        &mut self,
        task: Task,
        payload: &[u8],
        written_bytes: usize,
        max_result_bytes: usize,
    ) -> Result<Option<String>, Exit> {
        if let Err(error) = self.pipes.write_payload(payload) {
            return Ok(Some(format!("the request cannot be passed to the interpreter: {error}")));
        }
        let [payload_bytes, written_bytes, max_result_bytes] =
            [payload.len(), written_bytes, max_result_bytes].map(|bytes| bytes as u64);
        self.command(task, payload_bytes, written_bytes, max_result_bytes).map(|()| None)
    }

    /// Sends a command whose payload is there.
    fn command(
        &mut self,
        task: Task,
        payload_bytes: u64,
        written_bytes: u64,
        max_result_bytes: u64,
    ) -> Result<(), Exit> {
        let nonce = self.begin(task);
        let command = Command { nonce, task, payload_bytes, written_bytes, max_result_bytes };
        self.pipes.send(command).map_err(Exit::failed)
    }

    /// Begins an exchange, and returns its nonce.
    fn begin(&mut self, task: Task) -> u64 {
        let nonce = self.exchange.nonce + 1;
        self.exchange = Exchange { nonce, task, began: BootTime::now(), report: Vec::new() };
        nonce
    }

    fn after_report(&mut self, mut report: Report, stopped: Option<Outcome>) -> CallReport {
        let no_copy = report.no_copy.take();
        let no_checkpoint = match &mut self.checkpoints {
            Some(checkpoints) if self.exchange.task.changes_session() => {
                checkpoints.settle(self.exchange.nonce, no_copy, self.exchange.task != Task::SetUp)
            }
            _ => None,
        };
        let mut report = self.after_task(report, stopped);
        if let Some(why) = no_checkpoint {
            let hint =
                format!("no checkpoint is taken now: {why}; if the interpreter dies, its variables are lost");
            report.hint =
                report.hint.into_iter().chain([hint]).reduce(|hint, next| format!("{hint}; {next}"));
        }
        report
    }

    fn after_task(&mut self, report: Report, stopped: Option<Outcome>) -> CallReport {
        match self.exchange.task {
            Task::SetUp => {
                self.version = report.result.unwrap_or_default();
                CallReport::new(Outcome::Ok, State::Reset)
            }
            Task::TakeOver => CallReport::new(Outcome::Ok, State::Restored),
            Task::Set | Task::Branch => match report.result {
                None => CallReport::new(Outcome::Ok, State::Kept),
                Some(refusal) => CallReport::refused(refusal),
            },
            Task::Complete => CallReport {
                result: report.result,
                ..CallReport::new(stopped.unwrap_or(Outcome::Ok), State::Kept)
            },
            Task::Save | Task::Load => self.after_state(report, stopped),
            Task::Cell(_) => self.after_cell(report, stopped),
        }
    }

    fn after_state(&mut self, report: Report, stopped: Option<Outcome>) -> CallReport {
        let Report { result, exception, answer, .. } = report;
        let saved = result.as_deref().and_then(|text| serde_json::from_str::<Saved>(text).ok());
        let Some(Saved { bytes, contents }) = saved else {
            let fault = exception.map(|exception| format!("{}: {}", exception.kind, exception.message));
            return CallReport {
                outcome: stopped.unwrap_or(Outcome::Error),
                ..CallReport::refused(fault.unwrap_or_else(|| "the interpreter did not say why".to_owned()))
            };
        };
        if let Some(answer) = &answer {
            self.config.setup.answer = answer.clone();
        }
        CallReport { answer, saved: Some((bytes, contents)), ..CallReport::new(Outcome::Ok, State::Kept) }
    }

    fn after_cell(&mut self, report: Report, stopped: Option<Outcome>) -> CallReport {
        let Report { result, dropped, exception, answer, answer_type, .. } = report;
        let ended = if exception.is_some() { Outcome::Error } else { Outcome::Ok };
        let kind = exception.as_ref().map(|exception| exception.kind.as_str());
        let end = match (stopped, kind) {
            (Some(_), Some("KeyboardInterrupt")) => None,
            (Some(_), _) => Some(STOPPED_ITSELF.to_owned()),
            (None, Some("SystemExit")) => Some("exit only ends the cell; the session goes on".to_owned()),
            (None, _) => None,
        };
        let hints: Vec<String> = end.into_iter().chain(answer_type.as_deref().map(not_a_dict)).collect();
        if let Some(answer) = &answer {
            self.config.setup.answer = answer.clone();
        }
        CallReport {
            result,
            exception,
            hint: (!hints.is_empty()).then(|| hints.join("; ")),
            answer,
            truncated: Truncated { result: dropped, ..Truncated::default() },
            ..CallReport::new(stopped.unwrap_or(ended), State::Kept)
        }
    }
}

/// Hint for a cell that was to be stopped, but has a result of its own.
const STOPPED_ITSELF: &str =
    "the cell handled the interrupt or ended by itself at that moment; the session's state is kept";

/// Hint for a cell that bound `answer` to a value of this type.
fn not_a_dict(kind: &str) -> String {
    format!(
        "`answer` is now of type {kind}, not a dict: its text is the content, and it is not final; to finish, set \
         answer = {{\"ready\": True, \"content\": ...}}, or answer[\"ready\"] = True in such a dict"
    )
}

fn death(how: String) -> Death {
    Death { outcome: Outcome::Crashed, exit_code: None, how }
}

/// The payload of a call: its code, followed by its source as written if that is different. Also the size of the
/// latter.
fn code_and_written(call: &Execute) -> (Cow<'_, [u8]>, usize) {
    match call.source.as_ref().filter(|source| **source != call.code) {
        None => (Cow::Borrowed(call.code.as_bytes()), 0),
        Some(source) => (Cow::Owned([call.code.as_bytes(), source.as_bytes()].concat()), source.len()),
    }
}

fn start(config: &PythonConfig, pipes: &Pipes, cwd: &Path) -> Result<Process, StartError> {
    pipes.renew().map_err(|errno| StartError::Pipes(errno.into()))?;
    let paths = pipes.paths();
    let limits = &config.resource_limits;
    match config.forking {
        Some(Forking { fork, .. }) => process::fork(fork, &config.env, limits, &paths, cwd),
        None => process::start(&config.python.program, &config.engine, &config.env, limits, paths, cwd),
    }
}
