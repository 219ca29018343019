//! The host of rollouts: what they share.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use rlm_rootd::{Models, Prices, RootdConfig};

use crate::endpoint::Endpoint;
use crate::model::RootModel;
use crate::prompts::Prompts;
use crate::rollout::{self, Control, RolloutConfig, RolloutResult};
use crate::session::ReplLanguage;
use crate::workspace::HostDir;

/// What the rollouts of a host share.
#[derive(Clone, Debug)]
pub struct HostConfig {
    /// The program `rlm-worker-bash`; `rlm-root-tool` lies beside it.
    pub bash_worker: PathBuf,
    /// The program `rlm-worker-python`; the cell engine lies beside it.
    pub python_worker: PathBuf,
    /// The host's environment, of which workers get what [`rlm_core::env::for_workers`] lets through: no keys.
    pub env: Vec<(OsString, OsString)>,
    /// Where private directories are made; the system's directory for temporary files.
    pub dir: PathBuf,
    /// Who leads rollouts.
    pub root_llm: RootLlm,
    /// The models of sub-LLMs; without them there is no `llm_batch`.
    pub sub_models: Option<Arc<Models>>,
    /// What models cost.
    pub prices: Prices,
    /// What root models are told.
    pub prompts: Arc<Prompts>,
}

/// Who leads rollouts.
#[derive(Clone, Debug)]
pub enum RootLlm {
    /// A model over HTTP. What it costs is charged to the rollout's budget.
    Http(Arc<Models>),
    /// Something else, such as a script.
    Other(Arc<dyn RootModel>),
}

impl RootLlm {
    /// The model's name.
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Http(models) => models.model(),
            Self::Other(model) => model.name(),
        }
    }
}

/// A host cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// The directory for private directories cannot be used.
    #[error("cannot use {}", path.display())]
    Dir {
        /// Which one.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The endpoint for root tools cannot listen.
    #[error("cannot listen for calls of root tools")]
    Listen(#[source] std::io::Error),
}

/// Runs rollouts, as many side by side as are asked for. Holds the endpoint for their root tools and the directory that
/// theirs lie in. Dropping it, or [`Host::close`], removes all of that.
#[derive(Debug)]
pub struct Host {
    pub(crate) config: HostConfig,
    pub(crate) endpoint: Endpoint,
    pub(crate) dir: HostDir,
}

impl Host {
    /// Removes what killed hosts left behind, and starts the endpoint on a port of the loopback device.
    ///
    /// # Errors
    /// [`HostError`].
    pub async fn start(config: HostConfig) -> Result<Self, HostError> {
        let dir = HostDir::create(&config.dir)
            .map_err(|source| HostError::Dir { path: config.dir.clone(), source })?;
        let endpoint = Endpoint::start(RootdConfig {
            models: config.sub_models.clone(),
            prices: config.prices.clone(),
            ..RootdConfig::default()
        });
        Ok(Self { config, endpoint: endpoint.map_err(HostError::Listen)?, dir })
    }

    /// Runs a rollout to its end. Whatever happens is in the result.
    ///
    /// Dropping the future ends the rollout at once and removes what is left of it.
    pub async fn run(&self, config: RolloutConfig, control: &Control) -> RolloutResult {
        rollout::run(self, &config, control).await
    }

    /// Ends the endpoint and removes the host's directory.
    ///
    /// # Errors
    /// The directory cannot be removed.
    pub async fn close(self) -> std::io::Result<()> {
        let Self { dir, endpoint, .. } = self;
        endpoint.close().await;
        tokio::task::spawn_blocking(move || dir.remove()).await?
    }

    pub(crate) fn worker(&self, language: ReplLanguage) -> &PathBuf {
        match language {
            ReplLanguage::Bash => &self.config.bash_worker,
            ReplLanguage::Python => &self.config.python_worker,
        }
    }
}
