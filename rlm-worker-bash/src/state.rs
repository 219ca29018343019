//! The worker's record of its session, including the state that outlives a shell.

use std::collections::BTreeSet;
use std::path::PathBuf;

use rlm_core::protocol::Answer;
use rlm_core::worker::output::into_string;

use crate::code::Driver;
use crate::report::{self, UserState};

/// The state of a session that the worker keeps between two requests.
#[derive(Debug)]
pub(crate) struct SessionState {
    /// The state that the next call restores.
    pub(crate) user: UserState,
    /// The driver variant that the session needs.
    pub(crate) driver: Driver,
    pub(crate) cwd: PathBuf,
    pub(crate) answer: RawAnswer,
    pub(crate) transient: TransientVariables,
}

impl SessionState {
    /// The state of a new session that starts in this directory, with this answer.
    pub(crate) fn new(cwd: PathBuf, answer: &Answer) -> Self {
        Self {
            user: UserState::default(),
            driver: Driver::Fast,
            cwd,
            answer: RawAnswer::new(answer),
            transient: TransientVariables::default(),
        }
    }
}

/// The values of `RLM_READY` and `RLM_CONTENT`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RawAnswer {
    pub(crate) ready: Vec<u8>,
    pub(crate) content: Vec<u8>,
}

impl RawAnswer {
    /// The values for an answer; a NUL, which no variable can hold, is left out.
    fn new(answer: &Answer) -> Self {
        let ready = if answer.ready { b"1".to_vec() } else { Vec::new() };
        let content = answer.content.bytes().filter(|byte| *byte != 0).collect();
        Self { ready, content }
    }

    pub(crate) fn answer(&self) -> Answer {
        Answer { ready: report::is_truthy(&self.ready), content: into_string(self.content.clone()) }
    }
}

/// Names of the variables that last for one call.
#[derive(Debug, Default)]
pub(crate) struct TransientVariables {
    /// Variables whose call has started: the next call unsets them.
    used: BTreeSet<String>,
    /// Variables for the next call.
    unused: BTreeSet<String>,
}

impl TransientVariables {
    pub(crate) fn add(&mut self, name: &str) {
        self.used.remove(name);
        self.unused.insert(name.to_owned());
    }

    /// Starts a call, and returns the names to unset before it.
    pub(crate) fn begin_call(&mut self) -> BTreeSet<String> {
        std::mem::replace(&mut self.used, std::mem::take(&mut self.unused))
    }
}
