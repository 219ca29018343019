//! Runs one attempt of a batch, and scores it.

use rlm_env::trajectory::{Entry, Event, RolloutScored};
use rlm_env::{Control, Host, RolloutConfig};

use super::attempts::Attempt;
use super::beginnings::Beginnings;
use super::questions::Question;
use crate::evaluation::{Evaluation, Provenance, RunResult, Scorer};

/// Runs attempts: a host, or a script in tests.
pub(super) trait RunAttempt: Send + Sync + 'static {
    /// Runs an attempt to its end.
    fn run_attempt(&self, attempt: Attempt, control: &Control) -> impl Future<Output = RunResult> + Send;
}

/// A host, and the configuration that all rollouts of a batch share.
pub(super) struct Runner {
    pub(super) host: Host,
    pub(super) template: RolloutConfig,
    pub(super) provenance: Provenance,
    pub(super) scorer: Scorer,
    /// The beginnings that attempts share. None: each attempt begins with its question.
    pub(super) beginnings: Option<Beginnings>,
}

impl RunAttempt for Runner {
    async fn run_attempt(&self, attempt: Attempt, control: &Control) -> RunResult {
        let config = attempt.rollout(&self.template);
        let rollout = match &self.beginnings {
            Some(beginnings) => beginnings.run(&self.host, &attempt, config, control).await,
            None => self.host.run(config, control).await,
        };
        let Question { id, expected, metadata, .. } = &*attempt.question;
        let score = tokio::select! {
            biased;
            score = self.scorer.score(&rollout, expected.as_ref(), metadata.as_ref()) => score,
            () = control.cancelled() => Some(Err("the batch ended before it was scored".to_owned())),
        };
        if let Some(score) = score.clone() {
            let scored = Event::RolloutScored(RolloutScored::new(score));
            let entry = Entry::now(rollout.id.clone(), 0, scored);
            self.template.sinks.iter().for_each(|sink| sink.entry(&entry));
        }
        let (score, score_error) = match score {
            None => (None, None),
            Some(Ok(score)) => (Some(Some(score)), None),
            Some(Err(reason)) => (Some(None), Some(reason)),
        };
        let evaluation = Evaluation {
            question_id: Some(id.clone()),
            attempt: Some(attempt.number),
            metadata: metadata.clone(),
            expected: expected.as_ref().map(|expected| expected.json().clone()),
            score,
            score_error,
        };
        RunResult { rollout, evaluation, provenance: Some(self.provenance.clone()) }
    }
}
