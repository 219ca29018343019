//! The endpoint: its rollouts and its settings.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use rlm_core::pickle::Limits;
use rlm_core::root_tool::MAX_BODY_BYTES;
use tokio::sync::Semaphore;

use crate::ledger::{Ledger, Prices};
use crate::llm::Models;
use crate::metrics::{Metrics, MetricsRecorder};
use crate::offload::LargeWork;
use crate::rollout::{RegisterError, Registration, Rollout, RolloutConfig, RolloutMetrics};
use crate::secret::Secret;
use crate::tool::Tool;

/// Settings of an endpoint.
#[derive(Clone, Debug)]
pub struct RootdConfig {
    /// The tools that a rollout may be given by `PUT /rollout/{id}`.
    pub tools: Vec<Tool>,
    /// The models of sub-LLMs; none by default. Without them rollouts have no `llm_batch`, `budget` and proxy.
    pub models: Option<Arc<Models>>,
    /// The prices of models; empty by default.
    pub prices: Prices,
    /// The token for `/rollout/{id}`. None, the default, closes the route to everyone.
    pub admin_token: Option<Secret>,
    /// Largest body of a request, in bytes; [`MAX_BODY_BYTES`] by default.
    pub max_body_bytes: usize,
    /// Time limit of a connection for the head of a request, idle time before it included; 60 s by default.
    pub head_time_limit: Duration,
    /// Time limit for the body of a request; 120 s by default.
    pub body_time_limit: Duration,
    /// Longest time that a response may wait for its reader to take more; 60 s by default.
    pub write_time_limit: Duration,
    /// Connections that are open at once; 8192 by default. A further one waits until one ends.
    pub max_connections: usize,
    /// Time that running calls have to end in a shutdown; 10 s by default.
    pub shutdown_time_limit: Duration,
}

impl Default for RootdConfig {
    fn default() -> Self {
        Self {
            tools: Vec::new(),
            models: None,
            prices: Prices::default(),
            admin_token: None,
            max_body_bytes: MAX_BODY_BYTES,
            head_time_limit: Duration::from_secs(60),
            body_time_limit: Duration::from_secs(120),
            write_time_limit: Duration::from_secs(60),
            max_connections: 8192,
            shutdown_time_limit: Duration::from_secs(10),
        }
    }
}

/// The endpoint that code in sessions calls back into. A clone is the same endpoint.
#[derive(Clone)]
pub struct Rootd(pub(crate) Arc<Shared>);

pub(crate) struct Shared {
    pub(crate) config: RootdConfig,
    pub(crate) metrics: Arc<Metrics>,
    /// One permit per connection that may be open.
    pub(crate) connections: Arc<Semaphore>,
    /// Limits on the values in a body.
    pub(crate) limits: Limits,
    pub(crate) large_work: LargeWork,
    rollouts: RwLock<HashMap<String, Arc<Rollout>>>,
}

impl Rootd {
    /// An endpoint without rollouts.
    #[must_use]
    pub fn new(config: RootdConfig) -> Self {
        // Base64 takes four bytes for three.
        let payload_bytes = config.max_body_bytes / 4 * 3;
        let limits = Limits { payload_bytes, expanded_bytes: config.max_body_bytes, ..Limits::default() };
        Self(Arc::new(Shared {
            metrics: Arc::default(),
            connections: Arc::new(Semaphore::new(config.max_connections.min(Semaphore::MAX_PERMITS))),
            limits,
            large_work: LargeWork::new(),
            config,
            rollouts: RwLock::default(),
        }))
    }

    /// Adds a rollout and makes its secret.
    ///
    /// # Errors
    /// [`RegisterError`]; nothing has changed then.
    pub fn register(&self, id: &str, mut config: RolloutConfig) -> Result<Registration, RegisterError> {
        let Shared { config: settings, metrics, .. } = &*self.0;
        let counting =
            MetricsRecorder::new(metrics.clone(), settings.prices.clone(), config.sub_llm.recorder.take());
        config.sub_llm.recorder = Some(Arc::new(counting));
        let rollout = Arc::new(Rollout::new(
            id,
            config,
            settings.models.as_ref(),
            &settings.prices,
            settings.max_body_bytes,
        )?);
        let registration = rollout.registration();
        let mut rollouts = self.0.rollouts.write().unwrap_or_else(PoisonError::into_inner);
        if rollouts.contains_key(id) {
            return Err(RegisterError::Taken(id.to_owned()));
        }
        rollouts.insert(id.to_owned(), rollout);
        Ok(registration)
    }

    /// Removes a rollout and cancels its calls. None where no rollout has this id.
    pub fn unregister(&self, id: &str) -> Option<RolloutMetrics> {
        let rollout = self.0.rollouts.write().unwrap_or_else(PoisonError::into_inner).remove(id)?;
        rollout.ended.cancel();
        Some(rollout.metrics())
    }

    /// Like [`Self::unregister`], but waits until the rollout's calls have ended, so that the metrics are final. Waits at most
    /// 5 s for responses that are not read.
    pub async fn end(&self, id: &str) -> Option<RolloutMetrics> {
        let rollout = self.0.rollouts.write().unwrap_or_else(PoisonError::into_inner).remove(id)?;
        rollout.ended.cancel();
        rollout.drained().await;
        Some(rollout.metrics())
    }

    /// The spending of a rollout on models. None where no rollout has this id.
    #[must_use]
    pub fn ledger(&self, id: &str) -> Option<Arc<Ledger>> {
        self.0.rollout(id).map(|rollout| rollout.ledger.clone())
    }

    /// The calls and the spending of a rollout so far. None where no rollout has this id.
    #[must_use]
    pub fn rollout_metrics(&self, id: &str) -> Option<RolloutMetrics> {
        self.0.rollout(id).map(|rollout| rollout.metrics())
    }

    /// The metrics of the endpoint, in Prometheus' text format.
    #[must_use]
    pub fn metrics_text(&self) -> String {
        self.0.metrics_text()
    }
}

impl fmt::Debug for Rootd {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Rootd").field("config", &self.0.config).finish_non_exhaustive()
    }
}

impl Shared {
    pub(crate) fn rollout(&self, id: &str) -> Option<Arc<Rollout>> {
        self.rollouts.read().unwrap_or_else(PoisonError::into_inner).get(id).cloned()
    }

    pub(crate) fn metrics_text(&self) -> String {
        let rollouts = self.rollouts.read().unwrap_or_else(PoisonError::into_inner).len();
        let connections = self.config.max_connections.saturating_sub(self.connections.available_permits());
        self.metrics.text(rollouts, connections)
    }
}
