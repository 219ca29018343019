//! `ask_directory`: a whole rollout of `rlm run` over files of the working directory, as one call.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use rlm_env::rollout::PathWithin;
use rlm_env::{Context, Control, Host, RolloutResult};
use tokio_util::sync::CancellationToken;

use crate::config::Settings;
use crate::config::table::{BASE_URL, MODEL};
use crate::environment::Environment;
use crate::rollouts::{BatchProgress, Setup, close, new_id};

/// Runs rollouts with the model in the settings.
#[derive(Debug)]
pub(super) struct Asker {
    settings: Settings,
    environment: Environment,
    root: PathBuf,
}

impl Asker {
    /// An asker; None if no model is configured. `root` has no symbolic link in it.
    pub(super) fn new(
        settings: Settings,
        environment: &Environment,
        root: &Path,
    ) -> anyhow::Result<Option<Self>> {
        if settings.get(&MODEL).is_none() || settings.get(&BASE_URL).is_none() {
            return Ok(None);
        }
        // A mistake in the settings ends the server at its start, not a call.
        Setup::new(&settings, environment)?.open_files(&settings)?;
        Ok(Some(Self { settings, environment: environment.clone(), root: root.to_owned() }))
    }

    /// Runs a rollout to its end. When cancelled, it ends early, and removes what it made all the same.
    pub(super) async fn ask(
        &self,
        question: String,
        path: &Path,
        progress: Arc<BatchProgress>,
        cancelled: CancellationToken,
    ) -> anyhow::Result<RolloutResult> {
        anyhow::ensure!(!question.trim().is_empty(), "the question is empty");
        let path = self.below(path)?;
        let mut setup = Setup::new(&self.settings, &self.environment)?;
        setup.open_files(&self.settings)?;
        let mcp_servers = tokio::select! {
            started = setup.start_mcp_servers() => started?,
            () = cancelled.cancelled() => anyhow::bail!("the question was cancelled"),
        };
        setup.learn_limits(None).await;
        let Setup { host, mut rollout, .. } = setup;
        rollout.id = new_id();
        rollout.question = question;
        rollout.context = Context::Within(vec![path]);
        rollout.sinks.push(progress);
        let host = Host::start(host).await?;
        let control = Control::new();
        let result = {
            let mut running = std::pin::pin!(host.run(rollout, &control));
            tokio::select! {
                result = &mut running => result,
                () = cancelled.cancelled() => {
                    control.cancel();
                    running.await
                }
            }
        };
        close(host).await;
        mcp_servers.stop().await;
        Ok(result)
    }

    /// Finds the path that is asked about: code in the session may put links in its place at any time.
    fn below(&self, path: &Path) -> anyhow::Result<PathWithin> {
        let found = PathWithin::find(std::slice::from_ref(&self.root), path);
        let found = found.with_context(|| format!("cannot find {}", path.display()))?;
        found.with_context(|| {
            format!("{} is outside the working directory {}", path.display(), self.root.display())
        })
    }
}
