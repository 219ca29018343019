//! What a session knows of its shell, and what outlives one.

use std::collections::BTreeSet;
use std::path::PathBuf;

use rlm_core::protocol::Answer;
use rlm_core::worker::output::into_string;

use crate::code::Driver;
use crate::report::{self, UserState};

/// What the worker keeps of a session between two requests.
#[derive(Debug)]
pub(crate) struct SessionState {
    /// What the next call puts back.
    pub(crate) user: UserState,
    /// The driver that the session needs by now.
    pub(crate) driver: Driver,
    pub(crate) cwd: PathBuf,
    pub(crate) answer: RawAnswer,
    pub(crate) transient: TransientVariables,
}

impl SessionState {
    /// The state of a session that begins in a directory.
    pub(crate) fn new(cwd: PathBuf) -> Self {
        Self {
            user: UserState::default(),
            driver: Driver::Fast,
            cwd,
            answer: RawAnswer::default(),
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
    pub(crate) fn answer(&self) -> Answer {
        Answer { ready: report::is_truthy(&self.ready), content: into_string(self.content.clone()) }
    }
}

/// Names of variables that last for one call.
#[derive(Debug, Default)]
pub(crate) struct TransientVariables {
    /// Those whose call has begun: the next call unsets them.
    used: BTreeSet<String>,
    /// Those that are there for the next call.
    unused: BTreeSet<String>,
}

impl TransientVariables {
    pub(crate) fn add(&mut self, name: &str) {
        self.used.remove(name);
        self.unused.insert(name.to_owned());
    }

    /// Begins a call, and returns the names to unset before it.
    pub(crate) fn begin_call(&mut self) -> BTreeSet<String> {
        std::mem::replace(&mut self.used, std::mem::take(&mut self.unused))
    }
}
