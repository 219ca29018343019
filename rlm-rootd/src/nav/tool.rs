//! A navigation tool as a root tool.

use std::sync::Arc;
use std::time::Instant;

use rlm_core::root_tool::{Call, Reply};
use serde_json::Value as Json;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

use super::context::Context;
use super::definitions::{Arguments, Definition};
use super::fault::Fault;
use super::stop::Stop;
use crate::tool::{RootTool, ToolError, ToolFuture, due};

/// One navigation tool over a context.
#[derive(Debug)]
pub(super) struct NavigationTool {
    definition: &'static Definition,
    parameters: Json,
    shared: Arc<Shared>,
}

/// State that the tools of a context share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) context: Context,
    /// Permits for running calls.
    pub(super) permits: Arc<Semaphore>,
}

impl NavigationTool {
    pub(super) fn new(definition: &'static Definition, shared: Arc<Shared>) -> Self {
        Self { definition, parameters: definition.parameters(), shared }
    }
}

impl RootTool for NavigationTool {
    fn name(&self) -> &str {
        self.definition.name
    }

    fn description(&self) -> &str {
        self.definition.description
    }

    fn parameters(&self) -> &Json {
        &self.parameters
    }

    fn call(&self, call: Call, deadline: Instant) -> ToolFuture<'_> {
        Box::pin(async move {
            let stop = Stop::at(due(deadline, Instant::now()));
            // The work ends soon after the future is dropped, and then releases its permit.
            let _cancel = stop.cancel_on_drop();
            let permits = self.shared.permits.clone();
            let permit = permits.acquire_owned().await.expect("nobody closes the semaphore");
            let (shared, run) = (self.shared.clone(), self.definition.run);
            let work = move || {
                let checked = stop.check().map_err(Fault::from).and_then(|()| shared.context.check());
                let done = checked.and_then(|()| run(&shared.context, &Arguments(call), &stop));
                drop(permit);
                done
            };
            let done = spawn_blocking(work).await.map_err(|error| ToolError::Failed(error.to_string()))?;
            done.map(Reply::of).map_err(|fault| fault.of_tool(self.name()))
        })
    }
}
