//! One rollout: from a question to an answer.
//!
//! A rollout has a directory with the context, a worker that runs code there, an endpoint for that code's calls to the
//! host, and a root model. Whatever fails, the rollout ends with a result and leaves nothing behind: each part is ended
//! by its drop, the worker first and the directory last.
//!
//! Read `run` for the whole, `setup` for its beginning, `driver` for its turns.

mod answer_schema;
mod branching;
mod calls;
mod child;
mod clock;
mod config;
mod conversation;
mod driver;
mod host;
pub(crate) mod images;
mod log;
mod prefix;
mod progress;
pub(crate) mod query;
mod recursion;
mod registration;
mod run;
mod setup;
mod under_way;

pub use self::answer_schema::{AnswerSchema, InvalidAnswerSchema};
pub use self::config::{CallGate, Compaction, Control, RolloutConfig, RolloutResult};
pub use self::host::{Host, HostConfig, HostError};
pub use self::images::Image;
pub use self::prefix::Prefix;
pub use self::recursion::{Level, Recursion};
pub use self::run::Rollout;
pub use crate::metrics::Metrics;
pub use crate::prompts::{PromptError, Prompts};
pub use crate::terms::{
    Callbacks, LeftOut, LeftOutReason, Limits, ReplLanguage, StopReason, UnknownCallbacks, UnknownLanguage,
    UnknownVerbosity, Verbosity,
};
pub use crate::workspace::{Context, ContextError, ContextFilter, PathWithin};
pub use rlm_rootd::nav::InvalidPattern;
