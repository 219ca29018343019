//! The vocabulary of rollouts: the terms that the rest of the crate, trajectories and settings share.
//!
//! Nothing here imports another module of the crate.

#[macro_use]
mod named;
mod call_form;
mod callbacks;
mod language;
mod left_out;
mod limits;
mod stop_reason;
mod verbosity;

pub(crate) use self::call_form::CallForm;
pub use self::callbacks::{Callbacks, UnknownCallbacks};
pub use self::language::{ReplLanguage, UnknownLanguage};
pub use self::left_out::{LeftOut, LeftOutReason};
pub use self::limits::Limits;
pub use self::stop_reason::StopReason;
pub use self::verbosity::{UnknownVerbosity, Verbosity};
