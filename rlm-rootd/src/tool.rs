//! Root tools: functions on the host that code in a session calls by name.

use std::fmt;
use std::future::{Future, ready};
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rlm_core::ids::is_identifier;
use rlm_core::root_tool::{Call, Reply};
use serde_json::Value as Json;

use crate::paid::Receipt;
use crate::signature::Signature;

/// A running call. Dropping the future cancels the call: when its caller goes away or its time is over.
pub type ToolFuture<'a> = Pin<Box<dyn Future<Output = Result<Reply, ToolError>> + Send + 'a>>;

/// The future of a call whose results are paid for.
pub type PaidToolFuture<'a> =
    Pin<Box<dyn Future<Output = Result<(Reply, Option<Receipt>), ToolError>> + Send + 'a>>;

/// A function on the host that code in a session calls by name. [`Tool::from_fn`] makes one from a closure.
pub trait RootTool: fmt::Debug + Send + Sync {
    /// The tool's name: an identifier.
    fn name(&self) -> &str;

    /// A sentence on what the tool does, for a model to read.
    fn description(&self) -> &str;

    /// A JSON schema of the parameters, of type object. Arguments by position take the names of `properties` in their
    /// order.
    fn parameters(&self) -> &Json;

    /// True if the tool checks its arguments itself, and [`Self::parameters`] only describes them. False by default.
    fn checks_arguments(&self) -> bool {
        false
    }

    /// The time limit of a call; by default that of the rollout's calls.
    fn time_limit(&self) -> Option<Duration> {
        None
    }

    /// Runs the tool. The arguments are checked against [`Self::parameters`] already, unless it does so itself.
    fn call(&self, call: Call, deadline: Instant) -> ToolFuture<'_>;

    /// Makes a call, with a receipt for results that must not be paid for twice, signed once the reply has reached the code.
    fn call_with_receipt(&self, call: Call, deadline: Instant) -> PaidToolFuture<'_> {
        let calling = self.call(call, deadline);
        Box::pin(async move { Ok((calling.await?, None)) })
    }
}

/// A call whose caller is at hand, and certainly gets the reply.
#[must_use]
pub fn delivered(calling: PaidToolFuture<'_>) -> ToolFuture<'_> {
    Box::pin(async move {
        let (reply, receipt) = calling.await?;
        if let Some(receipt) = receipt {
            receipt.sign();
        }
        Ok(reply)
    })
}

/// The moment at which a call that is made now needs its result: a twentieth of its time, a second at most, is for the reply.
pub(crate) fn due(deadline: Instant, now: Instant) -> Instant {
    deadline - (deadline.saturating_duration_since(now) / 20).min(Duration::from_secs(1))
}

/// A call that failed. A text becomes [`Self::Failed`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ToolError {
    /// The arguments do not fit the tool.
    #[error("{0}")]
    Arguments(String),
    /// The tool itself failed.
    #[error("{0}")]
    Failed(String),
}

impl From<String> for ToolError {
    fn from(reason: String) -> Self {
        Self::Failed(reason)
    }
}

impl From<&str> for ToolError {
    fn from(reason: &str) -> Self {
        Self::Failed(reason.to_owned())
    }
}

/// A root tool with its schema compiled. A clone is the same tool.
#[derive(Clone, Debug)]
pub struct Tool(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    tool: Arc<dyn RootTool>,
    signature: Signature,
}

impl Tool {
    /// Takes a tool.
    ///
    /// # Errors
    /// [`DefinitionError`] where the name is not an identifier or the schema is not valid.
    pub fn new(tool: impl RootTool + 'static) -> Result<Self, DefinitionError> {
        let name = tool.name();
        if !is_identifier(name) {
            let reason = "the name must be an identifier: letters, digits and _, no digit first".to_owned();
            return Err(DefinitionError { tool: name.to_owned(), reason });
        }
        let signature = Signature::new(name, tool.parameters())
            .map_err(|reason| DefinitionError { tool: name.to_owned(), reason })?;
        Ok(Self(Arc::new(Inner { tool: Arc::new(tool), signature })))
    }

    /// A tool from a closure, which runs on a thread that serves: it must not block. The description is for a model to read;
    /// the JSON schema names and checks the parameters, and arguments by position take the names of `properties` in their
    /// order. The result may be anything that becomes a [`Reply`]: a str, a number, a
    /// [`Value`](rlm_core::pickle::Value).
    ///
    /// ```
    /// use rlm_core::pickle::Value;
    /// use rlm_rootd::Tool;
    /// use serde_json::json;
    ///
    /// let shout = Tool::from_fn(
    ///     "shout",
    ///     "Returns a text in capitals.",
    ///     json!({"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}),
    ///     |call| match call.argument(0, "text") {
    ///         Some(Value::Str(text)) => Ok(text.to_uppercase()),
    ///         _ => Err("text must be a str".into()),
    ///     },
    /// )?;
    /// assert_eq!(shout.name(), "shout");
    /// # Ok::<(), rlm_rootd::DefinitionError>(())
    /// ```
    ///
    /// # Errors
    /// [`DefinitionError`], as of [`Self::new`].
    pub fn from_fn<T: Into<Reply>>(
        name: impl Into<String>,
        description: impl Into<String>,
        parameters: Json,
        function: impl Fn(Call) -> Result<T, ToolError> + Send + Sync + 'static,
    ) -> Result<Self, DefinitionError> {
        let function = move |call| ready(function(call).map(Into::into));
        Self::from_async_fn::<Reply, _>(name, description, parameters, function)
    }

    /// A tool from an async closure, as [`Self::from_fn`]. A call that is cancelled drops the closure's future.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use rlm_rootd::Tool;
    /// use serde_json::json;
    ///
    /// let parameters = json!({"type": "object", "properties": {}});
    /// let nap = Tool::from_async_fn("nap", "Waits a second.", parameters, async |_call| {
    ///     tokio::time::sleep(Duration::from_secs(1)).await;
    ///     Ok("rested")
    /// })?;
    /// # Ok::<(), rlm_rootd::DefinitionError>(())
    /// ```
    ///
    /// # Errors
    /// [`DefinitionError`], as of [`Self::new`].
    pub fn from_async_fn<T: Into<Reply>, F: Future<Output = Result<T, ToolError>> + Send + 'static>(
        name: impl Into<String>,
        description: impl Into<String>,
        parameters: Json,
        function: impl Fn(Call) -> F + Send + Sync + 'static,
    ) -> Result<Self, DefinitionError> {
        let function = move |call| -> ToolFuture<'static> {
            let result = function(call);
            Box::pin(async move { result.await.map(Into::into) })
        };
        let (name, description) = (name.into(), description.into());
        Self::new(FnTool { name, description, parameters, function: Box::new(function) })
    }

    /// The tool's name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.0.tool.name()
    }

    /// A sentence on what the tool does.
    #[must_use]
    pub fn description(&self) -> &str {
        self.0.tool.description()
    }

    /// The JSON schema of the parameters.
    #[must_use]
    pub fn parameters(&self) -> &Json {
        self.0.tool.parameters()
    }

    /// The tool as it was given to [`Self::new`].
    #[must_use]
    pub fn inner(&self) -> Arc<dyn RootTool> {
        self.0.tool.clone()
    }

    /// Checks the arguments and runs the tool, as the endpoint does.
    ///
    /// # Errors
    /// [`ToolError`]; `Arguments` where they do not fit the schema.
    pub async fn run(&self, call: Call, deadline: Instant) -> Result<Reply, ToolError> {
        self.check(&call).map_err(ToolError::Arguments)?;
        self.0.tool.call(call, deadline).await
    }

    /// Checks arguments against the schema, unless the tool does so itself.
    pub(crate) fn check(&self, call: &Call) -> Result<(), String> {
        if self.0.tool.checks_arguments() { Ok(()) } else { self.0.signature.check(call) }
    }

    /// The time limit of a call, if it has one of its own.
    pub(crate) fn time_limit(&self) -> Option<Duration> {
        self.0.tool.time_limit()
    }

    /// Runs the tool with arguments that are checked.
    pub(crate) fn call(&self, call: Call, deadline: Instant) -> PaidToolFuture<'_> {
        self.0.tool.call_with_receipt(call, deadline)
    }
}

/// A tool that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("tool '{tool}': {reason}")]
pub struct DefinitionError {
    /// The tool's name.
    pub tool: String,
    /// The fault in the name or the schema.
    pub reason: String,
}

/// A tool from a closure.
struct FnTool {
    name: String,
    description: String,
    parameters: Json,
    function: Box<dyn Fn(Call) -> ToolFuture<'static> + Send + Sync>,
}

impl fmt::Debug for FnTool {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("FnTool").field("name", &self.name).finish_non_exhaustive()
    }
}

impl RootTool for FnTool {
    fn name(&self) -> &str {
        &self.name
    }

    fn description(&self) -> &str {
        &self.description
    }

    fn parameters(&self) -> &Json {
        &self.parameters
    }

    fn call(&self, call: Call, _deadline: Instant) -> ToolFuture<'_> {
        (self.function)(call)
    }
}
