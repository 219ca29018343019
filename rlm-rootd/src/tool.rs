//! What a root tool is.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Instant;

use rlm_core::root_tool::{Call, Reply};
use serde_json::Value as Json;

use crate::signature::Signature;

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

impl<T: RootTool + ?Sized> RootTool for Arc<T> {
    fn name(&self) -> &str {
        (**self).name()
    }

    fn description(&self) -> &str {
        (**self).description()
    }

    fn parameters(&self) -> &Json {
        (**self).parameters()
    }

    fn call(&self, call: Call, deadline: Instant) -> ToolFuture<'_> {
        (**self).call(call, deadline)
    }
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

/// A root tool with its schema compiled. A clone is the same tool.
#[derive(Clone, Debug)]
pub struct Tool(Arc<Parts>);

#[derive(Debug)]
struct Parts {
    tool: Arc<dyn RootTool>,
    signature: Signature,
}

impl Tool {
    /// Takes a tool whose name is an identifier and whose schema is one.
    ///
    /// # Errors
    /// [`DefinitionError`] names the tool.
    pub fn new(tool: impl RootTool + 'static) -> Result<Self, DefinitionError> {
        let name = tool.name();
        if !is_identifier(name) {
            let reason = "the name must be an identifier: letters, digits and _, no digit first".to_owned();
            return Err(DefinitionError { tool: name.to_owned(), reason });
        }
        let signature = Signature::new(name, tool.parameters())
            .map_err(|reason| DefinitionError { tool: name.to_owned(), reason })?;
        Ok(Self(Arc::new(Parts { tool: Arc::new(tool), signature })))
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.0.tool.name()
    }

    /// What it does.
    #[must_use]
    pub fn description(&self) -> &str {
        self.0.tool.description()
    }

    /// Its schema.
    #[must_use]
    pub fn parameters(&self) -> &Json {
        self.0.tool.parameters()
    }

    /// The tool as it was given.
    #[must_use]
    pub fn inner(&self) -> Arc<dyn RootTool> {
        self.0.tool.clone()
    }

    /// Checks the arguments and runs it, as the endpoint does.
    ///
    /// # Errors
    /// [`ToolError`]; of kind `Arguments` where they do not fit the schema.
    pub async fn run(&self, call: Call, deadline: Instant) -> Result<Reply, ToolError> {
        self.check(&call).map_err(ToolError::Arguments)?;
        self.call(call, deadline).await
    }

    /// Checks arguments against the schema.
    pub(crate) fn check(&self, call: &Call) -> Result<(), String> {
        self.0.signature.check(call)
    }

    /// Runs it.
    pub(crate) fn call(&self, call: Call, deadline: Instant) -> ToolFuture<'_> {
        self.0.tool.call(call, deadline)
    }
}

/// A tool that cannot be taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("tool '{tool}': {reason}")]
pub struct DefinitionError {
    /// Its name.
    pub tool: String,
    /// Why not.
    pub reason: String,
}

fn is_identifier(name: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_';
    let mut bytes = name.bytes();
    bytes.next().is_some_and(is_letter) && bytes.all(|byte| is_letter(byte) || byte.is_ascii_digit())
}
