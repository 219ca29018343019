//! What a root tool is.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::time::Instant;

use rlm_core::root_tool::{Call, Reply};
use serde_json::Value as Json;

/// A call under way. Dropping the future is how a call is cancelled: when its caller goes away or its time is over.
pub type ToolFuture<'a> = Pin<Box<dyn Future<Output = Result<Reply, ToolError>> + Send + 'a>>;

/// A function on the host that code in a session calls by name.
pub trait RootTool: fmt::Debug + Send + Sync {
    /// Its name: an identifier.
    fn name(&self) -> &str;

    /// What it does, for a model to read.
    fn description(&self) -> &str;

    /// A JSON schema of its parameters, of type object. Arguments by position take the names of `properties` in their
    /// order.
    fn parameters(&self) -> &Json;

    /// Runs it. The arguments are checked against [`Self::parameters`] already.
    fn call(&self, call: Call, deadline: Instant) -> ToolFuture<'_>;
}

/// A call that failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ToolError {
    /// The arguments are not those that the tool takes.
    #[error("{0}")]
    Arguments(String),
    /// The tool itself failed.
    #[error("{0}")]
    Failed(String),
}
