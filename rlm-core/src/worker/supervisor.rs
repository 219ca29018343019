//! The supervisor of an interpreter, the same for every language.
//!
//! It waits for a request to end, stops it at its time limit or when the host interrupts it, replaces an interpreter
//! that died during or between calls, and informs the caller. An [`Interpreter`] provides the language-specific part.

mod saved;
mod waiting;

use std::collections::BTreeMap;
use std::fs::File;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags};

use self::waiting::wait;
pub use self::waiting::{start_until_ready, wait_until_ready, wait_until_ready_within};
use super::descendants;
use super::events::Events;
use super::exit::Exit;
use super::interpreter::{CallReport, Death, Description, Interpreter, Progress};
use super::resources::ResourceLimits;
use super::schedule::Schedule;
use crate::control::ControlDir;
use crate::error::with_causes;
use crate::json::JsonText;
use crate::limits::{COMPLETE_LIMIT, SET_LIMIT};
use crate::protocol::{Answer, Execute, Outcome, State};
use crate::sys::monotonic;

/// A session: one interpreter after another, and the requests that run in them.
#[derive(Debug)]
pub struct Supervisor<I> {
    interpreter: I,
    resource_limits: ResourceLimits,
    /// Time limit of a call without one of its own.
    exec_timeout: Option<Duration>,
    /// The directory in which the host says how long the clock of a call has stood still.
    control: ControlDir,
    /// True after a reset that could not start a new interpreter.
    reset_failed: bool,
}

impl<I: Interpreter> Supervisor<I> {
    /// Starts the session, whose processes run under the limits of `resource_limits`. `exec_timeout` limits calls without a
    /// time limit of their own.
    ///
    /// # Errors
    /// [`Exit::Failed`] if no interpreter can be started.
    pub fn start(
        config: I::Config,
        resource_limits: ResourceLimits,
        exec_timeout: Option<Duration>,
        control: &ControlDir,
        events: &Events,
    ) -> Result<Self, Exit> {
        let interpreter = I::start(config, events)?;
        let control = control.clone();
        Ok(Self { interpreter, resource_limits, exec_timeout, control, reset_failed: false })
    }

    /// Runs the code of the session's `number`-th call. `meanwhile` is called while it runs, when this worker has nothing to do.
    ///
    /// # Errors
    /// [`Exit`] as soon as the worker has to end; the call is then abandoned.
    pub fn execute(
        &mut self,
        call: &Execute,
        number: u64,
        meanwhile: &mut dyn FnMut(),
        events: &Events,
    ) -> Result<CallReport, Exit> {
        let limit = call.timeout.or(self.exec_timeout);
        self.perform(&Request::Code { call, number }, limit, meanwhile, events)
    }

    /// Sets variables in the session: all, or none and a report with the outcome `error`. Values are never run as code,
    /// and the rest of the session stays as it is. `meanwhile` as in [`Self::execute`].
    ///
    /// # Errors
    /// [`Exit`] as soon as the worker has to end.
    pub fn set(
        &mut self,
        variables: &BTreeMap<String, JsonText>,
        meanwhile: &mut dyn FnMut(),
        events: &Events,
    ) -> Result<CallReport, Exit> {
        let limit = self.exec_timeout.map_or(SET_LIMIT, |limit| limit.min(SET_LIMIT));
        self.perform(&Request::Variables(variables), Some(limit), meanwhile, events)
    }

    /// Finds what can complete the code, and changes nothing. A dead interpreter knows nothing, and is not replaced: the
    /// next call reports its end. `meanwhile` as in [`Self::execute`].
    ///
    /// # Errors
    /// [`Exit`] as soon as the worker has to end.
    pub fn complete(
        &mut self,
        code: &str,
        meanwhile: &mut dyn FnMut(),
        events: &Events,
    ) -> Result<CallReport, Exit> {
        if self.interpreter.process().status().is_some() {
            return Ok(CallReport::refused("the interpreter has ended".to_owned()));
        }
        self.perform(&Request::Completion(code), Some(COMPLETE_LIMIT), meanwhile, events)
    }

    /// Ends everything that the session started, and starts over with a fresh interpreter in the session's directory.
    /// The report has the output that has not been taken yet, and an empty answer. If no interpreter can be started,
    /// the outcome is `error`, and the next request tries again.
    ///
    /// # Errors
    /// [`Exit`] as soon as the worker has to end.
    pub fn reset(&mut self, events: &Events) -> Result<CallReport, Exit> {
        // The old interpreter saves nothing, and runs no exit hook.
        self.interpreter.process().kill(events)?;
        let has_survivors = !descendants::end_all();
        let mut report = CallReport {
            answer: Some(Answer::default()),
            hint: has_survivors.then(|| "some processes of the old session could not be ended".to_owned()),
            ..CallReport::new(Outcome::Ok, State::Reset)
        };
        self.interpreter.take_output(&mut report)?;
        self.reset_failed = match self.interpreter.start_anew(events) {
            Ok(()) => false,
            Err(Exit::Failed(error)) => {
                descendants::end_all();
                report.outcome = Outcome::Error;
                report.hint = Some(format!(
                    "the session was ended, and no new {} could be started: {}; the next call tries again",
                    I::NOUN,
                    with_causes(&*error)
                ));
                true
            }
            Err(exit) => return Err(exit),
        };
        Ok(report)
    }

    /// The answer that the interpreter last reported or was started with.
    #[must_use]
    pub fn answer(&self) -> Answer {
        self.interpreter.answer()
    }

    /// The limits of the session's processes.
    #[must_use]
    pub fn resource_limits(&self) -> &ResourceLimits {
        &self.resource_limits
    }

    /// Describes the session without asking the interpreter.
    #[must_use]
    pub fn describe(&self) -> Description {
        let mut description = self.interpreter.describe();
        let process = self.interpreter.process();
        if process.status().is_none() {
            description.pid = Some(process.pid());
            let cwd = std::fs::read_link(format!("/proc/{}/cwd", process.pid())).ok();
            description.cwd = cwd.or(description.cwd);
        }
        description
    }

    /// Adds the descriptors that [`Self::maintain`] handles between requests.
    pub fn poll_fds<'fds>(&'fds self, fds: &mut Vec<PollFd<'fds>>) {
        self.interpreter.poll_fds(fds);
        let process = self.interpreter.process();
        if !process.has_ended() {
            fds.push(PollFd::new(process.pidfd(), PollFlags::POLLIN));
        }
    }

    /// Handles data that has arrived between requests. `ready` has a value for each descriptor of [`Self::poll_fds`].
    ///
    /// # Errors
    /// [`Exit`] if the session can no longer be served.
    pub fn maintain(&mut self, ready: &[bool]) -> Result<(), Exit> {
        self.interpreter.absorb(ready)?;
        let process = self.interpreter.process();
        descendants::reap_orphans(process.status().is_none().then(|| process.pid()));
        Ok(())
    }

    /// Has the interpreter serve a request, and replaces the interpreter first if it is dead.
    fn perform(
        &mut self,
        request: &Request<'_>,
        limit: Option<Duration>,
        meanwhile: &mut dyn FnMut(),
        events: &Events,
    ) -> Result<CallReport, Exit> {
        let mut replacement = None;
        if self.interpreter.process().status().is_some() {
            replacement = Some(self.replace_idle(events)?);
        }
        let mut report = loop {
            match self.run(request, limit, meanwhile, events)? {
                (End::Refused(fault), _) => break CallReport::refused(fault),
                (End::Reported(report), stopped) => {
                    break self.after_report(*report, request, limit, stopped)?;
                }
                // The interpreter died before it read the request, so nothing was done.
                (End::Died(_), None) if replacement.is_none() && self.interpreter.has_unread_request()? => {
                    replacement = Some(self.replace_idle(events)?);
                }
                (End::Died(death), stopped) => break self.after_death(death, request, stopped, events)?,
            }
        };
        if let Some(Replacement { state, notice }) = replacement {
            // The request itself may have ended the new one, too.
            report.state = report.state.max(state);
            report.hint = Some(match report.hint {
                None => notice,
                Some(hint) => format!("{notice}; {hint}"),
            });
            report.answer = Some(self.interpreter.answer());
        }
        if matches!(request, Request::Code { .. }) && report.state == State::Reset {
            I::announce_reset(&mut report);
        }
        Ok(report)
    }

    /// Sends a request and waits until it is reported or the interpreter is dead. The second value is the reason if it
    /// was stopped.
    fn run(
        &mut self,
        request: &Request<'_>,
        limit: Option<Duration>,
        meanwhile: &mut dyn FnMut(),
        events: &Events,
    ) -> Result<(End, Option<Outcome>), Exit> {
        let refusal = match request {
            Request::Code { call, number } => self.interpreter.send_code(call, *number)?,
            Request::Variables(variables) => self.interpreter.send_variables(variables)?,
            Request::Completion(code) => self.interpreter.send_completion(code)?,
            Request::Save => self.interpreter.send_save()?,
            Request::Load(bytes) => self.interpreter.send_load(*bytes)?,
            Request::Branch { name, saved } => self.interpreter.send_branch(name, saved)?,
        };
        if let Some(fault) = refusal {
            return Ok((End::Refused(fault), None));
        }
        let mut schedule = Schedule::new(I::LADDER, limit, I::UPKEEP_INTERVAL, Instant::now());
        // The interpreter is at work now, and this worker would only wait.
        meanwhile();
        let end = loop {
            let arrival = wait(&self.interpreter, Some(schedule.wake_at()), events)?;
            match self.interpreter.advance(&arrival.ready, schedule.cause())? {
                Progress::Done(report) => break End::Reported(report),
                progress => schedule.note(&progress, Instant::now()),
            }
            if let Some(status) = arrival.status {
                break End::Died(self.death(status, schedule.is_at_end()));
            }
            if arrival.interrupt && request.is_interruptible() {
                schedule.interrupt();
            }
            if matches!(request, Request::Code { .. })
                && schedule.is_time_up(Instant::now())
                && let Some(clock) = self.control.read_clock()
            {
                schedule.stood_still(clock.until(monotonic()), Instant::now());
            }
            if let Some(rung) = schedule.due_rung(Instant::now()) {
                self.interpreter.climb(rung)?;
            }
            if schedule.is_upkeep_due(Instant::now())
                && let Some(death) = self.upkeep(schedule.cause().is_some())?
            {
                break End::Died(death);
            }
        };
        Ok((end, schedule.cause()))
    }

    /// Does periodic work during a call. Returns the interpreter's death if only this check can detect it.
    fn upkeep(&mut self, is_stopped: bool) -> Result<Option<Death>, Exit> {
        let process = self.interpreter.process();
        // Only we can resume a process that stopped itself.
        process.resume();
        descendants::reap_orphans(Some(process.pid()));
        self.interpreter.upkeep(is_stopped)
    }

    fn death(&self, status: i32, was_killed: bool) -> Death {
        let death = self.interpreter.death(status);
        if was_killed {
            return Death { how: "was killed because the call did not stop".to_owned(), ..death };
        }
        death
    }

    /// Completes a report; the interpreter keeps running.
    fn after_report(
        &mut self,
        mut report: CallReport,
        request: &Request<'_>,
        limit: Option<Duration>,
        stopped: Option<Outcome>,
    ) -> Result<CallReport, Exit> {
        // Otherwise the output stays for the next call: a background job has printed it.
        let takes_output = match request {
            Request::Code { .. } => true,
            Request::Variables(_) | Request::Save | Request::Branch { .. } => stopped.is_some(),
            Request::Completion(_) | Request::Load(_) => false,
        };
        if takes_output {
            self.interpreter.take_output(&mut report)?;
        }
        if report.outcome == Outcome::TimedOut {
            let seconds = limit.unwrap_or_default().as_secs_f64();
            report.hint = Some(match report.hint {
                None => format!(
                    "the call was stopped after its time limit of {seconds} s; the session's state is kept"
                ),
                Some(hint) => format!("the time limit of {seconds} s was reached; {hint}"),
            });
        }
        Ok(report)
    }

    /// Replaces an interpreter that died while it served a request.
    fn after_death(
        &mut self,
        death: Death,
        request: &Request<'_>,
        stopped: Option<Outcome>,
        events: &Events,
    ) -> Result<CallReport, Exit> {
        let Death { outcome, exit_code, how } = death;
        let mut report =
            CallReport { exit_code, ..CallReport::new(stopped.unwrap_or(outcome), State::Reset) };
        self.end_interpreter(events)?;
        self.interpreter.take_output(&mut report)?;
        let (state, lost) = self.restart(events)?;
        report.state = state;
        report.answer = Some(self.interpreter.answer());
        let mut hint = format!("the {} {how}; {}{lost}", I::NOUN, self.interpreter.what_survives(state));
        hint.push_str(match (request, report.state) {
            (Request::Variables(_), State::Reset) => "; nothing was set",
            (Request::Variables(_), _) => "; variables may be missing",
            (Request::Save, _) => "; nothing was saved",
            _ => "",
        });
        report.hint = Some(hint);
        Ok(report)
    }

    /// Replaces an interpreter that died between requests.
    fn replace_idle(&mut self, events: &Events) -> Result<Replacement, Exit> {
        let Death { how, .. } = self.interpreter.death(self.interpreter.process().status().unwrap_or(-1));
        self.end_interpreter(events)?;
        let (state, lost) = self.restart(events)?;
        let notice = if std::mem::take(&mut self.reset_failed) {
            format!("the session was reset before, and its new {} could be started only now", I::NOUN)
        } else {
            format!(
                "since the last call the {} {how}; {}{lost}",
                I::NOUN,
                self.interpreter.what_survives(state)
            )
        };
        Ok(Replacement { state, notice })
    }

    /// Starts an interpreter in place of a dead one. Programs that go on, but leave no process for it, are ended first, which the
    /// second value says.
    fn restart(&mut self, events: &Events) -> Result<(State, &'static str), Exit> {
        match self.interpreter.restart(events) {
            Err(exit) if exit.is_for_want_of_a_process() => {}
            restarted => return restarted.map(|state| (state, "")),
        }
        let [.., (signal, limit)] = descendants::STOP_LADDER;
        descendants::end_all_with(signal, limit, &[]);
        let state = self.interpreter.restart(events)?;
        Ok((state, ". All that ran in the background was ended: it left no process for a new one"))
    }

    /// Ends the remains of an interpreter.
    fn end_interpreter(&mut self, events: &Events) -> Result<(), Exit> {
        // The process may still be running as another program.
        self.interpreter.process().kill(events)?;
        if I::ENDS_PROGRAMS {
            match self.interpreter.copy() {
                Some(copy) => descendants::end_all_but(&[copy]),
                None => descendants::end_all(),
            };
        }
        Ok(())
    }
}

/// A request to the interpreter.
enum Request<'a> {
    Code { call: &'a Execute, number: u64 },
    Variables(&'a BTreeMap<String, JsonText>),
    Completion(&'a str),
    Save,
    Load(u64),
    Branch { name: &'a str, saved: &'a File },
}

impl Request<'_> {
    /// True if the host can interrupt it: it runs code of the session for any time.
    fn is_interruptible(&self) -> bool {
        matches!(self, Self::Code { .. } | Self::Save | Self::Load(_))
    }
}

/// The way a request ended for the interpreter.
enum End {
    /// The request was not sent, for this reason.
    Refused(String),
    Reported(Box<CallReport>),
    Died(Death),
}

/// A new interpreter in place of one that died between requests.
struct Replacement {
    state: State,
    /// Notice for the next caller.
    notice: String,
}
