//! The root tools of one session.

use std::ffi::OsString;
use std::io;
use std::sync::Arc;

use rlm_core::protocol::Response;
use rlm_rootd::{RegisterError, Registration, Rootd, RootdConfig, Tool};

use super::interceptor::{Interceptor, InterceptorConfig, InterceptorError};
use crate::endpoint::{Endpoint, tool_variables};
use crate::prompts::Prompts;
use crate::session::{Call, Session};
use crate::terms::{Callbacks, ReplLanguage};

/// The only rollout.
const ID: &str = "session";

/// Root tools for one session, called as [`Callbacks`] says. They end with this value.
///
/// The endpoint has to be there before the worker, which gets [`Self::variables`], and calls go through
/// [`Self::execute_until`].
#[derive(Debug)]
pub struct RootTools(Way);

#[derive(Debug)]
enum Way {
    Network {
        endpoint: Endpoint,
        registration: Registration,
    },
    Intercept(Interceptor),
    /// There are none.
    Nothing,
}

/// Root tools that cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum RootToolsError {
    /// The endpoint cannot listen.
    #[error("cannot listen for calls of root tools")]
    Listen(#[source] io::Error),
    /// They cannot be had together.
    #[error("the root tools cannot be had")]
    Register(#[source] RegisterError),
    /// The system gives no random numbers.
    #[error("cannot name variables for calls of root tools")]
    Random(#[source] io::Error),
}

impl RootTools {
    /// Makes them ready. In a runtime: an endpoint is a task of it.
    ///
    /// # Errors
    /// [`RootToolsError`].
    pub fn start(
        tools: Vec<Tool>,
        callbacks: Callbacks,
        language: ReplLanguage,
        prompts: Arc<Prompts>,
    ) -> Result<Self, RootToolsError> {
        if tools.is_empty() {
            return Ok(Self(Way::Nothing));
        }
        let rollout = rlm_rootd::RolloutConfig { tools, ..rlm_rootd::RolloutConfig::default() };
        let register = |rootd: &Rootd| rootd.register(ID, rollout).map_err(RootToolsError::Register);
        match callbacks {
            Callbacks::Network => {
                let endpoint = Endpoint::start(RootdConfig::default()).map_err(RootToolsError::Listen)?;
                let registration = register(&endpoint.rootd)?;
                Ok(Self(Way::Network { endpoint, registration }))
            }
            Callbacks::Intercept => {
                let rootd = Rootd::new(RootdConfig::default());
                let registration = register(&rootd)?;
                let interceptor = Interceptor::new(InterceptorConfig {
                    rootd,
                    rollout: registration.id,
                    tools: registration.tools,
                    language,
                    prompts,
                });
                Ok(Self(Way::Intercept(interceptor.map_err(RootToolsError::Random)?)))
            }
        }
    }

    /// What the session's worker has to find in its environment.
    #[must_use]
    pub fn variables(&self) -> Vec<(OsString, OsString)> {
        match &self.0 {
            Way::Network { endpoint, registration } => {
                tool_variables(registration, &registration.tools_url(&endpoint.base_url)).to_vec()
            }
            Way::Intercept(_) | Way::Nothing => Vec::new(),
        }
    }

    /// Runs a call in the session, and stops it when `stop` completes.
    ///
    /// # Errors
    /// [`InterceptorError`].
    pub async fn execute_until(
        &mut self,
        session: &mut Session,
        call: impl Into<Call>,
        stop: impl Future<Output = ()>,
    ) -> Result<Response, InterceptorError> {
        match &mut self.0 {
            Way::Intercept(interceptor) => interceptor.execute_until(session, call, stop).await,
            Way::Network { .. } | Way::Nothing => Ok(session.execute_until(call, stop).await?),
        }
    }
}
