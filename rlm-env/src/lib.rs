//! The host's side of an RLM environment.
//!
//! [`session`] is one worker: started, driven over its FIFOs, watched, and ended with all that it started.
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

pub mod session;

pub use session::{Call, Interrupter, ReplLanguage, Session, SessionConfig, SessionError};
