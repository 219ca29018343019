//! The session: one shell after another on one terminal, and the calls that run in them.

mod call;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags};
use nix::sys::signal::Signal;
use rlm_core::json::JsonText;
use rlm_core::limits::START_LIMIT;
use rlm_core::protocol::{Answer, Execute, ONE_CALL_PREFIX, Outcome, State, Truncated};
use rlm_core::worker::output::into_string;
use rlm_core::worker::{
    CallReport, Description, Events, Exit, HeadTail, Interpreter, Process, descendants, serve,
};

use self::call::End;
use crate::code::Driver;
use crate::driver::quote_bytes;
use crate::report::{self, Report, Snapshot, UserState};
use crate::shell::{self, Pipes, ShellConfig, ShellError};
use crate::terminal::Terminal;
use crate::variables;

/// How much of what a shell printed before it failed to start is told.
const WORDS_BYTES: usize = 2048;

/// What a session is made of.
#[derive(Clone, Debug)]
pub struct SessionConfig {
    /// The bash to run, a path or a name on the session's `PATH`.
    pub bash: PathBuf,
    /// The working directory.
    pub fs_root: PathBuf,
    /// The session's environment, complete.
    pub env: Vec<(std::ffi::OsString, std::ffi::OsString)>,
    /// Time limit of a call that brings none.
    pub exec_timeout: Option<Duration>,
    /// Bound on a call's output, in bytes.
    pub max_output_bytes: usize,
    /// Height of the terminal.
    pub rows: u16,
    /// Width of the terminal.
    pub columns: u16,
}

/// Names of variables that last for one call.
#[derive(Debug, Default)]
struct OfOneCall {
    /// Those whose call has begun: the next one is without them.
    used: BTreeSet<String>,
    /// Those that are there for the next call.
    unused: BTreeSet<String>,
}

impl OfOneCall {
    fn add(&mut self, name: &str) {
        self.used.remove(name);
        self.unused.insert(name.to_owned());
    }
}

/// A persistent bash session.
#[derive(Debug)]
pub struct BashSession {
    config: SessionConfig,
    shell_config: ShellConfig,
    terminal: Terminal,
    pipes: Pipes,
    shell: Process,
    /// What the shell says that it is.
    version: String,
    user: UserState,
    driver: Driver,
    cwd: PathBuf,
    of_one_call: OfOneCall,
    ready: Vec<u8>,
    content: Vec<u8>,
    /// Output that came since the last call ended: it belongs to the next.
    output: HeadTail,
    /// What a shell said that ended since the last call.
    idle_report: Vec<u8>,
    nonce: u64,
    /// Set when the shell is gone: no call can run until a new one is there.
    is_dead: bool,
    /// Set when the session was to begin anew and no shell could be started.
    reset_failed: bool,
}

impl BashSession {
    /// Starts the first shell and waits until it can take a call.
    ///
    /// # Errors
    /// [`Exit::Failed`] says why there is no shell.
    pub fn start(config: SessionConfig, events: &Events) -> Result<Self, Exit> {
        let terminal = Terminal::new(config.rows, config.columns).map_err(Exit::failed)?;
        let mut pipes = Pipes::new(&terminal).map_err(ShellError::Pipes).map_err(Exit::failed)?;
        let shell_config = ShellConfig { bash: config.bash.clone(), env: config.env.clone() };
        let shell =
            shell::start(&shell_config, &terminal, &mut pipes, &config.fs_root).map_err(Exit::failed)?;
        let mut session = Self {
            shell_config,
            terminal,
            pipes,
            shell,
            version: String::new(),
            user: UserState::default(),
            driver: Driver::Fast,
            cwd: config.fs_root.clone(),
            of_one_call: OfOneCall::default(),
            ready: Vec::new(),
            content: Vec::new(),
            output: HeadTail::new(WORDS_BYTES),
            idle_report: Vec::new(),
            nonce: 0,
            is_dead: false,
            reset_failed: false,
            config,
        };
        session.set_up(None, events)?;
        session.output = HeadTail::new(session.config.max_output_bytes);
        Ok(session)
    }

    /// Makes a shell that has just been started ready for calls, with the state that an old one left.
    fn set_up(&mut self, will: Option<&Snapshot>, events: &Events) -> Result<(), Exit> {
        let mut setup = b"\\builtin unset -v PS1 PS2 HISTFILE\n\\builtin set +o history +o histexpand\n\\builtin history -c\n".to_vec();
        if let Some(positional) = &self.user.positional {
            setup.extend_from_slice(b"\\builtin set --");
            for value in positional {
                setup.push(b' ');
                setup.extend_from_slice(&quote_bytes(value));
            }
            setup.push(b'\n');
        }
        if let Some(will) = will {
            self.pipes.write_state(&will.state).map_err(Exit::failed)?;
            let source =
                format!("{{ \\builtin . {}; \\builtin unset -v BASH_XTRACEFD; ", self.pipes.paths.state);
            setup.extend_from_slice(source.as_bytes());
            setup.extend_from_slice(b"\\builtin set +o history +o histexpand; } >/dev/null 2>&1\n");
        } else {
            for (name, value) in [("RLM_READY", &self.ready), ("RLM_CONTENT", &self.content)] {
                if !value.is_empty() {
                    setup.extend_from_slice(&[name.as_bytes(), b"=", &quote_bytes(value), b"\n"].concat());
                }
            }
        }
        self.nonce += 1;
        let call = self.pipes.scripts.setup(&setup, self.nonce);
        self.pipes.send(&call).map_err(Exit::failed)?;
        let (mut bytes, mut quiet) = (Vec::new(), Vec::new());
        let deadline = Instant::now() + START_LIMIT;
        let report = loop {
            // An interrupt means the call, and there is none yet.
            events.wait(self.descriptors(), Some(deadline))?;
            self.terminal.read_available(&mut self.output)?;
            self.pipes.read_report(&mut bytes)?;
            if report::complete_nonce(&bytes) == Some(self.nonce)
                && let Some(report) = self.take_report(&bytes, &mut quiet, self.nonce)?
            {
                break report;
            }
            if let Some(status) = self.shell.status() {
                let words = self.last_words();
                let bash = self.config.bash.clone();
                return Err(Exit::failed(ShellError::EndedEarly { bash, status, words }));
            }
            if Instant::now() >= deadline {
                let (bash, words) = (self.config.bash.clone(), self.last_words());
                return Err(Exit::failed(ShellError::Mute { bash, limit: START_LIMIT, words }));
            }
        };
        if report.was_thrown {
            return Err(Exit::failed(ShellError::TooOld { bash: self.config.bash.clone() }));
        }
        self.version = into_string(report.version.unwrap_or_default());
        self.user = UserState { positional: self.user.positional.take(), ..report.user };
        if !self.user.is_plain() {
            self.driver = Driver::Standard;
        }
        self.cwd = path(&report.cwd);
        self.is_dead = false;
        if let Some(will) = will {
            self.user.options = will.options.iter().copied().filter(|flag| b"xv".contains(flag)).collect();
            self.driver = Driver::Standard;
        }
        Ok(())
    }

    /// What is waited for while the shell is at work: its output, its report, its death.
    fn descriptors(&self) -> Vec<PollFd<'_>> {
        [self.terminal.master(), self.pipes.report(), self.shell.pidfd()]
            .map(|fd| PollFd::new(fd, PollFlags::POLLIN))
            .into()
    }

    fn last_words(&mut self) -> String {
        let words = std::mem::replace(&mut self.output, HeadTail::new(WORDS_BYTES));
        words.into_text().0.trim().to_owned()
    }

    /// Starts a new shell in place of a dead one, as much like it as can be.
    fn restart(&mut self, will: Option<Snapshot>, events: &Events) -> Result<State, Exit> {
        self.is_dead = true;
        if let Some(will) = &will {
            self.ready = will.ready.clone();
            self.content = will.content.clone();
            self.cwd = path(&will.cwd);
        }
        self.terminal.restore(None);
        if will.is_some() {
            match self.start_shell(will.as_ref(), events) {
                Ok(()) => return Ok(State::Restored),
                // A state that no shell comes up with is left behind.
                Err(Exit::Failed(_)) => {}
                Err(stop) => return Err(stop),
            }
        }
        self.shell.signal(Signal::SIGKILL);
        self.wait_until_dead(events)?;
        self.start_shell(None, events)?;
        Ok(State::Reset)
    }

    /// Starts a shell, and makes it ready for calls.
    fn start_shell(&mut self, will: Option<&Snapshot>, events: &Events) -> Result<(), Exit> {
        let places = [&self.cwd, &self.config.fs_root];
        let cwd = places.into_iter().find(|dir| dir.is_dir()).cloned().unwrap_or_else(|| PathBuf::from("/"));
        let started = shell::start(&self.shell_config, &self.terminal, &mut self.pipes, &cwd);
        self.shell = started.map_err(Exit::failed)?;
        self.set_up(will, events)
    }

    fn wait_until_dead(&mut self, events: &Events) -> Result<(), Exit> {
        while self.shell.status().is_none() {
            events.wait(vec![PollFd::new(self.shell.pidfd(), PollFlags::POLLIN)], None)?;
        }
        Ok(())
    }

    /// A shell died between calls. What the next call has to say of that: what is left of the state, and a sentence.
    fn replace_idle_shell(&mut self, events: &Events) -> Result<(State, String), Exit> {
        if self.reset_failed {
            self.restart(None, events)?;
            self.reset_failed = false;
            let notice = "the session was reset before, and its new shell could be started only now";
            return Ok((State::Reset, notice.to_owned()));
        }
        let status = self.shell.status().unwrap_or(-1);
        let will = report::parse_snapshot(&self.idle_report);
        let state = self.restart(will, events)?;
        Ok((
            state,
            format!("the shell had ended with status {status} since the last call; {}", legacy(state)),
        ))
    }

    /// The call's report came: the shell goes on.
    fn after_report(&mut self, report: Report, stopped: Option<Outcome>, mut text: String) -> CallReport {
        let Report { mut user, cwd, ready, content, was_thrown, .. } = report;
        if was_thrown && user.options.contains(&b'v') {
            remove_echo(&mut text, &self.pipes.scripts.end_line(self.nonce));
        }
        if stopped.is_some() && was_thrown && user.status == 0 {
            // Thrown out of a program that did not die by the interrupt itself.
            user.status = 128 + Signal::SIGINT as i32;
        }
        if was_thrown && user.positional.is_none() {
            // Nobody could tell: they are as they were.
            user.positional = self.user.positional.take();
        }
        let exit_code = Some(user.status);
        self.user = user;
        self.cwd = path(&cwd);
        let answer = self.take_answer(ready, content);
        CallReport {
            stdout: text,
            exit_code,
            answer,
            ..CallReport::new(stopped.unwrap_or(Outcome::Ok), State::Kept)
        }
    }

    /// The shell died in the call: a new one takes over.
    fn after_death(
        &mut self,
        exit_code: i32,
        will: Option<Snapshot>,
        stopped: Option<Outcome>,
        text: String,
        events: &Events,
    ) -> Result<CallReport, Exit> {
        let state = self.restart(will, events)?;
        Ok(CallReport {
            stdout: text,
            exit_code: Some(exit_code),
            hint: Some(format!("the shell ended with status {exit_code}; {}", legacy(state))),
            answer: Some(self.current_answer()),
            ..CallReport::new(stopped.unwrap_or(Outcome::Exited), state)
        })
    }

    /// All that was printed until now, and how much of it was dropped.
    fn take_output(&mut self) -> Result<(String, Truncated), Exit> {
        let mut later = HeadTail::new(self.config.max_output_bytes);
        self.terminal.drain(&mut self.output, &mut later)?;
        let (text, stdout) = std::mem::replace(&mut self.output, later).into_text();
        Ok((text, Truncated { stdout, ..Truncated::default() }))
    }

    /// The answer, where it is another one than before.
    fn take_answer(&mut self, ready: Vec<u8>, content: Vec<u8>) -> Option<Answer> {
        if ready == self.ready && content == self.content {
            return None;
        }
        (self.ready, self.content) = (ready, content);
        Some(self.current_answer())
    }

    fn current_answer(&self) -> Answer {
        Answer { ready: report::is_truthy(&self.ready), content: into_string(self.content.clone()) }
    }
}

impl Interpreter for BashSession {
    fn execute(&mut self, call: &Execute, events: &Events) -> Result<CallReport, Exit> {
        self.tend()?;
        let earlier_death = if self.is_dead { Some(self.replace_idle_shell(events)?) } else { None };
        self.idle_report.clear();
        self.output.set_limit(call.max_output_bytes.unwrap_or(self.config.max_output_bytes));
        let settings = self.terminal.settings();

        let (end, stopped) = self.run_code(call, events)?;

        self.terminal.flush_input();
        let (text, truncated) = self.take_output()?;
        if stopped.is_some() {
            self.terminal.restore(settings.as_ref());
        }
        let mut report = match end {
            End::Reported(report) => self.after_report(*report, stopped, text),
            End::Died { status, will } => self.after_death(status, will, stopped, text, events)?,
        };
        report.truncated = truncated;
        if report.outcome == Outcome::TimedOut && report.state == State::Kept {
            report.hint = Some(serve::timed_out_hint(call.timeout.or(self.config.exec_timeout)));
        }
        if let Some((state, notice)) = earlier_death
            && report.state == State::Kept
        {
            (report.state, report.hint) = (state, Some(notice));
        }
        Ok(report)
    }

    fn reset(&mut self, events: &Events) -> Result<CallReport, Exit> {
        // No trap of its own may run, and nothing is to be user.
        self.shell.signal(Signal::SIGKILL);
        self.wait_until_dead(events)?;
        self.is_dead = true;
        let have_ended = descendants::end_all();
        self.terminal.restore(None);
        self.idle_report.clear();
        let (stdout, truncated) = self.take_output()?;
        let mut report = CallReport {
            stdout,
            truncated,
            answer: Some(Answer::default()),
            hint: (!have_ended).then(|| serve::SURVIVORS.to_owned()),
            ..CallReport::new(Outcome::Ok, State::Reset)
        };
        match Self::start(self.config.clone(), events) {
            Ok(fresh) => *self = fresh,
            Err(Exit::Failed(error)) => {
                descendants::end_all();
                (self.user, self.driver) = (UserState::default(), Driver::Fast);
                (self.ready, self.content) = (Vec::new(), Vec::new());
                self.cwd = self.config.fs_root.clone();
                self.reset_failed = true;
                report.outcome = Outcome::Error;
                report.hint = Some(serve::no_interpreter("shell", &*error));
            }
            Err(stop) => return Err(stop),
        }
        Ok(report)
    }

    fn set(&mut self, variables: &BTreeMap<String, JsonText>, events: &Events) -> Result<CallReport, Exit> {
        self.tend()?;
        let variables = match variables::read(variables) {
            Ok(variables) => variables,
            Err(bad) => return Ok(CallReport::refused(bad.to_string())),
        };
        let earlier_death = if self.is_dead { Some(self.replace_idle_shell(events)?) } else { None };
        self.idle_report.clear();
        let settings = self.terminal.settings();
        for (name, _) in variables.iter().filter(|(name, _)| name.starts_with(ONE_CALL_PREFIX)) {
            self.of_one_call.add(name);
        }
        let (end, stopped) = self.run_set(&variables, events)?;
        self.terminal.flush_input();
        let mut report = match (end, stopped) {
            // What was printed meanwhile stays for the next call: a job printed it.
            (End::Reported(report), None) => after_set(report.set.as_deref(), None),
            (End::Reported(report), Some(_)) => {
                self.terminal.restore(settings.as_ref());
                let (stdout, truncated) = self.take_output()?;
                CallReport { stdout, truncated, ..after_set(report.set.as_deref(), stopped) }
            }
            (End::Died { status, will }, _) => {
                let (stdout, truncated) = self.take_output()?;
                let report = self.after_death(status, will, stopped, stdout, events)?;
                let hint = report.hint.map(|hint| format!("{hint}; variables may be missing"));
                CallReport { hint, truncated, ..report }
            }
        };
        if let Some((state, notice)) = earlier_death
            && report.state == State::Kept
        {
            report.state = state;
            report.hint = Some(report.hint.map_or(notice.clone(), |hint| format!("{hint}; {notice}")));
            report.answer = Some(self.current_answer());
        }
        Ok(report)
    }

    fn describe(&mut self) -> Result<Description, Exit> {
        self.tend()?;
        let pid = (!self.is_dead).then(|| self.shell.pid());
        Ok(Description::new("bash", &self.version, pid, Some(self.cwd.clone())))
    }

    fn watch<'fds>(&'fds self, fds: &mut Vec<PollFd<'fds>>) {
        fds.push(PollFd::new(self.terminal.master(), PollFlags::POLLIN));
        fds.push(PollFd::new(self.pipes.report(), PollFlags::POLLIN));
        if !self.is_dead {
            fds.push(PollFd::new(self.shell.pidfd(), PollFlags::POLLIN));
        }
    }

    fn tend(&mut self) -> Result<(), Exit> {
        self.terminal.read_available(&mut self.output)?;
        self.pipes.read_report(&mut self.idle_report)?;
        self.is_dead = self.is_dead || self.shell.status().is_some();
        descendants::reap_orphans((!self.is_dead).then(|| self.shell.pid()));
        Ok(())
    }
}

/// What became of variables, as the shell tells it: which are readonly, white space where it took all, or nothing where it
/// was stopped before it came to the end.
fn after_set(told: Option<&[u8]>, stopped: Option<Outcome>) -> CallReport {
    match told {
        Some(names) if names.trim_ascii().is_empty() => CallReport::new(Outcome::Ok, State::Kept),
        Some(names) => CallReport::refused(variables::readonly(&String::from_utf8_lossy(names))),
        None => CallReport {
            hint: Some(
                "the shell did not come to the end of it, and may have some of the variables".to_owned(),
            ),
            ..CallReport::new(stopped.unwrap_or(Outcome::Error), State::Kept)
        },
    }
}

/// What a new shell has of the old one, as a sentence for the caller.
fn legacy(state: State) -> &'static str {
    match state {
        State::Kept => "nothing is lost",
        State::Restored => {
            "a new shell has its variables, functions, aliases, options, working directory and answer, \
             but no traps, jobs or open descriptors"
        }
        State::Reset => "a new shell has its working directory and answer, and nothing else",
    }
}

/// Takes off what `set -v` shows of the driver when the code was thrown out of.
fn remove_echo(text: &mut String, line: &str) {
    if let Some(at) = text.rfind(line) {
        let start = if text[..at].ends_with('\n') { at - 1 } else { at };
        text.replace_range(start..at + line.len(), "");
    }
}

fn path(bytes: &[u8]) -> PathBuf {
    Path::new(OsStr::from_bytes(bytes)).to_owned()
}
