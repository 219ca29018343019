//! Root tools of the session of `rlm exec` and `rlm repl`.

use std::process::ExitCode;
use std::sync::Arc;

use rlm_core::env::SESSION_NAMES;
use rlm_env::rollout::Callbacks;
use rlm_env::unstable::RootTools;
use rlm_env::{ReplLanguage, SessionConfig};
use rlm_rootd::nav::Navigation;
use rlm_rootd::{McpServers, Tool};

use crate::config::table::OF_SESSIONS;
use crate::config::{Settings, ToolFlags};
use crate::doctor::tell_of_confinement;
use crate::environment::Environment;
use crate::mcp_servers::DeclaredServers;
use crate::rollouts::live_tools;
use crate::signals::AnyEndSignal;

/// The tools that the session's code can call, and how it calls them.
#[derive(Default)]
pub(crate) struct SessionTools {
    chosen: Option<(Vec<Tool>, Callbacks)>,
    mcp_servers: DeclaredServers,
}

impl SessionTools {
    /// The tools of the flags, called over the network unless `callbacks` says otherwise. Without either the session has
    /// only the tools that its environment names already.
    pub(crate) fn choose(
        flags: &ToolFlags,
        settings: &Settings,
        callbacks: Option<Callbacks>,
        session: &SessionConfig,
        environment: &Environment,
    ) -> anyhow::Result<Self> {
        let flags = &flags.0;
        let is_of_tools = |name: &&str| OF_SESSIONS.iter().all(|setting| setting.name != *name);
        let is_asked_for = flags.values.keys().any(is_of_tools) || flags.file.is_some();
        let Some(callbacks) = callbacks.or(is_asked_for.then_some(Callbacks::Network)) else {
            return Ok(Self::default());
        };
        let mut tools = live_tools(settings, environment)?;
        tools.extend(Navigation::new(&session.fs_root)?.tools());
        let mcp_servers = DeclaredServers::read(settings, environment)?;
        Ok(Self { chosen: Some((tools, callbacks)), mcp_servers })
    }

    /// Starts the tools, and does this work with a session and with them. A signal ends it.
    pub(crate) fn run(
        self,
        language: ReplLanguage,
        mut session: SessionConfig,
        environment: &Environment,
        work: impl AsyncFnOnce(SessionConfig, RootTools) -> anyhow::Result<ExitCode>,
    ) -> anyhow::Result<ExitCode> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let ended = runtime.block_on(async {
            let mut ends = AnyEndSignal::catch()?;
            tell_of_confinement(environment).await;
            let (tools, mcp_servers) = tokio::select! {
                started = self.start(language, &mut session) => started?,
                status = ends.next() => return Ok(ExitCode::from(status)),
            };
            // Dropping the session's future ends the session. Ctrl-C is for the call that runs.
            let ended = tokio::select! {
                ended = work(session, tools) => ended,
                status = ends.ends.next() => Ok(ExitCode::from(status)),
            };
            mcp_servers.stop().await;
            ended
        });
        // A tool that still reads must not delay the end.
        runtime.shutdown_background();
        ended
    }

    /// Starts the tools, and names them in the session's environment. Those of MCP servers work until the servers are stopped.
    async fn start(
        self,
        language: ReplLanguage,
        session: &mut SessionConfig,
    ) -> anyhow::Result<(RootTools, McpServers)> {
        let (mut tools, callbacks) = match self.chosen {
            None => (Vec::new(), Callbacks::Network),
            Some(chosen) => {
                session.env.retain(|(name, _)| !SESSION_NAMES.iter().any(|of_tools| name == of_tools));
                chosen
            }
        };
        let mcp_servers = self.mcp_servers.start(&mut tools).await?;
        let tools = RootTools::start(tools, callbacks, language, Arc::default())?;
        session.env.extend(tools.variables());
        Ok((tools, mcp_servers))
    }
}
