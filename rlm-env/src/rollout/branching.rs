//! Running the beginning of a rollout.

use std::sync::Arc;
use std::time::Instant;

use rlm_core::error::with_causes;
use rlm_core::protocol::Outcome;

use super::config::{Control, RolloutConfig, RolloutResult};
use super::driver::{End, RolloutDriver};
use super::host::{Host, Parts};
use super::prefix::{Prefix, state_in};
use crate::files::PrivateDir;
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
    if driver.config.messages_in_context {
        return Err("a rollout with its conversation in the working directory cannot branch".to_owned());
    }
    let place =
        PrivateDir::create().map_err(|error| format!("cannot make a directory for the state: {error}"))?;
    let state = state_in(&place);
    let saved = match &driver.config.working_dir {
        // Shared by all that work there.
        Some(_) => driver.session.save(&state).await,
        None => driver.session.save_with_directory(&state).await,
    };
    let saved = saved.map_err(|error| with_causes(&error))?;
    if saved.outcome != Outcome::Ok {
        return Err(format!("the session cannot be saved: {}", saved.hint.unwrap_or_default()));
    }
    let time = driver.config.prefix.as_ref().map_or(driver.config.limits.timeout, |prefix| prefix.time_left);
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
        time_left: time.map(|limit| limit.saturating_sub(begun.elapsed())),
        place,
    })
}
