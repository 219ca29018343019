//! MCP servers of the user: each of their tools is a root tool, `SERVER_TOOL`.
//!
//! Servers start once, together, and serve all calls. A server that ends takes its running calls with it: their errors say
//! how it ended and what it wrote to standard error last. The next call starts it again, once, so a server that cannot
//! start costs each call an error and never a wait beyond the time limit of a start. No call is sent twice.
//!
//! A program gets a small environment and the variables that are given for it. It runs in a process group of its own,
//! which ends with [`McpServers`]; the program itself is killed when this process dies. The values of its variables, and
//! of the headers for a server over HTTP, are cut out of errors.

mod connection;
mod file;
mod server;
mod spec;
mod tool;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{join_all, try_join_all};
use tokio_util::sync::CancellationToken;

pub use self::file::{McpFileError, load_mcp_servers};
use self::server::{Server, Shared};
pub use self::spec::{McpServer, McpTransport};
use self::tool::root_tool;
use crate::program::Spawner;
use crate::tool::{DefinitionError, Tool};

/// Time for a server's start, the list of its tools included.
const START_LIMIT: Duration = Duration::from_secs(30);

/// Running servers. Dropping this value kills them; [`Self::stop`] gives them time.
#[derive(Debug, Default)]
pub struct McpServers {
    servers: Vec<Arc<Server>>,
    tools: Vec<Tool>,
    ended: CancellationToken,
}

/// Why servers cannot be used. None is left running.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum McpError {
    /// A server does not start, does not answer or does not speak MCP: a sentence that names it, with the end of its
    /// standard error.
    #[error("{0}")]
    Server(String),
    /// Two tools would have one name.
    #[error("the tool '{}' of the MCP server '{}' and the tool '{}' of '{}' would both be named {name}: rename a server", one.1, one.0, other.1, other.0)]
    Twice {
        /// The name in sessions.
        name: String,
        /// A server and its tool.
        one: (String, String),
        /// The other ones.
        other: (String, String),
    },
    /// A tool's schema is not usable.
    #[error(transparent)]
    Definition(#[from] DefinitionError),
    /// The thread that starts programs cannot be started.
    #[error("no programs can be started")]
    Spawner(#[source] std::io::Error),
}

impl McpServers {
    /// Starts servers and lists their tools, all at once and within 30 s each. Must be called in a runtime. The variables
    /// are those of this process: servers get a few of them, and `HTTP_PROXY` and its like count for servers over HTTP.
    ///
    /// # Errors
    /// [`McpError`] of the first server that fails.
    pub async fn start(
        servers: Vec<McpServer>,
        environment: &BTreeMap<OsString, OsString>,
    ) -> Result<Self, McpError> {
        Self::start_within(START_LIMIT, servers, environment).await
    }

    async fn start_within(
        limit: Duration,
        servers: Vec<McpServer>,
        environment: &BTreeMap<OsString, OsString>,
    ) -> Result<Self, McpError> {
        let shared = Arc::new(Shared {
            spawner: Spawner::start().map_err(McpError::Spawner)?,
            environment: environment.clone(),
            limit,
            ended: CancellationToken::new(),
        });
        let started = Self::start_all(servers, &shared).await;
        if started.is_err() {
            shared.spawner.reaped().await;
        }
        started
    }

    async fn start_all(servers: Vec<McpServer>, shared: &Arc<Shared>) -> Result<Self, McpError> {
        let starting = servers.into_iter().map(|spec| Server::start(spec, shared.clone()));
        let started = try_join_all(starting).await.map_err(McpError::Server)?;
        let mut running = Self { servers: Vec::new(), tools: Vec::new(), ended: shared.ended.clone() };
        let mut origins: BTreeMap<String, (String, String)> = BTreeMap::new();
        for (server, offered) in started {
            let server = Arc::new(server);
            for offered in offered.into_iter().map(Arc::new) {
                let tool = root_tool(&server, &offered)?;
                let origin = (server.spec.name.clone(), offered.name.clone());
                if let Some(one) = origins.insert(tool.name().to_owned(), origin.clone()) {
                    return Err(McpError::Twice { name: tool.name().to_owned(), one, other: origin });
                }
                running.tools.push(tool);
            }
            running.servers.push(server);
        }
        Ok(running)
    }

    /// The tools of all servers, in the order of the servers. A call of one fails once the servers have ended.
    #[must_use]
    pub fn tools(&self) -> &[Tool] {
        &self.tools
    }

    /// Ends the servers: a program's input is closed; one that is still there after a second gets SIGTERM, and after
    /// another its process group is killed.
    pub async fn stop(self) {
        self.ended.cancel();
        join_all(self.servers.iter().map(|server| server.stop())).await;
    }
}

impl Drop for McpServers {
    fn drop(&mut self) {
        self.ended.cancel();
        for server in &self.servers {
            server.kill();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// The error of a server that is this shell script.
    async fn error_of(script: &str, limit: Duration) -> String {
        let transport = McpTransport::Stdio {
            command: "sh".to_owned(),
            args: vec!["-c".to_owned(), script.to_owned()],
            env: vec![("TOKEN".to_owned(), "a-long-secret".to_owned())],
            cwd: Path::new("/").to_owned(),
        };
        let environment = BTreeMap::from([("PATH".into(), "/usr/bin:/bin".into())]);
        let server = McpServer { name: "x".to_owned(), transport };
        McpServers::start_within(limit, vec![server], &environment).await.unwrap_err().to_string()
    }

    #[tokio::test]
    async fn a_server_that_does_not_serve_is_an_error_with_its_last_words() {
        let long = Duration::from_secs(60);
        assert_eq!(
            error_of("echo oh no >&2; exit 3", long).await,
            "the MCP server 'x' exited with status 3: oh no"
        );
        assert_eq!(
            error_of("echo the token is $TOKEN >&2; exit 3", long).await,
            "the MCP server 'x' exited with status 3: the token is [key]"
        );
        assert_eq!(error_of("kill -9 $$", long).await, "the MCP server 'x' was killed by SIGKILL");
        let many = "i=0; while [ $i -lt 5000 ]; do echo line $i >&2; i=$((i + 1)); done; exit 1";
        let error = error_of(many, long).await;
        let expected: Vec<_> = (4990..5000).map(|at| format!("line {at}")).collect();
        assert_eq!(error, format!("the MCP server 'x' exited with status 1: {}", expected.join("\n")));
        let error = error_of("head -c 100000 /dev/zero | tr '\\0' x >&2; exit 1", long).await;
        assert_eq!(error.len(), "the MCP server 'x' exited with status 1: ".len() + (2 << 10));
        assert_eq!(
            error_of("exec >&-; exec sleep 1000", long).await,
            "the MCP server 'x' closed the connection"
        );
    }

    #[tokio::test]
    async fn a_server_that_never_answers_is_an_error() {
        let limit = Duration::from_millis(300);
        assert_eq!(
            error_of("echo thinking >&2; exec sleep 1000", limit).await,
            "the MCP server 'x' did not answer within 0.3 s: thinking"
        );
        // Nobody accepts connections of this listener.
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/mcp", listener.local_addr().unwrap());
        let server =
            McpServer { name: "x".to_owned(), transport: McpTransport::Http { url, headers: Vec::new() } };
        let error = McpServers::start_within(limit, vec![server], &BTreeMap::new()).await.unwrap_err();
        assert_eq!(error.to_string(), "the MCP server 'x' did not answer within 0.3 s");
    }

    #[tokio::test]
    async fn a_program_that_is_missing_and_an_address_that_is_none_are_named() {
        let start = async |transport| {
            let server = McpServer { name: "x".to_owned(), transport };
            McpServers::start(vec![server], &BTreeMap::new()).await.unwrap_err().to_string()
        };
        let (args, env, cwd) = (Vec::new(), Vec::new(), Path::new("/").to_owned());
        let missing = McpTransport::Stdio { command: "no-such".to_owned(), args, env, cwd };
        assert_eq!(start(missing).await, "the MCP server 'x' cannot be started: no program no-such on PATH");
        let http = |url: &str, headers| McpTransport::Http { url: url.to_owned(), headers };
        assert_eq!(
            start(http("host/mcp", Vec::new())).await,
            "the MCP server 'x' cannot be reached: its url does not begin with http:// or https://"
        );
        assert_eq!(
            start(http("http://127.0.0.1/", vec![("a b".to_owned(), "c".to_owned())])).await,
            "the MCP server 'x' cannot be reached: the header a b is not valid"
        );
        assert_eq!(
            start(http("http://127.0.0.1:1/", Vec::new())).await,
            "the MCP server 'x' cannot be reached: Connection refused (os error 111)"
        );
    }
}
