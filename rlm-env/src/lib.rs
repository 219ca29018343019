//! The host's side of an RLM environment.
//!
//! [`session`] is one worker: started, driven over its FIFOs, watched, and ended with all that it started. [`rollout`] is
//! the way from a question to an answer: a directory with the context, a session, root tools, and a root model that leads.
//! [`trajectory`] is what happened in it, and [`replay`] does it once more. [`tool`] is a session for agents: values in place of errors, limits, turns.
//!
//! ```no_run
//! # async fn example() -> Result<(), rlm_env::SessionError> {
//! use rlm_env::{Session, SessionConfig};
//!
//! let mut session = Session::start(SessionConfig::new("rlm-worker-bash", "/data")).await?;
//! let response = session.execute("wc -l *.txt | tail -n 1").await?;
//! println!("{}", response.stdout);
//! session.close().await?;
//! # Ok(())
//! # }
//! ```

pub mod callbacks;
mod endpoint;
pub mod interception;
pub mod metrics;
pub mod prompts;
pub mod render;
pub mod replay;
pub mod rollout;
pub mod session;
pub mod terms;
pub mod tool;
pub mod trajectory;
pub mod workspace;

pub use metrics::Metrics;
pub use prompts::{PromptError, Prompts};
pub use rlm_rootd::{
    ChatReply, ChatRequest, HttpModel, ModelError, ModelErrorKind, ModelFuture, RootModel, Usage,
};
pub use rollout::{Control, Host, HostConfig, HostError, RolloutConfig, RolloutResult};
pub use session::{Call, Interrupter, Session, SessionConfig, SessionError};
pub use terms::{CallForm, Callbacks, Limits, ReplLanguage, StopReason, Verbosity};
pub use tool::{SessionTool, SessionToolConfig};
pub use trajectory::Sink;
pub use workspace::Context;
