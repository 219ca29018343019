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

/// Id of the only rollout.
const ID: &str = "session";

/// Root tools for one session, called as [`Callbacks`] says. Dropping this value ends them.
///
/// Start them before the worker, give the worker [`Self::variables`], and make calls with [`Self::execute_until`].
#[derive(Debug)]
pub struct RootTools(Mode);

#[derive(Debug)]
enum Mode {
    Network {
        endpoint: Endpoint,
        registration: Registration,
    },
    Intercept(Interceptor),
    /// The session has no root tools.
    Nothing,
}

/// Why root tools could not be started.
#[derive(Debug, thiserror::Error)]
pub enum RootToolsError {
    /// The endpoint cannot listen.
    #[error("cannot listen for calls of root tools")]
    Listen(#[source] io::Error),
    /// The tools conflict.
    #[error("the root tools cannot be registered")]
    Register(#[source] RegisterError),
    /// The system provides no random numbers.
    #[error("cannot make random names of variables for calls of root tools")]
    Random(#[source] io::Error),
}

impl RootTools {
    /// Starts the root tools. Must be called in a runtime, since an endpoint is a task.
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
            return Ok(Self(Mode::Nothing));
        }
        let rollout = rlm_rootd::RolloutConfig { tools, ..rlm_rootd::RolloutConfig::default() };
        let register = |rootd: &Rootd| rootd.register(ID, rollout).map_err(RootToolsError::Register);
        match callbacks {
            Callbacks::Network => {
                let endpoint = Endpoint::start(RootdConfig::default()).map_err(RootToolsError::Listen)?;
                let registration = register(&endpoint.rootd)?;
                Ok(Self(Mode::Network { endpoint, registration }))
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
                Ok(Self(Mode::Intercept(interceptor.map_err(RootToolsError::Random)?)))
            }
        }
    }

    /// The variables for the worker's environment.
    #[must_use]
    pub fn variables(&self) -> Vec<(OsString, OsString)> {
        match &self.0 {
            Mode::Network { endpoint, registration } => {
                tool_variables(registration, &registration.tools_url(&endpoint.base_url)).to_vec()
            }
            Mode::Intercept(_) | Mode::Nothing => Vec::new(),
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
            Mode::Intercept(interceptor) => interceptor.execute_until(session, call, stop).await,
            Mode::Network { .. } | Mode::Nothing => Ok(session.execute_until(call, stop).await?),
        }
    }
}
