//! A server and its present connection.

use std::sync::Arc;
use std::time::Duration;

use rlm_core::pickle::Value;
use serde_json::{Map, Value as Json};
use tokio::sync::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::connection::{Connection, Offered};
use super::spec::McpServer;
use crate::program::{Spawner, Variables};
use crate::tool::ToolError;

/// The parts that all servers share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) spawner: Spawner,
    pub(super) environment: Variables,
    /// Time for a start.
    pub(super) limit: Duration,
    /// Cancelled when the servers are to end.
    pub(super) ended: CancellationToken,
}

/// A server. If its connection is lost, the next call starts it again.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) spec: Arc<McpServer>,
    shared: Arc<Shared>,
    /// Locked for as long as a start takes.
    connection: Mutex<Option<Arc<Connection>>>,
}

impl Server {
    /// Starts a server, and lists its tools.
    ///
    /// # Errors
    /// A sentence that names the server.
    pub(super) async fn start(spec: McpServer, shared: Arc<Shared>) -> Result<(Self, Vec<Offered>), String> {
        let deadline = Instant::now() + shared.limit;
        let server = Self { spec: Arc::new(spec), shared, connection: Mutex::default() };
        let tools = server.connection().await?.tools(deadline).await?;
        Ok((server, tools))
    }

    /// Calls a tool.
    ///
    /// # Errors
    /// [`ToolError`].
    pub(super) async fn call(&self, tool: &str, arguments: Map<String, Json>) -> Result<Value, ToolError> {
        let connection = self.connection().await.map_err(ToolError::Failed)?;
        connection.call(tool, arguments).await
    }

    /// Ends the server. No call starts it again.
    pub(super) async fn stop(&self) {
        if let Some(connection) = self.connection.lock().await.take() {
            connection.stop().await;
        }
    }

    /// Kills the servers at once. A start that is under way sees that they have ended.
    pub(super) fn kill(&self) {
        if let Ok(mut connection) = self.connection.try_lock() {
            connection.take();
        }
    }

    /// The connection, which is made if it is missing.
    async fn connection(&self) -> Result<Arc<Connection>, String> {
        let mut held = self.connection.lock().await;
        if let Some(connection) = held.as_ref().filter(|connection| connection.is_open()) {
            return Ok(connection.clone());
        }
        // The process group of a lost server is killed.
        *held = None;
        let Shared { spawner, environment, limit, ended } = &*self.shared;
        let opened = tokio::select! {
            biased;
            () = ended.cancelled() => Err(self.spec.about("has been stopped")),
            opened = Connection::open(&self.spec, spawner, environment, *limit) => opened,
        };
        Ok(held.insert(Arc::new(opened?)).clone())
    }
}
