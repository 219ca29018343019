//! A navigation tool as a root tool.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rlm_core::pickle::Value;
use rlm_core::root_tool::{Call, Reply};
use serde_json::Value as Json;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

use super::context::Context;
use super::definitions::Operation;
use super::fault::Fault;
use super::stop::Stop;
use super::{info, list, outline, read, search};
use crate::{RootTool, ToolError, ToolFuture};

/// One navigation tool over a context.
#[derive(Debug)]
pub(super) struct NavigationTool {
    operation: Operation,
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
    pub(super) fn new(operation: Operation, shared: Arc<Shared>) -> Self {
        Self { operation, parameters: operation.parameters(), shared }
    }
}

impl RootTool for NavigationTool {
    fn name(&self) -> &str {
        self.operation.name()
    }

    fn description(&self) -> &str {
        self.operation.description()
    }

    fn parameters(&self) -> &Json {
        &self.parameters
    }

    fn call(&self, call: Call, deadline: Instant) -> ToolFuture<'_> {
        Box::pin(async move {
            let request = Request::of(self.operation, &call).map_err(|fault| fault.of_tool(self.name()))?;
            let stop = Stop::at(deadline - margin(deadline, Instant::now()));
            // The work ends soon after the future is dropped, and then releases its permit.
            let _cancel = stop.cancel_on_drop();
            let permits = self.shared.permits.clone();
            let permit = permits.acquire_owned().await.expect("nobody closes the semaphore");
            let shared = self.shared.clone();
            let work = move || {
                let done = request.run(&shared.context, &stop);
                drop(permit);
                done
            };
            let done = spawn_blocking(work).await.map_err(|error| ToolError::Failed(error.to_string()))?;
            done.map(Reply::of).map_err(|fault| fault.of_tool(self.name()))
        })
    }
}

/// Time that is kept back for returning the result: a twentieth, at most a second.
fn margin(deadline: Instant, now: Instant) -> Duration {
    (deadline.saturating_duration_since(now) / 20).min(Duration::from_secs(1))
}

/// A call with its arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Request {
    Info,
    List(String),
    Outline(String),
    Read(String, usize),
    Search(String, usize, String),
}

impl Request {
    /// The arguments, by position or by name, with defaults.
    fn of(operation: Operation, call: &Call) -> Result<Self, Fault> {
        let argument = |place: usize, name: &str| call.args.get(place).or_else(|| call.kwargs.get(name));
        Ok(match operation {
            Operation::Info => Self::Info,
            Operation::List => Self::List(text("scope", argument(0, "scope"), Some(""))?),
            Operation::Outline => Self::Outline(text("path", argument(0, "path"), Some(""))?),
            Operation::Read => Self::Read(
                text("symbol_or_path", argument(0, "symbol_or_path"), None)?,
                number("chunk_index", argument(1, "chunk_index"), 0)?,
            ),
            Operation::Search => Self::Search(
                text("pattern", argument(0, "pattern"), None)?,
                number("max_results", argument(1, "max_results"), 20)?.clamp(1, search::MAX_RESULTS),
                text("path", argument(2, "path"), Some(""))?,
            ),
        })
    }

    fn run(self, context: &Context, stop: &Stop) -> Result<Value, Fault> {
        stop.check()?;
        context.check()?;
        match self {
            Self::Info => info::info(context, stop),
            Self::List(scope) => list::list(context, &scope, stop),
            Self::Outline(path) => outline::outline(context, &path, stop),
            Self::Read(what, index) => read::read(context, &what, index, stop),
            Self::Search(pattern, max, path) => search::search(context, &pattern, max, &path, stop),
        }
    }
}

fn text(name: &str, value: Option<&Value>, default: Option<&str>) -> Result<String, Fault> {
    match (value, default) {
        (Some(Value::Str(text)), _) => Ok(text.to_string()),
        (Some(Value::Int(number)), _) => Ok(number.to_string()),
        (Some(other), _) => Err(Fault::refused(format!("{name} must be a str, not {}", other.type_name()))),
        (None, Some(default)) => Ok(default.to_owned()),
        (None, None) => Err(Fault::refused(format!("{name} is missing"))),
    }
}

fn number(name: &str, value: Option<&Value>, default: usize) -> Result<usize, Fault> {
    let refuse = || Err(Fault::refused(format!("{name} must be an int of 0 or more")));
    match value {
        None => Ok(default),
        Some(Value::Int(number)) => number.to_string().parse().or_else(|_too_large| refuse()),
        Some(_) => refuse(),
    }
}
