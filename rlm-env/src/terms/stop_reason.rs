//! The ways in which rollouts end.

use serde::{Deserialize, Serialize};

/// Why a rollout ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum StopReason {
    /// The model declared its answer final.
    Answered,
    /// [`Limits::max_turns`](crate::Limits::max_turns).
    MaxTurns,
    /// [`Limits::timeout`](crate::Limits::timeout).
    TimedOut,
    /// [`Limits::budget`](crate::Limits::budget).
    BudgetExhausted,
    /// The conversation outgrew the root model's context window.
    ContextFull,
    /// The root model called no tool, even after reminders.
    NoToolCall,
    /// The root model, or a filter of its server, refused, even after reminders.
    ModelRefused,
    /// Replies of the root model were cut off at the limit of their tokens before they called a tool, even after reminders.
    ReplyCut,
    /// [`Control::stop`](crate::Control::stop).
    Stopped,
    /// [`Control::cancel`](crate::Control::cancel).
    Cancelled,
    /// Other rollouts go on from here: [`Host::run_prefix`](crate::Host::run_prefix).
    Branched,
    /// The root model's endpoint failed.
    ModelFailed,
    /// The worker died more often than [`Limits::max_restarts`](crate::Limits::max_restarts).
    WorkerFailed,
    /// The rollout could not be set up, or a prompt of its own could not be rendered.
    SetupFailed,
}
