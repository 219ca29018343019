//! A rollout's registration at the endpoint for root tools.

use std::sync::Arc;

use rlm_rootd::{Ledger, Registration, RolloutMetrics, Rootd};

/// A rollout registered at the endpoint. Dropping it removes the registration.
#[derive(Debug)]
pub(super) struct RegisteredRollout {
    pub(super) rootd: Rootd,
    pub(super) registration: Registration,
    pub(super) ledger: Arc<Ledger>,
    pub(super) tools_url: String,
    pub(super) chat_url: String,
}

impl RegisteredRollout {
    /// Registers a rollout.
    ///
    /// # Errors
    /// A sentence: its tools conflict, or its id is taken.
    pub(super) fn new(
        rootd: Rootd,
        base_url: &str,
        id: &str,
        config: rlm_rootd::RolloutConfig,
    ) -> Result<Self, String> {
        let registration =
            rootd.register(id, config).map_err(|error| rlm_core::error::with_causes(&error))?;
        let ledger = rootd.ledger(id).ok_or("the rollout was removed from its endpoint")?;
        let (tools_url, chat_url) = (registration.tools_url(base_url), registration.chat_url(base_url));
        Ok(Self { rootd, registration, ledger, tools_url, chat_url })
    }

    /// The counts of all calls so far.
    pub(super) fn seen(&self) -> Option<RolloutMetrics> {
        self.rootd.rollout_metrics(&self.registration.id)
    }

    /// Ends the running calls, waits for them, and returns the counts of all calls.
    pub(super) async fn end(&self) -> Option<RolloutMetrics> {
        self.rootd.end(&self.registration.id).await
    }
}

impl Drop for RegisteredRollout {
    fn drop(&mut self) {
        // None if the registration has ended before.
        let _metrics = self.rootd.unregister(&self.registration.id);
    }
}
