//! Facts of a running rollout that its tools know.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

use rlm_rootd::Ledger;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use super::config::Control;

/// A rollout that is under way: its ledger, the question that it works on, and its children. Dropping it ends them at once.
#[derive(Debug, Default)]
pub(super) struct UnderWay {
    ledger: OnceLock<Arc<Ledger>>,
    question: Mutex<(Control, Option<Instant>)>,
    children: Mutex<JoinSet<()>>,
}

impl UnderWay {
    /// Sets the rollout's ledger.
    pub(super) fn has_ledger(&self, ledger: &Arc<Ledger>) {
        self.ledger.get_or_init(|| ledger.clone());
    }

    /// Sets the control that ends the running question, and the question's end if there is a limit.
    pub(super) fn works_until(&self, control: &Control, end: Option<Instant>) {
        *self.question() = (control.clone(), end);
    }

    /// The ledger. None before the rollout's beginning, when nothing calls a tool.
    pub(super) fn ledger(&self) -> Option<&Arc<Ledger>> {
        self.ledger.get()
    }

    /// Runs a child to its end, even if nobody waits for its result any more.
    pub(super) fn run_child<T: Send + 'static>(
        &self,
        child: impl Future<Output = T> + Send + 'static,
    ) -> oneshot::Receiver<T> {
        let (sender, result) = oneshot::channel();
        let mut children = self.children.lock().unwrap_or_else(PoisonError::into_inner);
        while children.try_join_next().is_some() {}
        children.spawn(async move {
            let _nobody_waits = sender.send(child.await);
        });
        result
    }

    /// Waits for the ends of all children.
    pub(super) async fn children_ended(&self) {
        let children = std::mem::take(&mut *self.children.lock().unwrap_or_else(PoisonError::into_inner));
        children.join_all().await;
    }

    /// The control of the running question, and its end.
    pub(super) fn question(&self) -> MutexGuard<'_, (Control, Option<Instant>)> {
        self.question.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
