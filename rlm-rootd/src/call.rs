//! Calls of root tools, whoever makes them: how they end, and those from this process.

use std::time::Instant;

use rlm_core::root_tool::{Call, Reply};
use tokio::time::timeout_at;

use crate::metrics::Outcome;
use crate::rollout::{Counted, Held, Rollout};
use crate::rootd::Rootd;
use crate::signature::shortened;
use crate::tool::ToolError;

/// A call that came to nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// There is no such rollout.
    #[error("Rollout not found")]
    NoRollout,
    /// The rollout has no such tool.
    #[error("Tool '{tool}' not found; tools: {tools}")]
    NoTool {
        /// The name that was called.
        tool: String,
        /// The names that there are.
        tools: String,
    },
    /// Too many calls of the rollout wait already.
    #[error("too many calls of this rollout wait")]
    Busy,
    /// The arguments are not those that the tool takes.
    #[error("{0}")]
    Arguments(String),
    /// The tool failed.
    #[error("{0}")]
    Failed(String),
    /// The time limit of calls.
    #[error("Tool '{tool}' timed out after {seconds} s")]
    TimedOut {
        /// The tool.
        tool: String,
        /// The limit.
        seconds: String,
    },
    /// The rollout has ended, and the call with it.
    #[error("Rollout has ended")]
    Ended,
}

impl CallError {
    /// How a call that was begun is counted. None: as cancelled.
    pub(crate) fn outcome(&self) -> Option<Outcome> {
        match self {
            Self::Arguments(_) => Some(Outcome::Arguments),
            Self::Failed(_) => Some(Outcome::Failed),
            Self::TimedOut { .. } => Some(Outcome::TimedOut),
            Self::NoRollout | Self::NoTool { .. } | Self::Busy | Self::Ended => None,
        }
    }
}

impl From<ToolError> for CallError {
    fn from(error: ToolError) -> Self {
        match error {
            ToolError::Arguments(fault) => Self::Arguments(fault),
            ToolError::Failed(fault) => Self::Failed(fault),
        }
    }
}

impl Rootd {
    /// Calls a tool of a rollout from this process, as code in its session would over HTTP: in its turn, checked, counted,
    /// within the time limit, and not beyond the rollout's end. Dropping the future cancels the call.
    ///
    /// # Errors
    /// [`CallError`], with the words that code in the session would get.
    pub async fn call(&self, id: &str, call: Call) -> Result<Reply, CallError> {
        let rollout = self.0.rollout(id).ok_or(CallError::NoRollout)?;
        let held = rollout.held(&call.tool)?;
        let _place = tokio::select! {
            biased;
            () = rollout.ended.cancelled() => return Err(CallError::Ended),
            place = rollout.place() => place.ok_or(CallError::Busy)?,
        };
        let counted = Counted::begin(&rollout, held, &self.0.metrics);
        let deadline = Instant::now() + rollout.tool_time_limit;
        let replied = match held.tool.check(&call) {
            Ok(()) => rollout.run(held, call, deadline).await,
            Err(fault) => Err(CallError::Arguments(fault)),
        };
        match &replied {
            Ok(_) => counted.end(Outcome::Ok),
            Err(error) => counted.fail(error),
        }
        replied
    }
}

impl Rollout {
    /// The tool of a name.
    pub(crate) fn held(&self, name: &str) -> Result<&Held, CallError> {
        self.tools.iter().find(|held| held.tool.name() == name).ok_or_else(|| {
            let names: Vec<_> = self.tools.iter().map(|held| held.tool.name()).collect();
            let tools = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            CallError::NoTool { tool: shortened(name), tools }
        })
    }

    /// Runs a tool, whose arguments are checked, until its deadline or the rollout's end.
    pub(crate) async fn run(&self, held: &Held, call: Call, deadline: Instant) -> Result<Reply, CallError> {
        let replied = tokio::select! {
            biased;
            () = self.ended.cancelled() => return Err(CallError::Ended),
            replied = timeout_at(deadline.into(), held.tool.call(call, deadline)) => replied,
        };
        let tool = held.tool.name();
        match replied {
            Ok(Ok(reply)) => Ok(reply),
            Ok(Err(error)) => {
                let error = CallError::from(error);
                // What it says is text of the tool's, and of its arguments.
                tracing::debug!(tool, outcome = ?error.outcome(), "tool failed");
                Err(error)
            }
            Err(_late) => Err(CallError::TimedOut {
                tool: tool.to_owned(),
                seconds: self.tool_time_limit.as_secs_f64().to_string(),
            }),
        }
    }
}

impl Counted<'_> {
    /// Counts a call that came to nothing.
    pub(crate) fn fail(self, error: &CallError) {
        // What is not ended is counted as cancelled.
        if let Some(outcome) = error.outcome() {
            self.end(outcome);
        }
    }
}
