//! The state of a shell that goes on, and of a new one that takes it over.

use std::os::unix::ffi::OsStrExt;

use rlm_core::protocol::{Outcome, State};
use rlm_core::worker::{CallReport, Exit};

use super::BashSession;
use crate::code::Driver;
use crate::exchange::Task;
use crate::report::{Report, UserState};
use crate::restoration::Restoration;
use crate::saved::{self, SavedShell};

impl BashSession {
    /// Has the new shell of this session take over a state. Returns the reason if it cannot.
    pub(super) fn take_over(&mut self, bytes: u64) -> Result<Option<String>, Exit> {
        let loaded = self.pipes.read_state(bytes);
        let Some(saved) = loaded.ok().and_then(|bytes| SavedShell::decode(&bytes)) else {
            return Ok(Some("its state is not that of a bash session".to_owned()));
        };
        let text = saved.text_for(&self.config.env, self.state.cwd.as_os_str().as_bytes());
        let Restoration { text, values } = Restoration::new(&text);
        if let Err(error) = self.pipes.write_state(&text) {
            return Ok(Some(format!("the state cannot be passed to the shell: {error}")));
        }
        let nonce = self.exchange.begin(Task::Load);
        let positional = saved.user.positional.as_deref();
        let call = self.pipes.scripts.set_up(positional, Some(&values), &saved.answer, nonce);
        self.loading = saved;
        self.send(&call)
    }

    pub(super) fn after_save(&mut self, report: &Report, stopped: Option<Outcome>) -> CallReport {
        let Some(snapshot) = self.exchange.saved.take() else {
            if stopped.is_some() {
                self.terminal.restore(self.settings.as_ref());
            }
            return CallReport {
                hint: Some("the shell did not finish, and nothing was saved".to_owned()),
                ..CallReport::new(stopped.unwrap_or(Outcome::Error), State::Kept)
            };
        };
        let saved = SavedShell::new(snapshot, &report.signal_traps, &self.state.user, &self.config.env);
        let bytes = saved.encode();
        if let Err(error) = self.pipes.write_state(&bytes) {
            return CallReport::refused(format!("the state cannot be kept in memory: {error}"));
        }
        let saved = Some((bytes.len() as u64, saved::contents(&report.names)));
        CallReport { saved, ..CallReport::new(Outcome::Ok, State::Kept) }
    }

    pub(super) fn after_load(
        &mut self,
        report: Report,
        stopped: Option<Outcome>,
    ) -> Result<CallReport, Exit> {
        if stopped.is_some() {
            return Ok(CallReport::new(stopped.unwrap_or(Outcome::Error), State::Kept));
        }
        self.after_set_up(report)?;
        let SavedShell { user, answer, .. } = std::mem::take(&mut self.loading);
        let UserState { stdin, exec_is_function, is_silenced, .. } = self.state.user;
        self.state.user = UserState { stdin, exec_is_function, is_silenced, ..user };
        self.state.answer = answer;
        self.state.driver = Driver::Standard;
        let saved = Some(Default::default());
        Ok(CallReport {
            answer: Some(self.state.answer.answer()),
            saved,
            ..CallReport::new(Outcome::Ok, State::Kept)
        })
    }
}
