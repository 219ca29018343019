//! Running the beginning of a rollout.

use std::sync::Arc;
use std::time::Instant;

use rlm_core::error::with_causes;
use tokio::sync::Mutex;

use super::config::{Control, RolloutConfig, RolloutResult};
use super::driver::{End, RolloutDriver};
use super::host::{Host, Parts};
use super::prefix::{Kept, Prefix};
use crate::session::SessionError;
use crate::terms::StopReason;

impl Host {
    /// Runs the first turns of a rollout. [`RolloutConfig::prefix`] of others then begins where it has ended, as often as wanted.
    ///
    /// The stop reason is [`StopReason::Branched`] then. None with any other: the rollout has ended by itself, for instance with an
    /// answer, or has failed.
    pub async fn run_prefix(
        &self,
        config: RolloutConfig,
        turns: u32,
        control: &Control,
    ) -> (RolloutResult, Option<Arc<Prefix>>) {
        self.parts.run_prefix(&config, turns, control).await
    }
}

impl Parts {
    async fn run_prefix(
        &self,
        config: &RolloutConfig,
        turns: u32,
        control: &Control,
    ) -> (RolloutResult, Option<Arc<Prefix>>) {
        let mut rollout = match self.begin(config, control).await {
            Ok(rollout) => rollout,
            Err(result) => return (*result, None),
        };
        if config.messages_in_context {
            let error = "a rollout with its conversation in the working directory cannot branch";
            rollout.last = End::setup_failed(error.to_owned());
            return (rollout.end().await, None);
        }
        let begun = Instant::now();
        rollout.driver.pause_at = Some(turns);
        rollout.last = rollout.driver.answer(control).await;
        let mut prefix = None;
        if rollout.last.reason == StopReason::Branched {
            match keep(&mut rollout.driver, begun).await {
                Ok(kept) => prefix = Some(Arc::new(kept)),
                Err(error) => rollout.last = End::setup_failed(error),
            }
        }
        (rollout.end().await, prefix)
    }
}

/// Keeps what a rollout needs to go on.
async fn keep(driver: &mut RolloutDriver<'_>, begun: Instant) -> Result<Prefix, String> {
    // A working directory of somebody else is shared by all that work there.
    let has_directory = driver.config.working_dir.is_none();
    let in_words = |error: SessionError| with_causes(&error);
    let (state, _) = driver.session.hand_on(has_directory).await.map_err(in_words)?;
    let session = Kept::of(&mut driver.session, has_directory).await.map_err(in_words)?.map(Mutex::new);
    Ok(Prefix {
        id: driver.config.id.clone(),
        turns: driver.conversation.turn(),
        messages: driver.conversation.kept(),
        progress: driver.paused.take().unwrap_or_default(),
        call_form: driver.call_form,
        fenced_prompt: driver.fenced_prompt.clone(),
        directory: driver.workspace.fs_path().to_owned(),
        files: driver.files.clone(),
        left: driver.registered.ledger.snapshot().left,
        time_left: driver.config.timeout().map(|limit| limit.saturating_sub(begun.elapsed())),
        state,
        session,
    })
}
