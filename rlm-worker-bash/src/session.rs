//! The bash session: one shell after another on one terminal.

mod saving;

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags};
use nix::sys::signal::Signal;
use nix::sys::termios::Termios;
use rlm_core::json::JsonText;
use rlm_core::protocol::{Answer, Execute, ONE_CALL_PREFIX, Outcome, State};
use rlm_core::worker::output::into_string;
use rlm_core::worker::supervisor::{start_until_ready, wait_until_ready};
use rlm_core::worker::{
    CallReport, Death, Description, Events, Exit, HeadTail, Interpreter, LiveOutput, Process, Progress,
    ResourceLimits,
};

use crate::code::{Appendable, Driver, Suffix, appendable, without_returns};
use crate::completion::Word;
use crate::driver::Call;
use crate::exchange::{self, Exchange, ReportProgress, Task};
use crate::ladder::{self, LADDER, Rung};
use crate::report::{Report, Snapshot, UserState};
use crate::restoration::Restoration;
use crate::saved::SavedShell;
use crate::shell::{self, Pipes, Reads, ShellError};
use crate::state::{RawAnswer, SessionState};
use crate::terminal::{EOF_INTERVAL, Terminal};
use crate::variables;

/// The configuration of a bash session.
#[derive(Clone, Debug)]
pub struct BashConfig {
    /// Bash program: a path, or a name on the session's `PATH`.
    pub bash: PathBuf,
    /// Working directory.
    pub workdir: PathBuf,
    /// The answer that the session begins with.
    pub answer: Answer,
    /// Environment of the session, complete.
    pub env: Vec<(OsString, OsString)>,
    /// Limits of the session's processes.
    pub resource_limits: ResourceLimits,
    /// Most bytes of output returned for a call.
    pub max_output_bytes: usize,
    /// FIFOs for output as it comes.
    pub live: LiveOutput,
    /// True if a shell that is killed goes on with its state from before the call.
    pub takes_checkpoints: bool,
    /// Height of the terminal, in rows.
    pub rows: u16,
    /// Width of the terminal, in columns.
    pub columns: u16,
}

/// A persistent bash session.
#[derive(Debug)]
pub struct BashSession {
    config: BashConfig,
    terminal: Terminal,
    /// The terminal's settings before the current request.
    settings: Option<Termios>,
    pipes: Pipes,
    shell: Process,
    /// `BASH_VERSION` of the shell.
    version: String,
    state: SessionState,
    /// Output since the end of the last call, which belongs to the next one.
    output: HeadTail,
    exchange: Exchange,
    /// The state that the shell takes over.
    loading: SavedShell,
    /// True if the shell was restored with a state from before the call that ended the old one.
    has_early_state: bool,
}

impl Interpreter for BashSession {
    type Config = BashConfig;
    type Rung = Rung;

    const NOUN: &'static str = "shell";
    const LADDER: &'static [(Rung, Duration)] = &LADDER;
    const UPKEEP_INTERVAL: Duration = EOF_INTERVAL;
    /// Background jobs keep running.
    const ENDS_PROGRAMS: bool = false;
    const HAS_RESULTS: bool = false;

    fn start(config: BashConfig, events: &Events) -> Result<Self, Exit> {
        let terminal = Terminal::new(config.rows, config.columns).map_err(Exit::failed)?;
        let mut pipes = Pipes::new(&terminal).map_err(ShellError::Pipes).map_err(Exit::failed)?;
        pipes.scripts.takes_checkpoints = config.takes_checkpoints;
        let shell = shell::start(
            &config.bash,
            &config.env,
            &config.resource_limits,
            &terminal,
            &mut pipes,
            &config.workdir,
        );
        let exchange = Exchange::new(pipes.scripts.marks());
        let mut session = Self {
            settings: None,
            terminal,
            pipes,
            shell: shell.map_err(Exit::failed)?,
            version: String::new(),
            state: SessionState::new(config.workdir.clone(), &config.answer),
            output: HeadTail::new(config.max_output_bytes),
            exchange,
            loading: SavedShell::default(),
            has_early_state: false,
            config,
        };
        session.set_up(None, events)?;
        session.output = HeadTail::new(session.config.max_output_bytes);
        Ok(session)
    }

    fn restart(&mut self, events: &Events) -> Result<State, Exit> {
        self.terminal.restore(None);
        self.exchange.receive(&self.pipes)?;
        if let Some(snapshot) = self.exchange.snapshot() {
            let Snapshot { is_early, ready, content, cwd, .. } = snapshot.clone();
            self.has_early_state = is_early;
            self.state.answer = RawAnswer { ready, content };
            self.state.cwd = path(&cwd);
            match start_until_ready(|| self.start_shell(Some(&snapshot), events)) {
                Ok(()) => return Ok(State::Restored),
                // A shell cannot be started with that state.
                Err(exit @ Exit::Failed(_)) if !exit.is_for_want_of_a_process() => self.shell.kill(events)?,
                Err(exit) => return Err(exit),
            }
        }
        start_until_ready(|| self.start_shell(None, events)).map(|()| State::Reset)
    }

    fn start_anew(&mut self, events: &Events) -> Result<(), Exit> {
        self.config.answer = Answer::default();
        self.state = SessionState::new(self.config.workdir.clone(), &self.config.answer);
        // A state that the shell handed on just now must not reach the next one.
        self.exchange.receive(&self.pipes)?;
        self.exchange = Exchange::new(self.pipes.scripts.marks());
        *self = Self::start(self.config.clone(), events)?;
        Ok(())
    }

    fn start_beside(&self, cwd: &Path, events: &Events) -> Result<Self, Exit> {
        let mut session = Self::start(BashConfig { workdir: cwd.to_owned(), ..self.config.clone() }, events)?;
        session.config.workdir.clone_from(&self.config.workdir);
        Ok(session)
    }

    fn process(&self) -> &Process {
        &self.shell
    }

    fn describe(&self) -> Description {
        Description {
            language: "bash",
            version: self.version.clone(),
            pid: None,
            cwd: Some(self.state.cwd.clone()),
            is_builtin: false,
            has_final_functions: false,
        }
    }

    fn answer(&self) -> Answer {
        self.state.answer.answer()
    }

    fn poll_fds<'fds>(&'fds self, fds: &mut Vec<PollFd<'fds>>) {
        fds.push(PollFd::new(self.terminal.master(), PollFlags::POLLIN));
        fds.push(PollFd::new(self.pipes.report(), PollFlags::POLLIN));
    }

    fn absorb(&mut self, ready: &[bool]) -> Result<(), Exit> {
        if ready[0] {
            self.terminal.read_available(&mut self.output)?;
        }
        if ready[1] {
            self.exchange.receive(&self.pipes)?;
        }
        Ok(())
    }

    fn send_code(&mut self, call: &Execute, _number: u64) -> Result<Option<String>, Exit> {
        self.output.watch(self.config.live.stdout());
        self.output.set_limit(call.max_output_bytes.unwrap_or(self.config.max_output_bytes));
        let code = &*without_returns(&call.code);
        let suffix = match appendable(code) {
            Appendable::Yes => Suffix::PipeStatus,
            Appendable::AskBash if shell::is_complete(code, &self.config.bash) => Suffix::PipeStatus,
            Appendable::AskBash | Appendable::NotNeeded => Suffix::None,
        };
        self.state.driver = self.state.driver.after(code);
        let is_shadowed = self.state.user.builtin_function.is_some() || code.contains("builtin");
        let driver = if is_shadowed { Driver::Shadowed } else { self.state.driver };
        let unset = self.state.transient.begin_call();
        let nonce = self.exchange.begin(Task::Code);
        let call = self.pipes.scripts.call(code, suffix, &self.state.user, &unset, driver, nonce);
        self.send(&call)
    }

    fn send_variables(&mut self, variables: &BTreeMap<String, JsonText>) -> Result<Option<String>, Exit> {
        let variables = match variables::read(variables) {
            Ok(variables) => variables,
            Err(bad) => return Ok(Some(bad.to_string())),
        };
        for (name, _) in variables.iter().filter(|(name, _)| name.starts_with(ONE_CALL_PREFIX)) {
            self.state.transient.add(name);
        }
        let call = self.pipes.scripts.set(&variables, self.exchange.begin(Task::Set));
        self.send(&call)
    }

    fn send_completion(&mut self, code: &str) -> Result<Option<String>, Exit> {
        let word = Word::at_end(code);
        let nonce = self.exchange.begin(Task::Complete(word.clone()));
        let call = self.pipes.scripts.complete(word.kind.action(), &word.text, nonce);
        self.send(&call)
    }

    fn send_save(&mut self) -> Result<Option<String>, Exit> {
        let call = self.pipes.scripts.save(self.exchange.begin(Task::Save));
        self.send(&call)
    }

    fn send_load(&mut self, bytes: u64) -> Result<Option<String>, Exit> {
        self.take_over(bytes)
    }

    fn state_file(&self) -> &File {
        self.pipes.state_file()
    }

    fn has_unread_request(&self) -> Result<bool, Exit> {
        // Bash reads all lines of a call at once.
        Ok(self.exchange.was_asked_once() && self.pipes.has_unread_commands()?)
    }

    fn advance(&mut self, ready: &[bool], stopped: Option<Outcome>) -> Result<Progress, Exit> {
        if ready[0] {
            self.terminal.read_available(&mut self.output)?;
        }
        let heard = if ready[1] {
            self.exchange.advance(&self.pipes, stopped.is_some())?
        } else {
            self.exchange.wait(Instant::now())
        };
        Ok(match heard {
            ReportProgress::Nothing => Progress::Running,
            ReportProgress::State => Progress::CodeBegins,
            ReportProgress::Part { until } => Progress::Reporting { until },
            ReportProgress::Unconfirmed { until } => {
                self.ask_again()?;
                Progress::Reporting { until }
            }
            ReportProgress::Report(report) => Progress::Done(Box::new(match &self.exchange.task {
                Task::SetUp => self.after_set_up(*report)?,
                Task::Code => self.after_code(*report, stopped),
                Task::Set => self.after_set(&report, stopped),
                Task::Save => self.after_save(&report, stopped),
                Task::Load => self.after_load(*report, stopped)?,
                Task::Complete(word) => self.after_completion(word, &report, stopped),
            })),
        })
    }

    fn upkeep(&mut self, is_stopped: bool) -> Result<Option<Death>, Exit> {
        if self.exchange.is_unconfirmed() {
            return Ok(None);
        }
        // A shell that waits for commands without having reported, or that has begun to, was interrupted in the driver.
        let is_silent = self.exchange.is_silent();
        if is_silent && self.pipes.is_waited_for(self.shell.pid()) {
            if self.exchange.is_unanswerable() {
                let how = "could no longer report, perhaps because its limit of descriptors (`ulimit -n`) is too low";
                return Ok(Some(Death { outcome: Outcome::Exited, exit_code: None, how: how.to_owned() }));
            }
            self.ask_again()?;
        } else if is_silent
            && (is_stopped || self.exchange.is_arriving())
            && self.at_terminal() == Some(Reads::Commands)
        {
            // The shell has read what was typed before.
            if !self.terminal.has_input()? {
                self.ask_again()?;
            }
        } else if !is_stopped || self.at_terminal() == Some(Reads::Input) {
            // A waiting end of file would end a shell that an interrupt throws back and that reads commands from the terminal.
            self.terminal.send_eof()?;
        }
        self.exchange.receive_quiet(&self.pipes)?;
        Ok(None)
    }

    fn climb(&mut self, rung: Rung) -> Result<(), Exit> {
        match rung {
            // Flushes input as Ctrl-C does: an end of file that waits for a reader must not reach a shell that is thrown back.
            Rung::Interrupt => self.terminal.flush_input(),
            Rung::AskAgain => self.ask_again()?,
            _ => {}
        }
        ladder::climb(rung, &self.shell, &self.terminal);
        Ok(())
    }

    fn take_output(&mut self, report: &mut CallReport) -> Result<(), Exit> {
        self.terminal.flush_input();
        let mut later = HeadTail::new(self.config.max_output_bytes);
        self.terminal.drain(&mut self.output, &mut later)?;
        (report.stdout, report.truncated.stdout) = std::mem::replace(&mut self.output, later).into_text();
        if let Some(line) = self.exchange.shown_line.take() {
            exchange::remove_echo(&mut report.stdout, &line);
        }
        Ok(())
    }

    fn announce_reset(report: &mut CallReport) {
        let Some(hint) = &report.hint else { return };
        if !report.stdout.is_empty() && !report.stdout.ends_with('\n') {
            report.stdout.push('\n');
        }
        report.stdout.push_str(hint);
        report.stdout.push('\n');
    }

    fn death(&self, status: i32) -> Death {
        let how = format!("ended with status {status}");
        Death { outcome: Outcome::Exited, exit_code: Some(status), how }
    }

    fn what_survives(&self, state: State) -> &'static str {
        match state {
            State::Kept => "nothing is lost",
            State::Restored if self.has_early_state => {
                "a new shell has its variables, functions, aliases, options, working directory and answer from before \
                 the call, but no traps, jobs or open descriptors"
            }
            State::Restored => {
                "a new shell has its variables, functions, aliases, options, working directory and answer, \
                 but no traps, jobs or open descriptors"
            }
            State::Reset => "a new shell has its working directory and answer, but nothing else",
        }
    }
}

impl BashSession {
    /// Starts a shell in place of a dead one, and makes it ready for calls.
    fn start_shell(&mut self, snapshot: Option<&Snapshot>, events: &Events) -> Result<(), Exit> {
        let dirs = [&self.state.cwd, &self.config.workdir];
        let cwd = dirs.into_iter().find(|dir| dir.is_dir()).cloned().unwrap_or_else(|| PathBuf::from("/"));
        let BashConfig { bash, env, resource_limits, .. } = &self.config;
        let started = shell::start(bash, env, resource_limits, &self.terminal, &mut self.pipes, &cwd);
        self.shell = started.map_err(Exit::failed)?;
        self.set_up(snapshot, events)
    }

    /// Makes a newly started shell ready for calls, with the state that an old one handed on.
    fn set_up(&mut self, snapshot: Option<&Snapshot>, events: &Events) -> Result<(), Exit> {
        let restoration = snapshot.map(|snapshot| Restoration::new(&snapshot.state));
        match &restoration {
            Some(Restoration { text, .. }) => self.pipes.write_state(text).map_err(Exit::failed)?,
            // Positional parameters are reported after each call, but belong to the state that is lost.
            None => self.state.user.positional = None,
        }
        let nonce = self.exchange.begin(Task::SetUp);
        let SessionState { user, answer, .. } = &self.state;
        let values = restoration.as_ref().map(|restoration| &*restoration.values);
        let call = self.pipes.scripts.set_up(user.positional.as_deref(), values, answer, nonce);
        self.pipes
            .write_file(&call)
            .and_then(|()| self.pipes.send_lines(&call.lines))
            .map_err(Exit::failed)?;
        wait_until_ready(self, &self.config.bash.clone(), events)?;
        if let Some(snapshot) = snapshot {
            self.state.user.options =
                snapshot.options.iter().copied().filter(|flag| b"xv".contains(flag)).collect();
            self.state.driver = Driver::Standard;
        }
        Ok(())
    }

    /// Sends a call. Returns the reason if its file cannot be written.
    fn send(&mut self, call: &Call) -> Result<Option<String>, Exit> {
        if let Err(error) = self.pipes.write_file(call) {
            return Ok(Some(format!("the request cannot be passed to the shell: {error}")));
        }
        self.settings = self.terminal.begin_call();
        self.pipes.send_lines(&call.lines).map_err(Exit::failed)?;
        Ok(None)
    }

    /// Asks for the report again: an interrupt may have hit the second line of the driver. A shell that was thrown back
    /// before it switched back to our pipe for its commands reads them from the terminal, so the line is typed there.
    fn ask_again(&mut self) -> Result<(), Exit> {
        let line = self.pipes.scripts.ask_again(self.exchange.ask_again());
        if self.at_terminal() == Some(Reads::Commands) {
            self.terminal.type_text(&line)?;
        }
        self.pipes.send_lines(&line).map_err(Exit::failed)
    }

    /// The reader of the terminal, if it is the shell itself rather than a program.
    fn at_terminal(&self) -> Option<Reads> {
        let shell = self.shell.pid();
        let stdin = std::fs::read_link(format!("/proc/{shell}/fd/0"));
        let is_there = stdin.is_ok_and(|stdin| stdin == self.terminal.name())
            && self.terminal.foreground() == Some(shell);
        is_there.then(|| shell::reads(shell)).flatten()
    }

    fn after_set_up(&mut self, report: Report) -> Result<CallReport, Exit> {
        if report.was_thrown {
            return Err(Exit::failed(ShellError::TooOld { bash: self.config.bash.clone() }));
        }
        self.version = into_string(report.version.unwrap_or_default());
        let positional = self.state.user.positional.take();
        self.state.user = UserState { positional, ..report.user };
        if !self.state.user.is_plain() {
            self.state.driver = Driver::Standard;
        }
        self.state.cwd = path(&report.cwd);
        Ok(CallReport::new(Outcome::Ok, State::Reset))
    }

    fn after_code(&mut self, report: Report, stopped: Option<Outcome>) -> CallReport {
        let Report { mut user, cwd, ready, content, was_thrown, is_early, .. } = report;
        if is_early {
            let UserState { status, pipe_status, stdin, exec_is_function, is_silenced, .. } = user;
            let before = std::mem::take(&mut self.state.user);
            user = UserState { status, pipe_status, stdin, exec_is_function, is_silenced, ..before };
        }
        if was_thrown && user.options.contains(&b'v') {
            self.exchange.shown_line = Some(self.pipes.scripts.end_line(self.exchange.nonce()));
        }
        if stopped.is_some() {
            self.terminal.restore(self.settings.as_ref());
            if was_thrown && user.status == 0 {
                // The code was aborted while a program ran that did not die from the interrupt itself.
                user.status = 128 + Signal::SIGINT as i32;
            }
        }
        if was_thrown && user.positional.is_none() {
            // The driver could not look at the positional parameters, so they are unchanged.
            user.positional = self.state.user.positional.take();
        }
        let exit_code = Some(user.status);
        self.state.user = user;
        self.state.cwd = path(&cwd);
        let answer = RawAnswer { ready, content };
        let is_new = answer != self.state.answer;
        self.state.answer = answer;
        CallReport {
            exit_code,
            answer: is_new.then(|| self.answer()),
            ..CallReport::new(stopped.unwrap_or(Outcome::Ok), State::Kept)
        }
    }

    fn after_completion(&self, word: &Word, report: &Report, stopped: Option<Outcome>) -> CallReport {
        if stopped.is_some() {
            self.terminal.restore(self.settings.as_ref());
        }
        CallReport {
            result: Some(word.completions(&report.completions, &report.directories).to_json()),
            ..CallReport::new(stopped.unwrap_or(Outcome::Ok), State::Kept)
        }
    }

    fn after_set(&self, report: &Report, stopped: Option<Outcome>) -> CallReport {
        if stopped.is_some() {
            self.terminal.restore(self.settings.as_ref());
        }
        match &report.set {
            Some(names) if names.trim_ascii().is_empty() => CallReport::new(Outcome::Ok, State::Kept),
            Some(names) => CallReport::refused(variables::readonly(&String::from_utf8_lossy(names))),
            None => CallReport {
                hint: Some("the shell did not finish, and may have some of the variables".to_owned()),
                ..CallReport::new(stopped.unwrap_or(Outcome::Error), State::Kept)
            },
        }
    }
}

fn path(bytes: &[u8]) -> PathBuf {
    Path::new(OsStr::from_bytes(bytes)).to_owned()
}
