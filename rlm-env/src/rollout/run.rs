//! A rollout from its beginning to its end.

use std::sync::Arc;

use super::config::{Control, RolloutConfig, RolloutResult};
use super::host::Host;
use super::log::Log;
use super::setup::Setup;
use crate::trajectory::{Event, RolloutEnded};

impl Host {
    /// Runs a rollout to its end. Failures are in the result too.
    ///
    /// Dropping the future ends the rollout at once and removes what it made.
    pub async fn run(&self, config: RolloutConfig, control: &Control) -> RolloutResult {
        let log = Arc::new(Log::new(&config.id, config.sinks.clone(), self.config.prices.clone()));
        let setup = Setup { host: self, config: &config, control, log: &log };
        let end = match setup.prepare().await {
            Ok(driver) => driver.run().await,
            Err(end) => {
                log.add(Event::RolloutStarted(setup.started(Vec::new(), None)));
                end
            }
        };
        let metrics = log.metrics();
        log.add(Event::RolloutEnded(RolloutEnded {
            stop_reason: end.reason,
            answer: end.answer.clone(),
            answer_ready: end.is_ready,
            error: end.error.clone(),
            metrics: metrics.clone(),
        }));
        RolloutResult {
            id: config.id,
            question: config.question,
            answer: end.answer,
            answer_ready: end.is_ready,
            stop_reason: end.reason,
            error: end.error,
            metrics,
            dir: end.dir,
        }
    }
}
