//! Saving a session, and going on with a saved one.
//!
//! A saved session is loaded by a new interpreter beside the session's own. Only when it has taken over the whole state does it
//! take the place of the old one, which ends then. Until then nothing has changed.

use std::fs::File;
use std::path::Path;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::{End, Events, Exit, Interpreter, Request, Supervisor, descendants, start_until_ready};
use crate::error::with_causes;
use crate::protocol::{Outcome, State};
use crate::saved::{STATE, Saved};
use crate::worker::interpreter::CallReport;

/// Time limit of a branch: functions of the session run before a fork.
const BRANCH_LIMIT: Duration = Duration::from_secs(5);

impl<I: Interpreter> Supervisor<I> {
    /// Takes the state of the session, which goes on. It is in the first bytes of [`Self::state_file`] if the report has
    /// [`CallReport::saved`]. `meanwhile` as in [`Self::execute`].
    ///
    /// # Errors
    /// [`Exit`] as soon as the worker has to end.
    pub fn save(&mut self, meanwhile: &mut dyn FnMut(), events: &Events) -> Result<CallReport, Exit> {
        self.perform(&Request::Save, self.exec_timeout, meanwhile, events)
    }

    /// Has the session leave a copy of itself: see [`Interpreter::send_branch`]. `meanwhile` as in [`Self::execute`].
    ///
    /// # Errors
    /// [`Exit`] as soon as the worker has to end.
    pub fn branch(
        &mut self,
        (name, saved): (&str, &File),
        meanwhile: &mut dyn FnMut(),
        events: &Events,
    ) -> Result<CallReport, Exit> {
        self.perform(&Request::Branch { name, saved }, Some(BRANCH_LIMIT), meanwhile, events)
    }

    /// The file in memory that has a state.
    #[must_use]
    pub fn state_file(&self) -> &File {
        self.interpreter.state_file()
    }

    /// Ends everything that the session started, and goes on with a saved session, in this directory. If that cannot be loaded, the
    /// session is as it was. `meanwhile` as in [`Self::execute`].
    ///
    /// # Errors
    /// [`Exit`] as soon as the worker has to end.
    pub fn load(
        &mut self,
        saved: &Saved,
        cwd: &Path,
        meanwhile: &mut dyn FnMut(),
        events: &Events,
    ) -> Result<CallReport, Exit> {
        let before = descendants::below(Pid::this());
        let mut new = None;
        let started = start_until_ready(|| {
            new = Some(self.interpreter.start_beside(cwd, events)?);
            Ok(())
        });
        let new = match (started, new) {
            (Ok(()), Some(new)) => new,
            (Err(Exit::Failed(error)), _) => {
                self.end_since(&before);
                let fault = format!("no new {} could be started: {}", I::NOUN, with_causes(&*error));
                return Ok(CallReport::refused(fault));
            }
            (Err(exit), _) => return Err(exit),
            (Ok(()), None) => return Ok(CallReport::refused(format!("no new {} was started", I::NOUN))),
        };
        let mut old = std::mem::replace(&mut self.interpreter, new);
        let mut report = self.take_over(saved, meanwhile, events)?;
        if report.outcome != Outcome::Ok {
            let new = std::mem::replace(&mut self.interpreter, old);
            self.end_since(&before);
            new.process().kill(events)?;
            return Ok(report);
        }
        old.process().kill(events)?;
        let kept: Vec<Pid> =
            [self.interpreter.process().pid()].into_iter().chain(self.interpreter.copy()).collect();
        descendants::end_all_but(&kept);
        old.take_output(&mut report)?;
        self.reset_failed = false;
        Ok(report)
    }

    /// Has the new interpreter load the state.
    fn take_over(
        &mut self,
        saved: &Saved,
        meanwhile: &mut dyn FnMut(),
        events: &Events,
    ) -> Result<CallReport, Exit> {
        let bytes = match saved.copy_part(STATE, self.interpreter.state_file()) {
            Ok(bytes) => bytes.unwrap_or(0),
            Err(error) => return Ok(CallReport::refused(with_causes(&error))),
        };
        let (end, stopped) = self.run(&Request::Load(bytes), self.exec_timeout, meanwhile, events)?;
        let fault = match end {
            End::Refused(fault) => fault,
            End::Reported(report) if report.outcome == Outcome::Ok => {
                return Ok(CallReport { state: State::Restored, ..*report });
            }
            End::Reported(report) => report.hint.unwrap_or_else(|| "it was stopped".to_owned()),
            End::Died(death) => format!("the new {} {}", I::NOUN, death.how),
        };
        Ok(CallReport {
            outcome: stopped.unwrap_or(Outcome::Error),
            ..CallReport::refused(format!(
                "the saved session could not be loaded: {fault}; this session is as it was"
            ))
        })
    }

    /// Ends what was started since a moment, except by the session.
    fn end_since(&self, before: &[Pid]) {
        let session = self.interpreter.process().pid();
        let kept = descendants::below(session);
        for pid in descendants::below(Pid::this()) {
            if pid != session && !kept.contains(&pid) && !before.contains(&pid) {
                let _gone_already = kill(pid, Signal::SIGKILL);
            }
        }
    }
}
