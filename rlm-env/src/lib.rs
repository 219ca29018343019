//! The host's side of an RLM environment.
//!
//! * [`Session`]: one worker, started, driven over its FIFOs, watched, and ended with all that it started.
//! * [`SessionTool`]: a session for agents, with values in place of errors.
//! * [`Host`]: runs rollouts, from a question to an answer: a directory with the context, a session, root tools and a root
//!   model. [`trajectory`] records what happened, and [`replay`] runs it again.
//!
//! Configurations are open structs with defaults: write `SessionConfig { env, ..SessionConfig::new(worker, dir) }`, for
//! fields are added. Everything that their fields take is re-exported here, so `rlm-env` is the one dependency that an
//! embedder needs.
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

mod callbacks;
mod endpoint;
mod files;
mod interception;
mod metrics;
pub mod model;
mod prompts;
mod render;
pub mod replay;
pub mod rollout;
pub mod root_tool;
pub mod session;
mod terms;
pub mod tool;
pub mod trajectory;
mod workspace;

pub use model::RootModel;
pub use rollout::{
    Context, ContextFilter, Control, Host, HostConfig, Limits, ReplLanguage, RolloutConfig, RolloutResult,
    StopReason,
};
pub use root_tool::Tool;
pub use session::{Call, ForkServer, ForkServerError, Response, Session, SessionConfig, SessionError};
pub use tool::{SessionTool, SessionToolConfig};

/// Items for the `rlm` command alone. Nothing here is a promise.
#[doc(hidden)]
pub mod unstable {
    pub use crate::callbacks::{RootTools, RootToolsError};
    pub use crate::files::PrivateDir;
    pub use crate::prompts::{McpDoc, McpText, SubLlmPrompt};
    pub use crate::trajectory::without_reasoning;
}
