//! What the tools of a rollout know of it while it runs.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

use rlm_rootd::Ledger;

use super::config::Control;

/// A rollout that is under way: its ledger, and the question that it works on.
#[derive(Debug, Default)]
pub(super) struct UnderWay {
    ledger: OnceLock<Arc<Ledger>>,
    question: Mutex<(Control, Option<Instant>)>,
}

impl UnderWay {
    /// The rollout has this ledger.
    pub(super) fn has_ledger(&self, ledger: &Arc<Ledger>) {
        self.ledger.get_or_init(|| ledger.clone());
    }

    /// The rollout works on a question that this control ends, until this time if there is a limit.
    pub(super) fn works_until(&self, control: &Control, end: Option<Instant>) {
        *self.question() = (control.clone(), end);
    }

    /// The ledger. None before the rollout's beginning, when nothing calls a tool.
    pub(super) fn ledger(&self) -> Option<&Arc<Ledger>> {
        self.ledger.get()
    }

    /// The control of the running question, and its end.
    pub(super) fn question(&self) -> MutexGuard<'_, (Control, Option<Instant>)> {
        self.question.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
