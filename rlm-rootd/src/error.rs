//! Calls that have no result.

use crate::metrics::Outcome;
use crate::offload::ShuttingDown;
use crate::tool::ToolError;

/// A call without a result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// No rollout has this id.
    #[error("Rollout not found")]
    NoRollout,
    /// The rollout has no tool of this name.
    #[error("Tool '{tool}' not found; tools: {tools}")]
    NoTool {
        /// The name in the call.
        tool: String,
        /// The names of the rollout's tools.
        tools: String,
    },
    /// Too many calls of the rollout wait already.
    #[error("too many calls of this rollout are waiting")]
    Busy,
    /// The arguments do not fit the tool's schema, or cannot be read.
    #[error("{0}")]
    Arguments(String),
    /// The tool failed, or its result cannot be sent.
    #[error("{0}")]
    Failed(String),
    /// The call reached the rollout's time limit.
    #[error("Tool '{tool}' timed out after {seconds} s")]
    TimedOut {
        /// The tool.
        tool: String,
        /// The limit.
        seconds: String,
    },
    /// The rollout ended during the call.
    #[error("Rollout has ended")]
    Ended,
    /// The process ends.
    #[error("the server is shutting down")]
    ShuttingDown,
}

impl CallError {
    /// The outcome under which the call is counted.
    pub(crate) fn outcome(&self) -> Outcome {
        match self {
            Self::Arguments(_) => Outcome::Arguments,
            Self::Failed(_) => Outcome::Failed,
            Self::TimedOut { .. } => Outcome::TimedOut,
            Self::NoRollout | Self::NoTool { .. } | Self::Busy | Self::Ended | Self::ShuttingDown => {
                Outcome::Cancelled
            }
        }
    }
}

impl From<ToolError> for CallError {
    fn from(error: ToolError) -> Self {
        match error {
            ToolError::Arguments(reason) => Self::Arguments(reason),
            ToolError::Failed(reason) => Self::Failed(reason),
        }
    }
}

impl From<ShuttingDown> for CallError {
    fn from(_: ShuttingDown) -> Self {
        Self::ShuttingDown
    }
}
