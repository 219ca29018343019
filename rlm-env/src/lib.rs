//! The host's side of an RLM environment.
//!
//! [`session`] is one worker: started, driven over its FIFOs, watched, and ended with all that it started.

pub mod session;

pub use session::{Call, Interrupter, ReplLanguage, Session, SessionConfig, SessionError};
