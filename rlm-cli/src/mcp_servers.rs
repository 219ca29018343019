//! MCP servers of the user, whose tools are root tools.

use rlm_core::error::with_causes;
use rlm_rootd::{McpError, McpServer, McpServers, Tool, load_mcp_servers};

use crate::config::Settings;
use crate::config::table::MCP;
use crate::environment::Environment;
use crate::files::{directory_of, read_named};
use crate::usage::{Usage, refuse};

/// The servers of the settings, before they are started.
#[derive(Clone, Debug, Default)]
pub(crate) struct DeclaredServers {
    servers: Vec<McpServer>,
    environment: Environment,
}

impl DeclaredServers {
    /// Reads the file.
    pub(crate) fn read(settings: &Settings, environment: &Environment) -> anyhow::Result<Self> {
        let Some(file) = settings.get(&MCP) else { return Ok(Self::default()) };
        let text = read_named(&file, "the MCP servers")?;
        let servers = load_mcp_servers(&text, &directory_of(&file)?, environment.variables())
            .map_err(|error| Usage::new(format!("{}: {}", file.display(), with_causes(&error))))?;
        Ok(Self { servers, environment: environment.clone() })
    }

    /// Starts the servers, and adds their tools to these.
    pub(crate) async fn start(&self, tools: &mut Vec<Tool>) -> anyhow::Result<McpServers> {
        if self.servers.is_empty() {
            return Ok(McpServers::default());
        }
        let started = McpServers::start(self.servers.clone(), self.environment.variables()).await;
        let servers = started.map_err(|error| match error {
            McpError::Twice { .. } => Usage::new(error.to_string()).into(),
            error => anyhow::Error::new(error),
        })?;
        let built_in = super::rollouts::BUILT_IN_TOOLS;
        let is_taken = |name| built_in.contains(&name) || tools.iter().any(|tool| tool.name() == name);
        if let Some(tool) = servers.tools().iter().find(|tool| is_taken(tool.name())) {
            let name = tool.name();
            refuse!("the tool {name} of an MCP server has the name of another tool: rename the server");
        }
        tools.extend_from_slice(servers.tools());
        Ok(servers)
    }
}
