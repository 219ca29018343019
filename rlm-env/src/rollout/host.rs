//! The host: everything that rollouts share.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use rlm_rootd::{Models, Prices, RootModel, Rootd, RootdConfig};

use crate::endpoint::Endpoint;
use crate::files::HostDir;
use crate::prompts::Prompts;
use crate::terms::ReplLanguage;

/// The configuration of a host: everything that its rollouts share.
#[derive(Clone, Debug)]
pub struct HostConfig {
    /// The directory of worker programs: `rlm-worker-bash` and `rlm-root-tool`, `rlm-worker-python` and the cell
    /// engine. Programs of a language that no rollout uses may be missing.
    pub programs: PathBuf,
    /// The host's environment. Workers get the part that [`rlm_core::env::for_workers`] lets through: no keys.
    pub env: Vec<(OsString, OsString)>,
    /// The directory for private directories; by default the system's directory for temporary files.
    pub dir: PathBuf,
    /// The root model of the rollouts.
    pub root_model: Arc<dyn RootModel>,
    /// The models of sub-LLMs. None: there is no `llm_batch`.
    pub sub_models: Option<Arc<Models>>,
    /// Prices of models.
    pub prices: Prices,
    /// The templates of texts for models.
    pub prompts: Arc<Prompts>,
}

impl HostConfig {
    /// A host without sub-LLMs, with an empty environment and the built-in prompts.
    #[must_use]
    pub fn new(programs: impl Into<PathBuf>, root_model: Arc<dyn RootModel>) -> Self {
        Self {
            programs: programs.into(),
            env: Vec::new(),
            dir: std::env::temp_dir(),
            root_model,
            sub_models: None,
            prices: Prices::default(),
            prompts: Arc::default(),
        }
    }
}

/// Why a host cannot be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HostError {
    /// The directory for private directories cannot be used.
    #[error("cannot use {}", path.display())]
    Dir {
        /// The path.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: std::io::Error,
    },
    /// The endpoint for root tools cannot listen.
    #[error("cannot listen for calls of root tools")]
    Listen(#[source] std::io::Error),
}

/// Runs any number of rollouts side by side. Owns the endpoint for their root tools, and the parent of their directories.
/// Dropping it, or [`Host::close`], removes both.
#[derive(Debug)]
pub struct Host {
    pub(super) parts: Parts,
    endpoint: Endpoint,
}

/// The parts of its host that a rollout needs. Clones share them.
#[derive(Clone, Debug)]
pub(super) struct Parts {
    pub(super) config: Arc<HostConfig>,
    pub(super) rootd: Rootd,
    pub(super) base_url: Arc<str>,
    pub(super) dir: HostDir,
}

impl Host {
    /// Removes the leftovers of killed hosts, and starts the endpoint on a loopback port.
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
        let endpoint = endpoint.map_err(HostError::Listen)?;
        let (rootd, base_url) = (endpoint.rootd.clone(), endpoint.base_url.as_str().into());
        Ok(Self { parts: Parts { config: Arc::new(config), rootd, base_url, dir }, endpoint })
    }

    /// Ends the endpoint and removes the host's directory.
    ///
    /// # Errors
    /// The directory cannot be removed.
    pub async fn close(self) -> std::io::Result<()> {
        let Self { parts, endpoint } = self;
        endpoint.close().await;
        tokio::task::spawn_blocking(move || parts.dir.remove()).await?
    }
}

impl Parts {
    /// The worker program of a language.
    pub(super) fn worker(&self, language: ReplLanguage) -> PathBuf {
        self.config.programs.join(language.worker_name())
    }
}
