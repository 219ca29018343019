//! The interpreter that a language provides, as the [supervisor](super::supervisor) drives it.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::poll::PollFd;
use nix::unistd::Pid;

use super::events::Events;
use super::exit::Exit;
use super::process::Process;
use super::resources::ResourceLimits;
use super::settings::{Environment, Settings};
use crate::json::JsonText;
use crate::protocol::{
    Answer, Context, Exception, Execute, Outcome, PROTOCOL_VERSION, Response, State, Truncated,
};
use crate::saved::Contents;

/// A language's interpreter: how it is started, what it is sent, how its report is read and how it is stopped.
///
/// The supervisor sends one request at a time. Then it calls [`advance`](Self::advance) whenever something has arrived, and
/// [`upkeep`](Self::upkeep) from time to time, until the report is complete or the process is dead. It keeps the time limit,
/// takes the rungs of the ladder, replaces a dead interpreter, and writes the hints for callers.
pub trait Interpreter: Sized {
    /// The settings of a session.
    type Config;

    /// One step of stopping a call.
    type Rung: Copy + 'static;

    /// The word for the process in sentences: `shell`, `interpreter`.
    const NOUN: &'static str;

    /// The rungs by which a call is stopped, at least one, and the time that the call has to end after each. The last one kills
    /// the process.
    const LADDER: &'static [(Self::Rung, Duration)];

    /// Pause between two calls of [`Self::upkeep`].
    const UPKEEP_INTERVAL: Duration;

    /// True if programs that the session has started end with the process.
    const ENDS_PROGRAMS: bool;

    /// True if calls have results. Then the result of a call that found or left less than the whole state begins with
    /// the hint.
    const HAS_RESULTS: bool;

    /// Starts the session's first process, and returns once it can take a request.
    ///
    /// # Errors
    /// [`Exit::Failed`] says why there is no interpreter.
    fn start(config: Self::Config, events: &Events) -> Result<Self, Exit>;

    /// Starts another process in place of a dead one, and restores as much of the state as possible. Returns how much that is.
    ///
    /// # Errors
    /// [`Exit::Failed`] says why there is no interpreter.
    fn restart(&mut self, events: &Events) -> Result<State, Exit>;

    /// Starts a fresh process in place of a dead one. Nothing of the old state is kept, not even the answer.
    ///
    /// # Errors
    /// [`Exit::Failed`] says why there is no interpreter; [`Self::restart`] can then be tried.
    fn start_anew(&mut self, events: &Events) -> Result<(), Exit>;

    /// Starts a session with the settings of this one in another process, in this directory. This one goes on.
    ///
    /// # Errors
    /// [`Exit::Failed`] says why there is no interpreter.
    fn start_beside(&self, cwd: &Path, events: &Events) -> Result<Self, Exit>;

    /// The process.
    fn process(&self) -> &Process;

    /// A process that waits to take the place of a dead one. It is the session's, but none of its programs.
    fn copy(&mut self) -> Option<Pid> {
        None
    }

    /// Describes the session, without asking the process anything.
    fn describe(&self) -> Description;

    /// The answer that the interpreter last reported or was started with.
    fn answer(&self) -> Answer;

    /// Adds the descriptors that output and reports arrive on.
    fn poll_fds<'fds>(&'fds self, fds: &mut Vec<PollFd<'fds>>);

    /// Takes what has arrived between requests. `ready` has a value for each descriptor of [`Self::poll_fds`].
    ///
    /// # Errors
    /// [`Exit`] if the session can no longer be served.
    fn absorb(&mut self, ready: &[bool]) -> Result<(), Exit>;

    /// Sends the code of a call, the session's `number`-th. Returns the reason if it cannot be passed on; then nothing
    /// was sent.
    ///
    /// # Errors
    /// [`Exit`] if the session can no longer be served.
    fn send_code(&mut self, call: &Execute, number: u64) -> Result<Option<String>, Exit>;

    /// Sends variables, of which the interpreter sets all or none; values are never run as code. Returns the reason if they
    /// cannot be set and that is known before anything is sent.
    ///
    /// # Errors
    /// [`Exit`] if the session can no longer be served.
    fn send_variables(&mut self, variables: &BTreeMap<String, JsonText>) -> Result<Option<String>, Exit>;

    /// Asks for what can complete the code, without any other effect on the session. The report's `result` is a
    /// [`Completions`](crate::protocol::Completions) as JSON. Returns the reason if the code cannot be passed on.
    ///
    /// # Errors
    /// [`Exit`] if the session can no longer be served.
    fn send_completion(&mut self, code: &str) -> Result<Option<String>, Exit>;

    /// Asks for the state of the session, which goes on. It is in the [`Self::state_file`] when the report has
    /// [`CallReport::saved`]. Returns the reason if the request cannot be passed on.
    ///
    /// # Errors
    /// [`Exit`] if the session can no longer be served.
    fn send_save(&mut self) -> Result<Option<String>, Exit>;

    /// Has a new session take over the state that is in the first bytes of its [`Self::state_file`]. Returns the reason if it
    /// cannot.
    ///
    /// # Errors
    /// [`Exit`] if the session can no longer be served.
    fn send_load(&mut self, bytes: u64) -> Result<Option<String>, Exit>;

    /// Has the session leave a copy of itself for another worker, which finds it by this name; `saved` is the file with the rest. A report
    /// with the outcome `error` says why it could not. Returns the reason if the request cannot be passed on.
    ///
    /// # Errors
    /// [`Exit`] if the session can no longer be served.
    fn send_branch(&mut self, name: &str, saved: &File) -> Result<Option<String>, Exit> {
        let _ = (name, saved);
        Ok(Some(format!("the {} cannot be forked", Self::NOUN)))
    }

    /// The file in memory by which a state is passed.
    fn state_file(&self) -> &File;

    /// True if the process has not begun to read the request.
    ///
    /// # Errors
    /// [`Exit`] if the session can no longer be served.
    fn has_unread_request(&self) -> Result<bool, Exit>;

    /// Takes what has arrived for the request. `ready` has a value for each descriptor of [`Self::poll_fds`]; `stopped` says
    /// why the call is being stopped, if it is.
    ///
    /// # Errors
    /// [`Exit`] if the session can no longer be served.
    fn advance(&mut self, ready: &[bool], stopped: Option<Outcome>) -> Result<Progress, Exit>;

    /// Does periodic work during a call. Returns the interpreter's death if only this check can detect it.
    ///
    /// # Errors
    /// [`Exit`] if the session can no longer be served.
    fn upkeep(&mut self, is_stopped: bool) -> Result<Option<Death>, Exit>;

    /// Takes one rung of the ladder.
    ///
    /// # Errors
    /// [`Exit`] if the session can no longer be served.
    fn climb(&mut self, rung: Self::Rung) -> Result<(), Exit>;

    /// Moves everything printed so far into a report.
    ///
    /// # Errors
    /// [`Exit`] if the session can no longer be served.
    fn take_output(&mut self, report: &mut CallReport) -> Result<(), Exit>;

    /// Completes the report of code after which nothing is left of the old state. A host may show a model only the output.
    fn announce_reset(_report: &mut CallReport) {}

    /// Describes the end of a process with this status: an exit status, or 128 and the number of a signal.
    fn death(&self, status: i32) -> Death;

    /// The part of the state that this process has from the one before it, in words.
    fn what_survives(&self, state: State) -> &'static str;
}

/// Progress of a request.
#[derive(Debug)]
pub enum Progress {
    /// The code runs.
    Running,
    /// The code begins to run now: its time limit starts here.
    CodeBegins,
    /// The interpreter is about to report, and must not be stopped before `until`.
    Reporting {
        /// When to stop it after all.
        until: Instant,
    },
    /// The report is complete. Output is not part of it yet.
    Done(Box<CallReport>),
}

/// The end of an interpreter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Death {
    /// Outcome of a call that it ended.
    pub outcome: Outcome,
    /// Exit code of a call that it ended.
    pub exit_code: Option<i32>,
    /// The rest of a sentence that begins with the interpreter's noun.
    pub how: String,
}

/// The result of a request.
#[derive(Clone, Debug, PartialEq)]
pub struct CallReport {
    /// The outcome of the call.
    pub outcome: Outcome,
    /// The part of the session's state that survived.
    pub state: State,
    /// Standard output, or the terminal's text.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
    /// The value or traceback of a Python cell.
    pub result: Option<String>,
    /// Status of the last command, or of the shell that ended.
    pub exit_code: Option<i32>,
    /// The exception that ended a Python cell.
    pub exception: Option<Exception>,
    /// Bytes dropped from the streams.
    pub truncated: Truncated,
    /// A sentence for the caller.
    pub hint: Option<String>,
    /// The answer. None: it has not changed.
    pub answer: Option<Answer>,
    /// The size of the state that was saved, and what is in it; after a load, what is not there.
    pub saved: Option<(u64, Contents)>,
}

impl CallReport {
    /// A report with an outcome and a state, and nothing else.
    #[must_use]
    pub fn new(outcome: Outcome, state: State) -> Self {
        Self {
            outcome,
            state,
            stdout: String::new(),
            stderr: String::new(),
            result: None,
            exit_code: None,
            exception: None,
            truncated: Truncated::default(),
            hint: None,
            answer: None,
            saved: None,
        }
    }

    /// The report of a request that was refused; nothing has changed.
    #[must_use]
    pub fn refused(fault: String) -> Self {
        Self { hint: Some(fault), ..Self::new(Outcome::Error, State::Kept) }
    }

    /// The response on the wire. `answer` is the one after the call, `execution_time` is in seconds.
    #[must_use]
    pub fn into_response(
        self,
        seq: i64,
        execution_count: u64,
        answer: Answer,
        execution_time: f64,
    ) -> Response {
        Response {
            status: self.outcome.status(),
            stdout: self.stdout,
            stderr: self.stderr,
            result: self.result,
            execution_count,
            seq,
            answer,
            outcome: self.outcome,
            state: self.state,
            execution_time,
            exit_code: self.exit_code,
            exception: self.exception,
            truncated: (self.truncated != Truncated::default()).then_some(self.truncated),
            hint: self.hint,
            protocol: PROTOCOL_VERSION,
        }
    }
}

/// A session at this moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// `bash` or `python`.
    pub language: &'static str,
    /// Version of the interpreter.
    pub version: String,
    /// True for the interpreter that is packed with the programs.
    pub is_builtin: bool,
    /// Process id of the interpreter. None: it has ended.
    pub pid: Option<Pid>,
    /// Working directory of the interpreter, or the last one known.
    pub cwd: Option<PathBuf>,
    /// True if the session has `FINAL` and `FINAL_VAR`.
    pub has_final_functions: bool,
}

/// A worker program: its command line, and the language that it serves.
pub trait Program: Default {
    /// Name of the program.
    const NAME: &'static str;
    /// Text of `--help`.
    const USAGE: &'static str;

    /// Interpreter of the language.
    type Interpreter: Interpreter;

    /// Takes an option `--NAME VALUE` of this program only. Returns false if the program does not have that option.
    fn option(&mut self, name: &str, value: impl FnOnce() -> Option<OsString>) -> bool {
        let _ = (name, value);
        false
    }

    /// The name of a fork server or a branch for such a session, and variables for the server that it forks.
    fn fork_server(&self, environment: &Environment) -> Option<(String, Vec<(&'static str, OsString)>)> {
        let _ = environment;
        None
    }

    /// The files and directories that the language needs, besides those of the system: its interpreter's.
    ///
    /// # Errors
    /// [`Exit::Failed`] names the setting that cannot be used.
    fn needs(&mut self, environment: &Environment, programs: &Path) -> Result<Vec<PathBuf>, Exit>;

    /// Creates the configuration of a session that begins with this answer, and whose processes run under the limits of
    /// `resource_limits`.
    ///
    /// # Errors
    /// [`Exit::Failed`] names the setting that cannot be used.
    fn configure(
        self,
        environment: &Environment,
        settings: Settings,
        context: Context,
        answer: Answer,
        resource_limits: ResourceLimits,
    ) -> Result<<Self::Interpreter as Interpreter>::Config, Exit>;
}
