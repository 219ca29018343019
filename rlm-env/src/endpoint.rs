//! What a session calls back into, and how its worker gets to know.

use std::ffi::OsString;
use std::io;

use rlm_core::env;
use rlm_rootd::{Listener, Registration, Rootd, RootdConfig};
use serde_json::Value as Json;
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};

/// An endpoint for root tools, on a port of the loopback device. It ends with this value.
#[derive(Debug)]
pub(crate) struct Endpoint {
    pub(crate) rootd: Rootd,
    pub(crate) base_url: String,
    serving: JoinHandle<io::Result<()>>,
    stop: DropGuard,
}

impl Endpoint {
    /// Starts it.
    ///
    /// # Errors
    /// It cannot listen.
    pub(crate) fn start(config: RootdConfig) -> io::Result<Self> {
        let listener = Listener::tcp(([127, 0, 0, 1], 0).into())?;
        let base_url = listener.base_url().to_owned();
        let rootd = Rootd::new(config);
        let stop = CancellationToken::new();
        let (server, stopped) = (rootd.clone(), stop.clone());
        let serving = tokio::spawn(async move { server.serve(listener, stopped.cancelled()).await });
        Ok(Self { rootd, base_url, serving, stop: stop.drop_guard() })
    }

    /// Ends it, and waits until it has ended.
    pub(crate) async fn close(self) {
        drop(self.stop);
        // A server that panicked has said so.
        let _served = self.serving.await;
    }
}

/// What a worker gets of the host's environment: no keys, and nothing of another session's root tools.
pub(crate) fn host_variables(host: &[(OsString, OsString)]) -> Vec<(OsString, OsString)> {
    let mut variables = env::for_workers(host);
    variables.retain(|(name, value)| {
        !value.is_empty() && !env::SESSION_NAMES.iter().any(|of_tools| name == of_tools)
    });
    for (name, value) in &mut variables {
        // The session works in another directory than we do.
        if name == "TMPDIR"
            && let Ok(whole) = std::path::absolute(&*value)
        {
            *value = whole.into();
        }
    }
    variables
}

/// What a worker gets to know of its root tools.
pub(crate) fn tool_variables(registration: &Registration, tools_url: &str) -> [(OsString, OsString); 3] {
    let names = Json::from(registration.tools.clone()).to_string();
    [
        (env::ROOT_TOOL_NAMES, names.as_str()),
        (env::ROOT_TOOL_URL, tools_url),
        (env::INTERCEPTION_SECRET, registration.secret.reveal()),
    ]
    .map(|(name, value)| (name.into(), value.into()))
}
