//! The endpoint that sessions call root tools on, and the variables that tell a worker about it.

use std::ffi::OsString;
use std::io;

use rlm_core::env;
use rlm_rootd::{Listener, Registration, Rootd, RootdConfig};
use serde_json::Value as Json;
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};

/// An endpoint for root tools on a loopback port. Dropping it ends it.
#[derive(Debug)]
pub(crate) struct Endpoint {
    pub(crate) rootd: Rootd,
    pub(crate) base_url: String,
    serving: JoinHandle<io::Result<()>>,
    stop: DropGuard,
}

impl Endpoint {
    /// Starts the endpoint.
    ///
    /// # Errors
    /// The port cannot be opened.
    pub(crate) fn start(config: RootdConfig) -> io::Result<Self> {
        let listener = Listener::tcp(([127, 0, 0, 1], 0).into())?;
        let base_url = listener.base_url().to_owned();
        let rootd = Rootd::new(config);
        let stop = CancellationToken::new();
        let (server, stopped) = (rootd.clone(), stop.clone());
        let serving = tokio::spawn(async move { server.serve(listener, stopped.cancelled()).await });
        Ok(Self { rootd, base_url, serving, stop: stop.drop_guard() })
    }

    /// Ends the endpoint and waits until it has ended.
    pub(crate) async fn close(self) {
        drop(self.stop);
        // A server that panicked has already logged it.
        let _served = self.serving.await;
    }
}

/// The part of the host's environment that a worker gets: no keys, and no variables of another session's root tools.
pub(crate) fn host_variables(host: &[(OsString, OsString)]) -> Vec<(OsString, OsString)> {
    let mut variables = env::for_workers(host);
    variables.retain(|(name, value)| {
        !value.is_empty() && !env::SESSION_NAMES.iter().any(|of_tools| name == of_tools)
    });
    for (name, value) in &mut variables {
        // Relative paths would be wrong: the session has another working directory.
        if name == "TMPDIR"
            && let Ok(whole) = std::path::absolute(&*value)
        {
            *value = whole.into();
        }
    }
    variables
}

/// The variables by which a worker finds its root tools.
pub(crate) fn tool_variables(registration: &Registration, tools_url: &str) -> [(OsString, OsString); 3] {
    let names = Json::from(registration.tools.clone()).to_string();
    [
        (env::ROOT_TOOL_NAMES, names.as_str()),
        (env::ROOT_TOOL_URL, tools_url),
        (env::INTERCEPTION_SECRET, registration.secret.reveal()),
    ]
    .map(|(name, value)| (name.into(), value.into()))
}
